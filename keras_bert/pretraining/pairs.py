"""Documents to pairs of texts for next sentence prediction.

Source: section A.2 of the paper; `create_instances_from_document` and `truncate_seq_pair` in
google-research/bert `create_pretraining_data.py`. Two things differ. The length of a short pair
is drawn for each pair, not once for a document. And where only one sentence is left, so that its
pair has to be a random one, later pairs are true ones more often, so that half of all are random.
"""

import dataclasses
import functools
import random
from bisect import bisect_left

import numpy as np

SHORTEST = 8  # positions of a row


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
        key: a string: the same gives the same pairs, on every machine.
        short_share: share of the pairs whose length is anything up to `length`.
        next_sentence: whether there are second texts at all.

    Returns:
        `Pairs`.

    Raises:
        ValueError: a single document has no other one to draw from, or `length` is too small.

    Example:

    >>> from keras_bert.pretraining.records import Documents
    >>> documents = Documents(np.arange(12), np.array([0, 3, 6, 9, 12]), np.array([0, 2, 4]))
    >>> pairs = draw(documents, 16, "seed 0")
    >>> len(pairs), int(pairs.lengths.max())
    (3, 9)
    """
    if length < SHORTEST:
        raise ValueError(f"sequence_length must be at least {SHORTEST}; received {length}")
    if next_sentence and len(documents) < 2:
        raise ValueError(
            "next sentence prediction draws from another document, so it needs two at least; "
            f"there {'is' if len(documents) else 'are'} {len(documents)}: blank lines stand "
            "between documents, and --no-next-sentence does without"
        )
    generator = random.Random(key)
    # The one method whose numbers Python promises to keep, besides `getrandbits`.
    uniform = generator.random
    special = 3 if next_sentence else 2
    limit = length - special
    starts = documents.sentence_starts.tolist()
    document_starts = documents.document_starts.tolist()
    rows, forced = [], 0
    for document in range(len(documents)):
        sentence, end = document_starts[document : document + 2]
        while sentence < end:
            target = limit
            if uniform() < short_share:
                target = 2 + int(uniform() * (limit - 1))
            chunk = bisect_left(starts, starts[sentence] + target, sentence + 1, end)
            if not next_sentence:
                first = _shorten(starts[sentence], starts[chunk], limit, generator)
                rows.append((*first, 0, 0, False))
                sentence = chunk
                continue
            middle = sentence + 1
            if chunk - sentence == 1:
                is_random = True
                forced += 1
            else:
                middle += int(uniform() * (chunk - sentence - 1))
                done = len(rows) + 1
                is_random = uniform() * (done - forced) < 0.5 * done - forced
            if is_random:
                other = int(uniform() * (len(documents) - 1))
                other += other >= document
                second, last = document_starts[other : other + 2]
                second += int(uniform() * (last - second))
                left = max(1, target - (starts[middle] - starts[sentence]))
                last = bisect_left(starts, starts[second] + left, second + 1, last)
            else:
                second, last = middle, chunk
            spans = starts[sentence], starts[middle], starts[second], starts[last]
            rows.append((*_shorten_pair(*spans, limit, generator), is_random))
            sentence = middle if is_random else chunk
    table = np.array(rows, np.int64).reshape(-1, 5)
    order = np.argsort([uniform() for _ in rows], kind="stable")
    table = table[order]
    return Pairs(table[:, :2], table[:, 2:4], table[:, 4].astype(bool), special)


def _shorten_pair(start, end, second_start, second_end, limit, generator):
    """A piece at a time from the longer text, at its front or its end, as a coin falls."""
    length, second_length = end - start, second_end - second_start
    if length + second_length <= limit:
        return start, end, second_start, second_end
    keep = min(length, max(limit - second_length, limit - limit // 2))
    first = _shorten(start, end, keep, generator)
    return (*first, *_shorten(second_start, second_end, limit - keep, generator))


def _shorten(start, end, keep, generator):
    cut = end - start - keep
    if cut <= 0:
        return start, end
    front = generator.getrandbits(cut).bit_count()
    return start + front, start + front + keep
