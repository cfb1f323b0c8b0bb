"""Pad sequences of different lengths to one array."""

import numpy as np


def pad(sequences, length, value=0):
    """Stack int sequences into one int32 array (sequences, length), padded with `value`."""
    result = np.full((len(sequences), length), value, np.int32)
    for row, sequence in zip(result, sequences, strict=True):
        row[: len(sequence)] = sequence
    return result
