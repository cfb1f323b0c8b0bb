"""Packing: full rows, each pair once, and the layout of rows."""

import dataclasses

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


def test_maximum_pairs_per_row():
    assert [len(row) for row in packed_pairs.plan(np.full(10, 2), 64, 4)] == [4, 4, 2]


def test_full_length_pairs_are_not_packed():
    assert packed_pairs.plan(np.array([8, 8, 8]), 8, 4) == [[0], [1], [2]]
    assert packed_pairs.plan(np.zeros(0, int), 8, 4) == []


def test_best_fit():
    # The row of 9 takes the 1. The row of 5 takes the 3 and then a 2.
    assert packed_pairs.plan(np.array([9, 5, 1, 3, 2]), 10, 4) == [[0, 2], [1, 3, 4]]


def test_plan_is_deterministic():
    lengths = np.random.default_rng(1).integers(5, 129, 2000)
    assert packed_pairs.plan(lengths, 128, 8) == packed_pairs.plan(lengths.astype(np.int32), 128, 8)


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
    return packed_pairs.MaskedPairs(
        word_ids=np.where(real, random.integers(5, 99, (count, length)), 0).astype(np.int32),
        type_ids=np.where(real, random.integers(0, 2, (count, length)), 0).astype(np.int32),
        lengths=lengths,
        positions=positions,
        labels=np.where(filled, random.integers(5, 99, filled.shape), 0),
        counts=counts,
        is_random=random.integers(0, 2, count).astype(np.int32),
    )


def select(pairs_of_texts, indices):
    """Return the `MaskedPairs` with some indices."""
    fields = dataclasses.fields(pairs_of_texts)
    return packed_pairs.MaskedPairs(
        *(getattr(pairs_of_texts, field.name)[indices] for field in fields)
    )


def test_layout_of_packed_pairs():
    length, most, predictions = 64, 6, 5
    given = drawn(80, length, predictions)
    rows = packed_pairs.plan(given.lengths, length, most)
    given = select(given, np.concatenate(rows))
    sizes = np.array([len(row) for row in rows])
    inputs, targets, weights = packed_pairs.pack(given, sizes, length, most, most * predictions)
    of_positions = ("input_word_ids", "input_type_ids", "position_ids", "text_ids")
    pair = 0
    for row, size in enumerate(sizes):
        at = slot = 0
        for index in range(size):
            n = given.lengths[pair]
            count = given.counts[pair]
            assert (inputs["input_word_ids"][row, at : at + n] == given.word_ids[pair, :n]).all()
            assert (inputs["input_type_ids"][row, at : at + n] == given.type_ids[pair, :n]).all()
            assert (inputs["position_ids"][row, at : at + n] == np.arange(n)).all()
            assert (inputs["text_ids"][row, at : at + n] == index + 1).all()
            assert inputs["cls_positions"][row, index] == at
            assert targets["next_sentence"][row, index] == given.is_random[pair]
            slots = slice(slot, slot + count)
            positions = given.positions[pair, :count] + at
            assert (inputs["masked_lm_positions"][row, slots] == positions).all()
            assert (targets["masked_lm"][row, slots] == given.labels[pair, :count]).all()
            at += n
            slot += count
            pair += 1
        for key in of_positions:
            assert not inputs[key][row, at:].any()
        assert weights["next_sentence"][row].tolist() == [1.0] * size + [0.0] * (most - size)
        assert weights["masked_lm"][row].tolist() == [1.0] * slot + [0.0] * (
            most * predictions - slot
        )
    assert pair == 80


def test_no_rows():
    none = select(drawn(3, 16, 2), slice(0))
    inputs, _, weights = packed_pairs.pack(none, np.zeros(0, int), 16, 4, 6)
    assert inputs["input_word_ids"].shape == (0, 16)
    assert weights["masked_lm"].shape == (0, 6)
