"""`1_Pooling/config.json` of sentence-transformers: how tokens become the vector of a text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import folder
from keras_bert.untrusted.errors import invalid

FILE = "1_Pooling/config.json"
# Key in files before version 5.7 -> mode, in the order in which the vectors are concatenated.
_MODE_OF_KEY = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_MODES = tuple(_MODE_OF_KEY.values())


def read(file: Path) -> tuple[str, ...]:
    """Return the modes of a pooling module."""
    if not file.is_file():
        raise FileNotFoundError(f"{file}: missing; modules.json names its folder")
    config = folder.read_json(file)
    if config.get("include_prompt") is False:
        raise invalid(file, "include_prompt must be true", False)
    modes = config.get("pooling_mode")
    if modes is None:
        is_chosen = {mode: config[key] for key, mode in _MODE_OF_KEY.items() if key in config}
        if not all(isinstance(value, bool) for value in is_chosen.values()):
            raise invalid(file, "the modes must be true or false", is_chosen)
        modes = [mode for mode, chosen in is_chosen.items() if chosen] if is_chosen else "mean"
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or not modes or not set(map(str, modes)) <= set(_MODES):
        raise invalid(file, f"the pooling must be of {', '.join(_MODES)}", modes or config)
    if len(set(modes)) < len(modes):
        raise invalid(file, "each pooling must occur once", modes)
    return tuple(modes)


def read_single(path: Path) -> str | None:
    """Return the mode of a folder without modules.json; `None` unless there is exactly one."""
    config = folder.read_optional_json(path / FILE)
    modes = [mode for key, mode in _MODE_OF_KEY.items() if config.get(key) is True]
    return modes[0] if len(modes) == 1 else None


def write(path: Path, modes: Sequence[str], hidden_size: int) -> None:
    """Write the file in the folder of a model."""
    config: dict[str, Any] = {key: mode in modes for key, mode in _MODE_OF_KEY.items()}
    if list(modes) != [mode for mode in _MODES if mode in modes]:
        config = {"pooling_mode": list(modes)}  # the older keys have no order
    file = path / FILE
    file.parent.mkdir()
    folder.write_json(file, {"word_embedding_dimension": hidden_size, **config})
