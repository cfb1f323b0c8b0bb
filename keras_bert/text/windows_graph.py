"""TensorFlow functions for texts that are longer than the model's longest sequence.

Such a text is split into overlapping windows, and the model runs on a few windows at a time.
"""

import typing

import tensorflow as tf

from keras_bert.text.text_windows import overlap

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


def split_texts(tokens, max_sequence_length):
    """Return the `Windows` of texts, `tf.RaggedTensor` (rows, tokens), without special tokens."""
    size = tf.fill([tokens.nrows()], tf.constant(max_sequence_length - 2, tf.int64))
    return split(tokens, size, size - overlap(size))


class WordWindows(typing.NamedTuple):
    """Overlapping windows that end between words.

    tokens: `tf.RaggedTensor` (windows, tokens)
    window: window from which each word gets its label, int64 (words,)
    position: index of each word's first token in that window, int64 (words,)
    """

    tokens: tf.RaggedTensor
    window: tf.Tensor
    position: tf.Tensor


def split_between_words(tokens, counts, size):
    """Return the `WordWindows` of a batch.

    Gives the same windows as `keras_bert.tasks.tagging.windows.EncodedSentences`.
    `tokens` is a `tf.RaggedTensor` (rows, tokens) and `counts` a `tf.RaggedTensor` (rows, words)
    with the number of tokens of each word, at least 1, int64. `size` is the largest number of
    tokens in a window. Longer words are truncated. A row without words has no window.
    """
    first = tf.cumsum(counts.flat_values, exclusive=True)
    counts = tf.minimum(counts, size)
    kept = tf.ragged.range(first, first + counts.flat_values).flat_values
    edges = tf.pad(tf.cumsum(counts.flat_values), [[1, 0]])  # as in `tag_windows`, of all rows
    start, end, label_end = _word_windows(edges, counts, size)
    in_windows = tf.gather(tf.gather(tokens.flat_values, kept), tf.ragged.range(start, end))
    # `tf.searchsorted` rejects empty tensors. With the last edge, none is empty without words.
    window = _search(tf.concat([label_end, edges[-1:]], axis=0), edges, "right")[:-1]
    return WordWindows(in_windows, window, edges[:-1] - tf.gather(start, window))


def _word_windows(edges, counts, size):
    """Return `start`, `end` and `label_end` of windows, see `tag_windows`; int64 (windows,).

    `edges` has the first token of each word and the end of the batch, int64 (words + 1,). The
    window that starts at an edge does not depend on earlier windows. So the windows of all edges
    are computed at once, and then those that are reached from the starts of the rows are selected.
    """
    words = tf.size(edges, tf.int64) - 1
    row_end = tf.gather(edges, tf.gather(counts.row_limits(), counts.value_rowids()))
    row_end = tf.concat([row_end, edges[-1:]], axis=0)
    end = tf.gather(edges, _search(edges, edges + size, "right") - 1)
    end = tf.minimum(end, row_end)
    is_last = tf.equal(end, row_end)
    needed = tf.gather(edges, tf.minimum(_search(edges, end, "right"), words)) - size
    step = size - overlap(size)
    one_step_later = _search(edges, edges + step, "right") - 1
    following = tf.maximum(one_step_later, _search(edges, needed, "left"))  # index in `edges`
    following = tf.where(is_last, words, following)
    middles = edges + tf.concat([edges[1:], edges[-1:] + 1], axis=0)
    border = _search(middles, end + tf.gather(edges, following), "right")
    label_end = tf.where(is_last, row_end, tf.gather(edges, border))
    first_word = tf.where(reached(counts.row_starts(), following)[:-1])[:, 0]
    return [tf.gather(column, first_word) for column in (edges, end, label_end)]


def _search(edges, values, side):
    return tf.searchsorted(edges, values, side=side, out_type=tf.int64)


def reached(starts, following):
    """Return the mask of the items that are reached from `starts`, bool (items,).

    `following` is the item after each item, int64 (items,). The last item follows itself, and each
    chain of items ends there. Each step of the loop doubles the distance that is covered.
    """
    items = tf.size(following, tf.int64)

    def mark(mask, index):
        return tf.math.unsorted_segment_sum(tf.cast(mask, tf.int32), index, items) > 0

    mask, _ = tf.while_loop(
        lambda _, following: tf.reduce_any(following < items - 1),
        lambda mask, following: (mask | mark(mask, following), tf.gather(following, following)),
        (mark(tf.ones_like(starts), starts), following),
    )
    return mask


def map_in_chunks(function, inputs, output_specs, chunk=None):
    """Apply a function to `chunk` rows at a time (default: 16) and concatenate its results.

    `function` maps a dict of tensors (rows, ...) to another dict of tensors (rows, ...), which
    `output_specs`, a dict of `tf.TensorSpec`s, describes. `inputs` is the dict for all rows.
    """
    chunk = _CHUNK if chunk is None else chunk
    rows = tf.shape(next(iter(inputs.values())))[0]
    count = tf.maximum((rows + chunk - 1) // chunk, 1)

    def step(index, arrays):
        begin = index * chunk
        results = function({key: value[begin : begin + chunk] for key, value in inputs.items()})
        return index + 1, {key: arrays[key].write(index, results[key]) for key in arrays}

    arrays = {
        key: tf.TensorArray(spec.dtype, count, infer_shape=False, element_shape=spec.shape)
        for key, spec in output_specs.items()
    }
    _, arrays = tf.while_loop(
        lambda index, _: index < count, step, (0, arrays), parallel_iterations=1
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
        width = tf.maximum(tf.reduce_max(chunk.pop("length")), 1)  # a batch can be empty
        return function({key: value[:, :width] for key, value in chunk.items()})

    by_length = {key: tf.gather(value, order) for key, value in inputs.items()}
    by_length["length"] = tf.gather(length, order)
    outputs = map_in_chunks(run, by_length, output_specs, _CHUNK_BY_LENGTH)
    original = tf.argsort(order)
    return {key: tf.gather(value, original) for key, value in outputs.items()}


def first_tokens(tokens, words):
    """Return the index of each word's first token in the flat values, int64 (words of the batch,).

    Token ids and the index of each token's word are ragged (batch, tokens), from
    `WordPieceTokenizer.tokenize_with_offsets`.
    """
    key = tf.stack([tokens.value_rowids(), tf.cast(words.flat_values, tf.int64)], axis=1)
    changed = tf.reduce_any(tf.not_equal(key[1:], key[:-1]), axis=1)
    is_first = tf.concat([tf.ones([tf.minimum(tf.shape(key)[0], 1)], tf.bool), changed], axis=0)
    return tf.where(is_first)[:, 0]
