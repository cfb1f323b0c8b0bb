"""Find the local folder of a model by its name, and download the model if necessary.

Hashes are checked before any file is parsed.
"""

import difflib
import errno
import os
import pathlib
import re

from keras_bert.hub import hub_source, model_archives, named_source
from keras_bert.hub.registry import ALIASES, MODELS
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.reading import first_line
from keras_bert.untrusted import links

_HUB_NAME = re.compile(rf"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*{hub_source.REVISION}")


def find(name: str | os.PathLike[str]) -> pathlib.Path:
    """Return the folder or `.keras` file of a model. Download it if necessary.

    `name` is as for `loading.load`. Raise `ValueError` for an unknown name, a wrong hash, a
    damaged file or a link out of the folder, and `OSError` if no source can be reached or the
    cache cannot be written.
    """
    path = _source_of(name)(os.fspath(name))
    if path.is_dir():
        links.check(path)
    return path


def find_base(name: str, revision: str | None) -> pathlib.Path:
    """Return the folder of the base model of an adapter, which the adapter's file names.

    That is a folder of this machine, or a repository of the Hugging Face Hub. Nothing else is
    opened, because a stranger may have written the file.
    """
    folder = pathlib.Path(name)
    if folder.is_dir():
        links.check(folder)
        return folder
    for known, model in MODELS.items():
        if (model.repository, model.revision) == (name, revision):
            return named_source.find(known)
    repository = f"{hub_source.PREFIX}{name}{'' if revision is None else f'@{revision}'}"
    if "@" in name or not hub_source.is_name(repository):
        rule = "must be a folder, or a repository of the Hugging Face Hub"
        raise ValueError(f"{rule}; received {shown(name)}")
    try:
        return find(repository)
    except OSError as error:
        raise OSError(f"there is no folder {shown(name)}. {first_line(error)}") from error


def check(name: str | os.PathLike[str]) -> None:
    """Raise an error if `find` does not know a source for a name. Download nothing."""
    _source_of(name)


def _source_of(name):
    """Return the function that finds a model of this name."""
    if not isinstance(name, (str, os.PathLike)) or not os.fspath(name):
        raise ValueError(f"a model's name must be a string or a path; received {shown(name)}")
    name = os.fspath(name)
    if model_archives.is_local(name):
        return model_archives.find_local
    if named_source.knows(name):
        return named_source.find
    if name.startswith(hub_source.PREFIX):
        hub_source.check_name(name)
        return hub_source.find
    if name.startswith(hub_source.KAGGLE_PREFIXES):
        hub_source.check_name(name)
        return hub_source.find_on_kaggle
    if name.startswith(("https://", "http://")):
        return model_archives.find_on_web
    raise _unknown(name)


def _unknown(name):
    """Return the error for an unknown name, with the name that is probably meant."""
    if _looks_like_path(name):
        reason = f"{os.strerror(errno.ENOENT)}; the current folder is {os.getcwd()}"
        return FileNotFoundError(errno.ENOENT, reason, name)
    unknown = f"{name!r} is neither a folder nor a known model name"
    for known, model in MODELS.items():
        end = model.repository.partition("/")[2]  # such as "bert-base-uncased"
        if name in (model.repository, end, end.removeprefix("bert-")):
            return ValueError(f"{unknown}; did you mean {known!r} or 'hf:{model.repository}'?")
    if _HUB_NAME.fullmatch(name):
        return ValueError(
            f"{unknown}; did you mean 'hf:{name}' on the Hugging Face Hub, or the folder ./{name}?"
        )
    if close := difflib.get_close_matches(name.lower(), [*MODELS, *ALIASES], 1, cutoff=0.7):
        return ValueError(f"{unknown}; did you mean {close[0]!r}?")
    names = [*(name for name in MODELS if not name.startswith("L-")), *ALIASES]
    return ValueError(
        f"{unknown}; the names are {', '.join(names)}, L-{{2,4,6,8,10,12}}_H-{{128,256,512,768}}, "
        "or hf:org/name for the Hugging Face Hub"
    )


def _looks_like_path(name):
    """Return True for a name with the suffix of a model file or with the signs of a path."""
    is_file = name.lower().endswith((".keras", ".zip"))
    has_folder = name.startswith((".", "~", "/")) or name.endswith("/") or "\\" in name
    return is_file or has_folder or name.count("/") > 1
