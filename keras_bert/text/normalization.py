"""Code points to the characters of words, as a TensorFlow graph that works flat over a batch.

`tables.Alphabet` numbers the characters. For the text "E' b!", in which ' is a combining accent,
and the vocabulary e, b, ! (here "e" is character 8, "b" 7 and "!" 1):

    code_points  E ' _ b !
    value        8 0 0 7 1      (of each entry of the table: the replacement)
    count        1 0 0 1 1      (how many characters replace the code point)
    boundary     1 0 1 0 1      (a row starts here, or a word ends before here)
    Characters:
      values     8 7 1
      source     0 3 4          (index of the code point)
      is_first   1 1 1
    group_words:
      index      0 1 2          (of the word of each character)
      offset     0 0 0          (of each character in its word)
      start      0 1 2          (the first character of each word)
      length     1 1 1
"""

import typing

import tensorflow as tf

from keras_bert.text import tables


class Characters(typing.NamedTuple):
    """The characters of a batch after normalization, flat over the texts, (m,).

    values: int32, index of the character in the alphabet
    source: int64, index of the code point from which the character was made
    is_first: bool, True for the first character of each word
    """

    values: tf.Tensor
    source: tf.Tensor
    is_first: tf.Tensor


def look_up(constants, table, code_points):
    """Return the entry of each code point in a table over all of Unicode; int32 (n,)."""

    def astral():
        page = tf.gather(constants[f"{table}_page"], tf.bitwise.right_shift(code_points, 8))
        return tf.gather(constants[table], page + (code_points & (tables.PAGE - 1)))

    return tf.cond(
        tf.reduce_max(code_points) < tables.DIRECT,
        lambda: tf.gather(constants[table], code_points),
        astral,
    )


def _mark_row_starts(flags, row_splits):
    """Set the flag, bool (n,), of the first element of each row."""
    size = tf.size(flags, out_type=tf.int64)
    starts = row_splits[:-1]
    starts = tf.boolean_mask(starts, starts < size)  # leave out empty rows at the end
    return tf.tensor_scatter_nd_update(flags, starts[:, None], tf.ones_like(starts, tf.bool))


def boundaries(entries, row_splits):
    """Return True for code points that end the word before them; bool (n,)."""
    isolated = tf.not_equal(entries & tables.ISOLATED, 0)
    after_isolated = tf.concat([[False], isolated], 0)[: tf.size(isolated)]
    boundary = tf.not_equal(entries & (tables.ISOLATED | tables.SPACE), 0) | after_isolated
    return _mark_row_starts(boundary, row_splits)


def normalize(constants, entries, code_points, row_splits, boundary, lowercase, strip_accents):
    """Replace code points by `Characters`: clean, lower-case, strip accents.

    `entries` int32 (n,) are from `look_up`, and `boundary` bool (n,) from `boundaries`.
    """

    def plain():
        # Only white space is removed here, so a gap in the sources is a boundary.
        source = tf.where(tf.not_equal(entries & tables.COUNT, 0))[:, 0]
        gap = tf.concat([tf.ones_like(source[:1], tf.bool), source[1:] - source[:-1] > 1], 0)
        is_first = tf.gather(boundary, source) | gap
        return Characters(tf.gather(entries & tables.VALUE, source), source, is_first)

    def rare():
        values = entries & tables.VALUE
        if lowercase:
            values = tf.cond(
                _any(entries, tables.SIGMA),
                lambda: tf.where(
                    _final_sigmas(constants, entries, code_points, row_splits),
                    constants["final_sigma"],
                    values,
                ),
                lambda: values,
            )
        kept = tf.where(tf.not_equal(entries & tables.COUNT, 0))[:, 0]
        characters, source = tf.cond(
            _any(entries, tables.SEQUENCE),
            lambda: _expand(constants, entries, values, kept, row_splits, strip_accents),
            lambda: (tf.gather(values, kept), kept),
        )
        word = tf.gather(tf.cumsum(tf.cast(boundary, tf.int32)), source)
        other = tf.not_equal(word[1:], word[:-1])
        is_first = tf.concat([tf.ones_like(word[:1], tf.bool), other], 0)
        return Characters(characters, source, is_first)

    return tf.cond(_any(entries, tables.RARE), rare, plain)


def _any(entries, flag):
    return tf.reduce_any(tf.not_equal(entries & flag, 0))


def _expand(constants, entries, values, kept, row_splits, strip_accents):
    """Replace each value by its sequence of characters, in canonical order.

    `values` int32 (n,) are indices of sequences; `kept` int64 (k,) are the code points that are
    not removed. Returns characters int32 (m,) and the index of the code point of each, int64
    (m,).
    """
    first = tf.gather(values, kept)
    count = tf.gather(tf.bitwise.right_shift(entries & tables.COUNT, tables.VALUE_BITS), kept)
    sequence = tf.raw_ops.RaggedRange(
        starts=first, limits=first + count, deltas=1, Tsplits=tf.int64
    ).rt_dense_values
    source = tf.repeat(kept, count)
    if strip_accents:
        sequence = tf.cond(
            _any(entries, tables.REORDER),
            lambda: _canonical_order(constants, entries, row_splits, sequence, source),
            lambda: sequence,
        )
    return tf.gather(constants["sequences"], sequence), source


def _final_sigmas(constants, entries, code_points, row_splits):
    """Return True for capital sigmas that end a word by the rule of `str.lower`; bool (n,).

    Leaving out case-ignorable code points, the code point before a final sigma is cased, and the
    code point after it is not.
    """
    case = look_up(constants, "case", code_points)
    seen = tf.where(tf.not_equal(case, tables.CASE_IGNORABLE))[:, 0]  # (k,)
    cased = tf.equal(tf.gather(case, seen), tables.CASED)
    row = tf.cumsum(
        tf.cast(_mark_row_starts(tf.zeros_like(entries, tf.bool), row_splits), tf.int32)
    )
    row = tf.gather(row, seen)
    same_row = tf.equal(row[:-1], row[1:])
    before = tf.concat([[False], cased[:-1] & same_row], 0)
    after = tf.concat([cased[1:] & same_row, [False]], 0)
    final = tf.scatter_nd(seen[:, None], before & ~after, tf.shape(code_points, tf.int64))
    return final & tf.not_equal(entries & tables.SIGMA, 0)


def _canonical_order(constants, entries, row_splits, sequence, source):
    """Sort each run of combining characters by class, the last step of NFD."""
    starter = _mark_row_starts(tf.equal(entries & tables.NONSTARTER, 0), row_splits)
    run = tf.gather(tf.cumsum(tf.cast(starter, tf.int64)), source)
    combining_class = tf.cast(tf.gather(constants["sequence_classes"], sequence), tf.int64)
    size = tf.size(source, out_type=tf.int64)
    key = (run * 256 + combining_class) * size + tf.range(size)  # unique, so the sort is stable
    return tf.gather(sequence, tf.argsort(key))


def group_words(is_first):
    """Group characters into words.

    `is_first`, bool (m,), is True for the first character of each word. Returns the dict `words`
    of `wordpiece.tokenize_words`.
    """
    index = tf.cumsum(tf.cast(is_first, tf.int32)) - 1
    start = tf.cast(tf.where(is_first)[:, 0], tf.int32)
    size = tf.size(index)
    limit = tf.concat([start, [size]], 0)[1:]
    return {
        "index": index,
        "offset": tf.range(size) - tf.gather(start, index),
        "start": start,
        "length": limit - start,
    }
