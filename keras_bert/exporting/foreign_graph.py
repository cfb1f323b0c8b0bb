"""Graphs of other libraries in Hugging Face's layout: which model they are, and its last layers.

The folder has a graph, `config.json` and the files of the tokenizer. Many graphs of embedders end
in the vectors of the tokens, and those of rerankers in a logit. NumPy computes what follows.

Source: huggingface/optimum-onnx, optimum/exporters/onnx/model_configs.py (names of outputs).
"""

import dataclasses
import functools
import pathlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert.checkpoints import (
    families,
    huggingface_heads,
    other_models,
    sentence_transformers,
    tokenizer_config,
)
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.checkpoints.tokenizer_config import Tokenizer
from keras_bert.exporting import graph_folder
from keras_bert.exporting.graph_session import Inputs, Session, errors_as_value_error
from keras_bert.model_spec import UNIT_LENGTH, HeadSpec, ModelSpec
from keras_bert.runtime.arguments import check_one_of
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import registry
from keras_bert.tasks.activations import sigmoid
from keras_bert.untrusted import links
from keras_bert.untrusted.errors import invalid

_ACTIVATIONS: dict[str | None, Callable] = {
    None: np.asarray,
    "linear": np.asarray,
    "sigmoid": sigmoid,
}
# Outputs that pipelines read.
_VECTORS = "sentence_embedding"
_SCORE = "score"
_MASK = "attention_mask"
_POOLINGS = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


class FinishedSession:
    """A `Session` with one output, which NumPy computes from an output of another session.

    Args:
        session: The other `Session`.
        source: Name of its output.
        name: Name of the new output.
        width: Size of the last axis of the new output.
        finish: Function of the output and the mask of a batch that returns (batch, width).
    """

    def __init__(self, session: Session, source: str, name: str, width: int, finish: Callable):
        if source not in session.widths or _MASK not in session.inputs:
            raise ValueError(
                f"{session.file} must have the input {_MASK} and the output {source}; it has "
                f"{shown([*session.inputs, *session.widths], 200)}"
            )
        self._session = session
        self._source = source
        self._finish = finish
        self.file = session.file
        self.digest = session.digest
        self.inputs = session.inputs
        self.widths: dict[str, int | None] = {name: width}
        self.ranks = {name: 2}
        self.tokens_per_batch = session.tokens_per_batch
        self.parallel_batches = session.parallel_batches

    def run(self, batches: Iterable[Inputs], names: list[str]) -> Iterator[tuple[int, list]]:
        masks: dict[int, np.ndarray] = {}
        noted = _with_masks(batches, masks)
        for index, [output] in self._session.run(noted, [self._source]):
            yield index, [self._finish(np.asarray(output, np.float32), masks.pop(index))]


def _with_masks(batches: Iterable[Inputs], masks: dict[int, np.ndarray]) -> Iterator[Inputs]:
    """Yield batches. Add the mask of each one to `masks`, by its index."""
    for index, inputs in enumerate(batches):
        masks[index] = inputs[_MASK]
        yield inputs


def read_files(folder: pathlib.Path) -> tuple[dict[str, Any], Tokenizer]:
    """Return the config of a graph with BERT's keys, and its tokenizer. The graph is not read."""
    links.check(folder)
    config = other_models.read_config_of_graph(folder)
    if not config:
        raise ValueError(
            f"{folder} has no config.json. Copy that of the checkpoint and its tokenizer.json or "
            "vocab.txt into it"
        )
    for key in ("vocab_size", "max_position_embeddings"):
        if type(config.get(key)) is not int:
            rule = f"{key} must be a number for keras_bert.pipeline"
            raise invalid(folder / "config.json", rule, config.get(key))
    advice = "Copy the tokenizer of the checkpoint, or run the graph with another library"
    with errors_as_value_error(f"{folder}: its tokenizer cannot be read", advice):
        tokenizer = tokenizer_config.read(
            folder, config["vocab_size"], config["max_position_embeddings"]
        )
    if tokenizer.vocabulary is None:
        raise ValueError(
            f"{folder} has no tokenizer. Copy tokenizer.json or vocab.txt of the checkpoint into it"
        )
    return config, tokenizer


def read_head(
    folder: pathlib.Path,
    config: Mapping[str, Any],
    session: Session,
    task: str | None,
    pooling: str | None,
) -> tuple[HeadSpec, Session]:
    """Return the head of a graph, and the session with the outputs of its task.

    `config` has BERT's keys. `task` is a variant that the files may not state, such as "pair", and
    `pooling` is for vectors of tokens; both are those of the user.
    """
    unknown = set(session.inputs) - set(graph_folder.INPUTS.values())
    if unknown:
        raise ValueError(
            f"{session.file} needs the input {shown(min(unknown))}. Run it with the library that "
            "wrote it"
        )
    checkpoint = _checkpoint(folder, config, session, task)
    head = checkpoint.spec.head
    if head.task in (None, "embedding") and _VECTORS not in session.widths:
        head = _embedder(folder, checkpoint.spec, pooling)
    elif pooling is not None:
        raise ValueError(f"{session.file} has no vectors of tokens to pool. Leave out pooling")
    if head.labels is None:
        count = session.widths.get("logits") or 0
        head = dataclasses.replace(head, labels=[str(index) for index in range(count)])
    head = dataclasses.replace(
        head,
        task=head.task or "embedding",
        pairs=bool(head.pairs),
        multi_label=bool(head.multi_label),
    )
    if task is not None:
        head = _with_task(head, task)
    return head, _with_outputs(session, head)


def _with_task(head: HeadSpec, task: str) -> HeadSpec:
    """Return the head as a variant of its task, or as that of a task with the same head."""
    wanted = registry.by_name(task)
    if head.task in wanted.same_heads:
        return huggingface_heads.as_cross_encoder(head, 1, None)
    is_variant = head.task == wanted.name
    return dataclasses.replace(head, **registry.head_options(task)) if is_variant else head


def _with_outputs(session: Session, head: HeadSpec) -> Session:
    """Return a session with the outputs that the pipeline of a head reads."""
    outputs = registry.by_name(str(head.task)).graph_outputs
    if session.widths.keys() >= set(outputs):
        return session
    if outputs == (_SCORE,):
        check_one_of("the activation of the score", head.activation, _ACTIVATIONS)
        activate = functools.partial(_activate, activation=head.activation)
        return FinishedSession(session, "logits", _SCORE, 1, activate)
    if not head.pooling:
        return session
    if set(head.layers) - {UNIT_LENGTH}:
        raise ValueError(
            f"{session.file} lacks the layers after the pooling. Load the checkpoint from which it "
            "was made"
        )
    names = ("token_embeddings", "last_hidden_state")
    source = next((name for name in names if name in session.widths), names[1])
    width = (session.widths.get(source) or 0) * len(head.pooling)
    finish = functools.partial(_vectors, modes=head.pooling, is_unit=UNIT_LENGTH in head.layers)
    return FinishedSession(session, source, _VECTORS, width, finish)


def _class_of(
    folder: pathlib.Path, config: Mapping[str, Any], session: Session, task: str | None
) -> str:
    """Return BERT's class with the head of a graph, by its config or else by the user's task."""
    if not any("logits" in name for name in session.widths):
        return "BertModel"
    class_name = families.bert_class(config)
    if class_name in huggingface_heads.ARCHITECTURES:
        return class_name
    if task is not None:
        return huggingface_heads.architecture_of_task(registry.by_name(task).name)
    rule = "architectures must name the class with the head of the graph"
    advice = "Add it, such as BertForSequenceClassification, or pass task='classification'"
    raise invalid(folder / "config.json", rule, config.get("architectures"), advice)


def _checkpoint(
    folder: pathlib.Path, config: Mapping[str, Any], session: Session, task: str | None
) -> Checkpoint:
    """Return a checkpoint with the head. Only the shapes of the head's weights are right."""
    class_name = _class_of(folder, config, session, task)
    _, groups = huggingface_heads.ARCHITECTURES[class_name]
    bias = np.zeros(session.widths.get("logits") or 1, np.float32)
    weights = {f"{group}/bias": bias for group in groups}
    config = {**config, "architectures": [class_name]}
    head = huggingface_heads.read_head(folder, config, weights, tied=True)
    checkpoint = Checkpoint("", str(folder), ModelSpec(dict(config), head=head), weights)
    if not (folder / sentence_transformers.MODULES_FILE).is_file():
        return checkpoint
    return sentence_transformers.with_modules(checkpoint, folder)


def _embedder(folder: pathlib.Path, spec: ModelSpec, pooling: str | None) -> HeadSpec:
    """Return the head of an embedder, by default the mean over the tokens."""
    if spec.head.task == "embedding":
        own = spec.head.pooling
        if pooling is not None and own != (pooling,):
            raise ValueError(f"{folder} has the pooling {shown(own)}; received {shown(pooling)}")
        return spec.head
    file = folder / huggingface_heads.POOLING_FILE
    pooling = pooling or huggingface_heads.pooling_of_encoder(file)
    if pooling is None:
        warnings.warn(
            f"{folder} has no pooling; the mean over the tokens is used. Pass pooling='mean' to "
            "hide this warning",
            stacklevel=level_of_caller(),
        )
    check_one_of("pooling", pooling or "mean", _POOLINGS)
    embedder = dataclasses.replace(spec, pooling=pooling or "mean").embedding
    return embedder or HeadSpec()


def _vectors(
    output: np.ndarray, mask: np.ndarray, modes: Sequence[str], is_unit: bool
) -> np.ndarray:
    """Return a vector for each text from the vectors of its tokens (batch, seq, hidden)."""
    vectors = np.concatenate([_pool(mode, output, mask) for mode in modes], axis=-1)
    if not is_unit:
        return vectors
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def _pool(mode: str, output: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return what a mode of `layers.SentencePooling` makes of vectors of tokens."""
    if mode == "cls":
        return output[:, 0]
    if mode == "lasttoken":
        return output[np.arange(len(output)), mask.sum(axis=1) - 1]
    weights = mask[..., None].astype(np.float32)
    if mode == "max":
        return np.where(weights > 0, output, -np.inf).max(axis=1)
    if mode == "weightedmean":
        weights = weights * np.arange(1, mask.shape[1] + 1, dtype=np.float32)[:, None]
    total = weights.sum(axis=1)
    divisor = np.sqrt(total) if mode == "mean_sqrt_len_tokens" else total
    return (output * weights).sum(axis=1) / divisor


def _activate(logits: np.ndarray, mask: np.ndarray, activation: str | None) -> np.ndarray:
    return _ACTIVATIONS[activation](logits)
