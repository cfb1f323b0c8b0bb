"""Predict the masked tokens of texts with a masked language model.

Source: section 3.1 of the BERT paper, task 1.
"""

import numpy as np
import scipy.special

from keras_bert.data.padding import pad

MASK = "[MASK]"


class EncodedMasks:
    """Tokenized texts with [MASK], for `data.batching.Batches`.

    Args:
        texts: The texts; each has at least one [MASK].
        tokenizer: A `PythonTokenizer` with [MASK].
        max_length: Maximum number of tokens of a text.

    Attributes:
        lengths: Tokens of each sequence, int (n,).
        counts: Number of [MASK] of each text, int (n,).

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
        self.counts = np.array([len(positions) for positions in self._positions], int)

    def __len__(self):
        return len(self._ids)

    def _encode(self, text):
        """Return the ids of a text with [CLS] and [SEP], int (tokens,)."""
        parts = text.split(MASK)
        if len(parts) < 2:
            raise ValueError(f"a text must contain at least one {MASK}; received {text!r:.80}")
        # [MASK] is a separate word, so the parts around it can be tokenized separately.
        before, *others = self._tokenizer.tokenize(parts)
        ids = [self._tokenizer.special_ids.cls, *before]
        for part in others:
            ids += [self._mask_id, *part]
        ids.append(self._tokenizer.special_ids.sep)
        if len(ids) > self.max_length:
            raise ValueError(
                f"a text must have at most {self.max_length} tokens; received {len(ids)}. Shorten "
                "it"
            )
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
                [self._positions[row] for row in rows], self.counts[rows].max()
            ),
        }
        return inputs, None, None


def decode(vocabulary, encoded, outputs, top_k):
    """Return for each text a list with an entry per [MASK]: pairs of a token and its probability.

    `outputs` has for each text its logits (masked tokens, vocab_size), or the outputs of
    `heads.pretraining`. `top_k` is the number of pairs; `None` gives the whole vocabulary.
    """
    results = []
    for logits, count in zip(outputs, encoded.counts, strict=True):
        if isinstance(logits, dict):
            logits = logits["masked_lm"]
        logits = np.asarray(logits, np.float32)[:count, : len(vocabulary)]
        probabilities = scipy.special.softmax(logits, axis=-1)
        best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top_k]
        results.append(
            [
                [(vocabulary[token], float(row[token])) for token in tokens]
                for row, tokens in zip(probabilities, best, strict=True)
            ]
        )
    return results
