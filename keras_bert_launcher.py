"""Start the command line without importing Keras.

`import keras_bert` imports Keras, because Keras must know the layers of keras_bert before it can
load a saved model. That takes seconds, which `keras-bert --help` and the processes that split text
for pretraining do without.
"""

import importlib
import importlib.util
import sys


def skip_init():
    """Make the modules of `keras_bert` importable without running its `__init__.py`."""
    if "keras_bert" not in sys.modules:
        spec = importlib.util.find_spec("keras_bert")
        sys.modules["keras_bert"] = importlib.util.module_from_spec(spec)


def run_init():
    """Run the `__init__.py` that `skip_init` left out."""
    package = importlib.import_module("keras_bert")
    if not hasattr(package, "__all__"):
        package.__spec__.loader.exec_module(package)


def call(module, name, *args):
    """Call a function of a module of `keras_bert` in a process that does not need Keras."""
    skip_init()
    return getattr(importlib.import_module(module), name)(*args)


def main():
    """Run the command line."""
    skip_init()
    return importlib.import_module("keras_bert.__main__").main()
