"""A TensorFlow graph that computes a model's outputs faster than its layers do, on CPUs.

- Padding is computed only inside attention. Everything else runs on the tokens of the batch,
  (tokens, hidden).
- The ops have the forms that TensorFlow fuses into oneDNN kernels: a matmul with its bias and the
  exact GELU, or with its bias and the residual; and the attention logits with scale and mask.
- Gathers of (head) rows replace the transpositions of attention.
- Weights of small encoders can be constants of the graph. oneDNN then packs them once, not in each
  call.

The head runs as Keras layers, so that every head works, also one of your own.
"""

import keras
import tensorflow as tf

from keras_bert import keras_private
from keras_bert.encoder import INPUTS, BertEncoder
from keras_bert.layers import (
    Dropout,
    MaskedLMHead,
    MergeChoices,
    SentencePooling,
    SplitChoices,
    TaskOutput,
    UnitLength,
)
from keras_bert.layers.activations import activation
from keras_bert.layers.encoder_layers import MASKED_LOGIT
from keras_bert.model_structure import embedding_layers, find_encoder

PRECISIONS = ("float32", "bfloat16")
# The weights of larger encoders stay variables. TensorFlow copies constants many times while it
# loads and optimizes a graph: BERT-Base took 7 GB with constants, and 0.6 GB with variables.
_MAX_CONSTANTS = 100 * 2**20
# oneDNN packs a constant weight for the first call of its matmul. In float32, matmuls of 7 to 80
# rows need one memory layout, all others a second one. With the wrong layout, oneDNN packs the
# weight again in each call: a text of 20 words took 8 ms after a batch, and 4.7 ms without one.
_FEW_TOKENS = (7, 80)
# In a model of only these layers, the vector of a token does not depend on those at padding.
_KEEP_TOKENS_APART = (
    BertEncoder, Dropout, MaskedLMHead, MergeChoices, SentencePooling, SplitChoices, TaskOutput,
    keras.layers.Dense, keras.layers.Dropout, keras.layers.InputLayer,
    keras.layers.UnitNormalization, UnitLength,
)  # fmt: skip


def forward_function(model, precision=None, frozen=False):
    """Return a function that computes `model(inputs, training=False)` in a TensorFlow graph.

    In float32, the outputs equal those of the model within 1e-5. If no layer of the model mixes
    tokens with padding, as in the heads of `keras_bert.heads`, padding is not computed, and the
    outputs at padding are meaningless. The function calls the model itself if none of its layers is
    a `BertEncoder`, or if that is quantized or computes in float16. It calls the encoder itself if
    the model gives it other inputs than the three of `BertEncoder`, such as `position_ids`.

    Args:
        model: A functional model on a `BertEncoder`, or the encoder.
        precision: `"float32"`, or `"bfloat16"` for the matmuls of the encoder. Defaults to the
            compute dtype of the encoder.
        frozen: If True, use the present weights of the encoder: as constants up to 100 MiB, and
            else as variables in the precision. If False, each call reads the model's variables.

    Returns:
        A function of the inputs of the model.

    Raises:
        ValueError: If the precision is unknown, or the model has no encoder to compute in it.
    """
    if precision not in (None, *PRECISIONS):
        raise ValueError(
            f"precision must be one of {', '.join(PRECISIONS)}; received {precision!r}"
        )
    encoder = _replaceable_encoder(model)
    if encoder is None:
        if precision is not None:
            raise ValueError(
                f"precision={precision!r} needs a model with one BertEncoder as a layer, neither "
                f"quantized nor in float16; {model.name!r} has none. Leave out precision"
            )
        return lambda inputs: model(inputs, training=False)
    encode = _Encoder(encoder, precision or encoder.compute_dtype, frozen)
    if model is encoder:
        return encode
    index_of = keras.tree.pack_sequence_as(
        encoder.output, range(len(keras.tree.flatten(encoder.output)))
    )
    used = keras_private.used_outputs(model, encoder)
    encode.only_pooled = used == {index_of["pooled_output"]}
    encode.skip_padding = encode.only_pooled or all(
        isinstance(operation, _KEEP_TOKENS_APART) for operation in model.operations
    )
    functions = {encoder: encode}
    if frozen:
        functions |= {
            layer: encode.masked_lm_head(layer)
            for layer in model.layers
            if isinstance(layer, MaskedLMHead)
        }
    return lambda inputs: keras_private.run_with(model, inputs, functions)


def with_copy_for_few_tokens(function, model, precision=None):
    """Return a `tf.function` with a second copy of its graph for few tokens, if it needs one.

    oneDNN then packs the constant weights for few and for many tokens. In the last layer, which may
    compute only [CLS], it can still pack them again.

    Args:
        function: A `tf.function` of `forward_function(..., frozen=True)`, with an input signature.
        model: The model.
        precision: As for `forward_function`.

    Returns:
        A `tf.function` with the same input signature, or `function` itself.
    """
    encoder = _replaceable_encoder(model)
    if encoder is None or (precision or encoder.compute_dtype) != "float32":
        return function
    if not _has_constants(encoder, tf.float32):
        return function
    fewest, most = _FEW_TOKENS

    def choose(inputs):
        tokens = tf.math.count_nonzero(inputs["input_mask"], dtype=tf.int32)
        is_few = (fewest <= tokens) & (tokens <= most)
        return tf.cond(is_few, lambda: function(inputs), lambda: function(inputs))

    return tf.function(choose, input_signature=function.input_signature, autograph=False)


def _replaceable_encoder(model):
    """Return the encoder, or `None` if the model must be called as it is."""
    try:
        encoder = find_encoder(model)
    except ValueError:
        return None
    is_known = type(encoder) is BertEncoder and encoder.compute_dtype in PRECISIONS
    layers = keras_private.all_layers(encoder)
    if not is_known or any(getattr(layer, "quantization_mode", None) for layer in layers):
        return None
    return encoder if model is encoder or encoder in model.layers else None


def _has_constants(encoder, dtype):
    """Return True if the weights of a frozen encoder are constants of the graph."""
    return encoder.count_params() * dtype.size <= _MAX_CONSTANTS


class _Encoder:
    """The encoder as a function from its inputs to its outputs, see `BertEncoder`.

    skip_padding: If True, the vectors at padding are not computed, and are zeros.
    only_pooled: If True, compute only [CLS] in the last layer. `sequence_output` and
        `encoder_outputs` are then invalid.
    """

    def __init__(self, encoder, precision, frozen):
        self.skip_padding = self.only_pooled = False
        self._encoder = encoder
        self._config = encoder.bert_config
        self._dtype = tf.as_dtype(precision)
        self._frozen = frozen
        self._constants = frozen and _has_constants(encoder, self._dtype)
        self._copies = {}
        self._layers = [
            encoder.get_layer(f"layer_{index}")
            for index in range(self._config["num_hidden_layers"])
        ]

    def __call__(self, inputs, training=None, mask=None):
        if inputs.keys() - {*INPUTS, "output_positions"}:
            if self._dtype.name != self._encoder.compute_dtype:
                raise ValueError(
                    "precision cannot change an encoder that has other inputs than token ids, mask "
                    "and segments. Leave out precision"
                )
            return self._encoder(inputs, training=False, mask=mask)
        mask = tf.not_equal(inputs["input_mask"], 0)  # (batch, seq)
        layout = _Layout(mask, self._config, self.skip_padding)
        x = self._embed(inputs, layout)
        hidden_states = []
        for layer in self._layers:
            only_cls = self.only_pooled and layer is self._layers[-1]
            x = self._block(layer, x, layout, only_cls)
            hidden_states.append(x)
        cls = x if self.only_pooled else tf.gather(x, layout.cls_indices)  # (batch, hidden)
        pooler = self._encoder.get_layer("pooler").dense
        pooled = pooler.activation(self._dense(pooler, cls))
        outputs = hidden_states
        if not self.only_pooled:
            outputs = [layout.pad(x) for x in hidden_states]  # (batch, seq, hidden)
        if (positions := inputs.get("output_positions")) is not None:
            outputs[-1] = tf.gather(outputs[-1], positions, batch_dims=1)
        return {
            "pooled_output": tf.cast(pooled, tf.float32),
            "sequence_output": outputs[-1],
            "encoder_outputs": outputs,
        }

    def _embed(self, inputs, layout):
        """Return the embeddings of the tokens, float32 (tokens, hidden)."""
        words = tf.gather(tf.reshape(inputs["input_word_ids"], [-1]), layout.flat_indices)
        types = tf.gather(tf.reshape(inputs["input_type_ids"], [-1]), layout.flat_indices)
        ids = (words, layout.positions, types)
        tables = embedding_layers(self._encoder)
        x = tf.add_n([self._lookup(*pair) for pair in zip(tables, ids, strict=True)])
        layer = self._encoder.get_layer("embeddings")
        x = self._layer_norm(layer.layer_norm, x)
        if layer.projection is None:
            return x
        return tf.cast(self._dense(layer.projection, x), tf.float32)

    def _block(self, layer, x, layout, only_cls):
        """Apply a `TransformerBlock` to float32 (tokens, hidden).

        With `only_cls`, return the vectors of [CLS], (batch, hidden).
        """
        context = layout.attend(self._dense(layer.attention.qkv, x), only_cls)
        if only_cls:
            x = tf.gather(x, layout.cls_indices)
        y = tf.cast(self._dense(layer.attention.output_dense, context), tf.float32)
        x = self._layer_norm(layer.attention_layer_norm, x + y)
        y = _activate(layer, self._dense(layer.intermediate, x))  # (tokens, inter)
        y = tf.cast(self._dense(layer.output_dense, y), tf.float32)
        return self._layer_norm(layer.output_layer_norm, x + y)

    def _dense(self, layer, x):
        kernel, bias = (self._weight(layer, name, self._dtype) for name in ("kernel", "bias"))
        return tf.nn.bias_add(tf.matmul(tf.cast(x, self._dtype), kernel), bias)

    def _layer_norm(self, layer, x):
        gamma, beta = (self._weight(layer, name, tf.float32) for name in ("gamma", "beta"))
        centered = x - tf.reduce_mean(x, axis=1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), axis=1, keepdims=True)
        # TensorFlow replaces some other forms by a kernel whose epsilon is always 0.001.
        return centered * tf.math.rsqrt(variance + layer.epsilon) * gamma + beta

    def _lookup(self, layer, ids):
        """Return rows of an embedding table, float32 (tokens, embedding)."""
        # Not `_weight`, so that TensorFlow reads only these rows of a variable.
        table = layer.embeddings
        if self._frozen:
            table = self._frozen_variable(layer, "embeddings", self._dtype)
        elif isinstance(table, keras.Variable):
            table = table.value
        return tf.cast(tf.gather(table, ids), tf.float32)

    def masked_lm_head(self, head):
        """Return a `MaskedLMHead` as a function that reads the same output matrix."""

        def predict(sequence_output, positions_or_mask=None):
            if head.tied:
                words = embedding_layers(self._encoder)[0]
                table = self._frozen_variable(words, "embeddings", self._dtype)
            else:
                table = self._frozen_variable(head, "output_embeddings", self._dtype)
            matrix = tf.cast(table, head.compute_dtype)
            return head.with_matrix(sequence_output, positions_or_mask, matrix)

        return predict

    def _weight(self, layer, name, dtype):
        if not self._frozen:
            return tf.cast(tf.convert_to_tensor(getattr(layer, name)), dtype)
        if not self._constants:
            return tf.convert_to_tensor(self._frozen_variable(layer, name, dtype))
        with tf.init_scope():  # outside of the graph that is being built
            value = keras.ops.convert_to_numpy(getattr(layer, name))
        return tf.constant(value.astype(dtype.as_numpy_dtype))

    def _frozen_variable(self, layer, name, dtype):
        """Return the variable of a layer, or a copy if its dtype is another one."""
        value = getattr(layer, name)  # with LoRA, this is a tensor
        if isinstance(value, keras.Variable) and value.dtype == dtype.name:
            return value.value
        key = (layer.path, name)
        if key not in self._copies:
            with tf.init_scope():
                value = keras.ops.convert_to_numpy(getattr(layer, name))
                self._copies[key] = tf.Variable(tf.cast(value, dtype), trainable=False)
        return self._copies[key]


class _Layout:
    """Where the tokens of a padded batch are, from its mask, bool (batch, seq).

    With `skip_padding`, masked positions are not tokens, except for the first of each row, because
    heads read the vector of [CLS]. Otherwise all positions are tokens.

    flat_indices: index of each token in the flattened batch, int32 (tokens,)
    positions: position of each token in its row, int32 (tokens,)
    cls_indices: index of the [CLS] of each row among the tokens, int32 (batch,)
    """

    def __init__(self, mask, config, skip_padding):
        heads = config["num_attention_heads"]
        self._heads = heads
        self._head_size = config["hidden_size"] // heads
        self._shape = tf.shape(mask)
        seq = self._shape[1]
        is_token = tf.ones_like(mask)
        if skip_padding:
            is_token = tf.concat([is_token[:, :1], mask[:, 1:]], axis=1)
        is_token = tf.reshape(is_token, [-1])
        self.flat_indices = tf.cast(tf.where(is_token)[:, 0], tf.int32)
        # Broadcasting fails if the rows are longer than the table of position embeddings.
        position = tf.range(config["max_position_embeddings"])[:seq]
        position = tf.reshape(tf.broadcast_to(position, self._shape), [-1])
        self.positions = tf.gather(position, self.flat_indices)
        row = self.flat_indices // seq
        number = tf.cumsum(tf.cast(is_token, tf.int32)) - 1
        number = tf.reshape(number, self._shape)  # padding repeats the number before it
        self.cls_indices = number[:, 0]

        # Rows of heads: from (tokens, 3, heads) to (batch, heads, seq), and back.
        head = tf.range(heads)
        query = number[:, None] * (3 * heads) + head[:, None]
        self._to_heads = (query, query + heads, query + 2 * heads)
        # `expand_dims`, because TensorFlow does not see that `[:, None]` keeps the number of tokens
        # and would not fuse the residual.
        start = tf.expand_dims(row * (heads * seq) + self.positions, axis=1)
        self._to_tokens = start + head * seq

        self._logit_mask = tf.where(mask, 0.0, MASKED_LOGIT)[:, None, None]  # (batch, 1, 1, seq)
        any_visible = tf.reduce_any(mask, axis=1)[:, None, None, None]
        self._any_visible = tf.cast(any_visible, tf.float32)  # (batch, 1, 1, 1)

    def attend(self, qkv, only_cls=False):
        """Return the contexts (tokens, hidden) for queries, keys, values (tokens, 3 * hidden).

        With `only_cls`, return those of the [CLS] tokens, (batch, hidden).
        """
        rows = tf.reshape(qkv, [-1, self._head_size])
        to_query, *to_others = self._to_heads
        if only_cls:
            to_query = to_query[:, :, :1]
        query, key, value = (tf.gather(rows, indices) for indices in (to_query, *to_others))
        logits = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)
        logits = logits * self._head_size**-0.5 + self._logit_mask  # (batch, heads, seq, seq)
        probabilities = tf.cast(tf.nn.softmax(logits), value.dtype)
        context = tf.matmul(probabilities, value)  # (batch, heads, seq, head)
        context *= tf.cast(self._any_visible, context.dtype)
        if only_cls:
            return tf.reshape(context, [-1, self._heads * self._head_size])
        rows = tf.gather(tf.reshape(context, [-1, self._head_size]), self._to_tokens)
        return tf.reshape(rows, [-1, self._heads * self._head_size])

    def pad(self, x):
        """Return floats (tokens, hidden) as (batch, seq, hidden), with zeros at padding."""
        batch, seq = tf.unstack(self._shape)
        hidden = self._heads * self._head_size
        padded = tf.scatter_nd(self.flat_indices[:, None], x, [batch * seq, hidden])
        return tf.reshape(padded, [batch, seq, hidden])


def _activate(layer, x):
    """Apply the activation of a `TransformerBlock`."""
    if layer.activation is not activation("gelu"):
        return layer.activation(x)
    one, half, root_half = (tf.constant(value, x.dtype) for value in (1.0, 0.5, 2**-0.5))
    return (tf.math.erf(x * root_half) + one) * half * x
