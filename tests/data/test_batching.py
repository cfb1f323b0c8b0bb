"""Tests of batches: every sequence once, little padding, few shapes for compiled steps."""

import time

import numpy as np
import pytest

from keras_bert.data.batching import (
    LENGTHS,
    Batches,
    SortedBatches,
    choose_compiled_lengths,
    choose_lengths,
)
from keras_bert.text.encoded_texts import EncodedTexts
from tests import tiny


@pytest.fixture(scope="module")
def preprocessor():
    return tiny.encoder().preprocessor


def encoded(preprocessor, sizes, labeled=True):
    """Encode texts with the given numbers of words; the target of each is its index."""
    texts = ["good " * int(size) for size in sizes]
    targets = np.arange(len(sizes)) if labeled else None
    return EncodedTexts(preprocessor.python_tokenizer, [texts], 32, targets=targets)


def test_batches_cover_all_sequences_with_little_padding(preprocessor):
    rng = np.random.default_rng(0)
    rows = encoded(preprocessor, rng.integers(0, 40, 500))
    assert rows.lengths.max() == 32
    plan = Batches(rows, 16, seed=(3, 0))
    assert sorted(np.concatenate(plan.rows)) == list(range(500))
    padded = sum(len(batch) * rows.lengths[batch].max() for batch in plan.rows)
    assert padded < 1.1 * rows.lengths.sum()
    again, other = Batches(rows, 16, seed=(3, 0)), Batches(rows, 16, seed=(3, 1))
    assert all((a == b).all() for a, b in zip(plan.rows, again.rows, strict=True))
    assert not np.array_equal(plan.rows[0], other.rows[0])
    inputs, targets, weights = plan[5]
    assert (targets == plan.rows[5]).all()
    assert inputs["input_word_ids"].shape[1] == rows.lengths[targets].max()
    assert (inputs["input_mask"].sum(axis=1) == rows.lengths[targets]).all()
    assert weights.tolist() == [1.0] * len(targets)


def test_fixed_lengths_limit_the_shapes(preprocessor):
    plan = Batches(encoded(preprocessor, [*range(30)] * 3), 8, seed=0, lengths=LENGTHS)
    batches = [plan[index] for index in range(len(plan))]
    assert {b[0]["input_word_ids"].shape for b in batches} == {(8, 16), (8, 24), (8, 32)}
    assert sum(weights.sum() for _, _, weights in batches) == 90
    seen = np.concatenate([targets[weights > 0] for _, targets, weights in batches])
    assert sorted(seen) == list(range(90))
    assert set(plan.sizes) == {8}


@pytest.mark.parametrize(("devices", "sizes"), [(1, [6, 6]), (4, [8, 8])])
def test_batches_are_filled_for_devices(preprocessor, devices, sizes):
    plan = Batches(encoded(preprocessor, range(10)), 6, seed=0, lengths=LENGTHS, devices=devices)
    batches = [plan[index] for index in range(len(plan))]
    assert sorted(len(targets) for _, targets, _ in batches) == sorted(sizes)
    assert sum(weights.sum() for _, _, weights in batches) == 10


def test_sequences_padded_to_the_same_length_are_not_sorted(preprocessor):
    rows = encoded(preprocessor, [*range(23, 31)] * 40)  # all padded to 32
    spread = {
        lengths: np.mean([np.ptp(rows.lengths[batch]) for batch in plan.rows])
        for lengths in (None, LENGTHS)
        for plan in [Batches(rows, 8, seed=0, lengths=lengths)]
    }
    assert spread[None] < 1 < 4 < spread[LENGTHS]


def test_sequences_longer_than_all_lengths_are_not_truncated(preprocessor):
    plan = Batches(encoded(preprocessor, [*range(30)] * 3), 8, seed=0, lengths=(24,))
    shapes = {plan[i][0]["input_mask"].shape[1] for i in range(len(plan))}
    assert min(shapes) == 24 and max(shapes) == 31


@pytest.mark.parametrize(
    ("needed", "cost", "expected"),
    [
        ([30] * 10, 1000, None),  # too few steps
        ([30] * 1000, 1000, (32,)),
        ([10] * 1000 + [100] * 1000, 1000, (16, 128)),
        ([10] * 10 + [100] * 1000, 1000, (128,)),  # too few short batches to compile for
        ([9000] * 1000, 1000, (9000,)),  # beyond the longest of the list
    ],
)
def test_choose_compiled_lengths(needed, cost, expected):
    assert choose_compiled_lengths(needed, cost, 0.7) == expected


@pytest.mark.parametrize(
    ("needed", "most", "compiled", "expected"),
    [
        ([20] * 1000 + [40] * 1000 + [100] * 1000, 3, (), (24, 48, 128)),
        ([20, 100], 3, (), (128,)),  # another program costs more than it saves
        ([20] * 1000, 3, (64,), (24, 64)),
        ([300], 2, (32, 64), (32, 64, 512)),  # the limit, since none is long enough
    ],
)
def test_few_lengths_are_chosen(needed, most, compiled, expected):
    assert choose_lengths(needed, 1000, most, compiled, limit=512) == expected


def test_many_long_lengths_are_planned_quickly():
    needed = [*range(2049, 2600)] * 20
    started = time.monotonic()
    assert choose_lengths(needed, 1000, 3) == (3072,)
    assert choose_compiled_lengths(range(9000, 9100), 1000, 0.7) is not None
    assert choose_compiled_lengths(LENGTHS * 1000, 1e-3, 0.7) == LENGTHS
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("count", "batch_size", "expected"),
    [(1, 32, 1), (5, 32, 32), (5, 4, 4), (24, 5000, 32), (40, 5000, 64)],
)
def test_few_sequences_are_computed_in_small_compiled_batches(
    preprocessor, count, batch_size, expected
):
    plan = SortedBatches(encoded(preprocessor, range(count)), batch_size, lengths=LENGTHS)
    assert {len(plan[index][1]) for index in range(len(plan))} == {expected}


def test_the_longest_sequences_come_first_where_the_order_is_free(preprocessor):
    plan = SortedBatches(encoded(preprocessor, [3, 9, 1, 7, 5], labeled=False), 2)
    assert [batch.tolist() for batch in plan.rows] == [[1, 3], [4, 0], [2]]
    assert plan.sizes == [2, 2, 1]
    assert len(plan[0]) == 1  # inputs only
