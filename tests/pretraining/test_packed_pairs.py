"""Packing: full rows, each pair once, and the layout of rows."""

import numpy as np
import pytest

from keras_bert.pretraining import packed_pairs, pairs
from tests import prose


def fill(rows, lengths, length):
    return lengths.sum() / (len(rows) * length)


def check(rows, lengths, length, most):
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    for row in rows:
        assert 1 <= len(row) <= most
        assert sum(lengths[index] for index in row) <= length


@pytest.mark.parametrize("length", [128, 512])
def test_rows_are_full(length):
    # Like Wikipedia: most articles are short, a few are long; about 25 tokens per sentence.
    random = np.random.default_rng(0)
    counts = np.clip(random.lognormal(2.3, 1.0, 1500).astype(int), 1, 200)
    given = [
        [["zab"] * int(words) for words in np.clip(random.normal(25, 11, count), 3, 128)]
        for count in counts
    ]
    lengths = pairs.draw(prose.in_memory(given), length, key=0).lengths
    most = max(4, length // 16)
    rows = packed_pairs.plan(lengths, length, most)
    check(rows, lengths, length, most)
    assert fill(rows, lengths, length) >= 0.97


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("length", "most"), [(8, 1), (16, 2), (64, 4), (128, 8)])
def test_each_pair_occurs_once_and_rows_fit(seed, length, most):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, length + 1, random.integers(1, 400))
    check(packed_pairs.plan(lengths, length, most), lengths, length, most)


def test_small_plans():
    assert [len(row) for row in packed_pairs.plan(np.full(10, 2), 64, 4)] == [4, 4, 2]
    assert packed_pairs.plan(np.array([8, 8, 8]), 8, 4) == [[0], [1], [2]]
    assert packed_pairs.plan(np.zeros(0, int), 8, 4) == []
    # The row of 9 takes the 1. The row of 5 takes the 3 and then a 2.
    assert packed_pairs.plan(np.array([9, 5, 1, 3, 2]), 10, 4) == [[0, 2], [1, 3, 4]]
