"""Batches in which several texts share a row: little padding, and a sample of all lengths in each.

Batches of like lengths (`batches.Batches`) save as much padding, but one of them holds short texts
alone and the next long ones, which differ in more than their length. What is learned in an epoch
suffers: taggers trained on random batches are better.
"""

import heapq
import itertools

import numpy as np

from keras_bert.finetuning.batches import Batches

_MULTIPLE = 8  # of which the positions of a row are one
_LEAST_ROWS = 2  # with fewer there is nothing to gain
_TRIED = 20  # batches that the number of rows is chosen by
# A row of so many times the encoder's width has attention that costs as much as all the rest.
# Measured on two CPU cores; by its arithmetic alone it would be 6.
_ATTENTION = 3


class PackedBatches(Batches):
    """One epoch of batches for `heads.packed`, all of one shape.

    A batch is `(inputs, targets, weights)`: a dict of int32 (rows, positions), for whole texts with
    `first_positions` (rows, texts), 0 where a row has fewer; the others (rows, positions) for tags
    and (rows, texts, ...) for whole texts, with weight 0 where nothing is.

    Args:
        encoded: the sequences, see `batches`; each a text or a pair.
        batch_size: sequences a batch.
        seed: of the order, such as (seed, epoch).
        shape: from `shape`.
        of_positions: whether there is a target for each position, or else for each sequence.

    Attributes:
        rows: for each batch which sequences it holds, a list of int arrays.
        sizes: rows of each batch, in which its sequences lie.

    Example:

    >>> class Texts:
    ...     lengths, max_length = np.array([3, 5, 4, 4]), 8
    ...     def batch(self, rows, length):
    ...         ids = np.where(np.arange(length) < self.lengths[rows][:, None], 7, 0)
    ...         inputs = {"input_word_ids": ids, "input_type_ids": 0 * ids}
    ...         return inputs, np.array([10, 11, 12, 13])[rows], np.ones(len(rows))
    >>> batches = PackedBatches(Texts(), 4, 0, (2, 8, 2), of_positions=False)
    >>> inputs, targets, weights = batches[0]
    >>> inputs["text_ids"].tolist()
    [[1, 1, 1, 1, 1, 2, 2, 2], [1, 1, 1, 1, 2, 2, 2, 2]]
    >>> sorted(targets.ravel().tolist())
    [10, 11, 12, 13]
    """

    def __init__(self, encoded, batch_size, seed, shape, *, of_positions):
        self._encoded, self._of_positions = encoded, of_positions
        self._shape = shape
        self.rows = _plan(encoded.lengths, batch_size, seed)
        self.sizes = [shape[0]] * len(self.rows)

    def __getitem__(self, index):
        """Returns (inputs, targets, weights)."""
        chosen = self.rows[index]
        lengths = self._encoded.lengths[chosen]
        rows, length, texts = self._shape
        row, number, offset = _place(lengths, rows)
        inputs, targets, weights = self._encoded.batch(chosen, int(lengths.max()))

        # Of each position that is no padding: its sequence, its place in it, where it goes.
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        inner = np.arange(len(sequence)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        position = row[sequence], offset[sequence] + inner

        def of_positions(values):
            result = np.zeros((rows, length), values.dtype)
            result[position] = values[sequence, inner]
            return result

        def of_sequences(values):
            result = np.zeros((rows, texts, *values.shape[1:]), values.dtype)
            result[row, number] = values
            return result

        packed = {
            "input_word_ids": of_positions(inputs["input_word_ids"]),
            "input_type_ids": of_positions(inputs["input_type_ids"]),
            "position_ids": np.zeros((rows, length), np.int32),
            "text_ids": np.zeros((rows, length), np.int32),
        }
        packed["position_ids"][position] = inner
        packed["text_ids"][position] = number[sequence] + 1
        if self._of_positions:
            return packed, of_positions(targets), of_positions(weights)
        packed["first_positions"] = of_sequences(offset.astype(np.int32))
        return packed, of_sequences(targets), of_sequences(weights)


def shape(lengths, batch_size, seed, epochs, hidden_size):
    """The shape of all batches of a run.

    Args:
        lengths: positions each sequence takes, int (n,).
        batch_size: sequences a batch.
        seed: of the run; an epoch's is (seed, epoch).
        epochs: how many there are.
        hidden_size: of the encoder; a position's attention costs the less beside it.

    Returns:
        Rows a batch, positions a row, sequences a row at most; `None` where a batch is too small
        for rows to be shared.

    Example:

    >>> shape(np.array([3, 5, 4, 4]), 4, 0, 1, 64)
    (2, 8, 2)
    >>> shape(np.array([3, 5, 4, 4]), 1, 0, 1, 64)
    """
    plans = [_plan(lengths, batch_size, (seed, epoch)) for epoch in range(epochs)]
    most = max(lengths[chosen].sum() for plan in plans for chosen in plan)
    fewest = max(_LEAST_ROWS, -(-int(most) // (2 * int(lengths.max()))))
    shapes = [
        _needed(lengths, plans[0][:_TRIED], rows)
        for rows in range(fewest, int(most // lengths.max()) + 1)
    ]
    if not shapes:
        return None

    def cost(shape):
        rows, positions, _ = shape
        return rows * positions * (1 + positions / (_ATTENTION * hidden_size))

    rows = min(shapes, key=cost)[0]
    return _needed(lengths, itertools.chain(*plans), rows)


def _needed(lengths, batches, rows):
    """The shape that so many rows have to have for some batches."""
    positions, texts = 0, 0
    for chosen in batches:
        sizes = lengths[chosen]
        _, number, offset = _place(sizes, rows)
        positions = max(positions, int((offset + sizes).max()))
        texts = max(texts, int(number.max()) + 1)
    return rows, -(-positions // _MULTIPLE) * _MULTIPLE, texts


def _plan(lengths, batch_size, seed):
    """Which sequences make up each batch: one of each stretch of lengths.

    The longest are dealt out at random, each shorter one to a batch that has little so far. So all
    batches hold about as much, and their one shape fits them closely.
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
