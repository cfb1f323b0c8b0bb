"""Seeds of a run, without a change of the caller's random numbers."""

import contextlib
import random

import keras
import numpy as np


@contextlib.contextmanager
def seeded(seed):
    """Let `seed` determine the weights of the layers that the block creates.

    Keras draws the seeds of initializers and of dropout from Python's generator.
    """
    with random_state_kept():
        random.seed(seed)
        np.random.seed(seed)
        yield


def seed_torch(*numbers):
    """On the torch backend, seed torch's generators, from which dropout draws.

    Args:
        *numbers: Integers of at least 0, such as the seed of a run and the index of a batch.
    """
    if keras.backend.backend() == "torch":
        import torch

        torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1)[0]))


@contextlib.contextmanager
def random_state_kept():
    """Restore the state of the generators of Python, NumPy and torch after the block.

    It is also a decorator: `@random_state_kept()`.
    """
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    try:
        with _torch_state_kept():
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _torch_state_kept():
    if keras.backend.backend() != "torch":
        return contextlib.nullcontext()
    import torch

    return torch.random.fork_rng(range(torch.cuda.device_count()))
