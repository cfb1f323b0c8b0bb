"""From strings to the encoder's inputs, as one Keras layer.

TensorFlow is imported on first use only, so that the layer can be registered with Keras (and
an encoder loaded) where TensorFlow is not wanted.
"""

import operator
import pathlib

import keras

from keras_bert.checkpoints import folder

VOCABULARY_FILE = "vocab.txt"


def as_length(value, name):
    """Return a length of sequences as an int.

    Args:
        value: a whole number of at least 3; NumPy's are taken too.
        name: of the argument, for the error.

    Returns:
        The length.

    Raises:
        ValueError: another value.

    Example:

    >>> as_length(100.7, "sequence_length")
    Traceback (most recent call last):
    ValueError: sequence_length must be a whole number of at least 3; received 100.7
    """
    try:
        length = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        length = 0
    if length < 3:
        raise ValueError(f"{name} must be a whole number of at least 3; received {value!r:.80}")
    return length


@keras.saving.register_keras_serializable(package="keras_bert")
class Preprocessor(keras.layers.Layer):
    """Text to `input_word_ids`, `input_mask` and `input_type_ids`.

    [CLS] text [SEP], or [CLS] text [SEP] pair [SEP]; what is too long is cut at the end, of a
    pair the longer side first; what is short is padded with [PAD]. Works eagerly, in
    `tf.data` and on `keras.Input(shape=(), dtype="string")` (the last on the TensorFlow
    backend). The vocabulary is saved with the layer as an asset.

    Source: `convert_single_example` and `_truncate_seq_pair` in google-research/bert
    `run_classifier.py`; the tokenizer is `keras_bert.text.tokenizer.WordPieceTokenizer`.

    Args:
        vocabulary: list of pieces, or the path of a file with one piece a line, around which
            white space is dropped. It may be missing until a saved layer has read its asset.
        sequence_length: positions of each output, at least 3; `None` pads to the longest text
            of the batch.
        max_sequence_length: with `sequence_length=None`, where texts are cut.
        lowercase: lower-case as `str.lower` does.
        strip_accents: drop combining marks after NFD. `None`: as `lowercase`.
        split_cjk: make each CJK ideograph a word.

    Raises:
        ValueError: a length below 3; [UNK], [CLS], [SEP] or [PAD] missing in the vocabulary.

    Example:

    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "two", "words", "more"]
    >>> preprocessor = Preprocessor(pieces, sequence_length=8)
    >>> out = preprocessor(["two words"], ["more"])
    >>> [keras.ops.convert_to_numpy(v)[0].tolist() for v in out.values()]
    [[2, 4, 5, 3, 6, 3, 0, 0], [1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0]]
    """

    def __init__(
        self,
        vocabulary=None,
        sequence_length=128,
        max_sequence_length=512,
        lowercase=True,
        strip_accents=None,
        split_cjk=True,
        name="preprocessor",
        **kwargs,
    ):
        super().__init__(name=name, dtype="int32", **{**kwargs, "trainable": False})
        self.sequence_length = sequence_length
        self.max_sequence_length = max_sequence_length
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.split_cjk = split_cjk
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self._keep_vocabulary(None)
        self._tokenizer = None
        self.built = True
        if vocabulary is not None:
            self._set_vocabulary(vocabulary)

    @property
    def sequence_length(self):
        """Positions of each output; `None` pads to the longest text of the batch."""
        return self._sequence_length

    @sequence_length.setter
    def sequence_length(self, value):
        self._sequence_length = None if value is None else as_length(value, "sequence_length")

    @property
    def max_sequence_length(self):
        """Where texts are cut if `sequence_length` is `None`."""
        return self._max_sequence_length

    @max_sequence_length.setter
    def max_sequence_length(self, value):
        self._max_sequence_length = as_length(value, "max_sequence_length")

    def _set_vocabulary(self, vocabulary):
        if isinstance(vocabulary, (str, pathlib.Path)):
            vocabulary = folder.read_vocabulary(pathlib.Path(vocabulary))
        vocabulary = [str(piece) for piece in vocabulary]
        pieces = set(vocabulary)
        for special in ("[UNK]", "[CLS]", "[SEP]", "[PAD]"):
            if special not in pieces:
                raise ValueError(
                    f"the vocabulary ({len(vocabulary)} pieces) has no {special} piece"
                )
        broken = next((piece for piece in vocabulary if "\n" in piece or "\r" in piece), None)
        if broken is not None:
            raise ValueError(f"a piece of a vocabulary holds no line end; received {broken!r}")
        self._keep_vocabulary(tuple(vocabulary))
        self._tokenizer = None

    def _keep_vocabulary(self, vocabulary):
        # Past Keras, which would look into each of 30,000 strings for something to track.
        object.__setattr__(self, "_vocabulary", vocabulary)

    @property
    def vocabulary(self):
        """The pieces, a tuple; the index of a piece is its id."""
        if self._vocabulary is None:
            raise ValueError(
                "this preprocessor has no vocabulary: a config alone holds none; give "
                "`vocabulary`, or load the saved model it belongs to"
            )
        return self._vocabulary

    @property
    def tokenizer(self):
        """The `WordPieceTokenizer` behind this layer, made on first use."""
        if self._tokenizer is None:
            from keras_bert.text.tokenizer import WordPieceTokenizer

            self._tokenizer = WordPieceTokenizer(
                self.vocabulary,
                lowercase=self.lowercase,
                strip_accents=self.strip_accents,
                split_cjk=self.split_cjk,
            )
        return self._tokenizer

    def __dir__(self):
        # Keras reads each attribute that it sees when it saves or loads a layer; to read this
        # one makes the tokenizer, for which TensorFlow must be imported.
        hidden = {"tokenizer"} if self._tokenizer is None else set()
        return [name for name in super().__dir__() if name not in hidden]

    def call(self, text, text_pair=None):
        """Prepares a batch.

        Args:
            text: strings, shape (batch,), or a single string.
            text_pair: the second texts, same shape; `None` for single texts.

        Returns:
            A dict of int32 tensors `input_word_ids`, `input_mask`, `input_type_ids`, each
            (batch, seq); for a single string (seq,).

        Raises:
            ValueError: not strings, more than one dimension, or not as many pairs as texts.
        """
        import tensorflow as tf

        texts = [text] if text_pair is None else [text, text_pair]
        texts = [_as_text_tensor(item) for item in texts]
        if len({item.shape.rank for item in texts}) > 1 or not texts[0].shape.is_compatible_with(
            texts[-1].shape
        ):
            raise ValueError(
                "text and text_pair must have the same shape; received "
                f"{tuple(texts[0].shape)} and {tuple(texts[-1].shape)}"
            )
        single = texts[0].shape.rank == 0
        if single:
            texts = [item[None] for item in texts]
        packed = self.pack(
            *(self.tokenizer.tokenize(item) for item in texts),
            sequence_length=self.sequence_length,
            max_sequence_length=self.max_sequence_length,
        )
        if single:
            packed = {key: value[0] for key, value in packed.items()}
        if keras.backend.backend() != "tensorflow" and tf.executing_eagerly():
            packed = {
                key: keras.ops.convert_to_tensor(value.numpy()) for key, value in packed.items()
            }
        return packed

    def pack(self, ids, pair_ids=None, *, sequence_length, max_sequence_length):
        """Truncates, adds [CLS] and [SEP], and pads.

        Args:
            ids: `tf.RaggedTensor` int32 (batch, pieces).
            pair_ids: the same for the second segment, or `None`.
            sequence_length: positions of the result, a number or a scalar tensor; `None` pads to
                the longest of the batch.
            max_sequence_length: with `sequence_length=None`, where sequences are cut.

        Returns:
            A dict of `tf.Tensor` int32 (batch, seq), as from `call`.
        """
        import tensorflow as tf

        limit = max_sequence_length if sequence_length is None else sequence_length
        if not isinstance(limit, int):
            limit = tf.cast(limit, tf.int64)
        token_id = self.tokenizer.token_id
        rows = ids.nrows()
        first = tf.fill([rows, 1], token_id("[CLS]"))
        end = tf.fill([rows, 1], token_id("[SEP]"))
        if pair_ids is None:
            if isinstance(limit, int):
                ids = ids[:, : limit - 2]
            else:
                ids = _take(ids, tf.minimum(ids.row_lengths(), limit - 2))
            parts = [first, ids, end]
            segment_sizes = None
        else:
            # Longest first, a piece at a time and the second on a tie, comes to this: a side
            # within its half stays whole, and the other has what is left.
            budget = limit - 3
            length, pair_length = ids.row_lengths(), pair_ids.row_lengths()
            keep = tf.maximum(budget - pair_length, budget - budget // 2)
            keep_pair = tf.maximum(budget - length, budget // 2)
            ids = _take(ids, tf.minimum(length, keep))
            pair_ids = _take(pair_ids, tf.minimum(pair_length, keep_pair))
            parts = [first, ids, end, pair_ids, end]
            segment_sizes = tf.cast(ids.row_lengths() + 2, tf.int32)
        sequences = tf.concat(parts, axis=1)
        lengths = tf.cast(sequences.row_lengths(), tf.int32)
        # tf.maximum: a batch of no texts has no longest one.
        seq = sequence_length
        if sequence_length is None:
            seq = tf.maximum(tf.reduce_max(lengths), 2)
        static = seq if isinstance(seq, int) else None
        word_ids = sequences.to_tensor(default_value=token_id("[PAD]"), shape=[None, static])
        if sequence_length is None:
            word_ids = tf.reshape(word_ids, [tf.cast(rows, tf.int32), seq])
        elif static is None:
            seq = tf.cast(seq, tf.int32)
            more = tf.maximum(seq - tf.shape(word_ids)[1], 0)
            word_ids = tf.pad(word_ids, [[0, 0], [0, more]], constant_values=token_id("[PAD]"))
        position = tf.range(seq)[None]
        mask = position < lengths[:, None]
        if segment_sizes is None:
            type_ids = tf.zeros_like(word_ids)
        else:
            type_ids = tf.cast(mask & (position >= segment_sizes[:, None]), tf.int32)
        return {
            "input_word_ids": word_ids,
            "input_mask": tf.cast(mask, tf.int32),
            "input_type_ids": type_ids,
        }

    def compute_output_spec(self, text, text_pair=None):
        # From here on it is a part of a model's graph, and XLA knows no strings. Kept beside an
        # encoder only, it must not keep Keras from compiling that.
        self.supports_jit = False
        shape = (*text.shape, self.sequence_length)
        return {
            key: keras.KerasTensor(shape, dtype="int32", name=key)
            for key in ("input_word_ids", "input_mask", "input_type_ids")
        }

    def save_assets(self, dir_path):
        text = "".join(f"{piece}\n" for piece in self.vocabulary)
        pathlib.Path(dir_path, VOCABULARY_FILE).write_text(text, encoding="utf-8", newline="\n")

    def load_assets(self, dir_path):
        text = folder.read_vocabulary_text(pathlib.Path(dir_path, VOCABULARY_FILE))
        # Not splitlines: a piece may hold U+2028, which ends no line here.
        self._set_vocabulary(text.removesuffix("\n").split("\n"))

    def get_config(self):
        """Returns the options; the vocabulary is an asset, not a part of this."""
        return {
            **super().get_config(),
            "dtype": "int32",
            "sequence_length": self.sequence_length,
            "max_sequence_length": self.max_sequence_length,
            "lowercase": self.lowercase,
            "strip_accents": self.strip_accents,
            "split_cjk": self.split_cjk,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config.pop("dtype", None)
        if config.get("vocabulary") is not None:
            raise ValueError(
                "the config of a Preprocessor must not hold a vocabulary, which is an asset of the "
                f"saved model; received {config['vocabulary']!r:.80}"
            )
        return cls(**config)


def _take(ragged, counts):
    """The first `counts[i]` values of each row `i`."""
    import tensorflow as tf

    position = tf.ragged.range(ragged.row_lengths())
    return tf.ragged.boolean_mask(ragged, position < counts[:, None])


def _as_text_tensor(texts):
    """A string tensor of rank 0 or 1, or an error in words a user understands."""
    import numpy as np
    import tensorflow as tf

    if not tf.is_tensor(texts):
        array = np.asarray(texts, dtype=object)
        if array.ndim > 1:
            raise ValueError(f"texts must have shape (batch,); received {array.shape}")
        wrong = [item for item in array.ravel() if not isinstance(item, (str, bytes))]
        if wrong:
            raise ValueError(f"texts must be strings; received {wrong[0]!r:.80}")
        texts = tf.constant(
            [
                item if isinstance(item, bytes) else item.encode("utf-8", "ignore")
                for item in array.ravel()
            ],
            tf.string,
            shape=array.shape,
        )
    if texts.dtype != tf.string:
        raise ValueError(f"texts must be strings; received a tensor of {texts.dtype.name}")
    if texts.shape.rank not in (0, 1):
        raise ValueError(f"texts must have shape (batch,); received {tuple(texts.shape)}")
    return texts
