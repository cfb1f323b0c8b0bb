"""Loss and accuracy over a vocabulary, compared to Keras', and with large logits."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert.pretraining import losses
from keras_bert.runtime.gradients import value_and_gradient


@pytest.fixture
def batch():
    """Return labels (3, 4), logits (3, 4, 50) and weights (3, 4), some of them 0."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 50, (3, 4))
    logits = random.normal(0, 3, (3, 4, 50)).astype("float32")
    return labels, logits, random.integers(0, 3, (3, 4)).astype("float32")


def keras_own():
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )


def gradient(loss, labels, logits, weights):
    """Return the gradient of the loss with respect to the logits."""
    return value_and_gradient(lambda logits: loss(labels, logits, weights), logits)[1]


def test_loss_and_gradient_equal_keras(batch):
    assert float(losses.PieceCrossentropy()(*batch)) == pytest.approx(float(keras_own()(*batch)))
    found, expected = (gradient(loss, *batch) for loss in (losses.PieceCrossentropy(), keras_own()))
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert not found[batch[2] == 0].any()


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_large_logits(size):
    logits = np.array([[[size, 0.0, -size]]], "float32")
    for label, expected in ((0, 0.0), (1, size), (2, 2 * size)):
        labels, ones = np.array([[label]]), np.ones((1, 1), "float32")
        assert float(losses.PieceCrossentropy()(labels, logits)) == pytest.approx(expected)
        found = gradient(losses.PieceCrossentropy(), labels, logits, ones)
        expected = np.eye(3)[0] - np.eye(3)[label]
        np.testing.assert_allclose(found[0, 0], expected, atol=1e-7)


def test_loss_reloads():
    loss = losses.PieceCrossentropy(name="mine")
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert (again.name, again.reduction, again.dtype) == ("mine", loss.reduction, "float32")


def test_accuracy(batch):
    labels, logits, weights = batch
    logits[0, 0, labels[0, 0]] = logits[1, 2, labels[1, 2]] = 20.0
    metric, own = losses.accuracy(), keras.metrics.SparseCategoricalAccuracy()
    for each in (metric, own):
        each.update_state(labels, logits, weights)
    assert float(metric.result()) == pytest.approx(float(own.result())) and float(metric.result())
    assert metric.name == "accuracy"


def test_tie_counts_as_correct():
    metric = losses.accuracy()
    metric.update_state(ops.array([1]), ops.array([[3.0, 3.0, 1.0]]))
    assert float(metric.result()) == 1.0
