"""Outputs and descriptions of models, and a process that reloads saved models.

    KERAS_BACKEND=jax python -m tests.properties.reload FOLDER

loads each model that `FOLDER/saved.json` lists, and writes its outputs beside it.
"""

import dataclasses
import json
import pathlib
import sys
import warnings

import keras
import numpy as np

import keras_bert
from keras_bert import heads
from tests import tiny

# Options that only say how Keras stores the layer.
_IGNORED = ("name", "dtype", "trainable")


def inputs(model):
    """Return two rows of inputs of a model: words, padding, and two segments if it has them."""
    segments = heads.find_encoder(model).bert_config["type_vocab_size"]
    batch = {}
    for name, tensor in model.input.items():
        shape = (2, 2, 7) if len(tensor.shape) == 3 else (2, 7)
        position = np.broadcast_to(np.arange(7), shape)
        row = np.arange(np.prod(shape)).reshape(shape)
        if name == "input_word_ids":
            batch[name] = (row * 5 + 2) % len(tiny.PIECES)
        elif name == "input_mask":
            batch[name] = (position < 5 + row // 7 % 2).astype("int32")
        elif name == "input_type_ids":
            batch[name] = (position > 3) * (segments - 1)
        else:
            batch[name] = np.tile([1, 3], (2, 1))
    return {name: array.astype("int32") for name, array in batch.items()}


def outputs(model):
    """Return the outputs of a model by name, as float32."""
    given = model(inputs(model))
    given = given if isinstance(given, dict) else {"output": given}
    return {
        name: keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))
        for name, tensor in given.items()
        if tensor is not None and not isinstance(tensor, (list, tuple))
    }


def describe(model):
    """Return the options of a model's head and of its tokenizer, as JSON holds them."""
    output = heads.find_output(model)
    encoder = heads.find_encoder(model)
    config = {} if output is None else output.get_config()
    config.setdefault("label_type", "str")
    config["activation"] = config.get("activation") or "linear"
    preprocessor = encoder.preprocessor
    description = {
        **{key: value for key, value in config.items() if key not in _IGNORED},
        **preprocessor.tokenizer_options(),
        "max_sequence_length": preprocessor.max_sequence_length,
        "vocabulary": list(preprocessor.vocabulary[: len(tiny.PIECES)]),
        "pooling": encoder.pooling,
        "trainable": [weight.trainable for weight in model.weights],
    }
    return json.loads(json.dumps(description, default=dataclasses.asdict))


def load(path, task):
    """Load a model with the head that its format names, or with the head of `task`."""
    model = keras_bert.load(path, task="auto")
    if heads.find_task(model) != task:
        model = keras_bert.load(path, task=task)
    return model


def main(folder):
    backend = keras.backend.backend()
    for path, task in json.loads((folder / "saved.json").read_text()).items():
        try:
            model = load(folder / path, task)
            result = {"description": describe(model)}
            np.savez(folder / f"{path}.{backend}.npz", **outputs(model))
        except Exception as error:  # the test shows it
            result = {"error": f"{type(error).__name__}: {error}"}
        (folder / f"{path}.{backend}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(pathlib.Path(sys.argv[1]))
