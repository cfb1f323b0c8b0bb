"""Check that an ONNX graph has only what `keras_bert.export` writes, before ONNX Runtime reads it.

A graph can have loops, functions that call each other, tensors that are computed from a size, and
weights in any file of the machine. Some versions of ONNX Runtime read such files, and compute such
tensors, when they open a graph.

This module reads the wire format of protocol buffers and skips weights: a check of BERT-Large
takes less than a second.

Source: onnx/onnx.proto.
"""

import math
from pathlib import Path
from typing import Any

from keras_bert.runtime import budget, reading
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.words import words
from keras_bert.untrusted import graph_sizes, protobuf
from keras_bert.untrusted.graph_sizes import Growth

_OPS = {
    "Identity": Growth.SAME_SHAPE,
    "Concat": Growth.SUM,
    "Shape": Growth.SHAPE,
    **dict.fromkeys(
        words("""
            Cast CumSum DequantizeLinear DynamicQuantizeLinear Erf Flatten Log ReduceMax ReduceMean
            ReduceSum Relu Reshape Sigmoid Slice Softmax Sqrt Squeeze Tanh Transpose Unsqueeze
        """),
        Growth.FIRST,
    ),
    **dict.fromkeys(words("Add Div Equal Max Mul Pow Sub"), Growth.BROADCAST),
    **dict.fromkeys(words("Gather GatherND MatMul MatMulInteger"), Growth.PRODUCT),
}
# Operations whose output has larger numbers than their inputs -> bytes of one, at most.
_ITEM_SIZES = {"Cast": 8, "MatMulInteger": 4}
# `TensorProto.DataType` -> bytes per element.
_ELEMENT_SIZES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8}
_FLOAT = 1
# Operations whose output is not of the type of the first input -> True for floats.
_HAS_FLOATS = {
    "DequantizeLinear": True,
    **dict.fromkeys(words("DynamicQuantizeLinear Equal MatMulInteger Shape"), False),
}
# The numbers of the fields that a message may have. Other fields hold functions, subgraphs, sparse
# tensors, tensors in attributes, and names of other files.
_FIELDS = {
    "ModelProto": {1, 2, 3, 4, 5, 6, 7, 8, 14},
    "GraphProto": {1, 2, 5, 10, 11, 12, 13},
    "NodeProto": {1, 2, 3, 4, 5, 6},
    "AttributeProto": {1, 3, 8, 13, 20},
    "TensorProto": {1, 2, 4, 5, 7, 8, 9, 12, 14},
}
# The fields that hold one of these messages.
_INNER = {
    ("ModelProto", 7): "GraphProto",
    ("GraphProto", 1): "NodeProto",
    ("GraphProto", 5): "TensorProto",
    ("NodeProto", 5): "AttributeProto",
}
# Fields of a NodeProto.
_INPUT, _OUTPUT, _OP_TYPE, _ATTRIBUTE = 1, 2, 4, 5
_INTEGER = 3  # field of an AttributeProto
# Fields of a TensorProto.
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA, _DATA_LOCATION = 1, 2, 8, 9, 14
_Spans = list[tuple[int, int, int]]  # number of a field, start and end of its value


def check(file: Path) -> bytes:
    """Return the content of a file with a graph that `keras_bert.export` writes.

    Raise a `ValueError` for any other graph.
    """
    content = reading.read_bytes(file, budget.MAX_FILE)
    if not content:
        raise ValueError("an empty file")
    _check_graph(content)
    return content


def _check_graph(data: bytes) -> None:
    unread = [("ModelProto", 0, len(data))]
    count = 0
    weights: dict[str, graph_sizes.Array] = {}
    operations: dict[str, graph_sizes.Operation] = {}
    while unread:
        message, start, end = unread.pop()
        spans: _Spans = []
        for tag, first, last in protobuf.fields(data, start, end):
            count += 1
            if count > budget.MAX_ITEMS:
                budget.check(count, "fields", budget.MAX_ITEMS)
            number = tag >> 3
            if number not in _FIELDS[message]:
                raise ValueError(f"field {number} of {message}")
            if (message, number) in _INNER:
                unread.append((_INNER[message, number], first, last))
            spans.append((number, first, last))
        if message == "TensorProto":
            [name] = _texts(data, spans, _NAME)
            _add(weights, name, _weight(data, spans))
        elif message == "NodeProto":
            operation = _operation(data, spans)
            for name in _texts(data, spans, _OUTPUT):
                _add(operations, name, operation)
    for name in weights.keys() & operations.keys():
        raise ValueError(f"a weight and an operation with the name {shown(name)}")
    concats = sum(operation.growth is Growth.SUM for operation in operations.values())
    budget.check(concats, "ops Concat", graph_sizes.MAX_GROWING)
    graph_sizes.check(weights, operations, len(data))


def _add(values: dict[str, Any], name: str, value: object) -> None:
    if name in values:
        raise ValueError(f"two values with the name {shown(name)}")
    values[name] = value
    budget.check(len(values), "weights or operations", budget.MAX_OBJECTS)


def _operation(data: bytes, spans: _Spans) -> graph_sizes.Operation:
    [op] = _texts(data, spans, _OP_TYPE)
    if op not in _OPS:
        raise ValueError(f"the op {shown(op)}")
    # An input that is left out has no name.
    inputs = tuple(name for name in _texts(data, spans, _INPUT) if name)
    is_float = _casts_to_float(data, spans) if op == "Cast" else _HAS_FLOATS.get(op)
    return graph_sizes.Operation(op, _OPS[op], inputs, _ITEM_SIZES.get(op), is_float)


def _casts_to_float(data: bytes, spans: _Spans) -> bool:
    """Return True if all attributes of a Cast are the type of floats."""
    types = []
    for number, start, end in spans:
        if number == _ATTRIBUTE:
            for tag, first, last in protobuf.fields(data, start, end):
                if tag >> 3 == _INTEGER:
                    types += _varints(data, first, last)
    return set(types) == {_FLOAT}


def _texts(data: bytes, spans: _Spans, field: int) -> list[str]:
    """Return the strings in a field."""
    return [
        data[start:end].decode("utf-8", "surrogateescape")
        for number, start, end in spans
        if number == field
    ]


def _weight(data: bytes, spans: _Spans) -> graph_sizes.Array:
    """Check that the file holds each element of a weight."""
    shape: list[int] = []
    data_type = 0
    size = None  # bytes of the elements; a scalar may have its element elsewhere
    for number, start, end in spans:
        if number == _DIMS:
            shape += _varints(data, start, end)
        elif number == _DATA_TYPE:
            [data_type] = _varints(data, start, end)
        elif number == _RAW_DATA:
            size = end - start
        elif number == _DATA_LOCATION and any(_varints(data, start, end)):
            raise ValueError("a weight in another file")
    if data_type not in _ELEMENT_SIZES:
        raise ValueError(f"a weight of the type {data_type}")
    itemsize = _ELEMENT_SIZES[data_type]
    expected = math.prod(shape) * itemsize
    is_scalar = size is None and not shape
    if size != expected and not is_scalar:
        raise ValueError(f"a weight of the shape {shape!s:.80} with {size or 0} bytes")
    return graph_sizes.Array(math.prod(shape), itemsize, tuple(shape), data_type == _FLOAT)


def _varints(data: bytes, start: int, end: int) -> list[int]:
    numbers = []
    while start < end:
        number, start = protobuf.varint(data, start)
        numbers.append(number)
    return numbers
