"""Refuse a model's folder with symbolic links to files elsewhere.

A link `vocab.txt` in a downloaded folder may lead to a private file of the user. Its content would
become a part of the model that the user saves.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import cache_folder
from keras_bert.runtime.reading import one_line

_MAX_ENTRIES = 100_000  # files and folders; listing them takes less than 0.1 s
# Files that a reader may open.
_MODEL_FILE = re.compile(
    r".*\.(json|txt|bin|safetensors|h5|keras|index|pb|yaml|model|onnx|npz|records"
    r"|data-\d+-of-\d+)",
    re.IGNORECASE | re.DOTALL,
)


def check(folder: str | Path) -> None:
    """Raise ValueError if a link to a model's file or to a folder leads out of `folder`.

    Links into the caches of Hugging Face, Kaggle and keras_bert are allowed: those caches consist
    of links.
    """
    for link in _links(folder):
        if _MODEL_FILE.fullmatch(os.path.basename(link)) or os.path.isdir(link):
            _check_link(link, folder)


def check_file(file: Path) -> None:
    """Raise ValueError if a file is a link that leads out of its folder; see `check`."""
    if file.is_symlink():
        _check_link(str(file), file.parent)


def _check_link(link: str, folder: str | Path) -> None:
    root = os.path.realpath(folder)
    target = os.path.realpath(link)
    if not Path(target).is_relative_to(root) and not _is_cached(target, Path(root)):
        raise ValueError(
            f"{printable(link)}: a link must stay inside its folder, received one to "
            f"{printable(target, 200)}. If you trust the folder, copy it without links: cp -rL"
        )


def _links(folder: str | Path) -> Iterator[str]:
    """Yield the paths of the symbolic links in a folder and the folders below it."""
    folders = [os.fspath(folder)]
    count = 0
    while folders:
        current = folders.pop()
        if not os.access(current, os.X_OK):  # no reader can open a file there
            continue
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    count += 1
                    if count > _MAX_ENTRIES:
                        raise ValueError(
                            f"{printable(str(folder))}: must have at most {_MAX_ENTRIES} files, "
                            "received more. Move the model or the records into their own folder"
                        )
                    if entry.is_symlink():
                        yield entry.path
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError as error:
            raise OSError(f"{printable(current)}: {error.strerror or one_line(error)}") from error


def _is_cached(target: str, folder: Path) -> bool:
    """Return True if a file is in a cache of models. Both paths are real paths."""
    from huggingface_hub import constants

    kaggle = os.environ.get("KAGGLEHUB_CACHE") or "~/.cache/kagglehub"
    caches = [constants.HF_HUB_CACHE, kaggle, str(cache_folder())]
    roots = [os.path.realpath(os.path.expanduser(cache)) for cache in caches]
    # A snapshot in another cache: <cache>/models--org--name/snapshots/<revision>.
    for parent in (folder, *folder.parents):
        if parent.parent.name == "snapshots" and parent.parent.parent.name.startswith("models--"):
            roots.append(os.path.join(parent.parent.parent, "blobs"))
    return any(Path(target).is_relative_to(root) for root in roots)
