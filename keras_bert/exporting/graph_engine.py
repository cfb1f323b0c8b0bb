"""Compute with the graph of an ONNX or OpenVINO export, as the engine of a pipeline.

Keras is not imported.
"""

import hashlib
import pathlib
import time

from keras_bert import provenance
from keras_bert.checkpoints import tokenizer_config, tokenizer_json
from keras_bert.checkpoints.folder import MAX_TOKENS
from keras_bert.exporting import graph_folder, graph_outputs
from keras_bert.exporting.graph_session import open_session, refuse
from keras_bert.runtime import reading
from keras_bert.runtime.escaping import check_name
from keras_bert.tasks import registry
from keras_bert.tasks.task import TaskModel
from keras_bert.text.python_tokenizer import PythonTokenizer
from keras_bert.untrusted import links

_MAX_TEXT = 2**26  # bytes of labels.txt
_MAX_LENGTH = 2**20  # tokens of a text


class GraphEngine:
    """The model and the tokenizer of an export for ONNX Runtime or OpenVINO.

    Args:
        file: The graph, as `graph_folder.find_graph` returns it.
        precision: For OpenVINO, `"float32"` or `"bfloat16"`.

    Attributes:
        seconds: Time that the graph has taken.

    Raises:
        ValueError: If a file is missing or broken, or the model has no head.
        ImportError: If the engine is not installed.
    """

    def __init__(self, file: pathlib.Path, precision: str | None = None):
        self._file = file
        self._precision = precision
        self._is_old = graph_folder.is_old(file)
        folder = file.parent if self._is_old else file.parents[1]
        links.check(folder)
        self._session = open_session(file, precision)
        if self._is_old:
            output = graph_folder.read_old_output(self._session.metadata, file)
        else:
            output = graph_folder.read_output(folder)
        if output.task not in registry.names():
            raise ValueError(
                f"a pipeline needs a model with a head; {folder} has the task {output.task!r:.80}. "
                "Run it with ONNX Runtime or OpenVINO, as its README shows"
            )
        self.task = registry.by_name(output.task)
        self._outputs = list(self._session.widths if self._is_old else self.task.graph_outputs)
        missing = [name for name in self._outputs if name not in self._session.widths]
        if missing:
            raise ValueError(f"{file} has no output {missing[0]}. Export the model again")
        tokenizer, self.longest = _read_tokenizer(folder)
        width = self._session.widths[self._outputs[0]]
        if self.task.has_labels:
            if self._is_old:
                output.labels = _read_labels(folder / graph_folder.OLD_LABELS_FILE)
            _check_labels(folder, output.labels, width)
        else:
            output.labels = None  # Hugging Face names every output
        self.name = str(folder)
        self.columns = provenance.columns_of_texts(provenance.read_metrics(folder))
        self.seconds = 0.0
        self.described = TaskModel(self.name, output, tokenizer, self.longest, width)

    def _no_model(self, *args, **options):
        raise ValueError(
            f"{self.name} is an export, which has no Keras model. Give the model that was exported "
            "to keras_bert.pipeline"
        )

    model = property(_no_model)
    export = _no_model
    save = _no_model

    def digest(self):
        names = [graph_folder.DESCRIPTION_FILE, tokenizer_json.FILE, "vocab.txt"]
        files = [self._file, self._file.with_suffix(".bin")]
        files += [pathlib.Path(self.name, name) for name in names]
        contents = [file.read_bytes() for file in files if file.is_file()]
        lengths = [len(content) for content in contents]
        settings = repr((self._precision, lengths)).encode()
        return hashlib.sha256(b"".join([settings, *contents])).digest()

    def outputs(self, encoded, *, batch_size, on_batch=None):
        start = time.perf_counter()
        outputs = graph_outputs.compute(
            self._session,
            encoded,
            self._outputs,
            is_old=self._is_old,
            batch_size=batch_size,
            on_batch=on_batch,
        )
        self.seconds += time.perf_counter() - start
        # The graphs of older versions end with this function.
        return outputs if self._is_old else self.task.activate(self.described.output, outputs)


def _read_tokenizer(folder):
    """Return the `PythonTokenizer` of a folder, and the maximum number of tokens of a text."""
    with refuse(f"{folder}: its tokenizer cannot be read"):
        content = tokenizer_json.read(folder)
        normalizer = content["normalizer"]
        length = content["truncation"]["max_length"]
        vocabulary = tokenizer_config.read_vocabulary(folder, MAX_TOKENS, content) or []
        added = tokenizer_config.read_added(folder, vocabulary, content)
    if type(length) is not int or not 3 <= length <= _MAX_LENGTH:
        raise ValueError(
            f"{folder / tokenizer_json.FILE}: the max_length of its truncation must be 3 to "
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


def _read_labels(file):
    """Return the lines of a `labels.txt`."""
    with refuse(f"{file} is missing or broken"):
        text = reading.read_text(file, _MAX_TEXT)
    # Not `splitlines`, because a label can contain other line separators.
    labels = text.removesuffix("\n").split("\n")
    for label in labels:
        check_name(label, f"{file}: a label")
    return labels


def _check_labels(folder, labels, width):
    """Check that each output of the graph has a label."""
    if len(labels or ()) != width:
        raise ValueError(
            f"{folder} must have {width} labels; it has {len(labels or ())}. Export the model again"
        )
