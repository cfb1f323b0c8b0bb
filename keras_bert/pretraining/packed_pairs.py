"""Packing of several pairs into a row, which leaves little padding.

Source: Krell et al. (2021), Efficient sequence packing without cross-contamination.
"""

import bisect
import dataclasses

import numpy as np

from keras_bert.data.packed_layout import Layout, within


def plan(lengths, length, max_texts):
    """Assign pairs to rows by best fit, the longest pairs first. Deterministic.

    `lengths` (pairs,) are at most `length`, the number of positions per row. A row gets at most
    `max_texts` pairs. Returns a list of rows, each a list of indices of pairs.
    """
    open_rows: list[list[list[int]]] = [[] for _ in range(length + 1)]  # by free positions
    free: list[int] = []  # numbers of free positions for which there are open rows, sorted
    rows = []
    for index in np.argsort(-np.asarray(lengths), kind="stable").tolist():
        size = int(lengths[index])
        at = bisect.bisect_left(free, size)
        if at < len(free):
            left = free[at]
            row = open_rows[left].pop()
            if not open_rows[left]:
                free.pop(at)
            left -= size
        else:
            row = []
            left = length - size
            rows.append(row)
        row.append(index)
        if len(row) < max_texts and left:
            if not open_rows[left]:
                bisect.insort(free, left)
            open_rows[left].append(row)
    return rows


@dataclasses.dataclass(frozen=True)
class MaskedPairs:
    """Sequences of one pair each, with masked tokens.

    Attributes:
        word_ids, type_ids: int32 (pairs, seq).
        lengths: Tokens of each pair, int (pairs,).
        positions, labels: The masked tokens in rising order, int32 (pairs, predictions).
        counts: Number of masked tokens of each pair, int (pairs,).
        is_random: 1 if the second text is from another document, int32 (pairs,).
    """

    word_ids: np.ndarray
    type_ids: np.ndarray
    lengths: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    is_random: np.ndarray


def one_per_row(pairs):
    """Return the batch (inputs, targets, weights) of `MaskedPairs`, see `stream.Stream`."""
    inputs = {
        "input_word_ids": pairs.word_ids,
        "input_mask": _is_before(pairs.lengths, pairs.word_ids.shape[1]).astype(np.int32),
        "input_type_ids": pairs.type_ids,
        "masked_lm_positions": pairs.positions,
    }
    targets = {"masked_lm": pairs.labels, "next_sentence": pairs.is_random}
    weights = {
        "masked_lm": _is_before(pairs.counts, pairs.labels.shape[1]).astype(np.float32),
        "next_sentence": np.ones(len(pairs.is_random), np.float32),
    }
    return inputs, targets, weights


def pack(pairs, rows, length, max_texts, max_predictions, pad_id=0):
    """Return a packed batch (inputs, targets, weights) of `MaskedPairs`, see `stream.Stream`.

    `rows`, int (rows,), is the number of pairs per row; the rows take the pairs in order. A row has
    `length` positions, and at most `max_texts` pairs and `max_predictions` masked tokens. Pairs of
    5, 3 and 4 tokens, of which 1, 2 and 1 are masked, in rows of two and of one:

        row            0 0 1
        offset         0 5 0       (the first position of the pair in its row)
        slot           0 0 1 0     (of each masked token in its pair)
        row_of_slot    0 0 0 1
        slot_in_row    0 1 2 0
    """
    row = np.repeat(np.arange(len(rows)), rows)  # (pairs,)
    offset = _offsets(pairs.lengths, rows)
    layout = Layout(pairs.lengths, row, within(rows), offset, (len(rows), length, max_texts))
    inputs = layout.inputs(pairs.word_ids, pairs.type_ids, pad_id)

    pair_of_slot = np.repeat(np.arange(len(row)), pairs.counts)
    slot = within(pairs.counts)
    row_of_slot = row[pair_of_slot]
    slot_in_row = _offsets(pairs.counts, rows)[pair_of_slot] + slot

    def of_slots(values, dtype):
        packed = np.zeros((len(rows), max_predictions), dtype)
        packed[row_of_slot, slot_in_row] = values
        return packed

    positions = pairs.positions[pair_of_slot, slot] + offset[pair_of_slot]
    inputs["masked_lm_positions"] = of_slots(positions, np.int32)
    targets = {
        "masked_lm": of_slots(pairs.labels[pair_of_slot, slot], np.int32),
        "next_sentence": layout.of_sequences(pairs.is_random),
    }
    weights = {
        "masked_lm": of_slots(1.0, np.float32),
        "next_sentence": layout.of_sequences(np.ones(len(row), np.float32)),
    }
    return inputs, targets, weights


def _is_before(lengths, size):
    """Return True for the first `lengths` of `size` positions, bool (rows, size)."""
    return np.arange(size) < lengths[:, None]


def _offsets(sizes, rows):
    """Return the sum of the sizes before each pair in its row."""
    before = np.cumsum(sizes) - sizes
    return before - np.repeat(before[within(rows) == 0], rows[rows > 0])
