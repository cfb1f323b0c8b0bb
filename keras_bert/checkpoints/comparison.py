"""Compare a checkpoint with what a format gives back: what the format cannot hold is an error."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_bert.checkpoints.canonical import Checkpoint, EmbeddingModules
from keras_bert.checkpoints.huggingface_heads import TORCH_ACTIVATIONS
from keras_bert.runtime.escaping import shown

# Fields that load as options of `keras_bert.load`, and keys of the config for training only. A
# format may lose them with a warning, because no output of the loaded model is wrong.
_OPTIONS = ("labels", "pairs", "dropout", "task")
_FOR_TRAINING = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
_NOT_COMPARED = ("format", "path", "embedding")  # `pooling` stands for `modules`
_OF_MODULES = ("prompts", "default_prompt")


def lost_options(format: str, written: Checkpoint, again: Checkpoint) -> list[str]:
    """Return the options that a format lost, such as "pairs=True".

    A difference that changes an output of the model is a `ValueError` that names the field.
    """
    options = []
    for name, value in _differences(written, again):
        if name in (*_OPTIONS, *_FOR_TRAINING) or (name == "pooling" and written.task is None):
            options.append(f"{name}={shown(value)}")
        else:
            known = "" if value is None else f"={shown(value)}"
            raise ValueError(
                f"{format}: cannot hold {name}{known} of {shown(written.path)}. Use "
                f"{_formats_for(format, written)}"
            )
    return options


def _formats_for(format: str, checkpoint: Checkpoint) -> str:
    """Return the formats that hold all of the checkpoint."""
    activation = checkpoint.activation or "linear"
    has_modules = checkpoint.pairs or checkpoint.prompts or checkpoint.modules is not None
    is_held = has_modules and activation in TORCH_ACTIVATIONS.values()
    if is_held and format != "sentence_transformers":
        return "format='keras' or format='sentence_transformers'"
    return "format='keras'"


def _differences(written: Checkpoint, again: Checkpoint) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each field or key that differs."""
    for field in dataclasses.fields(Checkpoint):
        name = field.name
        if name in _NOT_COMPARED:
            continue
        value = getattr(written, name)
        if name in _COMPARISONS:
            yield from _COMPARISONS[name](written, again)
        elif name in _OF_MODULES and written.modules is not None:
            continue  # compared as a part of `modules`
        elif value != getattr(again, name):
            yield name, value


def _of_config(written: Checkpoint, again: Checkpoint) -> Iterator[tuple[str, Any]]:
    for key, value in written.config.items():
        if again.config[key] != value:
            yield key, value


def _of_weights(written: Checkpoint, again: Checkpoint) -> Iterator[tuple[str, Any]]:
    only_in_one = set(written.weights) ^ set(again.weights)
    if only_in_one:
        yield min(only_in_one), None
        return
    for name, array in written.weights.items():
        if not _is_equal(array, again.weights[name]):
            yield name, None


def _is_equal(array: np.ndarray, other: np.ndarray) -> bool:
    """Return True for equal arrays. The second comparison is slow, for arrays with NaN."""
    return np.array_equal(array, other) or np.array_equal(array, other, equal_nan=True)


def _of_tokenizer(written: Checkpoint, again: Checkpoint) -> Iterator[tuple[str, Any]]:
    if written.vocabulary is None:  # then the options say nothing
        return
    maximum = written.config["max_position_embeddings"]
    options = written.tokenizer
    for key in sorted({*options, *again.tokenizer}):
        default = maximum if key == "sequence_length" else None
        value = options.get(key) or default
        if value != (again.tokenizer.get(key) or default):
            name = "max_sequence_length" if key == "sequence_length" else key
            yield name, value


def _of_labels(written: Checkpoint, again: Checkpoint) -> Iterator[tuple[str, Any]]:
    numbers = [str(index) for index in range(len(written.labels or ()))]
    if written.labels is not None and written.labels != (again.labels or numbers):
        yield "labels", written.labels


def _of_task(written: Checkpoint, again: Checkpoint) -> Iterator[tuple[str, Any]]:
    """Compare the tasks, unless the format names none; an encoder can be read as an embedder."""
    if written.task is not None and again.task not in (None, written.task):
        yield "task", written.task


def _of_activation(written: Checkpoint, again: Checkpoint) -> Iterator[tuple[str, Any]]:
    value = written.activation or "linear"
    # A reranker of unknown activation gets a sigmoid.
    is_unknown = written.task == "reranking" and not again.pairs
    if is_unknown or value != (again.activation or "linear"):
        yield "activation", value


def _of_modules(written: Checkpoint, again: Checkpoint) -> Iterator[tuple[str, Any]]:
    """Compare how the vectors of texts are made, by an embedder or an encoder with a pooling."""
    modules = written.modules
    modules_again = again.modules
    if modules is None:
        if written.task is None and modules_again is not None:
            yield "pooling", None
        return
    # `load(pooling=)` gives an encoder its pooling back, and the layers that belong to it.
    is_pooling_lost = written.task is None and modules_again is None
    if modules_again is None:
        modules_again = EmbeddingModules(pooling=())
    for field in dataclasses.fields(EmbeddingModules):
        value = getattr(modules, field.name)
        if field.name == "layers":
            is_same = is_pooling_lost or _are_same_layers(modules.layers, modules_again.layers)
        else:
            is_same = value == getattr(modules_again, field.name)
        if not is_same:
            yield field.name, _shown_module(field.name, value)


def _are_same_layers(layers: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(layers) == len(others) and all(map(_is_same_layer, layers, others))


def _is_same_layer(layer: Any, other: Any) -> bool:
    if layer is None or other is None or type(layer) is not type(other):
        return layer is other
    for field in dataclasses.fields(layer):
        value = getattr(layer, field.name)
        value_again = getattr(other, field.name)
        is_array = isinstance(value, np.ndarray) or isinstance(value_again, np.ndarray)
        # One of them can be `None`: a bias that a layer lacks.
        is_same = _is_equal(value, value_again) if is_array else value == value_again
        if not is_same:
            return False
    return True


def _shown_module(name: str, value: Any) -> Any:
    if name == "pooling":
        return value[0] if len(value) == 1 else list(value)
    if name == "layers":
        return ["normalize" if layer is None else type(layer).__name__ for layer in value]
    return value


_COMPARISONS = {
    "config": _of_config,
    "weights": _of_weights,
    "tokenizer": _of_tokenizer,
    "labels": _of_labels,
    "task": _of_task,
    "activation": _of_activation,
    "pooling": _of_modules,
}
