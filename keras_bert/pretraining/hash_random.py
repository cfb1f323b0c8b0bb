"""Counter-based random numbers: each one is a hash of a key, a number and a position.

A number does not depend on earlier ones, and many are computed in one vectorized call. They are
equal on every machine and with every version of NumPy.
"""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # increment of splitmix64


def key_of(*numbers):
    """Return a 64-bit key for integers, such as a seed and an epoch.

    Example:

    >>> key_of(0, 1) == key_of(0, 1), key_of(0, 1) == key_of(1, 0)
    (True, False)
    """
    state = np.zeros(1, np.uint64)
    for number in numbers:
        state = _mix(state + np.array([number % 2**64], np.uint64) + _GOLDEN)
    return int(state[0])


def hashes(key, numbers, count, purpose):
    """Return a hash for each number and each of `count` positions.

    Args:
        key: The result of `key_of`.
        numbers: Non-negative integers, such as indices of sequences, (numbers,).
        count: Number of positions, below 2**32.
        purpose: A small integer. Different purposes give independent hashes of one position.

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
    """Convert hashes, uint64 of any shape, to float64 numbers in [0, 1).

    Example:

    >>> uniform(np.array([0, 2**63, 2**64 - 1], np.uint64)).round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    return (bits >> np.uint64(11)) * 2.0**-53


def _mix(x):
    """Apply the finalizer of splitmix64 (Steele et al., 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
