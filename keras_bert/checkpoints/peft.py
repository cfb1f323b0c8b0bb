"""PEFT: a folder with a LoRA adapter, which names its base model.

Source: huggingface/peft, config.py and utils/save_and_load.py.
"""

from collections.abc import Callable, Collection
from pathlib import Path

from keras_bert.checkpoints import canonical, huggingface, peft_adapter
from keras_bert.checkpoints.canonical import Checkpoint, ReadPart
from keras_bert.checkpoints.folder import has_file
from keras_bert.runtime.reading import one_line
from keras_bert.untrusted.errors import invalid

FORMAT = "peft"

# From the name of a base model and its revision, or None, to its folder.
FindBase = Callable[[str, str | None], Path]


def read(
    path: Path, ignore: Collection[str] = (), *, find_base: FindBase | None = None
) -> Checkpoint:
    """Read a base model, and merge the adapter in a folder."""
    return canonical.with_head_or_problem(open_folder(path, ignore, find_base))


def open_folder(path: Path, ignore: Collection[str], find_base: FindBase | None) -> ReadPart:
    """Return the function that reads an adapted model."""
    file = path / peft_adapter.FILE
    adapter = peft_adapter.read(path)
    if adapter is None or find_base is None:
        raise ValueError(f"{path} is an adapter. Load it with keras_bert.load")
    copy = "Copy the adapter into the folder of its base model"
    name = adapter.config.get("base_model_name_or_path")
    revision = adapter.config.get("revision")
    if not isinstance(name, str) or not name or not isinstance(revision, str | None):
        keys = {"base_model_name_or_path": name, "revision": revision}
        rule = "must have the name of the base model, and a name or null as its revision"
        raise invalid(file, rule, keys, copy)
    try:
        base = find_base(name, revision)
    except (ValueError, OSError) as error:
        kind = OSError if isinstance(error, OSError) else ValueError
        raise kind(f"{file}: base_model_name_or_path: {one_line(error)}. {copy}") from error
    if has_file(base / peft_adapter.FILE):
        advice = "Merge that one first, with PEFT's merge_and_unload, and save that model"
        raise invalid(file, "the base must have no adapter of its own", name, advice)
    return huggingface.open_folder(base, ignore, adapter)
