"""What an ONNX folder holds. This module needs neither Keras nor onnx."""

import dataclasses
import pathlib
from typing import Any

from keras_bert.runtime import label_types, reading
from keras_bert.runtime.arguments import LONG_TEXTS, SIMILARITIES
from keras_bert.runtime.escaping import check_name

MODEL_FILE = "model.onnx"
LABELS_FILE = "labels.txt"
# Attributes in the metadata of `model.onnx` -> if a value is valid.
IS_VALID = {
    **dict.fromkeys(
        ("pairs", "multi_label", "no_answer", "characters"), lambda value: isinstance(value, bool)
    ),
    "long_texts": lambda value: value in LONG_TEXTS,
    "prompts": lambda value: (
        isinstance(value, dict) and all(isinstance(prompt, str) for prompt in value.values())
    ),
    "default_prompt": lambda value: value is None or isinstance(value, str),
    "similarity": lambda value: value in SIMILARITIES,
    "label_type": lambda value: value in label_types.NAMES,
}


@dataclasses.dataclass
class OnnxOutput:
    """The attributes of `layers.TaskOutput` that an ONNX folder holds.

    Labels are in a file, and the task is in the metadata of `model.onnx`.
    """

    task: str | None = None
    labels: list[str] | None = None
    pairs: bool = False
    multi_label: bool = False
    no_answer: bool = False
    characters: bool = False
    long_texts: str = "truncate"
    prompts: dict = dataclasses.field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str = "cosine"
    label_type: str = "str"

    def __post_init__(self):
        for name in self.prompts:
            check_name(name, "the name of a prompt")


def write_labels(folder, labels):
    """Write the file with a label per line; return its path."""
    file = pathlib.Path(folder, LABELS_FILE)
    lines = "".join(f"{label}\n" for label in labels)
    file.write_text(lines, encoding="utf-8", newline="\n")
    return file


def read_output(metadata: dict[str, str], file: object) -> OnnxOutput:
    """Return the output that the metadata of a `model.onnx` describes.

    Raise ValueError for missing or unknown keys, and for values of another type. `file` is
    named in errors.
    """
    if "task" not in metadata:
        raise ValueError(f"{file} was not written by keras_bert.export. Export the model again")
    options: dict[str, Any] = reading.parse_json(metadata.get("output", "{}").encode(), file)
    for name, value in options.items():
        if name not in IS_VALID or not IS_VALID[name](value):
            raise ValueError(
                f"{file}: its metadata has {name!r:.80} with the unknown value {value!r:.80}. "
                "Export the model again"
            )
    output = OnnxOutput(metadata["task"], **options)
    if output.default_prompt is not None and output.default_prompt not in output.prompts:
        raise ValueError(
            f"{file}: default_prompt must be one of the prompts; received "
            f"{output.default_prompt!r:.80}. Export the model again"
        )
    return output
