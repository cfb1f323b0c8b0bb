"""The head that labels each token."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_bert.encoder import BertEncoder
from keras_bert.layers import TaskOutput
from keras_bert.runtime.label_types import name_of_type
from keras_bert.tasks.head_parts import check_labels, dropout_and_dense, encoder_inputs
from keras_bert.token_model import TokenModel


def tagger(
    encoder: BertEncoder,
    num_tags: int | None = None,
    *,
    labels: Sequence[Any] | None = None,
    characters: bool = False,
    dropout: float | None = None,
    name: str = "tagger",
) -> keras.Model:
    """Build a model that labels each token, for example with entities or parts of speech.

    The first token of a word carries the word's label. `TaggedSentences.to_dataset` gives all
    other tokens the sample weight 0. Fit the model with
    `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`: with these weights, the loss is
    the mean over the words.

    Source: section 5.3 of the paper.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        num_tags: Number of tags, at least 2. Optional if `labels` is given.
        labels: Names of the tags, in the order of the logits. Defaults to "0", "1", ...
        characters: If True, inference and exports split a text into characters, as for KLUE's
            entities. If False, they split it at whitespace and punctuation.
        dropout: Dropout rate of the vectors. Defaults to the encoder's `hidden_dropout_prob`.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 logits
        (batch, seq, num_tags).

    Raises:
        ValueError: If there are fewer than two tags, a label is repeated or invalid, or the number
            of labels is not `num_tags`.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> tagger(encoder, labels=["O", "B-place", "I-place"]).output_shape
    (None, None, 3)
    """
    names = check_labels("a tagger", num_tags, labels, least=2)
    label_type = "str" if labels is None else name_of_type(labels)
    inputs = encoder_inputs(encoder)
    x = encoder(inputs)["sequence_output"]  # (batch, seq, hidden)
    x = dropout_and_dense(encoder, x, len(names), dropout)  # (batch, seq, num_tags)
    output = TaskOutput(
        "tagging", labels=names, characters=characters, label_type=label_type, name="output"
    )
    return TokenModel(inputs, output(x), name=name)
