"""Seeds of a run, without a change of the caller's random numbers."""

import contextlib
import random

import keras
import numpy as np


@contextlib.contextmanager
def seeded(seed):
    """Let `seed` determine the weights of the layers that the block creates.

    Keras draws the seeds of initializers from Python's generator. After the block, the generators
    of Python and NumPy are as before. Those of TensorFlow and torch stay seeded: torch draws
    dropout from its own.
    """
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    keras.utils.set_random_seed(seed)
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
