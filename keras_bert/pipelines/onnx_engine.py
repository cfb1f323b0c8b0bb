"""Encode with Hugging Face's tokenizers and compute with ONNX Runtime, for pipelines.

Keras and TensorFlow are imported only to score labeled data.
"""

import functools
import json
import pathlib
import unicodedata

import numpy as np

from keras_bert.checkpoints import tokenizer_json
from keras_bert.data.padding import pad
from keras_bert.exporting import onnx_folder
from keras_bert.exporting.onnx_folder import LABELS_FILE, MODEL_FILE, TASKS
from keras_bert.runtime import reading
from keras_bert.runtime.escaping import check_name
from keras_bert.runtime.reading import one_line
from keras_bert.tasks import masked_lm, question_windows, tag_windows
from keras_bert.tasks.long_texts import mean_per_text, window_step
from keras_bert.untrusted import links, onnx_graph_check, panics

_SPECIAL_TOKENS = ("[CLS]", "[SEP]", "[PAD]")
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

    Raises:
        ValueError: If a file is missing or broken, or the model has no head.
        ImportError: If onnxruntime or tokenizers is not installed.
    """

    def __init__(self, path):
        path = pathlib.Path(path).expanduser()
        self.name = str(path)
        links.check(path)
        missing = [name for name in (MODEL_FILE, "tokenizer.json") if not (path / name).is_file()]
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
        self._tokenizer, self._truncating_tokenizer = _read_tokenizers(path)
        self._max_length = self._truncating_tokenizer.truncation["max_length"]
        self._special_ids = [self._tokenizer.token_to_id(token) for token in _SPECIAL_TOKENS]
        if None in self._special_ids:
            raise ValueError(
                f"{path / 'tokenizer.json'} must have the tokens {', '.join(_SPECIAL_TOKENS)}. "
                "Export the model again"
            )
        if (path / "vocab.txt").is_file() and not self._has_vocabulary_of(path / "vocab.txt"):
            raise ValueError(
                f"{path}: tokenizer.json and vocab.txt have different tokens. Export the model "
                "again"
            )
        self._outputs = [output.name for output in self._session.get_outputs()]
        size = self._session.get_outputs()[0].shape[-1]
        self.width = size if self.task == "embedder" else None
        if self.task in ("classifier", "next_sentence", "tagger"):
            self.output.labels = _read_labels(path / LABELS_FILE, size)

    @property
    def model(self):
        """Raise an error: an ONNX folder has no Keras model."""
        raise ValueError(
            f"{self.name} is an ONNX folder, which has no Keras model. Give the model that was "
            "exported to keras_bert.pipeline"
        )

    def check_labeled(self, examples):
        """Raise an error if data has no labels, or labels that the model lacks. Imports Keras."""
        from keras_bert.tasks import inference

        inference.check_targets(self.output, examples)

    def score(self, examples, answers):
        """Return the metrics of answers, with those of each label. This imports Keras."""
        from keras_bert.tasks import inference

        return inference.score(self.output, examples, answers, report=True)

    def _has_vocabulary_of(self, file):
        lines = _read_lines(file)
        tokens = self._tokenizer.get_vocab()
        return all(index < len(lines) and lines[index] == token for token, index in tokens.items())

    def encode(self, examples, long_texts=None):
        """Encode the data of the task."""
        if not len(examples):
            raise ValueError(f"{examples.source} contains no examples")
        if self.task == "embedder":  # only to score: a pipeline encodes texts with `encode_texts`
            from keras_bert.tasks import embedding

            rows = embedding.rows_with_prompts(self.output, examples)
            return self.encode_texts([text for row in rows for text in row])
        if self.task == "tagger":
            words = [word for sentence in examples.words for word in sentence]
            ids = self._ids(words)
            return tag_windows.encode(
                _joined(ids), _sizes(ids), examples.words, self._special_ids, self._max_length
            )
        if self.task == "span_selector":
            return self._encode_questions(examples)
        if self.task == "multiple_choice":
            rows = zip(examples.texts, examples.choices, strict=True)
            pairs = [(text, choice) for text, choices in rows for choice in choices]
            return self._encode_pairs(pairs, len(examples.choices[0]))
        if self.output.pairs:
            return self._encode_pairs(
                list(zip(examples.texts, examples.text_pairs, strict=True)), None
            )
        return self.encode_texts(examples.texts, long_texts or self.output.long_texts)

    def encode_texts(self, texts, long_texts="truncate"):
        """Encode single texts, truncated, or in windows if `long_texts` is "window"."""
        first, last, pad_id = self._special_ids
        size = self._max_length - 2
        step = window_step(size)
        sequences, text_of, truncated = [], [], 0
        for number, ids in enumerate(self._ids(texts)):
            starts = [0]
            if len(ids) > size and long_texts == "window":
                starts = range(0, len(ids) - size + step, step)
            elif len(ids) > size:
                truncated += 1
            sequences += [[first, *ids[start : start + size], last] for start in starts]
            text_of += [number] * len(starts)
        types = [[0] * len(ids) for ids in sequences]
        encoded = _Sequences(sequences, types, pad_id, self._max_length, truncated)
        encoded.text_of = np.array(text_of, int)
        return encoded

    def encode_masks(self, texts):
        """Encode texts with [MASK]."""
        mask_id = self._tokenizer.token_to_id(masked_lm.MASK)
        if mask_id is None:
            raise ValueError(f"{self.name} has no token {masked_lm.MASK}, which this task needs")
        special_ids = (*self._special_ids, mask_id)
        return masked_lm.EncodedMasks(texts, self._ids, special_ids, self._max_length)

    def split_words(self, texts):
        """Split texts into words: a list of strings per text, and their spans in characters."""
        spans = [self._characters(text) for text in texts] if self.output.characters else []
        for text in [] if self.output.characters else texts:
            encoding, offsets = self._encode_with_offsets(text)
            ends: dict[int, tuple[int, int]] = {}  # by the number of the word
            for word, (start, end) in zip(encoding.word_ids, offsets, strict=True):
                ends[word] = (ends.get(word, (start, end))[0], end)
            spans.append(list(ends.values()))
        words = [
            [text[start:end] for start, end in row] for text, row in zip(texts, spans, strict=True)
        ]
        return words, spans

    def answers(self, examples, encoded, *, batch_size, on_batch=None, **options):
        """Return one answer per example, as the `decode` of the task does."""
        outputs = self.outputs(encoded, batch_size=batch_size, on_batch=on_batch)
        if self.task == "tagger":
            return tag_windows.decode(self.output.labels, examples.words, encoded, outputs)
        if self.task == "span_selector":
            return question_windows.decode(
                examples, encoded, outputs, self.output.no_answer, **options
            )
        if self.task == "multiple_choice":
            return outputs
        if self.task == "embedder":
            # The rows of texts have the same number of texts.
            rows = getattr(examples, "texts", outputs)
            return np.reshape(outputs, (len(rows), -1, self.width))
        return mean_per_text(encoded.text_of, np.array(outputs))

    def candidates(self, encoded, top_k, **options):
        """Return the most probable tokens for each [MASK], see `tasks.masked_lm.decode`."""
        return masked_lm.decode(self._vocabulary, encoded, self.outputs(encoded, **options), top_k)

    @functools.cached_property
    def _vocabulary(self):
        # Not from the tokenizer, which has only one of several ids of a repeated token.
        return _read_lines(pathlib.Path(self.name) / "vocab.txt")

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

    def _ids(self, texts):
        """Return the ids of each text without special tokens, a list of lists."""
        texts = [_without_surrogates(text)[0] for text in texts]
        with panics.as_value_error(self.name):
            encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _encode_with_offsets(self, text):
        """Return an encoding without special tokens, and its spans in characters of the text."""
        valid, indices = _without_surrogates(text)
        with panics.as_value_error(self.name):
            encoding = self._tokenizer.encode(valid, add_special_tokens=False)
        spans = _include_accents(valid, encoding.offsets)
        if indices is None:
            return encoding, spans
        return encoding, [(indices[start], indices[end - 1] + 1) for start, end in spans]

    def _characters(self, text):
        """Return the spans of the characters of a text that have a token."""
        ids = self._ids(list(text))
        return [(index, index + 1) for index, found in enumerate(ids) if found]

    def _encode_questions(self, examples):
        if self._max_length < question_windows.MIN_LENGTH:
            raise ValueError(
                f"{self.name} reads {self._max_length} tokens; question answering needs at least "
                f"{question_windows.MIN_LENGTH}"
            )
        questions = self._ids(examples.questions)
        contexts, starts, ends = [], [], []
        for text in question_windows.distinct_contexts(examples):
            encoding, offsets = self._encode_with_offsets(text)
            contexts.append(encoding.ids)
            starts.append([start for start, _ in offsets])
            ends.append([end for _, end in offsets])
        splits_of = question_windows.splits_of
        return question_windows.EncodedQuestions(
            examples,
            (_joined(questions), splits_of(_sizes(questions))),
            (_joined(contexts), _joined(starts), _joined(ends), splits_of(_sizes(contexts))),
            self._special_ids,
            self._max_length,
        )

    def _encode_pairs(self, pairs, count):
        """Encode pairs of texts. With `count`, each `count` consecutive pairs form a row."""
        pairs = [tuple(_without_surrogates(text)[0] for text in pair) for pair in pairs]
        with panics.as_value_error(self.name):
            encodings = self._truncating_tokenizer.encode_batch(pairs)
        ids, types = ([getattr(each, name) for each in encodings] for name in ("ids", "type_ids"))
        truncated = sum(bool(encoding.overflowing) for encoding in encodings)
        return _Sequences(ids, types, self._special_ids[-1], self._max_length, truncated, count)


class _Sequences:
    """Sequences of ids, see `data.batching`. With `count`, each `count` of them form a row."""

    text_of: np.ndarray | None = None  # text of each sequence, int (n,), if it can have several

    def __init__(self, ids, types, pad_id, max_length, truncated, count=None):
        self._ids, self._types, self._pad_id, self._count = ids, types, pad_id, count
        self.max_length, self.truncated = max_length, truncated
        self.lengths = _sizes(ids)
        if count is not None:
            self.lengths = self.lengths.reshape(-1, count).max(axis=1)

    def __len__(self):
        return len(self.lengths)

    def batch(self, rows, length):
        """Return the inputs, int32 (batch, length) or (batch, count, length), and `None` twice."""
        count, shape = self._count or 1, (len(rows), length)
        if self._count is not None:
            shape = (len(rows), count, length)
        chosen = [row * count + number for row in rows for number in range(count)]
        ids = [self._ids[index] for index in chosen]
        values = (
            pad(ids, length, self._pad_id),
            (np.arange(length) < _sizes(ids)[:, None]).astype(np.int32),
            pad([self._types[index] for index in chosen], length),
        )
        inputs = {name: value.reshape(shape) for name, value in zip(_INPUTS, values, strict=True)}
        return inputs, None, None


def _joined(rows):
    return np.array([value for row in rows for value in row], np.int32)


def _sizes(rows):
    return np.array([len(row) for row in rows], int)


def _without_surrogates(text):
    """Return a text without lone surrogates, which UTF-8 cannot encode, and original indices.

    These are the index of each character in the given text, a list, or `None` without surrogates.
    """
    valid = text.encode("utf-8", "ignore").decode("utf-8")
    if len(valid) == len(text):
        return text, None
    return valid, [index for index, char in enumerate(text) if not "\ud800" <= char <= "\udfff"]


def _include_accents(text, spans):
    """Extend the span of each token over the accents after it, which the tokenizer drops."""
    limits = [*(start for start, _ in spans[1:]), len(text)]
    extended = []
    # strict=False: a text without tokens has one limit and no span.
    for (start, end), limit in zip(spans, limits, strict=False):
        while end < limit and unicodedata.category(text[end]) == "Mn":
            end += 1
        extended.append((start, end))
    return extended


def _check_installed(path):
    """Raise an ImportError if ONNX Runtime or tokenizers is not installed."""
    try:
        import onnxruntime  # noqa: F401
        import tokenizers  # noqa: F401
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


def _read_tokenizers(path):
    """Return the tokenizer of a folder without truncation, and with it."""
    import tokenizers

    file = path / tokenizer_json.FILE
    content = tokenizer_json.read_exported(path)
    truncation = content.pop("truncation")
    length = truncation.get("max_length") if isinstance(truncation, dict) else None
    if type(length) is not int or not 3 <= length <= _MAX_LENGTH:
        raise ValueError(
            f"{file} cannot be read: the max_length of its truncation must be 3 to {_MAX_LENGTH}; "
            f"received {length!r:.80}. Export the model again"
        )
    with panics.as_value_error(file):
        plain = tokenizers.Tokenizer.from_str(json.dumps(content))
        truncating = tokenizers.Tokenizer.from_str(json.dumps(content))
    truncating.enable_truncation(length)
    return plain, truncating


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
