"""The head that selects the first and the last token of an answer."""

import keras
from keras import ops

from keras_bert.encoder import BertEncoder
from keras_bert.layers import TaskOutput
from keras_bert.layers.encoder_layers import MASKED_LOGIT
from keras_bert.tasks.head_parts import dropout_and_dense, encoder_inputs
from keras_bert.token_model import TokenModel


def span_selector(
    encoder: BertEncoder,
    *,
    no_answer: bool = False,
    dropout: float = 0.0,
    name: str = "span_selector",
) -> keras.Model:
    """Build a model that selects the answer to a question: its first and its last token.

    The input is [CLS] question [SEP] context [SEP]. Fit `without_padding(model)` with
    `keras.losses.SparseCategoricalCrossentropy(from_logits=True)` for both outputs. If there is
    no answer, both targets are 0, the position of [CLS].

    Source: sections 4.2 and 4.3 of the paper; `create_model` in google-research/bert
    `run_squad.py`, which has no dropout here.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        no_answer: If True, a question can have no answer (SQuAD 2).
        dropout: Dropout rate of the vectors.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to a dict of float32 logits
        `start_logits` and `end_logits`, each (batch, seq).

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> sorted(span_selector(encoder).output)
    ['end_logits', 'start_logits']
    """
    inputs = encoder_inputs(encoder, pairs=True)
    x = encoder(inputs)["sequence_output"]  # (batch, seq, hidden)
    x = dropout_and_dense(encoder, x, 2, dropout)  # (batch, seq, 2)
    names = ("start_logits", "end_logits")
    output = TaskOutput(
        "question_answering", pairs=True, no_answer=no_answer, names=names, name="output"
    )
    return TokenModel(inputs, output(x), name=name)


def without_padding(model: keras.Model) -> keras.Model:
    """Build the model of a span selector for your own `fit`, on batches with padding.

    The logits of padding are very low, so that padding does not change the loss.

    Args:
        model: A model of `span_selector`. It shares its weights.

    Returns:
        A functional `keras.Model` with the inputs and the outputs of the model.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> sorted(without_padding(span_selector(encoder)).output)
    ['end_logits', 'start_logits']
    """
    visible = ops.not_equal(model.input["input_mask"], 0)
    outputs = {
        name: ops.where(visible, logits, MASKED_LOGIT) for name, logits in model.output.items()
    }
    return keras.Model(model.input, outputs, name=model.name)
