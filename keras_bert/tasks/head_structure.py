"""Compare the structure of a model with that of a head as its task builds it."""

import keras

from keras_bert import keras_private
from keras_bert.layers import SentencePooling, TaskOutput, UnitLength
from keras_bert.model_structure import find_encoder

# Of `TaskOutput`: what is only about training and answers, or is set after the head is built.
_NOT_COMPARED = ("name", "dtype", "trainable", "long_texts", "target_mean", "target_scale")


def is_built_by(task, model) -> bool:
    """Return True if `head_function` of a task builds a model with the same calls of layers.

    A model that it cannot build has other layers, uses one twice, or reads other outputs of the
    encoder. Its weights and its `HeadSpec` do not describe it.
    """
    encoder = find_encoder(model)
    warns = encoder.warns_of_new_pooler
    encoder.warns_of_new_pooler = False  # the new head is only compared
    try:
        options = task.options_of_head(task.spec_of_head(model))
        fresh = task.head_function()(encoder, **options)
    except ValueError:  # a layer that no spec has
        return False
    finally:
        encoder.warns_of_new_pooler = warns
    return _calls(model, task) == _calls(fresh, task)


def _calls(model, task):
    """Return the sorted calls of a model: the operation, and the sources of its inputs."""
    with_any_name = list(task.vector_layers(model).values())
    calls = []
    for operation, inputs in keras_private.graph_calls(model):
        sources = [(_described(source, with_any_name), index) for source, index in inputs]
        calls.append((_described(operation, with_any_name), tuple(sources)))
    return sorted(calls)


def _described(operation, with_any_name):
    """Return the class of an operation, and what else its computation depends on."""
    if isinstance(operation, keras.layers.UnitNormalization):  # Keras' own layer for the same
        return UnitLength.__name__
    details = ""
    if isinstance(operation, keras.layers.InputLayer):
        details = operation.name
    elif isinstance(operation, keras.layers.Dense):
        name = "" if operation in with_any_name else operation.name
        activation = keras.activations.serialize(operation.activation)
        details = f"{name} {operation.units} {activation} {operation.use_bias}"
    elif isinstance(operation, SentencePooling):
        details = f"{operation.mode} {operation.normalize}"
    elif isinstance(operation, TaskOutput):
        config = operation.get_config()
        details = str([config[name] for name in sorted(config) if name not in _NOT_COMPARED])
    return f"{type(operation).__name__} {details}".rstrip()
