"""Check that an OpenVINO graph has only what `keras_bert.export` writes, before OpenVINO reads it.

A graph can have loops, operations of extensions, and weights that the file does not hold.

Source: "OpenVINO IR format" in the documentation of OpenVINO.
"""

import math
from pathlib import Path
from xml.parsers import expat

from keras_bert.runtime.escaping import shown
from keras_bert.runtime.words import words

_MAX_BYTES = 2**25  # BERT-Large in int8 has 2**21
_MAX_ELEMENTS = 2**20
# Other versions of OpenVINO merge some operations into Gelu, MVN and Swish.
_TYPES = words("""
    Add Broadcast Concat Const Convert CumSum Divide Equal Erf FakeQuantize Gather Gelu Identity
    Log MatMul Maximum MVN Multiply Parameter Power ReLU ReduceMax ReduceMean ReduceProd ReduceSum
    Reshape Result ShapeOf Sigmoid Slice SoftMax Sqrt Squeeze StridedSlice Subtract Swish Tanh
    Transpose Unsqueeze
""")
# Repeated, these make a tensor exponentially larger. Our graphs have at most two of each.
_GROWING = ("Broadcast", "Concat")
_MAX_GROWING = 8
_MAX_PORTS = 9  # of one of these: the inputs and the output
_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i8": 1, "u8": 1, "boolean": 1}


def check(file: Path, weights: Path) -> None:
    """Raise a `ValueError` for a graph that `keras_bert.export` does not write."""
    size = file.stat().st_size
    if size > _MAX_BYTES:
        raise ValueError(f"a file of {size} bytes")
    checker = _Checker(weights.stat().st_size)
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = checker.doctype
    parser.StartElementHandler = checker.element
    parser.Parse(file.read_bytes(), True)
    if not checker.layers:
        raise ValueError("a file without layers")


class _Checker:
    """Handlers of the XML parser."""

    def __init__(self, weights_size: int):
        self.layers = 0
        self._elements = 0
        self._growing = 0
        self._ports = 0
        self._weights_size = weights_size
        self._type = ""

    def doctype(self, *args: object) -> None:
        raise ValueError("a document type")

    def element(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > _MAX_ELEMENTS:
            raise ValueError(f"more than {_MAX_ELEMENTS} elements")
        if name == "layer":
            self.layers += 1
            self._type = attributes.get("type", "")
            if self._type not in _TYPES:
                raise ValueError(f"the operation {shown(self._type)}")
            self._ports = 0
            self._growing += self._type in _GROWING
            if self._growing > _MAX_GROWING:
                raise ValueError(f"more than {_MAX_GROWING} operations that enlarge tensors")
        elif name == "port":
            self._ports += 1
            if self._type in _GROWING and self._ports > _MAX_PORTS:
                raise ValueError(
                    f"the operation {self._type} with {self._ports} inputs and outputs"
                )
        elif name == "data" and self._type == "Const":
            self._check_weight(attributes)

    def _check_weight(self, attributes: dict[str, str]) -> None:
        """Check that the file of the weights holds each element of a weight."""
        dtype = attributes.get("element_type", "")
        if dtype not in _BYTES:
            raise ValueError(f"a weight of the type {shown(dtype)}")
        shape = [int(number) for number in attributes.get("shape", "").split(",") if number.strip()]
        offset = int(attributes["offset"])
        size = int(attributes["size"])
        expected = math.prod(shape) * _BYTES[dtype]
        is_negative = offset < 0 or any(length < 0 for length in shape)
        if size != expected or is_negative or offset + size > self._weights_size:
            raise ValueError(f"a weight of the shape {shape!s:.80} with {size} bytes at {offset}")
