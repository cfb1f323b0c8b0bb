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
import math

import keras
from keras import ops

# Logit of a key that must not be seen. Finite, so that a row without any visible key gives
# numbers and not NaN; below every real logit, so that exp() of the difference is exactly 0.
_MASKED_LOGIT = -1e30

_GOLDEN = 0x9E3779B9  # 2**32 over the golden ratio, odd: it spreads consecutive numbers


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


_without_initial_weights = contextvars.ContextVar("without_initial_weights", default=None)


@contextlib.contextmanager
def without_initial_weights(zeros=None):
    """Within it, new layers start as zeros: for weights that a checkpoint overwrites at once.

    Drawing the numbers takes most of the time of building a BERT.

    Args:
        zeros: the initializer that makes the zeros; default: `keras.initializers.Zeros()`.

    Example:

    >>> with without_initial_weights():
    ...     float(initializer(0.02)((1, 1))[0, 0])
    0.0
    """
    token = _without_initial_weights.set(zeros or keras.initializers.Zeros())
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
    return _without_initial_weights.get() or keras.initializers.TruncatedNormal(stddev=stddev)


@keras.saving.register_keras_serializable(package="keras_bert")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` whose masks cost next to nothing in a compiled step.

    Keras draws a random number for each element and keeps the mask for the backward pass, which
    takes a good part of a training step. Here a hash of an element's place, keyed anew by the
    layer's seed at each call, says whether the element stays. XLA computes it where it is used,
    and again in the backward pass. The masks are the same on TensorFlow and JAX; on torch, which
    lacks the arithmetic, they are Keras' own.

    Source: the hash is `lowbias32` of Wellons (2018), github.com/skeeto/hash-prospector.

    Args: as for `keras.layers.Dropout`.

    Example:

    >>> layer = Dropout(0.5, seed=0)
    >>> x = layer(keras.ops.ones((2, 500)), training=True)
    >>> bool(keras.ops.all((x == 0) | (x == 2)))
    True
    """

    def call(self, inputs, training=False):
        """Sets elements of any float tensor to 0, scales the others; in training alone."""
        if not training or self.rate == 0:
            return inputs
        if self.noise_shape is not None or keras.backend.backend() == "torch":
            return super().call(inputs, training=training)
        bits = _hash_of_places(ops.shape(inputs), self.seed_generator.next())
        # 24 of the bits, as numbers that every kernel compares.
        bits = ops.cast(ops.right_shift(bits, _uint32(8)), "int32")
        stays = bits >= round(self.rate * 2**24)
        return ops.where(stays, inputs * (1.0 / (1.0 - self.rate)), ops.zeros_like(inputs))


def _hash_of_places(shape, seed):
    """32 bits for each place of a shape, from a seed of two integers."""
    golden = _uint32(_GOLDEN)
    keys = _mixed(ops.cast(seed, "uint32") * golden + _uint32([1, 2]))
    first, second = ops.unstack(keys, 2)
    keys = _mixed(ops.stack([first + second * golden, ops.bitwise_xor(first, second)]))
    # Two numbers, so that no two calls go through the same hashes in the same order.
    step, start = ops.unstack(keys, 2)
    step = ops.bitwise_or(step, _uint32(1))
    # Axis by axis, and no single row of numbers: that could not be divided among devices.
    place = start
    for axis, size in enumerate(shape):
        inner = shape[axis + 1 :]
        place = place + ops.reshape(_multiples(inner, size), (-1, *(1 for _ in inner))) * step
    return _mixed(place)


def _multiples(sizes, count):
    """The first multiples of a product, uint32; of known sizes a single constant."""
    if all(isinstance(size, int) for size in (*sizes, count)):
        product = math.prod(sizes)
        return _uint32([product * number % 2**32 for number in range(count)])
    numbers = ops.cast(ops.arange(count, dtype="int32"), "uint32")
    for size in sizes:
        numbers = numbers * ops.cast(size, "uint32")
    return numbers


def _mixed(x):
    """The hash of each of the numbers, uint32: a change of one bit changes all others."""
    x = ops.bitwise_xor(x, ops.right_shift(x, _uint32(16))) * _uint32(0x7FEB352D)
    x = ops.bitwise_xor(x, ops.right_shift(x, _uint32(15))) * _uint32(0x846CA68B)
    return ops.bitwise_xor(x, ops.right_shift(x, _uint32(16)))


def _uint32(number):
    return ops.convert_to_tensor(number, dtype="uint32")


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
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, input_word_ids_shape, input_type_ids_shape=None, position_ids_shape=None):
        self.word_embeddings.build(input_word_ids_shape)
        self.position_embeddings.build((None,))
        self.token_type_embeddings.build(input_word_ids_shape)
        self.layer_norm.build((*input_word_ids_shape, self.hidden_size))
        self.built = True

    def call(self, input_word_ids, input_type_ids, position_ids=None, training=None):
        """Embeds one batch.

        Args:
            input_word_ids: integers (batch, seq), 0 to `vocab_size` - 1.
            input_type_ids: integers (batch, seq), 0 to `type_vocab_size` - 1.
            position_ids: integers (batch, seq), 0 to `max_position_embeddings` - 1; `None`:
                counted from the left.
            training: whether dropout is on.

        Returns:
            A float tensor (batch, seq, hidden).

        Raises:
            ValueError: the sequence is longer than `max_position_embeddings`.
        """
        if position_ids is None:
            position_ids = self._count_positions(input_word_ids)  # (seq,)
        x = self.word_embeddings(input_word_ids)  # (batch, seq, hidden)
        x = x + self.position_embeddings(position_ids)
        x = x + self.token_type_embeddings(input_type_ids)
        return self.dropout(self.layer_norm(x), training=training)

    def _count_positions(self, input_word_ids):
        length = input_word_ids.shape[1]
        if length is not None and length > self.max_position_embeddings:
            raise ValueError(
                f"input_word_ids has {length} positions, but there are only "
                f"max_position_embeddings={self.max_position_embeddings} position vectors"
            )
        # A slice: where the length is known only as the graph runs, what is too long then fails
        # to add up to the words, while a look-up beyond the table would give zeros on a GPU.
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
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

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

    def call(self, hidden_states, attention_mask=None, positions=None, training=None):
        """Lets every position read from every visible position.

        Args:
            hidden_states: floats (batch, seq, hidden).
            attention_mask: which keys may be seen, nonzero for yes: (batch, seq) for all
                queries alike, or (batch, seq, seq) as [query, key]. `None`: all of them.
            positions: the only ones that read, integers (batch, n); `None`: every one.
            training: whether dropout is on.

        Returns:
            A tensor (batch, seq or n, hidden).
        """
        batch, seq, hidden = ops.shape(hidden_states)
        qkv = self.qkv(hidden_states)  # (batch, seq, 3 * hidden)
        qkv = ops.reshape(qkv, (batch, seq, 3, self.num_heads, self.head_size))
        query, readers = qkv[:, :, 0], seq  # (batch, seq, heads, head)
        if positions is not None:
            readers = ops.shape(positions)[1]
            query = _gather(ops.reshape(query, (batch, seq, hidden)), positions)
            query = ops.reshape(query, (batch, readers, self.num_heads, self.head_size))
        # The scale goes onto the queries, which are seq / head times fewer than the logits.
        query = ops.transpose(query, (0, 2, 1, 3))  # (batch, heads, readers, head)
        query = query * ops.cast(self.head_size**-0.5, query.dtype)
        key = ops.transpose(qkv[:, :, 1], (0, 2, 3, 1))  # (batch, heads, head, seq)
        value = ops.transpose(qkv[:, :, 2], (0, 2, 1, 3))  # (batch, heads, seq, head)

        logits = ops.cast(ops.matmul(query, key), "float32")  # (batch, heads, readers, seq)
        if attention_mask is not None:
            visible = ops.not_equal(attention_mask, 0)
            if len(attention_mask.shape) == 2:
                visible = visible[:, None, :]  # (batch, 1, seq)
            elif positions is not None:
                visible = _gather(ops.cast(visible, "float32"), positions) > 0.5
            logits = ops.where(visible[:, None], logits, _MASKED_LOGIT)
        # Keras warns at the softmax of a single logit.
        probabilities = ops.softmax(logits) if logits.shape[-1] != 1 else ops.ones_like(logits)
        probabilities = ops.cast(probabilities, value.dtype)
        probabilities = self.dropout(probabilities, training=training)

        context = ops.matmul(probabilities, value)  # (batch, heads, readers, head)
        context = ops.transpose(context, (0, 2, 1, 3))  # (batch, readers, heads, head)
        context = ops.reshape(context, (batch, readers, hidden))
        if attention_mask is not None:
            sees_any = ops.any(visible, axis=-1, keepdims=True)  # (batch, 1 or readers, 1)
            context = context * ops.cast(sees_any, context.dtype)
        return self.output_dense(context)

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
            Dropout(dropout, dtype=self.dtype_policy, name=name)
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

    def call(self, hidden_states, attention_mask=None, positions=None, training=None):
        """Applies the block.

        Args:
            hidden_states: floats (batch, seq, hidden).
            attention_mask: (batch, seq) or (batch, seq, seq), see `SelfAttention`.
            positions: the only ones that the result is computed for, integers (batch, n);
                `None`: all of them. The others are still read.
            training: whether dropout is on.

        Returns:
            A tensor (batch, seq or n, hidden).
        """
        compute = self._rematerialized if self.rematerialize else self._compute
        return compute(hidden_states, attention_mask, positions, training)

    def _compute(self, hidden_states, attention_mask, positions, training):
        x = self.attention(
            hidden_states, attention_mask=attention_mask, positions=positions, training=training
        )
        x = self.attention_output_dropout(x, training=training)
        if positions is not None:
            hidden_states = _gather(hidden_states, positions)
        x = self.attention_layer_norm(hidden_states + x)
        y = self.activation(self.intermediate(x))  # (batch, seq, inter)
        y = self.output_dense(y)  # (batch, seq, hidden)
        y = self.output_dropout(y, training=training)
        return self.output_layer_norm(x + y)

    def _rematerialized(self, hidden_states, attention_mask, positions, training):
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
                return self._compute(hidden_states, attention_mask, positions, training)

        # The weights are arguments: what a function encloses may get no gradient.
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


def _gather(x, positions):
    """The vectors of (batch, seq, hidden) at positions (batch, n): (batch, n, hidden)."""
    # A product with rows of one 1 each: hardly any arithmetic, exact but for what a device rounds
    # before any product, and on several devices each reads its own rows. A look-up in one list of
    # all rows makes XLA send the vectors of every device to all others.
    seq = ops.arange(ops.shape(x)[1], dtype="int32")
    chosen = ops.cast(positions, "int32")[:, :, None] == seq  # (batch, n, seq)
    return ops.matmul(ops.cast(chosen, x.dtype), x)


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

    def build(self, sequence_output_shape, positions_shape=None):
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

    def call(self, sequence_output, positions=None):
        """Pools a batch.

        Args:
            sequence_output: floats (batch, seq, hidden).
            positions: where the [CLS]s of several texts in a row stand, integers (batch, texts);
                `None`: the one at the front.

        Returns:
            A tensor (batch, hidden), with positions (batch, texts, hidden).
        """
        if positions is None:
            return self.pool(sequence_output[:, 0])
        return self.pool(_gather(sequence_output, positions))

    def pool(self, first_vectors):
        """Pools [CLS] vectors that are picked already.

        Args:
            first_vectors: floats (..., hidden).

        Returns:
            A tensor of the same shape.
        """
        return self.dense(first_vectors)

    def compute_output_shape(self, sequence_output_shape, positions_shape=None):
        rows = sequence_output_shape[:1] if positions_shape is None else positions_shape
        return (*rows, sequence_output_shape[-1])

    def get_config(self):
        return {**super().get_config(), "initializer_range": self.initializer_range}


@keras.saving.register_keras_serializable(package="keras_bert")
class MaskedLMHead(keras.layers.Layer):
    """Vectors to logits over the vocabulary; the output matrix is the word embeddings'.

    A dense layer with activation and LayerNorm, then the embeddings transposed, and a bias. The
    embeddings are the encoder's own variable, not a copy. In a functional model the layer finds
    them by itself: in the encoder that made its input. So the tie is there again after a reload.

    Source: `get_masked_lm_output` in google-research/bert `run_pretraining.py`.

    Args:
        vocab_size: number of pieces.
        hidden_act: activation, see `activation`.
        layer_norm_eps: added to the variance.
        initializer_range: standard deviation of fresh weights.

    Raises:
        ValueError: the input was not made by an encoder, and `tie_to` was not called.

    Example:

    >>> embeddings = Embeddings(vocab_size=10, hidden_size=4, max_position_embeddings=8)
    >>> embeddings.build((None, None), (None, None))
    >>> layer = MaskedLMHead(vocab_size=10)
    >>> layer.tie_to(embeddings.word_embeddings)
    >>> tuple(layer(keras.ops.ones((1, 3, 4)), keras.ops.array([[0, 2]])).shape)
    (1, 2, 10)
    """

    def __init__(
        self, vocab_size, hidden_act="gelu", layer_norm_eps=1e-12, initializer_range=0.02, **kwargs
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_act = hidden_act
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self.activation = activation(hidden_act)
        object.__setattr__(self, "_word_embeddings", None)

    def tie_to(self, word_embeddings):
        """Sets the `keras.layers.Embedding` whose matrix turns vectors into logits."""
        # Past Keras' tracking: the variable stays the encoder's alone.
        object.__setattr__(self, "_word_embeddings", word_embeddings)

    def __call__(self, sequence_output, *args, **kwargs):
        history = getattr(sequence_output, "_keras_history", None)
        if history is not None and hasattr(history.operation, "get_layer"):
            self.tie_to(history.operation.get_layer("embeddings").word_embeddings)
        if self._word_embeddings is None:
            raise ValueError(
                "MaskedLMHead shares its matrix with an encoder: its input must be the "
                "sequence_output of a BertEncoder, or tie_to must be called before"
            )
        return super().__call__(sequence_output, *args, **kwargs)

    def build(self, sequence_output_shape, masked_lm_positions_shape=None):
        hidden_size = sequence_output_shape[-1]
        self.transform = keras.layers.Dense(
            hidden_size,
            kernel_initializer=initializer(self.initializer_range),
            dtype=self.dtype_policy,
            name="transform",
        )
        self.transform.build(sequence_output_shape)
        self.layer_norm = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_eps, dtype=self.dtype_policy, name="layer_norm"
        )
        self.layer_norm.build(sequence_output_shape)
        self.output_bias = self.add_weight(
            shape=(self.vocab_size,), initializer="zeros", name="output_bias"
        )
        self.built = True

    def call(self, sequence_output, masked_lm_positions=None):
        """Predicts pieces.

        Args:
            sequence_output: floats (batch, seq, hidden).
            masked_lm_positions: integers (batch, predictions), the positions to predict;
                `None`: all of them.

        Returns:
            A tensor (batch, predictions or seq, vocab).
        """
        x = sequence_output
        if masked_lm_positions is not None:
            x = _gather(x, masked_lm_positions)
        x = self.layer_norm(self.activation(self.transform(x)))  # (batch, predictions, hidden)
        # As one list of rows: with three dimensions XLA computes the gradient, the largest tensor
        # of a training step, twice, once for the bias and once for the matrix.
        batch, predictions, hidden = ops.shape(x)
        rows = ops.reshape(x, (batch * predictions, hidden))
        logits = ops.matmul(rows, ops.transpose(self._table()))
        logits = logits + ops.cast(self.output_bias, logits.dtype)
        return ops.reshape(logits, (batch, predictions, self.vocab_size))

    def _table(self):
        """The word embeddings as they are in force, (vocab, hidden)."""
        embeddings = self._word_embeddings
        if embeddings.quantization_mode is None:
            return ops.cast(embeddings.embeddings, self.compute_dtype)
        # Whole numbers and scales: the layer itself knows how to read them.
        table = embeddings(ops.arange(embeddings.input_dim, dtype="int32"))
        return ops.cast(table, self.compute_dtype)

    def compute_output_shape(self, sequence_output_shape, masked_lm_positions_shape=None):
        rows = masked_lm_positions_shape or sequence_output_shape
        return (*rows[:2], self.vocab_size)

    def get_config(self):
        config = super().get_config()
        if self.built and self.transform.quantization_mode is not None:
            # The policy of this layer says nothing of the one within, which alone is quantized.
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
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class SentencePooling(keras.layers.Layer):
    """One vector for a text: the [CLS] position, or the mean or maximum over real positions.

    Computed in float32 whatever the dtype policy. A row of nothing but padding gives zeros.

    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3.

    Args:
        mode: `"mean"`, `"cls"` or `"max"`.
        normalize: whether vectors are scaled to length 1.

    Raises:
        ValueError: another mode.

    Example:

    >>> layer = SentencePooling("mean", normalize=False)
    >>> x = keras.ops.array([[[1.0], [3.0], [9.0]]])
    >>> float(layer(x, keras.ops.array([[1, 1, 0]]))[0, 0])
    2.0
    """

    MODES = ("mean", "cls", "max")

    def __init__(self, mode="mean", normalize=True, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})
        if mode not in self.MODES:
            raise ValueError(f"mode must be one of {', '.join(self.MODES)}; received {mode!r}")
        self.mode = mode
        self.normalize = normalize
        self.built = True

    def call(self, sequence_output, input_mask):
        """Pools floats (batch, seq, hidden) by a mask (batch, seq) to (batch, hidden)."""
        x = ops.cast(sequence_output, "float32")
        visible = ops.not_equal(input_mask, 0)[:, :, None]  # (batch, seq, 1)
        if self.mode == "cls":
            x = ops.where(visible[:, 0], x[:, 0], 0.0)
        elif self.mode == "max":
            x = ops.max(ops.where(visible, x, _MASKED_LOGIT), axis=1)
            x = ops.where(ops.any(visible, axis=1), x, 0.0)
        else:
            count = ops.sum(ops.cast(visible, "float32"), axis=1)  # (batch, 1)
            x = ops.sum(ops.where(visible, x, 0.0), axis=1) / ops.maximum(count, 1.0)
        if self.normalize:
            # The floor is under the root: at zero the root itself has no gradient.
            length = ops.sqrt(ops.maximum(ops.sum(x * x, axis=-1, keepdims=True), 1e-24))
            x = x / length
        return x

    def compute_output_shape(self, sequence_output_shape, input_mask_shape):
        return (sequence_output_shape[0], sequence_output_shape[-1])

    def get_config(self):
        return {**super().get_config(), "mode": self.mode, "normalize": self.normalize}


@keras.saving.register_keras_serializable(package="keras_bert")
class WithoutDropout(keras.layers.Layer):
    """Another layer, as it is when nothing is trained.

    `layer(x, training=False)` does not do that in a functional model: where the model is called
    in training, so is each of its layers, whatever was asked for when it was built.

    Args:
        layer: a layer or model.

    Example:

    >>> layer = WithoutDropout(keras.layers.Dropout(0.9))
    >>> float(layer(keras.ops.ones((1, 1)), training=True)[0, 0])
    1.0
    """

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.layer = layer

    def build(self, inputs_shape):
        if not self.layer.built:
            self.layer.build(inputs_shape)
        self.built = True

    def call(self, inputs, training=None):
        return self.layer(inputs, training=False)

    def compute_output_spec(self, inputs, training=None):
        return self.layer.compute_output_spec(inputs)

    def get_config(self):
        return {**super().get_config(), "layer": keras.saving.serialize_keras_object(self.layer)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        layer = keras.saving.deserialize_keras_object(config["layer"], custom_objects)
        return cls(**{**config, "layer": layer})


@keras.saving.register_keras_serializable(package="keras_bert")
class WeightedSum(keras.layers.Layer):
    """A learned mix of layers: weights that add up to 1, times a learned scale.

    Source: Peters et al. (2018), ELMo, equation 1; "weighted sum" in table 7 of the paper.

    Example:

    >>> layer = WeightedSum()
    >>> float(layer([keras.ops.ones((1, 1)), 3 * keras.ops.ones((1, 1))])[0, 0])
    2.0
    """

    def build(self, layers_shape):
        self.mix = self.add_weight(shape=(len(layers_shape),), initializer="zeros", name="mix")
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.built = True

    def call(self, layers):
        """Mixes a list of tensors of one shape."""
        weights = ops.exp(self.mix) / ops.sum(ops.exp(self.mix))  # (layers,)
        mixed = sum(ops.cast(weights[index], x.dtype) * x for index, x in enumerate(layers))
        return ops.cast(self.scale, mixed.dtype) * mixed

    def compute_output_shape(self, layers_shape):
        return layers_shape[0]

    def get_config(self):
        return super().get_config()  # Keras' own is for layers that have none


@keras.saving.register_keras_serializable(package="keras_bert")
class MergeChoices(keras.layers.Layer):
    """(batch, choices, seq) to (batch * choices, seq): each choice a sequence of its own.

    Example:

    >>> tuple(MergeChoices()(keras.ops.ones((2, 3, 4), dtype="int32")).shape)
    (6, 4)
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.built = True

    def call(self, ids):
        batch, choices, seq = ops.shape(ids)
        return ops.reshape(ids, (batch * choices, seq))

    def compute_output_spec(self, ids):
        batch, choices, seq = ids.shape
        rows = None if None in (batch, choices) else batch * choices
        return keras.KerasTensor((rows, seq), dtype=ids.dtype)


@keras.saving.register_keras_serializable(package="keras_bert")
class SplitChoices(keras.layers.Layer):
    """(batch * choices, 1) back to (batch, choices), as the given (batch, choices, seq) has them.

    Example:

    >>> ids = keras.ops.ones((2, 3, 4), dtype="int32")
    >>> tuple(SplitChoices()(keras.ops.ones((6, 1)), ids).shape)
    (2, 3)
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.built = True

    def call(self, logits, ids):
        return ops.reshape(logits, ops.shape(ids)[:2])

    def compute_output_shape(self, logits_shape, ids_shape):
        return ids_shape[:2]
