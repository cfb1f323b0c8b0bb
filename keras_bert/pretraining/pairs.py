"""Pairs of texts for next sentence prediction, from documents.

Source: section A.2 of the paper; `create_instances_from_document` and `truncate_seq_pair` in
google-research/bert `create_pretraining_data.py`.
"""

import dataclasses
import functools
import random

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
    starts, document_starts = documents.sentence_starts, documents.document_starts
    sentences = len(starts) - 1
    document_of = np.repeat(np.arange(len(documents)), np.diff(document_starts))

    def coins(purpose, count=sentences):
        return uniform(hashes(key, [0], count, purpose)[0])

    # Compute the pair that would begin with each sentence, for all sentences at once. Only the
    # choice of the sentences that begin a pair is sequential, see `_choose_starts`.
    target = 2 + (coins(_TARGET) * (limit - 1)).astype(np.int64)
    target = np.where(coins(_IS_SHORT) < short_share, target, limit)
    end = np.searchsorted(starts, starts[:-1] + target)  # the first sentence that is not needed
    end = np.minimum(end, document_starts[document_of + 1])
    middle = end
    if next_sentence:
        middle = np.arange(1, sentences + 1)
        middle += (coins(_MIDDLE) * (end - middle)).astype(np.int64)
    begin, is_random = _choose_starts(middle, end, coins(_IS_RANDOM))

    count = len(begin)
    middle, end = middle[begin], end[begin]
    first = np.column_stack([starts[begin], starts[middle]])
    generator = random.Random(key)
    if next_sentence:
        other = (coins(_OTHER, count) * (len(documents) - 1)).astype(np.int64)
        other += other >= document_of[begin]
        other_begin, other_end = document_starts[other], document_starts[other + 1]
        other_begin += (coins(_OTHER_BEGIN, count) * (other_end - other_begin)).astype(np.int64)
        left = np.maximum(1, target[begin] - np.diff(first)[:, 0])
        other_end = np.minimum(np.searchsorted(starts, starts[other_begin] + left), other_end)
        second = np.column_stack([
            starts[np.where(is_random, other_begin, middle)],
            starts[np.where(is_random, other_end, end)],
        ])  # fmt: skip
        first_lengths = _first_lengths(np.diff(first)[:, 0], np.diff(second)[:, 0], limit)
        second = _truncate(second, limit - first_lengths, generator)
    else:
        second, first_lengths = np.zeros_like(first), limit
        is_random = np.zeros(count, bool)
    first = _truncate(first, first_lengths, generator)
    order = np.argsort(hashes(key, [0], count, _ORDER)[0], kind="stable")
    return Pairs(first[order], second[order], is_random[order], special)


def _choose_starts(middle, end, coins):
    """Return the sentences that begin a pair, int64 (pairs,), and `is_random`, bool (pairs,)."""
    # A single remaining sentence makes a random pair. Other pairs are then less often random.
    is_single = memoryview(end - np.arange(len(end)) == 1)
    middle, end, coins = memoryview(middle), memoryview(end), memoryview(coins)
    begin, is_random = [], []
    sentence, sentences, count, single_count = 0, len(end), 0, 0
    while sentence < sentences:  # the only Python loop over all pairs
        begin.append(sentence)
        count += 1
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
