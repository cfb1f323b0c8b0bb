"""Probabilities from logits, in float32."""

import numpy as np
import scipy.special


def softmax(logits) -> np.ndarray:
    """Return the softmax over the last axis."""
    return scipy.special.softmax(np.asarray(logits, np.float32), axis=-1)


def sigmoid(logits) -> np.ndarray:
    """Return the sigmoid of each logit."""
    return scipy.special.expit(np.asarray(logits, np.float32))
