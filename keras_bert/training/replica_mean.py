"""The mean loss of a batch whose rows TensorFlow splits over several replicas.

Keras averages the losses of the replicas, and each replica divides by the weights of its own rows.
So the row with the loss 9 would count twice here:

    weights of a batch        1    1    1    0
    loss of each row          2    4    9    -
    mean of each replica         3         9        the mean of both: 6

This module scales the weights to the mean 1 before the batch is split, and each replica divides by
its number of rows:

    scaled weights            4/3  4/3  4/3  0
    mean of each replica         4         6        the mean of both: 5 = (2 + 4 + 9) / 3
"""

import keras
import numpy as np

from keras_bert.data.batching import REDUCTION, with_reduction
from keras_bert.runtime import distribution


def is_needed():
    """Return True if a strategy of TensorFlow splits the batches over several replicas."""
    return keras.backend.backend() == "tensorflow" and distribution.replicas() > 1


def scaled_batch(batch, losses):
    """Scale the weights of a batch to the mean 1, for the losses that are weighted means."""
    inputs, targets, weights = batch

    def scaled(loss, weights_of_loss):
        if loss.reduction != REDUCTION:
            return weights_of_loss
        total = max(weights_of_loss.sum(), 1e-9)  # all weights can be 0
        return weights_of_loss * np.float32(weights_of_loss.size / total)

    return inputs, targets, keras.tree.map_structure(scaled, losses, weights)


def losses_of_scaled_batches(losses):
    """Replace weighted means by Keras' default mean, which divides by the number of rows."""

    def divided_by_rows(loss):
        return with_reduction(loss, "sum_over_batch_size") if loss.reduction == REDUCTION else loss

    return keras.tree.map_structure(divided_by_rows, losses)
