"""The files that hold the state of a training run: a JSON header and numbered arrays."""

import contextlib
import json

import keras
import numpy as np

from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.reading import json_value, one_line
from keras_bert.untrusted import containers, links

_HEADER = "header"  # name of the header in the file


def write(file, header, variables, *, durable=False):
    """Write a state file atomically: a header that JSON can represent, and values of variables.

    If `durable`, return only after the data has reached the disk.
    """
    arrays = {str(index): _to_array(variable) for index, variable in enumerate(variables)}
    arrays[_HEADER] = json.dumps(header, ensure_ascii=False)
    with atomic_write(file, durable=durable) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **arrays)


def read(file, remedy):
    """Return `(header, arrays)` of a state file; `remedy` ends the error for a broken file."""
    with reading(file, remedy):
        links.check_file(file)
        arrays = containers.read_npz(file)
        header = json_value(str(arrays.pop(_HEADER)))
        if not isinstance(header, dict):
            raise ValueError("its header is not a JSON object")
        numbered = [arrays[str(index)] for index in range(len(arrays))]
        if not all(np.isfinite(array).all() for array in numbered):
            raise ValueError("it holds NaN or infinity")
    return header, numbered


def restore(file, settings, variables, *, if_broken, if_other):
    """Assign the values in a state file to variables, and return the header's `progress`.

    The header has `settings`, which must equal the settings of this run, and `progress`. The
    remedies `if_broken` and `if_other` end the errors for a broken file and for other settings.
    """
    header, arrays = read(file, if_broken)
    with reading(file, if_broken):
        saved, progress = dict(header["settings"]), dict(header["progress"])
    # Different settings can change the variables, so compare the settings first.
    check_settings(file, saved, settings, if_other)
    with reading(file, if_broken):
        values = values_of(variables, arrays)
    assign(variables, values)
    return progress


def values_of(variables, arrays):
    """Return the values of variables from the arrays of a file, or raise a `ValueError`."""
    if len(arrays) != len(variables):
        raise ValueError(f"it holds {len(arrays)} variables, not {len(variables)}")
    return list(map(_to_value, arrays, variables))


def assign(variables, values):
    """Assign values to variables."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


@contextlib.contextmanager
def reading(file, remedy):
    """Convert errors of the block into a `ValueError` that names the file and the remedy."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is broken ({one_line(error)}); {remedy}") from error


def check_settings(file, saved, current, remedy):
    """Raise a `ValueError` unless `saved`, the settings in a file, equal `current`.

    Both are nested dicts as JSON represents them. The message names the first setting that differs
    and ends with `remedy`.
    """
    difference = _first_difference(saved, current)
    if difference is not None:
        path, saved_value, current_value = difference
        name = printable(".".join(map(str, path)), 200)
        raise ValueError(
            f"{file} belongs to a run with {name}={saved_value!r:.200}; this run has "
            f"{current_value!r:.200}; {remedy}"
        )


def _first_difference(saved, current):
    """Return the path of the first setting that differs and its two values, or `None`."""
    # A missing setting, `None`, equals a dict or list without settings.
    if not all(isinstance(value, (dict, list, type(None))) for value in (saved, current)):
        return None if saved == current else ([], saved, current)
    saved_items = _items(saved)
    current_items = _items(current)
    for key in current_items | saved_items:
        difference = _first_difference(saved_items.get(key), current_items.get(key))
        if difference is not None:
            path, *values = difference
            return [key, *path], *values
    return None


def _items(value):
    """Return a dict of the items of a dict or list; of other values an empty one."""
    if isinstance(value, list):
        return dict(enumerate(value))
    return value if isinstance(value, dict) else {}


def _to_array(variable):
    """Return the value; store bfloat16, which NumPy's files cannot hold, as its uint16 bits."""
    array = np.asarray(keras.ops.convert_to_numpy(variable))
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _to_value(array, variable):
    """Undo `_to_array`."""
    if variable.dtype == "bfloat16":
        import ml_dtypes

        array = array.view(ml_dtypes.bfloat16)
    if tuple(array.shape) != tuple(variable.shape):
        raise ValueError(f"{variable.path} has shape {variable.shape}, received {array.shape}")
    return array
