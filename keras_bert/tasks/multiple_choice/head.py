"""The head that scores several continuations of a text."""

import keras

from keras_bert.encoder import BertEncoder
from keras_bert.layers import MergeChoices, SplitChoices, TaskOutput
from keras_bert.tasks.head_parts import check_encoder, dropout_and_dense, pooled_output
from keras_bert.token_model import TokenModel


def multiple_choice(
    encoder: BertEncoder, *, dropout: float | None = None, name: str = "multiple_choice"
) -> keras.Model:
    """Build a model that scores several continuations of a text.

    Fit it with `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`.

    Source: section 4.4 of the paper (SWAG).

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        dropout: Dropout rate of the pooled vectors. Defaults to the encoder's
            `hidden_dropout_prob`.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from a dict with the names of the encoder's inputs, each
        (batch, choices, seq), to float32 logits (batch, choices).

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> ids = keras.ops.ones((2, 4, 7), dtype="int32")
    >>> tuple(multiple_choice(encoder)(dict.fromkeys(encoder.input, ids)).shape)
    (2, 4)
    """
    check_encoder(encoder, pairs=True)
    inputs = {
        key: keras.Input(shape=(None, None), dtype="int32", name=key) for key in encoder.input
    }
    merged = {key: MergeChoices(name=f"merge_{key}")(value) for key, value in inputs.items()}
    x = pooled_output(encoder, encoder(merged))  # (batch * choices, hidden)
    x = dropout_and_dense(encoder, x, 1, dropout)  # (batch * choices, 1)
    x = SplitChoices(name="split_choices")(x, inputs["input_word_ids"])  # (batch, choices)
    return TokenModel(inputs, TaskOutput("multiple_choice", name="output")(x), name=name)
