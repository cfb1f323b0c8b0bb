"""Models on the Hugging Face Hub and on Kaggle, whose libraries download and cache them."""

import contextlib
import fnmatch
import glob
import pathlib
import re
import sys
from collections.abc import Iterable

from keras_bert.hub import download, model_archives
from keras_bert.hub.registry import HUB_FILES
from keras_bert.runtime.reading import first_line
from keras_bert.runtime.terminal import print_line

PREFIX = "hf:"
KAGGLE_PREFIXES = ("kaggle://", "kaggle:")
# Names and revisions become paths in the cache of the Hub. As in Git, no part of a revision is
# empty or starts with a dot.
REVISION = r"(@[\w-][\w.-]*(/[\w-][\w.-]*)*)?"
_NAME = re.compile(rf"{PREFIX}(\w[\w.-]*/)?\w[\w.-]*{REVISION}")
_KAGGLE_NAME = re.compile(r"kaggle:(//)?\w[\w.-]*(/\w[\w.-]*)*")
_WEIGHTS = ("model*.safetensors", "pytorch_model.bin", "tf_model.h5")  # the preferred ones first


def check_name(name: str) -> None:
    """Raise a `ValueError` for a malformed name with one of the prefixes."""
    if not _NAME.fullmatch(name) and not _KAGGLE_NAME.fullmatch(name):
        raise ValueError(
            "a model on the Hugging Face Hub is hf:org/name or hf:org/name@revision, and a model "
            f"on Kaggle is kaggle:owner/model/framework/variation; received {name!r}"
        )


def is_name(name: str) -> bool:
    """Return True for the name of a model on the Hugging Face Hub."""
    return _NAME.fullmatch(name) is not None


def find(name: str) -> pathlib.Path:
    """Return the folder of a model on the Hugging Face Hub."""
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    return snapshot(repository, revision or None, HUB_FILES)


def find_on_kaggle(name: str) -> pathlib.Path:
    """Return the folder of a model on Kaggle."""
    handle = name.removeprefix("kaggle:").removeprefix("//")
    shown = f"kaggle:{handle}"
    try:
        import kagglehub
    except ImportError as error:
        raise ImportError(f"{shown} needs kagglehub: pip install kagglehub") from error
    try:
        folder = pathlib.Path(kagglehub.model_download(handle))
    except Exception as error:  # kagglehub's errors have no other common base class
        raise OSError(f"Could not download {shown}: {first_line(error)}") from error
    return model_archives.model_folder(folder, shown)


def snapshot(repository: str, revision: str | None, files: Iterable[str]) -> pathlib.Path:
    """Return a snapshot of a repository with the files that match the patterns `files`."""
    reason = "HF_HUB_OFFLINE is set"
    if not download.is_offline():
        try:
            return _download(repository, revision, list(files))
        except Exception as error:  # the errors have no other common base class
            reason = first_line(error)
    with contextlib.suppress(FileNotFoundError):
        folder = _call(repository, revision, list(files), local_files_only=True)
        if _is_complete(folder):
            if not download.is_offline():
                message = f"{repository}: {reason}; using the copy in the Hub's cache"
                print_line(message, file=sys.stderr)
            return folder
    raise OSError(f"Could not download {repository} from the Hugging Face Hub: {reason}")


def _call(repository, revision, files, **options):
    import huggingface_hub

    return pathlib.Path(
        huggingface_hub.snapshot_download(
            repository, revision=revision, allow_patterns=files, **options
        )
    )


def _download(repository, revision, files):
    ignored = _redundant(repository, revision, files)
    folder = _call(repository, revision, files, ignore_patterns=ignored)
    # Folders that modules.json names, which the patterns may miss.
    names = [name for name in files if "/" not in name]
    others = [
        f"{glob.escape(inner)}/{name}"
        for inner in _module_folders(folder)
        if inner and not any(fnmatch.fnmatch(f"{inner}/config.json", file) for file in files)
        for name in names
    ]
    if not others:
        return folder
    return _call(repository, folder.name, [*files, *others], ignore_patterns=ignored)


def _is_complete(folder):
    """Return True if a snapshot has all that a model needs; a killed download leaves less."""
    names = {file.name for file in folder.joinpath(*_module_folders(folder)[:1]).iterdir()}
    has_weights = any(name.endswith((".safetensors", ".bin", ".h5")) for name in names)
    if has_weights and "adapter_config.json" in names:
        return True
    return has_weights and "config.json" in names and bool(names & {"vocab.txt", "tokenizer.json"})


def _module_folders(folder):
    """Return the folders that modules.json of sentence-transformers names, that of BERT first."""
    from keras_bert.checkpoints import sentence_transformers  # imports NumPy

    try:
        return [inner for _, inner in sentence_transformers.read_module_paths(folder)]
    except (OSError, ValueError):  # the reader of the folder reports it
        return []


def _redundant(repository, revision, files):
    """Return the files of a repository that repeat the weights of other files.

    Always ask the Hub, because this fails fast without a network. `snapshot_download` retries for
    half a minute.
    """
    import huggingface_hub
    from huggingface_hub import constants

    info = download.ask(
        constants.ENDPOINT,
        lambda: huggingface_hub.model_info(
            repository, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT
        ),
    )
    if "pytorch_model.bin" not in files:
        return []
    names = [file.rfilename for file in info.siblings or ()]
    ends = {pathlib.PurePosixPath(name).suffix for name in names}
    if ".onnx" in ends and not ends & {".safetensors", ".bin", ".h5"}:
        raise OSError(
            f"it has graphs, and no weights. Call hf download {repository} --local-dir folder, and "
            "run it with keras_bert.pipeline('folder', trusted=True)"
        )
    return other_weights(names)


def other_weights(names: Iterable[str]) -> list[str]:
    """Return patterns of the weights among names, except for those of the preferred format."""
    return [pattern for pattern in _WEIGHTS if fnmatch.filter(names, pattern)][1:]
