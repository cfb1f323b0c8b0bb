"""Remember the SavedModels that this machine exported, by a hash of their files.

A SavedModel is a program. `HubLayer` and `keras-bert serve` run an export of this machine without
`trusted=True`, because its user wrote it.
"""

import hashlib
import json
import os
import pathlib
import warnings

from keras_bert.hub import cache, download
from keras_bert.runtime.warn import level_of_caller

# What TensorFlow loads. Folders of a SavedModel can hold other files, such as warm-up requests.
LOADED = ("saved_model.pb", "fingerprint.pb", "variables", "assets")
_FOLDER = "exports"  # in the cache; has an empty file for each export, named by its hash


def record(folder):
    """Remember a SavedModel as an export of this machine. Warn if the cache cannot be written."""
    try:
        file = _record_file(folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home folder
        warnings.warn(
            f"the cache cannot be written ({error}), so HubLayer and keras-bert serve will need "
            "trusted=True or --trusted for this export; set KERAS_BERT_CACHE to another folder",
            stacklevel=level_of_caller(),
        )


def is_own(folder):
    """Return True if `record` has seen a SavedModel with the same files."""
    try:
        return os.path.isfile(_record_file(folder))
    except RuntimeError:
        return False


def _record_file(folder):
    return cache.cache_folder() / _FOLDER / _hash(folder)


def _hash(folder):
    """Return the SHA-256 of the names and contents of the files that TensorFlow loads."""
    folder = pathlib.Path(folder)
    paths = [path for name in LOADED for path in (folder / name, *(folder / name).rglob("*"))]
    hashes = {
        path.relative_to(folder).as_posix(): download.sha256_of(path)
        for path in paths
        if path.is_file()
    }
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
