"""Packing: full rows, each pair once, and the layout of rows."""

import numpy as np
import pytest

from keras_bert.pretraining import packing, pairs
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
    rows = packing.plan(lengths, length, most)
    check(rows, lengths, length, most)
    assert fill(rows, lengths, length) >= 0.97


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("length", "most"), [(8, 1), (16, 2), (64, 4), (128, 8)])
def test_each_pair_occurs_once_and_rows_fit(seed, length, most):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, length + 1, random.integers(1, 400))
    check(packing.plan(lengths, length, most), lengths, length, most)


def test_maximum_pairs_per_row():
    assert [len(row) for row in packing.plan(np.full(10, 2), 64, 4)] == [4, 4, 2]


def test_full_length_pairs_are_not_packed():
    assert packing.plan(np.array([8, 8, 8]), 8, 4) == [[0], [1], [2]]
    assert packing.plan(np.zeros(0, int), 8, 4) == []


def test_best_fit():
    # The row of 9 takes the 1. The row of 5 takes the 3 and then a 2.
    assert packing.plan(np.array([9, 5, 1, 3, 2]), 10, 4) == [[0, 2], [1, 3, 4]]


def test_plan_is_deterministic():
    lengths = np.random.default_rng(1).integers(5, 129, 2000)
    assert packing.plan(lengths, 128, 8) == packing.plan(lengths.astype(np.int32), 128, 8)


def drawn(count, length, predictions, seed=0):
    random = np.random.default_rng(seed)
    lengths = random.integers(5, length + 1, count)
    counts = random.integers(0, np.minimum(predictions, lengths) + 1)
    filled = np.arange(predictions) < counts[:, None]
    real = np.arange(length) < lengths[:, None]
    positions = np.array(
        [
            np.pad(np.sort(random.permutation(size)[:n]), (0, predictions - n))
            for size, n in zip(lengths, counts, strict=True)
        ]
    )
    return {
        "input_word_ids": np.where(real, random.integers(5, 99, (count, length)), 0),
        "input_type_ids": np.where(real, random.integers(0, 2, (count, length)), 0),
        "lengths": lengths,
        "positions": positions,
        "labels": np.where(filled, random.integers(5, 99, filled.shape), 0),
        "counts": counts,
        "is_random": random.integers(0, 2, count),
    }


def test_layout_of_packed_pairs():
    length, most, predictions = 64, 6, 5
    given = drawn(80, length, predictions)
    rows = packing.plan(given["lengths"], length, most)
    order = np.concatenate(rows)
    given = {key: value[order] for key, value in given.items()}
    sizes = np.array([len(row) for row in rows])
    packed = packing.pack(given, sizes, length, most, most * predictions)
    assert {key: (value.shape, str(value.dtype)) for key, value in packed.items()} == {
        **{
            key: ((len(rows), length), "int32")
            for key in ("input_word_ids", "input_type_ids", "position_ids", "text_ids")
        },
        "cls_positions": ((len(rows), most), "int32"),
        "is_random": ((len(rows), most), "int32"),
        "is_random_weights": ((len(rows), most), "float32"),
        "masked_lm_positions": ((len(rows), most * predictions), "int32"),
        "masked_lm_labels": ((len(rows), most * predictions), "int32"),
        "masked_lm_weights": ((len(rows), most * predictions), "float32"),
    }
    pair = 0
    for row, size in enumerate(sizes):
        at = slot = 0
        for number in range(size):
            one = {key: value[pair] for key, value in given.items()}
            n, count = one["lengths"], one["counts"]
            for key in ("input_word_ids", "input_type_ids"):
                assert (packed[key][row, at : at + n] == one[key][:n]).all()
            assert (packed["position_ids"][row, at : at + n] == np.arange(n)).all()
            assert (packed["text_ids"][row, at : at + n] == number + 1).all()
            assert packed["cls_positions"][row, number] == at
            assert packed["is_random"][row, number] == one["is_random"]
            these = slice(slot, slot + count)
            assert (
                packed["masked_lm_positions"][row, these] == one["positions"][:count] + at
            ).all()
            assert (packed["masked_lm_labels"][row, these] == one["labels"][:count]).all()
            at, slot, pair = at + n, slot + count, pair + 1
        for key in ("input_word_ids", "input_type_ids", "position_ids", "text_ids"):
            assert not packed[key][row, at:].any()
        assert packed["is_random_weights"][row].tolist() == [1.0] * size + [0.0] * (most - size)
        weights = packed["masked_lm_weights"][row]
        assert weights.tolist() == [1.0] * slot + [0.0] * (most * predictions - slot)
    assert pair == 80


def test_no_rows():
    given = {key: value[:0] for key, value in drawn(3, 16, 2).items()}
    packed = packing.pack(given, np.zeros(0, int), 16, 4, 6)
    assert packed["input_word_ids"].shape == (0, 16)
    assert packed["masked_lm_weights"].shape == (0, 6)
