"""Windows of texts that are longer than a model's maximum."""

import numpy as np


def overlap(size):
    """Return the number of tokens that two windows of `size` tokens share. Takes tensors too."""
    return size // 4


def window_step(size):
    """Return the number of tokens between the starts of two windows."""
    return max(size - overlap(size), 1)


def mean_per_text(text_of, rows):
    """Return the mean of the rows (n, ...) of each text.

    `text_of` has the index of the text of each row, int (n,); `None` if each row is a text.
    """
    if text_of is None:
        return rows
    starts = np.flatnonzero(np.diff(text_of, prepend=-1))
    counts = np.diff(starts, append=len(rows))
    return np.add.reduceat(rows, starts, axis=0) / counts.reshape(-1, *[1] * (rows.ndim - 1))
