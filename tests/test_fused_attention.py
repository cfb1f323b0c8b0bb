"""Attention in one kernel equals attention in separate operations, on JAX and torch.

`make test-no-tensorflow` runs this file with both.
"""

import functools
import importlib.util

import keras
import numpy as np
import pytest

from keras_bert import layers
from keras_bert.layers import fused_attention
from keras_bert.runtime import seeds
from keras_bert.runtime.gradients import value_and_gradient

BACKEND = keras.backend.backend()
pytestmark = pytest.mark.skipif(BACKEND == "tensorflow", reason="TensorFlow has no such kernel")
jax_only = pytest.mark.skipif(BACKEND != "jax", reason="cuDNN's kernel is for JAX")
torch_only = pytest.mark.skipif(BACKEND != "torch", reason="for torch")

BATCH, SEQ, HIDDEN, HEADS = 3, 6, 32, 4
PADDING = np.array(
    [[1, 1, 1, 1, 0, 0], [0, 1, 1, 0, 1, 1], [0] * 6]
)  # with a hole and an empty row
TEXT_IDS = np.array([[1, 1, 2, 2, 2, 0], [1, 2, 3, 4, 5, 6], [1, 1, 1, 1, 1, 1]])
PACKED = (TEXT_IDS[:, :, None] == TEXT_IDS[:, None, :]) & (TEXT_IDS != 0)[:, None, :]
CASES = {
    "all keys": {},
    "padding": {"attention_mask": PADDING},
    "packed texts": {"attention_mask": PACKED.astype("int32")},
    "some queries": {"attention_mask": PADDING, "positions": np.array([[0, 3]] * BATCH)},
    "some queries of packed texts": {
        "attention_mask": PACKED.astype("int32"),
        "positions": np.array([[0, 2], [1, 5], [4, 0]]),
    },
}


@pytest.fixture
def kernel(monkeypatch):
    """On JAX, let XLA compute what cuDNN would compute, since this machine may have no GPU."""
    if BACKEND == "jax":
        import jax

        attention = jax.nn.dot_product_attention
        monkeypatch.setattr(
            jax.nn,
            "dot_product_attention",
            lambda *args, implementation, **options: attention(*args, **options),
        )
        monkeypatch.setattr(fused_attention, "_has_nvidia_gpu", lambda: True)
        monkeypatch.setattr(fused_attention, "_error_of_cudnn", lambda *args: None)


def attention(dtype, dropout=0.0):
    keras.utils.set_random_seed(0)
    layer = layers.SelfAttention(HEADS, dropout=dropout, initializer_range=0.3, dtype=dtype)
    layer.build((None, None, HIDDEN))
    return layer


def states():
    return np.random.default_rng(1).normal(size=(BATCH, SEQ, HIDDEN)).astype("float32")


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float32"])
@pytest.mark.parametrize("case", CASES)
def test_the_kernel_equals_separate_operations(kernel, monkeypatch, case, dtype):
    layer = attention(dtype)

    def loss(x):
        contexts = keras.ops.cast(layer(x, **CASES[case]), "float32")
        return keras.ops.sum(contexts * keras.ops.cos(keras.ops.arange(HIDDEN, dtype="float32")))

    results = []
    for setting in ("1", "0"):
        monkeypatch.setenv(fused_attention.DISABLE, setting)
        value, gradient = value_and_gradient(loss, states())
        contexts = keras.ops.convert_to_numpy(layer(states(), **CASES[case]))
        results.append((value, gradient, contexts.astype("float32")))
    (value, gradient, contexts), (plain_value, plain_gradient, plain_contexts) = results
    # bfloat16 has 8 bits, so two numbers that are rounded differently differ by 1/128 of a value.
    tolerance = 1e-5 if dtype == "float32" else 1 / 64
    scale = np.abs(plain_gradient).max()
    np.testing.assert_allclose(contexts, plain_contexts, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(gradient, plain_gradient, atol=tolerance * scale)
    assert value == pytest.approx(plain_value, abs=100 * tolerance)
    assert np.isfinite(gradient).all()
    if CASES[case].get("attention_mask") is PADDING:
        assert not contexts[2].any()  # the row without tokens


def choose(dtype="bfloat16", head_size=64, **options):
    return fused_attention.choose(dtype, head_size, **options)


def test_the_environment_variable_turns_the_kernels_off(kernel, monkeypatch):
    assert choose().kernel == {"jax": "cudnn", "torch": "sdpa"}[BACKEND]
    monkeypatch.setenv(fused_attention.DISABLE, "0")
    assert choose().kernel is None
    assert fused_attention.DISABLE in fused_attention.describe()


@jax_only
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": "float32"}, "float16 or bfloat16, not float32"),
        ({"head_size": 12}, "head size"),
        ({"head_size": 136}, "head size"),
        ({"lengths": (21, 128)}, "even"),
        ({"dropout": True}, "every step"),
    ],
)
def test_calls_that_cudnn_cannot_compute(kernel, options, reason):
    choice = choose(**options)
    assert choice.kernel is None
    assert reason in choice.reason


@jax_only
def test_a_machine_without_a_gpu_and_a_gpu_whose_driver_fails(monkeypatch):
    assert "no NVIDIA GPU" in choose().reason
    monkeypatch.setattr(fused_attention, "_has_nvidia_gpu", lambda: True)
    # There is no GPU, so the kernel does not compile. Training continues without it.
    choice = choose(head_size=72)
    assert choice.kernel is None
    assert "does not compile" in choice.reason
    assert "\n" not in choice.reason


@jax_only
def test_a_shape_that_cudnn_cannot_compile(kernel, monkeypatch):
    def fail(dtype, head_size, heads, lengths, masked):
        return "cuDNN's kernel does not compile" if lengths == (SEQ, SEQ) and masked else None

    monkeypatch.setattr(fused_attention, "_error_of_cudnn", fail)
    layer = attention("mixed_bfloat16")
    monkeypatch.setattr(fused_attention, "attend", None)
    assert layer(states(), attention_mask=PADDING).shape == (BATCH, SEQ, HIDDEN)
    with pytest.raises(TypeError):  # the kernel, which this test removed, computes other shapes
        layer(states())


@torch_only
def test_some_queries_in_float64():
    layer, double = attention("float32"), attention("float64")
    double.set_weights(layer.get_weights())
    results = [each(states(), **CASES["some queries"]) for each in (layer, double)]
    expected, contexts = map(keras.ops.convert_to_numpy, results)
    np.testing.assert_allclose(contexts, expected, atol=1e-5)


@torch_only
def test_dropout_of_torch_is_a_function_of_the_seed():
    layer = attention("float32", dropout=0.5)
    run = functools.partial(layer, states(), training=True)
    seeds.seed_torch(1, 2)
    first, second = (keras.ops.convert_to_numpy(run()) for _ in range(2))
    seeds.seed_torch(1, 2)
    again = keras.ops.convert_to_numpy(run())
    assert np.abs(first - second).max() > 0.1
    np.testing.assert_array_equal(first, again)
    samples = [keras.ops.convert_to_numpy(run()) for _ in range(300)]
    expected = keras.ops.convert_to_numpy(layer(states()))
    np.testing.assert_allclose(np.mean(samples, axis=0), expected, atol=0.5)


@jax_only
@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None, reason="needs jax[cuda12]"
)
@pytest.mark.parametrize("case", CASES)
def test_the_program_for_a_gpu_calls_cudnn(monkeypatch, case):
    """Lower the layer and its gradient for CUDA, which needs no GPU."""
    import jax

    monkeypatch.setattr(fused_attention, "_has_nvidia_gpu", lambda: True)
    monkeypatch.setattr(fused_attention, "_error_of_cudnn", lambda *args: None)
    layer = attention("mixed_bfloat16", dropout=0.1)
    weights = [variable.value for variable in layer.trainable_variables]
    others = [variable.value for variable in layer.non_trainable_variables]

    def loss(weights, training):
        contexts, _ = layer.stateless_call(
            weights, others, states(), training=training, **CASES[case]
        )
        return keras.ops.sum(keras.ops.cast(contexts, "float32"))

    def program(training):
        traced = jax.jit(jax.grad(functools.partial(loss, training=training))).trace(weights)
        return traced.lower(lowering_platforms=("cuda",)).as_text()

    text = program(training=False)
    assert "__cudnn$fmha" in text
    assert "Backward" in text
    assert "__cudnn$fmha" not in program(training=True)  # its dropout would not change
