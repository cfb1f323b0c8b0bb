"""The formats BERT was shipped in, read into one canonical form and written from it, strictly.

A format is a module with an ordered name table and the functions `matches(folder)`,
`read_config(folder)`, `read(folder)` and, where it can be written, `write(checkpoint, folder)`. To
add one, write such a module and name it in `FORMATS`.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import (
    canonical,
    google,
    huggingface,
    keras_file,
    keras_hub,
    model_garden,
    saved_model,
)
from keras_bert.checkpoints.canonical import Checkpoint, Variable, assign

__all__ = [
    "FORMATS",
    "WRITABLE",
    "Checkpoint",
    "Variable",
    "assign",
    "canonical",
    "detect",
    "keras_file",
    "read",
    "write",
]

FORMATS: dict[str, Any] = {
    module.FORMAT: module for module in (google, huggingface, keras_hub, model_garden, saved_model)
}
WRITABLE = tuple(name for name, module in FORMATS.items() if hasattr(module, "write"))


def detect(path: str | Path) -> str:
    """Names the format of the checkpoint in a folder, by the files that are there.

    Args:
        path: The folder.

    Returns:
        A key of `FORMATS`.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the folder holds no checkpoint of a known format, or more than one.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as path:
        ...     for name in ("config.json", "model.safetensors"):
        ...         Path(path, name).touch()
        ...     detect(path)
        'huggingface'
    """
    path = Path(path)
    if not path.is_dir():
        found = "a file" if path.exists() else "nothing there"
        raise FileNotFoundError(f"{path}: must be the folder of a checkpoint, received {found}")
    formats = [name for name, module in FORMATS.items() if module.matches(path)]
    if len(formats) == 1:
        return formats[0]
    looked_for = "; ".join(f"{name}: {module.FILES}" for name, module in FORMATS.items())
    names = sorted(entry.name for entry in path.iterdir())
    rest = f" and {len(names) - 20} more" if len(names) > 20 else ""
    holds = "two checkpoints" if formats else "no checkpoint"
    raise ValueError(
        f"{path}: must hold a checkpoint of one known format, received {holds}; looked for "
        f"{looked_for}; found {', '.join(names[:20]) or 'an empty folder'}{rest}"
    )


def read(path: str | Path) -> Checkpoint:
    """Reads a checkpoint of any known format.

    Strict: the config may hold only keys whose meaning is known, and each tensor of the files is
    used once or is known by its name not to matter. The rest is an error.

    Args:
        path: The folder.

    Returns:
        The `Checkpoint`: config, weights in canonical names, vocabulary, options of the tokenizer.

    Raises:
        FileNotFoundError: If there is no such folder, or a file is missing in it.
        ValueError: If the format is not known, or a file is broken or does not fit the others. One
            line, which names the file, the rule, and what was received.

    Example:
        >>> import json, tempfile
        >>> import numpy as np
        >>> from keras_bert.checkpoints import canonical
        >>> from safetensors.numpy import save_file
        >>> config = dict.fromkeys(canonical.SIZES, 2)
        >>> tensors = {
        ...     source: np.zeros(entry.source_shape, "float32")
        ...     for entry in canonical.expand(huggingface.TABLE, config, labels=3)
        ...     for source in entry.sources
        ... }
        >>> with tempfile.TemporaryDirectory() as path:
        ...     _ = Path(path, "config.json").write_text(json.dumps(config))
        ...     save_file(tensors, Path(path, "model.safetensors"))
        ...     checkpoint = read(path)
        ...     checkpoint.weights["layer_1/attention/qkv/kernel"].shape
        (2, 6)
        >>> checkpoint.format, checkpoint.config["hidden_size"]
        ('huggingface', 2)
    """
    checkpoint: Checkpoint = FORMATS[detect(path)].read(path)
    return checkpoint


def write(checkpoint: Checkpoint, path: str | Path, format: str) -> None:
    """Writes a checkpoint in a format; the way back from `read`.

    Args:
        checkpoint: What to write.
        path: A folder that is empty or is not there yet; it appears when all is written.
        format: One of `WRITABLE`.

    Raises:
        ValueError: If there is no such format, or it cannot hold the checkpoint: an activation
            that it does not know, a head that it has no place for.
        FileExistsError: If the folder holds something.
        OSError: If it cannot be written; nothing is left of it.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from keras_bert.checkpoints import canonical
        >>> config = {**canonical.DEFAULTS, **dict.fromkeys(canonical.SIZES, 2)}
        >>> weights = {
        ...     entry.name: np.ones(entry.shape, "float32")
        ...     for entry in canonical.expand(huggingface.TABLE, config, labels=3)
        ...     if entry.group not in canonical.OPTIONAL_GROUPS - {"pooler"}
        ... }
        >>> checkpoint = Checkpoint("", "", config, weights, None, {}, None)
        >>> with tempfile.TemporaryDirectory() as path:
        ...     write(checkpoint, path + "/mine", "huggingface")
        ...     read(path + "/mine").config["hidden_size"]
        2
    """
    path = Path(path).expanduser().resolve()
    if format not in WRITABLE:
        raise ValueError(f"format must be one of {', '.join(WRITABLE)}; received {format!r}")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} must be an empty folder or nothing; there is something")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        FORMATS[format].write(checkpoint, beside)
        beside.chmod(0o755)
        os.replace(beside, path)
    except Exception as error:
        if type(error).__module__.startswith("tensorflow"):  # its own words for a full disk
            raise OSError(f"{path} could not be written: {error}".splitlines()[0]) from error
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
