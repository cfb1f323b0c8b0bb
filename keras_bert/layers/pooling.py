"""One vector of a text from the vectors of its tokens."""

import keras
from keras import ops

from keras_bert.layers.activations import activation as activation_function
from keras_bert.layers.encoder_layers import MASKED_LOGIT, gather_positions
from keras_bert.layers.parts import new_dense
from keras_bert.runtime.arguments import check_one_of


@keras.saving.register_keras_serializable(package="keras_bert")
class Pooler(keras.layers.Layer):
    """Dense layer on the [CLS] vector, BERT's `pooled_output`.

    Source: The "pooler" scope in google-research/bert `modeling.py`.

    Args:
        initializer_range: Standard deviation of the initial weights.
        activation: `"tanh"`, as in BERT, or another value of `layers.activation`.

    Example:

    >>> tuple(Pooler()(keras.ops.ones((1, 3, 4))).shape)
    (1, 4)
    """

    def __init__(self, initializer_range=0.02, activation="tanh", **kwargs):
        super().__init__(**kwargs)
        self.initializer_range = initializer_range
        self.activation = activation

    def build(self, sequence_output_shape, positions_shape=None):
        hidden_size = sequence_output_shape[-1]
        self.dense = new_dense(
            hidden_size,
            (sequence_output_shape[0], hidden_size),
            self.initializer_range,
            activation=activation_function(self.activation),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.built = True

    def call(self, sequence_output, positions=None):
        """Pool a batch.

        Args:
            sequence_output: Floats (batch, seq, hidden).
            positions: Integers (batch, texts), the [CLS] positions of packed sequences. Defaults
                to one [CLS] at position 0.

        Returns:
            A tensor (batch, hidden), or (batch, texts, hidden) if `positions` is given.
        """
        if positions is None:
            return self.pool(sequence_output[:, 0])
        return self.pool(gather_positions(sequence_output, positions))

    def pool(self, cls_vectors):
        """Pool [CLS] vectors: floats (..., hidden) to a tensor of the same shape."""
        return self.dense(cls_vectors)

    def compute_output_shape(self, sequence_output_shape, positions_shape=None):
        leading = sequence_output_shape[:1] if positions_shape is None else positions_shape
        return (*leading, sequence_output_shape[-1])

    def get_config(self):
        return {
            **super().get_config(),
            "initializer_range": self.initializer_range,
            "activation": self.activation,
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class SentencePooling(keras.layers.Layer):
    """One vector per text from the vectors of its tokens.

    Computed in float32 under every dtype policy. A row of padding gives zeros.

    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3; the modes are those of
    sentence-transformers.

    Args:
        mode: `"mean"` or `"max"` over the tokens; `"cls"`, the first token; `"lasttoken"`;
            `"mean_sqrt_len_tokens"`, the sum divided by the square root of the number of tokens;
            or `"weightedmean"`, whose weights are the positions, from 1. Of a list of modes, the
            vectors are concatenated.
        normalize: If True, scale the vectors to length 1.

    Raises:
        ValueError: If the mode is unknown.

    Example:

    >>> layer = SentencePooling("mean", normalize=False)
    >>> x = keras.ops.array([[[1.0], [3.0], [9.0]]])
    >>> float(layer(x, keras.ops.array([[1, 1, 0]]))[0, 0])
    2.0
    """

    MODES = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")

    def __init__(self, mode="mean", normalize=True, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})
        # A tuple, because Keras replaces list attributes with tracked lists.
        self._modes = (mode,) if isinstance(mode, str) else tuple(mode)
        if not self._modes:
            raise ValueError("mode must not be an empty list")
        for mode in self._modes:
            check_one_of("mode", mode, self.MODES)
        self.normalize = normalize
        self.built = True

    @property
    def mode(self):
        """The mode, or a tuple of several."""
        return self._modes[0] if len(self._modes) == 1 else self._modes

    def call(self, sequence_output, input_mask):
        """Pool floats (batch, seq, hidden) with a mask (batch, seq) to (batch, hidden * modes)."""
        x = ops.cast(sequence_output, "float32")
        visible = ops.expand_dims(ops.not_equal(input_mask, 0), -1)  # (batch, seq, 1)
        pooled = [self._pool(mode, x, visible) for mode in self._modes]
        x = pooled[0] if len(pooled) == 1 else ops.concatenate(pooled, axis=-1)
        return unit_length(x) if self.normalize else x

    def _pool(self, mode, x, visible):
        if mode == "cls":
            return ops.where(visible[:, 0], x[:, 0], 0.0)
        if mode == "max":
            x = ops.max(ops.where(visible, x, MASKED_LOGIT), axis=1)
            return ops.where(ops.any(visible, axis=1), x, 0.0)
        weights = ops.cast(visible, "float32")  # (batch, seq, 1)
        position = (
            ops.expand_dims(ops.arange(1, ops.shape(x)[1] + 1, dtype="float32"), -1) * weights
        )
        if mode == "lasttoken":
            last = ops.max(position, axis=1, keepdims=True)
            weights = ops.cast(ops.equal(position, last), "float32") * weights
        elif mode == "weightedmean":
            weights = position
        total = ops.sum(ops.where(visible, x, 0.0) * weights, axis=1)
        count = ops.sum(weights, axis=1)  # (batch, 1)
        if mode == "mean_sqrt_len_tokens":
            count = ops.sqrt(count)
        return total / ops.maximum(count, 1.0)

    def compute_output_shape(self, sequence_output_shape, input_mask_shape):
        return (sequence_output_shape[0], sequence_output_shape[-1] * len(self._modes))

    def get_config(self):
        mode = self.mode if len(self._modes) == 1 else list(self._modes)
        return {**super().get_config(), "mode": mode, "normalize": self.normalize}


@keras.saving.register_keras_serializable(package="keras_bert")
class UnitLength(keras.layers.Layer):
    """Scale vectors to length 1.

    In a step that XLA compiles, `keras.layers.UnitNormalization` has a NaN gradient at a vector of
    zeros; this layer has none.

    Example:

    >>> tuple(UnitLength()(keras.ops.array([[3.0, 4.0]])).shape)
    (1, 2)
    """

    def __init__(self, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.built = True

    def call(self, vectors):
        return unit_length(ops.cast(vectors, "float32"))

    def compute_output_shape(self, vectors_shape):
        return vectors_shape


def unit_length(x):
    """Scale vectors, floats (..., width), to length 1.

    Example:

    >>> ops.convert_to_numpy(unit_length(ops.array([[3.0, 4.0], [0.0, 0.0]]))).round(2).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    # In float16 the squares overflow, and the least square below is 0.
    exact = ops.cast(x, "float32")
    square = ops.sum(exact * exact, axis=-1, keepdims=True)
    # Clip before the square root, which has no gradient at 0.
    return ops.cast(exact / ops.sqrt(ops.maximum(square, 1e-24)), x.dtype)
