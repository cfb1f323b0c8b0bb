"""What the layers compute between two matmuls can be run by a function that they share.

`mixed_training` sets such a function. Without it, the layers run as Keras runs them.
"""

import contextlib
import contextvars
import functools

from keras import ops

from keras_bert import keras_private

_runner: contextvars.ContextVar = contextvars.ContextVar("runner", default=None)


@contextlib.contextmanager
def run_by(runner):
    """Let `runner(method, layer, tensors)` call the functions that `between_matmuls` decorates."""
    token = _runner.set(runner)
    try:
        yield
    finally:
        _runner.reset(token)


def between_matmuls(method):
    """Decorate a function without large matmuls.

    Its first argument is a layer or a tuple of layers, the others are tensors or `None`. All its
    calls in a model differ only in weights and tensors, so they can share a compiled function.
    """

    @functools.wraps(method)
    def call(layer, *tensors):
        runner = _runner.get()
        if runner is None:
            return method(layer, *tensors)
        return runner(method, layer, tensors)

    return call


def matmul(dense, x):
    """Apply a dense layer. Under a runner, leave out the bias, which `add_bias` adds later."""
    if _runner.get() is None:
        return dense(x)
    return ops.matmul(x, ops.cast(dense.kernel, x.dtype))


def add_bias(dense, y):
    """Add the bias that `matmul` left out under a runner."""
    if _runner.get() is None:
        return y
    return _on_rows(lambda rows: rows + dense.bias, y)


def normalize(layer_norm, x):
    """Apply a layer of class `keras.layers.LayerNormalization`."""
    if _runner.get() is None:
        return layer_norm(x)

    def normalize_rows(rows):
        centered = rows - ops.mean(rows, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        # The gradient of Keras' formula is slower.
        scale = ops.rsqrt(variance + layer_norm.epsilon)
        return centered * scale * layer_norm.gamma + layer_norm.beta

    return _on_rows(normalize_rows, x)


def _on_rows(function, x):
    """Apply a function to x as a matrix: XLA sums the gradient of a vector faster over one axis."""
    rows = ops.reshape(x, (-1, x.shape[-1]))
    return ops.reshape(function(rows), ops.shape(x))


def lookup(embedding, ids):
    """Apply an embedding layer. For a runner, the rows keep the dtype of the table."""
    if _runner.get() is None:
        return embedding(ids)
    # The layer casts its whole table, and the gradient of the whole table.
    with keras_private.without_autocast():
        return ops.take(embedding.embeddings, ids, axis=0)
