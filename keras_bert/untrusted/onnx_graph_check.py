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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_bert.runtime.escaping import shown
from keras_bert.untrusted import protobuf

_MAX_FIELDS = 2**17  # BERT-Large in int8 has 2**14
_OPS = {
    "Add", "Cast", "Concat", "CumSum", "Div", "Equal", "Erf", "Flatten", "Gather", "GatherND",
    "Identity", "MatMul", "Max", "Mul", "Pow", "ReduceMax", "ReduceMean", "ReduceSum", "Relu",
    "Reshape", "Shape", "Sigmoid", "Slice", "Softmax", "Sqrt", "Squeeze", "Sub", "Tanh",
    "Transpose", "Unsqueeze",
    # Only int8 models have these.
    "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger",
}  # fmt: skip
# `TensorProto.DataType` -> bytes per element.
_ELEMENT_SIZES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8}
# Names of the fields, by number.
_MODEL = {
    1: "ir_version", 2: "producer_name", 3: "producer_version", 4: "domain", 5: "model_version",
    6: "doc_string", 7: "graph", 8: "opset_import", 14: "metadata_props",
}  # fmt: skip
_GRAPH = {
    1: "node", 2: "name", 5: "initializer", 10: "doc_string", 11: "input", 12: "output",
    13: "value_info",
}  # fmt: skip
_NODE = {1: "input", 2: "output", 3: "name", 4: "op_type", 5: "attribute", 6: "doc_string"}
_ATTRIBUTE = {1: "name", 3: "i", 8: "ints", 13: "doc_string", 20: "type"}
_TENSOR = {
    1: "dims", 2: "data_type", 4: "float_data", 5: "int32_data", 7: "int64_data", 8: "name",
    9: "raw_data", 12: "doc_string", 14: "data_location",
}  # fmt: skip


def check(file: Path) -> None:
    """Raise a `ValueError` for a graph that `keras_bert.export` does not write."""
    with open(file, "rb") as stream:
        if not stream.read(1):
            raise ValueError("an empty file")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _Checker(data).check_model()


class _Checker:
    """Checks the messages of one graph, and counts their fields."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._fields = 0

    def check_model(self) -> None:
        for name, start, end in self._read("ModelProto", _MODEL, 0, len(self._data)):
            if name == "graph":
                self._check_graph(start, end)

    def _check_graph(self, start: int, end: int) -> None:
        for name, first, last in self._read("GraphProto", _GRAPH, start, end):
            if name == "node":
                self._check_node(first, last)
            elif name == "initializer":
                self._check_weight(first, last)

    def _check_node(self, start: int, end: int) -> None:
        for name, first, last in self._read("NodeProto", _NODE, start, end):
            if name == "op_type":
                op = self._data[first:last].decode("utf-8", "replace")
                if op not in _OPS:
                    raise ValueError(f"the op {shown(op)}")
            elif name == "attribute":
                for _ in self._read("AttributeProto", _ATTRIBUTE, first, last):
                    pass  # `_read` checks the fields

    def _check_weight(self, start: int, end: int) -> None:
        """Check that the file holds each element of a weight."""
        shape = []
        data_type = 0
        size = None  # bytes of the elements; a scalar may have its element elsewhere
        for name, first, last in self._read("TensorProto", _TENSOR, start, end):
            if name == "dims":
                shape += list(self._varints(first, last))
            elif name == "data_type":
                data_type = next(self._varints(first, last))
            elif name == "raw_data":
                size = last - first
            elif name == "data_location" and any(self._varints(first, last)):
                raise ValueError("a weight in another file")
        if data_type not in _ELEMENT_SIZES:
            raise ValueError(f"a weight of the type {data_type}")
        expected = math.prod(shape) * _ELEMENT_SIZES[data_type]
        is_scalar = size is None and not shape
        if size != expected and not is_scalar:
            raise ValueError(f"a weight of the shape {shape!s:.80} with {size or 0} bytes")

    def _varints(self, start: int, end: int) -> Iterator[int]:
        position = start
        while position < end:
            value, position = protobuf.varint(self._data, position)
            yield value

    def _read(
        self, message: str, names: dict[int, str], start: int, end: int
    ) -> Iterator[tuple[str, int, int]]:
        """Yield the fields of a message: name, start and end. Other fields are an error."""
        for tag, first, last in protobuf.fields(self._data, start, end):
            number = tag >> 3
            self._fields += 1
            if self._fields > _MAX_FIELDS:
                raise ValueError(f"more than {_MAX_FIELDS} fields")
            if number not in names:
                raise ValueError(f"field {number} of {message}")
            yield names[number], first, last
