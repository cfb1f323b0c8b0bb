"""BERT for Keras 3.

    import keras_bert

    bert = keras_bert.load("minilm")
    bert(bert.preprocessor(["two words", "three more words"]))["pooled_output"]

Names load on first use. Importing the package is fast, and does not import Keras. The layers are
registered when Keras is imported, before or after this package, so that `keras.saving.load_model`
can read our models.
"""

import importlib
import importlib.util
import sys
import typing

from keras_bert.version import __version__

_HOME = {
    "BertEncoder": "keras_bert.encoder",
    "HubLayer": "keras_bert.exporting.hub_layer",
    "Preprocessor": "keras_bert.text.preprocessor",
    "convert": "keras_bert.hub.loading",
    "export": "keras_bert.exporting.saved_model",
    "load": "keras_bert.hub.loading",
    "save": "keras_bert.hub.loading",
}
# Name -> module; the first six are folders.
_MODULES = {
    "checkpoints": "keras_bert.checkpoints",
    "data": "keras_bert.data",
    "pretraining": "keras_bert.pretraining",
    "tasks": "keras_bert.tasks",
    "text": "keras_bert.text",
    "training": "keras_bert.training",
    "distribution": "keras_bert.runtime.distribution",
    "encoder": "keras_bert.encoder",
    "heads": "keras_bert.heads",
    "layers": "keras_bert.layers",
    "optimizers": "keras_bert.optimizers",
}

__all__ = [*_HOME, *_MODULES]


def _register_layers():
    """Import the modules with classes that Keras must know to load a saved model."""
    for name in ("encoder", "heads", "layers", "optimizers"):
        importlib.import_module(f"keras_bert.{name}")
    importlib.import_module("keras_bert.exporting.hub_layer")
    importlib.import_module("keras_bert.text.preprocessor")


class _RegisterAfterKeras:
    """Import hook that registers the layers after Keras is imported."""

    is_searching = False

    def find_spec(self, name, path=None, target=None):
        if name != "keras" or self.is_searching:
            return None
        self.is_searching = True
        try:
            spec: typing.Any = importlib.util.find_spec("keras")
        finally:
            self.is_searching = False
        if spec is not None:
            run_module = spec.loader.exec_module

            def run_and_register(module):
                run_module(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _register_layers()

            spec.loader.exec_module = run_and_register
        return spec


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    raise AttributeError(f"module 'keras_bert' has no attribute {name!r}")


def __dir__():
    return sorted([*__all__, "__version__"])


if "keras" in sys.modules:
    _register_layers()
else:
    sys.meta_path.insert(0, _RegisterAfterKeras())
