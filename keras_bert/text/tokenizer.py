"""Google's BERT tokenizer as a graph of TensorFlow's core operations, which any runtime has.

The reference is `FullTokenizer` in google-research/bert `tokenization.py`. A whole batch goes
through each step at once: code points, characters and words (`normalization`), and tokens
(`wordpiece`). All steps work flat over the batch.
"""

import functools
import itertools
import os
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from keras_bert.text import normalization, tables, token_matching, wordpiece
from keras_bert.text.base_tokenizer import BaseTokenizer

_LARGE_BATCH = 64  # texts; a second thread does not pay off for fewer


class WordPieceTokenizer(BaseTokenizer):
    """Tokenizes strings into the same WordPiece ids as Google's tokenizer, on the CPU.

    Works eagerly, in `tf.data` and in any traced graph.

    Args:
        vocabulary: list of tokens; the index of a token is its id. If a token occurs twice, its
            last index counts, as in Google's `load_vocab`.
        lowercase: lower-case as `str.lower` does.
        strip_accents: decompose (NFD) and drop combining marks. Defaults to `lowercase`.
        split_cjk: make each CJK ideograph a word.
        added_tokens: tokens that are matched whole in texts, as for `Preprocessor`.

    Raises:
        ValueError: if the vocabulary lacks [UNK] or an added token.

    Warns:
        UserWarning: if many tokens of the vocabulary can never match with these options.

    Example:

    >>> tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "play", "##ing", "chess", "!"])
    >>> tokenizer.tokenize(["Playing chess!", "go"]).to_list()
    [[2, 3, 4, 5], [1]]
    """

    def __init__(self, vocabulary: Iterable[str], **options: Any) -> None:
        super().__init__(vocabulary, **options)
        pieces = {token: self.token_id(token) for token in self.word_pieces}
        arrays = tables.lookup_tables(
            pieces, self.lowercase, self.strip_accents, self.split_cjk, self._normalized_tokens
        )
        self._exact_matcher = None
        self._normalized_matcher = None
        if self._exact_tokens:
            alphabet = tables.Alphabet(self._exact_tokens)
            self._exact_matcher = token_matching.Matcher(self._exact_tokens, self._ids, alphabet)
        if self._normalized_tokens:
            alphabet = tables.Alphabet([*pieces, *self._normalized_tokens])
            self._normalized_matcher = token_matching.Matcher(
                self._normalized_tokens, self._ids, alphabet, separates_cjk=self.split_cjk
            )
        # Eager tensors, so that all graphs traced from this tokenizer share one copy.
        with tf.init_scope(), tf.device("CPU:0"):
            self._constants = {name: tf.constant(array) for name, array in arrays.items()}

    def tokenize(self, texts):
        """Tokenize a batch of texts.

        Args:
            texts: strings (batch,), UTF-8; invalid bytes are dropped.

        Returns:
            A `tf.RaggedTensor` int32 (batch, tokens).
        """
        texts = _as_strings(texts)
        # Traced graphs (tf.data, an export) already run in parallel.
        is_large = tf.executing_eagerly() and len(texts) >= _LARGE_BATCH
        run = self._tokenize_in_parts if is_large else self._tokenize_flat
        ids, row_splits = run(texts)
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def tokenize_with_offsets(self, texts):
        """Tokenize a batch of texts and return the byte offsets of each token.

        A stripped accent belongs to the token of its letter.

        Args:
            texts: strings (batch,), UTF-8.

        Returns:
            `(ids, words, starts, limits)`, each a `tf.RaggedTensor` (batch, tokens): ids
            int32; the index of the token's word in its text, int32; the first byte and the byte
            after the last, int64.
        """
        *flat, row_splits = self._tokenize_flat_with_offsets(_as_strings(texts))
        # A call of a traced function loses the static shapes of its results.
        ids, words, starts, limits = (tf.ensure_shape(values, [None]) for values in flat)
        row_splits = tf.ensure_shape(row_splits, [None])
        first_words = tf.gather(tf.concat([words, [0]], 0), row_splits[:-1])
        words -= tf.repeat(first_words, row_splits[1:] - row_splits[:-1])
        ragged = functools.partial(
            tf.RaggedTensor.from_row_splits, row_splits=row_splits, validate=False
        )
        return ragged(ids), ragged(words), ragged(starts), ragged(limits)

    def tokenize_characters_with_offsets(self, texts):
        """Tokenize each code point as a word, and return the byte offsets of each token.

        For taggers that label characters, such as the entities of KLUE. Code points without a
        token, such as spaces, are left out.

        Args:
            texts: strings (batch,), UTF-8.

        Returns:
            As `tokenize_with_offsets`, with the index of the code point in place of the index
            of the word.

        Example:

        >>> tokenizer = WordPieceTokenizer(["[UNK]", "a", "##b", "b"])
        >>> ids, words, starts, _ = tokenizer.tokenize_characters_with_offsets(["ab b", "b"])
        >>> ids.to_list(), words.to_list(), starts.to_list()
        ([[1, 3, 3], [3]], [[0, 1, 3], [0]], [[0, 1, 3], [0]])
        """
        texts = _as_strings(texts)
        characters, offsets = tf.strings.unicode_split_with_offsets(texts, "UTF-8")
        ids, _, starts, limits = self.tokenize_with_offsets(characters.flat_values)
        counts = ids.row_lengths()  # tokens per code point
        row_splits = tf.gather(ids.row_splits, characters.row_splits)
        index = tf.ragged.range(characters.row_lengths()).flat_values
        shift = tf.repeat(offsets.flat_values, counts)
        ragged = functools.partial(
            tf.RaggedTensor.from_row_splits, row_splits=row_splits, validate=False
        )
        return (
            ragged(ids.flat_values),
            ragged(tf.cast(tf.repeat(index, counts), tf.int32)),
            ragged(starts.flat_values + shift),
            ragged(limits.flat_values + shift),
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def _tokenize_flat(self, texts):
        with tf.device("CPU:0"):
            code_points = tf.strings.unicode_decode(texts, "UTF-8")
            ids, *_, token_splits = self._tokens(code_points.values, code_points.row_splits)
        return ids, token_splits

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def _tokenize_in_parts(self, texts):
        return in_parts(self._tokenize_flat, texts)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def _tokenize_flat_with_offsets(self, texts):
        with tf.device("CPU:0"):
            decoded, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
            byte_starts = offsets.values
            row_splits = decoded.row_splits
            ids, words, first, last, token_splits = self._tokens(decoded.values, row_splits)
            byte_limits = self._byte_limits(decoded.values, byte_starts, texts, row_splits)
        return ids, words, tf.gather(byte_starts, first), tf.gather(byte_limits, last), token_splits

    def _tokens(self, code_points, row_splits):
        """Tokenize code points int32 (n,) of a batch with row splits int64 (batch + 1,).

        Returns, flat: ids int32 (t,), index of the word int32 (t,), index of the first and of the
        last code point int64 (t,), and token splits int64 (batch + 1,).
        """
        constants = self._constants
        entries = normalization.look_up(constants, "entries", code_points)
        if self.added_tokens:
            characters, added_ids, added_last = self._match(entries, code_points, row_splits)
        else:
            boundary = normalization.boundaries(entries, row_splits)
            characters = self._normalize(entries, code_points, row_splits, boundary)
        source = characters.source
        words = normalization.group_words(characters.is_first)
        tokens = wordpiece.tokenize_words(constants, characters.values, words, self.unknown_id)
        ids = tokens["id"]
        last = tf.gather(source, tokens["first"] + tokens["length"] - 1)
        if self.added_tokens:
            added = tf.gather(added_ids, tokens["first"])
            ids = tf.where(added < 0, ids, added)
            last = tf.where(added < 0, last, tf.gather(added_last, tokens["first"]))
        first_words = tf.searchsorted(tf.gather(source, words["start"]), row_splits)
        return (
            ids,
            tokens["word"],
            tf.gather(source, tokens["first"]),
            last,
            tf.cast(tf.gather(tokens["splits"], first_words), tf.int64),
        )

    def _match(self, entries, code_points, row_splits):
        """Normalize code points, and replace added tokens by words, see `token_matching`.

        Returns `Characters`; the id of the added token that begins at each character or -1, int32
        (m,); and the last code point of that token, int64 (m,).
        """
        is_space = tf.not_equal(entries & tables.SPACE, 0)
        added_ids = tf.fill(tf.shape(entries), -1)
        added_last = tf.range(tf.size(entries, tf.int64))
        if self._exact_matcher is not None:
            values = self._exact_matcher.encode(code_points)
            matches = self._exact_matcher.find(values, row_splits, is_space, code_points)
            entries, row_splits, added_ids, added_last = token_matching.cover_code_points(
                matches, entries, row_splits
            )
        boundary = normalization.boundaries(entries, row_splits)
        if self._normalized_matcher is None:
            characters = self._normalize(entries, code_points, row_splits, boundary)
            source = characters.source
            return characters, tf.gather(added_ids, source), tf.gather(added_last, source)
        # Keep white space, which separates the words of a token.
        is_space = tf.not_equal(entries & tables.SPACE, 0)
        space = self._normalized_matcher.encode(tf.constant([ord(" ")]))[0]
        entries = tf.where(is_space, space | 1 << tables.VALUE_BITS | tables.SPACE, entries)
        characters = self._normalize(entries, code_points, row_splits, boundary)
        source = characters.source
        is_space = tf.gather(is_space, source)
        matches = self._normalized_matcher.find(
            characters.values,
            tf.searchsorted(source, row_splits, out_type=tf.int64),
            is_space,
            tf.gather(code_points, source),
        )
        characters, ids, last = token_matching.cover_characters(matches, characters, is_space)
        source = characters.source
        exact_ids = tf.gather(added_ids, source)
        is_exact = exact_ids >= 0
        ids = tf.where(is_exact, exact_ids, ids)
        last = tf.where(is_exact, tf.gather(added_last, source), last)
        return characters, ids, last

    def _normalize(self, entries, code_points, row_splits, boundary):
        options = (self.lowercase, self.strip_accents)
        return normalization.normalize(
            self._constants, entries, code_points, row_splits, boundary, *options
        )

    def _byte_limits(self, code_points, byte_starts, texts, row_splits):
        """Return the byte after each code point and after the stripped accents that follow it."""
        entries = normalization.look_up(self._constants, "entries", code_points)
        size = tf.size(code_points, out_type=tf.int64)
        starts = tf.where(tf.equal(entries & tables.MARK, 0))[:, 0]  # all but stripped accents
        next_start = tf.searchsorted(starts, tf.range(size), side="right", out_type=tf.int64)
        limit = tf.gather(tf.concat([starts, [size]], 0), next_start)
        rows = tf.ragged.row_splits_to_segment_ids(row_splits)
        limit = tf.minimum(limit, tf.gather(row_splits, rows + 1))
        text_bytes = tf.cast(tf.strings.length(texts), tf.int64)
        at_end = tf.equal(limit, tf.gather(row_splits, rows + 1))
        inside = tf.gather(tf.concat([byte_starts, [0]], 0), limit)
        return tf.where(at_end, tf.gather(text_bytes, rows), inside)


def _as_strings(texts):
    """Return `texts` as a tensor of strings (batch,)."""
    texts = tf.convert_to_tensor(texts)
    # TensorFlow makes an empty list float32.
    return tf.constant([], tf.string) if texts.shape.num_elements() == 0 else texts


def in_parts(tokenize, texts):
    """Tokenize a large batch in parallel, in one part per CPU core.

    `tokenize` is a `tf.function` from strings (batch,) to flat ids int32 (tokens,) and row splits
    int64 (batch + 1,). Returns the ids and row splits of all texts.
    """
    count = os.cpu_count() or 1
    cuts = [tf.size(texts) * part // count for part in range(count + 1)]
    results = [tokenize(texts[first:limit]) for first, limit in itertools.pairwise(cuts)]
    all_row_splits = [tf.zeros([1], tf.int64)]
    size = tf.constant(0, tf.int64)
    for _, row_splits in results:
        all_row_splits.append(row_splits[1:] + size)
        size += row_splits[-1]
    return tf.concat([ids for ids, _ in results], 0), tf.concat(all_row_splits, 0)
