"""Predict the masked tokens of texts with a masked language model."""

import numpy as np
import scipy.special
import tensorflow as tf

from keras_bert import heads
from keras_bert.data.batching import pad

MASK = "[MASK]"


def fill(model, texts, *, top=5):
    """Return the most probable tokens for each [MASK].

    Source: section 3.1 of the BERT paper, task 1.

    Args:
        model: From `heads.masked_lm` or `heads.pretraining`; its encoder has a preprocessor.
        texts: List of strings, each with at least one `[MASK]`.
        top: Number of tokens to return for each [MASK].

    Returns:
        For each text a list with an entry per [MASK]: a list of pairs of a token and its
        probability, the most probable first.

    Raises:
        ValueError: If the model has another head, a text has no [MASK] or is too long, or the
            vocabulary has no token [MASK].

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film"]
    >>> encoder = BertEncoder(vocab_size=7, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=Preprocessor(tokens))
    >>> [[candidates]] = fill(heads.masked_lm(encoder), ["a [MASK] film"], top=2)
    >>> len(candidates)
    2
    """
    if heads.find_task(model) not in ("masked_lm", "pretraining"):
        raise ValueError(
            f"{model.name!r} must be a model of keras_bert.heads.masked_lm or heads.pretraining"
        )
    encoder = heads.find_encoder(model)
    if encoder.preprocessor is None:
        raise ValueError(
            f"the encoder of {model.name!r} has no preprocessor; set its `preprocessor`"
        )
    vocabulary = encoder.preprocessor.vocabulary
    if MASK not in vocabulary:
        raise ValueError(
            f"the vocabulary of {len(vocabulary)} tokens has no {MASK}, which this task needs"
        )
    limit = min(
        encoder.preprocessor.max_sequence_length, encoder.get_config()["max_position_embeddings"]
    )
    results = []
    for text in texts:
        # One text at a time, because texts differ in their number of [MASK].
        ids, positions = _encode(encoder.preprocessor.tokenizer, text, limit)
        inputs = {
            "input_word_ids": ids,
            "input_mask": np.ones_like(ids),
            "input_type_ids": np.zeros_like(ids),
            "masked_lm_positions": positions,
        }
        logits = model.predict_on_batch(inputs)
        if isinstance(logits, dict):  # the outputs of heads.pretraining
            logits = logits["masked_lm"]
        probabilities = scipy.special.softmax(np.asarray(logits)[0, :, : len(vocabulary)], axis=-1)
        best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top]
        results.append(
            [
                [(vocabulary[token], float(row[token])) for token in tokens]
                for row, tokens in zip(probabilities, best, strict=True)
            ]
        )
    return results


def _encode(tokenizer, text, limit):
    """Return the ids of a text, int (1, seq), and the positions of [MASK], int (1, masks)."""
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
    ids = pad([np.array(ids)], len(ids))
    return ids, np.flatnonzero(ids[0] == mask)[None].astype(np.int32)
