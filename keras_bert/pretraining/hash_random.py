"""Random numbers that are hashes: of a key, of a number and of a position.

So each depends on nothing that was drawn before, all of many are drawn at once, and they are the
same on every machine and with every version of NumPy.
"""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the step of splitmix64


def key_of(*numbers):
    """A key of 64 bits from whole numbers, such as a seed and an epoch.

    Example:

    >>> key_of(0, 1) == key_of(0, 1), key_of(0, 1) == key_of(1, 0)
    (True, False)
    """
    state = np.zeros(1, np.uint64)
    for number in numbers:
        state = _mix(state + np.array([number % 2**64], np.uint64) + _GOLDEN)
    return int(state[0])


def hashes(key, numbers, count, purpose):
    """A hash for each number and each of `count` positions.

    Args:
        key: what `key_of` returns.
        numbers: whole numbers from 0, such as those of sequences, (numbers,).
        count: positions, below 2**32.
        purpose: a small whole number; who needs several hashes of one position counts them so.

    Returns:
        uint64 (numbers, count).

    Example:

    >>> first, second = hashes(7, [3, 5], 4, purpose=0)
    >>> bool((hashes(7, [5], 4, purpose=0) == second).all()), bool((first == second).any())
    (True, False)
    """
    row = np.asarray(numbers, np.uint64)
    row = _mix(row * _GOLDEN + np.array([key], np.uint64))[:, None]  # (numbers, 1)
    column = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(purpose << 32)) * _GOLDEN
    return _mix(row + column)


def uniform(bits):
    """Hashes, uint64 of any shape, to numbers from 0 up to 1, float64.

    Example:

    >>> uniform(np.array([0, 2**63, 2**64 - 1], np.uint64)).round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    return (bits >> np.uint64(11)) * 2.0**-53


def _mix(x):
    """The finalizer of splitmix64 (Steele et al., 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
