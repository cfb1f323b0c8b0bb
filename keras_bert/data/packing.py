"""Several sequences in a row: where each of them lies, and arrays laid out so.

What a row looks like is what `heads.packed` and `heads.packed_pretraining` take. Which sequences
share a row is decided elsewhere.
"""

import numpy as np


class Layout:
    """The places of sequences in rows.

    Args:
        lengths: positions each sequence takes, int (n,).
        row: in which row each lies, int (n,).
        number: its number in that row, from 0, int (n,).
        offset: the position in the row where it begins, int (n,).
        shape: how many rows, positions of a row, and sequences of a row at most.

    Example:

    >>> zeros, ids = np.zeros(2, int), np.array([[2, 7, 3], [2, 3, 0]])
    >>> layout = Layout(np.array([3, 2]), zeros, np.array([0, 1]), np.array([0, 3]), (1, 6, 2))
    >>> inputs = layout.inputs(ids, 0 * ids)
    >>> inputs["input_word_ids"].tolist(), inputs["text_ids"].tolist()
    ([[2, 7, 3, 2, 3, 0]], [[1, 1, 1, 2, 2, 0]])
    """

    def __init__(self, lengths, row, number, offset, shape):
        self._row, self._number, self._offset, self._shape = row, number, offset, shape
        # Of each position that is no padding: its sequence, its place in it, and where it goes.
        self._sequence = np.repeat(np.arange(len(lengths)), lengths)
        self._within = within(lengths)
        self._to = row[self._sequence], offset[self._sequence] + self._within

    def of_positions(self, values, fill=0):
        """Lays out a value for each position of each sequence.

        Args:
            values: (n, seq), each row at least as long as its sequence.
            fill: what stands where no sequence is.

        Returns:
            (rows, positions), of the same dtype.
        """
        rows, positions, _ = self._shape
        result = np.full((rows, positions), fill, values.dtype)
        result[self._to] = values[self._sequence, self._within]
        return result

    def of_sequences(self, values):
        """Lays out a value for each sequence.

        Args:
            values: (n, ...).

        Returns:
            (rows, sequences of a row, ...), of the same dtype; 0 where there is none.
        """
        rows, _, most = self._shape
        result = np.zeros((rows, most, *values.shape[1:]), values.dtype)
        result[self._row, self._number] = values
        return result

    def inputs(self, word_ids, type_ids, pad_id=0):
        """What a model for packed rows takes.

        Args:
            word_ids: ids of the sequences, int (n, seq).
            type_ids: their segments, int (n, seq).
            pad_id: the id where no sequence is; it is masked.

        Returns:
            A dict of int32 arrays: `input_word_ids`, `input_type_ids`, `position_ids` (counted
            within each sequence), `text_ids` (1 for the positions of a row's first sequence, 2 for
            those of the second, 0 for padding), each (rows, positions), and `cls_positions`,
            where each sequence begins, (rows, sequences of a row).
        """
        rows, positions, _ = self._shape
        position_ids, text_ids = (np.zeros((rows, positions), np.int32) for _ in range(2))
        position_ids[self._to] = self._within
        text_ids[self._to] = self._number[self._sequence] + 1
        return {
            "input_word_ids": self.of_positions(word_ids.astype(np.int32), pad_id),
            "input_type_ids": self.of_positions(type_ids.astype(np.int32)),
            "position_ids": position_ids,
            "text_ids": text_ids,
            "cls_positions": self.of_sequences(self._offset.astype(np.int32)),
        }


def within(sizes):
    """Counts from 0 in each of several groups.

    Args:
        sizes: of the groups, int (groups,).

    Returns:
        int (sum of the sizes,).

    Example:

    >>> within(np.array([2, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
