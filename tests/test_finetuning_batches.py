"""Batches of like lengths: all rows, little padding, few shapes, an order that can be had again."""

import numpy as np
import pytest

from keras_bert.finetuning import batches, texts
from keras_bert.finetuning.data import Examples
from tests import tiny


def encoded(counts, max_length=32):
    """Texts of so many words, each with its number as target."""
    examples = Examples(["good " * int(count) for count in counts])
    preprocessor = tiny.encoder().preprocessor
    return texts.EncodedTexts(preprocessor, examples, max_length, np.arange(len(counts)))


def test_all_rows_with_little_padding():
    rows = encoded(np.random.default_rng(0).integers(0, 40, 500))
    assert rows.lengths.max() == 32
    assert rows.truncated > 0
    plan = batches.Batches(rows, 16, seed=(3, 0))
    assert sorted(np.concatenate(plan.rows)) == list(range(500))
    padded = sum(len(batch) * rows.lengths[batch].max() for batch in plan.rows)
    assert padded < 1.1 * rows.lengths.sum()
    inputs, targets, weights = plan[5]
    assert (targets == plan.rows[5]).all()
    assert inputs["input_word_ids"].shape[1] == rows.lengths[targets].max()
    assert (inputs["input_mask"].sum(axis=1) == rows.lengths[targets]).all()
    assert weights.tolist() == [1.0] * len(targets)


def test_the_order_is_a_function_of_the_seed():
    rows = encoded(range(1, 60))
    plan, again, other = (batches.Batches(rows, 4, seed=seed) for seed in ((3, 0), (3, 0), (3, 1)))
    assert all((a == b).all() for a, b in zip(plan.rows, again.rows, strict=True))
    assert any(set(a) != set(b) for a, b in zip(plan.rows, other.rows, strict=True))
    longest_first = batches.Batches(rows, 4)
    assert np.diff(rows.lengths[np.concatenate(longest_first.rows)]).max() <= 0


def test_fixed_lengths_keep_the_shapes_few():
    rows = encoded([n for n in range(30)] * 3)
    plan = batches.Batches(rows, 8, seed=0, fixed_lengths=True)
    shapes, weight = set(), 0
    for index in range(len(plan)):
        inputs, _, weights = plan[index]
        shapes.add(inputs["input_word_ids"].shape)
        weight += weights.sum()
    assert shapes == {(8, 16), (8, 24), (8, 32)}
    assert weight == 90
    plan = batches.Batches(rows, 8, seed=0, fixed_lengths="one")
    assert {plan[index][0]["input_word_ids"].shape for index in range(len(plan))} == {(8, 32)}


@pytest.mark.parametrize("start", [0, 3])
def test_a_dataset_goes_on_where_a_run_was(start):
    plan = batches.Batches(encoded(range(20)), 4, seed=1)
    dataset = plan.dataset(start)
    assert int(dataset.cardinality()) == len(plan) - start
    for index, (inputs, targets, weights) in enumerate(dataset, start):
        expected = plan[index]
        np.testing.assert_array_equal(targets, expected[1])
        np.testing.assert_array_equal(weights, expected[2])
        for key, value in inputs.items():
            np.testing.assert_array_equal(value, expected[0][key])


def test_without_targets_there_are_inputs_only():
    preprocessor = tiny.encoder().preprocessor
    rows = texts.EncodedTexts(preprocessor, Examples(["good", "bad film"]), 32)
    assert len(batches.Batches(rows, 2)[0]) == 1
