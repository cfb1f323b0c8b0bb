"""The heads of pretraining: masked tokens, with or without next sentence."""

import keras

from keras_bert.encoder import BertEncoder
from keras_bert.layers import MaskedLMHead, TaskOutput
from keras_bert.tasks.head_parts import (
    check_encoder,
    dense,
    encoder_inputs,
    float_policy,
    pooled_output,
    token_input,
)
from keras_bert.token_model import TokenModel


def masked_lm(encoder: BertEncoder, *, tied: bool = True, name: str = "masked_lm") -> keras.Model:
    """Build a model that predicts masked tokens.

    Source: section 3.1 of the paper, task 1.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        tied: If True, the output matrix is the variable of the encoder's word embeddings, also
            after a reload. If False, the head has its own matrix.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs and `masked_lm_positions`, int32
        (batch, predictions), to float32 logits (batch, predictions, vocab_size).

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> masked_lm(encoder).output_shape
    (None, None, 9)
    """
    inputs, x = _encode_for_masked_lm(encoder)
    logits = _masked_lm_logits(encoder, x, tied)
    return TokenModel(inputs, TaskOutput("masked_tokens", name="output")(logits), name=name)


def pretraining(
    encoder: BertEncoder, *, tied: bool = True, name: str = "pretraining"
) -> keras.Model:
    """Build a model with both pretraining heads: masked tokens and next sentence.

    Source: section 3.1 of the paper.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        tied: As for `masked_lm`.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs and `masked_lm_positions`, int32
        (batch, predictions), to a dict of float32 logits: `masked_lm` (batch, predictions,
        vocab_size) and `next_sentence` (batch, 2).

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> {key: value.shape for key, value in pretraining(encoder).output.items()}
    {'masked_lm': (None, None, 9), 'next_sentence': (None, 2)}
    """
    check_encoder(encoder, pairs=True)
    inputs, x = _encode_for_masked_lm(encoder)
    is_next = dense(encoder, pooled_output(encoder, x), 2, "next_sentence")
    of_masked = TaskOutput("masked_tokens", pairs=True, name="masked_lm_output")
    of_next = TaskOutput("next_sentence", pairs=True, name="next_sentence_output")
    outputs = {
        "masked_lm": of_masked(_masked_lm_logits(encoder, x, tied)),
        "next_sentence": of_next(is_next),
    }
    return TokenModel(inputs, outputs, name=name)


def _encode_for_masked_lm(encoder):
    """Return the inputs, and the encoder's outputs for [CLS] and the positions to predict."""
    inputs = encoder_inputs(encoder)
    positions = token_input("masked_lm_positions")
    return {**inputs, positions.name: positions}, encoder({**inputs, "output_positions": positions})


def head_options(encoder, tied):
    """Return the arguments of the `MaskedLMHead` of an encoder."""
    config = encoder.bert_config
    names = ("vocab_size", "hidden_act", "layer_norm_eps", "initializer_range", "embedding_size")
    options = {name: config[name] for name in names}
    return {**options, "tied": tied, "dtype": float_policy(encoder)}


def _masked_lm_logits(encoder, x, tied):
    head = MaskedLMHead(**head_options(encoder, tied), name="masked_lm")
    return head(x["sequence_output"])
