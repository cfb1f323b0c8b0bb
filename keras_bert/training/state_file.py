"""Files that hold the state of a training run: a JSON header and numbered arrays."""

import contextlib
import json

import numpy as np

from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.reading import json_value, one_line
from keras_bert.untrusted import containers, links

# Settings that earlier versions saved under another name.
_NEW_NAMES = {"accumulate": "gradient_accumulation_steps"}


def write(file, key, header, arrays, *, durable=False):
    """Write a state file atomically: a header that JSON can represent, and NumPy arrays.

    If `durable`, return only after the data has reached the disk.
    """
    numbered = {str(index): array for index, array in enumerate(arrays)}
    header = {key: json.dumps(header, ensure_ascii=False)}
    with atomic_write(file, durable=durable) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **header, **numbered)


def read(file, key):
    """Return `(header, arrays)` of a state file; `key` is the header's name as in `write`.

    Raises `ValueError` or `KeyError` if the file is broken or holds NaN or infinity. Use `reading`
    to add the file and the remedy to the message.
    """
    links.check_file(file)
    arrays = containers.read_npz(file)
    header = json_value(str(arrays.pop(key)))
    numbered = [arrays[str(index)] for index in range(len(arrays))]
    if not all(np.isfinite(array).all() for array in numbered):
        raise ValueError("it holds NaN or infinity")
    return header, numbered


@contextlib.contextmanager
def reading(file, remedy):
    """Convert errors of the block into a `ValueError` that names the file and the remedy."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is broken ({one_line(error)}); {remedy}") from error


def check_settings(file, saved, current, remedy):
    """Raise a `ValueError` unless `saved`, the settings in a file, equal `current`.

    Both are nested dicts as JSON represents them. A setting that an earlier version saved under
    another name is compared under the present one. The message names the first setting that
    differs and ends with `remedy`.
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
    """Return a dict of the items of a dict or list, under present names; of others an empty one."""
    if isinstance(value, list):
        return dict(enumerate(value))
    if isinstance(value, dict):
        return {_NEW_NAMES.get(key, key): item for key, item in value.items()}
    return {}
