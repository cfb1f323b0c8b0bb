"""BERT for Keras 3.

    import keras_bert

    bert = keras_bert.load("minilm")
    bert(bert.preprocessor(["two words", "three more words"]))["pooled_output"]

Names load on first use, except for the layers.
"""

import importlib

# Keras must know our layers before it can load a saved model.
from keras_bert import encoder, heads, layers, optimizers
from keras_bert.serving import hub_layer as _hub_layer  # noqa: F401
from keras_bert.text import preprocessor as _preprocessor  # noqa: F401
from keras_bert.version import __version__

_HOME = {
    "BertEncoder": "keras_bert.encoder",
    "HubLayer": "keras_bert.serving.hub_layer",
    "Preprocessor": "keras_bert.text.preprocessor",
    "convert": "keras_bert.hub",
    "export": "keras_bert.serving.export",
    "load": "keras_bert.hub",
    "save": "keras_bert.hub",
}
_MODULES = (
    "checkpoints",
    "conversion",
    "distribution",
    "encoder",
    "finetuning",
    "heads",
    "hub",
    "layers",
    "optimizers",
    "pretraining",
    "serving",
    "sources",
    "text",
)

__all__ = [*_HOME, *_MODULES]


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"keras_bert.{name}")
    raise AttributeError(f"module 'keras_bert' has no attribute {name!r}")


def __dir__():
    return sorted([*__all__, "__version__"])
