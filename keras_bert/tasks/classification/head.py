"""The heads for texts and pairs of texts: classifier, regressor, next sentence."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_bert.encoder import BertEncoder
from keras_bert.layers import TaskOutput
from keras_bert.runtime.label_types import name_of_type
from keras_bert.tasks.head_parts import (
    check_labels,
    dense,
    dropout_and_dense,
    encoder_inputs,
    pooled_output,
    text_vector,
)
from keras_bert.token_model import TokenModel


def classifier(
    encoder: BertEncoder,
    num_classes: int | None = None,
    *,
    labels: Sequence[Any] | None = None,
    pairs: bool = False,
    multi_label: bool = False,
    pooling: str | None = None,
    normalize: bool = False,
    dropout: float | None = None,
    name: str = "classifier",
) -> keras.Model:
    """Build a model that classifies texts or pairs of texts.

    The head is dropout and a dense layer on the text's vector. Fit the model with
    `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`, or, if `multi_label` is True,
    with `keras.losses.BinaryCrossentropy(from_logits=True)`.

    Source: section 4.1 of the paper; `create_model` in google-research/bert
    `run_classifier.py`.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied. Set `encoder.trainable = False` to
            train only the head.
        num_classes: Number of classes, at least 2, or at least 1 if `multi_label` is True.
            Optional if `labels` is given.
        labels: Names of the classes, in the order of the logits. Defaults to "0", "1", ... Results
            have numbers and booleans in their type; exports to TensorFlow have strings.
        pairs: If True, the model reads pairs of texts, and an export of it takes both.
        multi_label: If True, a text can have several classes, or none.
        pooling: How to make the text's vector: `"pooler"`, the [CLS] vector after a dense layer
            with tanh, as in the paper; `"mean"` or `"max"` over the tokens; or `"cls"`, the [CLS]
            vector itself. Defaults to the encoder's `pooling`, and without one to `"pooler"`.
        normalize: If True, scale the vector to length 1. Not for `"pooler"`.
        dropout: Dropout rate of the vector. Defaults to the encoder's
            `hidden_dropout_prob`.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's dict of inputs, each (batch, seq), to
        float32 logits (batch, num_classes).

    Raises:
        ValueError: If there are too few classes, a label is repeated or invalid, the number of
            labels is not `num_classes`, or the pooling is unknown or cannot be normalized.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> classifier(encoder, labels=["bad", "good"]).output_shape
    (None, 2)
    """
    names = check_labels("a classifier", num_classes, labels, least=1 if multi_label else 2)
    label_type = "str" if labels is None else name_of_type(labels)
    inputs = encoder_inputs(encoder, pairs)
    x = text_vector(encoder, inputs, pooling, normalize)  # (batch, hidden)
    x = dropout_and_dense(encoder, x, len(names), dropout)  # (batch, num_classes)
    output = TaskOutput(
        "classification",
        labels=names,
        pairs=pairs,
        multi_label=multi_label,
        label_type=label_type,
        name="output",
    )
    return TokenModel(inputs, output(x), name=name)


def regressor(
    encoder: BertEncoder,
    *,
    pairs: bool = False,
    pooling: str | None = None,
    dropout: float | None = None,
    activation: str | None = None,
    target_mean: float = 0.0,
    target_scale: float = 1.0,
    name: str = "regressor",
) -> keras.Model:
    """Build a model that returns a number per text or pair of texts, such as their similarity.

    Fit the model with `keras.losses.MeanSquaredError()`.

    Source: STS-B in section 4.1 of the paper.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        pairs: If True, the model reads pairs of texts.
        pooling: As for `classifier`.
        dropout: Dropout rate of the vector. Defaults to the encoder's `hidden_dropout_prob`.
        activation: Name of a Keras activation of the number, such as `"sigmoid"` for scores from 0
            to 1, or `None`.
        target_mean: Mean of the numbers. A new head then starts near it. `finetune` takes that of
            the training data.
        target_scale: Standard deviation of the numbers, likewise.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 (batch, 1).

    Raises:
        ValueError: If the pooling or the activation is unknown.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> regressor(encoder, pairs=True).output_shape
    (None, 1)
    """
    inputs = encoder_inputs(encoder, pairs)
    x = text_vector(encoder, inputs, pooling)  # (batch, hidden)
    x = dropout_and_dense(encoder, x, 1, dropout)  # (batch, 1)
    output = TaskOutput(
        "regression",
        pairs=pairs,
        activation=activation,
        target_mean=target_mean,
        target_scale=target_scale,
        name="output",
    )
    return TokenModel(inputs, output(x), name=name)


def next_sentence(encoder: BertEncoder, *, name: str = "next_sentence") -> keras.Model:
    """Build a model that predicts whether the second text follows the first (0) or not (1).

    Source: section 3.1 of the paper, task 2; `get_next_sentence_output` in google-research/bert
    `run_pretraining.py`.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 logits (batch, 2).

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> next_sentence(encoder).layers[-1].labels
    ['next', 'random']
    """
    inputs = encoder_inputs(encoder, pairs=True)
    x = pooled_output(encoder, encoder(inputs))  # (batch, hidden)
    x = dense(encoder, x, 2, "next_sentence")  # (batch, 2)
    output = TaskOutput("next_sentence", labels=["next", "random"], pairs=True, name="output")
    return TokenModel(inputs, output(x), name=name)
