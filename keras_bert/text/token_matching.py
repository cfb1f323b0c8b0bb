"""Find added tokens, which are matched whole, in a batch of texts, as a TensorFlow graph.

The order is that of Hugging Face's tokenizers. First, tokens with `normalized=False` are matched in
the text itself. Then, the other tokens are matched in the normalized text between these matches.
Each time the leftmost match counts, and the longest of several at the same position.

For the texts "a [E1]" and "[E1]!" with the exact token "[E1]" of id 9, flat over the batch:

    code points  a _ [ E 1 ] [ E 1 ] !
    first        2 6      (index of the first code point of each match)
    limit        6 10     (index after the last one)
    ids          9 9

The first code point of a match becomes a word of its own, and the others are dropped.
"""

import typing

import numpy as np
import tensorflow as tf

from keras_bert.text import tables, wordpiece
from keras_bert.text.added_token_search import word_characters
from keras_bert.text.normalization import Characters
from keras_bert.text.windows_graph import reached

_FLAGS = ("lstrip", "rstrip", "single_word")


class Matches(typing.NamedTuple):
    """Matched tokens: `ids` int32 (k,), and `first` and `limit` int64 (k,) as in the example."""

    ids: tf.Tensor
    first: tf.Tensor
    limit: tf.Tensor


class Matcher:
    """Finds tokens in flat sequences of characters.

    Args:
        token_of_text: the `AddedToken` for each text to search for, for example in lower case.
        ids: `{token: id}`.
        alphabet: `tables.Alphabet` of the characters that are searched.
        separates_cjk: `True` if CJK ideographs are words of their own, so that `single_word` does
            not count them as letters beside a token.
    """

    def __init__(self, token_of_text, ids, alphabet, separates_cjk=False):
        tokens = token_of_text.values()
        indices = np.arange(len(tokens), dtype=np.int32)
        roots = np.full(len(tokens), tables.TRIE_ROOT)
        arrays = {
            **tables.trie(list(token_of_text), indices, roots, alphabet),
            "ids": np.array([ids[token.content] for token in tokens], np.int32),
            "alphabet": alphabet.code_points,
            **{flag: np.array([getattr(token, flag) for token in tokens]) for flag in _FLAGS},
        }
        self._has = {flag: bool(arrays[flag].any()) for flag in _FLAGS}
        with tf.init_scope(), tf.device("CPU:0"):
            self._constants = {name: tf.constant(array) for name, array in arrays.items()}
            if self._has["single_word"]:
                self._is_word = tf.constant(word_characters(separates_cjk))

    def encode(self, code_points):
        """Number code points int32 (n,): 1 + the index in the alphabet, or 0 if absent from it."""
        alphabet = self._constants["alphabet"]
        index = tf.searchsorted(alphabet, code_points)
        index = tf.minimum(index, tf.size(alphabet) - 1)
        is_known = tf.equal(tf.gather(alphabet, index), code_points)
        return tf.where(is_known, index + 1, 0)

    def find(self, characters, row_splits, is_space, code_points):
        """Return the `Matches` in the characters of rows; a match does not cross rows.

        Args:
            characters: as from `encode`, int32 (m,).
            row_splits: int64 (rows + 1,).
            is_space: bool (m,).
            code_points: the code points of the characters, int32 (m,).
        """
        constants = self._constants
        row_per_character = tf.ragged.row_splits_to_segment_ids(row_splits)
        limits = tf.gather(row_splits, row_per_character + 1)
        is_first = tf.ones_like(row_per_character, tf.bool)  # a match can begin anywhere
        best = wordpiece.longest_matches(constants, characters, is_first, tf.cast(limits, tf.int32))
        first = tf.where(best > 0)[:, 0]
        first = tf.boolean_mask(first, _without_overlaps(first, first + _length(best, first)))
        limit = first + _length(best, first)
        # The index of the matched token, (k,).
        token = tf.bitwise.right_shift(tf.gather(best, first), wordpiece.LENGTH_BITS)
        if self._has["single_word"]:
            is_word = tf.gather(self._is_word, code_points)
            joined = _is_joined(is_word, first, limit, row_splits, row_per_character)
            refused = joined & tf.gather(constants["single_word"], token)
            kept = tf.where(~refused)[:, 0]
            first = tf.gather(first, kept)
            limit = tf.gather(limit, kept)
            token = tf.gather(token, kept)
        if self._has["lstrip"] or self._has["rstrip"]:
            row = tf.gather(row_per_character, first)
            before, after = _spaces_around(is_space, first, limit)
            before = tf.maximum(before, tf.gather(row_splits, row))
            after = tf.minimum(after, tf.gather(row_splits, row + 1))
            limit = tf.where(tf.gather(constants["rstrip"], token), after, limit)
            # The spaces between two matches belong to the first one if it has `rstrip`.
            previous_limit = tf.concat([[0], limit], 0)[:-1]
            before = tf.maximum(before, previous_limit)
            first = tf.where(tf.gather(constants["lstrip"], token), before, first)
        return Matches(tf.gather(constants["ids"], token), first, limit)


def cover_code_points(matches, entries, row_splits):
    """Make each match one word that WordPiece does not split.

    Args:
        matches: `Matches` in the code points.
        entries: the table entry of each code point, int32 (n,).
        row_splits: int64 (rows + 1,).

    Returns:
        The new entries, int32 (n,); row splits of the texts that are also split at matches; the id
        of the token that begins at each code point or -1, int32 (n,); and the index of the last
        code point of that token, int64 (n,).
    """
    size = tf.size(entries)
    entries = tf.where(_are_inside(matches, size), tables.REMOVED, entries)
    word = tf.fill(tf.shape(matches.ids), tables.ISOLATED | 1 << tables.VALUE_BITS)
    entries = tf.tensor_scatter_nd_update(entries, matches.first[:, None], word)
    edges = tf.concat([row_splits, matches.first, matches.limit], 0)
    part_splits = tf.where(_counts(edges, size + 1) > 0)[:, 0]
    ids = _scatter(tf.fill([size], -1), matches.first, matches.ids)
    last = _scatter(tf.range(tf.cast(size, tf.int64)), matches.first, matches.limit - 1)
    return entries, part_splits, ids, last


def cover_characters(matches, characters, is_space):
    """Make each match in `Characters` one word that WordPiece does not split, and drop the spaces.

    Returns the new `Characters`; the id of the token that begins at each character or -1, int32
    (m,); and the index of the last code point of that token, int64 (m,).
    """
    size = tf.size(characters.values)
    begins = _counts(matches.first, size) > 0
    first_of_words = tf.cast(tf.where(characters.is_first)[:, 0], tf.int64)
    edges = tf.concat([first_of_words, matches.first, matches.limit], 0)
    word = tf.cumsum(_counts(edges, size + 1))[:-1]
    ids = _scatter(tf.fill([size], -1), matches.first, matches.ids)
    ends = tf.gather(characters.source, matches.limit - 1)
    last = _scatter(characters.source, matches.first, ends)
    is_outside = ~is_space & ~_are_inside(matches, size)
    kept = tf.where(begins | is_outside)[:, 0]
    word = tf.gather(word, kept)
    is_first = tf.concat([tf.ones_like(word[:1], tf.bool), tf.not_equal(word[1:], word[:-1])], 0)
    values = tf.gather(tf.where(begins, 0, characters.values), kept)
    covered = Characters(values, tf.gather(characters.source, kept), is_first)
    return covered, tf.gather(ids, kept), tf.gather(last, kept)


def _length(best, index):
    return tf.cast(tf.gather(best, index) & wordpiece.LENGTH, tf.int64)


def _without_overlaps(first, limit):
    """Return True for the matches that remain if the leftmost match counts; bool (k,).

    The next match after a match is the first one that begins at its limit or later. The matches
    that remain are the first match and all that are reached from it in such steps. For matches at
    0-3, 2-5, 3-4 and 4-6:

        following            2 4 3 4    (4: the end)
        remain               T F T T
    """
    size = tf.size(first, tf.int64)
    following = tf.concat([tf.searchsorted(first, limit, out_type=tf.int64), [size]], 0)
    return reached(tf.zeros([1], tf.int64), following)[:-1]


def _is_joined(is_word, first, limit, row_splits, rows):
    """Return True for matches with a letter, digit or `_` beside them in their row; bool (k,)."""
    row = tf.gather(rows, first)
    padded = tf.concat([[False], is_word, [False]], 0)
    before = tf.gather(padded, first) & (first > tf.gather(row_splits, row))
    after = tf.gather(padded, limit + 1) & (limit < tf.gather(row_splits, row + 1))
    return before | after


def _spaces_around(is_space, first, limit):
    """Return the start of the spaces before each match, and the end of those after; int64 (k,)."""
    others = tf.where(~is_space)[:, 0]
    index = tf.searchsorted(others, first)
    before = tf.gather(tf.concat([[-1], others], 0), index) + 1
    end = tf.size(is_space, out_type=tf.int64)
    after = tf.gather(tf.concat([others, [end]], 0), tf.searchsorted(others, limit))
    return before, after


def _are_inside(matches, size):
    """Return True for the indices below `size` that are inside a match, bool (size,)."""
    changes = _counts(matches.first, size + 1) - _counts(matches.limit, size + 1)
    return tf.cumsum(changes)[:-1] > 0


def _counts(indices, size):
    """Return how often each index below `size` occurs, int32 (size,)."""
    return tf.scatter_nd(indices[:, None], tf.ones_like(indices, tf.int32), [size])


def _scatter(values, indices, updates):
    return tf.tensor_scatter_nd_update(values, indices[:, None], updates)
