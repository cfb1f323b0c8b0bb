"""Which pieces are masked, and by what: 15% of them, 80% by [MASK], 10% by a random piece.

Source: section 3.1 and A.1 of the paper; `create_masked_lm_predictions` in google-research/bert
`create_pretraining_data.py`.

Every draw is a hash of a key, the number of the sequence and the position in it.
"""

import re

import numpy as np

from keras_bert.pretraining.hash_random import hashes, uniform

_SPECIAL = re.compile(r"\[(PAD|UNK|CLS|SEP|MASK|unused\d+)\]")


class Masker:
    """Masks sequences for the masked LM.

    Args:
        vocabulary: the pieces.
        max_predictions: the most pieces that are masked in a sequence.
        share: of the pieces that are masked.
        whole_words: mask all pieces of a word, or none.

    Raises:
        ValueError: the vocabulary lacks a special piece, or a number is impossible.

    Example:

    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    >>> masker = Masker(pieces, max_predictions=2)
    >>> ids = np.array([[2, 5, 6, 5, 6, 5, 6, 3, 0]])
    >>> masked, positions, labels, count = masker.mask(ids, np.array([8]), key=1, numbers=[0])
    >>> masked.shape, positions.shape, int(count[0])
    ((1, 9), (1, 2), 1)
    """

    def __init__(self, vocabulary, max_predictions=20, share=0.15, whole_words=False):
        if max_predictions < 1:
            raise ValueError(f"max_predictions must be at least 1; received {max_predictions}")
        if not 0 < share < 1:
            raise ValueError(f"the share of masked pieces must lie between 0 and 1; got {share}")
        ids = {piece: index for index, piece in enumerate(vocabulary)}
        for special in ("[MASK]", "[CLS]", "[SEP]"):
            if special not in ids:
                raise ValueError(
                    f"the vocabulary ({len(vocabulary)} pieces) has no {special} piece"
                )
        self.max_predictions = max_predictions
        self._share = share
        self._whole_words = whole_words
        self._mask_id = ids["[MASK]"]
        self._frame = np.array([ids[piece] for piece in ("[CLS]", "[SEP]")])
        self._ordinary = np.array(
            [index for index, piece in enumerate(vocabulary) if not _SPECIAL.fullmatch(piece)],
            np.int32,
        )
        if not len(self._ordinary):
            raise ValueError("the vocabulary has no pieces but special ones")
        self._continues = np.array([piece.startswith("##") for piece in vocabulary])

    def mask(self, ids, lengths, key, numbers):
        """Masks a batch.

        Args:
            ids: piece ids, int32 (batch, seq), with [CLS] and [SEP].
            lengths: positions that are no padding, (batch,).
            key: a number below 2**64, of the run and the epoch.
            numbers: of the sequences within the epoch, (batch,).

        Returns:
            `masked` ids, int32 (batch, seq); `positions` of the masked pieces in rising order and
            `labels`, what stood there, both int32 (batch, predictions) and 0 behind the last
            one; and how many there are, int64 (batch,).
        """
        ids = np.asarray(ids, np.int32)
        batch, seq = ids.shape
        position = np.arange(seq)
        maskable = position < np.asarray(lengths)[:, None]  # (batch, seq)
        for special in self._frame:
            maskable &= ids != special
        # Of all positions, as Google counts, and one at least.
        budget = np.round(np.asarray(lengths) * self._share).astype(np.int64)
        budget = np.clip(budget, 1, self.max_predictions)
        draws = hashes(key, numbers, seq, purpose=0) >> np.uint64(1)
        if self._whole_words:
            chosen = self._choose_words(ids, maskable, draws, budget)
        else:
            chosen = _choose_pieces(maskable, draws, budget)
        count = chosen.sum(axis=1)
        rows, columns = np.nonzero(chosen)  # in rising order
        slots = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        positions = np.zeros((batch, self.max_predictions), np.int32)
        labels = np.zeros((batch, self.max_predictions), np.int32)
        positions[rows, slots] = columns
        labels[rows, slots] = ids[rows, columns]

        fate = uniform(hashes(key, numbers, seq, purpose=1)[rows, columns])
        other = uniform(hashes(key, numbers, seq, purpose=2)[rows, columns])
        other = self._ordinary[(other * len(self._ordinary)).astype(np.int64)]
        values = np.where(
            fate < 0.8, self._mask_id, np.where(fate < 0.9, labels[rows, slots], other)
        )
        masked = ids.copy()
        masked[rows, columns] = values
        return masked, positions, labels, count

    def _choose_words(self, ids, maskable, draws, budget):
        """Words in random order, each that still fits: bool (batch, seq)."""
        batch, seq = ids.shape
        starts = maskable & ~self._continues[ids]
        starts[:, 1:] |= maskable[:, 1:] & ~maskable[:, :-1]  # a text may be cut within a word
        start = np.maximum.accumulate(np.where(starts, np.arange(seq), 0), axis=1)
        rows = np.arange(batch)[:, None]
        size = np.zeros((batch, seq), np.int64)
        np.add.at(size, (np.broadcast_to(rows, start.shape)[maskable], start[maskable]), 1)
        keys = np.where(maskable, draws[rows, start], np.iinfo(np.int64).max).astype(np.int64)
        order = np.argsort(keys, axis=1, kind="stable")  # the pieces of a word stay together
        chosen = np.zeros((batch, seq), bool)
        used, fits = np.zeros(batch, np.int64), np.zeros(batch, bool)
        for column in range(int(maskable.sum(axis=1).max(initial=0))):
            at = order[:, column], np.arange(batch)
            at = at[1], at[0]
            opens = starts[at]
            fits = np.where(opens, used + size[at] <= budget, fits) & maskable[at]
            used += np.where(opens & fits, size[at], 0)
            chosen[at] = fits
        return chosen


def _choose_pieces(maskable, draws, budget):
    """The pieces with the smallest draws: bool (batch, seq)."""
    keys = np.where(maskable, draws, np.iinfo(np.int64).max).astype(np.int64)
    order = np.argsort(keys, axis=1)
    chosen = np.zeros(maskable.shape, bool)
    most = int(budget.max(initial=0))
    wanted = np.arange(most) < np.minimum(budget, maskable.sum(axis=1))[:, None]
    rows = np.broadcast_to(np.arange(len(keys))[:, None], wanted.shape)
    chosen[rows[wanted], order[:, :most][wanted]] = True
    return chosen
