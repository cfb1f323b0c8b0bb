"""The formats BERT was shipped in, read into one canonical form, strictly.

A format is a module with an ordered name table and three functions: `matches(folder)`,
`read_config(folder)` and `read(folder)`. To add one, write such a module and name it in `FORMATS`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from keras_bert.checkpoints import canonical, google, huggingface
from keras_bert.checkpoints.canonical import Checkpoint

__all__ = ["FORMATS", "Checkpoint", "Variable", "assign", "detect", "read"]

FORMATS: dict[str, Any] = {module.FORMAT: module for module in (google, huggingface)}


class Variable(Protocol):
    """What `assign` needs of a variable; `keras.Variable` is one."""

    @property
    def shape(self) -> Any:
        """The sizes."""

    def assign(self, value: Any) -> Any:
        """Sets the value."""


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
        >>> checkpoint.format, checkpoint.config["hidden_size"]
        ('huggingface', 2)
        >>> checkpoint.weights["layer_1/attention/qkv/kernel"].shape
        (2, 6)
    """
    checkpoint: Checkpoint = FORMATS[detect(path)].read(path)
    return checkpoint


def assign(
    variables: Mapping[str, Variable],
    weights: Mapping[str, np.ndarray],
    *,
    source: str,
    ignore: Iterable[str] = (),
) -> None:
    """Fills variables with weights: each variable once, each weight once, or nothing at all.

    Args:
        variables: Canonical name -> variable.
        weights: Canonical name -> array, such as `Checkpoint.weights`.
        source: Where the weights are from; named in errors.
        ignore: Weights whose name starts with one of these may be left unused, such as
            "masked_lm/" for a model without that head.

    Raises:
        ValueError: If a variable gets no weight, or one of another shape, or a weight is left. All
            are listed, and nothing has been assigned.

    Example:
        >>> import types
        >>> values = []
        >>> bias = types.SimpleNamespace(shape=(2,), assign=values.append)
        >>> assign({"pooler/dense/bias": bias}, {"pooler/dense/bias": np.ones(2)}, source="here")
        >>> values
        [array([1., 1.])]
        >>> assign({"pooler/dense/bias": bias}, {"pooler/dense/bias": np.ones(3)}, source="here")
        Traceback (most recent call last):
        ...
        ValueError: here: weights and variables must match one to one; \
wrong shape (1): pooler/dense/bias (expected (2,), found (3,))
    """
    prefixes = tuple(ignore)
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    canonical.raise_if(
        source,
        "weights and variables must match one to one",
        missing=[name for name in variables if name not in weights],
        unused=[
            name for name in weights if name not in variables and not name.startswith(prefixes)
        ],
        **{
            "wrong shape": [
                f"{name} (expected {shape}, found {weights[name].shape})"
                for name, shape in shapes.items()
                if name in weights and weights[name].shape != shape
            ]
        },
    )
    for name, variable in variables.items():
        variable.assign(weights[name])
