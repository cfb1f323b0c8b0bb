"""Check that an OpenVINO graph has only what `keras_bert.export` writes, before OpenVINO reads it.

A graph can have loops, operations of extensions, and weights that the file does not hold. OpenVINO
computes what does not depend on the inputs' numbers while it loads a graph, and reserves memory for
arrays of a known shape. So these must not be much larger than the file of the weights.

Source: "OpenVINO IR format" in the documentation of OpenVINO.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from keras_bert.runtime import budget, reading
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.words import words
from keras_bert.untrusted import graph_sizes
from keras_bert.untrusted.graph_sizes import Growth

# OpenVINO's time grows with the square of the operations that are not weights: 6 seconds for 2,000.
# BERT-Large has 1,200, and in int8 1,800. A deeper model has more weights.
_MAX_OPERATIONS = 2**11
_BYTES_PER_OPERATION = 2**14  # of the weights, beyond this number
_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i8": 1, "u8": 1, "boolean": 1}
_FLOATS = ("f32", "f16", "bf16")
# Other versions of OpenVINO merge some operations into Gelu, MVN and Swish.
_TYPES = {
    **dict.fromkeys(("Convert", "Identity"), Growth.SAME_SHAPE),
    **dict.fromkeys(
        words("""
            CumSum Erf Gelu Log MVN ReLU ReduceMax ReduceMean ReduceProd ReduceSum Reshape Result
            Sigmoid Slice SoftMax Sqrt Squeeze StridedSlice Swish Tanh Transpose Unsqueeze
        """),
        Growth.FIRST,
    ),
    **dict.fromkeys(
        words("Add Divide Equal FakeQuantize Maximum Multiply Power Subtract"), Growth.BROADCAST
    ),
    "Broadcast": Growth.PRODUCT_OF_KNOWN,
    "Concat": Growth.SUM,
    "Gather": Growth.PRODUCT,
    "MatMul": Growth.PRODUCT,
    "ShapeOf": Growth.SHAPE,
}
_GROWING = ("Broadcast", "Concat")
_WEIGHT = "Const"
_INPUT = "Parameter"
# Element -> the elements that may have it as a child. Elements below `rt_info` say nothing about
# the numbers.
_PARENTS = {
    "net": (None,),
    "layers": ("net",),
    "edges": ("net",),
    "edge": ("edges",),
    "layer": ("layers",),
    "data": ("layer",),
    "input": ("layer",),
    "output": ("layer",),
    "port": ("input", "output"),
    "dim": ("port",),
    "rt_info": ("net", "layer", "port"),
}
_ONCE = ("layers", "edges", "data", "input", "output")  # in one parent


def check(file: Path, weights: Path) -> tuple[bytes, np.ndarray]:
    """Return the contents of the two files of a graph that `keras_bert.export` writes.

    The weights are an array of bytes. Raise a `ValueError` for any other graph.
    """
    content = reading.read_bytes(file)
    numbers = np.fromfile(weights, np.uint8)
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.Parse(content, True)
    if not reader.layers:
        raise ValueError("a file without layers")
    _check_layers(reader.layers, len(numbers))
    return content, numbers


def check_shapes(graph: Any, weights_size: int) -> None:
    """Raise a `ValueError` if an `openvino.Model` has large arrays of known shapes.

    OpenVINO reserves their memory before it gets inputs.
    """
    total = 0
    for operation in graph.get_ops():
        for output in operation.outputs():
            shape = output.partial_shape
            if operation.get_type_name() == "Constant" or shape.rank.is_dynamic:
                continue
            lengths = [dimension.get_max_length() for dimension in shape]
            if min(lengths, default=0) >= 0:  # -1: any length
                total += output.get_element_type().size * math.prod(lengths)
    graph_sizes.check_total(total, weights_size)


@dataclasses.dataclass
class _Layer:
    """An operation: its type and attributes, and the layers of its inputs in order."""

    type: str
    data: dict[str, str] = dataclasses.field(default_factory=dict)
    ports: list[str] = dataclasses.field(default_factory=list)
    sources: dict[str, str] = dataclasses.field(default_factory=dict)  # port -> layer

    def inputs(self) -> list[str]:
        if len(set(self.ports)) < len(self.ports) or set(self.ports) != set(self.sources):
            raise ValueError(f"the operation {self.type} with inputs without a source")
        return [self.sources[port] for port in self.ports]


class _Reader:
    """Handlers of the XML parser, which collect the layers by their ID."""

    def __init__(self) -> None:
        self.layers: dict[str, _Layer] = {}
        self._path: list[str] = []  # open elements
        self._children: list[set[str]] = [set()]  # of each open element
        self._elements = 0
        self._layer = _Layer("")

    def doctype(self, *args: object) -> None:
        raise ValueError("a document type")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > budget.MAX_ITEMS:
            budget.check(self._elements, "elements", budget.MAX_ITEMS)
        if "rt_info" not in self._path:
            parent = self._path[-1] if self._path else None
            is_repeated = name in _ONCE and name in self._children[-1]
            if parent not in _PARENTS.get(name, ()) or is_repeated:
                raise ValueError(f"the element {shown(name)} in {parent}")
            self._read(name, attributes, parent)
        self._children[-1].add(name)
        self._children.append(set())
        self._path.append(name)

    def end(self, name: str) -> None:
        self._path.pop()
        self._children.pop()

    def _read(self, name: str, attributes: dict[str, str], parent: str | None) -> None:
        if name == "layer":
            self._layer = _Layer(attributes.get("type", ""))
            if self._layer.type not in (*_TYPES, _WEIGHT, _INPUT):
                raise ValueError(f"the operation {shown(self._layer.type)}")
            if attributes["id"] in self.layers:
                raise ValueError("two layers of one ID")
            self.layers[attributes["id"]] = self._layer
            budget.check(len(self.layers), "layers", budget.MAX_OBJECTS)
        elif name == "data":
            self._layer.data = dict(attributes)
        elif name == "port" and parent == "input":
            self._layer.ports.append(attributes["id"])
        elif name == "edge":
            sources = self.layers[attributes["to-layer"]].sources
            if attributes["to-port"] in sources or attributes["from-layer"] not in self.layers:
                raise ValueError("an edge without a layer, or two edges to one input")
            sources[attributes["to-port"]] = attributes["from-layer"]


def _check_layers(layers: dict[str, _Layer], weights_size: int) -> None:
    """Check the weights, the inputs and the sizes of a graph."""
    inputs = {name: layer.inputs() for name, layer in layers.items()}
    growing = [name for name, layer in layers.items() if layer.type in _GROWING]
    widest = max((len(inputs[name]) for name in growing), default=0)
    budget.check(len(growing), "operations that enlarge tensors", graph_sizes.MAX_GROWING)
    budget.check(widest, "inputs of such an operation", graph_sizes.MAX_GROWING)
    weights = {}
    operations = {}
    for name, layer in layers.items():
        if layer.type == _WEIGHT:
            weights[name] = _weight(layer.data, weights_size)
        elif layer.type == _INPUT:
            _check_input(layer.data)
        else:
            sources = inputs[name]
            if layer.type == "Broadcast":
                # Its size is that of the array whose shape is the target.
                target = layers[sources[1]]
                if target.type != "ShapeOf":
                    raise ValueError("the operation Broadcast to a computed shape")
                sources = [sources[0], *inputs[sources[1]]]
            converted = layer.data.get("destination_type", "")
            is_float = None
            if layer.type == "Convert":
                is_float = converted in _FLOATS
            elif layer.type in ("Equal", "ShapeOf"):
                is_float = False
            operations[name] = graph_sizes.Operation(
                layer.type, _TYPES[layer.type], tuple(sources), _BYTES.get(converted), is_float
            )
    if len(operations) > _MAX_OPERATIONS + weights_size // _BYTES_PER_OPERATION:
        raise ValueError(f"{len(operations)} operations on weights of {weights_size:.3g} bytes")
    graph_sizes.check(weights, operations, weights_size)


def _check_input(data: dict[str, str]) -> None:
    """Check that an input has no length that is known before there are texts."""
    lengths = [length.strip() for length in data.get("shape", "").split(",")]
    if len(lengths) > budget.MAX_RANK or any(length not in ("?", "-1") for length in lengths):
        raise ValueError(f"an input of the shape {shown(data.get('shape'))}")


def _weight(data: dict[str, str], weights_size: int) -> graph_sizes.Array:
    """Check that the file of the weights holds each number of a weight."""
    dtype = data.get("element_type", "")
    if dtype not in _BYTES:
        raise ValueError(f"a weight of the type {shown(dtype)}")
    shape = tuple(int(number) for number in data.get("shape", "").split(",") if number.strip())
    offset = int(data["offset"])
    size = int(data["size"])
    expected = math.prod(shape) * _BYTES[dtype]
    is_negative = offset < 0 or any(length < 0 for length in shape)
    is_outside = offset + size > weights_size
    if size != expected or is_negative or is_outside or len(shape) > budget.MAX_RANK:
        raise ValueError(f"a weight of the shape {list(shape)!s:.80} with {size} bytes at {offset}")
    return graph_sizes.Array(math.prod(shape), _BYTES[dtype], shape, dtype in _FLOATS)
