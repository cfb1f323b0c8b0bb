"""Positions of packed sequences: several sequences in each row of a batch."""

import numpy as np


class Layout:
    """The positions of sequences in packed rows.

    lengths: length of each sequence, int (n,)
    row: row of each sequence, int (n,)
    index_in_row: index of each sequence among those of its row, int (n,)
    offset: first position of each sequence in its row, int (n,)
    shape: (rows, positions per row, maximum number of sequences per row)
    """

    def __init__(self, lengths, row, index_in_row, offset, shape):
        self._row = row
        self._index_in_row = index_in_row
        self._offset = offset
        self._shape = shape
        # For each position that is not padding: its sequence, the position in that sequence, and
        # the (row, position) in the packed array.
        self._sequence = np.repeat(np.arange(len(lengths)), lengths)
        self._within = within(lengths)
        self._to = row[self._sequence], offset[self._sequence] + self._within

    def of_positions(self, values, fill=0):
        """Pack values (n, seq), one per position, to (rows, positions), padded with `fill`."""
        rows, positions, _ = self._shape
        result = np.full((rows, positions), fill, values.dtype)
        result[self._to] = values[self._sequence, self._within]
        return result

    def of_sequences(self, values):
        """Pack sequences' values (n, ...) to (rows, sequences per row, ...); pad with 0."""
        rows, _, count = self._shape
        result = np.zeros((rows, count, *values.shape[1:]), values.dtype)
        result[self._row, self._index_in_row] = values
        return result

    def numbers(self):
        """Return the index of each sequence in the flat result of `of_sequences`, int32 (n,)."""
        _, _, count = self._shape
        return (self._row * count + self._index_in_row).astype(np.int32)

    def inputs(self, word_ids, type_ids, pad_id=0):
        """Return the int32 inputs of a model of `packed_heads` from ids, int (n, seq).

        (rows, positions): `input_word_ids`, `input_type_ids`, `position_ids` (from 0 in each
        sequence), `text_ids` (1 for the first sequence of a row, 2 for the second, 0 for padding).
        (rows, sequences per row): `cls_positions`, the first position of each sequence.
        """
        rows, positions, _ = self._shape
        position_ids, text_ids = (np.zeros((rows, positions), np.int32) for _ in range(2))
        position_ids[self._to] = self._within
        text_ids[self._to] = self._index_in_row[self._sequence] + 1
        return {
            "input_word_ids": self.of_positions(word_ids.astype(np.int32), pad_id),
            "input_type_ids": self.of_positions(type_ids.astype(np.int32)),
            "position_ids": position_ids,
            "text_ids": text_ids,
            "cls_positions": self.of_sequences(self._offset.astype(np.int32)),
        }


def within(sizes):
    """Return the index of each item in its group, int (sum of sizes,); `sizes` is int (groups,)."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
