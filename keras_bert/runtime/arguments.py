"""Checks of arguments, and values that several modules allow."""

import itertools
import math
import operator
import os
import pathlib
from collections.abc import Hashable, Iterable, Mapping

from keras_bert.runtime.escaping import check_name, printable, shown

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


def as_max_length(max_length, positions):
    """Return a maximum number of tokens as an int from 3 to the positions of an encoder."""
    max_length = as_integer("max_length", max_length, 3)
    if max_length > positions:
        raise ValueError(
            f"max_length must be at most {positions}, the maximum of the encoder; received "
            f"{max_length}"
        )
    return max_length


def as_number(name, value):
    """Return an argument that is a finite number as a float."""
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number; received {shown(value)}")
    return number


def as_path(name: str, value: object) -> pathlib.Path:
    """Return an argument that names a file or a folder as a `pathlib.Path`."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError(
            f"{name} must be the path of a file or folder, a string that is not empty or a "
            f"pathlib.Path; received {shown(value)}"
        )
    return pathlib.Path(path)


def as_output_path(name: str, value: object) -> pathlib.Path:
    """Return the path of a file or folder that will be written, with the user's home for "~"."""
    path = as_path(name, value)
    try:
        path = path.expanduser()
        path.resolve()
        str(path).encode()
    except (OSError, RuntimeError, UnicodeEncodeError) as error:
        raise ValueError(
            f"{name} must be text in UTF-8, without a loop of links; received {shown(str(path))}"
        ) from error
    return path


def check_is_new_folder(path: pathlib.Path) -> None:
    """Raise a `FileExistsError` unless a path is an empty folder or does not exist."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} must be an empty folder or not exist; choose another")


def check_prompts(prompts, default_prompt):
    """Raise a `ValueError` unless prompts are a dict from names to texts with the default one."""
    is_dict = isinstance(prompts, dict)
    if not is_dict or not all(isinstance(text, str) for text in prompts.values()):
        raise ValueError(f"prompts must be a dict from names to texts; received {shown(prompts)}")
    for name in prompts:
        check_name(name, "the name of a prompt")
    if default_prompt is not None and default_prompt not in prompts:
        known = printable(", ".join(prompts) or "none", 200)
        raise ValueError(
            f"default_prompt must be one of the prompts, {known}; received {shown(default_prompt)}"
        )


def as_list(name, values, limit=None):
    """Return an argument, any iterable with an order, as a list of at most `limit` values.

    Example:

    >>> as_list("labels", (label for label in "ab"))
    ['a', 'b']
    """
    if isinstance(values, (str, bytes)):
        raise ValueError(f"{name} must be a list of strings; received one string")
    if isinstance(values, (set, frozenset)):
        raise ValueError(
            f"{name} must be a list, because a set has no order; received {shown(values)}"
        )
    is_scalar = getattr(values, "ndim", 1) == 0
    if is_scalar or is_table(values) or not isinstance(values, Iterable):
        advice = ". Read tables with keras_bert.read" if is_table(values) else ""
        raise ValueError(f"{name} must be a list; received {shown(values)}{advice}")
    if hasattr(values, "to_pylist"):  # PyArrow's values have types of their own
        values = values.to_pylist()
    elif hasattr(values, "detach"):  # PyTorch's tensors, also those of a GPU
        values = values.detach().cpu().numpy()
    elif hasattr(values, "numpy"):  # TensorFlow's tensors do not compare with strings
        values = values.numpy()
    return list(itertools.islice(values, limit))


def check_type(name, value, kind):
    """Raise a `ValueError` unless a value is an instance of a class, such as `Examples`."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {kind.__name__}; received {shown(value)}")


def is_table(value):
    """Return True for a dict, and for a table of pandas, PyArrow, Polars or Hugging Face."""
    return isinstance(value, Mapping) or hasattr(value, "columns") or hasattr(value, "column_names")


def is_dataframe(value):
    """Return True for a pandas DataFrame, without an import of pandas."""
    return hasattr(value, "columns") and hasattr(value, "assign")


def check_one_of(name, value, allowed):
    """Raise a `ValueError` unless a value is one of those that are allowed, an iterable of names.

    Example:

    >>> check_one_of("similarity", "dot", SIMILARITIES)
    """
    allowed = list(allowed)
    if not isinstance(value, Hashable) or value not in allowed:
        known = ", ".join(map(str, allowed))
        raise ValueError(f"{name} must be one of {known}; received {shown(value)}")
