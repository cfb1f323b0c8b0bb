"""Batches in which several texts share a row: little padding, and a sample of all lengths in each.

Batches of like lengths (`batches.Batches`) save as much padding, but one of them holds short texts
alone and the next long ones, which differ in more than their length. What is learned in an epoch
suffers: taggers trained on random batches are better.
"""

import heapq
import itertools

import numpy as np

from keras_bert.data.batching import Batches
from keras_bert.data.packing import Layout

_MULTIPLE = 8  # of which the positions of a row are one
_LEAST_ROWS = 2  # with fewer there is nothing to gain
_TRIED = 20  # batches that the number of rows is chosen by
# A row of so many times the encoder's width has attention that costs as much as all the rest.
# Measured on two CPU cores; by its arithmetic alone it would be 6.
_ATTENTION = 3


class PackedBatches(Batches):
    """One epoch of batches for `heads.packed`, all of one shape.

    A batch is `(inputs, targets, weights)`: a dict of int32 arrays, see `layout.Layout.inputs`,
    for tags without `cls_positions`; the others (rows, positions) for tags and (rows, texts, ...)
    for whole texts, with weight 0 where nothing is.

    Args:
        encoded: the sequences, see `batches`, each a text or a pair; with a `pad_id`.
        plan: from `plan`.
        shape: from `shape`.
        of_positions: whether there is a target for each position, or else for each sequence.

    Attributes:
        rows: for each batch which sequences it holds, a list of int arrays.
        sizes: rows of each batch, in which its sequences lie.

    Example:

    >>> class Texts:
    ...     lengths, max_length, pad_id = np.array([3, 5, 4, 4]), 8, 0
    ...     def batch(self, rows, length):
    ...         ids = np.where(np.arange(length) < self.lengths[rows][:, None], 7, 0)
    ...         inputs = {"input_word_ids": ids, "input_type_ids": 0 * ids}
    ...         return inputs, np.array([10, 11, 12, 13])[rows], np.ones(len(rows))
    >>> batches = PackedBatches(Texts(), plan(Texts.lengths, 4, 0), (2, 8, 2), of_positions=False)
    >>> inputs, targets, weights = batches[0]
    >>> inputs["text_ids"].tolist()
    [[1, 1, 1, 1, 1, 2, 2, 2], [1, 1, 1, 1, 2, 2, 2, 2]]
    >>> sorted(targets.ravel().tolist())
    [10, 11, 12, 13]
    """

    def __init__(self, encoded, plan, shape, *, of_positions):
        self._encoded, self._of_positions = encoded, of_positions
        self._shape = shape
        self.rows = plan
        self.sizes = [shape[0]] * len(plan)

    def __getitem__(self, index):
        """Returns (inputs, targets, weights)."""
        chosen = self.rows[index]
        lengths = self._encoded.lengths[chosen]
        row, number, offset = _place(lengths, self._shape[0])
        layout = Layout(lengths, row, number, offset, self._shape)
        inputs, targets, weights = self._encoded.batch(chosen, int(lengths.max()))
        packed = layout.inputs(
            inputs["input_word_ids"], inputs["input_type_ids"], self._encoded.pad_id
        )
        if self._of_positions:
            del packed["cls_positions"]
            return packed, layout.of_positions(targets), layout.of_positions(weights)
        return packed, layout.of_sequences(targets), layout.of_sequences(weights)


def plan(lengths, batch_size, seed):
    """Says which sequences make up each batch of an epoch: one of each stretch of lengths.

    The longest are dealt out at random, each shorter one to a batch that has little so far. So all
    batches hold about as much, and their one shape fits them closely.

    Args:
        lengths: positions each sequence takes, int (n,).
        batch_size: sequences a batch.
        seed: of the order, such as (seed, epoch).

    Returns:
        For each batch its sequences, a list of int arrays.

    Example:

    >>> sorted(np.concatenate(plan(np.array([3, 5, 4, 4]), 2, 0)).tolist())
    [0, 1, 2, 3]
    """
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(lengths))
    order = order[np.argsort(-lengths[order], kind="stable")]
    count = -(-len(order) // batch_size)
    batches: list[list[int]] = [[] for _ in range(count)]
    held = np.zeros(count, np.int64)
    for start in range(0, len(order), count):
        stretch = order[start : start + count]
        where = generator.permutation(count)
        where = where[np.argsort(held[where], kind="stable")][: len(stretch)]
        held[where] += lengths[stretch]
        for batch, sequence in zip(where.tolist(), stretch.tolist(), strict=True):
            batches[batch].append(sequence)
    return [np.array(batch) for batch in batches]


def shape(lengths, plans, hidden_size, multiple=1):
    """The shape of all batches of a run.

    Args:
        lengths: positions each sequence takes, int (n,).
        plans: of its epochs, from `plan`.
        hidden_size: of the encoder; a position's attention costs the less beside it.
        multiple: of which the number of rows has to be one, as for devices that share them.

    Returns:
        Rows a batch, positions a row, sequences a row at most; `None` where a batch is too small
        for rows to be shared.

    Example:

    >>> lengths = np.array([3, 5, 4, 4])
    >>> shape(lengths, [plan(lengths, 4, 0)], 64)
    (2, 8, 2)
    >>> shape(lengths, [plan(lengths, 1, 0)], 64)
    """
    most = int(max(lengths[chosen].sum() for plan in plans for chosen in plan))
    longest = int(lengths.max())
    fewest = max(_LEAST_ROWS, -(-most // (2 * longest)))
    shapes = [
        _needed(lengths, plans[0][:_TRIED], rows)
        for rows in range(-(-fewest // multiple) * multiple, most // longest + 1, multiple)
    ]
    if not shapes:
        return None

    def cost(shape):
        rows, positions, _ = shape
        return rows * positions * (1 + positions / (_ATTENTION * hidden_size))

    rows = min(shapes, key=cost)[0]
    return _needed(lengths, itertools.chain(*plans), rows)


def widened(shape, lengths, plan):
    """A shape that also the batches of another epoch fit into, which was not planned for.

    Args:
        shape: from `shape`.
        lengths: positions each sequence takes, int (n,).
        plan: of that epoch.

    Returns:
        The shape: as a rule the same one, which needs no other program.

    Example:

    >>> lengths = np.array([3, 5, 4, 4])
    >>> widened((2, 8, 2), lengths, plan(lengths, 4, 1))
    (2, 8, 2)
    >>> widened((2, 6, 2), lengths, plan(lengths, 4, 1))
    (2, 8, 2)
    """
    rows, positions, texts = shape
    _, needed, most = _needed(lengths, plan, rows)
    return rows, max(positions, needed), max(texts, most)


def _needed(lengths, batches, rows):
    """The shape that so many rows have to have for some batches."""
    positions, texts = 0, 0
    for chosen in batches:
        sizes = lengths[chosen]
        _, number, offset = _place(sizes, rows)
        positions = max(positions, int((offset + sizes).max()))
        texts = max(texts, int(number.max()) + 1)
    return rows, -(-positions // _MULTIPLE) * _MULTIPLE, texts


def _place(sizes, rows):
    """Lays sequences into rows, the longest first, each into the emptiest.

    Returns:
        Of each sequence its row, its number in the row and where it begins; int (n,) each.
    """
    row, number, offset = (np.zeros(len(sizes), np.int64) for _ in range(3))
    filled = [(0, index, 0) for index in range(rows)]
    for sequence in np.argsort(-sizes, kind="stable").tolist():
        end, index, count = filled[0]
        row[sequence], number[sequence], offset[sequence] = index, count, end
        heapq.heapreplace(filled, (end + int(sizes[sequence]), index, count + 1))
    return row, number, offset
