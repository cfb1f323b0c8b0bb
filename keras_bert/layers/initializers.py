"""Initial values of the weights."""

import contextlib
import contextvars

import keras

_override = contextvars.ContextVar("without_initial_weights", default=None)


def initializer(stddev):
    """Return a truncated normal initializer, as Google's `create_initializer`.

    Args:
        stddev: Standard deviation.

    Returns:
        A `keras.initializers.Initializer`.

    Example:

    >>> tuple(initializer(0.02)((2, 3)).shape)
    (2, 3)
    """
    return _override.get() or keras.initializers.TruncatedNormal(stddev=stddev)


@contextlib.contextmanager
def without_initial_weights(zeros=None):
    """Context manager in which new layers start with zeros.

    Use it if the weights are replaced after building. Drawing random numbers takes most of the time
    of building a BERT.

    Args:
        zeros: The initializer to use. Defaults to `keras.initializers.Zeros()`.

    Example:

    >>> with without_initial_weights():
    ...     float(initializer(0.02)((1, 1))[0, 0])
    0.0
    """
    token = _override.set(zeros or keras.initializers.Zeros())
    try:
        yield
    finally:
        _override.reset(token)
