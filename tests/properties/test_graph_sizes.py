"""What a graph computes without an input is not much larger than its file, in any format."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from keras_bert.untrusted import onnx_graph_check, openvino_graph_check

# Type in ONNX -> attributes of the operation in OpenVINO.
ATTRIBUTES = {
    "Add": "",
    "MatMul": 'transpose_a="false" transpose_b="false"',
    "Concat": 'axis="0"',
    "Gather": 'batch_dims="0"',
    "Identity": "",
}


def zeros(*shape):
    return np.zeros(shape, np.float32)


def graph(name, size):
    """Return the weights and the operations `(type, inputs, name)` of a graph; `x` is its input.

    The arrays that the graph computes grow faster than `size`.
    """
    if name in ("Add", "MatMul"):
        weights = {"a": zeros(size, 1), "b": zeros(1, size)}
        return weights, [(name, ("a", "b"), "c"), ("Add", ("x", "c"), "y")]
    if name == "Gather":
        indices = {"i": np.zeros(size, np.int64), "axis": np.zeros((), np.int64)}
        operations = [("Gather", ("a", "i"), "c"), ("Add", ("x", "c"), "y")]
        return {"a": zeros(2, size), **indices}, operations
    if name == "Concat":
        operations = [("Concat", ("a",) * 8, "0")]
        operations += [("Concat", (str(n),) * 8, str(n + 1)) for n in range(size // 1000)]
        return {"a": zeros(size)}, [*operations, ("Add", ("x", str(size // 1000)), "y")]
    # Identities of a weight, and each use of one, may be copies.
    names = [str(number) for number in range(size)]
    operations = [("Identity", ("a",), f"copy{name}") for name in names]
    operations += [
        ("Add", (f"{int(name) - 1}" if name != "0" else "x", f"copy{name}"), name) for name in names
    ]
    return {"a": zeros(size, size // 5 + 1)}, [*operations, ("Identity", (names[-1],), "y")]


def write_onnx(folder, weights, operations):
    nodes = []
    for kind, inputs, name in operations:
        options = {"axis": 0} if kind in ("Concat", "Gather") else {}
        if kind == "Cast":
            options = {"to": TensorProto.INT64}
        nodes.append(helper.make_node(kind, inputs, [name], **options))
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length"])
    content = helper.make_graph(nodes, "graph", [x], [y], tensors)
    file = folder / "a.onnx"
    onnx.save(helper.make_model(content, opset_imports=[helper.make_opsetid("", 12)]), file)
    return lambda: onnx_graph_check.check(file), file


def write_openvino(folder, weights, operations):
    content = b"".join(array.tobytes() for array in weights.values())
    layers = ['<layer id="x" type="Parameter"><data shape="?,?" element_type="f32"/></layer>']
    edges = []
    offset = 0
    for name, array in weights.items():
        kind = "i64" if array.dtype == np.int64 else "f32"
        shape = ", ".join(map(str, array.shape))
        data = f'element_type="{kind}" shape="{shape}" offset="{offset}" size="{array.nbytes}"'
        layers.append(f'<layer id="{name}" type="Const"><data {data}/></layer>')
        offset += array.nbytes
    for kind, inputs, name in operations:
        sources = (*inputs, "axis") if kind == "Gather" else inputs
        ports = "".join(f'<port id="{port}"/>' for port in range(len(sources)))
        data = f"<data {ATTRIBUTES[kind]}/><input>{ports}</input>"
        layers.append(f'<layer id="{name}" type="{kind}">{data}</layer>')
        edges += [
            f'<edge from-layer="{source}" from-port="0" to-layer="{name}" to-port="{port}"/>'
            for port, source in enumerate(sources)
        ]
    file = folder / "a.xml"
    text = f"<layers>{''.join(layers)}</layers><edges>{''.join(edges)}</edges>"
    file.write_text(f"<?xml version='1.0'?><net>{text}</net>")
    file.with_suffix(".bin").write_bytes(content)
    return lambda: openvino_graph_check.check(file, file.with_suffix(".bin")), file


@pytest.mark.parametrize("write", [write_onnx, write_openvino])
@pytest.mark.parametrize("name", ["Add", "MatMul", "Gather", "Concat", "uses"])
def test_arrays_that_need_no_input(tmp_path, write, name):
    small, _ = write(tmp_path, *graph(name, 5))
    small()
    large, _ = write(tmp_path, *graph(name, 300 if name == "uses" else 5000))
    with pytest.raises(ValueError, match="bytes of arrays that do not depend on the inputs"):
        large()


def test_a_cast_has_larger_numbers(tmp_path):
    """A number of 8 bits becomes one of 64."""

    def graph_with_casts(count):
        casts = [("Cast", ("a",), f"cast{number}") for number in range(count)]
        operations = [*casts, ("Add", ("x", "cast0"), "y")]
        check, _ = write_onnx(tmp_path, {"a": np.zeros(2**20, np.int8)}, operations)
        return check

    graph_with_casts(1)()
    with pytest.raises(ValueError, match="that do not depend on the inputs"):
        graph_with_casts(3)()


BROADCAST = """
    <layer id="a" type="Const"><data element_type="f32" shape="" offset="0" size="4"/></layer>
    <layer id="b" type="Parameter"><data shape="{shape}" element_type="f32"/></layer>
    <layer id="c" type="{target}"><data/><input><port id="0"/></input></layer>
    <layer id="d" type="Broadcast"><input><port id="0"/><port id="1"/></input></layer>
    </layers><edges>
    <edge from-layer="b" from-port="0" to-layer="c" to-port="0"/>
    <edge from-layer="a" from-port="0" to-layer="d" to-port="0"/>
    <edge from-layer="c" from-port="1" to-layer="d" to-port="1"/>
"""


@pytest.mark.parametrize(
    ("shape", "target", "message"),
    [
        ("50000,50000", "ShapeOf", "an input of the shape '50000,50000'"),
        ("?,1..50000", "ShapeOf", "an input of the shape"),
        ("?,?", "ShapeOf", "Broadcast to a shape that depends on the inputs"),
        ("?,?", "Identity", "Broadcast to a computed shape"),
    ],
)
def test_a_broadcast_without_a_limit(tmp_path, shape, target, message):
    layers = BROADCAST.format(shape=shape, target=target)
    (tmp_path / "a.xml").write_text(f"<net><layers>{layers}</edges></net>")
    (tmp_path / "a.bin").write_bytes(bytes(8))
    with pytest.raises(ValueError, match=message):
        openvino_graph_check.check(tmp_path / "a.xml", tmp_path / "a.bin")
