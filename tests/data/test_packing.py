"""Rows of several sequences: everything of a sequence is where it lies, and nothing elsewhere."""

import numpy as np
import pytest

from keras_bert.data.packing import Layout, within


def made(seed):
    """Three rows of 20 positions: arrays of sequences of 1 to 6, and where each of them lies."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 7, 9)
    row = random.permutation(np.repeat(np.arange(3), 3))
    number, offset = np.zeros((2, 9), int)
    for index in range(9):
        before = [other for other in range(index) if row[other] == row[index]]
        number[index], offset[index] = len(before), lengths[before].sum()
    values = random.integers(1, 100, (9, 8))  # also behind the sequences' ends
    return lengths, row, number, offset, values


@pytest.mark.parametrize("seed", range(5))
def test_a_sequence_is_where_it_lies(seed):
    lengths, row, number, offset, values = made(seed)
    layout = Layout(lengths, row, number, offset, (3, 20, 4))
    inputs = layout.inputs(values, values % 2, pad_id=100)
    laid = layout.of_positions(values / 2, fill=-1)
    for index, length in enumerate(lengths):
        here = row[index], slice(offset[index], offset[index] + length)
        assert inputs["input_word_ids"][here].tolist() == values[index, :length].tolist()
        assert inputs["input_type_ids"][here].tolist() == (values[index, :length] % 2).tolist()
        assert inputs["position_ids"][here].tolist() == list(range(length))
        assert set(inputs["text_ids"][here]) == {number[index] + 1}
        assert laid[here].tolist() == (values[index, :length] / 2).tolist()
        assert inputs["cls_positions"][row[index], number[index]] == offset[index]
    empty = inputs["text_ids"] == 0
    assert empty.sum() == 60 - lengths.sum()
    assert set(inputs["input_word_ids"][empty]) == {100}
    assert set(laid[empty]) == {-1}
    for key in ("input_type_ids", "position_ids"):
        assert not inputs[key][empty].any()
    assert {array.dtype.name for array in inputs.values()} == {"int32"}
    assert laid.dtype == np.float64


def test_values_of_sequences_of_any_shape():
    lengths, row, number, offset, _ = made(0)
    layout = Layout(lengths, row, number, offset, (3, 20, 4))
    for shape in ((9,), (9, 2)):
        values = np.random.default_rng(0).random(shape, np.float32)
        laid = layout.of_sequences(values)
        assert laid.shape == (3, 4, *shape[1:])
        assert laid.dtype == np.float32
        np.testing.assert_array_equal(laid[row, number], values)
        assert np.count_nonzero(laid) == values.size


def test_no_sequences():
    nothing = np.zeros(0, int)
    layout = Layout(nothing, nothing, nothing, nothing, (2, 8, 2))
    inputs = layout.inputs(np.zeros((0, 8), int), np.zeros((0, 8), int))
    assert not any(array.any() for array in inputs.values())
    assert within(nothing).tolist() == []
