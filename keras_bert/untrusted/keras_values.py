"""Values in the config of an untrusted Keras model: numbers, strings, shapes, and their limits."""

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

import keras

from keras_bert.runtime.escaping import printable, shown

_MAX_DEPTH = 100  # levels of nested JSON values; a model in a model takes four levels
_MAX_VALUES = 1_000_000
_MAX_DIMENSIONS = 16  # of a shape
MAX_ARGUMENTS = 1000  # tensors or numbers in a list of a call; shapes of a layer
_MAX_INTEGER = 2**53
_PATH = re.compile(r"[\w/-]{1,500}")


class Refused(ValueError):
    """The config has an object or a value that an untrusted model must not have."""


def count_text(count: int) -> str:
    """Return a count for an error. Python refuses to print a number of thousands of digits."""
    if count < 10**6:
        return str(count)
    return f"10**{math.floor(math.log10(count))} or more"


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
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if "class_name" in value:
        raise Refused(f"it contains {name_of(value)} in place of a number or a string")
    return {text(name): plain(item) for name, item in value.items()}


def number(value: int | float) -> int | float:
    """Return a number that a float can hold exactly."""
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        sign = "-" if value < 0 else ""
        raise Refused(f"a number of its config is {sign}{count_text(abs(value))}")
    return value


def integer(value: Any) -> int:
    """Return a size."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused(f"its config has {shown(value)} in place of a size")
    return value


def index(value: Any) -> int | None:
    """Return a bound of a slice."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise Refused(f"a slice of its config has the bound {shown(value)}")
    return value


def numbers(value: Any) -> Any:
    """Return a number, or nested lists of numbers and Booleans."""
    if isinstance(value, list):
        return [numbers(item) for item in value]
    if not isinstance(value, (bool, int, float)):
        raise Refused(f"an array of its config has the value {shown(value)}")
    return value if isinstance(value, bool) else number(value)


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
    return number(integer(value))


def text(value: Any) -> str:
    """Return a string that Keras does not resolve to a class or a function."""
    if not isinstance(value, str):
        raise Refused(f"its config has {shown(value)} in place of a string")
    if value in keras.saving.get_custom_objects():
        raise Refused(f"it contains {shown(value)}, the name of a class, in place of a string")
    return value


def printable_text(value: Any) -> str:
    """Return a string without control characters."""
    name = text(value)
    if not name.isprintable():
        raise Refused(f"its config has the name {shown(name)}")
    return name


def is_in(value: Any, names: frozenset[str]) -> bool:
    """Return True for a string in a set. Other values of JSON may not be hashable."""
    return isinstance(value, str) and value in names


def layer_path(value: str) -> str:
    """Return the path of a layer. Keras reads it as a regular expression."""
    if not _PATH.fullmatch(value):
        raise Refused(f"a path in its dtype policies is {shown(value)}")
    return value


def list_of(value: Any) -> list[Any]:
    """Return a list."""
    if not isinstance(value, list):
        raise Refused(f"its config has {shown(value)} in place of a list")
    return value


def name_of(item: dict[str, Any]) -> str:
    """Return the name of an object for an error message."""
    class_name = item.get("config") if item.get("class_name") == "function" else None
    name = f"{item.get('module')}.{class_name or item.get('class_name')}"
    return str(printable(name, 200))
