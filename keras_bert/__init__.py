"""BERT for Keras 3.

    import keras_bert

    bert = keras_bert.load("minilm")
    bert(bert.preprocessor(["two words", "three more words"]))["pooled_output"]

Names load on first use. The layers are imported at once, since Keras must know them before it
can read a saved model.
"""

import importlib
import itertools
import os
import pathlib
import sys

__version__ = "0.1.0"

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


def _does_without_keras():
    """Whether this import serves `keras-bert`, `python -m keras_bert` or a process of `records`.

    The command line answers `--help` at once, so it imports Keras itself, when it must. The
    processes that split text (`pretraining.records`) never need it, nor the memory it takes.
    """
    return (
        "KERAS_BERT_TEXT_PROCESS" in os.environ
        or pathlib.Path(sys.argv[0] if sys.argv else "").stem == "keras-bert"
        or ("-m", "keras_bert") in itertools.pairwise(sys.orig_argv[:8])
    )


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"keras_bert.{name}")
    raise AttributeError(f"module 'keras_bert' has no attribute {name!r}")


def __dir__():
    return sorted([*__all__, "__version__"])


if not _does_without_keras():
    from keras_bert import encoder, heads, layers, optimizers
    from keras_bert.serving import hub_layer as _hub_layer  # noqa: F401
    from keras_bert.text import preprocessor as _preprocessor  # noqa: F401
