"""Training steps in bfloat16 on CPUs, with TensorFlow.

On a CPU, XLA computes matmuls in bfloat16 no faster than in float32, and TensorFlow's own graph is
slow between the matmuls. So here oneDNN computes the matmuls, and XLA compiles the functions
between them, which all layers share. A gradient computes its function again, which is faster than
to keep the intermediate results.
"""

import keras
import tensorflow as tf

from keras_bert import keras_private
from keras_bert.encoder import INPUTS, BertEncoder, positions_of_last_layer
from keras_bert.layers.dropout import random_bits
from keras_bert.layers.encoder_layers import MASKED_LOGIT
from keras_bert.model_structure import embedding_layers, find_encoder

_KNOWN_INPUTS = {*INPUTS, "attention_mask", "position_ids", "output_positions", "cls_positions"}


def can_train(model):
    """Return True if `TrainedModel` can train a model: one encoder, in mixed_bfloat16."""
    try:
        encoder = find_encoder(model)
    except ValueError:
        return False
    layers = keras_private.all_layers(encoder)
    return (
        type(encoder) is BertEncoder
        and encoder in model.layers
        and encoder.dtype_policy.name == "mixed_bfloat16"
        and not encoder.rematerialize
        and not any(getattr(layer, "quantization_mode", None) for layer in layers)
    )


class TrainedModel(keras.Model):
    """A model with the weights of another one, whose training steps are faster in bfloat16.

    The dropout and the outputs are those of the other model, up to rounding.

    Args:
        model: A functional model for which `can_train` is True.
    """

    def __init__(self, model):
        super().__init__(name=model.name)
        self.model = model
        self._encoder = find_encoder(model)
        self._encode = _Encoder(self._encoder)
        self.built = True

    @property
    def output(self):
        return self.model.output

    def compile(self, optimizer, **options):
        super().compile(optimizer, **options | {"jit_compile": False})
        self.optimizer.build(self.trainable_variables)

    def call(self, inputs, training=None):
        if not training:
            return self.model(inputs, training=False)
        return keras_private.run_with(
            self.model, inputs, {self._encoder: self._encode}, training=True
        )

    def train_step(self, data):
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(x, y, outputs, weights)
            keras_private.update_loss(self, loss)
        variables = [variable.value for variable in self.trainable_variables]
        gradients = tape.gradient(loss, variables)
        # XLA takes longer to sum the gradients of an embedding, and for the norm.
        gradients = [
            tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient
            for gradient in gradients
        ]
        self._apply(gradients, tf.linalg.global_norm(gradients))
        return self.compute_metrics(x, y, outputs, weights)

    @tf.function(autograph=False, jit_compile=True)
    def _apply(self, gradients, norm):
        self.optimizer.apply_with_norm(gradients, self.trainable_variables, norm)


def _fused(function):
    """Compile a function of tensors with XLA, and its gradient, which computes it again.

    Integers get no gradient.
    """
    forward = tf.function(function, autograph=False, jit_compile=True)

    @tf.function(autograph=False, jit_compile=True)
    def backward(arguments, upstream):
        floats = [argument for argument in arguments if argument.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            outputs = function(*arguments)
        return tape.gradient(outputs, floats, output_gradients=upstream)

    @tf.custom_gradient
    def with_gradient(*arguments):
        def gradient(*upstream):
            found = iter(backward(arguments, upstream if len(upstream) > 1 else upstream[0]))
            return [next(found) if each.dtype.is_floating else None for each in arguments]

        return forward(*arguments), gradient

    return with_gradient


class _Encoder:
    """A `BertEncoder` with dropout, as a function from its inputs to its outputs.

    Between the functions, the vectors of tokens are (tokens, hidden), in the compute dtype.
    """

    def __init__(self, encoder):
        self._encoder, self._dtype = encoder, tf.as_dtype(encoder.compute_dtype)
        config = encoder.bert_config
        self._heads = config["num_attention_heads"]
        self._head_size = config["hidden_size"] // self._heads
        self._blocks = [
            encoder.get_layer(f"layer_{index}") for index in range(config["num_hidden_layers"])
        ]
        self._epsilon, self._activation = config["layer_norm_eps"], self._blocks[0].activation
        self._rate = config["hidden_dropout_prob"]
        self._attention_rate = config["attention_probs_dropout_prob"]
        self._embedding = _fused(self._sum_and_norm)
        self._heads_of, self._merged = _fused(self._split), _fused(self._merge)
        self._attention = _fused(self._probabilities)
        self._residual, self._activation_of = _fused(self._add_and_norm), _fused(self._activate)

    def __call__(self, inputs, training=None, mask=None):
        if inputs.keys() - _KNOWN_INPUTS:
            return self._encoder(inputs, training=True)
        attention_mask = inputs.get("attention_mask", inputs["input_mask"])
        cls_positions = inputs.get("cls_positions")
        positions = positions_of_last_layer(inputs)
        x = self._embed(inputs)
        outputs = []
        for block in self._blocks:
            at = positions if block is self._blocks[-1] else None
            x = self._block(block, x, attention_mask, at)
            outputs.append(tf.reshape(x, [tf.shape(attention_mask)[0], -1, x.shape[-1]]))
        x = outputs[-1]  # (batch, seq or n, hidden)
        count = 1 if cls_positions is None else tf.shape(cls_positions)[1]
        if positions is not None:
            cls, outputs[-1] = x[:, :count], x[:, count:]
        else:
            cls = x[:, :1] if cls_positions is None else tf.gather(x, cls_positions, batch_dims=1)
        if cls_positions is None:
            cls = cls[:, 0]
        return {
            "pooled_output": self._encoder.get_layer("pooler").pool(cls),
            "sequence_output": outputs[-1],
            "encoder_outputs": outputs,
        }

    def _embed(self, inputs):
        ids, layer = inputs["input_word_ids"], self._encoder.get_layer("embeddings")
        positions = inputs.get("position_ids")
        if positions is None:
            positions = tf.broadcast_to(tf.range(tf.shape(ids)[1]), tf.shape(ids))
        tables = embedding_layers(self._encoder)
        rows = [
            tf.gather(tf.convert_to_tensor(table.embeddings), tf.reshape(each, [-1]))
            for table, each in zip(tables, (ids, positions, inputs["input_type_ids"]), strict=True)
        ]
        return self._embedding(*rows, *_norm(layer.layer_norm), _seed(layer.dropout))

    def _block(self, block, x, mask, positions):
        attention = block.attention
        qkv, bias = _dense(attention.qkv, x)
        query, key, value = self._heads_of(qkv, bias, mask)  # (batch, heads, seq, head)
        if positions is not None:
            query = tf.transpose(query, (0, 2, 1, 3))
            query = tf.transpose(tf.gather(query, positions, batch_dims=1), (0, 2, 1, 3))
            x = tf.reshape(x, [tf.shape(mask)[0], -1, x.shape[-1]])
            x = tf.reshape(tf.gather(x, positions, batch_dims=1), [-1, x.shape[-1]])
            if len(mask.shape) == 3:
                mask = tf.gather(mask, positions, batch_dims=1)
        logits = tf.matmul(query, key, transpose_b=True)  # (batch, heads, queries, seq)
        probabilities = self._attention(logits, mask, _seed(attention.dropout))
        context = self._merged(tf.matmul(probabilities, value))
        y, bias = _dense(attention.output_dense, context)
        seed = _seed(block.attention_output_dropout)
        x = self._residual(y, bias, x, *_norm(block.attention_layer_norm), seed)
        y = self._activation_of(*_dense(block.intermediate, x))
        y, bias = _dense(block.output_dense, y)
        seed = _seed(block.output_dropout)
        return self._residual(y, bias, x, *_norm(block.output_layer_norm), seed)

    # The functions between two matmuls. They compute in float32.

    def _sum_and_norm(self, words, positions, types, gamma, beta, seed):
        """Return the embeddings of tokens from their rows in the three tables."""
        x = self._layer_norm(words + positions + types, gamma, beta)
        return tf.cast(_drop(x, self._rate, seed), self._dtype)

    def _split(self, qkv, bias, mask):
        """Return scaled queries, keys and values, (batch, heads, seq, head).

        The mask gives the shape of the batch.
        """
        x = tf.cast(qkv, tf.float32) + bias
        x = tf.reshape(x, [tf.shape(mask)[0], -1, 3, self._heads, self._head_size])
        query, key, value = tf.unstack(tf.cast(tf.transpose(x, (2, 0, 3, 1, 4)), self._dtype))
        return query * tf.constant(self._head_size**-0.5, self._dtype), key, value

    def _probabilities(self, logits, mask, seed):
        """Return attention probabilities, zeros for queries without visible keys."""
        visible = tf.not_equal(mask, 0)
        visible = visible[:, None] if len(mask.shape) == 3 else visible[:, None, None]
        logits = tf.where(visible, tf.cast(logits, tf.float32), MASKED_LOGIT)
        any_visible = tf.reduce_any(visible, axis=-1, keepdims=True)
        probabilities = tf.nn.softmax(logits) * tf.cast(any_visible, tf.float32)
        return tf.cast(_drop(probabilities, self._attention_rate, seed), self._dtype)

    def _merge(self, context):
        """Return contexts (batch, heads, queries, head) as (tokens, hidden)."""
        hidden = self._heads * self._head_size
        return tf.reshape(tf.transpose(context, (0, 2, 1, 3)), [-1, hidden])

    def _add_and_norm(self, y, bias, x, gamma, beta, seed):
        """Return the LayerNorm of `x` plus the dropout of `y` plus its bias."""
        y = _drop(tf.cast(y, tf.float32) + bias, self._rate, seed)
        return tf.cast(self._layer_norm(tf.cast(x, tf.float32) + y, gamma, beta), self._dtype)

    def _activate(self, y, bias):
        return tf.cast(self._activation(tf.cast(y, tf.float32) + bias), self._dtype)

    def _layer_norm(self, x, gamma, beta):
        centered = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)
        return centered * tf.math.rsqrt(variance + self._epsilon) * gamma + beta


def _dense(layer, x):
    """Return the matmul of a dense layer, and its bias."""
    kernel = tf.cast(tf.convert_to_tensor(layer.kernel), x.dtype)
    return tf.matmul(x, kernel), tf.convert_to_tensor(layer.bias)


def _norm(layer):
    return tf.convert_to_tensor(layer.gamma), tf.convert_to_tensor(layer.beta)


def _seed(layer):
    """Return the next seed of a dropout layer; zeros if it drops nothing."""
    if layer.rate == 0:
        return tf.zeros([2], tf.int32)
    return tf.convert_to_tensor(layer.seed_generator.next())


def _drop(x, rate, seed):
    """Apply dropout as `layers.Dropout` does."""
    if rate == 0:
        return x
    bits = random_bits(keras.ops.shape(x), seed)
    bits = tf.cast(tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32)), tf.int32)
    return tf.where(bits >= round(rate * 2**24), x * (1.0 / (1.0 - rate)), 0.0)
