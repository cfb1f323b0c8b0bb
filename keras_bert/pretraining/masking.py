"""Masking for the masked LM: select 15% of the tokens; 80% become [MASK], 10% a random token.

Source: section 3.1 and A.1 of the paper; `create_masked_lm_predictions` in google-research/bert
`create_pretraining_data.py`. The random numbers are hashes, see `hash_random`.
"""

import re

import numpy as np

from keras_bert.data.packed_layout import within
from keras_bert.pretraining.hash_random import hashes, uniform

# Purposes of random numbers, see `hash_random.hashes`.
_CHOICE = 0
_ACTION = 1
_OTHER_TOKEN = 2
_SPECIAL = re.compile(r"\[(PAD|UNK|CLS|SEP|MASK|unused\d+)\]")


class Masker:
    """Masks a `share` of the tokens of sequences, at most `max_predictions` per sequence.

    If `whole_words` is True, all tokens of a word are masked or none.
    """

    def __init__(self, vocabulary, max_predictions=20, share=0.15, whole_words=False):
        ids = {token: index for index, token in enumerate(vocabulary)}
        self.max_predictions = max_predictions
        self._share = share
        self._whole_words = whole_words
        self._mask_id = ids["[MASK]"]
        self._frame = np.array([ids[token] for token in ("[CLS]", "[SEP]")])
        self._ordinary = np.array(
            [index for index, token in enumerate(vocabulary) if not _SPECIAL.fullmatch(token)],
            np.int32,
        )
        self._continues = np.array([token.startswith("##") for token in vocabulary])

    def mask(self, ids, lengths, key, numbers):
        """Mask ids with [CLS] and [SEP], int32 (batch, seq), of lengths (batch,) without padding.

        `key`, below 2**64, identifies the run and the epoch. `numbers` (batch,) are the indices of
        the sequences within the epoch. Returns the masked ids, int32 (batch, seq); the positions of
        the masked tokens in rising order and their original ids, both int32 (batch, predictions)
        and padded with 0; and the number of masked tokens, int64 (batch,).
        """
        ids = np.asarray(ids, np.int32)
        batch, seq = ids.shape
        position = np.arange(seq)
        maskable = position < np.asarray(lengths)[:, None]  # (batch, seq)
        for special in self._frame:
            maskable &= ids != special
        # A share of all positions including [CLS] and [SEP], as in Google's code; at least one.
        budget = np.round(np.asarray(lengths) * self._share).astype(np.int64)
        budget = np.clip(budget, 1, self.max_predictions)
        draws = hashes(key, numbers, seq, _CHOICE)
        choose = self._choose_words if self._whole_words else _choose_tokens
        chosen = choose(ids, maskable, draws, budget)
        count = chosen.sum(axis=1)
        rows, columns = np.nonzero(chosen)  # in rising order
        slots = within(count)
        positions = np.zeros((batch, self.max_predictions), np.int32)
        positions[rows, slots] = columns
        labels = np.zeros((batch, self.max_predictions), np.int32)
        labels[rows, slots] = ids[rows, columns]

        action = uniform(hashes(key, numbers, seq, _ACTION)[rows, columns])
        other = uniform(hashes(key, numbers, seq, _OTHER_TOKEN)[rows, columns])
        other = self._ordinary[(other * len(self._ordinary)).astype(np.int64)]
        masked = ids.copy()
        masked[rows, columns] = np.where(action < 0.9, ids[rows, columns], other)
        is_mask = action < 0.8
        masked[rows[is_mask], columns[is_mask]] = self._mask_id
        return masked, positions, labels, count

    def _choose_words(self, ids, maskable, draws, budget):
        """Choose words in random order, skipping those over the budget: bool (batch, seq).

        For "[CLS] play ##ing chess ##s go [SEP]" and a budget of 3 tokens:

            starts   0 1 0 1 0 1 0     (of words)
            start    0 1 1 3 3 5 5     (of the word of each token)
            size     0 2 0 2 0 1 0     (of each word, at its start)
            order    5 1 2 3 4 0 6     ("go" comes first; a stable sort keeps words together)
            chosen   0 1 1 0 0 1 0     ("chess ##s" does not fit any more)
        """
        batch, seq = ids.shape
        starts = maskable & ~self._continues[ids]
        starts[:, 1:] |= maskable[:, 1:] & ~maskable[:, :-1]  # a text may begin within a word
        start = np.maximum.accumulate(np.where(starts, np.arange(seq), 0), axis=1)
        rows = np.broadcast_to(np.arange(batch)[:, None], start.shape)
        size = np.zeros((batch, seq), np.int64)
        np.add.at(size, (rows[maskable], start[maskable]), 1)
        order = np.argsort(_sort_keys(maskable, draws[rows, start]), axis=1, kind="stable")
        chosen = np.zeros((batch, seq), bool)
        used = np.zeros(batch, np.int64)
        fits = np.zeros(batch, bool)
        for column in range(int(maskable.sum(axis=1).max(initial=0))):
            at = np.arange(batch), order[:, column]
            opens = starts[at]
            fits = np.where(opens, used + size[at] <= budget, fits) & maskable[at]
            used += np.where(opens & fits, size[at], 0)
            chosen[at] = fits
        return chosen


def _choose_tokens(ids, maskable, draws, budget):
    """Choose the tokens with the smallest random numbers: bool (batch, seq)."""
    order = np.argsort(_sort_keys(maskable, draws), axis=1)
    max_budget = int(budget.max(initial=0))
    is_within = np.arange(max_budget) < np.minimum(budget, maskable.sum(axis=1))[:, None]
    chosen = np.zeros(maskable.shape, bool)
    np.put_along_axis(chosen, order[:, :max_budget], is_within, axis=1)
    return chosen


def _sort_keys(maskable, draws):
    """Return random numbers, uint64, as int64, and the largest number where not maskable."""
    largest = np.iinfo(np.int64).max
    return np.where(maskable, (draws >> np.uint64(1)).astype(np.int64), largest)
