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
    saved, current = dict(_flatten(saved)), dict(_flatten(current))
    for name in current | saved:
        if saved.get(name) != current.get(name):
            raise ValueError(
                f"{file} belongs to a run with {printable(name, 200)}="
                f"{saved.get(name)!r:.200}; this run has {current.get(name)!r:.200}; {remedy}"
            )


def _flatten(settings, prefix=""):
    """Yield (name, value) of nested settings, such as ("model.hidden_size", 8)."""
    for key, value in settings.items():
        if isinstance(value, list):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{_NEW_NAMES.get(key, key)}", value
