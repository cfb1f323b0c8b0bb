"""The outputs of the graph of an export for encoded sequences. Keras is not imported."""

import math

import numpy as np

from keras_bert.exporting import graph_folder

_NAMES = tuple(graph_folder.INPUTS.values())
_MAX_FLOATS = 2**25  # of an output of a batch, 128 MB


def compute(session, encoded, names, *, batch_size=32, on_batch=None):
    """Return the outputs for each sequence: arrays, or dicts of arrays for several outputs.

    Args:
        session: A `graph_session.Session`.
        encoded: A `text.encoded_texts.Encoded`.
        names: Names of the outputs to compute.
        batch_size: Sequences per batch, unless the engine has its own size.
        on_batch: Called after each batch with the fraction of the sequences in it.
    """
    rows_per_batch = _rows_per_batch(session, encoded.lengths, names, batch_size)
    batches = (_batch(session, encoded, rows) for rows in rows_per_batch)
    selects_positions = "masked_lm_positions" in session.inputs
    results = [None] * len(encoded)
    for index, outputs in session.run(batches, names):
        rows = rows_per_batch[index]
        if any(np.isnan(output).any() for output in outputs):
            raise ValueError(f"{session.file} returned NaN. {graph_folder.EXPORT_AGAIN}")
        for row_of_batch, row in enumerate(rows):
            values = [output[row_of_batch] for output in outputs]
            if encoded.output_positions is not None and not selects_positions:
                values = [value[encoded.output_positions[row]] for value in values]
            output = values[0] if len(names) == 1 else dict(zip(names, values, strict=True))
            results[row] = encoded.compact(output)
        if on_batch is not None:
            on_batch(len(rows) / len(encoded))
    return results


def _batch(session, encoded, rows):
    """Return the inputs of the graph for some sequences."""
    inputs, _, _ = encoded.batch(rows, int(encoded.lengths[rows].max()))
    return graph_inputs(inputs, session.inputs)


def graph_inputs(inputs, names=_NAMES):
    """Return a batch of an `Encoded` with the names and the type of the graph's inputs."""
    ids = {graph_folder.INPUTS.get(key, key): array for key, array in inputs.items()}
    return {name: ids[name].astype(np.int64) for name in names}


def _rows_per_batch(session, lengths, names, batch_size):
    """Return the indices of the sequences of each batch, the longest sequences first."""
    tokens = session.tokens_per_batch
    if tokens is not None:
        # Few sequences are shared among the batches that run at the same time.
        tokens = min(tokens, math.ceil(int(lengths.sum()) / session.parallel_batches))
    width = max(session.widths[name] or 1 for name in names)
    order = np.argsort(-lengths, kind="stable")
    rows_per_batch = []
    start = 0
    while start < len(order):
        length = int(lengths[order[start]])
        size = batch_size if tokens is None else tokens // length
        size = min(size, _MAX_FLOATS // (length * width))
        size = max(size, 1)
        rows_per_batch.append(order[start : start + size])
        start += size
    return rows_per_batch
