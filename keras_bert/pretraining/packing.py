"""Packing of several pairs into a row, which leaves little padding.

Source: Krell et al. (2021), Efficient sequence packing without cross-contamination.
"""

import bisect

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
            row, left = [], length - size
            rows.append(row)
        row.append(index)
        if len(row) < max_texts and left:
            if not open_rows[left]:
                bisect.insort(free, left)
            open_rows[left].append(row)
    return rows


def pack(pairs, rows, length, max_texts, max_predictions, pad_id=0):
    """Pack sequences of one pair each into rows of `length` positions.

    `pairs` is a dict of arrays: `input_word_ids`, `input_type_ids` int (pairs, seq), `positions`
    and `labels` of masked tokens int (pairs, predictions), and `lengths`, `counts` of masked tokens
    and `is_random`, all (pairs,). `rows`, int (rows,), is the number of pairs per row; the rows
    take the pairs in order. `max_texts` and `max_predictions` limit the pairs and masked tokens of
    a row.

    Returns a dict: the inputs of `Layout.inputs`; `masked_lm_positions` and `masked_lm_labels`
    int32 (rows, max_predictions); `is_random` int32 (rows, max_texts); `masked_lm_weights` and
    `is_random_weights` float32, 1.0 for used entries.
    """
    lengths, counts = pairs["lengths"], pairs["counts"]
    row = np.repeat(np.arange(len(rows)), rows)  # (pairs,)
    offset = _offsets(lengths, rows)
    layout = Layout(lengths, row, within(rows), offset, (len(rows), length, max_texts))
    packed = layout.inputs(pairs["input_word_ids"], pairs["input_type_ids"], pad_id)
    packed["is_random"] = layout.of_sequences(pairs["is_random"].astype(np.int32))
    packed["is_random_weights"] = layout.of_sequences(np.ones(len(lengths), np.float32))

    slot = within(counts)
    of = np.repeat(np.arange(len(counts)), counts), slot
    to = np.repeat(row, counts), np.repeat(_offsets(counts, rows), counts) + slot
    for key in ("masked_lm_positions", "masked_lm_labels"):
        packed[key] = np.zeros((len(rows), max_predictions), np.int32)
    packed["masked_lm_positions"][to] = pairs["positions"][of] + np.repeat(offset, counts)
    packed["masked_lm_labels"][to] = pairs["labels"][of]
    packed["masked_lm_weights"] = np.zeros((len(rows), max_predictions), np.float32)
    packed["masked_lm_weights"][to] = 1.0
    return packed


def _offsets(sizes, groups):
    """Return the sum of the sizes before each item in its group."""
    before = np.cumsum(sizes) - sizes
    first = (np.cumsum(groups) - groups)[groups > 0]
    return before - np.repeat(before[first], groups[groups > 0])
