"""Checks of arguments."""

import operator


def as_integer(name, value, minimum):
    """Return an argument as an int, also a NumPy integer; raise an error below `minimum`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < minimum:
        raise ValueError(
            f"{name} must be an integer of at least {minimum}; received {value!r:.80}"
        ) from None
    return number
