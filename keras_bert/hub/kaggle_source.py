"""Models on Kaggle. kagglehub downloads and caches them."""

import pathlib
import re

from keras_bert.hub import model_archives
from keras_bert.runtime.reading import first_line

PREFIXES = ("kaggle://", "kaggle:")
# Handles become paths in the cache of Kaggle.
_NAME = re.compile(r"kaggle:(//)?\w[\w.-]*(/\w[\w.-]*)*")


def knows(name: str) -> bool:
    """Return True for the name of a model on Kaggle."""
    if not name.startswith(PREFIXES):
        return False
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"a model on Kaggle is kaggle:owner/model/framework/variation; received {name!r}"
        )
    return True


def find(name: str) -> pathlib.Path:
    """Return the folder of a model."""
    handle = name.removeprefix(PREFIXES[1]).removeprefix("//")
    shown = f"kaggle:{handle}"
    try:
        import kagglehub
    except ImportError as error:
        raise ImportError(
            f"{shown} needs kagglehub: pip install kagglehub. Or download the model from Kaggle "
            "and pass its folder"
        ) from error
    try:
        folder = pathlib.Path(kagglehub.model_download(handle))
    except Exception as error:  # kagglehub's errors have no other common base class
        raise OSError(f"Could not download {shown}: {first_line(error)}") from error
    return model_archives.model_folder(folder, shown)
