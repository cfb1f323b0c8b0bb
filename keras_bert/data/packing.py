"""Packing: several sequences share a row of a batch, which reduces padding.

`Batches` saves as much padding by grouping sequences of similar length, but its batches are not
random samples. Taggers that are trained on packed batches score higher.
"""

import heapq
import itertools

import numpy as np

from keras_bert.data.batching import Batches, fill, next_multiple
from keras_bert.data.packed_layout import Layout

_MULTIPLE = 8  # the length of a row is a multiple of it
_MIN_ROWS = 2  # with fewer rows, packing saves no padding
_SAMPLED_BATCHES = 20  # batches to choose the number of rows by
# In a row of 3 x hidden_size positions, attention costs as much as all other layers together.
# This factor was measured on two CPU cores; counting operations gives 6.
_ATTENTION = 3


class PackedBatches(Batches):
    """The batches of one epoch for `packed_heads.packed`, all of the same shape.

    A batch is (inputs of `Layout.inputs`, targets, weights). If `of_positions`, as in tagging,
    targets and weights are (rows, positions) and the inputs have no `cls_positions`; otherwise they
    are (rows, sequences per row, ...). Padding has weight 0. Empty rows follow if the rows are not
    a multiple of `devices`, the number of devices that share a batch.

    encoded: the sequences, as in `Batches`, with a `pad_id`
    rows: indices of the sequences of each batch, from `plan_batches`, list of int arrays
    sizes: number of rows of each batch, without those that are added for the devices
    """

    def __init__(self, encoded, plan, shape, *, of_positions, devices=1):
        self._encoded = encoded
        self._of_positions = of_positions
        self._devices = devices
        self._shape = (next_multiple(shape[0], devices), *shape[1:])
        self.rows = plan
        self.sizes = [shape[0]] * len(plan)
        self._most = max(map(len, plan))

    def __getitem__(self, index):
        """Return (inputs, targets, weights)."""
        layout, packed, targets, weights = self._pack(self._encoded, self.rows[index])
        if self._of_positions:
            del packed["cls_positions"]
            return packed, layout.of_positions(targets), layout.of_positions(weights)
        return packed, layout.of_sequences(targets), layout.of_sequences(weights)

    def _pack(self, encoded, chosen):
        """Return the `Layout` and the packed inputs of sequences, and their targets and weights."""
        lengths = encoded.lengths[chosen]
        row, index_in_row, offset = _assign_rows(lengths, self.sizes[0])
        layout = Layout(lengths, row, index_in_row, offset, self._shape)
        inputs, *others = encoded.batch(chosen, int(lengths.max()))
        ids, type_ids = inputs["input_word_ids"], inputs["input_type_ids"]
        return layout, layout.inputs(ids, type_ids, encoded.pad_id), *others


class PackedRows(PackedBatches):
    """The batches of one epoch for `packed_heads.packed_rows`; the texts are packed.

    encoded: rows of texts, with the attributes `texts`, `texts_per_row` and `targets` of
        `tasks.embedding.EncodedRows`
    """

    def __getitem__(self, index):
        """Return (inputs, targets, weights)."""
        rows = self.rows[index]
        chosen = texts_of_rows(rows, self._encoded.texts_per_row)
        layout, packed, _, _ = self._pack(self._encoded.texts, chosen)
        numbers = layout.numbers().reshape(len(rows), -1)
        weights = np.ones(len(rows), np.float32)
        # All batches have one shape.
        missing = next_multiple(self._most, self._devices) - len(rows)
        packed["text_numbers"], targets, weights = fill(
            (numbers, self._encoded.targets[rows], weights), missing, self._encoded.filler_targets
        )
        return packed, targets, weights


def texts_of_rows(rows, count):
    """Return the indices of the texts of rows that have `count` texts each."""
    return (np.asarray(rows)[:, None] * count + np.arange(count)).ravel()


def plan_batches(lengths, batch_size, seed):
    """Return the indices of the sequences of each batch, so that all batches have similar totals.

    Sequences are sorted by length and cut into groups of one sequence per batch. The longest group
    is distributed at random. In each other group, the longest sequence goes to the batch with the
    lowest total so far. `lengths` is int (n,); `seed` such as (seed, epoch).
    """
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(lengths))
    order = order[np.argsort(-lengths[order], kind="stable")]
    count = -(-len(order) // batch_size)
    batches: list[list[int]] = [[] for _ in range(count)]
    totals = np.zeros(count, np.int64)
    for start in range(0, len(order), count):
        group = order[start : start + count]
        where = generator.permutation(count)
        where = where[np.argsort(totals[where], kind="stable")][: len(group)]
        totals[where] += lengths[group]
        for batch, sequence in zip(where.tolist(), group.tolist(), strict=True):
            batches[batch].append(sequence)
    return [np.array(batch) for batch in batches]


def packed_shape(lengths, plans, hidden_size, multiple=1, saved_rows=None):
    """Choose one shape for all batches of a run, by the estimated cost of a step.

    Return (rows, positions per row, maximum number of sequences per row), or `None` if the batches
    are too small to pack. The number of rows is a multiple of `multiple`, such as the number of
    devices. A run that resumes, perhaps on other devices, keeps its `saved_rows`: its batches, and
    the masks of dropout, stay as they were. `lengths` is int (n,); `plans` has one result of
    `plan_batches` per epoch.
    """
    largest = int(max(lengths[chosen].sum() for plan in plans for chosen in plan))
    longest = int(lengths.max())
    if saved_rows in range(_MIN_ROWS, largest // longest + 2):
        return _fit(lengths, itertools.chain(*plans), saved_rows)
    fewest = max(_MIN_ROWS, -(-largest // (2 * longest)))
    shapes = [
        _fit(lengths, plans[0][:_SAMPLED_BATCHES], rows)
        for rows in range(-(-fewest // multiple) * multiple, largest // longest + 1, multiple)
    ]
    if not shapes:
        return None

    def cost(shape):
        rows, positions, _ = shape
        return rows * positions * (1 + positions / (_ATTENTION * hidden_size))

    rows = min(shapes, key=cost)[0]
    return _fit(lengths, itertools.chain(*plans), rows)


def widen_shape(shape, lengths, plan):
    """Return the smallest shape, as from `packed_shape`, that also fits another plan's batches.

    Usually this is the same shape, so steps need not be compiled again.
    """
    rows, positions, count = shape
    _, needed, most = _fit(lengths, plan, rows)
    return rows, max(positions, needed), max(count, most)


def _fit(lengths, batches, rows):
    """Return the smallest shape with the given number of rows that fits the batches."""
    positions = 0
    count = 0
    for chosen in batches:
        sizes = lengths[chosen]
        _, index_in_row, offset = _assign_rows(sizes, rows)
        positions = max(positions, int((offset + sizes).max()))
        count = max(count, int(index_in_row.max()) + 1)
    return rows, -(-positions // _MULTIPLE) * _MULTIPLE, count


def _assign_rows(sizes, rows):
    """Assign sequences to rows, the longest first, each to the emptiest row.

    Return the row, the index in the row and the offset of each sequence, each int (n,).
    """
    row, index_in_row, offset = (np.zeros(len(sizes), np.int64) for _ in range(3))
    filled = [(0, index, 0) for index in range(rows)]
    for sequence in np.argsort(-sizes, kind="stable").tolist():
        end, index, count = filled[0]
        row[sequence], index_in_row[sequence], offset[sequence] = index, count, end
        heapq.heapreplace(filled, (end + int(sizes[sequence]), index, count + 1))
    return row, index_in_row, offset
