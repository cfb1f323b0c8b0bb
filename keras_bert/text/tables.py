"""Lookup tables of the tokenizer's graph, built with NumPy from a vocabulary and its options.

A "character" is an index into the alphabet of the vocabulary. Index 0 stands for every code
point that occurs in no token.
"""

import numpy as np

from keras_bert.checkpoints.tokenizer_json import MAX_WORD_LENGTH
from keras_bert.text import unicode_tables

SUFFIX = "##"

# An entry of the code point table is an int32: 21 bits of value, 2 bits of count, then flags.
VALUE_BITS = 21
VALUE = (1 << VALUE_BITS) - 1
COUNT = 3 << VALUE_BITS  # number of characters that replace the code point; 0 removes it
SPACE = 1 << 23
ISOLATED = 1 << 24  # a word of one character: punctuation, an ideograph
SIGMA = 1 << 25  # its lower case depends on the surrounding characters
SEQUENCE = 1 << 26  # the value is an index into the table of sequences
NONSTARTER = 1 << 27  # does not end a run of combining characters
REORDER = 1 << 28  # contains a combining character that accent stripping keeps
MARK = 1 << 29  # an accent that is removed; its bytes belong to the letter before it
REMOVED = 1 << 30  # a control or format character, which is removed
RARE = SIGMA | SEQUENCE | REORDER | MARK | REMOVED

PAGE = 256  # code points per page of the code point table
DIRECT = 0x10000  # code points below this (the basic plane) index the table directly

CASED, CASE_IGNORABLE = 1, 2

TRIE_ROOT, TRIE_SUFFIX_ROOT = 0, 1
# An edge of the trie is an int64: its key (parent node and character) and its child node.
NODE_BITS = 24
NODE = (1 << NODE_BITS) - 1

HASH_MULTIPLIERS = (-7046029254386353131, -4417276706812531889)  # odd, high entropy
HASH_SHIFT = 32


def lookup_tables(ids, lowercase, strip_accents, split_cjk, other_texts=()):
    """Build the tables of a tokenizer's graph, {name: array}, from a vocabulary, {token: id}.

    The alphabet also has the code points of `other_texts`.
    """
    alphabet = Alphabet([*ids, *other_texts])
    return {
        **_code_point_table(alphabet, lowercase, strip_accents, split_cjk),
        **_word_table(ids, alphabet),
        **_token_trie(ids, alphabet),
    }


def code_points(text):
    """Return the code points of a string, int32 (n,). Lone surrogates are allowed."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int32)


class Alphabet:
    """Numbers the characters of a vocabulary from 1; 0 is every other character."""

    def __init__(self, tokens):
        self.code_points = np.unique(code_points("".join(tokens)))
        self.size = len(self.code_points) + 1

    def encode(self, codes):
        """Convert code points of any shape to characters, int32."""
        index = np.searchsorted(self.code_points, codes)
        index = np.minimum(index, len(self.code_points) - 1)
        return np.where(self.code_points[index] == codes, index + 1, 0).astype(np.int32)


# --- Code points ---------------------------------------------------------------------------


def _code_point_table(alphabet, lowercase, strip_accents, split_cjk):
    """Table of the replacement and the flags of each code point."""
    unicode = unicode_tables.tables()
    replacements = normalization(unicode, lowercase, strip_accents)
    codes = np.fromiter(replacements, np.int64, len(replacements))
    flat = np.array([code for new in replacements.values() for code in new], np.int64)
    length = np.array([len(new) for new in replacements.values()], np.int64)
    start = np.cumsum(length) - length
    characters = alphabet.encode(flat)
    classes = unicode.combining_class[flat] * strip_accents
    owner = np.repeat(np.arange(len(codes)), length)
    reorder = np.bincount(owner, weights=classes, minlength=len(codes)) > 0

    entries = alphabet.encode(np.arange(unicode_tables.CODE_POINTS)) | (1 << VALUE_BITS)
    punctuation = unicode.punctuation.copy()
    by_one = (length == 1) & ~reorder
    entries[codes[by_one]] = characters[start[by_one]] | (1 << VALUE_BITS)
    punctuation[codes[by_one]] = unicode.punctuation[flat[start[by_one]]]
    more = (length > 0) & ~by_one
    entries[codes[more]] = (alphabet.size + start[more]) | (length[more] << VALUE_BITS) | SEQUENCE
    entries[codes[reorder]] |= REORDER
    entries[codes[length == 0]] = MARK

    entries[unicode.removed] = REMOVED
    entries[unicode.space] = SPACE
    entries[punctuation & ~unicode.removed & ~unicode.space] |= ISOLATED
    if split_cjk:
        for first, last in unicode_tables.CJK_RANGES:
            entries[first : last + 1] |= ISOLATED
    if strip_accents:
        entries[_nonstarters(unicode, codes) | unicode.removed] |= NONSTARTER
    if lowercase:
        entries[unicode_tables.CAPITAL_SIGMA] |= SIGMA
    # Cleaning comes before lower-casing, so `str.lower` never sees a removed code point.
    case = np.where(unicode.cased, CASED, 0)
    case[unicode.case_ignorable | unicode.removed] = CASE_IGNORABLE
    # The first sequences are the single characters: sequence i is character i.
    single = np.arange(alphabet.size)
    return {
        **_paged("entries", entries),
        **_paged("case", case),
        "final_sigma": alphabet.encode(np.array(unicode_tables.FINAL_SIGMA)),
        "sequences": np.concatenate([single, characters]).astype(np.int32),
        "sequence_classes": np.concatenate([single * 0, classes]).astype(np.int32),
    }


def _nonstarters(unicode, changed):
    """Return True for code points whose NFD starts with a combining mark; bool (0x110000,)."""
    nonstarter = unicode.combining_class > 0
    nonstarter[changed] = [
        unicode.combining_class[unicode.decomposition.get(code, (code,))[0]] > 0
        for code in changed.tolist()
    ]
    return nonstarter


def code_point_entries(lowercase, strip_accents, split_cjk):
    """Return the flags of each code point, int32 (0x110000,), see above.

    The values and counts of the entries are without meaning: there is no vocabulary.
    """
    table = _code_point_table(Alphabet([" "]), lowercase, strip_accents, split_cjk)
    codes = np.arange(unicode_tables.CODE_POINTS)
    return table["entries"][table["entries_page"][codes // PAGE] + codes % PAGE]


def normalization(unicode, lowercase, strip_accents):
    """Return `{code point: its code points after normalization}`, where they may differ."""
    marks = set(np.flatnonzero(unicode.mark).tolist())
    changed = set(unicode.lower) if lowercase else set()
    if strip_accents:
        changed.update(unicode.decomposition, marks)
        changed.update(np.flatnonzero(unicode.combining_class).tolist())
    replacements = {}
    for code in changed:
        new = unicode.lower_and_decompose(code, lowercase, strip_accents)
        if strip_accents:
            new = [part for part in new if part not in marks]
        replacements[code] = new
    return replacements


def _paged(name, values):
    """Store the basic plane as is, and each distinct page above it once."""
    values = values.astype(np.int32)
    rows = np.ascontiguousarray(values[DIRECT:].reshape(-1, PAGE))
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * PAGE)))[:, 0]
    _, first, page = np.unique(keys, return_index=True, return_inverse=True)
    start = np.concatenate([np.arange(0, DIRECT, PAGE), DIRECT + page * PAGE])
    table = np.concatenate([values[:DIRECT], rows[first].reshape(-1)])
    return {name: table, f"{name}_page": start.astype(np.int32)}


# --- Words and tokens ----------------------------------------------------------------------


def _encode_tokens(tokens, alphabet):
    """Return the characters of all tokens, flat, and the start and length of each token."""
    length = np.array([len(token) for token in tokens], np.int32)
    start = np.cumsum(length, dtype=np.int32) - length
    return alphabet.encode(code_points("".join(tokens))), start, length


def _word_table(ids, alphabet):
    """Cuckoo hash table of the tokens that can be a whole word."""
    words = [
        token for token in ids if not token.startswith(SUFFIX) and 0 < len(token) <= MAX_WORD_LENGTH
    ]
    characters, start, length = _encode_tokens(words, alphabet)
    generator = np.random.default_rng(20181011)  # any fixed seed
    weights = generator.integers(-(2**63), 2**63 - 1, MAX_WORD_LENGTH + 1, np.int64)
    offset = np.arange(len(characters)) - np.repeat(start, length)
    with np.errstate(over="ignore"):
        products = (characters.astype(np.int64) + 1) * weights[offset]
        hashes = np.add.reduceat(products, start) if words else np.zeros(0, np.int64)
    longest_word = int(length.max(initial=1))
    return {
        "hash_weights": weights,
        "word_slots": _cuckoo_slots(hashes),
        # The last entry is for empty slots; no word has its length.
        "word_hashes": np.append(hashes, 0),
        "word_lengths": np.append(length, -1).astype(np.int32),
        "word_starts": np.append(start, 0).astype(np.int32),
        "word_ids": np.array([*(ids[word] for word in words), -1], np.int32),
        # Padding, so that reads past the end of the last word stay in bounds.
        "word_characters": np.append(characters, np.full(longest_word + 1, -1)).astype(np.int32),
        "longest_word": np.int32(longest_word),
        "no_word": np.int32(len(characters)),
    }


def _token_trie(ids, alphabet):
    """Trie of all tokens; its edges are a hash table from (node, character) to node."""
    tokens = [token for token in ids if len(token.removeprefix(SUFFIX)) <= MAX_WORD_LENGTH]
    is_suffix = np.array([token.startswith(SUFFIX) for token in tokens])
    token_ids = np.array([ids[token] for token in tokens], np.int32)
    texts = [token.removeprefix(SUFFIX) for token in tokens]
    return trie(texts, token_ids, np.where(is_suffix, TRIE_SUFFIX_ROOT, TRIE_ROOT), alphabet)


def trie(texts, token_ids, roots, alphabet):
    """Tables of a trie of texts that begin at one of two roots; each text has an id."""
    characters, start, length = _encode_tokens(texts, alphabet)
    node = roots.astype(np.int64)
    node_keys = [np.array([-1, -1])]  # no edge leads to the two roots
    node_tokens = [np.array([-1, -1])]
    count = 2
    for depth in range(int(length.max(initial=0))):
        longer = np.flatnonzero(length > depth)
        keys = node[longer] * alphabet.size + characters[start[longer] + depth]
        level, index_in_level = np.unique(keys, return_inverse=True)
        node[longer] = count + index_in_level
        ends = length[longer] == depth + 1
        level_tokens = np.full(len(level), -1)
        level_tokens[index_in_level[ends]] = token_ids[longer[ends]]
        node_keys.append(level)
        node_tokens.append(level_tokens)
        count += len(level)
    keys = np.concatenate(node_keys).astype(np.int64)
    slots = _cuckoo_slots(keys[2:])
    edges = np.append(keys[2:] << NODE_BITS | np.arange(2, len(keys)), -1)[slots]
    # The roots are nodes 0 and 1, so the keys of their children are indices into this table.
    first_nodes = np.full(2 * alphabet.size, -1, np.int32)
    children = np.flatnonzero((keys >= 0) & (keys < len(first_nodes)))
    first_nodes[keys[children]] = children
    return {
        "alphabet_size": np.int64(alphabet.size),
        "edges": edges,
        "first_nodes": first_nodes,
        "node_tokens": np.concatenate(node_tokens).astype(np.int32),
    }


def _cuckoo_slots(keys):
    """Assign each key to one of its two slots (Pagh & Rodler, 2004): two probes per look-up.

    `keys` are distinct int64 (n,). Returns int32 (slots,): the index of the key in each slot,
    or n for an empty slot.
    """
    count = len(keys)
    size = 1 << max(1, (2 * count).bit_length())
    while True:
        with np.errstate(over="ignore"):
            choices = np.stack([(keys * m) >> HASH_SHIFT & (size - 1) for m in HASH_MULTIPLIERS])
        slots = np.full(size, -1)
        which = np.zeros(count, np.int64)
        unplaced = np.arange(count)
        for _ in range(500):
            wanted = choices[which[unplaced], unplaced]
            evicted = np.unique(slots[wanted])
            slots[wanted] = unplaced  # the last key that wants a slot gets it
            losers = unplaced[slots[wanted] != unplaced]
            unplaced = np.concatenate([losers, evicted[evicted >= 0]])
            if not len(unplaced):
                return np.where(slots >= 0, slots, count).astype(np.int32)
            which[unplaced] ^= 1
        size *= 2  # the eviction did not end; rare at half load
