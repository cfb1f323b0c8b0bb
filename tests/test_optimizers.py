"""Tests of the optimizers against the formulas of the papers and of Google's code."""

import contextlib
import gc

import keras
import numpy as np
import pytest

from keras_bert import optimizers
from tests import contract


def first_moments(optimizer):
    return [v for v in optimizer.variables if v.name.endswith("momentum")]


def variable_at(path):
    """Return a variable of ones (2,) that has a path."""
    *scopes, name = path.split("/")
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        return keras.Variable(np.ones(2), dtype="float32", name=name)


def google_rate(step, peak, total, warmup):
    """Return the rate of `create_optimizer` in google-research/bert `optimization.py`."""
    decayed = peak * (1 - min(step, total) / total)  # polynomial_decay to 0, power 1
    return peak * step / warmup if step < warmup else decayed


@pytest.mark.parametrize(("total", "warmup"), [(100, 0), (100, 10), (10, 10), (7, 3), (1, 0)])
def test_schedule(total, warmup):
    schedule = optimizers.WarmupLinearDecay(2e-5, total, warmup)
    found = np.array([float(schedule(step)) for step in range(total + 3)])
    google = np.array([google_rate(step, 2e-5, total, warmup) for step in range(total + 3)])

    def equal(found, expected):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-11)

    equal(found[:warmup], google[:warmup])
    equal(found[total:], google[total:])
    # Google's decay starts at step 0, so its rate is lower by this difference.
    rest = np.arange(warmup, total)
    lower = 2e-5 * warmup / total * (total - rest) / max(total - warmup, 1)
    equal(found[rest] - lower, google[rest])
    if warmup < total:
        assert found.max() == found[warmup] == pytest.approx(2e-5)


@pytest.mark.parametrize(
    ("total", "warmup", "message"),
    [
        (0, 0, "total_steps=0"),
        (10, 11, "total_steps=10, warmup_steps=11"),
        (10, -1, "warmup_steps must be .* at least 0"),
        (10, 0.1, "warmup_steps must be an integer"),
    ],
)
def test_schedule_errors(total, warmup, message):
    with pytest.raises(ValueError, match=message):
        optimizers.adamw(1e-4, total_steps=total, warmup_steps=warmup)


def check_decay_in_fit():
    """With zero gradients, the decay shrinks matrices and does not change vectors."""
    encoder = contract.build("encoder", name="inner", num_hidden_layers=1)
    inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in encoder.input}
    x = encoder(inputs)["pooled_output"]
    model = keras.Model(inputs, keras.layers.Rescaling(0.0)(x))
    for variable in model.trainable_variables:
        variable.assign(np.ones(variable.shape))
    optimizer = optimizers.adamw(0.1, total_steps=10**6, weight_decay=0.5)
    model.compile(optimizer, "mse", jit_compile=keras.backend.backend() == "jax")
    model.train_on_batch(contract.batch(), np.zeros((3, 16)))
    for variable in model.trainable_variables:
        expected = 0.95 if variable.path.endswith(("kernel", "embeddings")) else 1.0
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, err_msg=variable.path)


def check_clipping():
    """The global norm of the gradients, seen in Adam's first moments, is at most 1."""
    variables = [keras.Variable(np.ones((2, 2))), keras.Variable(np.ones(3), name="bias")]
    for scale in (1e-2, 1e3):
        optimizer = optimizers.adamw(0.1, total_steps=10)
        optimizer.build(variables)
        gradients = [scale * np.full((2, 2), 2.0), scale * np.array([1.0, -2.0, 3.0])]
        norm = np.sqrt(sum((g**2).sum() for g in gradients))
        optimizer.apply([keras.ops.convert_to_tensor(g, "float32") for g in gradients])
        # After one step, m = 0.1 * gradient.
        moments = [m.numpy() / 0.1 for m in first_moments(optimizer)]
        for moment, gradient in zip(moments, gradients, strict=True):
            np.testing.assert_allclose(moment, gradient / max(norm, 1.0), rtol=1e-4)


def check_step():
    """Compare with Adam's formula, with bias correction and decoupled decay.

    Small gradients show that epsilon is added after the correction.
    """
    for scale in (1.0, 1e-6):
        kernel, bias = (
            keras.Variable(np.full((2, 2), 2.0)),
            keras.Variable(np.full(2, 2.0), name="bias"),
        )
        optimizer = optimizers.adamw(0.1, total_steps=10, warmup_steps=2, global_clipnorm=None)
        optimizer.build([kernel, bias])
        expected, m, v = {"kernel": 2.0, "bias": 2.0}, 0.0, 0.0
        for step, gradient in enumerate((0.3, -0.2, 0.5)):
            gradient *= scale
            rate = 0.1 * step / 2 if step < 2 else 0.1 * (10 - step) / 8
            optimizer.apply([keras.ops.full(x.shape, gradient) for x in (kernel, bias)])
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            update = m / (1 - 0.9 ** (step + 1))
            update = update / (np.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-6)
            for name in expected:
                decay = 0.01 * rate * expected[name] if name == "kernel" else 0
                expected[name] -= decay + rate * update
            np.testing.assert_allclose(kernel.numpy(), expected["kernel"], rtol=1e-5)
            np.testing.assert_allclose(bias.numpy(), expected["bias"], rtol=1e-5)


def check_lamb():
    """Compare with LAMB's formula; vectors follow Adam."""
    first, second = np.array([[3.0, 0.0], [0.0, 4.0]]), np.array([0.6, 0.8])
    kernel, vector = keras.Variable(first), keras.Variable(second, name="gamma")
    optimizer = optimizers.lamb(0.1, total_steps=10, warmup_steps=2, global_clipnorm=None)
    optimizer.build([kernel, vector])
    gradients = [np.array([[0.3, -0.1], [0.2, 0.4]]), np.array([-0.5, 0.1])]
    values, m, v = [first, second], [0.0, 0.0], [0.0, 0.0]
    for step in range(4):
        rate = 0.1 * step / 2 if step < 2 else 0.1 * (10 - step) / 8
        given = [g * (step + 1) for g in gradients]
        optimizer.apply([keras.ops.convert_to_tensor(g, "float32") for g in given])
        for index, gradient in enumerate(given):
            m[index] = 0.9 * m[index] + 0.1 * gradient
            v[index] = 0.999 * v[index] + 0.001 * gradient**2
            update = m[index] / (1 - 0.9 ** (step + 1))
            update = update / (np.sqrt(v[index] / (1 - 0.999 ** (step + 1))) + 1e-6)
            ratio = 1.0
            if index == 0:
                update = update + 0.01 * values[index]
                ratio = np.linalg.norm(values[index]) / np.linalg.norm(update)
            values[index] = values[index] - rate * ratio * update
        np.testing.assert_allclose(kernel.numpy(), values[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(vector.numpy(), values[1], rtol=1e-5, atol=1e-6)


def check_loss_scale_in_fit():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    before = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    policy = keras.dtype_policies.get("mixed_float16")
    inner = optimizers.adamw(0.1, total_steps=10**6, global_clipnorm=None)
    optimizer = optimizers.with_loss_scale(inner, policy)
    model.compile(optimizer, "mse", jit_compile=keras.backend.backend() == "jax")
    # A distant target, so that both steps have the same direction.
    model.fit(np.ones((4, 2)), np.full(4, 9.0), batch_size=4, epochs=2, verbose=0)
    assert int(inner.iterations) == 2 and float(optimizer.dynamic_scale) == 2.0**15
    for variable, value in zip(model.trainable_variables, before, strict=True):
        moved = np.abs(keras.ops.convert_to_numpy(variable) - value)
        np.testing.assert_allclose(moved, 0.2, atol=0.02)  # a step of Adam has the size of the rate


CHECKS = [check_decay_in_fit, check_clipping, check_step, check_lamb, check_loss_scale_in_fit]


@pytest.mark.parametrize("check", CHECKS)
def test_numbers(check):
    check()


def test_loss_scale():
    """Gradients that float16 rounds to 0 count; a step with infinite gradients is skipped."""
    policy = keras.dtype_policies.get("mixed_float16")
    inner = optimizers.adamw(0.1, total_steps=10**6, global_clipnorm=None, weight_decay=0.0)
    assert optimizers.with_loss_scale(inner, keras.dtype_policies.get("float32")) is inner
    optimizer = optimizers.with_loss_scale(inner, policy)
    variable = keras.Variable(np.zeros(2), dtype="float32")
    optimizer.build([variable])
    loss = float(optimizer.scale_loss(keras.ops.convert_to_tensor(1e-9, "float32")))
    assert np.float16(1e-9) == 0 and np.float16(loss) > 0
    optimizer.apply([keras.ops.full((2,), 1e-4 * 2**15)], [variable])
    np.testing.assert_allclose(first_moments(inner)[0].numpy(), 1e-5, rtol=1e-4)
    before = variable.numpy()
    optimizer.apply([keras.ops.full((2,), float("inf"))], [variable])
    np.testing.assert_array_equal(variable.numpy(), before)


def test_loss_scale_of_repeated_tokens():
    """The gradient of an embedding is the sum over the occurrences of a token."""
    tf = pytest.importorskip("tensorflow")
    optimizer = optimizers.with_loss_scale(
        keras.optimizers.SGD(1.0), keras.dtype_policies.get("mixed_float16")
    )
    table = keras.Variable(np.ones((3, 2)), dtype="float32")
    optimizer.build([table])
    for values in ([np.inf, 0.0], [6e4, 6e4]):  # the sum of 6e4 and 6e4 is infinite in float16
        rows = tf.constant(np.float16(values))[:, None] * tf.ones((1, 2), tf.float16)
        gradient = tf.IndexedSlices(rows, tf.constant([1, 1]), tf.constant([3, 2]))
        optimizer.apply([gradient], [table])
    np.testing.assert_array_equal(table.numpy(), np.ones((3, 2)))
    assert float(optimizer.dynamic_scale) == 2.0**13


def known_norm(optimizer, gradient, variable):
    optimizer.apply_with_norm([gradient], [variable], np.linalg.norm(gradient))


def loss_scale(optimizer, gradient, variable):
    optimizer.apply([gradient * np.float32(2**15)], [variable])


@pytest.mark.parametrize("apply", [known_norm, loss_scale])
def test_a_step_that_fails_leaves_no_state(apply):
    def new_optimizer():
        policy = "mixed_float16" if apply is loss_scale else "float32"
        optimizer = optimizers.adamw(0.1, total_steps=10)
        return optimizers.with_loss_scale(optimizer, keras.dtype_policies.get(policy))

    optimizer, variable = new_optimizer(), keras.Variable([1.0])
    apply(optimizer, np.float32([9.0]), variable)
    with pytest.raises(Exception):  # noqa: B017, PT011  # of the backend
        apply(optimizer, np.float32([90.0, 2.0, 3.0]), variable)
    other, expected = new_optimizer(), keras.Variable([1.0])
    for gradient in ([9.0], [0.5]):
        apply(other, np.float32(gradient), expected)
    apply(optimizer, np.float32([0.5]), variable)
    np.testing.assert_array_equal(variable.numpy(), expected.numpy())
    for found, wanted in zip(optimizer.variables, other.variables, strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())


@pytest.mark.parametrize("make", [optimizers.adamw, optimizers.lamb])
def test_serialization(make):
    optimizer = make(3e-5, total_steps=100, warmup_steps=10, weight_decay=0.02)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert (type(again), again.name) == (type(optimizer), make.__name__)
    assert again.get_config() == optimizer.get_config()
    assert again.get_config()["learning_rate"]["config"]["warmup_steps"] == 10


def test_the_graph_of_the_training_step_is_freed():
    """TensorFlow keeps a graph with a custom gradient, and so the weights that the graph reads."""

    def fit():
        model = keras.Sequential([keras.layers.Embedding(10, 4), keras.layers.Flatten()])
        model.compile(optimizers.adamw(1e-3, total_steps=4), "mse", jit_compile=False)
        model.fit(np.zeros((8, 3), "int32"), np.zeros((8, 12)), verbose=0)

    fit()
    gc.collect()
    before = graphs()
    fit()
    gc.collect()
    assert graphs() == before


def graphs():
    """Return the number of TensorFlow's function graphs in memory."""
    return sum(type(each).__name__ == "FuncGraph" for each in gc.get_objects())


def test_an_unused_nested_pooler_is_no_warning():
    paths = ["used", "outer/inner/pooler/dense/kernel", "pooler/dense/bias"]
    variables = list(map(variable_at, paths))
    optimizer = optimizers.adamw(0.1, total_steps=9)
    optimizer.build(variables)
    optimizer.apply([keras.ops.ones(2), None, None], variables)


@pytest.mark.parametrize("paths", [["other/dense/kernel"], ["pooler/dense/kernel", "mine/bias"]])
def test_any_other_variable_without_a_gradient_is_a_warning(paths):
    variables = list(map(variable_at, ["used", *paths]))
    optimizer = optimizers.adamw(0.1, total_steps=9)
    optimizer.build(variables)
    with pytest.warns(UserWarning, match="Gradients do not exist for variables"):
        optimizer.apply([keras.ops.ones(2), *[None] * len(paths)], variables)


def test_gradient_accumulation():
    """A step uses the mean gradient of two batches, and the schedule counts steps."""
    gradients = [0.3, -0.1, 0.5, 0.7, -0.2, 0.4]
    options = {"global_clipnorm": None, "weight_decay": 0.1}
    schedule = {"total_steps": 3, "warmup_steps": 1}
    kernel, other = (keras.Variable(np.full((2, 2), 2.0), dtype="float32") for _ in range(2))
    optimizer = optimizers.adamw(0.1, gradient_accumulation_steps=2, **schedule, **options)
    optimizer.build([kernel])
    plain = optimizers.AdamW(0.1, weight_decay=0.1, epsilon=1e-6)
    plain.build([other])
    rates = [0.0, 0.0, 0.1, 0.1, 0.05, 0.05]
    for batch, gradient in enumerate(gradients):
        before = kernel.numpy()
        assert float(optimizer.learning_rate) == pytest.approx(rates[batch])
        optimizer.apply([keras.ops.full((2, 2), gradient)])
        if batch % 2 == 0:
            np.testing.assert_array_equal(kernel.numpy(), before)
            continue
        plain.learning_rate = rates[batch]
        plain.apply([keras.ops.full((2, 2), (gradients[batch - 1] + gradient) / 2)])
        np.testing.assert_allclose(kernel.numpy(), other.numpy(), rtol=1e-6)
    assert kernel.numpy()[0, 0] != 2.0


@pytest.mark.parametrize("global_clipnorm", [None, 4.5])
@pytest.mark.parametrize("make", [optimizers.adamw, optimizers.lamb])
def test_sparse_gradients_equal_dense_ones(make, global_clipnorm):
    """A row was looked up twice. The norm of the sum is 4.3, and of the separate rows 4.8."""
    import tensorflow as tf

    values = []
    for is_sparse in (True, False):
        table = keras.Variable(np.arange(1.0, 7.0).reshape(3, 2), dtype="float32")
        optimizer = make(0.1, total_steps=9, global_clipnorm=global_clipnorm)
        optimizer.build([table])
        for _ in range(3):
            rows = tf.constant([[1.0, 1.0], [2.0, 2.0], [-3.5, 1.0]])
            gradient = tf.IndexedSlices(rows, tf.constant([0, 2, 0]), tf.constant([3, 2]))
            optimizer.apply([gradient if is_sparse else tf.convert_to_tensor(gradient)])
        values.append([table.numpy(), *(moment.numpy() for moment in first_moments(optimizer))])
    for found, expected in zip(*values, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert (values[0][0][0] != [1.0, 2.0]).all()


def test_amsgrad_is_that_of_keras():
    found = []
    for adamw in (optimizers.AdamW, keras.optimizers.AdamW):
        variable = keras.Variable(np.ones((2, 2)), dtype="float32")
        optimizer = adamw(0.1, amsgrad=True)
        optimizer.build([variable])
        for gradient in (0.3, -0.2, 0.1):
            optimizer.apply([keras.ops.full((2, 2), gradient)])
        found.append(variable.numpy())
    np.testing.assert_array_equal(*found)
