"""Predict with the graph of an export or of another library. Keras is not imported."""

import dataclasses
import hashlib
import math
from typing import Self

import numpy as np

from keras_bert import provenance
from keras_bert.checkpoints import tokenizer_config, tokenizer_json
from keras_bert.checkpoints.folder import read_optional_json
from keras_bert.exporting import graph_folder
from keras_bert.exporting.graph_folder import EXPORT_AGAIN
from keras_bert.exporting.graph_session import errors_as_value_error, open_session
from keras_bert.runtime import budget
from keras_bert.runtime.escaping import shown
from keras_bert.tasks import registry
from keras_bert.tasks.predictor import Predictor
from keras_bert.tasks.task import TaskModel
from keras_bert.text.python_tokenizer import PythonTokenizer
from keras_bert.untrusted import links

PROBABILITIES = "probabilities"
_POSITIONS = "masked_lm_positions"
_MAX_FLOATS = 2**25  # of an output of a batch, 128 MB


class GraphPredictor(Predictor):
    """The model and the tokenizer of a folder for ONNX Runtime or OpenVINO. `open` makes one.

    Args:
        session: The `graph_session.Session`.
        task_model: The `TaskModel`.
        output_names: Outputs of the session that the task reads.
        columns: As in `Predictor`.
        arguments: Those of `open`.
    """

    def __init__(self, session, task_model, output_names, columns, arguments):
        self.task = registry.by_name(task_model.output.task)
        self.name = task_model.name
        self.task_model = task_model
        self.max_positions = task_model.max_length
        self.columns = columns
        self.session = session
        self._output_names = output_names
        self._arguments = arguments
        self._advice = arguments[0].advice

    @classmethod
    def open(
        cls,
        graph: graph_folder.GraphFile,
        precision: str | None = None,
        task: str | None = None,
        pooling: str | None = None,
    ) -> Self:
        """Return the predictor of a graph.

        Args:
            graph: A `graph_folder.GraphFile`.
            precision: For OpenVINO, `"float32"` or `"bfloat16"`.
            task: For a foreign graph, a variant that its files may not state, such as `"pair"`.
            pooling: For a foreign graph that ends in the vectors of the tokens, how to pool them.

        Raises:
            ValueError: If a file is missing or broken, or the model has no head.
            ImportError: If the engine is not installed.
        """
        folder = graph.folder
        links.check(folder)
        if graph.is_foreign:
            session, model = _open_foreign(graph, precision, task, pooling)
        else:
            session, model = _open_own(graph, precision)
        head = model.output
        if head.task not in registry.names():
            raise ValueError(
                f"a pipeline needs a model with a head; {folder} has the task {shown(head.task)}. "
                "Export the model of a head, such as keras_bert.heads.embedder, or run this one "
                "with ONNX Runtime or OpenVINO, as its README shows"
            )
        task_of_head = registry.by_name(head.task)
        # Classifiers for LiteRT end in the probabilities, which MediaPipe needs.
        has_probabilities = PROBABILITIES in session.widths
        names = [PROBABILITIES] if has_probabilities else list(task_of_head.graph_outputs)
        _check_outputs(graph, session, names, task_of_head.graph_rank)
        width = session.widths[names[0]]
        if task_of_head.has_labels:
            _check_labels(graph, head.labels, width)
        else:
            # config.json has labels for every model.
            head = dataclasses.replace(head, labels=None)
        columns = provenance.columns_of_texts(provenance.read_metrics(folder).get("columns"))
        model = dataclasses.replace(model, output=head, width=width)
        return cls(session, model, names, columns, (graph, precision, task, pooling))

    def __reduce__(self):
        return type(self).open, self._arguments

    @property
    def model(self):
        raise ValueError(
            f"{self.name} is an export, which has no Keras model. Give the model that was exported "
            "to keras_bert.pipeline"
        )

    def with_logits(self):
        raise ValueError(f"{self.name!r} is an export. Use the Keras model")

    def digest(self):
        names = (
            graph_folder.DESCRIPTION_FILE, tokenizer_json.FILE, tokenizer_config.FILE, "vocab.txt",
            "config.json", "config_sentence_transformers.json", "sentence_bert_config.json",
            "modules.json", "1_Pooling/config.json",
        )  # fmt: skip
        graph, *options = self._arguments
        files = [graph.folder / name for name in names]
        contents = [file.read_bytes() if file.is_file() else b"" for file in files]
        settings = (self.session.digest, options, contents)
        return hashlib.sha256(repr(settings).encode()).digest()

    def _activate(self, outputs):
        if PROBABILITIES in self._output_names:
            return outputs
        return super()._activate(outputs)

    def _batches(self, encoded, batch_size):
        rows_per_batch = self._rows_per_batch(encoded.lengths, batch_size)
        batches = (
            encoded.batch(rows, int(encoded.lengths[rows].max()))[0] for rows in rows_per_batch
        )
        for index, inputs, outputs in self.session.run(batches, self._output_names):
            rows = rows_per_batch[index]
            if _POSITIONS in inputs and _POSITIONS not in self.session.inputs:
                row_of_position = np.arange(len(rows))[:, None]
                outputs = [array[row_of_position, inputs[_POSITIONS]] for array in outputs]
            if len(outputs) == 1:
                yield rows, outputs[0]
            else:
                yield rows, dict(zip(self._output_names, outputs, strict=True))

    def _rows_per_batch(self, lengths, batch_size):
        """Return the indices of the sequences of each batch, the longest sequences first."""
        tokens = self.session.tokens_per_batch
        if tokens is not None:
            # Few sequences are shared among the batches that run at the same time.
            tokens = min(tokens, math.ceil(int(lengths.sum()) / self.session.parallel_batches))
        width = max(self.session.widths[name] or 1 for name in self._output_names)
        order = np.argsort(-lengths, kind="stable")
        rows_per_batch = []
        start = 0
        while start < len(order):
            length = int(lengths[order[start]])
            size = batch_size if tokens is None else tokens // length
            size = max(1, min(size, _MAX_FLOATS // (length * width)))
            rows_per_batch.append(order[start : start + size])
            start += size
        return rows_per_batch

    def _reason_for_nan(self):
        return f"{self.session.file} returned NaN. {self._advice}"


def _open_own(graph, precision):
    """Return the session and the `TaskModel` of an export of keras_bert, without the width."""
    session = open_session(graph, precision)
    head, metadata = graph_folder.read_head(graph.folder)
    with errors_as_value_error(f"{graph.folder}: its tokenizer cannot be read", EXPORT_AGAIN):
        files = tokenizer_config.read(graph.folder)
    names = files.vocabulary or []
    _check_digests(graph, session, names, metadata)
    # Libraries need a name for each row of the embeddings, so the files may name further ids.
    tokenizer = _tokenizer(names[: metadata.get("vocabulary_size")], files.options)
    max_length = _max_length(graph.folder, files.json)
    return session, TaskModel(str(graph.folder), head, tokenizer, max_length)


def _open_foreign(graph, precision, task, pooling):
    """Return the session and the `TaskModel` of a graph of another library, without the width."""
    from keras_bert.exporting import foreign_graph

    config, files = foreign_graph.read_files(graph.folder)
    session = open_session(graph, precision)
    head, session = foreign_graph.read_head(graph.folder, config, session, task, pooling)
    tokenizer = _tokenizer(files.vocabulary, files.options)
    max_length = files.options["sequence_length"] or config["max_position_embeddings"]
    return session, TaskModel(str(graph.folder), head, tokenizer, max_length)


def _check_outputs(graph, session, names, rank):
    """Check that a graph has the outputs of its task, with as many axes."""
    for name in names:
        if name not in session.widths:
            raise ValueError(f"{session.file} has no output {name}. {graph.advice}")
        if session.ranks[name] != rank:
            raise ValueError(
                f"{session.file}: the output {name} must have {rank} axes; it has "
                f"{session.ranks[name]}. {graph.advice}"
            )


def _check_digests(graph, session, names, metadata):
    """Check that the graph and the names of the ids are those of the same export.

    `metadata` are those of `graph_folder.read_head`, which an export writes last.
    """
    vocabulary_digest = graph_folder.digest_of_vocabulary(names)
    for name, file, digest in (
        ("graph_sha256", graph.file, session.digest),
        ("vocabulary_sha256", graph.folder / tokenizer_json.FILE, vocabulary_digest),
    ):
        if metadata.get(name) not in (None, digest):
            raise ValueError(f"{file} has changed since the export of this folder. {EXPORT_AGAIN}")


def _tokenizer(vocabulary, options):
    """Return the `PythonTokenizer` of a vocabulary and of `ModelSpec.tokenizer`."""
    return PythonTokenizer(
        vocabulary,
        lowercase=options["lowercase"],
        strip_accents=options["strip_accents"],
        split_cjk=options["split_cjk"],
        added_tokens=options.get("added_tokens", ()),
    )


def _max_length(folder, content):
    """Return the maximum number of tokens of a text, from the content of `tokenizer.json`."""
    file = folder / tokenizer_json.FILE
    truncation = content.get("truncation")
    if not isinstance(truncation, dict):
        raise ValueError(f"{file} must have a truncation. {EXPORT_AGAIN}")
    length = truncation.get("max_length")
    if type(length) is not int or not 3 <= length <= budget.MAX_TOKENS:
        raise ValueError(
            f"{file}: the max_length of its truncation must be 3 to {budget.MAX_TOKENS}; received "
            f"{shown(length)}. {EXPORT_AGAIN}"
        )
    config = read_optional_json(folder / "config.json")
    positions = config.get("max_position_embeddings", length)
    if type(positions) is not int or length > positions:
        raise ValueError(
            f"{file}: the max_length of its truncation is {length}, but the model in config.json "
            f"has {shown(positions)} positions. {EXPORT_AGAIN}"
        )
    return length


def _check_labels(graph, labels, width):
    """Check that each output of the graph has a label."""
    count = len(labels or ())
    if count != width:
        raise ValueError(f"{graph.folder} must have {width} labels; it has {count}. {graph.advice}")
