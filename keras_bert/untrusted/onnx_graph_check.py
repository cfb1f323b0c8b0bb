"""Check that an ONNX graph has only what `keras_bert.export` writes, before ONNX Runtime reads it.

A graph can have loops, functions that call each other, tensors that are computed from a size, and
weights in any file of the machine. Some versions of ONNX Runtime read such files, and compute such
tensors, when they open a graph.

This module reads the wire format of protocol buffers and skips weights: a check of BERT-Large
takes less than a second.

Source: onnx/onnx.proto.
"""

import math
import mmap
from pathlib import Path
from typing import Any

from keras_bert.runtime.escaping import shown
from keras_bert.untrusted import protobuf

_MAX_FIELDS = 2**17  # BERT-Large in int8 has 2**14
_OPS = {
    "Add", "Cast", "Concat", "CumSum", "Div", "Equal", "Erf", "Flatten", "Gather", "GatherND",
    "Identity", "Log", "MatMul", "Max", "Mul", "Pow", "ReduceMax", "ReduceMean", "ReduceSum",
    "Relu", "Reshape", "Shape", "Sigmoid", "Slice", "Softmax", "Sqrt", "Squeeze", "Sub", "Tanh",
    "Transpose", "Unsqueeze",
    # Only int8 models have these.
    "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger",
}  # fmt: skip
_MAX_CONCATS = 8  # repeated, they make a tensor exponentially larger; our graphs have two
# `TensorProto.DataType` -> bytes per element.
_ELEMENT_SIZES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8}
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
_OP_TYPE = ("NodeProto", 4)
# Fields of a TensorProto.
_DIMS, _DATA_TYPE, _RAW_DATA, _DATA_LOCATION = 1, 2, 9, 14


def check(file: Path) -> None:
    """Raise a `ValueError` for a graph that `keras_bert.export` does not write."""
    with open(file, "rb") as stream:
        if not stream.read(1):
            raise ValueError("an empty file")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _check_graph(data)


def _check_graph(data: Any) -> None:
    unread = [("ModelProto", 0, len(data))]
    count = 0
    concats = 0
    while unread:
        message, start, end = unread.pop()
        spans = []  # number of a field, start and end of its value
        for tag, first, last in protobuf.fields(data, start, end):
            count += 1
            if count > _MAX_FIELDS:
                raise ValueError(f"more than {_MAX_FIELDS} fields")
            number = tag >> 3
            if number not in _FIELDS[message]:
                raise ValueError(f"field {number} of {message}")
            if (message, number) in _INNER:
                unread.append((_INNER[message, number], first, last))
            if (message, number) == _OP_TYPE:
                op = data[first:last].decode("utf-8", "replace")
                if op not in _OPS:
                    raise ValueError(f"the op {shown(op)}")
                concats += op == "Concat"
                if concats > _MAX_CONCATS:
                    raise ValueError(f"more than {_MAX_CONCATS} ops Concat")
            spans.append((number, first, last))
        if message == "TensorProto":
            _check_weight(data, spans)


def _check_weight(data: Any, spans: list[tuple[int, int, int]]) -> None:
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
    expected = math.prod(shape) * _ELEMENT_SIZES[data_type]
    is_scalar = size is None and not shape
    if size != expected and not is_scalar:
        raise ValueError(f"a weight of the shape {shape!s:.80} with {size or 0} bytes")


def _varints(data: Any, start: int, end: int) -> list[int]:
    numbers = []
    while start < end:
        number, start = protobuf.varint(data, start)
        numbers.append(number)
    return numbers
