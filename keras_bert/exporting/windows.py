"""TensorFlow functions for texts that are longer than the model's longest sequence.

Such a text is split into overlapping windows, and the model runs on a few windows at a time.
"""

import typing

import tensorflow as tf

_CHUNK = 16  # windows that run at once; limits the memory for a very long text
_CHUNK_BY_LENGTH = 32  # rows of similar length that run at once


class Windows(typing.NamedTuple):
    """Overlapping windows of the rows of a batch.

    tokens: `tf.RaggedTensor` (windows, tokens)
    row: row of each window, int64 (windows,)
    number: index of each window among those of its row, int64 (windows,)
    counts: number of windows of each row, at least 1, int64 (rows,)
    step: tokens from one window of a row to the next, at least 1, int64 (rows,)
    """

    tokens: tf.RaggedTensor
    row: tf.Tensor
    number: tf.Tensor
    counts: tf.Tensor
    step: tf.Tensor


def split(tokens, size, step):
    """Return the `Windows` of a `tf.RaggedTensor` of tokens (rows, tokens).

    `size` is the largest number of tokens in a window and `step` the tokens from one window to the
    next, both int64 (rows,).
    """
    step = tf.maximum(step, 1)
    length = tokens.row_lengths()
    counts = tf.maximum(length - size + step - 1, 0) // step + 1
    row = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)
    number = tf.ragged.range(counts).flat_values
    start = number * tf.gather(step, row)
    size = tf.minimum(tf.gather(size, row), tf.gather(length, row) - start)
    begin = tf.gather(tokens.row_starts(), row) + start
    in_windows = tf.gather(tokens.flat_values, tf.ragged.range(begin, begin + size))
    return Windows(in_windows, row, number, counts, step)


def map_in_chunks(function, inputs, output_specs, chunk=None):
    """Apply a function to `chunk` rows at a time (default: 16) and concatenate its results.

    `function` maps a dict of tensors (rows, ...) to another dict of tensors (rows, ...), which
    `output_specs`, a dict of `tf.TensorSpec`s, describes. `inputs` is the dict for all rows.
    """
    chunk = _CHUNK if chunk is None else chunk
    rows = tf.shape(next(iter(inputs.values())))[0]
    count = tf.maximum((rows + chunk - 1) // chunk, 1)

    def step(number, arrays):
        begin = number * chunk
        results = function({key: value[begin : begin + chunk] for key, value in inputs.items()})
        return number + 1, {key: arrays[key].write(number, results[key]) for key in arrays}

    arrays = {
        key: tf.TensorArray(spec.dtype, count, infer_shape=False, element_shape=spec.shape)
        for key, spec in output_specs.items()
    }
    _, arrays = tf.while_loop(
        lambda number, _: number < count, step, (0, arrays), parallel_iterations=1
    )
    return {
        key: tf.ensure_shape(arrays[key].concat(), spec.shape) for key, spec in output_specs.items()
    }


def map_by_length(function, inputs, output_specs):
    """Apply a function to the rows sorted by length, 32 at a time, cut to the longest of them.

    The arguments are those of `map_in_chunks`. `inputs` are those of an encoder, and the outputs
    (rows, ...) must not depend on the padding.
    """
    position = tf.range(tf.shape(inputs["input_mask"])[1]) + 1
    length = tf.reduce_max(tf.where(tf.not_equal(inputs["input_mask"], 0), position, 1), axis=1)
    order = tf.argsort(length, direction="DESCENDING", stable=True)

    def run(chunk):
        longest = tf.maximum(tf.reduce_max(chunk.pop("length")), 1)  # a batch can be empty
        return function({key: value[:, :longest] for key, value in chunk.items()})

    by_length = {key: tf.gather(value, order) for key, value in inputs.items()}
    by_length["length"] = tf.gather(length, order)
    outputs = map_in_chunks(run, by_length, output_specs, _CHUNK_BY_LENGTH)
    original = tf.argsort(order)
    return {key: tf.gather(value, original) for key, value in outputs.items()}
