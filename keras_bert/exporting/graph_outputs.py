"""The outputs of the graph of an export for encoded sequences. Keras is not imported."""

import numpy as np

from keras_bert.exporting import graph_folder

_POSITIONS = "masked_lm_positions"
_MAX_FLOATS = 2**25  # of an output of a batch, 128 MB


def compute(session, encoded, names, *, is_old=False, batch_size=32, on_batch=None):
    """Return the outputs for each sequence: arrays, or dicts of arrays for several outputs.

    Args:
        session: A `graph_session.Session`.
        encoded: A `text.encoded_texts.Encoded`.
        names: Names of the outputs to compute.
        is_old: True if the graph has our names of inputs, as older versions wrote it.
        batch_size: Sequences per batch, unless the engine has its own size.
        on_batch: Called after each batch with the fraction of the sequences in it.
    """
    rows_per_batch = _batches(session, encoded.lengths, names, batch_size)
    positions_per_batch = {}

    def batches():
        for index, rows in enumerate(rows_per_batch):
            inputs, _, _ = encoded.batch(rows, int(encoded.lengths[rows].max()))
            if is_old:
                yield inputs
                continue
            positions_per_batch[index] = inputs.get(_POSITIONS)
            yield graph_inputs(inputs)

    results = [None] * len(encoded)
    for index, outputs in session.run(batches(), names):
        positions = positions_per_batch.pop(index, None)
        if positions is not None:
            outputs = [np.take_along_axis(x, positions[:, :, None], axis=1) for x in outputs]
        rows = rows_per_batch[index]
        for row, *values in zip(rows, *outputs, strict=True):
            is_single = len(names) == 1
            results[row] = values[0] if is_single else dict(zip(names, values, strict=True))
        if on_batch is not None:
            on_batch(len(rows) / len(encoded))
    return results


def graph_inputs(inputs):
    """Return a batch of an `Encoded` with the names and the type of the graph's inputs."""
    return {name: inputs[key].astype(np.int64) for key, name in graph_folder.INPUTS.items()}


def _batches(session, lengths, names, batch_size):
    """Return the indices of the sequences of each batch, the longest sequences first."""
    positions = session.positions_per_batch
    if session.parallel > 1:
        positions = min(positions, -(-int(lengths.sum()) // session.parallel))
    width = max(session.widths[name] or 1 for name in names)
    order = np.argsort(-lengths, kind="stable")
    batches = []
    start = 0
    while start < len(order):
        length = int(lengths[order[start]])
        size = positions // length if positions else batch_size
        size = max(1, min(size, _MAX_FLOATS // (length * width)))
        batches.append(order[start : start + size])
        start += size
    return batches
