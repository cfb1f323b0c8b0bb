"""Remember the SavedModels that this machine exported, by a hash of their files.

`HubLayer` and `keras-bert serve` run them without `trusted=True`, because their user wrote them.
"""

import hashlib
import json
import os
import pathlib
import warnings

from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import cache_folder, check_cache, make_cache, sha256_of
from keras_bert.runtime.warn import level_of_caller

# What TensorFlow loads. Folders of a SavedModel can hold other files, such as warm-up requests.
_LOADED = ("saved_model.pb", "fingerprint.pb", "variables", "assets")
_MAX_PATHS = 10_000  # files and folders; an export has about ten
# A folder in the cache. It has a folder for each combination of file names and sizes, and in that
# an empty file for each model. The names of these folders and files are hashes.
_FOLDER = "own"


def record(path):
    """Remember a SavedModel. Warn if the cache cannot be written."""
    try:
        file = _record_file(path)
        make_cache(file.parent, by_root=False)
        file.touch()
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home folder
        warnings.warn(
            f"this model will need trusted=True or --trusted, because it is not recorded: {error}",
            stacklevel=level_of_caller(),
        )


def may_be_own(path):
    """Return True if `record` was called for a model with files of the same names and sizes.

    Files are not read, so this is fast for large files. Warn if another user can write the record.
    """
    try:
        folder = _record_folder(path)
    except RuntimeError:  # the user has no home folder
        return False
    if not folder.is_dir():
        return False
    try:
        check_cache(folder, by_root=False)
    except OSError as error:
        message = f"the record that this machine wrote {printable(str(path))} is not used: {error}"
        warnings.warn(message, stacklevel=level_of_caller())
        return False
    return True


def is_own(path):
    """Return True if `record` was called for a model with the same files."""
    return may_be_own(path) and os.path.isfile(_record_file(path))


def loaded_paths(folder, follow_links=False):
    """Return the files and folders that TensorFlow loads. A folder comes before its content.

    Raise a `ValueError` for a special file, for more than `_MAX_PATHS` paths and, unless
    `follow_links`, for a link.
    """
    folder = pathlib.Path(folder)
    remaining = [folder / name for name in _LOADED]
    paths: list[pathlib.Path] = []
    while remaining:
        path = remaining.pop()
        if path.is_symlink() and not follow_links:
            raise ValueError(f"{printable(str(path))} is a link. Use a copy made with cp -rL")
        if not path.exists():
            continue
        if path.is_dir():
            remaining.extend(path.iterdir())
        elif not path.is_file():
            raise ValueError(f"{printable(str(path))} is not a regular file; remove it")
        paths.append(path)
        if len(paths) + len(remaining) > _MAX_PATHS:
            raise ValueError(f"{printable(str(folder))} must have at most {_MAX_PATHS} files")
    return paths


def _record_file(path):
    """Return the file in the cache that records a model with exactly these files."""
    hashes = {name: sha256_of(file) for name, file in _files(path).items()}
    return _record_folder(path) / _digest(hashes)


def _record_folder(path):
    """Return the folder in the cache for models whose files have these names and sizes."""
    sizes = {name: file.stat().st_size for name, file in _files(path).items()}
    return cache_folder() / _FOLDER / _digest(sizes)


def _files(path):
    """Return {name: file} of a SavedModel, whose own name may change."""
    path = pathlib.Path(path)
    files = [file for file in loaded_paths(path) if file.is_file()]
    return {file.relative_to(path).as_posix(): file for file in files}


def _digest(content):
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
