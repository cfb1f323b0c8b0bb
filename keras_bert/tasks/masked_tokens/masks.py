"""Texts with [MASK] as sequences of token ids."""

import numpy as np

from keras_bert.data.padding import pad
from keras_bert.runtime.escaping import shown
from keras_bert.text.encoded_texts import Encoded

MASK = "[MASK]"


class EncodedMasks(Encoded):
    """Tokenized texts with [MASK], for `data.batching.Batches`.

    Args:
        texts: The texts; each has at least one [MASK].
        tokenizer: A `PythonTokenizer` with [MASK].
        max_length: Maximum number of tokens of a text.

    Attributes:
        lengths: Tokens of each sequence, int (n,).
        masks: Number of [MASK] of each text, int (n,).

    Raises:
        ValueError: If a text has no [MASK] or too many tokens.
    """

    def __init__(self, texts, tokenizer, max_length):
        self.max_length = max_length
        self._tokenizer = tokenizer
        self._mask_id = tokenizer.token_id(MASK)
        self._ids = [self._encode(text) for text in texts]
        self._positions = [np.flatnonzero(ids == self._mask_id) for ids in self._ids]
        self.lengths = np.array([len(ids) for ids in self._ids], int)
        self.masks = np.array([len(positions) for positions in self._positions], int)

    def _encode(self, text):
        """Return the ids of a text with [CLS] and [SEP], int (tokens,)."""
        parts = text.split(MASK)
        if len(parts) < 2:
            raise ValueError(f"a text must contain at least one {MASK}; received {shown(text)}")
        # [MASK] is a separate word, so the parts around it can be tokenized separately.
        before, *others = self._tokenizer.tokenize(parts)
        ids = [self._tokenizer.special_ids.cls, *before]
        for part in others:
            ids += [self._mask_id, *part]
        ids.append(self._tokenizer.special_ids.sep)
        if len(ids) > self.max_length:
            raise ValueError(f"a text has at most {self.max_length} tokens; received {len(ids)}")
        return np.array(ids)

    def batch(self, rows, length):
        """Return (inputs, None, None) of some rows: there are no targets.

        Inputs are int32 (batch, length); `masked_lm_positions` is (batch, masked tokens), padded
        with 0.
        """
        ids = pad([self._ids[row] for row in rows], length, self._tokenizer.special_ids.pad)
        inputs = {
            "input_word_ids": ids,
            "input_mask": (np.arange(length) < self.lengths[rows][:, None]).astype(np.int32),
            "input_type_ids": np.zeros_like(ids),
            "masked_lm_positions": pad(
                [self._positions[row] for row in rows], self.masks[rows].max()
            ),
        }
        return inputs, None, None
