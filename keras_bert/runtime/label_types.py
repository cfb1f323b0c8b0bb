"""The types of labels. Models hold labels as strings; data and results have the original type."""

import sys
from collections.abc import Callable, Iterable


def _as_bool(label: str) -> bool:
    return label == "True"


_TYPES: dict[str, Callable] = {"str": str, "int": int, "float": float, "bool": _as_bool}
NAMES = tuple(_TYPES)


def name_of_type(labels: Iterable) -> str:
    """Return the name of the type that all labels have, one of `NAMES`; else `"str"`."""
    scalars = [label.item() if hasattr(label, "item") else label for label in labels]
    types = {type(scalar).__name__ for scalar in scalars}
    name = types.pop() if len(types) == 1 else "str"
    return name if name in NAMES else "str"


def of_one_type(labels: Iterable, name: str) -> list:
    """Return labels, of Python or NumPy, as Python values of the type with this name."""
    return [typed(str(label), name) for label in labels]


def fits(labels: list[str], name: str) -> bool:
    """Return True if all labels are values of the type with this name."""
    try:
        return [str(typed(label, name)) for label in labels] == labels
    except ValueError:
        return False


def typed(label: str, name: str) -> str | int | float | bool:
    """Convert a label to the type with this name.

    Example:

    >>> typed("1", "int"), typed("True", "bool"), typed("1", "str")
    (1, True, '1')
    """
    return _TYPES[name](label)


def typed_texts(labels: list[str]) -> list:
    """Return the labels of a file without types in the type that all of them show.

    Labels become booleans, integers or floats if this loses nothing: "007" stays a string.
    """
    if set(labels) <= {"True", "False", "TRUE", "FALSE"}:  # capitals as in spreadsheets
        return [label in ("True", "TRUE") for label in labels]
    for kind in (int, float):
        try:
            values = list(map(kind, labels))
        except ValueError:
            continue
        # NaN, infinity and larger integers have no place among floats.
        in_range = all(abs(value) <= sys.float_info.max for value in values)
        if in_range and list(map(str, values)) == labels:
            return values
    return labels
