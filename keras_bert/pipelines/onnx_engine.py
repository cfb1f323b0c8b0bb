"""Compute with ONNX Runtime, for pipelines.

Keras is imported only to score labeled data.
"""

import contextlib
import os
import pathlib

import numpy as np

from keras_bert.checkpoints import tokenizer_config, tokenizer_json
from keras_bert.checkpoints.folder import MAX_TOKENS
from keras_bert.exporting import onnx_folder
from keras_bert.exporting.onnx_folder import LABELS_FILE, MODEL_FILE
from keras_bert.runtime import reading
from keras_bert.runtime.escaping import check_name
from keras_bert.runtime.reading import one_line
from keras_bert.tasks import registry
from keras_bert.tasks.task import TaskModel
from keras_bert.text.python_tokenizer import PythonTokenizer
from keras_bert.untrusted import links, onnx_graph_check

_MAX_TEXT = 2**26  # bytes of vocab.txt and labels.txt
_MAX_LENGTH = 2**20  # tokens of a text
_FATAL = 4  # ONNX Runtime prints warnings with names from the file; its errors are exceptions


def is_onnx_folder(path):
    """Return True for the path of a folder that `export(format="onnx")` wrote.

    Hugging Face's folders can have a `model.onnx` beside other formats.

    Example:

    >>> is_onnx_folder("no such folder")
    False
    """
    if not isinstance(path, (str, os.PathLike)):
        return False
    folder = pathlib.Path(path).expanduser()
    others = ("config.json", "model.keras", "saved_model.pb")
    has_others = any((folder / name).is_file() for name in others)
    return (folder / MODEL_FILE).is_file() and not has_others


class OnnxEngine:
    """The model and the tokenizer of an ONNX folder.

    Args:
        path: Folder that `keras_bert.export(model, path, format="onnx")` wrote.

    Raises:
        ValueError: If a file is missing or broken, or the model has no head.
        ImportError: If onnxruntime is not installed.
    """

    def __init__(self, path):
        path = pathlib.Path(path).expanduser()
        links.check(path)
        self._session = _open_session(path / MODEL_FILE)
        metadata = self._session.get_modelmeta().custom_metadata_map
        output = onnx_folder.read_output(metadata, path / MODEL_FILE)
        if output.task not in registry.names():
            raise ValueError(
                f"a pipeline needs a model with a head; {path} has the task {output.task!r:.80}. "
                "Run it with ONNX Runtime, as its README shows"
            )
        self.task = registry.by_name(output.task)
        tokenizer, self.longest = _read_tokenizer(path)
        outputs = self._session.get_outputs()
        self._outputs = [node.name for node in outputs]
        width = outputs[0].shape[-1]
        if self.task.has_labels:
            output.labels = _read_labels(path / LABELS_FILE, width)
        self.name = str(path)
        self.columns: dict[str, str] = {}
        self.described = TaskModel(self.name, output, tokenizer, self.longest, width)

    def _no_model(self, *args, **options):
        raise ValueError(
            f"{self.name} is an ONNX folder, which has no Keras model. Give the model that was "
            "exported to keras_bert.pipeline"
        )

    model = property(_no_model)
    export = _no_model
    save = _no_model

    def outputs(self, encoded, *, batch_size, on_batch=None):
        results = [None] * len(encoded)
        order = np.argsort(-encoded.lengths, kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            inputs, _, _ = encoded.batch(rows, int(encoded.lengths[rows].max()))
            with _refuse(f"{self.name}: {MODEL_FILE} failed"):
                outputs = self._session.run(None, inputs)
            for row, *values in zip(rows, *outputs, strict=True):
                is_dict = len(values) > 1
                results[row] = (
                    dict(zip(self._outputs, values, strict=True)) if is_dict else values[0]
                )
            if on_batch is not None:
                on_batch(len(rows) / len(encoded))
        return results


@contextlib.contextmanager
def _refuse(subject):
    """Raise a `ValueError` that begins with `subject` for any error of ONNX Runtime or of files."""
    try:
        yield
    except Exception as error:  # the errors of ONNX Runtime have no other common base
        raise ValueError(f"{subject}: {one_line(error)}. Export the model again") from error


def _open_session(file):
    """Open a model, and check that it has outputs as an exported one."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError("ONNX folders need: pip install 'keras3-bert[onnx]'") from error
    reading.check_not_lfs_pointer(file)
    with _refuse(f"{file} must be a graph as keras_bert.export writes it, received"):
        onnx_graph_check.check(file)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    with _refuse(f"{file} cannot be read"):
        session = onnxruntime.InferenceSession(
            str(file),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=["ConstantFolding"],  # it would compute what the file chooses
        )
    outputs = session.get_outputs()
    if not outputs or not all(output.shape for output in outputs):
        raise ValueError(f"{file} must have outputs with axes. Export the model again")
    return session


def _read_tokenizer(path):
    """Return the `PythonTokenizer` of a folder, and the maximum number of tokens of a text."""
    with _refuse(f"{path}: its tokenizer cannot be read"):
        content = tokenizer_json.read(path)
        normalizer = content["normalizer"]
        length = content["truncation"]["max_length"]
        vocabulary = tokenizer_config.read_vocabulary(path, MAX_TOKENS, content) or []
        added = tokenizer_config.read_added(path, vocabulary, content)
    if type(length) is not int or not 3 <= length <= _MAX_LENGTH:
        raise ValueError(
            f"{path / tokenizer_json.FILE}: the max_length of its truncation must be 3 to "
            f"{_MAX_LENGTH}; received {length!r:.80}. Export the model again"
        )
    tokenizer = PythonTokenizer(
        vocabulary,
        lowercase=normalizer.get("lowercase", True),
        strip_accents=normalizer.get("strip_accents"),
        split_cjk=normalizer.get("handle_chinese_chars", True),
        added_tokens=added,
    )
    return tokenizer, length


def _read_lines(file):
    with _refuse(f"{file} is missing or broken"):
        text = reading.read_text(file, _MAX_TEXT)
    # Not `splitlines`, because a label can contain other line separators.
    return text.removesuffix("\n").split("\n")


def _read_labels(file, count):
    labels = _read_lines(file)
    if len(labels) != count:
        raise ValueError(f"{file} must have {count} lines; it has {len(labels)}. Export again")
    for label in labels:
        check_name(label, f"{file}: a label")
    return labels
