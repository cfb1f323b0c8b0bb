"""WordPiece as a TensorFlow graph: words to tokens, greedy longest match first.

A whole batch goes through each step at once. `constants` are the tables of `text.tables`. For the
text "a doable xy" and the vocabulary [UNK] (id 0), a, do, ##ab, ##l, ##e, x:

    characters            a d o a b l e x y
    words["index"]        0 1 1 1 1 1 1 2 2
    word_ids              1 -1 -1                 (the ids of words that are tokens)
    unmatched_characters    1 2 3 4 5 6 7 8       (indices of the characters of other words)
    best: id                2 0 3 0 4 5 6 0       (the longest token at each of these characters)
          length            2 0 2 0 1 1 1 0
    starts_token            1 0 1 0 1 1 1 0       (following the tokens from the start of the word)
    is_complete           1 0                     ("doable" ends with a token, "xy" does not)
    token_start             0 2 4 5               (of complete words, indices into `best`)
    splits                0 1 5 6                 (where the tokens of each word begin)
    result: id            1 2 3 4 5 0
            first         0 1 3 5 6 7
            length        1 2 2 1 1 2
"""

import tensorflow as tf

from keras_bert.text import tables

# The token that starts at a character is an int32: its id, and its length in 8 bits (at most 200).
LENGTH_BITS = 8
LENGTH = (1 << LENGTH_BITS) - 1


def tokenize_words(constants, characters, words, unknown_id):
    """Replace words by tokens.

    `characters` int32 (m,) are those of all words. `words` has int32 tensors: `index` (m,) of the
    word of each character, `offset` (m,) of the character in its word, `start` and `length` (w,).
    Returns int32 tensors: `id`, `word` (its index), `first` and `length` in characters of each
    token, (t,); and `splits` (w + 1,), where the tokens of each word begin.
    """
    word_ids, unmatched_characters = _find_words(constants, characters, words)
    return _split_words(constants, characters, words, word_ids, unmatched_characters, unknown_id)


def _find_words(constants, characters, words):
    """Return the ids of words that are tokens, int32 (w,), or -1.

    Also returns the indices of the characters of the other words, int64 (k,).
    """
    index, offset = words["index"], words["offset"]
    hashes = tf.math.segment_sum(
        tf.cast(characters + 1, tf.int64)
        * tf.gather(constants["hash_weights"], tf.minimum(offset, tables.MAX_WORD_LENGTH)),
        index,
    )
    slots = constants["word_slots"]
    entry = tf.gather(slots, _slot(hashes, 0, slots))
    other = tf.gather(slots, _slot(hashes, 1, slots))
    entry = tf.where(tf.equal(tf.gather(constants["word_hashes"], entry), hashes), entry, other)
    matches = tf.equal(tf.gather(constants["word_hashes"], entry), hashes) & tf.equal(
        tf.gather(constants["word_lengths"], entry), words["length"]
    )
    # Different words can have equal hashes, so compare the characters. Words without an entry
    # are compared with padding, which equals no character.
    start = tf.where(matches, tf.gather(constants["word_starts"], entry), constants["no_word"])
    expected = tf.gather(
        constants["word_characters"],
        tf.gather(start, index) + tf.minimum(offset, constants["longest_word"]),
    )
    differs = tf.not_equal(expected, characters)
    differing = tf.where(differs)[:, 0]

    def no_collision():
        return matches, differing

    def collision():
        is_token = matches & tf.equal(tf.math.segment_max(tf.cast(differs, tf.int32), index), 0)
        return is_token, tf.where(tf.gather(~is_token, index))[:, 0]

    absent = tf.reduce_sum(tf.where(matches, 0, words["length"]))
    is_token, unmatched_characters = tf.cond(
        tf.equal(tf.size(differing), absent), no_collision, collision
    )
    return tf.where(is_token, tf.gather(constants["word_ids"], entry), -1), unmatched_characters


def _slot(keys, which, slots):
    """Return the first or second slot (`which` is 0 or 1) of cuckoo hash keys; int64 to int64."""
    mixed = keys * tables.HASH_MULTIPLIERS[which]
    size = tf.size(slots, out_type=tf.int64)
    return tf.bitwise.right_shift(mixed, tables.HASH_SHIFT) & (size - 1)


def _split_words(constants, characters, words, word_ids, unmatched_characters, unknown_id):
    """Split the words that are not in the vocabulary. Returns the dict of `tokenize_words`.

    `word_ids` int32 (w,) is -1 for the words to split; `unmatched_characters` int64 (k,) are the
    indices of their characters.
    """
    unmatched_words = tf.where(word_ids < 0)[:, 0]  # (u,)
    length = tf.gather(words["length"], unmatched_words)
    limit = tf.cumsum(length)  # (u,), end of each word in the arrays of unmatched characters
    is_first = tf.equal(tf.gather(words["offset"], unmatched_characters), 0)
    word = tf.cumsum(tf.cast(is_first, tf.int32)) - 1  # (k,), index into unmatched_words
    # Google does not search words over 200 characters: they are always [UNK].
    searched = tf.where(length > tables.MAX_WORD_LENGTH, 0, limit)
    best = longest_matches(
        constants, tf.gather(characters, unmatched_characters), is_first, tf.gather(searched, word)
    )  # (k,)
    starts_token, is_complete = _follow(best, limit - length, limit)
    token_start = tf.where(starts_token & tf.gather(is_complete, word))[:, 0]  # (q,)
    token_word = tf.gather(word, token_start)  # (q,), index into unmatched_words

    # A word has one token (its own or [UNK]); a word split into n parts has n tokens.
    parts = tf.math.unsorted_segment_sum(
        tf.ones_like(token_word), token_word, tf.size(unmatched_words)
    )
    count = tf.tensor_scatter_nd_update(
        tf.ones_like(word_ids), unmatched_words[:, None], tf.maximum(parts, 1)
    )
    splits = tf.concat([[0], tf.cumsum(count)], 0)  # (w + 1,)
    # The index of each part among all tokens, (q,).
    index_in_word = tf.range(tf.size(token_start)) - tf.gather(
        tf.cumsum(parts, exclusive=True), token_word
    )
    index = tf.gather(tf.gather(splits, unmatched_words), token_word) + index_in_word

    def merge(of_words, of_parts):
        """Write one value per word, then overwrite those of the split words."""
        values = tf.scatter_nd(splits[:-1, None], of_words, splits[-1:])
        return tf.tensor_scatter_nd_update(values, index[:, None], of_parts)

    best = tf.gather(best, token_start)
    ids = tf.where(word_ids < 0, unknown_id, word_ids)
    word_of_part = tf.cast(tf.gather(unmatched_words, token_word), tf.int32)
    first_of_part = tf.cast(tf.gather(unmatched_characters, token_start), tf.int32)
    return {
        "id": merge(ids, tf.bitwise.right_shift(best, LENGTH_BITS)),
        "word": merge(tf.range(tf.size(word_ids)), word_of_part),
        "first": merge(words["start"], first_of_part),
        "length": merge(words["length"], best & LENGTH),
        "splits": splits,
    }


def longest_matches(constants, characters, is_first, limit):
    """Return id and length, packed, of the longest token at each character; int32 (k,).

    The length is 0 where no token starts. `is_first` bool (k,) is True where a word starts; `limit`
    int32 (k,) is the end of the word, or 0 for a word that is not searched. All start characters
    walk the trie together, one character per iteration.
    """

    def advance(depth, start, child, best):
        """Record the tokens that end at the nodes `child` and keep the unfinished walks."""
        alive = tf.where(child >= 0)[:, 0]
        start, node = tf.gather(start, alive), tf.gather(child, alive)
        token = tf.gather(constants["node_tokens"], node)
        ends = tf.where(token >= 0)[:, 0]
        packed = tf.bitwise.left_shift(tf.gather(token, ends), LENGTH_BITS) | (depth + 1)
        best = tf.tensor_scatter_nd_update(best, tf.gather(start, ends)[:, None], packed)
        unfinished = tf.where(start + depth + 1 < tf.gather(limit, start))[:, 0]
        return depth + 1, tf.gather(start, unfinished), tf.gather(node, unfinished), best

    def step(depth, start, node, best):
        child = _child(constants, node, tf.gather(characters, start + depth))
        return advance(depth, start, child, best)

    searched = tf.where(limit > 0)[:, 0]
    root = tf.where(tf.gather(is_first, searched), tables.TRIE_ROOT, tables.TRIE_SUFFIX_ROOT)
    # Every walk starts at a root, so the children of the roots are in a table without hashing.
    size = tf.cast(constants["alphabet_size"], tf.int32)
    child = tf.gather(constants["first_nodes"], root * size + tf.gather(characters, searched))
    some = tf.TensorShape([None])
    *_, best = tf.while_loop(
        lambda depth, start, node, best: tf.size(start) > 0,
        step,
        advance(tf.constant(0), tf.cast(searched, tf.int32), child, tf.zeros_like(characters)),
        shape_invariants=(tf.TensorShape([]), some, some, some),
    )
    return best


def _child(constants, node, character):
    """Return the child of each trie node by a character, or -1; int32 (k,)."""
    key = tf.cast(node, tf.int64) * constants["alphabet_size"] + tf.cast(character, tf.int64)
    edges = constants["edges"]
    edge = tf.gather(edges, _slot(key, 0, edges))
    is_edge = tf.equal(tf.bitwise.right_shift(edge, tables.NODE_BITS), key)
    edge = tf.where(is_edge, edge, tf.gather(edges, _slot(key, 1, edges)))
    is_edge = tf.equal(tf.bitwise.right_shift(edge, tables.NODE_BITS), key)
    return tf.where(is_edge, tf.cast(edge & tables.NODE, tf.int32), -1)


def _follow(best, start, limit):
    """Step from token to token through each word.

    `best` int32 (k,) is from `longest_matches`; `start` and `limit` int32 (u,) are the bounds
    of each word. Returns True where a token of the word starts, bool (k,), and True for words
    whose tokens reach the end, bool (u,).
    """

    def step(word, at, starts_token, is_complete):
        length = tf.gather(best, at) & LENGTH
        starts_token = tf.tensor_scatter_nd_update(starts_token, at[:, None], length > 0)
        stuck = tf.boolean_mask(word, tf.equal(length, 0))
        is_complete = tf.tensor_scatter_nd_update(
            is_complete, stuck[:, None], tf.zeros_like(stuck, tf.bool)
        )
        unfinished = tf.where((length > 0) & (at + length < tf.gather(limit, word)))[:, 0]
        word, at = tf.gather(word, unfinished), tf.gather(at + length, unfinished)
        return word, at, starts_token, is_complete

    some = tf.TensorShape([None])
    _, _, starts_token, is_complete = tf.while_loop(
        lambda word, at, starts_token, is_complete: tf.size(word) > 0,
        step,
        (
            tf.range(tf.size(start)),
            start,
            tf.zeros_like(best, tf.bool),
            tf.ones_like(start, tf.bool),
        ),
        shape_invariants=(some, some, some, some),
    )
    return starts_token, is_complete
