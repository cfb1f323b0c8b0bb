"""Values and gradients of functions on every backend."""

import keras
import numpy as np


def value_and_gradient(function, points):
    """Return the value of a function and the gradient of its sum.

    Args:
        function: Takes and returns tensors.
        points: A float array, the argument of the function.

    Returns:
        `function(points)` and the gradient, NumPy arrays.

    Example:

    >>> value, gradient = value_and_gradient(lambda x: keras.ops.sum(x * x), np.float32([1, 2]))
    >>> float(value), gradient.tolist()
    (5.0, [2.0, 4.0])
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        def total(points):
            values = function(points)
            return values.sum(), values

        gradients, values = jax.grad(total, has_aux=True)(jax.numpy.asarray(points))
        return np.asarray(values), np.asarray(gradients)
    x = keras.ops.convert_to_tensor(points)
    if backend == "torch":
        import torch

        with torch.enable_grad():
            x.requires_grad_(True)
            values = function(x)
            (gradients,) = torch.autograd.grad(values.sum(), x)
    else:
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(x)
            values = function(x)
        gradients = tape.gradient(values, x)
    return keras.ops.convert_to_numpy(values), keras.ops.convert_to_numpy(gradients)
