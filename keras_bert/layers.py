"""The layers of BERT (Devlin et al., 2018, sections 3 and A.2), on `keras.ops` alone.

Shapes, by name:
    batch   number of sequences
    seq     number of positions in a sequence, padding included
    hidden  width of the residual stream (`hidden_size`)
    heads   number of attention heads; head = hidden / heads
    inter   width of the feed-forward layer (`intermediate_size`)

Every weight sits in a stock `keras.layers.Dense`, `Embedding` or `LayerNormalization`, so
what Keras offers for those (LoRA, `quantize("int8")`, dtype policies) works here as well.
"""

import contextlib
import contextvars

import keras
from keras import ops

# Logit of a key that must not be seen. Finite, so that a row without any visible key gives
# numbers and not NaN; below every real logit, so that exp() of the difference is exactly 0.
_MASKED_LOGIT = -1e30


def activation(name):
    """Looks up `hidden_act` as BERT's configuration files spell it.

    Args:
        name: `"gelu"` (the exact, erf form, as Hugging Face reads the word), `"gelu_new"` or
            `"gelu_pytorch_tanh"` (the tanh approximation that Google's code computes), or any
            name that `keras.activations.get` knows, such as `"relu"`.

    Returns:
        A function of one tensor.

    Raises:
        ValueError: the name is not known.

    Example:

    >>> activation("relu")(keras.ops.array([-1.0, 2.0])).shape[0]
    2
    """
    if name == "gelu":
        return _gelu_erf
    if name in ("gelu_new", "gelu_pytorch_tanh"):
        return _gelu_tanh
    try:
        return keras.activations.get(name)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"hidden_act must be 'gelu', 'gelu_new' or a Keras activation; received {name!r}"
        ) from error


def _gelu_erf(x):
    return keras.activations.gelu(x, approximate=False)


def _gelu_tanh(x):
    return keras.activations.gelu(x, approximate=True)


_without_initial_weights = contextvars.ContextVar("without_initial_weights", default=False)


@contextlib.contextmanager
def without_initial_weights():
    """Within it, new layers start as zeros: for weights that a checkpoint overwrites at once.

    Drawing the numbers takes most of the time of building a BERT.

    Example:

    >>> with without_initial_weights():
    ...     float(initializer(0.02)((1, 1))[0, 0])
    0.0
    """
    token = _without_initial_weights.set(True)
    try:
        yield
    finally:
        _without_initial_weights.reset(token)


def initializer(stddev):
    """Truncated normal of the given standard deviation, as in Google's `create_initializer`.

    Args:
        stddev: standard deviation.

    Returns:
        A `keras.initializers.Initializer`.

    Example:

    >>> tuple(initializer(0.02)((2, 3)).shape)
    (2, 3)
    """
    if _without_initial_weights.get():
        return keras.initializers.Zeros()
    return keras.initializers.TruncatedNormal(stddev=stddev)


@keras.saving.register_keras_serializable(package="keras_bert")
class Embeddings(keras.layers.Layer):
    """Sum of word, position and segment embeddings, then LayerNorm and dropout.

    Source: `embedding_postprocessor` in google-research/bert `modeling.py`.

    Args:
        vocab_size: number of pieces.
        hidden_size: width of the result.
        max_position_embeddings: the longest sequence there are position vectors for.
        type_vocab_size: number of segments.
        dropout: rate, 0 to 1.
        layer_norm_eps: added to the variance.
        initializer_range: standard deviation of fresh weights.

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

        def table(rows, name):
            return keras.layers.Embedding(
                rows,
                hidden_size,
                embeddings_initializer=initializer(initializer_range),
                dtype=self.dtype_policy,
                name=name,
            )

        self.word_embeddings = table(vocab_size, "word_embeddings")
        self.position_embeddings = table(max_position_embeddings, "position_embeddings")
        self.token_type_embeddings = table(type_vocab_size, "token_type_embeddings")
        self.layer_norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_eps, dtype=self.dtype_policy, name="layer_norm"
        )
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, input_word_ids_shape, input_type_ids_shape=None):
        self.word_embeddings.build(input_word_ids_shape)
        self.position_embeddings.build((None,))
        self.token_type_embeddings.build(input_word_ids_shape)
        self.layer_norm.build((*input_word_ids_shape, self.hidden_size))
        self.built = True

    def call(self, input_word_ids, input_type_ids, training=None):
        """Embeds one batch.

        Args:
            input_word_ids: integers (batch, seq), 0 to `vocab_size` - 1.
            input_type_ids: integers (batch, seq), 0 to `type_vocab_size` - 1.
            training: whether dropout is on.

        Returns:
            A float tensor (batch, seq, hidden).

        Raises:
            ValueError: the sequence is longer than `max_position_embeddings`.
        """
        length = input_word_ids.shape[1]
        if length is not None and length > self.max_position_embeddings:
            raise ValueError(
                f"input_word_ids has {length} positions, but there are only "
                f"max_position_embeddings={self.max_position_embeddings} position vectors"
            )
        # A slice: where the length is known only as the graph runs, what is too long then fails
        # to add up below, while a look-up beyond the table would give zeros on a GPU.
        positions = ops.arange(self.max_position_embeddings, dtype="int32")
        positions = positions[: ops.shape(input_word_ids)[1]]  # (seq,)
        x = self.word_embeddings(input_word_ids)  # (batch, seq, hidden)
        x = x + self.position_embeddings(positions)
        x = x + self.token_type_embeddings(input_type_ids)
        return self.dropout(self.layer_norm(x), training=training)

    def compute_output_shape(self, input_word_ids_shape, input_type_ids_shape=None):
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
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class SelfAttention(keras.layers.Layer):
    """Multi-head scaled dot-product self-attention with one matmul for Q, K and V.

    Source: `attention_layer` in google-research/bert `modeling.py`; Vaswani et al. (2017), 3.2.

    The softmax is computed in float32 whatever the dtype policy. A query that may see no key
    at all (a row of padding) gets a context of zeros, as from PyTorch's fused attention.

    Args:
        num_heads: number of heads; divides the width of the input.
        dropout: rate on the attention probabilities, 0 to 1.
        initializer_range: standard deviation of fresh weights.

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
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, hidden_states_shape, attention_mask_shape=None):
        hidden_size = hidden_states_shape[-1]
        if hidden_size % self.num_heads:
            raise ValueError(
                f"num_attention_heads must divide hidden_size; received {self.num_heads} heads "
                f"for a width of {hidden_size}"
            )

        def dense(units, name):
            layer = keras.layers.Dense(
                units,
                kernel_initializer=initializer(self.initializer_range),
                dtype=self.dtype_policy,
                name=name,
            )
            layer.build(hidden_states_shape)
            return layer

        self.head_size = hidden_size // self.num_heads
        self.qkv = dense(3 * hidden_size, "qkv")
        self.output_dense = dense(hidden_size, "output")
        self.built = True

    def call(self, hidden_states, attention_mask=None, training=None):
        """Lets every position read from every visible position.

        Args:
            hidden_states: floats (batch, seq, hidden).
            attention_mask: which keys may be seen, nonzero for yes: (batch, seq) for all
                queries alike, or (batch, seq, seq) as [query, key]. `None`: all of them.
            training: whether dropout is on.

        Returns:
            A tensor (batch, seq, hidden).
        """
        batch, seq, hidden = ops.shape(hidden_states)
        qkv = self.qkv(hidden_states)  # (batch, seq, 3 * hidden)
        qkv = ops.reshape(qkv, (batch, seq, 3, self.num_heads, self.head_size))
        # The scale goes onto the queries, which are seq / head times fewer than the logits.
        query = ops.transpose(qkv[:, :, 0], (0, 2, 1, 3))  # (batch, heads, seq, head)
        query = query * ops.cast(self.head_size**-0.5, query.dtype)
        key = ops.transpose(qkv[:, :, 1], (0, 2, 3, 1))  # (batch, heads, head, seq)
        value = ops.transpose(qkv[:, :, 2], (0, 2, 1, 3))  # (batch, heads, seq, head)

        logits = ops.cast(ops.matmul(query, key), "float32")  # (batch, heads, seq, seq)
        if attention_mask is not None:
            visible = ops.not_equal(attention_mask, 0)
            if len(attention_mask.shape) == 2:
                visible = visible[:, None, :]  # (batch, 1, seq)
            logits = ops.where(visible[:, None], logits, _MASKED_LOGIT)
        # Keras warns at the softmax of a single logit.
        probabilities = ops.softmax(logits) if logits.shape[-1] != 1 else ops.ones_like(logits)
        probabilities = ops.cast(probabilities, value.dtype)
        probabilities = self.dropout(probabilities, training=training)

        context = ops.matmul(probabilities, value)  # (batch, heads, seq, head)
        context = ops.transpose(context, (0, 2, 1, 3))  # (batch, seq, heads, head)
        context = ops.reshape(context, (batch, seq, hidden))
        if attention_mask is not None:
            sees_any = ops.any(visible, axis=-1, keepdims=True)  # (batch, 1 or seq, 1)
            context = context * ops.cast(sees_any, context.dtype)
        return self.output_dense(context)

    def compute_output_shape(self, hidden_states_shape, attention_mask_shape=None):
        return hidden_states_shape

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "dropout": self.dropout_rate,
            "initializer_range": self.initializer_range,
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class TransformerBlock(keras.layers.Layer):
    """One post-norm Transformer layer: self-attention, then the feed-forward network.

    Source: one turn of the loop in `transformer_model`, google-research/bert `modeling.py`.

    Args:
        num_heads: number of attention heads.
        intermediate_size: width of the feed-forward network.
        hidden_act: its activation, see `activation`.
        dropout: rate on the output of both halves, 0 to 1.
        attention_dropout: rate on the attention probabilities, 0 to 1.
        layer_norm_eps: added to the variance.
        initializer_range: standard deviation of fresh weights.
        rematerialize: compute the block again in the backward pass instead of keeping its
            activations: memory for a layer falls to its input, time grows by about a third.
            The attribute is read at each call.

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
        # One for each use, so that each draws one seed a call, see `_rematerialized`.
        self.attention_output_dropout, self.output_dropout = (
            keras.layers.Dropout(dropout, dtype=self.dtype_policy, name=name)
            for name in ("attention_output_dropout", "output_dropout")
        )

    def build(self, hidden_states_shape, attention_mask_shape=None):
        hidden_size = hidden_states_shape[-1]

        def dense(units, input_size, name):
            layer = keras.layers.Dense(
                units,
                kernel_initializer=initializer(self.initializer_range),
                dtype=self.dtype_policy,
                name=name,
            )
            layer.build((*hidden_states_shape[:-1], input_size))
            return layer

        def layer_norm(name):
            layer = keras.layers.LayerNormalization(
                epsilon=self.layer_norm_eps, dtype=self.dtype_policy, name=name
            )
            layer.build(hidden_states_shape)
            return layer

        self.attention.build(hidden_states_shape, attention_mask_shape)
        self.attention_layer_norm = layer_norm("attention_layer_norm")
        self.intermediate = dense(self.intermediate_size, hidden_size, "intermediate")
        self.output_dense = dense(hidden_size, self.intermediate_size, "output")
        self.output_layer_norm = layer_norm("output_layer_norm")
        self.built = True

    def call(self, hidden_states, attention_mask=None, training=None):
        """Applies the block.

        Args:
            hidden_states: floats (batch, seq, hidden).
            attention_mask: (batch, seq) or (batch, seq, seq), see `SelfAttention`.
            training: whether dropout is on.

        Returns:
            A tensor (batch, seq, hidden).
        """
        compute = self._rematerialized if self.rematerialize else self._compute
        return compute(hidden_states, attention_mask, training)

    def _compute(self, hidden_states, attention_mask, training):
        x = self.attention(hidden_states, attention_mask=attention_mask, training=training)
        x = self.attention_output_dropout(x, training=training)
        x = self.attention_layer_norm(hidden_states + x)
        y = self.activation(self.intermediate(x))  # (batch, seq, inter)
        y = self.output_dense(y)  # (batch, seq, hidden)
        y = self.output_dropout(y, training=training)
        return self.output_layer_norm(x + y)

    def _rematerialized(self, hidden_states, attention_mask, training):
        # Not `keras.RematScope`: the second run must draw the dropout of the first and change
        # no state. So the seeds are drawn here, and both runs see variables that stand still.
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
                return self._compute(hidden_states, attention_mask, training)

        # The weights are arguments: what a function encloses may get no gradient.
        return keras.remat(compute)(hidden_states, *map(ops.convert_to_tensor, weights))

    def compute_output_shape(self, hidden_states_shape, attention_mask_shape=None):
        return hidden_states_shape

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


@keras.saving.register_keras_serializable(package="keras_bert")
class Pooler(keras.layers.Layer):
    """The [CLS] position through a dense layer with tanh: BERT's `pooled_output`.

    Source: the "pooler" scope in google-research/bert `modeling.py`.

    Args:
        initializer_range: standard deviation of fresh weights.

    Example:

    >>> tuple(Pooler()(keras.ops.ones((1, 3, 4))).shape)
    (1, 4)
    """

    def __init__(self, initializer_range=0.02, **kwargs):
        super().__init__(**kwargs)
        self.initializer_range = initializer_range

    def build(self, sequence_output_shape):
        hidden_size = sequence_output_shape[-1]
        self.dense = keras.layers.Dense(
            hidden_size,
            activation="tanh",
            kernel_initializer=initializer(self.initializer_range),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.dense.build((sequence_output_shape[0], hidden_size))
        self.built = True

    def call(self, sequence_output):
        """Pools floats (batch, seq, hidden) to (batch, hidden)."""
        return self.dense(sequence_output[:, 0])

    def compute_output_shape(self, sequence_output_shape):
        return (sequence_output_shape[0], sequence_output_shape[-1])

    def get_config(self):
        return {**super().get_config(), "initializer_range": self.initializer_range}
