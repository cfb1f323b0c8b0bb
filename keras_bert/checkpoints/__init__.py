"""Read and write BERT checkpoints of all known formats.

A format is a module with the constant `FORMAT`, its name, a name table, and the functions
`read(folder, ignore)` and, for writable formats, `write(checkpoint, folder)`. `read` reads the
encoder, and then its head with `canonical.with_head_or_problem`. That of a format in `_WITH_BASE`
also takes `find_base`. To add a format, write such a module, add it to `WRITABLE` or `FORMATS`
below, and its files to `detection.py`. The command line lists the writable formats in
`cli/options.py`.
"""

import contextlib
import os
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import (
    canonical,
    comparison,
    google,
    huggingface,
    keras_hub,
    model_garden,
    peft,
    saved_model,
    sentence_transformers,
)
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.checkpoints.detection import detect
from keras_bert.checkpoints.name_tables import assign
from keras_bert.runtime.arguments import as_output_path, check_is_new_folder
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.files import temporary_folder
from keras_bert.runtime.reading import one_line
from keras_bert.runtime.warn import level_of_caller

__all__ = ["FORMATS", "WRITABLE", "Checkpoint", "assign", "canonical", "detect", "read", "write"]

WRITABLE: dict[str, Any] = {
    module.FORMAT: module for module in (google, huggingface, keras_hub, sentence_transformers)
}
FORMATS = WRITABLE | {module.FORMAT: module for module in (model_garden, saved_model, peft)}
# Formats of models that can be an adapter, whose base is in another folder.
_WITH_BASE = (peft, sentence_transformers)


def read(
    path: str | os.PathLike[str],
    ignore: Collection[str] = (),
    *,
    needs_head: bool = True,
    find_base: peft.FindBase | None = None,
    format: str | None = None,
) -> Checkpoint:
    """Read a checkpoint of any known format; `format` chooses one if a folder has several.

    Keys and tensors that would change what the model computes are errors. Tensors that do not
    affect the model, such as optimizer state, are ignored by name. `ignore` has patterns of
    further names.

    Without `needs_head`, the encoder is enough: if only the head cannot be read, it is left out,
    with a warning. `find_base` finds the base model of an adapter.
    """
    path = Path(path)
    module = FORMATS[detect(path, format)]
    options = {"find_base": find_base} if module in _WITH_BASE else {}
    try:
        checkpoint: Checkpoint = module.read(path, ignore, **options)
    except (ValueError, OSError, ImportError):
        raise
    except Exception as error:  # a value of another type than the format's own library writes
        raise ValueError(f"{path} cannot be read: {one_line(error)}") from error
    problem = checkpoint.head_problem
    if problem is None:
        return checkpoint
    if needs_head:
        advice = "keras_bert.load without task gives the encoder alone"
        raise ValueError(f"{one_line(problem, None)}. {advice}") from problem
    warnings.warn(
        f"only the encoder is loaded, its head is left out: {one_line(problem, None)}",
        stacklevel=level_of_caller(),
    )
    return checkpoint


def write(checkpoint: Checkpoint, path: str | os.PathLike[str], format: str) -> list[str]:
    """Write a checkpoint to a new or empty folder, in one of the formats `WRITABLE`.

    The write is atomic: after an error, the folder does not exist. The folder is read back before
    it gets its name, and what the format cannot hold is an error. Return the options that the
    format lost and `keras_bert.load` takes, such as "pairs=True".
    """
    if format not in WRITABLE:
        raise ValueError(f"format must be one of {', '.join(WRITABLE)}; received {shown(format)}")
    with new_folder(path) as temporary:
        FORMATS[format].write(checkpoint, temporary)
        again = read(temporary, format=format)
        return comparison.lost_options(format, checkpoint, again)


@contextlib.contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder, which becomes the new or empty folder `path` unless this fails."""
    path = as_output_path("path", path).resolve()
    check_is_new_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(path.parent, f".{path.name}.") as temporary:
        yield temporary
        if path.exists():  # Windows does not replace folders
            path.rmdir()
        os.rename(temporary, path)
