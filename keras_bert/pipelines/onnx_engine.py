"""Compute with ONNX Runtime, for pipelines.

Keras is imported only to score labeled data.
"""

import itertools
import pathlib

import numpy as np

from keras_bert.checkpoints import tokenizer_json
from keras_bert.checkpoints.folder import check_tokens
from keras_bert.checkpoints.tokenizer_config import VOCABULARY_FILE
from keras_bert.exporting import onnx_folder
from keras_bert.exporting.onnx_folder import LABELS_FILE, MODEL_FILE, TASKS
from keras_bert.runtime import reading
from keras_bert.runtime.escaping import check_name
from keras_bert.runtime.reading import one_line
from keras_bert.tasks.masked_tokens import task as masked_lm
from keras_bert.tasks.question_answering import windows as question_windows
from keras_bert.tasks.tagging import windows as tag_windows
from keras_bert.text import token_ids
from keras_bert.text.encoded_texts import EncodedChoices, EncodedTexts
from keras_bert.text.python_tokenizer import PythonTokenizer
from keras_bert.text.text_windows import mean_per_text
from keras_bert.text.words import split_words
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


class OnnxEngine:
    """The model and the tokenizer of an ONNX folder.

    Args:
        path: Folder that `keras_bert.export(model, path, format="onnx")` wrote.

    Attributes:
        name: The path.
        task: One of `TASKS`.
        output: The `OnnxOutput`.
        width: Size of the vectors of an embedder.
        columns: Empty, since an export does not keep the names of columns.

    Raises:
        ValueError: If a file is missing or broken, or the model has no head.
        ImportError: If onnxruntime is not installed.
    """

    def __init__(self, path):
        path = pathlib.Path(path).expanduser()
        self.name = str(path)
        self.columns: dict[str, str] = {}
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
        self.output = onnx_folder.read_output(metadata, path / MODEL_FILE)
        self.task = metadata["task"]
        if self.task not in TASKS:
            raise ValueError(
                f"a pipeline needs a model with a head; {path} has the task {self.task!r:.80}. Run "
                "it with ONNX Runtime, as its README shows"
            )
        self._tokenizer, self._max_length = _read_tokenizer(path)
        self.longest = self._max_length
        self._outputs = [output.name for output in self._session.get_outputs()]
        size = self._session.get_outputs()[0].shape[-1]
        self.width = size if self.task == "embedding" else None
        if self.task in ("classification", "next_sentence", "tagging"):
            self.output.labels = _read_labels(path / LABELS_FILE, size)

    @property
    def model(self):
        """Raise an error: an ONNX folder has no Keras model."""
        raise ValueError(
            f"{self.name} is an ONNX folder, which has no Keras model. Give the model that was "
            "exported to keras_bert.pipeline"
        )

    def export(self, path, **options):
        """Raise an error: an ONNX folder has no Keras model."""
        return self.model

    def save(self, path, **options):
        """Raise an error: an ONNX folder has no Keras model."""
        return self.model

    def check_labeled(self, examples):
        """Raise an error if data has no labels, or labels that the model lacks. Imports Keras."""
        from keras_bert.tasks import inference

        inference.check_targets(self.output, examples)

    def score(self, examples, answers):
        """Return the metrics of answers, with those of each label. This imports Keras."""
        from keras_bert.tasks import inference

        return inference.score(self.output, examples, answers, report=True)

    def encode(self, examples, long_texts=None):
        """Encode the data of the task."""
        if not len(examples):
            raise ValueError(f"{examples.source} contains no examples")
        if self.task == "embedding":  # only to score: a pipeline encodes texts with `encode_texts`
            from keras_bert.tasks.embedding import task as embedding

            rows = embedding.rows_with_prompts(self.output, examples)
            return self.encode_texts([text for row in rows for text in row])
        if self.task == "tagging":
            all_words = itertools.chain.from_iterable(examples.words)
            words = token_ids.tokenize(self._tokenizer, all_words)
            return tag_windows.encode(
                words.ids,
                words.lengths,
                examples.words,
                self._tokenizer.special_ids,
                self._max_length,
            )
        if self.task == "question_answering":
            return self._encode_questions(examples)
        if self.task == "multiple_choice":
            return EncodedChoices(self._tokenizer, examples, self._max_length)
        long_texts = long_texts or self.output.long_texts
        return self._encode_columns(examples.text_columns(), long_texts == "window")

    def encode_texts(self, texts):
        """Encode single texts, truncated."""
        return self._encode_columns([texts])

    def _encode_columns(self, columns, in_windows=False):
        return EncodedTexts(self._tokenizer, columns, self._max_length, in_windows=in_windows)

    def encode_masks(self, texts):
        """Encode texts with [MASK]."""
        if masked_lm.MASK not in self._tokenizer.vocabulary:
            raise ValueError(f"{self.name} has no token {masked_lm.MASK}, which this task needs")
        return masked_lm.EncodedMasks(texts, self._tokenizer, self._max_length)

    def split_words(self, texts):
        """Split texts into words: a list of strings per text, and their spans in characters."""
        return split_words(texts, self._tokenizer, self.output.characters)

    def answers(self, examples, encoded, *, batch_size, on_batch=None, **options):
        """Return one answer per example, as the `decode` of the task does."""
        outputs = self.outputs(encoded, batch_size=batch_size, on_batch=on_batch)
        if self.task == "tagging":
            return tag_windows.decode(self.output.labels, examples.words, encoded, outputs)
        if self.task == "question_answering":
            return question_windows.decode(
                examples, encoded, outputs, self.output.no_answer, **options
            )
        if self.task == "multiple_choice":
            return outputs
        if self.task == "embedding":
            # The rows of texts have the same number of texts.
            rows = getattr(examples, "texts", outputs)
            return np.reshape(outputs, (len(rows), -1, self.width))
        return mean_per_text(encoded.text_of, np.array(outputs))

    def candidates(self, encoded, top_k, **options):
        """Return the most probable tokens for each [MASK], see `tasks.masked_lm.decode`."""
        outputs = self.outputs(encoded, **options)
        return masked_lm.decode(self._tokenizer.vocabulary, encoded, outputs, top_k)

    def outputs(self, encoded, *, batch_size, on_batch=None):
        """Return the outputs of the model for each sequence: arrays, or dicts of arrays."""
        found = [None] * len(encoded)
        order = np.argsort(-encoded.lengths, kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            inputs, _, _ = encoded.batch(rows, int(encoded.lengths[rows].max()))
            outputs = self._run(inputs)
            for index, row in enumerate(rows):
                one = [output[index] for output in outputs]
                found[row] = one[0] if len(one) == 1 else dict(zip(self._outputs, one, strict=True))
            if on_batch is not None:
                on_batch(len(rows) / len(encoded))
        return found

    def _run(self, inputs):
        try:
            return self._session.run(None, inputs)
        except Exception as error:  # the errors of ONNX Runtime have no other common base
            raise ValueError(
                f"{self.name}: {MODEL_FILE} failed: {one_line(error)}. Export the model again"
            ) from error

    def _encode_questions(self, examples):
        if self._max_length < question_windows.MIN_LENGTH:
            raise ValueError(
                f"{self.name} reads {self._max_length} tokens; question answering needs at least "
                f"{question_windows.MIN_LENGTH}"
            )
        return question_windows.EncodedQuestions(examples, self._tokenizer, self._max_length)


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
    file = path / tokenizer_json.FILE
    exported = tokenizer_json.read_exported(path)
    length = exported.max_length
    if type(length) is not int or not 3 <= length <= _MAX_LENGTH:
        raise ValueError(
            f"{file} cannot be read: the max_length of its truncation must be 3 to {_MAX_LENGTH}; "
            f"received {length!r:.80}. Export the model again"
        )
    vocabulary = _read_lines(path / VOCABULARY_FILE)
    check_tokens(path / VOCABULARY_FILE, vocabulary)
    if any(vocabulary[id_ : id_ + 1] != [token] for token, id_ in exported.ids.items()):
        raise ValueError(
            f"{path}: tokenizer.json and vocab.txt have different tokens. Export the model again"
        )
    return PythonTokenizer(vocabulary, **exported.options), length


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
