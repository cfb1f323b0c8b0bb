"""Layers of the encoder: self-attention and the Transformer block."""

import functools

import keras
from keras import ops

from keras_bert.layers import fused_attention
from keras_bert.layers.activations import activation
from keras_bert.layers.between_matmuls import add_bias, between_matmuls, matmul, normalize
from keras_bert.layers.dropout import Dropout
from keras_bert.layers.parts import new_dense, new_layer_norm

# Logit of a masked key. It is finite, so a row without visible keys does not give NaN, and it is
# far below every real logit, so the probability is exactly 0.
MASKED_LOGIT = -1e30


@keras.saving.register_keras_serializable(package="keras_bert")
class SelfAttention(keras.layers.Layer):
    """Multi-head scaled dot-product self-attention with one matmul for Q, K and V.

    The softmax is computed in float32 under every dtype policy. A query without visible keys,
    as in a row of padding, has a context of zeros, as in PyTorch's fused attention.

    Source: `attention_layer` in google-research/bert `modeling.py`; Vaswani et al. (2017), 3.2.

    Args:
        num_heads: Number of heads. Must divide the width of the input.
        dropout: Dropout rate of the attention probabilities, at least 0 and below 1.
        initializer_range: Standard deviation of the initial weights.

    Example:

    >>> layer = SelfAttention(num_heads=2)
    >>> tuple(layer(keras.ops.ones((1, 3, 4)), attention_mask=keras.ops.ones((1, 3))).shape)
    (1, 3, 4)
    """

    def __init__(self, num_heads, dropout=0.1, initializer_range=0.02, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout
        self.initializer_range = initializer_range
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, hidden_states_shape, attention_mask_shape=None):
        hidden_size = hidden_states_shape[-1]
        if hidden_size % self.num_heads:
            raise ValueError(
                f"num_attention_heads must divide hidden_size; received {self.num_heads} heads "
                f"for a width of {hidden_size}"
            )
        self.head_size = hidden_size // self.num_heads
        dense = functools.partial(
            new_dense,
            input_shape=hidden_states_shape,
            initializer_range=self.initializer_range,
            dtype=self.dtype_policy,
        )
        self.qkv = dense(3 * hidden_size, name="qkv")
        self.output_dense = dense(hidden_size, name="output")
        self.built = True

    def call(self, hidden_states, attention_mask=None, positions=None, training=None):
        """Compute self-attention.

        Args:
            hidden_states: Floats (batch, seq, hidden).
            attention_mask: Nonzero for visible keys: (batch, seq) for all queries, or
                (batch, seq, seq) as [query, key]. Defaults to all keys.
            positions: Integers (batch, n), the positions of the queries. Defaults to all
                positions.
            training: If True, apply dropout.

        Returns:
            A tensor (batch, queries, hidden), where queries is seq or n.
        """
        query, key, value = self._split_heads(matmul(self.qkv, hidden_states), positions)
        seed = self.dropout.next_seed(training)
        context = self._attend(query, key, value, attention_mask, positions, seed)
        context = self._merge_heads(context, attention_mask, positions)
        return matmul(self.output_dense, context)

    def _attend(self, query, key, value, attention_mask, positions, seed):
        """Return contexts (batch, heads, queries, head)."""
        choice = fused_attention.choose(
            query.dtype,
            self.head_size,
            heads=self.num_heads,
            lengths=(query.shape[2], key.shape[2]),
            masked=attention_mask is not None,
            dropout=seed is not None,
        )
        if choice.kernel is None:
            logits = _logits(query, key)
            probabilities = self._softmax_with_dropout(logits, attention_mask, positions, seed)
            return ops.matmul(probabilities, value)
        visible = None if attention_mask is None else _visible_keys(attention_mask, positions)
        return fused_attention.attend(choice, query, key, value, visible, self.dropout, seed)

    def probabilities(self, hidden_states, attention_mask=None):
        """Return the attention probabilities without dropout.

        Args:
            hidden_states, attention_mask: As for `call`.

        Returns:
            A float32 tensor (batch, heads, queries, keys). The sum over the keys is 1.
        """
        query, key, _ = self._split_heads(self.qkv(hidden_states), None)
        return _masked_softmax(_logits(query, key), attention_mask, None)

    @between_matmuls
    def _split_heads(self, qkv, positions):
        """Return scaled queries, keys and values, from (batch, seq, 3 * hidden).

        The queries are (batch, heads, queries, head), the others (batch, heads, seq, head).
        """
        qkv = add_bias(self.qkv, qkv)
        batch, seq, _ = ops.shape(qkv)
        qkv = ops.reshape(qkv, (batch, seq, 3, self.num_heads, self.head_size))
        query, key, value = ops.unstack(qkv, 3, axis=2)  # (batch, seq, heads, head) each
        if positions is not None:
            queries = ops.shape(positions)[1]
            query = ops.reshape(query, (batch, seq, self.num_heads * self.head_size))
            query = gather_positions(query, positions)
            query = ops.reshape(query, (batch, queries, self.num_heads, self.head_size))
        # Scale the queries: they have seq / head times fewer elements than the logits.
        query = ops.transpose(query, (0, 2, 1, 3))
        query = query * ops.cast(self.head_size**-0.5, query.dtype)
        key = ops.transpose(key, (0, 2, 1, 3))
        value = ops.transpose(value, (0, 2, 1, 3))
        return query, key, value

    @between_matmuls
    def _softmax_with_dropout(self, logits, attention_mask, positions, seed):
        """Return attention probabilities (batch, heads, queries, seq) with dropout."""
        probabilities = _masked_softmax(logits, attention_mask, positions)
        return self.dropout.drop(ops.cast(probabilities, logits.dtype), seed)

    @between_matmuls
    def _merge_heads(self, context, attention_mask, positions):
        """Return contexts (batch, queries, hidden), from (batch, heads, queries, head)."""
        batch, _, queries, _ = ops.shape(context)
        context = ops.transpose(context, (0, 2, 1, 3))  # (batch, queries, heads, head)
        context = ops.reshape(context, (batch, queries, self.num_heads * self.head_size))
        if attention_mask is None:
            return context
        visible = _visible_keys(attention_mask, positions)
        any_visible = ops.any(visible, axis=-1, keepdims=True)  # (batch, 1 or queries, 1)
        return context * ops.cast(any_visible, context.dtype)

    def compute_output_shape(
        self, hidden_states_shape, attention_mask_shape=None, positions_shape=None
    ):
        return (*(positions_shape or hidden_states_shape[:2]), hidden_states_shape[-1])

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "dropout": self.dropout_rate,
            "initializer_range": self.initializer_range,
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class TransformerBlock(keras.layers.Layer):
    """One post-norm Transformer layer: self-attention, then a feed-forward network.

    Source: The loop body of `transformer_model` in google-research/bert `modeling.py`.

    Args:
        num_heads: Number of attention heads.
        intermediate_size: Width of the feed-forward network.
        hidden_act: Activation of the feed-forward network, see `activation`.
        dropout: Dropout rate of both sublayers' outputs, at least 0 and below 1.
        attention_dropout: Dropout rate of the attention probabilities.
        layer_norm_eps: Epsilon of LayerNorm.
        initializer_range: Standard deviation of the initial weights.
        rematerialize: If True, compute the block again in the backward pass, and keep only its
            input. Training takes about a third longer. The attribute is read at each call.

    Example:

    >>> layer = TransformerBlock(num_heads=2, intermediate_size=8)
    >>> tuple(layer(keras.ops.ones((1, 3, 4))).shape)
    (1, 3, 4)
    """

    def __init__(
        self,
        num_heads,
        intermediate_size,
        hidden_act="gelu",
        dropout=0.1,
        attention_dropout=0.1,
        layer_norm_eps=1e-12,
        initializer_range=0.02,
        rematerialize=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.intermediate_size = intermediate_size
        self.hidden_act = hidden_act
        self.dropout_rate = dropout
        self.attention_dropout = attention_dropout
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self.rematerialize = rematerialize
        self.activation = activation(hidden_act)
        self.attention = SelfAttention(
            num_heads,
            dropout=attention_dropout,
            initializer_range=initializer_range,
            dtype=self.dtype_policy,
            name="attention",
        )
        # Two layers, so that each draws one seed per call; `_rematerialized` relies on it.
        self.attention_output_dropout = Dropout(
            dropout, dtype=self.dtype_policy, name="attention_output_dropout"
        )
        self.output_dropout = Dropout(dropout, dtype=self.dtype_policy, name="output_dropout")

    def build(self, hidden_states_shape, attention_mask_shape=None):
        hidden_size = hidden_states_shape[-1]
        inner_shape = (*hidden_states_shape[:-1], self.intermediate_size)
        dense = functools.partial(
            new_dense, initializer_range=self.initializer_range, dtype=self.dtype_policy
        )
        layer_norm = functools.partial(
            new_layer_norm, hidden_states_shape, self.layer_norm_eps, dtype=self.dtype_policy
        )
        self.attention.build(hidden_states_shape, attention_mask_shape)
        self.attention_layer_norm = layer_norm(name="attention_layer_norm")
        self.intermediate = dense(self.intermediate_size, hidden_states_shape, name="intermediate")
        self.output_dense = dense(hidden_size, inner_shape, name="output")
        self.output_layer_norm = layer_norm(name="output_layer_norm")
        self.built = True

    def call(self, hidden_states, attention_mask=None, positions=None, training=None):
        """Apply the block.

        Args:
            hidden_states: Floats (batch, seq, hidden).
            attention_mask: (batch, seq) or (batch, seq, seq), see `SelfAttention`.
            positions: Integers (batch, n), the positions to compute. They still attend to all
                visible positions. Defaults to all positions.
            training: If True, apply dropout.

        Returns:
            A tensor (batch, seq or n, hidden).
        """
        compute = self._rematerialized if self.rematerialize else self._compute
        return compute(hidden_states, attention_mask, positions, training)

    def _compute(self, hidden_states, attention_mask, positions, training):
        x = self.attention(
            hidden_states, attention_mask=attention_mask, positions=positions, training=training
        )
        if positions is not None:
            hidden_states = gather_positions(hidden_states, positions)
        dropout = self.attention_output_dropout
        layers = (self.attention.output_dense, dropout, self.attention_layer_norm)
        x = _add_and_norm(layers, x, hidden_states, dropout.next_seed(training))
        y = self._activate(matmul(self.intermediate, x))  # (batch, seq or n, inter)
        y = matmul(self.output_dense, y)  # (batch, seq or n, hidden)
        layers = (self.output_dense, self.output_dropout, self.output_layer_norm)
        return _add_and_norm(layers, y, x, self.output_dropout.next_seed(training))

    @between_matmuls
    def _activate(self, y):
        return self.activation(add_bias(self.intermediate, y))

    def _rematerialized(self, hidden_states, attention_mask, positions, training):
        # `keras.RematScope` does not fit: the second run must use the dropout of the first and
        # must not change state. So seeds are drawn here, and both runs are stateless.
        weights, state = [], []
        for variable in self.variables:
            if keras.backend.is_float_dtype(variable.dtype):
                weights.append(variable)
            else:
                state.append((variable, ops.convert_to_tensor(variable)))
        if training:
            dropouts = self.attention.dropout, self.attention_output_dropout, self.output_dropout
            generators = [layer.seed_generator for layer in dropouts if layer.rate > 0]
            state += [(generator.state, generator.next()) for generator in generators]

        def compute(hidden_states, *values):
            mapping = [*zip(weights, values, strict=True), *state]
            with keras.StatelessScope(state_mapping=mapping):
                return self._compute(hidden_states, attention_mask, positions, training)

        # Pass the weights as arguments: values in a closure may get no gradient.
        return keras.remat(compute)(hidden_states, *map(ops.convert_to_tensor, weights))

    def compute_output_shape(
        self, hidden_states_shape, attention_mask_shape=None, positions_shape=None
    ):
        return (*(positions_shape or hidden_states_shape[:2]), hidden_states_shape[-1])

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "intermediate_size": self.intermediate_size,
            "hidden_act": self.hidden_act,
            "dropout": self.dropout_rate,
            "attention_dropout": self.attention_dropout,
            "layer_norm_eps": self.layer_norm_eps,
            "initializer_range": self.initializer_range,
            "rematerialize": self.rematerialize,
        }


@between_matmuls
def _add_and_norm(layers, y, residual, seed):
    """Complete a dense layer whose matmul is `y`, apply dropout, add `residual`, and normalize."""
    dense, dropout, layer_norm = layers
    y = dropout.drop(add_bias(dense, y), seed)
    return normalize(layer_norm, residual + y)


def _visible_keys(attention_mask, positions):
    """Return booleans (batch, 1 or queries, seq) from the mask of `SelfAttention`."""
    visible = ops.not_equal(attention_mask, 0)
    if len(attention_mask.shape) == 2:
        return ops.expand_dims(visible, 1)
    if positions is not None:
        return gather_positions(ops.cast(visible, "float32"), positions) > 0.5
    return visible


def _logits(query, key):
    return ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # (batch, heads, queries, seq)


def _masked_softmax(logits, attention_mask, positions):
    """Return probabilities in float32; the logits are (batch, heads, queries, seq)."""
    logits = ops.cast(logits, "float32")
    if attention_mask is not None:
        visible = _visible_keys(attention_mask, positions)
        logits = ops.where(ops.expand_dims(visible, 1), logits, MASKED_LOGIT)
    # Keras warns about a softmax over a single logit.
    return ops.softmax(logits) if logits.shape[-1] != 1 else ops.ones_like(logits)


def gather_positions(x, positions):
    """Return the vectors at some positions of each sequence.

    Args:
        x: Floats (batch, seq, hidden).
        positions: Integers (batch, n).

    Returns:
        A tensor (batch, n, hidden). A position outside the sequence, or with a vector that is not
        finite, gives NaN.

    Example:

    >>> gather_positions(ops.reshape(ops.arange(3.0), (1, 3, 1)), ops.array([[2, 0]])).shape[1]
    2
    """
    # A matmul with one-hot rows is cheap, and exact up to the rounding of matmul inputs. It lets a
    # device read only its own rows; with a gather, XLA sends all rows to all devices.
    seq = ops.arange(ops.shape(x)[1], dtype="int32")
    one_hot = ops.expand_dims(ops.cast(positions, "int32"), -1) == seq  # (batch, n, seq)
    one_hot = ops.cast(one_hot, x.dtype)
    # In the matmul, a NaN would reach all positions, since 0 * NaN is NaN.
    is_finite = ops.all(ops.isfinite(x), axis=-1, keepdims=True)  # (batch, seq, 1)
    vectors = ops.matmul(one_hot, ops.where(is_finite, x, 0.0))  # (batch, n, hidden)
    is_known = ops.matmul(one_hot, ops.cast(is_finite, x.dtype)) > 0.5  # (batch, n, 1)
    # On torch, Keras multiplies float64 matrices in float32.
    return ops.cast(ops.where(is_known, vectors, float("nan")), x.dtype)
