"""Functions that find out what a Keras model contains: its encoder, its output layer, its task."""

from typing import Any

import keras

from keras_bert import keras_private
from keras_bert.encoder import BertEncoder
from keras_bert.layers import TaskOutput
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.escaping import shown


def find_encoder(model: keras.Model) -> BertEncoder:
    """Return the `BertEncoder` of a model.

    Args:
        model: A `keras.Model`, or the encoder itself.

    Returns:
        The `BertEncoder`.

    Raises:
        ValueError: If the model does not contain exactly one.

    Example:

    >>> from keras_bert import heads
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> find_encoder(heads.classifier(encoder, 2)) is encoder
    True
    """
    _check_model(model)
    encoders = {}
    pending = [model]
    while pending:
        layer = pending.pop()
        if isinstance(layer, BertEncoder):
            encoders[id(layer)] = layer
        else:
            pending.extend(keras_private.direct_sublayers(layer))
    if len(encoders) != 1:
        raise ValueError(f"the model must hold one BertEncoder; {model.name!r} has {len(encoders)}")
    return encoders.popitem()[1]


def find_output(model: keras.Model) -> Any:
    """Return the last layer of a model with a head; it holds the task and the labels.

    Args:
        model: A `keras.Model`.

    Returns:
        The `TaskOutput`, or `None` if the last layer is another one.

    Example:

    >>> from keras_bert import heads
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> find_output(heads.classifier(encoder, labels=["no", "yes"])).labels
    ['no', 'yes']
    """
    _check_model(model)
    last = model.layers[-1] if model.layers else None
    return last if isinstance(last, TaskOutput) else None


def find_task(model: keras.Model) -> str | None:
    """Return the name of the head that built a model.

    Args:
        model: A `keras.Model`.

    Returns:
        The name of a task, or `None` if the model has no head.

    Example:

    >>> from keras_bert import heads
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> find_task(heads.regressor(encoder)), find_task(encoder)
    ('regression', None)
    """
    if find_output(model) is None:
        return None
    tasks = {layer.task for layer in model.layers if isinstance(layer, TaskOutput)}
    return tasks.pop() if len(tasks) == 1 else "pretraining"


def preprocessor_of(model):
    """Return the `Preprocessor` of a model's encoder, or raise an error if it has none."""
    preprocessor = find_encoder(model).preprocessor
    if preprocessor is None:
        raise ValueError(
            f"the encoder of {shown(model.name)} has no preprocessor; set its `preprocessor`"
        )
    return preprocessor


def _check_model(model):
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"model must be a keras.Model; received {shown(model)}. Load a name or a path with "
            "keras_bert.load; a pipeline has its model as `pipeline.model`"
        )


def max_sequence_length(encoder, max_length=None):
    """Return the tokens of the longest sequence that an encoder and its preprocessor allow.

    `max_length` takes the place of the preprocessor's maximum.
    """
    positions = encoder.bert_config["max_position_embeddings"]
    if max_length is not None:
        return min(as_integer("max_length", max_length, 3), positions)
    if encoder.preprocessor is None:
        return positions
    return min(encoder.preprocessor.max_sequence_length, positions)


def embedding_layers(encoder):
    """Return the layers with the tables of word, position and segment embeddings."""
    layer = encoder.get_layer("embeddings")
    return layer.word_embeddings, layer.position_embeddings, layer.token_type_embeddings


def has_choices(model):
    """Return True for a model that reads several choices for each text, (batch, choices, seq)."""
    return len(model.input["input_word_ids"].shape) == 3


def path_of_diverged_weight(variables):
    """Return the path of the first variable that holds NaN or infinity, or `None`."""
    for variable in variables:
        if not keras.ops.all(keras.ops.isfinite(variable)):
            return variable.path
    return None
