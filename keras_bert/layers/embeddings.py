"""The embeddings of words, positions and segments."""

import keras
from keras import ops

from keras_bert.layers.between_matmuls import between_matmuls, lookup, normalize
from keras_bert.layers.dropout import Dropout
from keras_bert.layers.initializers import initializer
from keras_bert.layers.parts import new_dense


@keras.saving.register_keras_serializable(package="keras_bert")
class Embeddings(keras.layers.Layer):
    """Sum of word, position and segment embeddings, then LayerNorm and dropout.

    With an `embedding_size`, a dense layer then changes the width, as in ELECTRA.

    Source: `embedding_postprocessor` in google-research/bert `modeling.py`; `embeddings_project`
    in huggingface/transformers, models/electra/modeling_electra.py.

    Args:
        vocab_size: Number of tokens in the vocabulary.
        hidden_size: Width of the output.
        max_position_embeddings: Number of position embeddings, the maximum sequence length.
        type_vocab_size: Number of segments.
        dropout: Dropout rate, at least 0 and below 1.
        layer_norm_eps: Epsilon of LayerNorm.
        initializer_range: Standard deviation of the initial weights.
        embedding_size: Width of the embeddings, or `None` for `hidden_size`.

    Example:

    >>> layer = Embeddings(vocab_size=10, hidden_size=4, max_position_embeddings=8)
    >>> ids = keras.ops.array([[1, 2, 3]])
    >>> tuple(layer(ids, keras.ops.zeros_like(ids)).shape)
    (1, 3, 4)
    """

    def __init__(
        self,
        vocab_size,
        hidden_size,
        max_position_embeddings,
        type_vocab_size=2,
        dropout=0.1,
        layer_norm_eps=1e-12,
        initializer_range=0.02,
        embedding_size=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.dropout_rate = dropout
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self.embedding_size = embedding_size
        self.projection = None

        def embedding(rows, name):
            return keras.layers.Embedding(
                rows,
                embedding_size or hidden_size,
                embeddings_initializer=initializer(initializer_range),
                dtype=self.dtype_policy,
                name=name,
            )

        self.word_embeddings = embedding(vocab_size, "word_embeddings")
        self.position_embeddings = embedding(max_position_embeddings, "position_embeddings")
        self.token_type_embeddings = embedding(type_vocab_size, "token_type_embeddings")
        self.layer_norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_eps, dtype=self.dtype_policy, name="layer_norm"
        )
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, input_word_ids_shape, input_type_ids_shape=None, position_ids_shape=None):
        self.word_embeddings.build(input_word_ids_shape)
        self.position_embeddings.build((None,))
        self.token_type_embeddings.build(input_word_ids_shape)
        shape = (*input_word_ids_shape, self.word_embeddings.output_dim)
        self.layer_norm.build(shape)
        if self.embedding_size is not None:
            self.projection = new_dense(
                self.hidden_size,
                shape,
                self.initializer_range,
                dtype=self.dtype_policy,
                name="projection",
            )
        self.built = True

    def call(
        self,
        input_word_ids,
        input_type_ids,
        position_ids=None,
        word_embeddings=None,
        training=None,
    ):
        """Embed a batch.

        Args:
            input_word_ids: Integers (batch, seq), from 0 to `vocab_size` - 1.
            input_type_ids: Integers (batch, seq), from 0 to `type_vocab_size` - 1.
            position_ids: Integers (batch, seq), from 0 to `max_position_embeddings` - 1.
                Defaults to 0, 1, 2, ...
            word_embeddings: Floats (batch, seq, embedding) in place of the embeddings of
                `input_word_ids`. Their width is `embedding_size`, or else `hidden_size`.
            training: If True, apply dropout.

        Returns:
            A float tensor (batch, seq, hidden).

        Raises:
            ValueError: If the sequence is longer than `max_position_embeddings`.
        """
        if position_ids is None:
            position_ids = self._default_positions(input_word_ids)  # (seq,)
        words = word_embeddings  # (batch, seq, embedding)
        if words is None:
            words = lookup(self.word_embeddings, input_word_ids)
        positions = lookup(self.position_embeddings, position_ids)
        types = lookup(self.token_type_embeddings, input_type_ids)
        x = self._add_and_norm(words, positions, types, self.dropout.next_seed(training))
        return x if self.projection is None else self.projection(x)

    @between_matmuls
    def _add_and_norm(self, words, positions, types, seed):
        x = normalize(self.layer_norm, words + positions + types)
        return self.dropout.drop(x, seed)

    def _default_positions(self, input_word_ids):
        length = input_word_ids.shape[1]
        if length is not None and length > self.max_position_embeddings:
            raise ValueError(
                f"input_word_ids has {length} positions, and the maximum is "
                f"max_position_embeddings={self.max_position_embeddings}. Shorten the sequences."
            )
        # Slice a full range: if the length is unknown until the graph runs, a sequence that is too
        # long then fails with a shape error. A lookup beyond the table gives zeros on a GPU.
        positions = ops.arange(self.max_position_embeddings, dtype="int32")
        return positions[: ops.shape(input_word_ids)[1]]

    def compute_output_shape(
        self, input_word_ids_shape, input_type_ids_shape=None, position_ids_shape=None
    ):
        return (*input_word_ids_shape, self.hidden_size)

    def get_config(self):
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "max_position_embeddings": self.max_position_embeddings,
            "type_vocab_size": self.type_vocab_size,
            "dropout": self.dropout_rate,
            "layer_norm_eps": self.layer_norm_eps,
            "initializer_range": self.initializer_range,
            "embedding_size": self.embedding_size,
        }
