"""Candidates for the blanks in texts, by a masked language model."""

import numpy as np
import tensorflow as tf

from keras_bert import heads
from keras_bert.data.batching import pad
from keras_bert.tasks.classification import softmax

MASK = "[MASK]"


def fill(model, texts, *, top=5):
    """The likeliest pieces behind each [MASK].

    Source: section 3.1 of the paper, task 1.

    Args:
        model: from `heads.masked_lm` or `heads.pretraining`, its encoder with a preprocessor.
        texts: list of strings, each with at least one `[MASK]`.
        top: candidates for each blank.

    Returns:
        For each text a list with an entry for each blank: a list of (piece, probability), the
        likeliest first.

    Raises:
        ValueError: another model, a text without a blank or too long, or a vocabulary without
            the piece [MASK].

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film"]
    >>> encoder = BertEncoder(vocab_size=7, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=Preprocessor(pieces))
    >>> [[candidates]] = fill(heads.masked_lm(encoder), ["a [MASK] film"], top=2)
    >>> len(candidates)
    2
    """
    if heads.find_task(model) not in ("masked_lm", "pretraining"):
        raise ValueError(
            f"{model.name!r} must be a model of keras_bert.heads.masked_lm or pretraining"
        )
    encoder = heads.find_encoder(model)
    if encoder.preprocessor is None:
        raise ValueError(f"the encoder of {model.name!r} has no preprocessor to read text with")
    vocabulary = encoder.preprocessor.vocabulary
    if MASK not in vocabulary:
        raise ValueError(f"the vocabulary ({len(vocabulary)} pieces) has no {MASK} piece")
    limit = min(
        encoder.preprocessor.max_sequence_length, encoder.get_config()["max_position_embeddings"]
    )
    results = []
    for text in texts:
        # One at a time: a few texts, each with its own number of blanks.
        ids, positions = _encode(encoder.preprocessor.tokenizer, text, limit)
        inputs = {
            "input_word_ids": ids,
            "input_mask": np.ones_like(ids),
            "input_type_ids": np.zeros_like(ids),
            "masked_lm_positions": positions,
        }
        logits = model.predict_on_batch(inputs)
        if isinstance(logits, dict):  # of pretraining
            logits = logits["masked_lm"]
        probabilities = softmax(np.asarray(logits)[0, :, : len(vocabulary)])
        best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top]
        results.append(
            [
                [(vocabulary[piece], float(row[piece])) for piece in pieces]
                for row, pieces in zip(probabilities, best, strict=True)
            ]
        )
    return results


def _encode(tokenizer, text, limit):
    """Ids (1, seq) of a text and the positions (1, blanks) of its blanks."""
    parts = text.split(MASK)
    if len(parts) < 2:
        raise ValueError(f"a text must hold at least one {MASK}; received {text!r:.80}")
    mask, cls, sep = (tokenizer.token_id(piece) for piece in (MASK, "[CLS]", "[SEP]"))
    # A blank is a word of its own, so the texts around it tokenize on their own.
    ids = [cls]
    encoded = tokenizer.tokenize(tf.constant([part.encode("utf-8", "ignore") for part in parts]))
    for number, part in enumerate(encoded.to_list()):
        ids += [mask] * (number > 0) + part
    ids.append(sep)
    if len(ids) > limit:
        raise ValueError(f"a text takes at most {limit} positions; received {len(ids)}")
    ids = pad([np.array(ids)], len(ids))
    return ids, np.flatnonzero(ids[0] == mask)[None].astype(np.int32)
