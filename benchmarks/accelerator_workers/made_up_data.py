"""Made-up vocabularies, texts and batches for `accelerator.py`, with the lengths of real data."""

import itertools

import numpy as np

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ENDINGS = 500  # entries of a vocabulary that continue a word, such as "##xa"
# Each row of `LENGTHS` has the quantiles of the length of a text at these levels: half of the
# sentences have at most 8 tokens, the length at level 0.5.
LEVELS = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
# In tokens of Google's uncased vocabulary, without special tokens.
LENGTHS = {
    # The first 6,000 sentences of SST-2's training data.
    "sentences": (1, 2, 2, 4, 8, 16, 25, 31, 41, 61),
    # The questions and paragraphs of the 6,603 pairs in 30 articles of SQuAD 1.1.
    "questions": (4, 7, 8, 10, 12, 15, 18, 20, 26, 38),
    "paragraphs": (30, 69, 91, 116, 144, 188, 248, 300, 458, 789),
    # The first 5,000 paragraphs and headings of an extract of the English Wikipedia.
    "encyclopedia": (1, 2, 3, 8, 65, 119, 177, 222, 302, 578),
}


def vocabulary(size):
    """Return special tokens, endings of words and words: `size` different strings."""
    endings = ["##" + word for word in _words("xqz", ENDINGS)]
    # No word has a letter of an ending, so a tokenizer splits a word exactly before its ending.
    words = _words("bcdfghjklmnprstvw", size - len(SPECIAL_TOKENS) - ENDINGS)
    return [*SPECIAL_TOKENS, *endings, *words]


def _words(consonants, count):
    """Return different words of two to four syllables, such as `"baba"`."""
    syllables = [consonant + vowel for consonant in consonants for vowel in "aeiou"]
    words = (
        "".join(word)
        for length in (2, 3, 4)
        for word in itertools.product(syllables, repeat=length)
    )
    return list(itertools.islice(words, count))


def texts(lengths, count, vocabulary_size, seed=0, reverse=False):
    """Return `count` texts, with the lengths of a key of `LENGTHS`.

    A few words occur often, as in real texts. With `reverse`, other words are the frequent ones.
    """
    random = np.random.default_rng(seed)
    pieces = vocabulary(vocabulary_size)[len(SPECIAL_TOKENS) :]
    endings = pieces[:ENDINGS]
    words = pieces[ENDINGS:]
    if reverse:
        words.reverse()
    frequencies = 1 / np.arange(10, 10 + len(words))
    totals = frequencies.cumsum() / frequencies.sum()
    tokens_per_text = np.interp(random.random(count), LEVELS, LENGTHS[lengths]).round().astype(int)
    result = []
    for length in tokens_per_text:
        ranks = np.minimum(np.searchsorted(totals, random.random(length)), len(words) - 1)
        tokens = [words[rank] for rank in ranks]
        # One of six tokens continues a word.
        for index in range(5, length, 6):
            tokens[index] = endings[ranks[index] % ENDINGS]
        result.append(" ".join(tokens).replace(" ##", ""))
    return result


def labeled_sentences(count, vocabulary_size):
    """Return texts and their labels, 0 or 1. The labels have different frequent words."""
    count_per_label = (count // 2, count - count // 2)
    rows = []
    for label, count_of_label in enumerate(count_per_label):
        seed = label
        sentences = texts("sentences", count_of_label, vocabulary_size, seed, reverse=label == 1)
        rows += [(sentence, label) for sentence in sentences]
    order = np.random.default_rng(0).permutation(len(rows))
    return [rows[index][0] for index in order], [rows[index][1] for index in order]


def pairs(count, vocabulary_size):
    """Return questions and paragraphs."""
    questions = texts("questions", count, vocabulary_size, seed=0)
    return questions, texts("paragraphs", count, vocabulary_size, seed=1)


def pretraining_batch(rows, length, vocabulary_size):
    """Return a batch of full rows with 15% of their positions masked, a dict of int32 arrays.

    `ids` is (rows, length), `positions` and `targets` are (rows, masked), `next_sentence` (rows,).
    """
    random = np.random.default_rng(0)
    ids = random.integers(ENDINGS, vocabulary_size, (rows, length), dtype=np.int32)
    shuffled = random.permuted(np.tile(np.arange(1, length - 1), (rows, 1)), axis=1)
    positions = np.sort(shuffled[:, : -(-15 * length // 100)], axis=1).astype(np.int32)
    return {
        "ids": ids,
        "positions": positions,
        "targets": np.take_along_axis(ids, positions, axis=1),
        "next_sentence": random.integers(0, 2, rows, dtype=np.int32),
    }
