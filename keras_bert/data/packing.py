"""Packing: several sequences share a row of a batch, so that little of it is padding.

`Batches` saves as much padding by grouping sequences of similar length. But then one batch holds
short sequences and the next one long sequences, which is not a random sample: taggers that were
trained on packed batches score higher.
"""

import heapq
import itertools

import numpy as np

from keras_bert.data.batching import Batches
from keras_bert.data.packed_layout import Layout

_MULTIPLE = 8  # the length of a row is a multiple of it
_MIN_ROWS = 2  # fewer rows save no padding
_SAMPLED_BATCHES = 20  # batches that the number of rows is chosen from
# In a row of 3 x hidden_size positions, attention costs as much as all other layers together.
# Measured on two CPU cores; counting operations would give 6.
_ATTENTION = 3


class PackedBatches(Batches):
    """The batches of one epoch for `heads.packed`, all of the same shape.

    A batch is `(inputs, targets, weights)`. The inputs are those of `Layout.inputs`. The targets
    and weights are (rows, positions) for one target per position, else (rows, sequences per row,
    ...); the weight of padding is 0.

    Args:
        encoded: The sequences, as in `Batches`, with a `pad_id`.
        plan: From `plan_batches`.
        shape: From `packed_shape`.
        of_positions: True for one target per position, as in tagging, False for one target per
            sequence. If True, the inputs have no `cls_positions`.

    Attributes:
        rows: For each batch the indices of its sequences, a list of int arrays.
        sizes: For each batch the number of rows that its sequences are packed into.
    """

    def __init__(self, encoded, plan, shape, *, of_positions):
        self._encoded, self._of_positions = encoded, of_positions
        self._shape = shape
        self.rows = plan
        self.sizes = [shape[0]] * len(plan)

    def __getitem__(self, index):
        """Return (inputs, targets, weights)."""
        chosen = self.rows[index]
        lengths = self._encoded.lengths[chosen]
        row, number, offset = _assign_rows(lengths, self._shape[0])
        layout = Layout(lengths, row, number, offset, self._shape)
        inputs, targets, weights = self._encoded.batch(chosen, int(lengths.max()))
        packed = layout.inputs(
            inputs["input_word_ids"], inputs["input_type_ids"], self._encoded.pad_id
        )
        if self._of_positions:
            del packed["cls_positions"]
            return packed, layout.of_positions(targets), layout.of_positions(weights)
        return packed, layout.of_sequences(targets), layout.of_sequences(weights)


def plan_batches(lengths, batch_size, seed):
    """Choose the sequences of each batch of an epoch, so that all batches have similar totals.

    Sequences are sorted by length and cut into groups of one sequence per batch. The longest group
    is distributed at random. Of each other group, the longest sequence goes to the batch with the
    lowest total so far.

    Args:
        lengths: Length of each sequence, int (n,).
        batch_size: Sequences per batch.
        seed: Seed of the order, such as (seed, epoch).

    Returns:
        For each batch the indices of its sequences, a list of int arrays.
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


def packed_shape(lengths, plans, hidden_size, multiple=1):
    """Choose one shape for all batches of a run, by the estimated cost of a step.

    Args:
        lengths: Length of each sequence, int (n,).
        plans: The plans of the epochs, from `plan_batches`.
        hidden_size: Width of the encoder. The wider it is, the less attention costs in proportion.
        multiple: The number of rows is a multiple of it, such as the number of devices.

    Returns:
        Rows per batch, positions per row, maximum number of sequences per row; `None` if the
        batches are too small to pack.
    """
    largest = int(max(lengths[chosen].sum() for plan in plans for chosen in plan))
    longest = int(lengths.max())
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
    """Return the smallest shape that also fits the batches of another plan.

    Mostly this is the same shape, which needs no other compilation.

    Args:
        shape: From `packed_shape`.
        lengths: Length of each sequence, int (n,).
        plan: From `plan_batches`.

    Returns:
        The shape, as from `packed_shape`.

    Example:

    >>> lengths = np.array([3, 5, 4, 4])
    >>> widen_shape((2, 8, 2), lengths, plan_batches(lengths, 4, 1))
    (2, 8, 2)
    >>> widen_shape((2, 6, 2), lengths, plan_batches(lengths, 4, 1))
    (2, 8, 2)
    """
    rows, positions, count = shape
    _, needed, most = _fit(lengths, plan, rows)
    return rows, max(positions, needed), max(count, most)


def _fit(lengths, batches, rows):
    """Return the smallest shape with the given number of rows that fits the batches."""
    positions, count = 0, 0
    for chosen in batches:
        sizes = lengths[chosen]
        _, number, offset = _assign_rows(sizes, rows)
        positions = max(positions, int((offset + sizes).max()))
        count = max(count, int(number.max()) + 1)
    return rows, -(-positions // _MULTIPLE) * _MULTIPLE, count


def _assign_rows(sizes, rows):
    """Assign sequences to rows, the longest first, each to the emptiest row.

    Returns the row, the number in the row and the offset of each sequence, int (n,) each.
    """
    row, number, offset = (np.zeros(len(sizes), np.int64) for _ in range(3))
    filled = [(0, index, 0) for index in range(rows)]
    for sequence in np.argsort(-sizes, kind="stable").tolist():
        end, index, count = filled[0]
        row[sequence], number[sequence], offset[sequence] = index, count, end
        heapq.heapreplace(filled, (end + int(sizes[sequence]), index, count + 1))
    return row, number, offset
