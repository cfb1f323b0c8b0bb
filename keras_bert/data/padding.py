"""Pad sequences of different lengths to one array."""

import numpy as np


def pad_outputs(outputs, lengths, length, value):
    """Stack outputs of positions, floats (positions, ...), cut to `lengths` and padded to `length`.

    Example:

    >>> pad_outputs([np.array([1.0, 2.0, 8.0])], [2], 3, value=0.0).tolist()
    [[1.0, 2.0, 0.0]]
    """
    result = np.full((len(outputs), length, *outputs[0].shape[1:]), value, outputs[0].dtype)
    for row, output, size in zip(result, outputs, lengths, strict=True):
        row[:size] = output[:size]
    return result


def pad(sequences, length, value=0):
    """Stack int sequences into one int32 array (sequences, length), padded with `value`."""
    result = np.full((len(sequences), length), value, np.int32)
    for row, sequence in zip(result, sequences, strict=True):
        row[: len(sequence)] = sequence
    return result
