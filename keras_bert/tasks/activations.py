"""Probabilities from logits, in float32."""

import numpy as np
import scipy.special


def softmax(logits) -> np.ndarray:
    """Return the softmax over the last axis."""
    return scipy.special.softmax(np.asarray(logits, np.float32), axis=-1)


def sigmoid(logits) -> np.ndarray:
    """Return the sigmoid of each logit."""
    return scipy.special.expit(np.asarray(logits, np.float32))


# Lines of Python that compute the same as these functions, see `Task.graph_program`.
SOFTMAX_PROGRAM = """\
logits = outputs["logits"]
weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
answers = weights / weights.sum(axis=-1, keepdims=True)  # the probabilities"""
SIGMOID_PROGRAM = """\
answers = 1 / (1 + np.exp(-outputs["logits"]))  # the probability of each label"""
