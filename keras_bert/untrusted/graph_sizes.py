"""Limit what a graph can compute, above all before it gets an input.

A weight of a few bytes can be repeated, broadcast or multiplied to gigabytes. Engines compute such
arrays while they load a graph, and copy a weight for each operation that uses it. So a bound of
each array that does not depend on the inputs is computed here, without the arrays.

A division of integers by zero ends the process, so only floats are divided.
"""

import dataclasses
import enum
import graphlib
import math

import numpy as np

from keras_bert.runtime import budget

# An int8 weight becomes float32, is multiplied by its scales, and is copied for its matmul.
_GROWTH = 16
# Repeated, Concat and Broadcast make a tensor exponentially larger. Our graphs have at most four.
MAX_GROWING = 8
_DIVISIONS = ("Div", "Divide")  # in ONNX and in OpenVINO
_LARGEST_ITEMSIZE = 8  # bytes of a number of any type


class Growth(enum.Enum):
    """How large the output of an operation is."""

    FIRST = enum.auto()  # at most as large as the first input
    SAME_SHAPE = enum.auto()  # the shape of the first input
    BROADCAST = enum.auto()  # the shape to which all inputs are broadcast
    SUM = enum.auto()
    PRODUCT = enum.auto()
    # As `PRODUCT`, but no input may depend on the graph's inputs.
    PRODUCT_OF_KNOWN = enum.auto()
    SHAPE = enum.auto()  # the shape of the first input, as an array


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation: its type, for errors, and the names of its inputs.

    `itemsize` is the most bytes of a number in the output; by default, the largest of the inputs.
    `is_float` is True if the output has floats; by default, the first input decides.
    """

    type: str
    growth: Growth
    inputs: tuple[str, ...]
    itemsize: int | None = None
    is_float: bool | None = None


@dataclasses.dataclass(frozen=True)
class Array:
    """A bound of an array that does not depend on the graph's inputs.

    Attributes:
        size: It has at most so many numbers.
        itemsize: Bytes of a number.
        shape: Its shape, or `None` if it is not known.
        is_float: True if it has floats.
    """

    size: int
    itemsize: int
    shape: tuple[int, ...] | None = None
    is_float: bool = False

    @property
    def bytes(self) -> int:
        return self.size * self.itemsize


def check(weights: dict[str, Array], operations: dict[str, Operation], weights_size: int) -> None:
    """Raise a `ValueError` for a graph that computes much more than its weights without inputs.

    Args:
        weights: The weights by their names.
        operations: The operations by the names of their outputs. Other names are the inputs of the
            graph.
        weights_size: Bytes of the weights in the file.
    """
    arrays: dict[str, Array | None] = dict(weights)  # `None` depends on the graph's inputs
    floats = {name for name, array in weights.items() if array.is_float}
    total = 0
    sources = {name: operation.inputs for name, operation in operations.items()}
    for name in graphlib.TopologicalSorter(sources).static_order():
        if name not in operations:
            arrays.setdefault(name, None)
            continue
        operation = operations[name]
        is_float = operation.is_float
        if is_float is None:
            is_float = floats.issuperset(operation.inputs[:1])
        if is_float:
            floats.add(name)
        elif operation.type in _DIVISIONS:
            raise ValueError(f"the operation {operation.type} of integers")
        inputs = [arrays[source] for source in operation.inputs]
        known = [array for array in inputs if array is not None]
        output = _output(operation, known, is_known=len(known) == len(inputs))
        arrays[name] = output
        # An operation on an input of the graph may copy its weights.
        total += sum(array.bytes for array in known) if output is None else output.bytes
        check_total(total, weights_size)


def check_total(total: int, weights_size: int) -> None:
    """Check the number of bytes that a graph needs besides its weights."""
    unit = "bytes of arrays that do not depend on the inputs"
    budget.check_growth(total, unit, weights_size, _GROWTH)


def _output(operation: Operation, known: list[Array], *, is_known: bool) -> Array | None:
    """Return a bound of the output. `known` are the inputs that do not depend on the graph's."""
    growth = operation.growth
    if growth is Growth.SHAPE:
        return Array(budget.MAX_RANK, _LARGEST_ITEMSIZE)
    if not is_known or not known:
        if growth is Growth.PRODUCT_OF_KNOWN:
            raise ValueError(
                f"the operation {operation.type} to a shape that depends on the inputs"
            )
        return None
    itemsize = operation.itemsize or max(array.itemsize for array in known)
    first = known[0]
    if growth is Growth.FIRST:
        return Array(first.size, itemsize)
    if growth is Growth.SAME_SHAPE:
        return Array(first.size, itemsize, first.shape)
    if growth is Growth.SUM:
        return Array(sum(array.size for array in known), itemsize)
    shapes = [array.shape for array in known if array.shape is not None]
    if growth is Growth.BROADCAST and len(shapes) == len(known):
        shape = np.broadcast_shapes(*shapes)
        return Array(math.prod(shape), itemsize, shape)
    return Array(math.prod(max(array.size, 1) for array in known), itemsize)
