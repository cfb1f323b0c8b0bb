"""The folder of an ONNX or OpenVINO export. This module needs neither Keras nor these libraries.

Besides the graph, the folder has the files of Hugging Face and sentence-transformers.
`keras_bert.json` holds what those files cannot say, such as long texts that are read in windows.

Source: huggingface/optimum, optimum-onnx and optimum-intel (names of files, inputs and outputs).
"""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_bert.checkpoints import detection, tokenizer_config
from keras_bert.checkpoints import folder as checkpoint_folder
from keras_bert.model_spec import HeadSpec
from keras_bert.runtime import budget, label_types
from keras_bert.runtime.arguments import LONG_TEXTS, SIMILARITIES, check_prompts
from keras_bert.runtime.escaping import check_name, shown

DESCRIPTION_FILE = "keras_bert.json"
# Our names of the inputs -> names in the graph.
INPUTS = {
    "input_word_ids": "input_ids",
    "input_mask": "attention_mask",
    "input_type_ids": "token_type_ids",
}
Inputs = dict[str, np.ndarray]
# Files of the graphs, by format and by the argument `quantize` of `keras_bert.export`.
GRAPH_FILES: dict[str, dict[str | None, str]] = {
    "onnx": {None: "onnx/model.onnx", "int8": "onnx/model_quantized.onnx"},
    "openvino": {
        None: "openvino/openvino_model.xml",
        "int8": "openvino/openvino_model_qint8_quantized.xml",
    },
}
# Files of the graphs of other libraries, the preferred ones first.
_FOREIGN_FILES = {
    "onnx": ("onnx/model.onnx", "model.onnx", "*/model_optimized.onnx", "model_optimized.onnx",
             "onnx/model_quantized.onnx", "onnx/*.onnx", "*.onnx"),
    "openvino": ("openvino/openvino_model.xml", "openvino_model.xml", "openvino/*.xml",
                 "*.xml"),
}  # fmt: skip
# A folder with one of these files is a Keras model or a SavedModel, and may hold graphs, too.
_OTHER_FORMATS = ("model.keras", "saved_model.pb", "model.weights.h5", "*.index", "0_*")
EXPORT_AGAIN = "Export the model again"
_USE_ANOTHER = "Download it again, or run it with the library that wrote it"
ENCODER = "encoder"  # in place of a task

_METADATA = ("graph_sha256", "vocabulary_sha256", "vocabulary_size")

# Options in the description -> function that returns True for a valid value.
_VALIDATORS = {
    **dict.fromkeys(
        ("pairs", "multi_label", "no_answer", "characters"), lambda value: isinstance(value, bool)
    ),
    "long_texts": lambda value: value in LONG_TEXTS,
    "prompts": lambda value: True,  # see `check_prompts`
    "default_prompt": lambda value: value is None or isinstance(value, str),
    "similarity": lambda value: value in SIMILARITIES,
    "label_type": lambda value: value in label_types.NAMES,
}


@dataclasses.dataclass(frozen=True)
class GraphFile:
    """A graph in a folder.

    Attributes:
        file: The file with the graph.
        folder: The folder of the export.
        is_foreign: True for a graph of another library, which needs `trusted=True`.
    """

    file: pathlib.Path
    folder: pathlib.Path
    is_foreign: bool = False

    @property
    def advice(self) -> str:
        """What to do if the graph cannot be used."""
        return _USE_ANOTHER if self.is_foreign else EXPORT_AGAIN


def find_graph(path: object, format: str | None = None) -> GraphFile | None:
    """Return the graph in a folder, or `None` for another path.

    Args:
        path: A path, or any other object.
        format: `"onnx"` or `"openvino"`. `None` finds either, but not in a folder that also holds
            the model in a format of `keras_bert.load`.

    Raises:
        ValueError: If a format is given, and the path is not a folder with such a graph.

    Example:

    >>> find_graph("no such folder") is None
    True
    """
    if not isinstance(path, (str, os.PathLike)):
        if format is None:
            return None
        raise ValueError(f"engine={format!r} needs the path of a folder; received {shown(path)}")
    folder = pathlib.Path(path).expanduser()
    graph = _graph_of(folder, [format] if format else [*GRAPH_FILES])
    if format is not None and graph is None:
        raise ValueError(
            f"{path} has no graph of the engine {format!r}. Export the model with format={format!r}"
        )
    if format is not None:
        return graph
    is_other = any(path for name in _OTHER_FORMATS for path in folder.glob(name))
    return None if is_other or detection.huggingface_weights(folder) else graph


def _graph_of(folder, formats):
    """Return the graph of one of some formats in a folder, or `None`."""
    is_foreign = not (folder / DESCRIPTION_FILE).is_file()
    names = _FOREIGN_FILES if is_foreign else {k: v.values() for k, v in GRAPH_FILES.items()}
    for format in formats:
        for name in names[format]:
            for file in sorted(folder.glob(name)):
                return GraphFile(file, folder, is_foreign)
    return None


def graph_inputs(inputs: Inputs, names: Iterable[str], dtype: type = np.int64) -> Inputs:
    """Return the inputs of a batch of an `Encoded` with the names and the type of a graph's."""
    ids = {INPUTS.get(name, name): array for name, array in inputs.items()}
    return {name: ids[name].astype(dtype) for name in names}


def describe(output: Any, task: str) -> dict[str, Any]:
    """Return the content of `keras_bert.json`. The labels are in `config.json`.

    `output` is a `layers.TaskOutput`, or `None` for an encoder.
    """
    options = {} if output is None else {name: getattr(output, name) for name in _VALIDATORS}
    return {"task": task, **options}


def write_digests(graph: GraphFile, vocabulary: list[str] | None) -> None:
    """Add hashes of the graph and of the names of all ids to `keras_bert.json`.

    `vocabulary` are the tokens of the model. The files of the folder can name further ids.
    """
    file = graph.folder / DESCRIPTION_FILE
    description = checkpoint_folder.read_json(file)
    files = [file for file in (graph.file, graph.file.with_suffix(".bin")) if file.is_file()]
    description["graph_sha256"] = digest_of_graph(*(file.read_bytes() for file in files))
    if vocabulary is not None:
        names = tokenizer_config.read(graph.folder).vocabulary or []
        description["vocabulary_sha256"] = digest_of_vocabulary(names)
        description["vocabulary_size"] = len(vocabulary)
    checkpoint_folder.write_json(file, description)


def digest_of_graph(*contents: bytes | memoryview) -> str:
    """Return a hash of the content of a graph's file and of the file of its weights, if any."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def digest_of_vocabulary(vocabulary: list[str]) -> str:
    """Return a hash of the tokens of a vocabulary."""
    return hashlib.sha256("\n".join(vocabulary).encode("utf-8", "surrogatepass")).hexdigest()


def read_head(folder: pathlib.Path) -> tuple[HeadSpec, dict[str, Any]]:
    """Return the head that `keras_bert.json` and `config.json` describe, and the `_METADATA`."""
    file = folder / DESCRIPTION_FILE
    options = checkpoint_folder.read_json(file)
    metadata = {name: options.pop(name, None) for name in _METADATA}
    size = metadata["vocabulary_size"]
    if size is not None and (type(size) is not int or size < 1):
        raise ValueError(
            f"{file}: vocabulary_size must be a positive int; received {shown(size)}. "
            f"{EXPORT_AGAIN}"
        )
    head = head_of(options, file)
    config_file = folder / "config.json"
    names = checkpoint_folder.read_json(config_file).get("id2label")
    if names is not None:
        labels = _labels_of(names, config_file)
        head = dataclasses.replace(head, labels=labels)
        if not label_types.fits(labels, head.label_type):
            raise ValueError(
                f"{file}: label_type is {head.label_type!r}, but the labels in {config_file} are "
                f"not of this type. {EXPORT_AGAIN}"
            )
    return head, metadata


def _labels_of(names, config_file):
    """Return the labels in the `id2label` of `config.json`."""
    count = len(names) if isinstance(names, dict) else 0
    is_complete = 0 < count <= budget.MAX_TOKENS and all(
        str(index) in names for index in range(count)
    )
    if not is_complete:
        raise ValueError(
            f"{config_file}: id2label must be an object with the keys 0, 1, ..., at most "
            f"{budget.MAX_TOKENS}. {EXPORT_AGAIN}"
        )
    labels = [names[str(index)] for index in range(count)]
    for label in labels:
        if not isinstance(label, str):
            raise ValueError(f"{config_file}: id2label has {shown(label)}, which is not a string")
        check_name(label, f"{config_file}: a label")
    if len(set(labels)) < count:
        raise ValueError(f"{config_file}: two labels of id2label are equal. {EXPORT_AGAIN}")
    return labels


def head_of(options: dict[str, Any], file: object) -> HeadSpec:
    """Return the head that the content of `keras_bert.json` describes.

    Raise a `ValueError` for missing or unknown keys, and for values of another type. `file` is
    named in errors.
    """
    options = dict(options)
    task = options.pop("task", None)
    if not isinstance(task, str):
        raise ValueError(f"{file} was not written by keras_bert.export. {EXPORT_AGAIN}")
    names = _VALIDATORS.keys() if task != ENCODER else set()
    if names - options.keys():
        missing = ", ".join(sorted(names - options.keys()))
        raise ValueError(f"{file} lacks {missing}. {EXPORT_AGAIN}")
    for name, value in options.items():
        if name not in _VALIDATORS or not _VALIDATORS[name](value):
            raise ValueError(
                f"{file}: {shown(name)} has the unknown value {shown(value)}. {EXPORT_AGAIN}"
            )
    head = HeadSpec(task, **options)
    try:
        check_prompts(head.prompts, head.default_prompt)
    except ValueError as error:
        raise ValueError(f"{file}: {error}. {EXPORT_AGAIN}") from error
    return head
