"""Refuse a model's folder with symbolic links to files elsewhere.

A link `vocab.txt` in a downloaded folder may lead to a private file of the user. Its content would
become a part of the model that the user saves.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from keras_bert.runtime.reading import one_line
from keras_bert.runtime.terminal import printable

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
    if not _is_below(target, root) and not _is_cached(target, Path(root)):
        raise ValueError(
            f"{printable(link)}: a link must stay inside the model's folder, received one to "
            f"{printable(target, 200)}. Copy a model that you trust without links: cp -rL"
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
                            f"{folder}: the folder of a model must have at most {_MAX_ENTRIES} "
                            "files, received more. Move the model into a folder of its own"
                        )
                    if entry.is_symlink():
                        yield entry.path
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError as error:
            raise OSError(f"{printable(current)}: {error.strerror or one_line(error)}") from error


def _is_below(path: str, folder: str) -> bool:
    return os.path.join(path, "").startswith(os.path.join(folder, ""))


def _is_cached(target: str, root: Path) -> bool:
    """Return True if a file is in a cache of models. `root` is the real path of the folder."""
    from huggingface_hub import constants

    home = Path.home()
    caches = [
        constants.HF_HUB_CACHE,
        os.environ.get("KAGGLEHUB_CACHE") or home / ".cache/kagglehub",
        os.environ.get("KERAS_BERT_CACHE")
        or Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache", "keras_bert"),
    ]
    roots = [os.path.realpath(os.path.expanduser(cache)) for cache in caches]
    # A snapshot in another cache: <cache>/models--org--name/snapshots/<revision>.
    for parent in (root, *root.parents):
        if parent.parent.name == "snapshots" and parent.parent.parent.name.startswith("models--"):
            roots.append(os.path.join(parent.parent.parent, "blobs"))
    return any(_is_below(target, each) for each in roots)
