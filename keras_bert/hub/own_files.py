"""Remember the models that this machine wrote and that contain code, by a hash of their files.

`load`, `HubLayer` and `keras-bert serve` run the code of these models without `trusted=True`,
because their user wrote them.
"""

import hashlib
import json
import os
import pathlib
import warnings

from keras_bert.runtime.files import cache_folder, sha256_of
from keras_bert.runtime.warn import level_of_caller

# What TensorFlow loads. Folders of a SavedModel can hold other files, such as warm-up requests.
LOADED = ("saved_model.pb", "fingerprint.pb", "variables", "assets")
_FOLDER = "own"  # in the cache; has an empty file for each model, named by its hash


def record(path):
    """Remember a SavedModel or a `.keras` file. Warn if the cache cannot be written."""
    try:
        file = _record_file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home folder
        warnings.warn(
            f"the cache cannot be written ({error}), so this model will need trusted=True or "
            "--trusted; set KERAS_BERT_CACHE to another folder",
            stacklevel=level_of_caller(),
        )


def is_own(path):
    """Return True if `record` was called for a model with the same files."""
    try:
        return os.path.isfile(_record_file(path))
    except RuntimeError:
        return False


def _record_file(path):
    path = pathlib.Path(path)
    digest = sha256_of(path) if path.is_file() else _hash(path)
    return cache_folder() / _FOLDER / digest


def _hash(folder):
    """Return the SHA-256 of the names and contents of the files that TensorFlow loads."""
    folder = pathlib.Path(folder)
    paths = []
    for name in LOADED:
        paths.append(folder / name)
        paths.extend((folder / name).rglob("*"))
    hashes = {
        path.relative_to(folder).as_posix(): sha256_of(path) for path in paths if path.is_file()
    }
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
