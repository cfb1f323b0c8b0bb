"""Google's BERT tokenizer as a graph of core TensorFlow operations.

The reference is `FullTokenizer` in google-research/bert `tokenization.py`: clean the text,
space out ideographs, lower-case and strip accents, split at white space and punctuation, then
WordPiece, greedy longest match first. Here a whole batch goes through each step at once:

    texts [batch]
      -> code points, flat over the batch                        `_decode`
      -> characters: one table look-up for each code point       `_normalize`
      -> words: where a boundary was crossed                     `_split`
      -> whole words found in the vocabulary by one hash look-up `_match_words`
      -> the others cut along the vocabulary's trie              `_match_pieces`
      -> ids, ragged [batch, (pieces)]

A "character" is an index into the alphabet of the vocabulary, 0 for what no piece contains.
Only ops of TensorFlow's core registry occur, so an exported graph runs in any runtime.
"""

import functools
import itertools
import os
import warnings

import numpy as np
import tensorflow as tf

from keras_bert.text import unicode_tables

UNKNOWN = "[UNK]"
SUFFIX = "##"
MAX_WORD_LENGTH = 200  # characters; `max_input_chars_per_word` of Google's WordpieceTokenizer
_MANY = 100  # pieces that must look wrong for a warning; a handful may be on purpose

# An entry of the character table, an int32: 21 bits of value, 2 of count, then flags.
_VALUE_BITS = 21
_VALUE = (1 << _VALUE_BITS) - 1
_COUNT = 3 << _VALUE_BITS  # number of characters it becomes; 0: it vanishes
_SPACE = 1 << 23
_ISOLATED = 1 << 24  # a word of its own: punctuation, an ideograph
_SIGMA = 1 << 25  # its lower case depends on its neighbours
_SEQUENCE = 1 << 26  # value points into the table of sequences
_NONSTARTER = 1 << 27  # does not end a run of combining characters
_REORDER = 1 << 28  # holds a combining character that survives accent stripping
_MARK = 1 << 29  # an accent that vanishes; it belongs to the letter before
_REMOVED = 1 << 30  # control and format characters, which vanish too
_RARE = _SIGMA | _SEQUENCE | _REORDER | _MARK | _REMOVED

_PAGE = 256  # code points a page of the character table
_DIRECT = 0x10000  # below it (the basic plane) a code point is its own place in the table
_LARGE_BATCH = 64  # texts; below, starting a second thread costs more than it gives

_TRIE_ROOT, _TRIE_SUFFIX_ROOT = 0, 1
# An edge of the trie, an int64: its key (parent node and character) and the node it leads to.
_NODE_BITS = 24
_NODE = (1 << _NODE_BITS) - 1
# The piece that starts at a character, an int32: its id and, in 8 bits, its length, which is
# at most 200.
_LENGTH_BITS = 8
_LENGTH = (1 << _LENGTH_BITS) - 1


class WordPieceTokenizer:
    """Strings to WordPiece ids, equal to Google's, with byte offsets on request.

    Works eagerly, in `tf.data` and in any traced graph, on the CPU.

    Args:
        vocabulary: the pieces; the index of a piece is its id. Where a piece occurs twice, the
            last one counts, as in Google's `load_vocab`.
        lowercase: lower-case as `str.lower` does.
        strip_accents: decompose (NFD) and drop combining marks. `None`: as `lowercase`.
        split_cjk: make each CJK ideograph a word.

    Raises:
        ValueError: the vocabulary is empty or lacks [UNK].

    Warns:
        UserWarning: the vocabulary was made with other options, by all appearances.

    Example:

    >>> tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "play", "##ing", "chess", "!"])
    >>> tokenizer.tokenize(["Playing chess!", "go"]).to_list()
    [[2, 3, 4, 5], [1]]
    """

    def __init__(self, vocabulary, *, lowercase=True, strip_accents=None, split_cjk=True):
        vocabulary = list(vocabulary)
        if not vocabulary:
            raise ValueError("the vocabulary is empty")
        ids = {piece: index for index, piece in enumerate(vocabulary)}
        if UNKNOWN not in ids:
            raise ValueError(
                f"the vocabulary ({len(vocabulary)} pieces) has no {UNKNOWN}, which stands for "
                "words it cannot spell"
            )
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.split_cjk = split_cjk
        self.unknown_id = ids[UNKNOWN]
        self._ids = ids
        _warn_of_other_options(ids, lowercase, self.strip_accents)
        alphabet = _Alphabet(ids)
        # Eager tensors, so that all graphs traced from this tokenizer share one copy.
        with tf.init_scope(), tf.device("CPU:0"):
            self._constants = {
                name: tf.constant(value)
                for name, value in {
                    **_character_table(
                        alphabet, self.lowercase, self.strip_accents, self.split_cjk
                    ),
                    **_word_table(ids, alphabet),
                    **_piece_trie(ids, alphabet),
                }.items()
            }

    def token_id(self, piece):
        """Returns the id of a piece; `KeyError` if the vocabulary lacks it."""
        return self._ids[piece]

    def tokenize(self, texts):
        """Tokenizes a batch of texts.

        Args:
            texts: strings (batch,), UTF-8; invalid bytes are dropped.

        Returns:
            A `tf.RaggedTensor` int32 (batch, pieces).
        """
        texts = _as_strings(texts)
        # A traced graph (tf.data, an export) runs in parallel with others as it is; and to make
        # the graph of all the parts takes three times as long, which few texts need not wait for.
        in_parts = tf.executing_eagerly() and len(texts) >= _LARGE_BATCH
        ids, row_splits = (self._tokenize_in_parts if in_parts else self._tokenize_flat)(texts)
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def tokenize_with_offsets(self, texts):
        """Tokenizes, and tells where in the original bytes each piece stands.

        An accent that was stripped belongs to the piece of its letter.

        Args:
            texts: strings (batch,), UTF-8.

        Returns:
            `(ids, words, starts, limits)`, each a `tf.RaggedTensor` (batch, pieces): ids
            int32; the index of the piece's word in its text, int32; first byte and the byte
            after the last, int64.
        """
        *flat, row_splits = self._tokenize_flat_with_offsets(_as_strings(texts))
        # In a graph nothing is known of the shapes of what a function returns.
        ids, words, starts, limits = (tf.ensure_shape(values, [None]) for values in flat)
        row_splits = tf.ensure_shape(row_splits, [None])
        first_words = tf.gather(tf.concat([words, [0]], 0), row_splits[:-1])
        words -= tf.repeat(first_words, row_splits[1:] - row_splits[:-1])
        ragged = functools.partial(
            tf.RaggedTensor.from_row_splits, row_splits=row_splits, validate=False
        )
        return ragged(ids), ragged(words), ragged(starts), ragged(limits)

    def tokenize_characters_with_offsets(self, texts):
        """The same, but each character is tokenized by itself, as a word of its own.

        So do taggers whose words are characters, as Korean entities in KLUE have them. A character
        is a code point; one that has no piece, such as a space, is left out.

        Args:
            texts: strings (batch,), UTF-8.

        Returns:
            As `tokenize_with_offsets`; the index is that of the character in its text.

        Example:

        >>> tokenizer = WordPieceTokenizer(["[UNK]", "a", "##b", "b"])
        >>> ids, words, starts, _ = tokenizer.tokenize_characters_with_offsets(["ab b", "b"])
        >>> ids.to_list(), words.to_list(), starts.to_list()
        ([[1, 3, 3], [3]], [[0, 1, 3], [0]], [[0, 1, 3], [0]])
        """
        texts = _as_strings(texts)
        characters, offsets = tf.strings.unicode_split_with_offsets(texts, "UTF-8")
        ids, _, starts, limits = self.tokenize_with_offsets(characters.flat_values)
        pieces = ids.row_lengths()  # of each character
        row_splits = tf.gather(ids.row_splits, characters.row_splits)
        index = tf.ragged.range(characters.row_lengths()).flat_values
        shift = tf.repeat(offsets.flat_values, pieces)
        ragged = functools.partial(
            tf.RaggedTensor.from_row_splits, row_splits=row_splits, validate=False
        )
        return (
            ragged(ids.flat_values),
            ragged(tf.cast(tf.repeat(index, pieces), tf.int32)),
            ragged(starts.flat_values + shift),
            ragged(limits.flat_values + shift),
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def _tokenize_flat(self, texts):
        with tf.device("CPU:0"):
            code_points, row_splits = _decode(texts)
            ids, _, _, _, piece_splits = self._pieces(code_points, row_splits)
        return ids, piece_splits

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def _tokenize_in_parts(self, texts):
        return in_parts(self._tokenize_flat, texts)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def _tokenize_flat_with_offsets(self, texts):
        with tf.device("CPU:0"):
            code_points, byte_starts, row_splits = _decode_with_offsets(texts)
            ids, words, first, last, piece_splits = self._pieces(code_points, row_splits)
            byte_limits = self._byte_limits(code_points, byte_starts, texts, row_splits)
        return ids, words, tf.gather(byte_starts, first), tf.gather(byte_limits, last), piece_splits

    def _pieces(self, code_points, row_splits):
        """The pipeline behind both forms; everything is flat over the batch.

        Args:
            code_points: int32 (n,).
            row_splits: int64 (batch + 1,), where in `code_points` each text starts.

        Returns:
            ids int32 (pieces,), index of the word int32 (pieces,), index of the first and of
            the last code point int64 (pieces,), piece splits int64 (batch + 1,).
        """
        constants = self._constants
        entries = _look_up(constants, "entries", code_points)
        boundary = _boundaries(entries, row_splits)
        characters, source, is_first = _normalize(
            constants,
            entries,
            code_points,
            row_splits,
            boundary,
            self.lowercase,
            self.strip_accents,
        )
        words = _split(is_first)
        word_ids, open_characters = _match_words(constants, characters, words)
        pieces = _match_pieces(
            constants, characters, words, word_ids, open_characters, self.unknown_id
        )
        first_words = tf.searchsorted(tf.gather(source, words["start"]), row_splits)
        return (
            pieces["id"],
            pieces["word"],
            tf.gather(source, pieces["first"]),
            tf.gather(source, pieces["first"] + pieces["length"] - 1),
            tf.cast(tf.gather(pieces["splits"], first_words), tf.int64),
        )

    def _byte_limits(self, code_points, byte_starts, texts, row_splits):
        """For each code point the byte after it and after the stripped accents behind it."""
        entries = _look_up(self._constants, "entries", code_points)
        size = tf.size(code_points, out_type=tf.int64)
        # A code point that is not an accent starts something; the one before ends there.
        starts = tf.where(tf.equal(entries & _MARK, 0))[:, 0]
        next_start = tf.searchsorted(starts, tf.range(size), side="right", out_type=tf.int64)
        limit = tf.gather(tf.concat([starts, [size]], 0), next_start)
        rows = tf.ragged.row_splits_to_segment_ids(row_splits)
        limit = tf.minimum(limit, tf.gather(row_splits, rows + 1))
        text_bytes = tf.cast(tf.strings.length(texts), tf.int64)
        at_end = tf.equal(limit, tf.gather(row_splits, rows + 1))
        inside = tf.gather(tf.concat([byte_starts, [0]], 0), limit)
        return tf.where(at_end, tf.gather(text_bytes, rows), inside)


def _warn_of_other_options(pieces, lowercase, strip_accents):
    """Warns where many pieces could never match, or no text would match in upper case."""
    tables = unicode_tables.tables()
    changes = np.zeros(unicode_tables.CODE_POINTS, bool)
    if lowercase:
        changes[list(tables.lower)] = True
    if strip_accents:
        changes[list(tables.decomposition)] = True
        changes |= tables.mark
    pieces = [piece for piece in pieces if not (piece.startswith("[") and piece.endswith("]"))]
    code_points = _code_points("".join(pieces))
    owners = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    lost = np.unique(owners[changes[code_points]])
    lower, upper = (
        np.unique(owners[(code_points >= ord(first)) & (code_points <= ord(last))])
        for first, last in ("az", "AZ")
    )
    options = f"lowercase={lowercase}, strip_accents={strip_accents}"
    if len(lost) >= max(_MANY, len(pieces) / 20):
        warnings.warn(
            f"{options} does not fit this vocabulary: {len(lost)} of its {len(pieces)} pieces, "
            f"such as {pieces[lost[0]]!r}, can match no text",
            stacklevel=3,
        )
    elif not lowercase and len(lower) >= _MANY and not len(upper):
        warnings.warn(
            f"{options} does not fit this vocabulary: {len(lower)} of its {len(pieces)} pieces "
            "hold a letter a-z and none A-Z, so words in upper case are [UNK]",
            stacklevel=3,
        )


def _as_strings(texts):
    """Checks that `texts` is a batch of strings, in words a user understands."""
    try:
        texts = tf.convert_to_tensor(texts)
    except (ValueError, TypeError) as error:
        raise ValueError(f"texts must be strings; received {texts!r:.80}") from error
    if texts.dtype != tf.string:
        if texts.shape.num_elements() == 0:
            return tf.constant([], tf.string)  # an empty list has no type of its own
        raise ValueError(f"texts must be strings; received {texts.dtype.name}")
    if texts.shape.rank not in (None, 1):
        raise ValueError(f"texts must have shape (batch,); received {tuple(texts.shape)}")
    return texts


def in_parts(tokenize, texts):
    """Tokenizes a large batch in parts that run side by side, one for each core.

    Args:
        tokenize: a `tf.function` from strings (batch,) to flat ids int32 (pieces,) and row
            splits int64 (batch + 1,).
        texts: strings (batch,).

    Returns:
        What `tokenize` returns.

    Example:

    >>> tokenizer = WordPieceTokenizer(["[UNK]", "a"])
    >>> ids, row_splits = in_parts(tokenizer._tokenize_flat, tf.constant(["a", "a a"]))
    >>> row_splits.numpy().tolist()
    [0, 1, 3]
    """
    count = os.cpu_count() or 1
    rows = tf.size(texts)

    def parts():
        cuts = [rows * part // count for part in range(count + 1)]
        results = [tokenize(texts[first:limit]) for first, limit in itertools.pairwise(cuts)]
        all_row_splits, size = [tf.zeros([1], tf.int64)], tf.constant(0, tf.int64)
        for _, row_splits in results:
            all_row_splits.append(row_splits[1:] + size)
            size += row_splits[-1]
        return tf.concat([ids for ids, _ in results], 0), tf.concat(all_row_splits, 0)

    return tf.cond(rows < _LARGE_BATCH, lambda: tokenize(texts), parts)


# --- Text to words -------------------------------------------------------------------------


def _decode(texts):
    decoded = tf.raw_ops.UnicodeDecode(
        input=texts, input_encoding="UTF-8", errors="replace", Tsplits=tf.int64
    )
    return decoded.char_values, decoded.row_splits


def _decode_with_offsets(texts):
    decoded = tf.raw_ops.UnicodeDecodeWithOffsets(
        input=texts, input_encoding="UTF-8", errors="replace", Tsplits=tf.int64
    )
    return decoded.char_values, decoded.char_to_byte_starts, decoded.row_splits


def _look_up(constants, table, code_points):
    """Entries of a table made by `_paged`, one for each code point; int32 (n,)."""

    def astral():
        page = tf.gather(constants[f"{table}_page"], tf.bitwise.right_shift(code_points, 8))
        return tf.gather(constants[table], page + (code_points & (_PAGE - 1)))

    return tf.cond(
        tf.reduce_max(code_points) < _DIRECT,
        lambda: tf.gather(constants[table], code_points),
        astral,
    )


def _mark_row_starts(flags, row_splits):
    """Sets the flag, bool (n,), of the first element of each row."""
    size = tf.size(flags, out_type=tf.int64)
    starts = row_splits[:-1]
    starts = tf.boolean_mask(starts, starts < size)  # empty rows at the end start nowhere
    return tf.tensor_scatter_nd_update(flags, starts[:, None], tf.ones_like(starts, tf.bool))


def _boundaries(entries, row_splits):
    """Whether a word ends before each code point (or is interrupted by it); bool (n,)."""
    isolated = tf.not_equal(entries & _ISOLATED, 0)
    after_isolated = tf.concat([[False], isolated], 0)[: tf.size(isolated)]
    boundary = tf.not_equal(entries & (_ISOLATED | _SPACE), 0) | after_isolated
    return _mark_row_starts(boundary, row_splits)


def _normalize(constants, entries, code_points, row_splits, boundary, lowercase, strip_accents):
    """Code points to characters: what vanishes is gone, what expands is expanded.

    Returns:
        characters int32 (m,), for each the index of its code point int64 (m,), and whether it
        is the first of a word, bool (m,).
    """

    def plain():
        # Only white space vanishes, so a gap in the sources is a boundary.
        source = tf.where(tf.not_equal(entries & _COUNT, 0))[:, 0]
        gap = tf.concat([tf.ones_like(source[:1], tf.bool), source[1:] - source[:-1] > 1], 0)
        return tf.gather(entries & _VALUE, source), source, tf.gather(boundary, source) | gap

    def rare():
        values = entries & _VALUE
        if lowercase:
            values = tf.cond(
                _any(entries, _SIGMA),
                lambda: tf.where(
                    _final_sigmas(constants, entries, code_points, row_splits),
                    constants["final_sigma"],
                    values,
                ),
                lambda: values,
            )
        kept = tf.where(tf.not_equal(entries & _COUNT, 0))[:, 0]
        characters, source = tf.cond(
            _any(entries, _SEQUENCE),
            lambda: _expand(constants, entries, values, kept, row_splits, strip_accents),
            lambda: (tf.gather(values, kept), kept),
        )
        word = tf.gather(tf.cumsum(tf.cast(boundary, tf.int32)), source)
        other = tf.not_equal(word[1:], word[:-1])
        return characters, source, tf.concat([tf.ones_like(word[:1], tf.bool), other], 0)

    return tf.cond(_any(entries, _RARE), rare, plain)


def _any(entries, flag):
    return tf.reduce_any(tf.not_equal(entries & flag, 0))


def _expand(constants, entries, values, kept, row_splits, strip_accents):
    """Replaces each value by the characters it stands for, in canonical order.

    Args:
        values: int32 (n,), a character or the place of a sequence of them.
        kept: int64 (k,), the code points that do not vanish.

    Returns:
        characters int32 (m,) and the index of the code point of each, int64 (m,).
    """
    first = tf.gather(values, kept)
    count = tf.gather(tf.bitwise.right_shift(entries & _COUNT, _VALUE_BITS), kept)
    sequence = tf.raw_ops.RaggedRange(
        starts=first, limits=first + count, deltas=1, Tsplits=tf.int64
    ).rt_dense_values
    source = tf.repeat(kept, count)
    if strip_accents:
        sequence = tf.cond(
            _any(entries, _REORDER),
            lambda: _canonical_order(constants, entries, row_splits, sequence, source),
            lambda: sequence,
        )
    return tf.gather(constants["sequences"], sequence), source


def _final_sigmas(constants, entries, code_points, row_splits):
    """Which capital sigmas end a word, as `str.lower` sees it; bool (n,).

    The last character before it that is not case-ignorable is cased, and the next one is not.
    """
    case = _look_up(constants, "case", code_points)
    seen = tf.where(tf.not_equal(case, _CASE_IGNORABLE))[:, 0]  # (k,)
    cased = tf.equal(tf.gather(case, seen), _CASED)
    row = tf.cumsum(
        tf.cast(_mark_row_starts(tf.zeros_like(entries, tf.bool), row_splits), tf.int32)
    )
    row = tf.gather(row, seen)
    same_row = tf.equal(row[:-1], row[1:])
    before = tf.concat([[False], cased[:-1] & same_row], 0)
    after = tf.concat([cased[1:] & same_row, [False]], 0)
    final = tf.scatter_nd(seen[:, None], before & ~after, tf.shape(code_points, tf.int64))
    return final & tf.not_equal(entries & _SIGMA, 0)


def _canonical_order(constants, entries, row_splits, sequence, source):
    """Sorts each run of combining characters by class, the last step of NFD."""
    starter = _mark_row_starts(tf.equal(entries & _NONSTARTER, 0), row_splits)
    run = tf.gather(tf.cumsum(tf.cast(starter, tf.int64)), source)
    combining_class = tf.cast(tf.gather(constants["sequence_classes"], sequence), tf.int64)
    size = tf.size(source, out_type=tf.int64)
    key = (run * 256 + combining_class) * size + tf.range(size)  # unique, so the sort is stable
    return tf.gather(sequence, tf.argsort(key))


def _split(is_first):
    """Groups characters into words.

    Args:
        is_first: bool (m,), whether a word starts at the character.

    Returns:
        A dict: `index` int32 (m,) the word of each character, `offset` int32 (m,) its place in
        the word, `start` int32 (w,) and `length` int32 (w,) of each word.
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


# --- Words to pieces -----------------------------------------------------------------------


def _match_words(constants, characters, words):
    """Looks up whole words in the vocabulary.

    Returns:
        Ids int32 (w,), -1 for a word that is not there; and the characters of those words,
        their indices int64 (k,).
    """
    index, offset = words["index"], words["offset"]
    hashes = tf.math.segment_sum(
        tf.cast(characters + 1, tf.int64)
        * tf.gather(constants["hash_weights"], tf.minimum(offset, MAX_WORD_LENGTH)),
        index,
    )
    slots = constants["word_slots"]
    entry = tf.gather(slots, _slot(hashes, 0, slots))
    other = tf.gather(slots, _slot(hashes, 1, slots))
    entry = tf.where(tf.equal(tf.gather(constants["word_hashes"], entry), hashes), entry, other)
    alike = tf.equal(tf.gather(constants["word_hashes"], entry), hashes) & tf.equal(
        tf.gather(constants["word_lengths"], entry), words["length"]
    )
    # Equal hashes are not yet equal words: compare the characters. Words without an entry are
    # compared with padding, which no character equals.
    start = tf.where(alike, tf.gather(constants["word_starts"], entry), constants["no_word"])
    expected = tf.gather(
        constants["word_characters"],
        tf.gather(start, index) + tf.minimum(offset, constants["longest_word"]),
    )
    differs = tf.not_equal(expected, characters)
    differing = tf.where(differs)[:, 0]

    def agree():
        return alike, differing

    def collide():  # two words with one 64-bit hash: as good as never, and still exact
        found = alike & tf.equal(tf.math.segment_max(tf.cast(differs, tf.int32), index), 0)
        return found, tf.where(tf.gather(~found, index))[:, 0]

    absent = tf.reduce_sum(tf.where(alike, 0, words["length"]))
    found, open_characters = tf.cond(tf.equal(tf.size(differing), absent), agree, collide)
    return tf.where(found, tf.gather(constants["word_ids"], entry), -1), open_characters


def _slot(keys, which, slots):
    """The slot, of two, where a cuckoo hash table keeps a key; int64 to int64."""
    mixed = keys * _HASH_MULTIPLIERS[which]
    return tf.bitwise.right_shift(mixed, _HASH_SHIFT) & (tf.size(slots, out_type=tf.int64) - 1)


def _match_pieces(constants, characters, words, word_ids, open_characters, unknown_id):
    """Cuts what is not a whole word into the longest pieces, left to right.

    Args:
        characters: int32 (m,).
        words: from `_split`.
        word_ids: int32 (w,), -1 for the words to cut.
        open_characters: int64 (k,), the characters of the words to cut.
        unknown_id: what a word becomes that cannot be spelled.

    Returns:
        A dict of the pieces in order: `id`, `word` (its index), `first` and `length` in
        characters, each int32 (p,); and `splits` int32 (w + 1,), where the pieces of each word
        begin.
    """
    open_words = tf.where(word_ids < 0)[:, 0]  # (u,)
    length = tf.gather(words["length"], open_words)
    limit = tf.cumsum(length)  # (u,), in the arrays below, which hold the open words only
    is_first = tf.equal(tf.gather(words["offset"], open_characters), 0)
    word = tf.cumsum(tf.cast(is_first, tf.int32)) - 1  # (k,), index into open_words
    # Google does not search words over 200 characters: they are [UNK] whatever they hold.
    searched = tf.where(length > MAX_WORD_LENGTH, 0, limit)
    best = _longest_matches(
        constants, tf.gather(characters, open_characters), is_first, tf.gather(searched, word)
    )  # (k,)
    used, spelled = _follow(best, limit - length, limit)
    used = tf.where(used & tf.gather(spelled, word))[:, 0]  # (q,)
    used_word = tf.gather(word, used)  # (q,), index into open_words

    # A word takes one place in the result, [UNK] for instance, but a word cut in n takes n.
    cuts = tf.math.unsorted_segment_sum(tf.ones_like(used_word), used_word, tf.size(open_words))
    count = tf.tensor_scatter_nd_update(
        tf.ones_like(word_ids), open_words[:, None], tf.maximum(cuts, 1)
    )
    splits = tf.concat([[0], tf.cumsum(count)], 0)  # (w + 1,)
    # Filled by word first, then the pieces of cut words lie over that.
    place = tf.gather(tf.gather(splits, open_words), used_word)
    place += tf.range(tf.size(used)) - tf.gather(tf.cumsum(cuts, exclusive=True), used_word)

    def merge(of_words, of_cuts):
        filled = tf.scatter_nd(splits[:-1, None], of_words, splits[-1:])
        return tf.tensor_scatter_nd_update(filled, place[:, None], of_cuts)

    best = tf.gather(best, used)
    return {
        "id": merge(
            tf.where(word_ids < 0, unknown_id, word_ids), tf.bitwise.right_shift(best, _LENGTH_BITS)
        ),
        "word": merge(
            tf.range(tf.size(word_ids)), tf.cast(tf.gather(open_words, used_word), tf.int32)
        ),
        "first": merge(words["start"], tf.cast(tf.gather(open_characters, used), tf.int32)),
        "length": merge(words["length"], best & _LENGTH),
        "splits": splits,
    }


def _longest_matches(constants, characters, is_first, limit):
    """The longest piece that starts at each character.

    All start points walk the trie together, one character a turn; those that fall off leave.
    So the turns are at most the length of the longest piece, whatever the words are like.

    Args:
        characters: int32 (k,).
        is_first: bool (k,), whether a word starts here.
        limit: int32 (k,), where the word ends; 0: not to be searched.

    Returns:
        int32 (k,): id and length of the piece, packed; length 0 where no piece starts.
    """

    def walk(depth, start, child, best):
        """Goes on from the nodes that the characters at `depth` led to."""
        alive = tf.where(child >= 0)[:, 0]
        start, node = tf.gather(start, alive), tf.gather(child, alive)
        piece = tf.gather(constants["node_pieces"], node)
        ends = tf.where(piece >= 0)[:, 0]
        packed = tf.bitwise.left_shift(tf.gather(piece, ends), _LENGTH_BITS) | (depth + 1)
        best = tf.tensor_scatter_nd_update(best, tf.gather(start, ends)[:, None], packed)
        goes_on = tf.where(start + depth + 1 < tf.gather(limit, start))[:, 0]
        return depth + 1, tf.gather(start, goes_on), tf.gather(node, goes_on), best

    def step(depth, start, node, best):
        child = _child(constants, node, tf.gather(characters, start + depth))
        return walk(depth, start, child, best)

    searched = tf.where(limit > 0)[:, 0]
    root = tf.where(tf.gather(is_first, searched), _TRIE_ROOT, _TRIE_SUFFIX_ROOT)
    # The children of the roots, which all start points need, lie in a table of their own.
    size = tf.cast(constants["alphabet_size"], tf.int32)
    child = tf.gather(constants["first_nodes"], root * size + tf.gather(characters, searched))
    some = tf.TensorShape([None])
    *_, best = tf.while_loop(
        lambda depth, start, node, best: tf.size(start) > 0,
        step,
        walk(tf.constant(0), tf.cast(searched, tf.int32), child, tf.zeros_like(characters)),
        shape_invariants=(tf.TensorShape([]), some, some, some),
    )
    return best


def _child(constants, node, character):
    """The trie's node below `node` by `character`, -1 where there is none; int32 (k,)."""
    key = tf.cast(node, tf.int64) * constants["alphabet_size"] + tf.cast(character, tf.int64)
    edges = constants["edges"]
    edge = tf.gather(edges, _slot(key, 0, edges))
    is_edge = tf.equal(tf.bitwise.right_shift(edge, _NODE_BITS), key)
    edge = tf.where(is_edge, edge, tf.gather(edges, _slot(key, 1, edges)))
    is_edge = tf.equal(tf.bitwise.right_shift(edge, _NODE_BITS), key)
    return tf.where(is_edge, tf.cast(edge & _NODE, tf.int32), -1)


def _follow(best, start, limit):
    """Goes from piece to piece through each word.

    Args:
        best: int32 (k,), from `_longest_matches`.
        start: int32 (u,), where each word starts.
        limit: int32 (u,), where it ends.

    Returns:
        used bool (k,), whether a piece starts here; spelled bool (u,), whether the pieces
        reach the end of the word.
    """

    def step(word, at, used, spelled):
        length = tf.gather(best, at) & _LENGTH
        used = tf.tensor_scatter_nd_update(used, at[:, None], length > 0)
        stuck = tf.boolean_mask(word, tf.equal(length, 0))
        spelled = tf.tensor_scatter_nd_update(
            spelled, stuck[:, None], tf.zeros_like(stuck, tf.bool)
        )
        goes_on = tf.where((length > 0) & (at + length < tf.gather(limit, word)))[:, 0]
        return tf.gather(word, goes_on), tf.gather(at + length, goes_on), used, spelled

    some = tf.TensorShape([None])
    _, _, used, spelled = tf.while_loop(
        lambda word, at, used, spelled: tf.size(word) > 0,
        step,
        (
            tf.range(tf.size(start)),
            start,
            tf.zeros_like(best, tf.bool),
            tf.ones_like(start, tf.bool),
        ),
        shape_invariants=(some, some, some, some),
    )
    return used, spelled


# --- The constant tables, made with numpy when a tokenizer is made -------------------------

_CASED, _CASE_IGNORABLE = 1, 2
_HASH_MULTIPLIERS = (-7046029254386353131, -4417276706812531889)  # odd, of high entropy
_HASH_SHIFT = 32


class _Alphabet:
    """Numbers the characters that occur in the vocabulary, from 1; 0 is any other."""

    def __init__(self, pieces):
        self.code_points = np.unique(_code_points("".join(pieces)))
        self.size = len(self.code_points) + 1

    def encode(self, code_points):
        """Code points, an array of any shape, to characters."""
        index = np.searchsorted(self.code_points, code_points)
        index = np.minimum(index, len(self.code_points) - 1)
        return np.where(self.code_points[index] == code_points, index + 1, 0).astype(np.int32)


def _code_points(text):
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int32)


def _character_table(alphabet, lowercase, strip_accents, split_cjk):
    """What each code point becomes, for this vocabulary and these options."""
    tables = unicode_tables.tables()
    entries = alphabet.encode(np.arange(unicode_tables.CODE_POINTS)) | (1 << _VALUE_BITS)
    punctuation = tables.punctuation.copy()
    nonstarter = tables.combining_class > 0

    becomes = _changes(tables, lowercase, strip_accents)
    codes = np.fromiter(becomes, np.int64, len(becomes))
    flat = np.array([char for chars in becomes.values() for char in chars], np.int64)
    length = np.array([len(chars) for chars in becomes.values()], np.int64)
    start = np.cumsum(length) - length
    characters = alphabet.encode(flat)
    classes = tables.combining_class[flat] * strip_accents
    owner = np.repeat(np.arange(len(codes)), length)
    reorder = np.bincount(owner, weights=classes, minlength=len(codes)) > 0
    if strip_accents:
        nonstarter[codes] = [
            tables.combining_class[tables.decomposition.get(code, (code,))[0]] > 0
            for code in codes.tolist()
        ]

    one = (length == 1) & ~reorder
    entries[codes[one]] = characters[start[one]] | (1 << _VALUE_BITS)
    punctuation[codes[one]] = tables.punctuation[flat[start[one]]]
    more = (length > 0) & ~one
    entries[codes[more]] = (alphabet.size + start[more]) | (length[more] << _VALUE_BITS) | _SEQUENCE
    entries[codes[reorder]] |= _REORDER
    entries[codes[length == 0]] = _MARK

    entries[tables.removed] = _REMOVED
    entries[tables.space] = _SPACE
    entries[punctuation & ~tables.removed & ~tables.space] |= _ISOLATED
    if split_cjk:
        for first, last in unicode_tables.CJK_RANGES:
            entries[first : last + 1] |= _ISOLATED
    if strip_accents:
        entries[nonstarter | tables.removed] |= _NONSTARTER
    if lowercase:
        entries[unicode_tables.CAPITAL_SIGMA] |= _SIGMA
    # What is removed before lower-casing is as good as ignorable.
    case = np.where(tables.cased, _CASED, 0)
    case[tables.case_ignorable | tables.removed] = _CASE_IGNORABLE
    # A character is its own sequence of one; the others lie behind.
    own = np.arange(alphabet.size)
    return {
        **_paged("entries", entries),
        **_paged("case", case),
        "final_sigma": alphabet.encode(np.array(unicode_tables.FINAL_SIGMA)),
        "sequences": np.concatenate([own, characters]).astype(np.int32),
        "sequence_classes": np.concatenate([own * 0, classes]).astype(np.int32),
    }


def _changes(tables, lowercase, strip_accents):
    """{code point: the code points it becomes}, where that is anything but itself."""
    changed = set(tables.lower) if lowercase else set()
    if strip_accents:
        changed.update(tables.decomposition, np.flatnonzero(tables.mark).tolist())
        changed.update(np.flatnonzero(tables.combining_class).tolist())
    marks = set(np.flatnonzero(tables.mark).tolist())
    becomes = {}
    for code in changed:
        chars = tables.lower.get(code, (code,)) if lowercase else (code,)
        if strip_accents:
            chars = [d for char in chars for d in tables.decomposition.get(char, (char,))]
            chars = [char for char in chars if char not in marks]
        becomes[code] = chars
    return becomes


def _paged(name, values):
    """A table over all code points: the basic plane as it is, then the distinct other pages."""
    values = values.astype(np.int32)
    rows = np.ascontiguousarray(values[_DIRECT:].reshape(-1, _PAGE))
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * _PAGE)))[:, 0]
    _, first, page = np.unique(keys, return_index=True, return_inverse=True)
    start = np.concatenate([np.arange(0, _DIRECT, _PAGE), _DIRECT + page * _PAGE])
    table = np.concatenate([values[:_DIRECT], rows[first].reshape(-1)])
    return {name: table, f"{name}_page": start.astype(np.int32)}


def _encode_pieces(pieces, alphabet):
    """Pieces to characters, flat; with the start and the length of each."""
    length = np.array([len(piece) for piece in pieces], np.int32)
    start = np.cumsum(length, dtype=np.int32) - length
    return alphabet.encode(_code_points("".join(pieces))), start, length


def _word_table(ids, alphabet):
    """A cuckoo hash table of the pieces that can be a whole word."""
    words = [
        piece for piece in ids if not piece.startswith(SUFFIX) and 0 < len(piece) <= MAX_WORD_LENGTH
    ]
    characters, start, length = _encode_pieces(words, alphabet)
    generator = np.random.default_rng(20181011)  # any fixed seed
    weights = generator.integers(-(2**63), 2**63 - 1, MAX_WORD_LENGTH + 1, np.int64)
    offset = np.arange(len(characters)) - np.repeat(start, length)
    with np.errstate(over="ignore"):
        products = (characters.astype(np.int64) + 1) * weights[offset]
        hashes = np.add.reduceat(products, start) if words else np.zeros(0, np.int64)
    longest = int(length.max(initial=1))
    return {
        "hash_weights": weights,
        "word_slots": _cuckoo_slots(hashes),
        # One entry more, for empty slots; its length fits no word.
        "word_hashes": np.append(hashes, 0),
        "word_lengths": np.append(length, -1).astype(np.int32),
        "word_starts": np.append(start, 0).astype(np.int32),
        "word_ids": np.array([*(ids[word] for word in words), -1], np.int32),
        # Padding, so that reading past the end of the last word stays inside.
        "word_characters": np.append(characters, np.full(longest + 1, -1)).astype(np.int32),
        "longest_word": np.int32(longest),
        "no_word": np.int32(len(characters)),
    }


def _piece_trie(ids, alphabet):
    """A trie of all pieces; the edges are a hash table from (node, character) to node."""
    pieces = [piece for piece in ids if len(piece.removeprefix(SUFFIX)) <= MAX_WORD_LENGTH]
    is_suffix = np.array([piece.startswith(SUFFIX) for piece in pieces])
    piece_ids = np.array([ids[piece] for piece in pieces], np.int32)
    characters, start, length = _encode_pieces(
        [piece.removeprefix(SUFFIX) for piece in pieces], alphabet
    )
    node = np.where(is_suffix, _TRIE_SUFFIX_ROOT, _TRIE_ROOT).astype(np.int64)
    node_keys = [np.array([-1, -1])]  # nothing leads to the two roots
    node_pieces = [np.array([-1, -1])]
    count = 2
    for depth in range(int(length.max(initial=0))):
        longer = np.flatnonzero(length > depth)
        keys = node[longer] * alphabet.size + characters[start[longer] + depth]
        level, place = np.unique(keys, return_inverse=True)
        node[longer] = count + place
        ends = length[longer] == depth + 1
        level_pieces = np.full(len(level), -1)
        level_pieces[place[ends]] = piece_ids[longer[ends]]
        node_keys.append(level)
        node_pieces.append(level_pieces)
        count += len(level)
    keys = np.concatenate(node_keys).astype(np.int64)
    slots = _cuckoo_slots(keys[2:])
    edges = np.append(keys[2:] << _NODE_BITS | np.arange(2, len(keys)), -1)[slots]
    # The roots are the nodes 0 and 1, so the keys of their children number this table.
    first_nodes = np.full(2 * alphabet.size, -1, np.int32)
    children = np.flatnonzero((keys >= 0) & (keys < len(first_nodes)))
    first_nodes[keys[children]] = children
    return {
        "alphabet_size": np.int64(alphabet.size),
        "edges": edges,
        "first_nodes": first_nodes,
        "node_pieces": np.concatenate(node_pieces).astype(np.int32),
    }


def _cuckoo_slots(keys):
    """Gives each key one of its two slots (Pagh & Rodler, 2004), so a look-up takes two probes.

    Args:
        keys: distinct int64 (n,).

    Returns:
        int32 (slots,): the index of the key that each slot holds, n where it holds none.
    """
    count = len(keys)
    size = 1 << max(1, (2 * count).bit_length())
    while True:
        with np.errstate(over="ignore"):
            choices = np.stack([(keys * m) >> _HASH_SHIFT & (size - 1) for m in _HASH_MULTIPLIERS])
        slots = np.full(size, -1)
        which = np.zeros(count, np.int64)
        homeless = np.arange(count)
        for _ in range(500):
            wanted = choices[which[homeless], homeless]
            evicted = np.unique(slots[wanted])
            slots[wanted] = homeless  # the last writer stays
            losers = homeless[slots[wanted] != homeless]
            homeless = np.concatenate([losers, evicted[evicted >= 0]])
            if not len(homeless):
                return np.where(slots >= 0, slots, count).astype(np.int32)
            which[homeless] ^= 1
        size *= 2  # two slots full of keys that want no other; rare at half load
