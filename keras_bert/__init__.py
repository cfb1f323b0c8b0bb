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

# Public name -> module, and after a colon the name in that module if it differs.
_MODULE_OF = {
    "BertEncoder": "keras_bert.encoder",
    "Choices": "keras_bert.data.swag",
    "EmbeddingExamples": "keras_bert.data.embedding_examples",
    "Examples": "keras_bert.data.examples",
    "HubLayer": "keras_bert.exporting.hub_layer",
    "Preprocessor": "keras_bert.text.preprocessor",
    "Questions": "keras_bert.data.squad",
    "RetrievalData": "keras_bert.data.retrieval",
    "TaggedSentences": "keras_bert.data.conll",
    "Tokenizer": "keras_bert.text.tokenizer:WordPieceTokenizer",
    "convert": "keras_bert.hub.loading",
    "evaluate": "keras_bert.tasks.inference",
    "export": "keras_bert.exporting.saved_model",
    "finetune": "keras_bert.training.finetuning",
    "load": "keras_bert.hub.loading",
    "pipeline": "keras_bert.pipelines.factory",
    "plot_confusion": "keras_bert.training.report",
    "plot_curves": "keras_bert.training.report",
    "predict": "keras_bert.pipelines.factory",
    "quiet": "keras_bert.runtime.terminal",
    "read": "keras_bert.data.reader",
    "save": "keras_bert.hub.loading",
}
# Public module -> module.
_MODULES = {
    "distribution": "keras_bert.runtime.distribution",
    "heads": "keras_bert.heads",
    "inspect": "keras_bert.inspect",
    "layers": "keras_bert.layers",
    "losses": "keras_bert.losses",
    "optimizers": "keras_bert.optimizers",
    "pretraining": "keras_bert.pretraining",
    "search": "keras_bert.search",
}

__all__ = [*_MODULE_OF, *_MODULES]


def _register_layers():
    """Import the modules with classes that Keras must know to load a saved model."""
    for name in ("encoder", "heads", "layers", "losses", "optimizers"):
        importlib.import_module(f"keras_bert.{name}")
    importlib.import_module("keras_bert.exporting.hub_layer")
    importlib.import_module("keras_bert.text.preprocessor")


class _RegisterAfterKeras:
    """Import hook that registers the layers as soon as Keras is imported.

    If Keras is imported by one of our own modules, the other modules cannot be imported before that
    module is complete. The layers are then registered at the next import of another package, or
    when the name is returned that the module was imported for.
    """

    is_searching = keras_is_imported = False

    def find_spec(self, name, path=None, target=None):
        if name == "keras" and not self.is_searching:
            return self._find_keras()
        # Registering imports our modules. One that is being searched would be loaded twice.
        if not name.startswith("keras_bert."):
            self.register()
        return None

    def _find_keras(self):
        self.is_searching = True
        try:
            spec: typing.Any = importlib.util.find_spec("keras")
        finally:
            self.is_searching = False
        if spec is not None:
            run_module = spec.loader.exec_module

            def run_and_register(module):
                run_module(module)
                self.keras_is_imported = True
                self.register()

            spec.loader.exec_module = run_and_register
        return spec

    def register(self):
        """Register the layers, unless one of our modules is being imported."""
        if not self.keras_is_imported or self not in sys.meta_path:
            return
        ours = [module for name, module in sys.modules.items() if name.startswith("keras_bert.")]
        if not any(getattr(module.__spec__, "_initializing", False) for module in ours):
            sys.meta_path.remove(self)
            _register_layers()


def __getattr__(name):
    try:
        return _find(name)
    finally:
        _after_keras.register()


def _find(name):
    """Return a public name or module."""
    if name in _MODULE_OF:
        module, _, attribute = _MODULE_OF[name].partition(":")
        return getattr(importlib.import_module(module), attribute or name)
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    try:
        return importlib.import_module(f"keras_bert.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"keras_bert.{name}":
            raise
    raise AttributeError(f"module 'keras_bert' has no attribute {name!r}")


def __dir__():
    return sorted([*__all__, "__version__"])


_after_keras = _RegisterAfterKeras()
if "keras" in sys.modules:
    _register_layers()
else:
    sys.meta_path.insert(0, _after_keras)
