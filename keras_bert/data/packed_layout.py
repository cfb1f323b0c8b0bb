"""Positions of packed sequences: several sequences in each row of a batch."""

import numpy as np


class Layout:
    """The positions of sequences in packed rows.

    Args:
        lengths: Length of each sequence, int (n,).
        row: Row of each sequence, int (n,).
        number: Number of each sequence in its row, from 0, int (n,).
        offset: First position of each sequence in its row, int (n,).
        shape: Number of rows, positions per row, maximum number of sequences per row.
    """

    def __init__(self, lengths, row, number, offset, shape):
        self._row, self._number, self._offset, self._shape = row, number, offset, shape
        # For each position that is not padding: its sequence, the position in that sequence, and
        # the (row, position) in the packed array.
        self._sequence = np.repeat(np.arange(len(lengths)), lengths)
        self._within = within(lengths)
        self._to = row[self._sequence], offset[self._sequence] + self._within

    def of_positions(self, values, fill=0):
        """Pack one value per position.

        Args:
            values: Array (n, seq); `seq` is at least the longest length.
            fill: The value of padding.

        Returns:
            Array (rows, positions) of the same dtype.
        """
        rows, positions, _ = self._shape
        result = np.full((rows, positions), fill, values.dtype)
        result[self._to] = values[self._sequence, self._within]
        return result

    def of_sequences(self, values):
        """Pack one value per sequence.

        Args:
            values: Array (n, ...).

        Returns:
            Array (rows, sequences per row, ...) of the same dtype, padded with 0.
        """
        rows, _, count = self._shape
        result = np.zeros((rows, count, *values.shape[1:]), values.dtype)
        result[self._row, self._number] = values
        return result

    def inputs(self, word_ids, type_ids, pad_id=0):
        """Return the inputs of a packed model, see `heads.packed`.

        Args:
            word_ids: Token ids of the sequences, int (n, seq).
            type_ids: Segment ids of the sequences, int (n, seq).
            pad_id: The id of padding, which is masked.

        Returns:
            A dict of int32 arrays: `input_word_ids`, `input_type_ids`, `position_ids` (from 0 in
            each sequence) and `text_ids` (1 for the first sequence of a row, 2 for the second, 0
            for padding), each (rows, positions); and `cls_positions`, the first position of each
            sequence, (rows, sequences per row).
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
    """Return the index of each item in its group, for consecutive groups.

    Args:
        sizes: Sizes of the groups, int (groups,).

    Returns:
        int (sum of the sizes,).
    """
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
