"""Counter-based random numbers: each one is a hash of a key, a number and a position.

A hash does not depend on earlier hashes, and one vectorized call computes many. Hashes are equal on
every machine and with every version of NumPy.
"""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # increment of splitmix64


def key_of(*numbers):
    """Return a 64-bit key, an int, for integers in a given order, such as a seed and an epoch."""
    state = np.zeros(1, np.uint64)
    for number in numbers:
        state = _mix(state + np.array([number % 2**64], np.uint64) + _GOLDEN)
    return int(state[0])


def hashes(key, numbers, count, purpose):
    """Return hashes, uint64 (numbers, count), of each number and each of `count` positions.

    `numbers` are non-negative integers (numbers,), such as indices of sequences. `count` is below
    2**32. `purpose` is a small integer; different purposes give independent hashes.
    """
    row = np.asarray(numbers, np.uint64)
    row = _mix(row * _GOLDEN + np.array([key], np.uint64))[:, None]  # (numbers, 1)
    column = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(purpose << 32)) * _GOLDEN
    return _mix(row + column)


def uniform(bits):
    """Convert hashes, uint64 of any shape, to float64 numbers in [0, 1)."""
    return (bits >> np.uint64(11)) * 2.0**-53


def _mix(x):
    """Apply the finalizer of splitmix64 (Steele et al., 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
