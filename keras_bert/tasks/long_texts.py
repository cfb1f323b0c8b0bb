"""Texts that are longer than the maximum of a model."""

import numpy as np

LONG_TEXTS = ("truncate", "window", "error")


def mean_per_text(text_of, rows):
    """Return the mean of the rows (n, ...) of each text.

    `text_of` has the index of the text of each row, int (n,); `None` if each row is a text.
    """
    if text_of is None:
        return rows
    starts = np.flatnonzero(np.diff(text_of, prepend=-1))
    counts = np.diff(starts, append=len(rows))
    return np.add.reduceat(rows, starts, axis=0) / counts.reshape(-1, *[1] * (rows.ndim - 1))
