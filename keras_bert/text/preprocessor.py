"""A Keras layer from strings to the inputs of the encoder.

Python strings are converted without TensorFlow, string tensors by a graph of TensorFlow.
"""

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bert import keras_private
from keras_bert.checkpoints import folder
from keras_bert.checkpoints.added_tokens import as_added_tokens
from keras_bert.checkpoints.tokenizer_config import VOCABULARY_FILE
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.packages import import_tensorflow
from keras_bert.text import token_ids
from keras_bert.text.base_tokenizer import check_tokens
from keras_bert.text.python_tokenizer import PythonTokenizer
from keras_bert.token_model import refuse_hdf5

MIN_LENGTH = 3  # [CLS] and two [SEP]
_TOKENIZERS = ("tokenizer", "python_tokenizer")
_TOKENIZER_OPTIONS = ("lowercase", "strip_accents", "split_cjk", "added_tokens")


@keras.saving.register_keras_serializable(package="keras_bert")
class Preprocessor(keras.layers.Layer):
    """Converts text to `input_word_ids`, `input_mask` and `input_type_ids`.

    The tokens are `[CLS] text [SEP]` or `[CLS] text [SEP] pair [SEP]`. Long texts are truncated
    at the end; of a pair, the longer text is truncated first. Short texts are padded with [PAD].

    The layer works eagerly, in `tf.data` and, on the TensorFlow backend, on
    `keras.Input(shape=(), dtype="string")`. The vocabulary is saved as an asset.

    Source: `convert_single_example` and `_truncate_seq_pair` in google-research/bert
    `run_classifier.py`; `text.python_tokenizer` tokenizes Python strings,
    and `text.tokenizer` string tensors, with the same ids.

    Args:
        vocabulary: list of tokens, or the path of a file with one token per line, stripped of
            white space. `None` only if a saved layer reads its asset later.
        sequence_length: length of each output, at least 3. `None` pads to the longest text of
            the batch.
        max_sequence_length: maximum length if `sequence_length` is `None`.
        lowercase: lower-case as `str.lower` does.
        strip_accents: drop combining marks after NFD. Defaults to `lowercase`.
        split_cjk: make each CJK ideograph a word.
        added_tokens: tokens of the vocabulary that are matched whole in texts, before a text is
            split into words, as `tokenizers.AddedToken` of Hugging Face: strings, or dicts of
            `content` and any of `lstrip`, `rstrip`, `single_word` and `normalized`.

    Raises:
        ValueError: if a length is below 3, the vocabulary lacks an added token, [UNK], [CLS],
            [SEP] or [PAD], or it is not WordPiece.

    Example:

    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "two", "words", "more"]
    >>> preprocessor = Preprocessor(tokens, sequence_length=8)
    >>> out = preprocessor(["two words"], ["more"])
    >>> [keras.ops.convert_to_numpy(v)[0].tolist() for v in out.values()]
    [[2, 4, 5, 3, 6, 3, 0, 0], [1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0]]
    """

    _vocabulary: tuple[str, ...] | None = None

    def __init__(
        self,
        vocabulary: Sequence[str] | str | pathlib.Path | None = None,
        sequence_length: int | None = 128,
        max_sequence_length: int = 512,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_cjk: bool = True,
        added_tokens: Sequence[Any] = (),
        name: str = "preprocessor",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, dtype="int32", **{**kwargs, "trainable": False})
        self.sequence_length = sequence_length
        self.max_sequence_length = max_sequence_length
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.split_cjk = split_cjk
        self.added_tokens = as_added_tokens(added_tokens)
        keras_private.accept_strings(self)
        self.built = True
        if vocabulary is not None:
            self._set_vocabulary(vocabulary)

    @property
    def sequence_length(self):
        """Length of each output; `None` pads to the longest text of the batch."""
        return self._sequence_length

    @sequence_length.setter
    def sequence_length(self, value):
        if value is not None:
            value = as_integer("sequence_length", value, MIN_LENGTH)
        self._sequence_length = value

    @property
    def max_sequence_length(self):
        """Maximum length if `sequence_length` is `None`."""
        return self._max_sequence_length

    @max_sequence_length.setter
    def max_sequence_length(self, value):
        self._max_sequence_length = as_integer("max_sequence_length", value, MIN_LENGTH)

    def tokenizer_options(self) -> dict[str, Any]:
        """Return the options that change the ids, {argument of `Preprocessor`: value}."""
        return {name: getattr(self, name) for name in _TOKENIZER_OPTIONS}

    def _set_vocabulary(self, vocabulary):
        if isinstance(vocabulary, (str, pathlib.Path)):
            vocabulary = folder.read_vocabulary(pathlib.Path(vocabulary))
        vocabulary = tuple(str(token) for token in vocabulary)
        folder.check_tokens("The vocabulary", vocabulary)
        check_tokens(vocabulary, ("[UNK]", "[CLS]", "[SEP]", "[PAD]"), self.added_tokens)
        folder.refuse_sentencepiece("The vocabulary", vocabulary)
        broken = [token for token in vocabulary if "\n" in token or "\r" in token]
        if broken:
            raise ValueError(f"A token must not contain a line end; received {shown(broken[0])}")
        self._store_vocabulary(vocabulary)

    def _store_vocabulary(self, vocabulary):
        # Keras' __setattr__ would search each of 30,000 strings for variables to track.
        object.__setattr__(self, "_vocabulary", vocabulary)

    @property
    def has_vocabulary(self) -> bool:
        """False for a layer that was built from its config and has not read its asset yet."""
        return self._vocabulary is not None

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The tokens, a tuple; the index of a token is its id."""
        if self._vocabulary is None:
            raise ValueError("This preprocessor has no vocabulary; load the saved model.")
        return self._vocabulary

    @functools.cached_property
    def tokenizer(self):
        """The `WordPieceTokenizer` of this layer, created on first use."""
        import_tensorflow("tokenizing tensors")
        from keras_bert.text.tokenizer import WordPieceTokenizer

        return WordPieceTokenizer(self.vocabulary, **self.tokenizer_options())

    @functools.cached_property
    def python_tokenizer(self) -> PythonTokenizer:
        """The `PythonTokenizer` of this layer, which needs no TensorFlow, created on first use."""
        return PythonTokenizer(self.vocabulary, **self.tokenizer_options())

    def with_options(self, **options: Any) -> "Preprocessor":
        """Return a copy with the same vocabulary and some options changed.

        Args:
            **options: Arguments of `Preprocessor`, without `vocabulary`.

        Returns:
            A new `Preprocessor`.

        Example:

        >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
        >>> preprocessor.with_options(sequence_length=64).sequence_length
        64
        """
        copy = type(self).from_config({**self.get_config(), **options})
        copy._store_vocabulary(self.vocabulary)
        # The tables of a tokenizer take time to build and do not change.
        if copy.tokenizer_options() == self.tokenizer_options():
            for name in _TOKENIZERS:
                if name in self.__dict__:
                    copy.__dict__[name] = self.__dict__[name]
        return copy

    def __dir__(self):
        # Keras reads all listed attributes when it saves or loads a layer. Reading `tokenizer`
        # creates it, which imports TensorFlow.
        return [name for name in super().__dir__() if name not in _TOKENIZERS]

    def call(self, text, text_pair=None):
        """Convert a batch of texts or pairs of texts.

        Args:
            text: strings (batch,), or a single string.
            text_pair: the second text of each pair, same shape; `None` for single texts.

        Returns:
            A dict of int32 tensors `input_word_ids`, `input_mask`, `input_type_ids`, each
            (batch, seq); for a single string (seq,).

        Raises:
            ValueError: if the inputs are not strings, or have more than one dimension.
        """
        columns = [text] if text_pair is None else [text, text_pair]
        columns = [column if _is_tensor(column) else _as_strings(column) for column in columns]
        _check_texts(columns)
        is_single = len(columns[0].shape) == 0
        if is_single:
            columns = [column[None] for column in columns]
        has_tensors = any(map(_is_tensor, columns))
        packed = self._pack_tensors(columns) if has_tensors else self._pack_strings(columns)
        return {key: value[0] for key, value in packed.items()} if is_single else packed

    def _pack_strings(self, columns):
        """Convert one or two batches of texts, arrays of strings."""
        ids = [self.python_tokenizer.tokenize(column) for column in columns]
        sequences = list(zip(*ids, strict=True))
        length = self.sequence_length
        if length is None:
            longest = max((sum(map(len, sequence)) for sequence in sequences), default=0)
            length = min(longest + 1 + len(columns), self.max_sequence_length)
        packed = token_ids.pack(sequences, length, self.python_tokenizer.special_ids)
        return {key: keras.ops.convert_to_tensor(value) for key, value in packed.items()}

    def _pack_tensors(self, columns):
        """Convert one or two batches of texts, at least one of which is a `tf.Tensor`."""
        import tensorflow as tf

        columns = [tf.convert_to_tensor(column, tf.string) for column in columns]
        packed = self.pack(
            *(self.tokenizer.tokenize(column) for column in columns),
            sequence_length=self.sequence_length,
            max_sequence_length=self.max_sequence_length,
        )
        if keras.backend.backend() != "tensorflow" and tf.executing_eagerly():
            return {key: keras.ops.convert_to_tensor(x.numpy()) for key, x in packed.items()}
        return packed

    def pack(
        self, ids: Any, pair_ids: Any = None, *, sequence_length: Any, max_sequence_length: int
    ) -> dict[str, Any]:
        """Truncate token ids, add [CLS] and [SEP], and pad.

        Args:
            ids: `tf.RaggedTensor` int32 (batch, tokens).
            pair_ids: ids of the second texts, or `None`.
            sequence_length: length of the result, an int or a scalar tensor; `None` pads to the
                longest of the batch.
            max_sequence_length: maximum length if `sequence_length` is `None`.

        Returns:
            A dict of `tf.Tensor` int32 (batch, seq), as from `call`.
        """
        import tensorflow as tf

        segments = [ids] if pair_ids is None else [ids, pair_ids]
        limit = max_sequence_length if sequence_length is None else sequence_length
        limit = limit if isinstance(limit, int) else tf.cast(limit, tf.int64)
        row_lengths = [segment.row_lengths() for segment in segments]
        counts = token_ids.kept_lengths(row_lengths, limit, tf.minimum, tf.maximum)
        lengths = tf.add_n(counts) + 1 + len(segments)  # (batch,)
        seq = sequence_length
        if sequence_length is None:
            seq = tf.maximum(tf.reduce_max(lengths), 2)  # 2: for an empty batch
        position = tf.range(tf.cast(seq, tf.int64))[None]  # (1, seq)
        # index[b, p]: the place in `values` of the token at position p of text b.
        cls, sep, pad = range(3)
        values = [self.tokenizer.special_ids]
        index = tf.where(position < 1, tf.constant(cls, tf.int64), pad)
        starts = [tf.ones_like(lengths)]
        offset = tf.constant(len(values[0]), tf.int64)
        for segment, count in zip(segments, counts, strict=True):
            start = starts[-1]
            end = start + count
            inside = (position >= start[:, None]) & (position < end[:, None])
            shift = offset + segment.row_starts() - start
            index = tf.where(inside, position + shift[:, None], index)
            index = tf.where(position == end[:, None], tf.constant(sep, tf.int64), index)
            values.append(segment.values)
            starts.append(end + 1)
            offset += tf.size(segment.values, tf.int64)
        word_ids = tf.gather(tf.concat(values, 0), index)  # (batch, seq)
        mask = position < lengths[:, None]
        type_ids = tf.zeros_like(word_ids)
        if pair_ids is not None:
            type_ids = tf.cast(mask & (position >= starts[1][:, None]), tf.int32)
        return {
            "input_word_ids": word_ids,
            "input_mask": tf.cast(mask, tf.int32),
            "input_type_ids": type_ids,
        }

    def compute_output_spec(self, text, text_pair=None):
        """Return the outputs for a string `keras.Input`; the errors are those of `call`."""
        # XLA does not support strings. Set this only once the layer is part of a model's graph:
        # a preprocessor that an encoder only refers to must not prevent its compilation.
        self.supports_jit = False
        if keras.backend.backend() != "tensorflow":
            raise ValueError(
                f"only TensorFlow has string tensors; this process runs {keras.backend.backend()}. "
                "Give `fit` the result of `Examples.to_dataset`, and ask with keras_bert.pipeline"
            )
        _check_texts([text] if text_pair is None else [text, text_pair])
        shape = (*text.shape, self.sequence_length)
        return {
            key: keras.KerasTensor(shape, dtype="int32", name=key)
            for key in ("input_word_ids", "input_mask", "input_type_ids")
        }

    def save_assets(self, dir_path):
        text = "".join(f"{token}\n" for token in self.vocabulary)
        pathlib.Path(dir_path, VOCABULARY_FILE).write_text(text, encoding="utf-8", newline="\n")

    def load_assets(self, dir_path):
        if dir_path is None:  # the file has no assets of this layer
            return
        text = folder.read_vocabulary_text(pathlib.Path(dir_path, VOCABULARY_FILE))
        # Unlike `splitlines`, this keeps tokens that contain U+2028.
        self._set_vocabulary(text.removesuffix("\n").split("\n"))

    def get_config(self) -> dict[str, Any]:
        """Return the options, without the vocabulary, which is an asset."""
        if keras_private.is_writing_hdf5():
            refuse_hdf5(self.name)
        options = self.tokenizer_options()
        added_tokens = options.pop("added_tokens")
        if added_tokens:
            options["added_tokens"] = [dataclasses.asdict(token) for token in added_tokens]
        return {
            **super().get_config(),
            "dtype": "int32",
            "sequence_length": self.sequence_length,
            "max_sequence_length": self.max_sequence_length,
            **options,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config.pop("dtype", None)
        if config.get("vocabulary") is not None:
            raise ValueError(
                "The config of a Preprocessor must not hold a vocabulary, an asset of the model; "
                f"remove it. Received {shown(config['vocabulary'])}"
            )
        return cls(**config)


def _is_tensor(texts):
    """Return True for a tensor of TensorFlow, which need not be imported for that."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and tensorflow.is_tensor(texts)


def _as_strings(texts):
    """Return `texts` as an array of strings."""
    array = np.array(texts, dtype=object)
    for index, text in enumerate(array.flat):
        if isinstance(text, bytes):
            array.flat[index] = text.decode("utf-8", "ignore")
        elif not isinstance(text, str):
            raise ValueError(f"texts must be strings; received {shown(text)}")
    return array


def _check_texts(columns):
    """Raise an error unless arrays, tensors or specs are strings (batch,)."""
    for column in columns:
        if column.dtype != object and column.dtype != "string":
            dtype = keras.backend.standardize_dtype(column.dtype)
            raise ValueError(f"texts must be strings; received a tensor of {dtype}")
        if len(column.shape) > 1:
            raise ValueError(
                f"texts must have shape (batch,); received {tuple(column.shape)}. Give "
                'keras.Input(shape=(), dtype="string"), or tensors without the last axis'
            )
    first, last = tuple(columns[0].shape), tuple(columns[-1].shape)
    known = {size for size in first + last if size is not None}
    if len(first) != len(last) or len(known) > 1:
        raise ValueError(f"text and text_pair need the same shape; received {first} and {last}")
