"""The folder of an ONNX or OpenVINO export. This module needs neither Keras nor these libraries.

Besides the graph, the folder has the files of Hugging Face and sentence-transformers.
`keras_bert.json` holds what those files cannot say, such as long texts that are read in windows.

Source: huggingface/optimum, optimum-onnx and optimum-intel (names of files, inputs and outputs).
"""

import dataclasses
import os
import pathlib
from typing import Any

from keras_bert.checkpoints import folder as checkpoint_folder
from keras_bert.checkpoints import huggingface
from keras_bert.runtime import label_types, reading
from keras_bert.runtime.arguments import LONG_TEXTS, SIMILARITIES
from keras_bert.runtime.escaping import check_name

DESCRIPTION_FILE = "keras_bert.json"
# Our names of the inputs -> names in the graph.
INPUTS = {
    "input_word_ids": "input_ids",
    "input_mask": "attention_mask",
    "input_type_ids": "token_type_ids",
}
# Files of the graphs, by format and by the argument `quantize` of `keras_bert.export`.
GRAPH_FILES: dict[str, dict[str | None, str]] = {
    "onnx": {None: "onnx/model.onnx", "int8": "onnx/model_quantized.onnx"},
    "openvino": {
        None: "openvino/openvino_model.xml",
        "int8": "openvino/openvino_model_qint8_quantized.xml",
    },
}
# Folders that older versions wrote have the graph and its description in this file.
OLD_GRAPH_FILE = "model.onnx"
OLD_LABELS_FILE = "labels.txt"
# With one of these files, a folder is a model in another format, which may hold graphs, too.
_OTHER_FORMATS = ("model.keras", "saved_model.pb")
_AGAIN = "Export the model again"

# Options in the description -> if a value is valid.
_IS_VALID = {
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
class GraphOutput:
    """The attributes of `layers.TaskOutput` that the folder of an export holds."""

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


def find_graph(path: object, format: str | None = None) -> pathlib.Path | None:
    """Return the file with the graph in the folder of an export, or `None` for another path.

    Args:
        path: A path, or any other object.
        format: `"onnx"` or `"openvino"`. `None` finds either, but not in a folder that also holds
            the model in a format of `keras_bert.load`.

    Raises:
        ValueError: If a format is given, and the path is not the folder of such an export.

    Example:

    >>> find_graph("no such folder") is None
    True
    """
    if not isinstance(path, (str, os.PathLike)):
        if format is None:
            return None
        raise ValueError(f"engine={format!r} needs the path of a folder; received {path!r:.80}")
    folder = pathlib.Path(path).expanduser()
    formats = [format] if format else [*GRAPH_FILES]
    is_export = (folder / DESCRIPTION_FILE).is_file()
    files = [folder / name for key in formats for name in GRAPH_FILES[key].values() if is_export]
    if "onnx" in formats and not is_export and not (folder / "config.json").is_file():
        files.append(folder / OLD_GRAPH_FILE)
    file = next((file for file in files if file.is_file()), None)
    if format is not None:
        if file is None:
            raise ValueError(
                f"{path} has no graph of the engine {format!r} that keras_bert.export wrote. "
                f"Export the model with format={format!r}"
            )
        return file
    is_other = any((folder / name).is_file() for name in _OTHER_FORMATS)
    return None if is_other or huggingface.weights_file(folder) else file


def check_is_new(path: pathlib.Path) -> None:
    """Raise a `ValueError` unless a path is an empty folder or does not exist."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} exists and is not an empty folder. Choose another path")


def is_old(graph_file: pathlib.Path) -> bool:
    """Return True for the graph of a folder that an older version wrote."""
    return graph_file.name == OLD_GRAPH_FILE and graph_file.parent.name != "onnx"


def describe(output: Any, task: str) -> dict[str, Any]:
    """Return the content of `keras_bert.json` for a `layers.TaskOutput`, or for an encoder: None.

    The labels are in `config.json`.
    """
    options = {} if output is None else {name: getattr(output, name) for name in _IS_VALID}
    return {"task": task, **options}


def read_output(folder: pathlib.Path) -> GraphOutput:
    """Return the output that `keras_bert.json` and `config.json` in a folder describe."""
    file = folder / DESCRIPTION_FILE
    options = checkpoint_folder.read_json(file)
    output = output_of(options, file)
    names = checkpoint_folder.read_json(folder / "config.json").get("id2label")
    if isinstance(names, dict):
        output.labels = [str(names.get(str(index))) for index in range(len(names))]
        for label in output.labels:
            check_name(label, f"{folder / 'config.json'}: a label")
    return output


def output_of(options: dict[str, Any], file: object) -> GraphOutput:
    """Return the output with some options.

    Raise ValueError for missing or unknown keys, and for values of another type. `file` is named in
    errors.
    """
    options = dict(options)
    task = options.pop("task", None)
    if not isinstance(task, str):
        raise ValueError(f"{file} was not written by keras_bert.export. {_AGAIN}")
    for name, value in options.items():
        if name not in _IS_VALID or not _IS_VALID[name](value):
            raise ValueError(f"{file}: {name!r:.80} has the unknown value {value!r:.80}. {_AGAIN}")
    output = GraphOutput(task, **options)
    if output.default_prompt is not None and output.default_prompt not in output.prompts:
        raise ValueError(
            f"{file}: default_prompt must be one of the prompts; received "
            f"{output.default_prompt!r:.80}. {_AGAIN}"
        )
    return output


def read_old_output(metadata: dict[str, str], file: pathlib.Path) -> GraphOutput:
    """Return the output that the metadata of the `model.onnx` of an old folder describes."""
    if "task" not in metadata:
        raise ValueError(f"{file} was not written by keras_bert.export. {_AGAIN}")
    options: dict[str, Any] = reading.parse_json(metadata.get("output", "{}").encode(), file)
    return output_of({**options, "task": metadata["task"]}, file)
