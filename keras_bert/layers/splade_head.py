"""The head of sparse vectors: a weight for each token of the vocabulary."""

import keras
from keras import ops

from keras_bert.layers.masked_lm_head import MaskedLMHead

_CHUNK = 4096  # tokens of the vocabulary whose logits are in memory at once


@keras.saving.register_keras_serializable(package="keras_bert")
class SpladeHead(MaskedLMHead):
    """Vectors of tokens to a weight for each token of the vocabulary.

    The weight is log(1 + ReLU(logit)) for the largest logit of the tokens of a text, with [CLS] and
    [SEP]. The weights of the layer are those of `MaskedLMHead`.

    Source: Formal et al. (2021), SPLADE v2, section 3.1.

    Args: See `MaskedLMHead`.

    Example:

    >>> from keras_bert.layers import Embeddings
    >>> embeddings = Embeddings(vocab_size=10, hidden_size=4, max_position_embeddings=8)
    >>> embeddings.build((None, None), (None, None))
    >>> layer = SpladeHead(vocab_size=10)
    >>> layer.tie_to(embeddings.word_embeddings)
    >>> tuple(layer(keras.ops.ones((1, 3, 4)), keras.ops.array([[1, 1, 0]])).shape)
    (1, 10)
    """

    def build(self, sequence_output_shape, input_mask_shape=None):
        super().build(sequence_output_shape)

    def call(self, sequence_output, input_mask):  # type: ignore[override]
        """Compute the weights of the vocabulary.

        Args:
            sequence_output: Floats (batch, seq, hidden).
            input_mask: 1 for tokens and 0 for padding, (batch, seq). The first position is a token.

        Returns:
            float32 (batch, vocab).
        """
        return self.with_matrix(sequence_output, input_mask, self._output_matrix())

    def with_matrix(self, sequence_output, input_mask, output_matrix):
        """Compute `call` with another output matrix than the word embeddings."""
        x = sequence_output
        # The logits of padding are those of [CLS], so they do not change the maximum. A mask of the
        # logits would be a second array of (batch, seq, vocab).
        is_token = ops.cast(ops.expand_dims(input_mask, -1), "bool")
        x = ops.where(is_token, x, x[:, :1])
        x = self.layer_norm(self.activation(self.transform(x)))
        batch, seq, embedding = ops.shape(x)
        rows = ops.reshape(x, (batch * seq, embedding))
        parts = []
        for start in range(0, self.vocab_size, _CHUNK):
            part = output_matrix[start : start + _CHUNK]  # (chunk, embedding)
            logits = ops.matmul(rows, ops.transpose(part))
            logits = ops.reshape(logits, (batch, seq, part.shape[0]))
            parts.append(ops.max(logits, axis=1))
        largest = ops.cast(ops.concatenate(parts, axis=1), "float32")
        # The bias is the same for all tokens of a text, so it can be added to the maximum.
        largest = largest + ops.cast(self.output_bias, "float32")
        return ops.log(1.0 + ops.relu(largest))  # LiteRT has no log1p

    def compute_output_spec(self, sequence_output, input_mask):
        shape = (sequence_output.shape[0], self.vocab_size)
        return keras.KerasTensor(shape, dtype="float32")

    def compute_output_shape(self, sequence_output_shape, input_mask_shape=None):
        return (sequence_output_shape[0], self.vocab_size)
