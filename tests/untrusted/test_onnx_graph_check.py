"""Tests of the check of ONNX graphs. Exports of each head pass it in tests/pipelines."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from keras_bert.exporting import graph_session
from keras_bert.exporting.graph_folder import GraphFile
from keras_bert.untrusted import onnx_graph_check


def weight(name="w", size=2):
    return numpy_helper.from_array(np.zeros(size, np.float32), name)


def external_weight():
    tensor = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[8])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret.txt")
    return tensor


def sparse_weight():
    return helper.make_sparse_tensor(weight(), numpy_helper.from_array(np.array([0])), [10**10])


def claim(tensor, **fields):
    """Return a copy of a weight that declares other fields."""
    copy = TensorProto()
    copy.CopyFrom(tensor)
    del copy.dims[:]
    copy.MergeFrom(TensorProto(**fields))
    return copy


def model(nodes=(), weights=(), **options):
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2,))
    graph = helper.make_graph(nodes, "graph", [], [output], weights, **options)
    return helper.make_model(graph)


def subgraph():
    return helper.make_graph([], "inner", [], [])


def with_functions():
    function = helper.make_function(
        "domain", "f", ["x"], ["y"], [], [helper.make_opsetid("domain", 1)]
    )
    graph = model()
    graph.functions.append(function)
    return graph


DIVISION = helper.make_node("Div", ["s", "s"], ["y"])
BROKEN = {
    "external": (lambda: model(weights=[external_weight()]), "field 13 of TensorProto"),
    "location": (
        lambda: model(weights=[claim(weight(), dims=[2], data_location=1)]),
        "a weight in another file",
    ),
    "dtype": (lambda: model(weights=[claim(weight(), dims=[2], data_type=11)]), "of the type 11"),
    "sparse": (lambda: model(sparse_initializer=[sparse_weight()]), "field 15 of GraphProto"),
    "sparse constant": (
        lambda: model([helper.make_node("Identity", [], ["y"], sparse_value=sparse_weight())]),
        "field 22 of AttributeProto",
    ),
    "constant in an attribute": (
        lambda: model([helper.make_node("Identity", [], ["y"], value=external_weight())]),
        "field 5 of AttributeProto",
    ),
    "subgraph": (
        lambda: model([helper.make_node("Identity", [], ["y"], body=subgraph())]),
        "field 6 of AttributeProto",
    ),
    "functions": (with_functions, "field 25 of ModelProto"),
    "division of integers": (
        lambda: model([helper.make_node("Shape", ["w"], ["s"]), DIVISION], [weight()]),
        "the operation Div of integers",
    ),
    "domain": (
        lambda: model([helper.make_node("Add", ["w", "w"], ["y"], domain="my.ops")]),
        "field 7 of NodeProto",
    ),
    **{
        op: (lambda op=op: model([helper.make_node(op, ["w"], ["y"])]), f"the op '{op}'")
        for op in ("ConstantOfShape", "Range", "Loop", "Expand", "Tile", "RandomNormal")
    },
    "concats": (
        lambda: model([helper.make_node("Concat", ["w", "w"], [str(n)]) for n in range(9)]),
        "9 ops Concat, at most 8",
    ),
    "size": (
        lambda: model(weights=[claim(weight(), dims=[10**10])]),
        "a weight of the shape .10000000000. with 8 bytes",
    ),
    "empty": (
        lambda: model(weights=[TensorProto(name="w", data_type=1, dims=[10**10])]),
        "with 0 bytes",
    ),
    "type": (
        lambda: model(weights=[TensorProto(name="w", data_type=8, string_data=[b"a"])]),
        "field 6 of TensorProto",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_export_does_not_write(case, tmp_path):
    make, message = BROKEN[case]
    file = tmp_path / "model.onnx"
    file.write_bytes(make().SerializeToString())
    with pytest.raises(ValueError, match=message):
        onnx_graph_check.check(file)


def test_a_plain_graph(tmp_path):
    file = tmp_path / "model.onnx"
    graph = model([helper.make_node("Add", ["w", "s"], ["y"])], [weight(), weight("s", ())])
    onnx.save(graph, file)
    onnx_graph_check.check(file)
    content = file.read_bytes()
    for size in (0, len(content) - 1):
        file.write_bytes(content[:size])
        with pytest.raises(ValueError, match="empty|truncated"):
            onnx_graph_check.check(file)


def test_bytes_that_select_another_format(tmp_path):
    """ONNX Runtime reads content with "ORTM" at this place as its own format, by default."""
    file = tmp_path / "model.onnx"
    graph = model([helper.make_node("Add", ["w", "w"], ["y"])], [weight()])
    file.write_bytes(b"\x12\x06\0\0ORTM" + graph.SerializeToString())  # a second producer_name
    assert graph_session.open_session(GraphFile(file, tmp_path)).widths == {"y": 2}


def test_a_tag_that_parsers_shorten(tmp_path):
    # Field 7 (graph) with a 33rd bit, which protobuf ignores.
    file = tmp_path / "model.onnx"
    file.write_bytes(bytes([0x80 | 0x3A, 0x80, 0x80, 0x80, 0x10, 0]))
    with pytest.raises(ValueError, match="unknown number"):
        onnx_graph_check.check(file)
