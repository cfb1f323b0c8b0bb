"""Checks of several modules on other backends, and on the replicas of TensorFlow.

A process per backend runs all checks, since most of its time goes into imports.
"""

import ast

import numpy as np
import pytest

CHECKS = """
import sys
from tests import test_encoder, test_heads, test_optimizers

test_encoder.check_optional_inputs()
test_encoder.check_optional_inputs_in_a_functional_model(sys.argv[1])
test_heads.check_packed()
for check in test_optimizers.CHECKS:
    check()
"""
ON_TWO_REPLICAS = """
import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

import keras

from keras_bert import layers, optimizers

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    dropout = layers.Dropout(0.5, seed=0)
    dropout.build((4, 8))
    kernel = keras.Variable([[0.0, 0.0]])
    optimizer = optimizers.adamw(0.1, total_steps=10, global_clipnorm=1.0)
    optimizer.build([kernel])


@tf.function
def masks():
    return strategy.run(lambda: dropout(tf.ones((4, 8)), training=True))


def step():
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    optimizer.apply([tf.constant([[3.0, 0.0], [0.0, 4.0]])[replica][None]], [kernel])


for _ in range(2):
    for mask in masks().values:
        print("mask", mask.numpy().tolist())
tf.function(lambda: strategy.run(step))()
(momentum,) = [v for v in optimizer.variables if v.name.endswith("momentum")]
print("momentum", keras.ops.convert_to_numpy(momentum).tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", pytest.param("torch", marks=pytest.mark.peers)])
def test_other_backends(python, tmp_path, backend):
    pytest.importorskip(backend)
    python("-c", CHECKS, tmp_path / "model.keras", backend=backend)


@pytest.mark.slow
def test_replicas(python):
    """Each replica and step has its own dropout mask; the sum over the replicas is clipped."""
    printed = {"mask": [], "momentum": []}
    for line in python("-c", ON_TWO_REPLICAS).splitlines():
        name, _, values = line.partition(" ")
        if name in printed:
            printed[name].append(ast.literal_eval(values))
    assert len(printed["mask"]) == len(set(map(str, printed["mask"]))) == 4
    # The norm of (3, 0) + (0, 4) is 5. Clipped separately, the sum would be (1, 1).
    expected = [[[0.1 * 3 / 5, 0.1 * 4 / 5]]]
    np.testing.assert_allclose(printed["momentum"], expected, rtol=1e-5)
