"""Keras' private methods and attributes that we use. A test fails if Keras changes one."""

import pathlib
import re

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import keras_private, optimizers

OVERRIDDEN = [
    "_apply_weight_decay",
    "_clip_gradients",
    "_all_reduce_sum_gradients",
    "_backend_update_step",
]
# Private names that only keras_private.py may contain.
PRIVATE = r"keras\.src|\._keras_history|_inbound_nodes|_flatten_layers|\._iterations\b"
PRIVATE += r"|_run_through_graph|_distribution_strategy|\._initializer\b|_loss_tracker|_load_state"
PRIVATE += r"|_convert_input_args|_allow_non_tensor_positional_args|\._trainable_variables"
PRIVATE += r"|optimizer\._learning_rate|_momentums|_velocities|\._value\b|"
PRIVATE += "|".join([*OVERRIDDEN, "_use_weight_decay", "_get_variable_index"])


@pytest.mark.parametrize("make", [optimizers.adamw, optimizers.lamb])
def test_keras_calls_each_override_and_builds_the_moments(make, monkeypatch):
    called = set()

    def record(name):
        method = getattr(keras_private.BertOptimizerMixin, name)

        def call(self, *args):
            called.add(name)
            return method(self, *args)

        monkeypatch.setattr(keras_private.BertOptimizerMixin, name, call)

    for name in OVERRIDDEN:
        record(name)
    optimizer, kernel = make(0.1, total_steps=9), keras.Variable(np.ones((2, 2)), name="kernel")
    optimizer.apply([keras.ops.ones((2, 2))], [kernel])
    assert called == set(OVERRIDDEN)
    index = optimizer._get_variable_index(kernel)
    for moments in (optimizer._momentums, optimizer._velocities):
        assert moments[index].shape == kernel.shape
        assert keras.ops.convert_to_numpy(moments[index]).all()


def test_replace_value():
    import tensorflow as tf

    variable, value = keras.Variable([1.0]), tf.Variable([2.0])
    keras_private.replace_value(variable, value)
    value.assign([3.0])
    assert variable.value is value and variable.numpy() == [3.0]


def test_last_learning_rate_counts_batches():
    optimizer = optimizers.adamw(1.0, total_steps=4, gradient_accumulation_steps=2)
    optimizer.build([keras.Variable([1.0])])
    rates = []
    for _ in range(4):
        optimizer.apply([keras.ops.ones(1)])
        rates.append(keras_private.last_learning_rate(optimizer))
    assert rates == [1.0, 1.0, 0.75, 0.75]
    scaled = keras.optimizers.LossScaleOptimizer(optimizer)
    assert keras_private.last_learning_rate(scaled) == 0.75


def test_no_other_module_uses_private_names():
    folder = pathlib.Path(keras_bert.__file__).parent
    for file in folder.rglob("*.py"):
        if file.name != "keras_private.py":
            found = re.search(PRIVATE, file.read_text("utf-8"))
            assert found is None, f"{file.relative_to(folder)} uses {found[0]}"


def test_variables_of_zeros():
    seen = []
    with keras_private.variables_of_zeros(lambda variable: seen.append(tuple(variable.shape))):
        inputs = keras.Input((3,))
        dense = keras.layers.Dense(2, lora_rank=1, bias_initializer="ones")
        model = keras.Model(inputs, keras.layers.Dropout(0.5)(dense(inputs)))
    assert {(3, 2), (2,)} <= set(seen)
    values = {weight.name: keras.ops.convert_to_numpy(weight) for weight in dense.weights}
    assert not values["kernel"].any()
    assert values["bias"].all()
    assert values["lora_kernel_a"].all()  # zeros could not be trained
    model(np.ones((1, 3)), training=True)


def test_a_refused_variable_leaves_no_other():
    def refuse(variable):
        raise ValueError("too large")

    layer = keras.layers.Dense(2)
    with pytest.raises(ValueError, match="too large"), keras_private.variables_of_zeros(refuse):
        layer.build((None, 3))
    with keras.StatelessScope():  # it creates the variables that are left
        keras.layers.Dense(2)
    assert keras.Variable(np.ones(2)).shape == (2,)


def test_without_autocast():
    class Scale(keras.layers.Layer):
        def __init__(self):
            super().__init__(dtype="mixed_bfloat16")
            self.scale = self.add_weight(shape=())

        def call(self, x):
            inside = self.scale + 0
            with keras_private.without_autocast():
                return [inside, self.scale + 0]

    dtypes = [keras.backend.standardize_dtype(each.dtype) for each in Scale()(np.ones(1))]
    assert dtypes == ["bfloat16", "float32"]


def test_the_mean_loss_of_fit():
    class Constant(keras.Model):
        def train_step(self, data):
            rows = len(data[0])
            keras_private.update_loss(self, float(rows), rows)
            return self.get_metrics_result()

    if keras.backend.backend() != "tensorflow":
        pytest.skip("`train_step` has other arguments on other backends")
    model = Constant()
    model.compile("sgd", "mse", run_eagerly=True)
    history = model.fit(np.ones((4, 1)), np.ones((4, 1)), batch_size=3, verbose=0).history
    assert history["loss"] == [(3 * 3 + 1 * 1) / 4]
