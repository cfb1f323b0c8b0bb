"""Models in a local folder, `.keras` file or zip archive."""

import pathlib

from keras_bert.hub import cache, model_archives
from keras_bert.hub.registry import ALIASES, MODELS
from keras_bert.runtime.files import sha256_of
from keras_bert.untrusted import archives

# A folder with such a file may be a model, in any format.
_MODEL_SUFFIXES = (".json", ".keras", ".safetensors", ".bin", ".index", ".pb")
_FILES = (".keras", ".zip")


def knows(name: str) -> bool:
    """Return True for a folder, a `.keras` file or a zip archive.

    A known model name takes precedence over a folder of that name, unless the folder is a model.
    """
    path = pathlib.Path(name).expanduser()
    if not (path.is_dir() or path.is_file()):
        return False
    if name in MODELS or name in ALIASES:
        if path.is_dir() and any(file.suffix in _MODEL_SUFFIXES for file in path.iterdir()):
            raise ValueError(
                f"{name!r} is both a known name and a model's folder here; write ./{name} for the "
                "folder, or rename it"
            )
        return False
    if path.is_file() and path.suffix.lower() not in _FILES:
        raise ValueError(f"{path} must be a folder or a .keras file, or a .zip of a folder")
    return True


def find(name: str) -> pathlib.Path:
    """Return the folder or the `.keras` file. A zip archive is unpacked into the cache once."""
    path = pathlib.Path(name).expanduser()
    if path.is_dir() or path.suffix == ".keras":
        return path
    key = sha256_of(path)[:32]
    stem = path.stem.lstrip(".") or "archive"  # the stem of "...zip" is ".."
    folder = cache.cache_folder() / "archives" / key / stem

    def fill(target):
        archives.unpack(path, target / stem)
        return target / stem

    cache.get(
        lambda: cache.cached(folder, {}),
        f"archive-{key}",
        lambda: cache.install(fill, folder, path, {}),
    )
    return model_archives.model_folder(folder, path)
