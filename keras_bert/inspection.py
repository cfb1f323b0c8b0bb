"""Functions that find out what a Keras model contains: its encoder, its output layer, its task."""

from keras_bert import keras_internals
from keras_bert.encoder import BertEncoder
from keras_bert.layers import TaskOutput


def find_encoder(model):
    """Return the only `BertEncoder` in a model, which may be the model itself."""
    layers = keras_internals.all_layers(model)
    found = [layer for layer in layers if isinstance(layer, BertEncoder)]
    if len(found) != 1:
        raise ValueError(f"the model must hold one BertEncoder; {model.name!r} has {len(found)}")
    return found[0]


def find_output(model):
    """Return the `TaskOutput` that is the last layer of a model, or `None`."""
    last = model.layers[-1] if model.layers else None
    return last if isinstance(last, TaskOutput) else None


def find_task(model):
    """Return the name of the head that built a model, a key of `heads.TASKS`, or `None`."""
    if find_output(model) is None:
        return None
    tasks = {layer.task for layer in model.layers if isinstance(layer, TaskOutput)}
    return "pretraining" if tasks == {"masked_lm", "next_sentence"} else tasks.pop()
