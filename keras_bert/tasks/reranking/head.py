"""The head that scores a document for a query, and the models for its training."""

import keras

from keras_bert.encoder import BertEncoder
from keras_bert.layers import MergeChoices, SplitChoices, TaskOutput
from keras_bert.tasks.head_parts import dropout_and_dense, encoder_inputs, text_vector
from keras_bert.token_model import TokenModel


def reranker(
    encoder: BertEncoder,
    *,
    pooling: str = "pooler",
    dropout: float | None = None,
    activation: str | None = "sigmoid",
    name: str = "reranker",
) -> keras.Model:
    """Build a model that scores how well a document answers a query.

    It reads both texts at once, which is slower and better than the comparison of two embeddings.
    Such a model is also called a cross-encoder.

    Source: Nogueira and Cho (2019), Passage re-ranking with BERT.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        pooling: As for `classifier`. Only models with `"pooler"` can be saved in the formats of
            other libraries.
        dropout: Dropout rate of the vector. Defaults to the encoder's `hidden_dropout_prob`.
        activation: Name of a Keras activation of the score. `"sigmoid"` gives scores from 0 to 1,
            `None` any number. The order of the documents is the same.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 (batch, 1).

    Raises:
        ValueError: If the pooling or the activation is unknown.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> reranker(encoder).output_shape
    (None, 1)
    """
    inputs = encoder_inputs(encoder, pairs=True)
    x = text_vector(encoder, inputs, pooling)  # (batch, hidden)
    x = dropout_and_dense(encoder, x, 1, dropout)  # (batch, 1)
    output = TaskOutput("reranking", pairs=True, activation=activation, name="output")
    return TokenModel(inputs, output(x), name=name)


def with_logits(model: keras.Model) -> keras.Model:
    """Return a reranker without its activation, for losses; it shares the weights.

    Later calls return the same model, with its programs.
    """
    output = model.layers[-1]
    if output.activation in (None, "linear"):
        return model
    attributes = vars(model)  # Keras would track an attribute that is assigned as a layer
    if "_with_logits" not in attributes:
        config = output.get_config() | {"activation": None}
        logits = TaskOutput.from_config(config)(output.input)
        attributes["_with_logits"] = TokenModel(model.input, logits, name=model.name)
    return attributes["_with_logits"]


def of_lists(model: keras.Model) -> keras.Model:
    """Return a reranker for lists of documents; it shares the weights.

    The inputs are int32 (batch, documents, seq), the output is float32 (batch, documents).
    """
    inputs = {key: keras.Input(shape=(None, None), dtype="int32", name=key) for key in model.input}
    merged = {key: MergeChoices(name=f"merge_{key}")(value) for key, value in inputs.items()}
    scores = model(merged)  # (batch * documents, 1)
    split = SplitChoices(name="split_documents")
    return keras.Model(inputs, split(scores, inputs["input_word_ids"]), name="lists")
