"""Tests of `keras_bert.layers`."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bert import layers
from keras_bert.layers.encoder_layers import gather_positions
from tests import contract

HIDDEN = 8


@pytest.fixture(params=["attention", "block"])
def layer(request):
    """Self-attention or a block, with weights large enough that a wrong mask shows."""
    keras.utils.set_random_seed(3)
    if request.param == "attention":
        return layers.SelfAttention(num_heads=2, initializer_range=0.5)
    return layers.TransformerBlock(num_heads=2, intermediate_size=12, initializer_range=0.5)


def states(batch, length, seed=0):
    return np.random.default_rng(seed).normal(size=(batch, length, HIDDEN)).astype("float32")


def call(layer, x, mask=None):
    return np.array(layer(x, attention_mask=mask))


# --- Activations


@pytest.mark.parametrize("name", ["gelo", "", 3])
def test_unknown_activation(name):
    with pytest.raises(ValueError, match=f"hidden_act must be 'gelu'.*received {name!r}"):
        layers.activation(name)


# --- Weights


@pytest.mark.parametrize("length", [5, 1])
def test_attention_matches_the_formula(length):
    layer = layers.SelfAttention(num_heads=2, initializer_range=0.5)
    x, mask = states(2, length), np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]])[:, :length]
    found = call(layer, x, mask)
    query, key, value = np.split(x @ layer.qkv.kernel.numpy() + layer.qkv.bias.numpy(), 3, -1)
    heads = []
    for part in np.split(np.arange(HIDDEN), 2):
        logits = query[..., part] @ key[..., part].swapaxes(1, 2) / math.sqrt(HIDDEN / 2)
        weights = np.exp(logits) * mask[:, None]
        heads.append(weights / weights.sum(-1, keepdims=True) @ value[..., part])
    expected = np.concatenate(heads, -1) @ layer.output_dense.kernel.numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="received 3 heads for a width of 8"):
        layers.SelfAttention(num_heads=3).build((None, None, HIDDEN))


def test_without_initial_weights():
    with layers.without_initial_weights():
        assert not np.array(layers.initializer(0.02)((3, 3))).any()
    assert np.array(layers.initializer(0.02)((3, 3))).all()


@pytest.mark.parametrize(
    ("make", "shapes"),
    [
        (lambda: layers.Embeddings(9, 4, 8, 3, dropout=0.3), [(2, 5), (2, 5)]),
        (lambda: layers.SelfAttention(2, dropout=0.3), [(2, 5, 4)]),
        (lambda: layers.TransformerBlock(2, 6, "relu", 0.3, 0.4, 1e-3, 0.5, True), [(2, 5, 4)]),
        (lambda: layers.Pooler(0.5), [(2, 5, 4)]),
    ],
)
def test_config_round_trip(make, shapes):
    layer = make()
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    inputs = [np.ones(shape, "int32" if len(shape) == 2 else "float32") for shape in shapes]
    found = layer(*inputs)
    assert tuple(layer.compute_output_shape(*shapes)) == found.shape
    again(*inputs)
    for a, b in zip(layer.weights, again.weights, strict=True):
        b.assign(a)
    np.testing.assert_array_equal(again(*inputs), found)


# --- Masks


def test_padding_does_not_change_tokens(layer):
    x, mask = states(3, 6), np.array([[1, 1, 1, 1, 0, 0], [1] * 6, [1, 0, 1, 0, 1, 0]])
    before = call(layer, x, mask)
    x = np.where(mask[..., None] == 0, 100 * states(3, 6, seed=1), x)
    np.testing.assert_allclose(call(layer, x, mask)[mask == 1], before[mask == 1], atol=1e-6)
    np.testing.assert_allclose(call(layer, x[:1, :4])[0], before[0, :4], atol=1e-5)


def test_a_query_without_visible_keys_has_a_context_of_zeros():
    layer = layers.SelfAttention(num_heads=2, initializer_range=0.5)
    x = states(2, 4)
    mask = np.ones((2, 4, 4))
    mask[0, 2] = 0  # the third query of the first row
    mask[1] = 0
    found = call(layer, x, mask)
    assert np.isfinite(found).all()
    assert found[0, [0, 1, 3]].any(axis=-1).all()
    assert not found[0, 2].any()  # the bias is zeros
    assert not found[1].any()


@pytest.mark.parametrize("dtype", ["int32", "bool", "float32", "int64"])
def test_equal_masks(layer, dtype):
    x, mask = states(3, 6), np.array([[1, 1, 1, 1, 0, 0], [1] * 6, [0] * 6])
    expected = call(layer, x, mask)
    per_query = np.repeat(mask[:, None], 6, axis=1)
    for equal in (mask.astype(dtype), per_query.astype(dtype)):
        np.testing.assert_array_equal(call(layer, x, equal), expected)
    np.testing.assert_array_equal(call(layer, x)[1], expected[1])


# --- Precision


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_the_softmax_is_in_float32(policy, monkeypatch):
    seen = []
    softmax = ops.softmax

    def spy(x, axis=-1):
        seen.append(x.dtype)
        return softmax(x, axis=axis)

    monkeypatch.setattr(ops, "softmax", spy)
    layer = layers.SelfAttention(num_heads=2, dtype=policy)
    found = layer(states(2, 5), attention_mask=np.ones((2, 5)))
    assert [keras.backend.standardize_dtype(dtype) for dtype in seen] == ["float32"]
    assert keras.backend.standardize_dtype(found.dtype) == policy.removeprefix("mixed_")


def test_large_logits_stay_finite_in_float16():
    layer = layers.SelfAttention(num_heads=2, dtype="mixed_float16")
    x = 30 * states(2, 6)
    call(layer, x)
    layer.qkv.kernel.assign(np.tile(np.eye(HIDDEN) * 1.4, 3))
    mask = np.array([[1, 1, 1, 1, 1, 0], [0] * 6])
    largest = (x * 1.4).astype(np.float16) @ (x * 1.4).astype(np.float16).swapaxes(1, 2)
    assert abs(largest).max() > 10_000  # the maximum of float16 is 65,504
    assert np.isfinite(call(layer, x, mask).astype("float32")).all()


# --- Rematerialization; contract.py compares gradients


@pytest.mark.slow
def test_rematerialization_saves_memory(python):
    """Measure the memory that JAX keeps between the forward and the backward pass."""
    program = """
import jax, keras, numpy as np
from keras_bert import BertEncoder
def kept(rematerialize):
    encoder = BertEncoder(vocab_size=50, hidden_size=32, num_hidden_layers=8, num_attention_heads=4,
                          intermediate_size=128, rematerialize=rematerialize)
    inputs = {key: np.ones((8, 128), "int32") for key in encoder.input}
    state = [v.value for v in encoder.non_trainable_variables]
    def loss(trainable):
        outputs, _ = encoder.stateless_call(trainable, state, inputs, training=True)
        return keras.ops.mean(outputs["sequence_output"] ** 2)
    _, backward = jax.vjp(loss, [v.value for v in encoder.trainable_variables])
    return sum(x.nbytes for x in jax.tree.leaves(backward)) / 2**20
print("MiB:", kept(False), kept(True))
"""
    output = python("-c", program, backend="jax")
    plain, less = map(float, output.partition("MiB:")[2].split()[:2])
    assert less < plain / 10, output


def test_every_matrix_belongs_to_a_keras_layer():
    """LoRA and int8 apply to these layers."""
    encoder = contract.build("encoder")
    stock = contract.layers(encoder, keras.layers.Dense | keras.layers.Embedding)
    owned = {id(v) for layer in stock for v in layer.weights}
    assert all(id(v) in owned for v in encoder.trainable_weights if len(v.shape) > 1)


def test_a_dynamic_length_is_checked():
    import tensorflow as tf

    layer = layers.Embeddings(9, 4, max_position_embeddings=8)
    run = tf.function(layer, input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    assert run(tf.zeros((2, 8), tf.int32), tf.zeros((2, 8), tf.int32)).shape == (2, 8, 4)
    # Not the error of the lookup, which is raised only on CPUs.
    with pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible shapes"):
        run(tf.zeros((2, 9), tf.int32), tf.zeros((2, 9), tf.int32))


# --- Layers of heads


def masked_lm_head(**options):
    embeddings = layers.Embeddings(11, HIDDEN, max_position_embeddings=8, initializer_range=0.5)
    embeddings.build((None, None), (None, None))
    head = layers.MaskedLMHead(11, initializer_range=0.5, **options)
    head.tie_to(embeddings.word_embeddings)
    return head, embeddings.word_embeddings


def test_the_masked_lm_head_does_not_own_the_embeddings():
    head, embeddings = masked_lm_head()
    head(states(1, 2))
    names = sorted(variable.name for variable in head.variables)
    assert names == ["beta", "bias", "gamma", "kernel", "output_bias"]
    with pytest.raises(ValueError, match="needs the word embeddings of an encoder"):
        layers.MaskedLMHead(11)(states(1, 2))


@pytest.mark.parametrize("mode", ["mean", "max", "cls"])
def test_pooling_of_a_row_of_padding_is_zeros_and_has_gradients(mode):
    import tensorflow as tf

    layer = layers.SentencePooling(mode)
    x = tf.constant(states(3, 4))
    mask = np.array([[0] * 4, [1] * 4, [1, 0, 0, 0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        found = layer(x, mask)
    assert not found.numpy()[0].any()
    np.testing.assert_allclose(np.linalg.norm(found[1:], axis=1), 1, atol=1e-5)
    gradient = tape.gradient(found, x).numpy()
    assert np.isfinite(gradient).all()
    assert not gradient[0].any() and gradient[1].any()
    assert found.dtype == layers.SentencePooling(mode, dtype="mixed_float16")(x, mask).dtype


def test_weighted_sum():
    layer = layers.WeightedSum()
    x = [states(2, 3, seed=seed) for seed in range(3)]
    np.testing.assert_allclose(layer(x), sum(x) / 3, atol=1e-6)
    layer.mix.assign([0.0, np.log(2.0), np.log(5.0)])
    layer.scale.assign(8.0)
    np.testing.assert_allclose(layer(x), x[0] + 2 * x[1] + 5 * x[2], atol=1e-5)
    assert len(layer.trainable_variables) == 2


# --- Optional positions


def test_embeddings_at_given_positions():
    layer = layers.Embeddings(
        vocab_size=9, hidden_size=4, max_position_embeddings=6, initializer_range=0.5
    )
    ids, types = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[0, 1, 1], [1, 0, 0]])
    counted = np.array(layer(ids, types))
    given = np.array(layer(ids, types, np.array([[0, 1, 2]] * 2)))
    np.testing.assert_array_equal(counted, given)
    positions = np.array([[0, 0, 5], [3, 2, 1]])
    tables = [
        getattr(layer, f"{name}_embeddings").embeddings.numpy()
        for name in ("word", "position", "token_type")
    ]
    expected = layer.layer_norm(tables[0][ids] + tables[1][positions] + tables[2][types])
    np.testing.assert_allclose(layer(ids, types, positions), expected, atol=1e-6)
    # Packed rows can be longer than max_position_embeddings.
    long = np.tile([0, 1, 2, 3], (1, 3))
    assert layer(long, 0 * long, long).shape == (1, 12, 4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "bad", [np.nan, *(pytest.param(sign * np.inf, marks=pytest.mark.slow) for sign in (1, -1))]
)
def test_a_gathered_vector_depends_on_its_position_alone(dtype, bad):
    x = states(1, 4)
    x[0, 1, 2] = bad
    positions = np.array([[0, 3, 2, 1, 4, -1]])

    @tf.function(jit_compile=True)
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = gather_positions(x, positions)
            total = tf.reduce_sum(found[:, :3])
        return found, tape.gradient(total, x)

    given = tf.cast(x, dtype)
    for function in (run, run.python_function):
        found, gradient = function(given)
        assert found.dtype == given.dtype
        found, gradient = tf.cast(found, tf.float32).numpy(), tf.cast(gradient, tf.float32).numpy()
        np.testing.assert_allclose(found[:, :3], x[:, [0, 3, 2]], rtol=1e-2)
        assert np.isnan(found[:, 3:]).all()  # the bad vector, and positions outside of the sequence
        np.testing.assert_array_equal(gradient[0].max(axis=1), [1, 0, 1, 1])


# --- Dropout


def dropped(rate, seed=0, shape=(40, 50, 64), **options):
    """Apply a new layer to ones."""
    layer = layers.Dropout(rate, seed=seed, **options)
    return ops.convert_to_numpy(layer(ops.ones(shape), training=True))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_rate_and_scale(rate):
    x = dropped(rate)
    assert set(np.unique(x)) == {0.0, np.float32(1.0 / (1.0 - rate))}
    spread = (rate * (1 - rate) / x.size) ** 0.5
    assert abs((x == 0).mean() - rate) < 5 * spread


def test_dropout_masks_of_calls_and_seeds_are_independent():
    layer = layers.Dropout(0.5, seed=0)
    ones = ops.ones((40, 50, 64))
    masks = [ops.convert_to_numpy(layer(ones, training=True)) == 0 for _ in range(3)]
    masks += [dropped(0.5, seed) == 0 for seed in (1, 2, 2**31 - 1)]
    for number, mask in enumerate(masks):
        for other in masks[:number]:
            assert abs((mask == other).mean() - 0.5) < 5 * (0.25 / mask.size) ** 0.5
    if keras.backend.backend() != "torch":  # torch ignores the seed
        assert np.array_equal(masks[0], dropped(0.5) == 0)


def test_dropout_is_off_in_inference_and_at_rate_0():
    x = ops.ones((2, 3))
    assert not np.any(layers.Dropout(1.0)(x, training=True))
    for layer, training in ((layers.Dropout(0.5), False), (layers.Dropout(0.0), True)):
        assert np.array_equal(ops.convert_to_numpy(layer(x, training=training)), np.ones((2, 3)))


def test_dropout_options():
    x = dropped(0.5, shape=(8, 16, 4), noise_shape=(None, 16, 1), dtype="bfloat16")
    assert x.dtype == "bfloat16"
    assert len(np.unique(x)) == 2
    assert (x == x[:, :, :1]).all()
    layer = layers.Dropout(0.25, seed=3, dtype="bfloat16")
    again = layers.Dropout.from_config(layer.get_config())
    assert (again.rate, again.seed, again.dtype) == (0.25, 3, "bfloat16")


def lowbias32(x):
    """Reference implementation in NumPy."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="torch uses Keras' own dropout")
def test_dropout_masks_match_the_reference():
    layer = layers.Dropout(0.3, seed=7)
    golden = np.uint32(0x9E3779B9)
    with np.errstate(over="ignore"):
        for call in range(3):
            x = ops.convert_to_numpy(layer(ops.ones((2, 3, 4)), training=True))
            first = lowbias32(np.uint32(7) * golden + np.uint32(1))
            second = lowbias32(np.uint32(call) * golden + np.uint32(2))
            step = lowbias32(first + second * golden) | np.uint32(1)
            start = lowbias32(first ^ second)
            bits = lowbias32(start + np.arange(24, dtype=np.uint32) * step)
            assert np.array_equal(x.ravel() == 0, bits >> np.uint32(8) < round(0.3 * 2**24))
