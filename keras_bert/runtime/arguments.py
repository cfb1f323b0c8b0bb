"""Checks of arguments, and values that several modules allow."""

import operator

from keras_bert.runtime.escaping import shown

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")  # ways to compare embeddings
# Inputs of models of texts, and the keys of the columns that they were trained on.
TEXT_ROLES = ("text", "text_pair", "query", "document")
LONG_TEXTS = ("truncate", "window", "error")  # what to do with texts over the maximum length


def as_integer(name, value, minimum):
    """Return an integer argument, such as a NumPy integer, as an int of at least `minimum`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = minimum - 1
    if isinstance(value, bool) or number < minimum:
        raise ValueError(
            f"{name} must be an integer of at least {minimum}; received {shown(value)}"
        )
    return number


def is_dataframe(value):
    """Return True for a pandas DataFrame, without an import of pandas."""
    return hasattr(value, "columns") and hasattr(value, "assign")


def check_one_of(name, value, allowed):
    """Raise a `ValueError` unless a value is one of those that are allowed, an iterable of names.

    Example:

    >>> check_one_of("similarity", "dot", SIMILARITIES)
    """
    if value not in allowed:
        known = ", ".join(map(str, allowed))
        raise ValueError(f"{name} must be one of {known}; received {shown(value)}")
