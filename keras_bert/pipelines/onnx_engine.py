"""Compute with ONNX Runtime, for pipelines.

Keras is imported only to score labeled data.
"""

import pathlib

import numpy as np

from keras_bert.checkpoints import tokenizer_config, tokenizer_json
from keras_bert.checkpoints.folder import MAX_TOKENS
from keras_bert.checkpoints.tokenizer_config import VOCABULARY_FILE
from keras_bert.exporting import onnx_folder
from keras_bert.exporting.onnx_folder import LABELS_FILE, MODEL_FILE
from keras_bert.runtime import reading
from keras_bert.runtime.escaping import check_name
from keras_bert.runtime.reading import one_line
from keras_bert.tasks import registry
from keras_bert.tasks.engine import Engine
from keras_bert.tasks.task import TaskModel
from keras_bert.text.python_tokenizer import PythonTokenizer
from keras_bert.untrusted import links, onnx_graph_check

_MAX_TEXT = 2**26  # bytes of vocab.txt and labels.txt
_MAX_LENGTH = 2**20  # tokens of a text
_FATAL = 4  # ONNX Runtime prints warnings with names from the file; its errors are exceptions
_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")


def is_onnx_folder(path):
    """Return True for the path of a folder that `export(format="onnx")` wrote.

    Hugging Face's folders can have a `model.onnx` beside other formats.

    Example:

    >>> is_onnx_folder("no such folder")
    False
    """
    try:
        folder = pathlib.Path(path).expanduser()
        others = ("config.json", "model.keras", "saved_model.pb")
        return (folder / MODEL_FILE).is_file() and not any(
            (folder / name).is_file() for name in others
        )
    except (TypeError, ValueError, OSError):
        return False


class OnnxEngine(Engine):
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
        files = (MODEL_FILE, tokenizer_json.FILE, VOCABULARY_FILE)
        missing = [name for name in files if not (path / name).is_file()]
        if missing:
            raise ValueError(
                f"{path} has no {missing[0]}. Export the model again, with its preprocessor"
            )
        _check_installed(path)
        self._session = _open_session(path / MODEL_FILE)
        metadata = self._session.get_modelmeta().custom_metadata_map
        output = onnx_folder.read_output(metadata, path / MODEL_FILE)
        task = _find_task(metadata["task"], path)
        tokenizer, max_length = _read_tokenizer(path)
        outputs = self._session.get_outputs()
        self._outputs = [node.name for node in outputs]
        width = outputs[0].shape[-1]
        if task.has_labels:
            output.labels = _read_labels(path / LABELS_FILE, width)
        self._described = TaskModel(str(path), output, tokenizer, max_length, width)
        super().__init__(task, max_length, {})

    @property
    def described(self):
        return self._described

    @property
    def model(self):
        """Raise an error: an ONNX folder has no Keras model."""
        raise self._no_model()

    def export(self, path, **options):
        raise self._no_model()

    def save(self, path, **options):
        raise self._no_model()

    def _no_model(self):
        return ValueError(
            f"{self.name} is an ONNX folder, which has no Keras model. Give the model that was "
            "exported to keras_bert.pipeline"
        )

    def outputs(self, encoded, *, batch_size, on_batch=None):
        results = [None] * len(encoded)
        order = np.argsort(-encoded.lengths, kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            inputs, _, _ = encoded.batch(rows, int(encoded.lengths[rows].max()))
            outputs = self._run(inputs)
            for index, row in enumerate(rows):
                of_row = [output[index] for output in outputs]
                results[row] = of_row[0]
                if len(of_row) > 1:
                    results[row] = dict(zip(self._outputs, of_row, strict=True))
            if on_batch is not None:
                on_batch(len(rows) / len(encoded))
        return results

    def _run(self, inputs):
        try:
            return self._session.run(None, inputs)
        except Exception as error:  # the errors of ONNX Runtime have no other common base
            raise ValueError(
                f"{self.name}: {MODEL_FILE} failed: {one_line(error)}. Export the model again"
            ) from error


def _find_task(name, path):
    try:
        return registry.by_name(name)
    except ValueError:
        raise ValueError(
            f"a pipeline needs a model with a head; {path} has the task {name!r:.80}. Run it with "
            "ONNX Runtime, as its README shows"
        ) from None


def _check_installed(path):
    """Raise an ImportError if ONNX Runtime is not installed."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"{path} needs {error.name}; run: pip install 'keras3-bert[onnx]'"
        ) from error


def _open_session(file):
    """Open a model, and check that it has the inputs and outputs of an exported one."""
    import onnxruntime

    reading.check_not_lfs_pointer(file)
    try:
        onnx_graph_check.check(file)
    except ValueError as error:
        raise ValueError(
            f"{file} must be a graph as keras_bert.export writes it, received "
            f"{one_line(error)}. Export the model again"
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    try:
        session = onnxruntime.InferenceSession(
            str(file),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=["ConstantFolding"],  # it would compute what the file chooses
        )
    except Exception as error:  # the errors of ONNX Runtime have no other common base
        raise ValueError(
            f"{file} cannot be read: {one_line(error)}. Export the model again"
        ) from error
    inputs = {node.name for node in session.get_inputs()}
    outputs = session.get_outputs()
    if not inputs >= {*_INPUTS} or not outputs or not all(output.shape for output in outputs):
        raise ValueError(
            f"{file} must have the inputs {', '.join(_INPUTS)}, and outputs with axes. Export the "
            "model again"
        )
    return session


def _read_tokenizer(path):
    """Return the `PythonTokenizer` of a folder, and the maximum number of tokens of a text."""
    try:
        content = tokenizer_json.read(path)
        normalizer = content["normalizer"]
        length = content["truncation"]["max_length"]
        vocabulary = tokenizer_config.read_vocabulary(path, MAX_TOKENS, content) or []
        added = tokenizer_config.read_added(path, vocabulary, content)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: its tokenizer cannot be read: {one_line(error)}. Export the model again"
        ) from error
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
    try:
        text = reading.read_text(file, _MAX_TEXT)
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} is missing or broken. Export the model again") from error
    # Not `splitlines`, because a label can contain other line separators.
    return text.removesuffix("\n").split("\n")


def _read_labels(file, count):
    labels = _read_lines(file)
    if len(labels) != count:
        raise ValueError(
            f"{file} must have {count} lines; it has {len(labels)}. Export the model again"
        )
    for label in labels:
        check_name(label, f"{file}: a label")
    return labels
