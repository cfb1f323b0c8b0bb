"""How well a vocabulary fits texts."""

import collections

from keras_bert.text.python_tokenizer import PythonTokenizer
from keras_bert.text.tables import MAX_WORD_LENGTH

SAMPLE = 1000  # texts that show the language
_FEWEST_WORDS = 50  # with fewer, a name or an emoji would look like another language
# A vocabulary of the same language needs 1.0 to 1.8 tokens per word, one of Hangul syllables 2.7,
# and at most 1.3% of the words are unknown. MiniLM's needs 5.4 for Korean reviews, and 25% of the
# words are unknown.
_MANY_TOKENS = 3
_MANY_UNKNOWN = 0.05


def count_words(texts: list[str], tokenizer: PythonTokenizer) -> collections.Counter[str]:
    """Count the words of texts as the tokenizer splits them, except those that are too long."""
    counts: collections.Counter[str] = collections.Counter()
    # Most chunks repeat, so split each distinct chunk once.
    for chunk, count in collections.Counter(tokenizer.chunks("\n".join(texts))).items():
        for word in tokenizer.words(chunk):
            if len(word) <= MAX_WORD_LENGTH:
                counts[word] += count
    return counts


def coverage(counts: collections.Counter[str], tokenizer: PythonTokenizer) -> dict[str, float]:
    """Return how well the tokenizer's vocabulary fits the counted words, a dict.

    `words` is the number of words; `unknown` is the share of words that are [UNK];
    `tokens_per_word` is the mean number of tokens of the other words; `whole` is the share of words
    that are one token.
    """
    total = counts.total()
    words = zip(counts.values(), tokenizer.tokenize(list(counts)), strict=True)
    known = [(count, len(ids)) for count, ids in words if ids[0] != tokenizer.unknown_id]
    known_total = sum(count for count, _ in known)
    return {
        "words": total,
        "unknown": (total - known_total) / total,
        "tokens_per_word": sum(count * size for count, size in known) / max(1, known_total),
        "whole": sum(count for count, size in known if size == 1) / total,
    }


def note(texts: list[str], source: str, tokenizer: PythonTokenizer) -> str | None:
    """Return a note if the vocabulary does not fit the language of the texts, else `None`."""
    counts = count_words(texts, tokenizer)
    if counts.total() < _FEWEST_WORDS:
        return None
    fit = coverage(counts, tokenizer)
    if fit["tokens_per_word"] < _MANY_TOKENS and fit["unknown"] < _MANY_UNKNOWN:
        return None
    return (
        f"{source}: the vocabulary does not fit the texts: {fit['unknown']:.1%} of the words are "
        f"unknown, and the others have {fit['tokens_per_word']:.1f} tokens. Use a model for their "
        "language or subject"
    )
