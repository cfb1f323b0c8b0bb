"""BERT for Keras 3.

    import keras_bert

    bert = keras_bert.load("minilm")
    bert(bert.preprocessor(["two words", "three more words"]))["pooled_output"]

Names load on first use. Importing the package is fast, and does not import Keras. The layers are
registered with Keras by `import keras_bert` after `import keras`, or by the first name that uses
Keras. Then `keras.saving.load_model` can read our models, too.
"""

import importlib
import sys

from keras_bert.runtime.packages import advise_on_backend
from keras_bert.version import __version__

# Public name -> module, and after a colon the name in that module if it differs.
_MODULE_OF = {
    "BertEncoder": "keras_bert.encoder",
    "Choices": "keras_bert.tasks.multiple_choice.data",
    "EmbeddingExamples": "keras_bert.tasks.embedding.data",
    "Examples": "keras_bert.data.examples",
    "HubLayer": "keras_bert.exporting.hub_layer",
    "Preprocessor": "keras_bert.text.preprocessor",
    "Questions": "keras_bert.tasks.question_answering.data",
    "RankingExamples": "keras_bert.tasks.reranking.data",
    "RetrievalData": "keras_bert.tasks.embedding.retrieval",
    "TaggedSentences": "keras_bert.tasks.tagging.data",
    "Tokenizer": "keras_bert.text.tokenizer:WordPieceTokenizer",
    "convert": "keras_bert.hub.loading",
    "evaluate": "keras_bert.tasks.keras_predictor",
    "export": "keras_bert.exporting.export",
    "finetune": "keras_bert.training.finetuning",
    "load": "keras_bert.hub.loading",
    "pipeline": "keras_bert.pipelines.factory",
    "plot_confusion": "keras_bert.training.report",
    "plot_curves": "keras_bert.training.report",
    "predict": "keras_bert.pipelines.factory",
    "quiet": "keras_bert.runtime.terminal",
    "read": "keras_bert.tasks.reader",
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
    "search": "keras_bert.tasks.embedding.nearest",
}

__all__ = [*_MODULE_OF, *_MODULES]


# Modules with classes that Keras must know to load a saved model. They and what they import do not
# use the public names above: that would register the classes before their modules are complete.
_MODULES_WITH_CLASSES = (
    "keras_bert.encoder",
    "keras_bert.exporting.hub_layer",
    "keras_bert.heads",
    "keras_bert.layers",
    "keras_bert.losses",
    "keras_bert.optimizers",
    "keras_bert.text.preprocessor",
)


def _register_classes():
    for module in _MODULES_WITH_CLASSES:
        importlib.import_module(module)


def __getattr__(name):
    if name not in __all__:
        return _internal_module(name)
    with advise_on_backend(f"keras_bert.{name}"):
        if name in _MODULES:
            value = importlib.import_module(_MODULES[name])
        else:
            module, _, attribute = _MODULE_OF[name].partition(":")
            value = getattr(importlib.import_module(module), attribute or name)
        if "keras" in sys.modules:  # pipelines of ONNX folders do not need Keras
            _register_classes()
    return value


def _internal_module(name):
    try:
        return importlib.import_module(f"keras_bert.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"keras_bert.{name}":
            raise
    raise AttributeError(f"module 'keras_bert' has no attribute {name!r}")


def __dir__():
    return sorted([*__all__, "__version__"])


if "keras" in sys.modules:
    _register_classes()
