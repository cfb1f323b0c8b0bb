"""Compare a checkpoint with what a format gives back: what the format cannot hold is an error."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_bert.checkpoints.canonical import USE_KERAS, Checkpoint
from keras_bert.checkpoints.huggingface_heads import TORCH_ACTIVATIONS
from keras_bert.model_spec import UNIT_LENGTH, HeadSpec, ModelSpec
from keras_bert.runtime.escaping import shown

# Fields that a format may lose with a warning, because no output of the loaded model is wrong ->
# where the user can set them again, if that is not `keras_bert.load`.
_OPTIONS = {
    "labels": "",
    "label_type": " (labels=[...] of keras_bert.load)",
    "pairs": "",
    "dropout": "",
    "no_answer": "",
    "characters": "",
    "long_texts": " (an argument of keras_bert.pipeline)",
    "encoder.pooling": "",
    # For training only.
    "hidden_dropout_prob": "",
    "attention_probs_dropout_prob": "",
    "initializer_range": "",
}
_OF_EMBEDDERS = ("pooling", "layers", "prompts", "default_prompt", "similarity")


def lost_options(format: str, written: Checkpoint, again: Checkpoint) -> list[str]:
    """Return the options that a format lost, such as "pairs=True".

    A difference that changes an output of the model is a `ValueError` that names the field.
    """
    spec = written.spec
    options = []
    for name, value in _differences(written, again):
        is_unnamed = name == "task" and again.spec.head.task is None
        if name in _OPTIONS or is_unnamed:
            options.append(f"{name}={shown(value)}{_OPTIONS.get(name, '')}")
        else:
            known = "" if value is None else f"={shown(value)}"
            raise ValueError(
                f"{format}: cannot hold {name}{known} of {shown(written.path)}. "
                f"{_advice(format, spec)}"
            )
    return options


def _advice(format: str, spec: ModelSpec) -> str:
    """Return the advice to use a format that holds all of the model."""
    head = spec.head
    has_modules = head.pairs or head.prompts or spec.embedding is not None
    has_torch_activation = (head.activation or "linear") in TORCH_ACTIVATIONS.values()
    is_own_pooling = head.pooling and head.task != "embedding"
    is_held = has_modules and has_torch_activation and not is_own_pooling
    if is_held and format != "sentence_transformers":
        return f"{USE_KERAS} or format='sentence_transformers'"
    return USE_KERAS


def _differences(written: Checkpoint, again: Checkpoint) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each field or key that differs."""
    yield from _of_encoder(written.spec, again.spec)
    yield from _of_tokenizer(written.spec, again.spec)
    yield from _of_embedder(written.spec, again.spec)
    yield from _of_head(written.spec.head, again.spec.head)
    has_trained_head = not {"classifier", "span_selector"}.isdisjoint(written.groups)
    if has_trained_head and written.spec.head.task is not None and again.spec.head.task is None:
        yield "task", written.spec.head.task
    yield from _of_weights(written, again)


def _of_encoder(written: ModelSpec, again: ModelSpec) -> Iterator[tuple[str, Any]]:
    for key, value in written.encoder.items():
        if again.encoder[key] != value:
            yield key, value
    if written.vocabulary != again.vocabulary:
        yield "vocabulary", written.vocabulary


def _of_tokenizer(written: ModelSpec, again: ModelSpec) -> Iterator[tuple[str, Any]]:
    if written.vocabulary is None:  # then the options say nothing
        return
    maximum = written.encoder["max_position_embeddings"]
    options = written.tokenizer
    for key in sorted({*options, *again.tokenizer}):
        default = maximum if key == "sequence_length" else None
        value = options.get(key) or default
        if value != (again.tokenizer.get(key) or default):
            name = "max_sequence_length" if key == "sequence_length" else key
            yield name, value


def _of_embedder(written: ModelSpec, again: ModelSpec) -> Iterator[tuple[str, Any]]:
    """Compare the pooling of the encoder, and how an embedder makes the vectors of texts."""
    is_embedder = written.head.task == "embedding"
    # An encoder without a pooling of its own gets that of its embedder.
    is_from_head = is_embedder and written.pooling is None
    if again.pooling != written.pooling and not is_from_head:
        yield "encoder.pooling", written.pooling
    if not is_embedder:
        return
    embedding = written.head
    embedding_again = again.embedding or HeadSpec()
    if embedding_again.layers == (*embedding.layers, UNIT_LENGTH):
        yield "normalize", False
    for name in _OF_EMBEDDERS:
        value = getattr(embedding, name)
        if value != getattr(embedding_again, name):
            yield name, _shown(name, value)


def _of_head(written: HeadSpec, again: HeadSpec) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(HeadSpec):
        name = field.name
        value = getattr(written, name)
        value_again = getattr(again, name)
        if name in _OF_EMBEDDERS and "embedding" in (written.task, again.task):
            continue  # see `_of_embedder`
        if name in _COMPARISONS:
            is_same = _COMPARISONS[name](written, again)
        else:
            is_same = value == value_again
        if not is_same:
            yield name, _shown(name, value)


def _are_same_labels(written: HeadSpec, again: HeadSpec) -> bool:
    if written.labels is None:
        return True
    numbers = [str(index) for index in range(len(written.labels))]
    return written.labels == (again.labels or numbers)


def _are_same_pairs(written: HeadSpec, again: HeadSpec) -> bool:
    return bool(written.pairs) == bool(again.pairs)


def _is_same_kind_of_label(written: HeadSpec, again: HeadSpec) -> bool:
    return bool(written.multi_label) == bool(again.multi_label)


def _is_same_task(written: HeadSpec, again: HeadSpec) -> bool:
    """Compare the tasks, unless one is not known; an encoder can be read as an embedder."""
    return written.task is None or again.task in (None, written.task)


def _is_same_activation(written: HeadSpec, again: HeadSpec) -> bool:
    # A reranker of unknown activation gets a sigmoid.
    is_unknown = written.task == "reranking" and not again.pairs
    value = written.activation or "linear"
    return not is_unknown and value == (again.activation or "linear")


_COMPARISONS = {
    "labels": _are_same_labels,
    "pairs": _are_same_pairs,
    "multi_label": _is_same_kind_of_label,
    "task": _is_same_task,
    "activation": _is_same_activation,
}


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


def _shown(name: str, value: Any) -> Any:
    """Return a value as a user writes it."""
    if name == "pooling":
        return value[0] if len(value) == 1 else list(value)
    if name == "layers":
        return [layer.kind for layer in value]
    return value
