"""Arrays that users give."""

from collections.abc import Iterator

import numpy as np

from keras_bert.runtime.escaping import shown


def as_numbers(name, values):
    """Return an argument as an array of numbers, without a change of float types."""
    if isinstance(values, Iterator):
        values = list(values)
    try:
        array = np.asarray(values)
        if array.dtype == object:
            array = np.asarray(array.tolist())  # a pandas column of lists
    except (TypeError, ValueError, RuntimeError):  # lists of several lengths, tensors of a GPU
        array = np.asarray(None)
    if array.dtype.kind in "OUSMmc":  # objects, texts, dates and complex numbers
        raise ValueError(
            f"{name} must be an array of numbers, with rows of the same length; received "
            f"{shown(values)}"
        )
    return array
