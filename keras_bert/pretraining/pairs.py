"""Pairs of texts for next sentence prediction, from documents.

Source: section A.2 of the paper; `create_instances_from_document` and `truncate_seq_pair` in
google-research/bert `create_pretraining_data.py`.
"""

import dataclasses
import functools
import random
from typing import NamedTuple

import numpy as np

from keras_bert.pretraining.hash_random import hashes, uniform

SHORTEST = 8  # minimum sequence length

# Purposes of random numbers, see `hash_random.hashes`. Masking uses 0 to 2.
_IS_SHORT, _TARGET, _MIDDLE, _IS_RANDOM, _OTHER, _OTHER_BEGIN, _ORDER = range(3, 10)


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of texts in random order.

    Attributes:
        first, second: Start and end of each text in the documents' tokens, int64 (pairs, 2).
            Without next sentence prediction the second texts are empty.
        is_random: True if the second text is from another document, bool (pairs,).
        special: Number of special tokens per pair: 3, or 2 without second texts.
    """

    first: np.ndarray
    second: np.ndarray
    is_random: np.ndarray
    special: int

    def __len__(self):
        return len(self.first)

    @functools.cached_property
    def lengths(self):
        """Length of each pair including special tokens, int64 (pairs,)."""
        return np.diff(self.first)[:, 0] + np.diff(self.second)[:, 0] + self.special


def draw(documents, length, key, *, short_share=0.1, next_sentence=True):
    """Draw the `Pairs` of one pass over `records.Documents`.

    Each sentence occurs once, in a first text or in a second text that follows it. Random second
    texts are additional. `length` includes special tokens. A `short_share` of the pairs has a
    random length up to `length`. Equal keys, below 2**64, give equal pairs on every machine.

    There are two differences from Google's code. The length of a short pair is drawn per pair, not
    per document. If a document has only one sentence left, its pair must be random; later pairs are
    then less often random, so that half of all pairs are random.
    """
    if length < SHORTEST:
        raise ValueError(f"sequence_length must be at least {SHORTEST}; received {length}")
    if next_sentence and len(documents) < 2:
        raise ValueError(
            f"next sentence prediction needs at least two documents; received {len(documents)}; "
            "separate documents by blank lines, or use --no-next-sentence"
        )
    special = 3 if next_sentence else 2
    limit = length - special
    generator = random.Random(key)
    starts = documents.sentence_starts
    candidates = _candidates(documents, limit, key, short_share, next_sentence)
    coins = _coins(key, _IS_RANDOM, len(starts) - 1)
    begin, is_random = _choose_starts(candidates.middle, candidates.end, coins)
    first = np.column_stack([starts[begin], starts[candidates.middle[begin]]])
    if next_sentence:
        second_begin, second_end = _random_texts(documents, candidates, begin, key)
        second_begin = np.where(is_random, second_begin, candidates.middle[begin])
        second_end = np.where(is_random, second_end, candidates.end[begin])
        second = np.column_stack([starts[second_begin], starts[second_end]])
        first_lengths = _first_lengths(np.diff(first)[:, 0], np.diff(second)[:, 0], limit)
        second = _truncate(second, limit - first_lengths, generator)
    else:
        second = np.zeros_like(first)
        first_lengths = limit
        is_random = np.zeros(len(begin), bool)
    first = _truncate(first, first_lengths, generator)
    order = np.argsort(hashes(key, [0], len(begin), _ORDER)[0], kind="stable")
    return Pairs(first[order], second[order], is_random[order], special)


class _Candidates(NamedTuple):
    """The pair that would begin with each sentence of the documents.

    For two documents of three and two sentences, and pairs of about 8 tokens:

        sentence_starts   0 3 5 9 | 14 15     (of 3, 2, 4 and 5, 1 tokens; the last is the end)
        document          0 0 0 1 1
        target            8 8 8 8 8           (tokens of the pair)
        end               3 3 3 5 5           (the first sentence that is not needed)
        middle            1 2 3 4 5           (the first sentence of the second text, at random)
    """

    document: np.ndarray
    target: np.ndarray
    end: np.ndarray
    middle: np.ndarray


def _candidates(documents, limit, key, short_share, next_sentence):
    """Return the `_Candidates` of all sentences at once.

    Only the choice of the sentences that begin a pair is sequential, see `_choose_starts`.
    """
    starts = documents.sentence_starts
    sentences = len(starts) - 1
    document = np.repeat(np.arange(len(documents)), np.diff(documents.document_starts))
    short = 2 + (_coins(key, _TARGET, sentences) * (limit - 1)).astype(np.int64)
    target = np.where(_coins(key, _IS_SHORT, sentences) < short_share, short, limit)
    end = np.searchsorted(starts, starts[:-1] + target)
    end = np.minimum(end, documents.document_starts[document + 1])
    middle = end
    if next_sentence:
        middle = np.arange(1, sentences + 1)
        middle += (_coins(key, _MIDDLE, sentences) * (end - middle)).astype(np.int64)
    return _Candidates(document, target, end, middle)


def _random_texts(documents, candidates, begin, key):
    """Return the sentences at which a text of another document begins and ends, for each pair."""
    starts = documents.sentence_starts
    other = (_coins(key, _OTHER, len(begin)) * (len(documents) - 1)).astype(np.int64)
    other += other >= candidates.document[begin]
    first_sentence = documents.document_starts[other]
    last_end = documents.document_starts[other + 1]
    coins = _coins(key, _OTHER_BEGIN, len(begin))
    other_begin = first_sentence + (coins * (last_end - first_sentence)).astype(np.int64)
    first_lengths = starts[candidates.middle[begin]] - starts[begin]
    needed = np.maximum(1, candidates.target[begin] - first_lengths)
    other_end = np.searchsorted(starts, starts[other_begin] + needed)
    return other_begin, np.minimum(other_end, last_end)


def _coins(key, purpose, count):
    """Return random numbers in [0, 1), float64 (count,)."""
    return uniform(hashes(key, [0], count, purpose)[0])


def _choose_starts(middle, end, coins):
    """Return the sentences that begin a pair, int64 (pairs,), and `is_random`, bool (pairs,)."""
    # A single remaining sentence makes a random pair. Other pairs are then less often random.
    is_single = memoryview(end - np.arange(len(end)) == 1)
    middle = memoryview(middle)
    end = memoryview(end)
    coins = memoryview(coins)
    begin = []
    is_random = []
    single_count = 0
    sentence = 0
    while sentence < len(end):  # the only Python loop over all pairs
        begin.append(sentence)
        count = len(begin)
        if is_single[sentence]:
            single_count += 1
            is_random.append(True)
            sentence += 1
        elif coins[sentence] * (count - single_count) < 0.5 * count - single_count:
            is_random.append(True)
            sentence = middle[sentence]
        else:
            is_random.append(False)
            sentence = end[sentence]
    return np.array(begin, np.int64), np.array(is_random, bool)


def _first_lengths(first, second, limit):
    """Return the lengths of first texts after pairs are cut to `limit`, the longer text first."""
    half = limit - limit // 2
    return np.where(
        first + second <= limit, first, np.minimum(first, np.maximum(limit - second, half))
    )


def _truncate(spans, lengths, generator):
    """Cut texts to `lengths` tokens, removing each token at the front or the end at random."""
    cut = np.maximum(spans[:, 1] - spans[:, 0] - lengths, 0)
    coins = map(generator.getrandbits, cut.tolist())
    front = np.fromiter(map(int.bit_count, coins), np.int64, len(cut))
    return np.column_stack([spans[:, 0] + front, spans[:, 1] - cut + front])
