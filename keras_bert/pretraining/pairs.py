"""Documents to pairs of texts for next sentence prediction.

Source: section A.2 of the paper; `create_instances_from_document` and `truncate_seq_pair` in
google-research/bert `create_pretraining_data.py`. Two things differ. The length of a short pair
is drawn for each pair, not once for a document. And where only one sentence is left, so that its
pair has to be a random one, later pairs are true ones more often, so that half of all are random.
"""

import dataclasses
import functools
import random

import numpy as np

from keras_bert.pretraining.hash_random import hashes, uniform

SHORTEST = 8  # positions of a row

# What hashes are drawn for; 0 to 2 are for masks.
_IS_SHORT, _TARGET, _MIDDLE, _IS_RANDOM, _OTHER, _OTHER_BEGIN, _ORDER = range(3, 10)


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs, each two runs of pieces, in random order.

    Attributes:
        first, second: where in the documents' pieces each text starts and ends, int64 (pairs, 2).
            Without next sentence prediction the second texts are empty.
        is_random: whether the second text is from another document, bool (pairs,).
        special: special pieces around a pair: 3, or 2 where there are no second texts.
    """

    first: np.ndarray
    second: np.ndarray
    is_random: np.ndarray
    special: int

    def __len__(self):
        return len(self.first)

    @functools.cached_property  # each batch asks for those of its rows
    def lengths(self):
        """Positions each pair takes, special pieces included, int64 (pairs,)."""
        return np.diff(self.first)[:, 0] + np.diff(self.second)[:, 0] + self.special


def draw(documents, length, key, *, short_share=0.1, next_sentence=True):
    """Draws the pairs of one pass over documents.

    Each sentence occurs once, in a first text or in a second one that follows it.

    Args:
        documents: `records.Documents`.
        length: positions that the longest pair takes, special pieces included.
        key: a number below 2**64: the same gives the same pairs, on every machine.
        short_share: share of the pairs whose length is anything up to `length`.
        next_sentence: whether there are second texts at all.

    Returns:
        `Pairs`.

    Raises:
        ValueError: a single document has no other one to draw from, or `length` is too small.

    Example:

    >>> from keras_bert.pretraining.records import Documents
    >>> documents = Documents(np.arange(12), np.array([0, 3, 6, 9, 12]), np.array([0, 2, 4]))
    >>> pairs = draw(documents, 16, key=0)
    >>> len(pairs), int(pairs.lengths.max())
    (3, 12)
    """
    if length < SHORTEST:
        raise ValueError(f"sequence_length must be at least {SHORTEST}; received {length}")
    if next_sentence and len(documents) < 2:
        raise ValueError(
            "next sentence prediction draws from another document, so it needs two at least; "
            f"there {'is' if len(documents) else 'are'} {len(documents)}: blank lines stand "
            "between documents, and --no-next-sentence does without"
        )
    special = 3 if next_sentence else 2
    limit = length - special
    starts, document_starts = documents.sentence_starts, documents.document_starts
    sentences = len(starts) - 1
    document_of = np.repeat(np.arange(len(documents)), np.diff(document_starts))

    def coins(purpose, count=sentences):
        return uniform(hashes(key, [0], count, purpose)[0])

    # What a pair that begins with a sentence would be, for all sentences at once; only where the
    # next one begins depends on those before.
    target = 2 + (coins(_TARGET) * (limit - 1)).astype(np.int64)
    target = np.where(coins(_IS_SHORT) < short_share, target, limit)
    end = np.searchsorted(starts, starts[:-1] + target)  # the first with enough before it
    end = np.minimum(end, document_starts[document_of + 1])
    middle = end
    if next_sentence:
        middle = np.arange(1, sentences + 1)
        middle += (coins(_MIDDLE) * (end - middle)).astype(np.int64)
    begin, is_random = _walk(middle, end, coins(_IS_RANDOM))

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
        keep = _keep(np.diff(first)[:, 0], np.diff(second)[:, 0], limit)
        second = _shorten(second, limit - keep, generator)
    else:
        second, keep = np.zeros_like(first), limit
        is_random = np.zeros(count, bool)
    first = _shorten(first, keep, generator)
    order = np.argsort(hashes(key, [0], count, _ORDER)[0], kind="stable")
    return Pairs(first[order], second[order], is_random[order], special)


def _walk(middle, end, coins):
    """From sentence to sentence that a pair begins with: (those sentences, `is_random`).

    A sentence alone has no other that could follow it. So that half of all pairs are random, the
    others are so less often.
    """
    is_alone = memoryview(end - np.arange(len(end)) == 1)
    middle, end, coins = memoryview(middle), memoryview(end), memoryview(coins)
    begin, is_random = [], []
    sentence, sentences, count, alone = 0, len(end), 0, 0
    while sentence < sentences:  # the one loop over all pairs, so there is little in it
        begin.append(sentence)
        count += 1
        if is_alone[sentence]:
            alone += 1
            is_random.append(True)
            sentence += 1
        elif coins[sentence] * (count - alone) < 0.5 * count - alone:
            is_random.append(True)
            sentence = middle[sentence]
        else:
            is_random.append(False)
            sentence = end[sentence]
    return np.array(begin, np.int64), np.array(is_random, bool)


def _keep(first, second, limit):
    """What stays of first texts: the longer of two loses pieces until both are `limit` together."""
    half = limit - limit // 2
    return np.where(
        first + second <= limit, first, np.minimum(first, np.maximum(limit - second, half))
    )


def _shorten(spans, keep, generator):
    """Cuts texts to `keep` pieces, each piece at the front or the end, as a coin falls."""
    cut = np.maximum(spans[:, 1] - spans[:, 0] - keep, 0)
    coins = map(generator.getrandbits, cut.tolist())
    front = np.fromiter(map(int.bit_count, coins), np.int64, len(cut))
    return np.column_stack([spans[:, 0] + front, spans[:, 1] - cut + front])
