"""Values of cells: the same Python values from every kind of table."""

import datetime
from typing import Any

from keras_bert.data.label_columns import is_missing


def plain(value: Any) -> Any:
    """Return a value of NumPy, pandas or Arrow as a value of Python; a missing one as `None`.

    Arrays become lists, also within lists and dicts. Empty strings stay.

    Example:

    >>> import numpy
    >>> plain(numpy.array([1, 2])), plain(float("nan")), plain({"text": numpy.array(["a"])})
    ([1, 2], None, {'text': ['a']})
    """
    if isinstance(value, (str, bool, int, datetime.date)):
        return None if is_missing(value) and value != "" else value
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    for method in ("to_pylist", "tolist"):  # of PyArrow, and of NumPy, pandas and PyTorch
        if hasattr(value, method):
            return plain(getattr(value, method)())
    return None if is_missing(value) else value
