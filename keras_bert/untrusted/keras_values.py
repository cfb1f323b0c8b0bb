"""Values in the config of an untrusted Keras model: numbers, strings, shapes, and their limits."""

import itertools
from collections.abc import Iterator
from typing import Any

import keras

from keras_bert.runtime.escaping import printable, shown

_MAX_DEPTH = 100  # levels of nested JSON values; a model in a model takes four levels
_MAX_VALUES = 1_000_000
_MAX_DIMENSIONS = 16  # of a shape
MAX_ARGUMENTS = 1000  # tensors or numbers in a list of a call; shapes of a layer
_MAX_INTEGER = 2**53  # a float holds each smaller integer exactly


class Refused(ValueError):
    """The config has an object or a value that an untrusted model must not have."""


def expect(value: Any, kind: type, what: str) -> Any:
    """Return a value of a type. `True` is no integer."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Refused(f"its config has {shown(value)} in place of {what}")
    return value


def check_size(config: Any) -> None:
    """Check the depth and the number of values, without recursion."""
    count = 0
    level = [config]
    for _ in range(_MAX_DEPTH):
        count += len(level)
        if count > _MAX_VALUES:
            raise Refused(f"its config has more than {_MAX_VALUES} values")
        level = list(itertools.chain.from_iterable(map(children, level)))
        if not level:
            return
    raise Refused(f"its config nests values more than {_MAX_DEPTH} levels deep")


def children(item: Any) -> Iterator[Any]:
    """Yield the values in a dict or a list."""
    if isinstance(item, dict):
        yield from item.values()
    elif isinstance(item, list):
        yield from item


def tensors(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the configs of the symbolic tensors in rewritten arguments."""
    if isinstance(value, dict) and value.get("class_name") == "__keras_tensor__":
        yield value["config"]
        return
    for item in children(value):
        yield from tensors(item)


def plain(value: Any) -> Any:
    """Return a value of numbers, strings, lists and dicts. Objects in it are `Refused`."""
    if value is None or isinstance(value, (bool, int, float)):
        return number(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        if "class_name" in value:
            raise Refused(f"it contains {name_of(value)} in place of a number or a string")
        return {text(name): plain(item) for name, item in value.items()}
    return text(value)


def number(value: Any) -> Any:
    """Return a number of moderate size."""
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise Refused(f"a number of its config is {shown(value)}")
    return value


def numbers(value: Any) -> Any:
    """Return a number, or nested lists of numbers and Booleans."""
    if isinstance(value, list):
        return [numbers(item) for item in value]
    if not isinstance(value, (bool, int, float)):
        raise Refused(f"an array of its config has the value {shown(value)}")
    return number(value)


def shapes(value: Any) -> Any:
    """Return a shape, or a list or dict of shapes. A shape has sizes and `None`."""
    if isinstance(value, dict):
        return {text(name): shapes(item) for name, item in value.items()}
    if isinstance(value, list):
        is_shape = not any(isinstance(item, list) for item in value)
        if len(value) > (_MAX_DIMENSIONS if is_shape else MAX_ARGUMENTS):
            raise Refused(f"a shape of its config has {len(value)} dimensions")
        return [shapes(item) for item in value]
    if value is None or value == -1:
        return value
    if expect(value, int, "a size") < 0:
        raise Refused(f"its config has {shown(value)} in place of a size")
    return number(value)


def text(value: Any) -> str:
    """Return a string that Keras does not resolve to a class or a function."""
    expect(value, str, "a string")
    if value in keras.saving.get_custom_objects():
        raise Refused(f"it contains {shown(value)}, the name of a class, in place of a string")
    return str(value)


def is_in(value: Any, names: frozenset[str]) -> bool:
    """Return True for a string in a set. Other values of JSON may not be hashable."""
    return isinstance(value, str) and value in names


def name_of(item: dict[str, Any]) -> str:
    """Return the name of an object for an error message."""
    class_name = item.get("config") if item.get("class_name") == "function" else None
    name = f"{item.get('module')}.{class_name or item.get('class_name')}"
    return str(printable(name, 200))
