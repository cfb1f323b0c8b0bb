"""The masked-LM head: logits over the vocabulary."""

import keras
from keras import ops

from keras_bert import keras_private
from keras_bert.layers.activations import activation as activation_function
from keras_bert.layers.encoder_layers import gather_positions
from keras_bert.layers.initializers import initializer
from keras_bert.layers.parts import new_dense, new_layer_norm


@keras.saving.register_keras_serializable(package="keras_bert")
class MaskedLMHead(keras.layers.Layer):
    """Vectors to logits over the vocabulary, with the encoder's word embeddings as weights.

    It applies a dense layer, the activation and LayerNorm, then a matmul with the transposed
    embeddings, and a bias. In a functional model the layer finds the encoder that produced its
    input, so the weights are also tied after a reload.

    Source: `get_masked_lm_output` in google-research/bert `run_pretraining.py`.

    Args:
        vocab_size: Number of tokens in the vocabulary.
        hidden_act: Activation, see `activation`.
        layer_norm_eps: Epsilon of LayerNorm.
        initializer_range: Standard deviation of the initial weights.
        tied: If False, the output matrix is a weight of this layer, not the word embeddings.
        embedding_size: Width of the output matrix, or `None` for the width of the vectors.

    Raises:
        ValueError: In a call of a tied layer, if no encoder produced the input and `tie_to` was not
            called.

    Example:

    >>> from keras_bert.layers import Embeddings
    >>> embeddings = Embeddings(vocab_size=10, hidden_size=4, max_position_embeddings=8)
    >>> embeddings.build((None, None), (None, None))
    >>> layer = MaskedLMHead(vocab_size=10)
    >>> layer.tie_to(embeddings.word_embeddings)
    >>> tuple(layer(keras.ops.ones((1, 3, 4)), keras.ops.array([[0, 2]])).shape)
    (1, 2, 10)
    """

    def __init__(
        self,
        vocab_size,
        hidden_act="gelu",
        layer_norm_eps=1e-12,
        initializer_range=0.02,
        tied=True,
        embedding_size=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_act = hidden_act
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self.tied = tied
        self.embedding_size = embedding_size
        self.activation = activation_function(hidden_act)
        object.__setattr__(self, "_word_embeddings", None)

    def tie_to(self, word_embeddings):
        """Use the weights of the encoder's `keras.layers.Embedding` as output weights."""
        # Bypass Keras' tracking: the variable must belong to the encoder only.
        object.__setattr__(self, "_word_embeddings", word_embeddings)

    def __call__(self, sequence_output, *args, **kwargs):
        if not self.tied:
            return super().__call__(sequence_output, *args, **kwargs)
        encoder = keras_private.producing_operation(sequence_output)
        if isinstance(encoder, keras.Model):
            self.tie_to(encoder.get_layer("embeddings").word_embeddings)
        if self._word_embeddings is None:
            raise ValueError(
                "MaskedLMHead needs the word embeddings of an encoder. Pass it the "
                "sequence_output of a BertEncoder, or call tie_to first."
            )
        return super().__call__(sequence_output, *args, **kwargs)

    def build(self, sequence_output_shape, masked_lm_positions_shape=None):
        embedding_size = self.embedding_size or sequence_output_shape[-1]
        self.transform = new_dense(
            embedding_size,
            sequence_output_shape,
            self.initializer_range,
            dtype=self.dtype_policy,
            name="transform",
        )
        self.layer_norm = new_layer_norm(
            (*sequence_output_shape[:-1], embedding_size),
            self.layer_norm_eps,
            dtype=self.dtype_policy,
            name="layer_norm",
        )
        self.output_bias = self.add_weight(
            shape=(self.vocab_size,), initializer="zeros", name="output_bias"
        )
        if not self.tied:
            self.output_embeddings = self.add_weight(
                shape=(self.vocab_size, embedding_size),
                initializer=initializer(self.initializer_range),
                name="output_embeddings",
            )
        self.built = True

    def call(self, sequence_output, masked_lm_positions=None):
        """Predict tokens.

        Args:
            sequence_output: Floats (batch, seq, hidden).
            masked_lm_positions: Integers (batch, predictions), the positions to predict.
                Defaults to all positions.

        Returns:
            Logits (batch, predictions or seq, vocab).
        """
        return self.with_matrix(sequence_output, masked_lm_positions, self._output_matrix())

    def with_matrix(self, sequence_output, masked_lm_positions, output_matrix):
        """Compute `call` with another output matrix than the word embeddings."""
        x = sequence_output
        if masked_lm_positions is not None:
            x = gather_positions(x, masked_lm_positions)
        x = self.layer_norm(self.activation(self.transform(x)))  # (batch, predictions, embedding)
        # Reshape to two dimensions: with three, XLA computes the gradient of the logits, the
        # largest tensor of a training step, twice (for the bias and for the matrix).
        batch, predictions, embedding = ops.shape(x)
        rows = ops.reshape(x, (batch * predictions, embedding))
        logits = ops.matmul(rows, ops.transpose(output_matrix))
        logits = logits + ops.cast(self.output_bias, logits.dtype)
        return ops.reshape(logits, (batch, predictions, self.vocab_size))

    def _output_matrix(self):
        """Return the output matrix (vocab, embedding), with LoRA applied and dequantized."""
        if not self.tied:
            return ops.cast(self.output_embeddings, self.compute_dtype)
        embeddings = self._word_embeddings
        if embeddings.quantization_mode is None:
            return ops.cast(embeddings.embeddings, self.compute_dtype)
        table = embeddings(ops.arange(embeddings.input_dim, dtype="int32"))
        return ops.cast(table, self.compute_dtype)

    def compute_output_shape(self, sequence_output_shape, masked_lm_positions_shape=None):
        shape = masked_lm_positions_shape or sequence_output_shape
        return (*shape[:2], self.vocab_size)

    def get_config(self):
        config = super().get_config()
        is_map = isinstance(self.dtype_policy, keras.dtype_policies.DTypePolicyMap)
        if self.built and self.transform.quantization_mode is not None and not is_map:
            # Only the nested dense layer is quantized, and this layer's own policy omits that.
            policy = keras.dtype_policies.DTypePolicyMap(
                default_policy=self.dtype_policy,
                policy_map={self.transform.path: self.transform.dtype_policy},
            )
            config["dtype"] = keras.dtype_policies.serialize(policy)
        return {
            **config,
            "vocab_size": self.vocab_size,
            "hidden_act": self.hidden_act,
            "layer_norm_eps": self.layer_norm_eps,
            "initializer_range": self.initializer_range,
            "tied": self.tied,
            "embedding_size": self.embedding_size,
        }
