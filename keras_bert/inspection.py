"""Functions that find out what a Keras model contains: its encoder, its output layer, its task."""

from keras_bert import keras_internals
from keras_bert.encoder import BertEncoder
from keras_bert.layers import TaskOutput


def find_encoder(model):
    """Return the encoder inside a model.

    Args:
        model: A `BertEncoder`, or a model built on one.

    Returns:
        The `BertEncoder`.

    Raises:
        ValueError: If the model has no encoder, or more than one.

    Example:

    >>> from keras_bert import heads
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> find_encoder(heads.classifier(encoder, 2)) is encoder
    True
    """
    layers = keras_internals.all_layers(model)
    found = [layer for layer in layers if isinstance(layer, BertEncoder)]
    if len(found) != 1:
        raise ValueError(f"the model must hold one BertEncoder; {model.name!r} has {len(found)}")
    return found[0]


def find_output(model):
    """Return the `TaskOutput` that ends a model built by a head.

    Args:
        model: A `keras.Model`.

    Returns:
        The `TaskOutput`, or `None` if the last layer is another one.

    Example:

    >>> from keras_bert import heads
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> find_output(heads.classifier(encoder, labels=["bad", "good"])).labels
    ['bad', 'good']
    """
    last = model.layers[-1] if model.layers else None
    return last if isinstance(last, TaskOutput) else None


def find_task(model):
    """Return the name of the head that built a model.

    Args:
        model: A `keras.Model`.

    Returns:
        A key of `heads.TASKS`, or `None` if no head built the model.

    Example:

    >>> from keras_bert import heads
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> find_task(heads.pretraining(encoder)), find_task(encoder)
    ('pretraining', None)
    """
    if find_output(model) is None:
        return None
    tasks = {layer.task for layer in model.layers if isinstance(layer, TaskOutput)}
    return "pretraining" if tasks == {"masked_lm", "next_sentence"} else tasks.pop()
