"""Predict the masked tokens of texts with a masked language model.

Source: section 3.1 of the BERT paper, task 1.
"""

import numpy as np
import scipy.special
import tensorflow as tf

from keras_bert import heads
from keras_bert.data.batching import pad
from keras_bert.model_structure import max_sequence_length

MASK = "[MASK]"


class EncodedMasks:
    """Tokenized texts with [MASK], for `data.batching.Batches`.

    `lengths`, int (n,), are those of the sequences, `counts`, int (n,), the numbers of [MASK].
    """

    def __init__(self, model, texts):
        encoder = heads.find_encoder(model)
        preprocessor = encoder.preprocessor
        if preprocessor is None:
            raise ValueError(
                f"the encoder of {model.name!r} has no preprocessor; set its `preprocessor`"
            )
        if MASK not in preprocessor.vocabulary:
            raise ValueError(
                f"the vocabulary of {len(preprocessor.vocabulary)} tokens has no {MASK}, which "
                "this task needs"
            )
        self.max_length = max_sequence_length(encoder)
        tokenizer = preprocessor.tokenizer
        self._pad_id = tokenizer.token_id("[PAD]")
        self._ids = [_encode(tokenizer, text, self.max_length) for text in texts]
        self._positions = [np.flatnonzero(ids == tokenizer.token_id(MASK)) for ids in self._ids]
        self.lengths = np.array([len(ids) for ids in self._ids], int)
        self.counts = np.array([len(positions) for positions in self._positions], int)

    def __len__(self):
        return len(self._ids)

    def batch(self, rows, length):
        """Return the inputs of some rows, int32 (batch, length), and `None` twice.

        `masked_lm_positions` is (batch, masked tokens), padded with 0.
        """
        ids = pad([self._ids[row] for row in rows], length, self._pad_id)
        inputs = {
            "input_word_ids": ids,
            "input_mask": (np.arange(length) < self.lengths[rows][:, None]).astype(np.int32),
            "input_type_ids": np.zeros_like(ids),
            "masked_lm_positions": pad(
                [self._positions[row] for row in rows], self.counts[rows].max()
            ),
        }
        return inputs, None, None


def decode(model, encoded, outputs, top_k):
    """Return for each text a list with an entry per [MASK]: pairs of a token and its probability.

    `outputs` has for each text its logits (masked tokens, vocab_size), or the outputs of
    `heads.pretraining`. `top_k` is the number of pairs; `None` gives the whole vocabulary.
    """
    vocabulary = heads.find_encoder(model).preprocessor.vocabulary
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


def _encode(tokenizer, text, limit):
    """Return the ids of a text with [CLS] and [SEP], int (tokens,)."""
    parts = text.split(MASK)
    if len(parts) < 2:
        raise ValueError(f"a text must contain at least one {MASK}; received {text!r:.80}")
    mask, cls, sep = (tokenizer.token_id(token) for token in (MASK, "[CLS]", "[SEP]"))
    # The texts around a [MASK] can be tokenized separately, because it is a word of its own.
    ids = [cls]
    encoded = tokenizer.tokenize(tf.constant([part.encode("utf-8", "ignore") for part in parts]))
    for number, part in enumerate(encoded.to_list()):
        ids += [mask] * (number > 0) + part
    ids.append(sep)
    if len(ids) > limit:
        raise ValueError(
            f"a text must have at most {limit} tokens; received {len(ids)}; shorten it"
        )
    return np.array(ids)
