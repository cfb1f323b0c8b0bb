"""Random numbers from hashes: uniform, independent and reproducible."""

import numpy as np
import pytest

from keras_bert.pretraining import hash_random


def test_keys():
    keys = {hash_random.key_of(a, b) for a in range(-20, 20) for b in range(40)}
    assert len(keys) == 1600 and all(0 <= key < 2**64 for key in keys)
    assert hash_random.key_of(2**64 + 3) == hash_random.key_of(3)
    assert hash_random.key_of(0, 1, 2) == GOLDEN_KEY


def test_hashes_are_unique():
    """For different keys, numbers, positions and purposes."""
    tables = [
        hash_random.hashes(key, np.arange(50), 200, purpose) for key in (0, 1, 2**64 - 1)
        for purpose in range(10)
    ]  # fmt: skip
    assert len(np.unique(np.stack(tables))) == 3 * 10 * 50 * 200


def test_hashes_are_uniform_and_independent():
    columns = [
        hash_random.uniform(hash_random.hashes(key, [0], 20_000, purpose)[0])
        for key in (0, 1)
        for purpose in range(10)
    ]
    for column in columns:
        assert column.min() >= 0 and column.max() < 1
        counts = np.histogram(column, bins=20, range=(0, 1))[0]
        assert ((counts - 1000) ** 2 / 1000).sum() < 50  # chi-squared, 19 degrees: p < 2e-4
        assert abs(np.corrcoef(column[1:], column[:-1])[0, 1]) < 0.04
    correlations = np.corrcoef(columns) - np.eye(len(columns))
    assert abs(correlations).max() < 0.04  # five deviations


def test_highest_hash_is_below_one():
    assert hash_random.uniform(np.array([2**64 - 1], np.uint64))[0] == 1 - 2.0**-53


@pytest.mark.parametrize(("purpose", "place"), [(0, 0), (9, 1)])
def test_golden(purpose, place):
    """The hashes are equal on every machine and NumPy; these numbers must never change."""
    assert (
        int(hash_random.hashes(hash_random.key_of(1, 2), [3], 2, purpose)[0, place])
        == GOLDEN[purpose]
    )


GOLDEN_KEY = 17650578182555822980
GOLDEN = {0: 17202592305669192729, 9: 14567820634652336413}
