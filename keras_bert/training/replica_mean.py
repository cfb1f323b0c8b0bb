"""The mean loss of a batch that a strategy of TensorFlow splits over its replicas.

Keras averages the losses of the replicas. The losses of tasks divide by the weights of their own
rows, so a row would count more beside rows of weight 0. Here the weights of a batch are divided
before it is split:

    weights of a batch          1 1 1 0        of which two replicas get 1 1 and 1 0
    scaled, with the mean 1     4/3 4/3 4/3 0
    loss of each row            3 6 9 -
    mean of each replica        (4 + 8) / 2 = 6 and (12 + 0) / 2 = 6
    mean of the replicas        6, as (3 + 6 + 9) / 3
"""

import keras
import numpy as np

from keras_bert.data.batching import REDUCTION
from keras_bert.runtime import distribution


def is_needed():
    """Return True if a strategy of TensorFlow splits the batches over several replicas."""
    return keras.backend.backend() == "tensorflow" and distribution.replicas() > 1


def scale_weights(batch, losses):
    """Scale the weights of a batch to the mean 1 where the loss is a weighted mean."""
    inputs, targets, weights = batch

    def scaled(loss, weights):
        if loss.reduction != REDUCTION:
            return weights
        return weights * np.float32(weights.size / max(weights.sum(), 1e-9))

    return inputs, targets, keras.tree.map_structure(scaled, losses, weights)


def of_scaled_weights(losses):
    """Return the losses for batches of `scale_weights`: weighted means divide by the rows."""

    def by_rows(loss):
        return with_reduction(loss, "sum_over_batch_size") if loss.reduction == REDUCTION else loss

    return keras.tree.map_structure(by_rows, losses)


def with_reduction(loss, reduction):
    """Return a copy of a loss with another reduction."""
    # Not from the config, which can lack arguments, and not `copy`, which uses it.
    copied = object.__new__(type(loss))
    copied.__dict__.update(loss.__dict__)
    copied.reduction = reduction
    return copied
