"""Refuse a folder of a model or of data with symbolic links to files elsewhere.

A link `vocab.txt` in a downloaded folder may lead to a private file of the user. Its content would
become a part of the model that the user saves. Pipes and devices are refused too: reading one may
never end.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from keras_bert.runtime import budget
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import cache_folder
from keras_bert.untrusted.errors import invalid

_REPOSITORIES = ("models--", "datasets--")  # beginning of a folder in the Hub's cache
_REGULAR = "must be a file or a folder, received a pipe or device"


def check(folder: str | Path) -> None:
    """Raise ValueError if a link leads out of `folder` or nowhere, or it has a pipe or device.

    Links into the caches of Hugging Face, Kaggle and keras_bert are allowed: those caches consist
    of links.
    """
    for link in _links(folder):
        check_link(link, folder)


def check_file(file: Path) -> None:
    """Raise ValueError if a file is a link that leads out of its folder; see `check`."""
    if file.is_symlink():
        check_link(file, file.parent)
    if file.exists() and not file.is_file():
        raise ValueError(f"{printable(str(file))}: {_REGULAR}")


def check_link(link: str | Path, folder: str | Path, advice: str = "") -> None:
    """Raise ValueError if a path in a folder leads out of it, or nowhere, through any link.

    `advice` is the end of the message: what to do other than to copy the folder.
    """
    root = os.path.realpath(folder)
    target = os.path.realpath(link)
    if not Path(target).is_relative_to(root) and not _is_cached(target, Path(root)):
        rule = "a link must stay inside its folder"
        advice = f"If you trust the folder, copy it without links: cp -rL{advice}"
        raise invalid(printable(str(link)), rule, target, advice)
    # Readers would go on as if there were no such file. A link to itself leads to a link.
    if not os.path.lexists(target):
        rule = "a link must lead to a file"
        raise invalid(printable(str(link)), rule, target, "Copy the file, or delete the link")


def _links(folder: str | Path) -> Iterator[str]:
    """Yield the paths of the symbolic links in a folder and the folders below it."""
    folders = [os.fspath(folder)]
    source = printable(str(folder))
    count = 0
    while folders:
        current = folders.pop()
        if not os.access(current, os.X_OK):  # no reader can open a file there
            continue
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    count += 1
                    budget.check(count, "files", budget.MAX_ITEMS, source)
                    if entry.is_symlink():
                        yield entry.path
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        raise ValueError(f"{printable(entry.path)}: {_REGULAR}")
        except OSError as error:
            raise OSError(f"{printable(current)}: {error.strerror}") from error


def _is_cached(target: str, folder: Path) -> bool:
    """Return True if a file is in a cache of models. Both paths are real paths."""
    from huggingface_hub import constants

    kaggle = os.environ.get("KAGGLEHUB_CACHE") or "~/.cache/kagglehub"
    caches = [constants.HF_HUB_CACHE, kaggle, str(cache_folder())]
    roots = [os.path.realpath(os.path.expanduser(cache)) for cache in caches]
    # A snapshot in another cache: <cache>/models--org--name/snapshots/<revision>.
    for parent in (folder, *folder.parents):
        repository = parent.parent.parent
        if parent.parent.name == "snapshots" and repository.name.startswith(_REPOSITORIES):
            roots.append(os.path.join(repository, "blobs"))
    return any(Path(target).is_relative_to(root) for root in roots)
