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
from keras_bert.checkpoints.folder import read_optional_json
from keras_bert.checkpoints.tokenizer_config import Tokenizer
from keras_bert.exporting import graph_folder
from keras_bert.exporting.graph_folder import Inputs
from keras_bert.exporting.graph_session import Batch, Session, errors_as_value_error
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
_VECTORS_OF_TOKENS = ("token_embeddings", "last_hidden_state")
_MASK = "attention_mask"
_POOLINGS = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


class SessionWithLastLayer:
    """A `Session` with one output, which NumPy computes from an output of another session.

    Args:
        session: The other `Session`.
        source: Name of its output.
        name: Name of the new output.
        width: Size of the last axis of the new output.
        last_layer: Function of the output and the mask of a batch that returns (batch, width).
    """

    def __init__(self, session: Session, source: str, name: str, width: int, last_layer: Callable):
        if source not in session.widths or _MASK not in session.inputs:
            raise ValueError(
                f"{session.file} must have the input {_MASK} and the output {source}; it has "
                f"{shown([*session.inputs, *session.widths], 200)}"
            )
        self._session = session
        self._source = source
        self._last_layer = last_layer
        self.file = session.file
        self.digest = session.digest
        self.inputs = session.inputs
        self.widths: dict[str, int | None] = {name: width}
        self.ranks = {name: 2}
        self.tokens_per_batch = session.tokens_per_batch
        self.parallel_batches = session.parallel_batches

    def run(self, batches: Iterable[Inputs], names: list[str]) -> Iterator[Batch]:
        for index, inputs, [output] in self._session.run(batches, [self._source]):
            output = np.asarray(output, np.float32)
            yield index, inputs, [self._last_layer(output, inputs["input_mask"])]


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
    if _MASK not in session.inputs:
        raise ValueError(
            f"{session.file} must have the input {_MASK}, since the texts of a batch are padded. "
            "Export the model again with this input"
        )
    class_name = _bert_class_of_graph(folder, config, session, task)
    if class_name != "BertForMultipleChoice":  # its logits are (texts, choices)
        _measure_widths(session)
    checkpoint = _checkpoint(folder, {**config, "architectures": [class_name]}, session)
    head = checkpoint.spec.head
    if head.task in (None, "embedding") and _VECTORS not in session.widths:
        head = _embedding_head(folder, checkpoint.spec, pooling)
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
    if head.task == "classification":
        check_one_of(f"the activation of {session.file}", head.activation, (None, "linear"))
    segments = read_optional_json(folder / "config.json").get("type_vocab_size")
    if head.pairs and segments == 1 and "token_type_ids" in session.inputs:
        raise ValueError(
            f"{session.file} has one segment, and its input token_type_ids cannot tell the texts "
            "of a pair apart. Export the model again without this input"
        )
    return head, _with_outputs(session, head)


def _measure_widths(session: Session) -> None:
    """Compute three tokens to set the widths of outputs that the graph leaves open."""
    names = ("logits", _VECTORS, *_VECTORS_OF_TOKENS)
    names = [name for name in names if name in session.widths and session.widths[name] is None]
    if not names:
        return
    ids = np.zeros((1, 3), np.int64)
    inputs = {"input_word_ids": ids, "input_mask": ids + 1, "input_type_ids": ids}
    [(_, _, outputs)] = session.run([inputs], names)
    for name, output in zip(names, outputs, strict=True):
        session.widths[name] = output.shape[-1]


def _with_task(head: HeadSpec, task: str) -> HeadSpec:
    """Return the head as a variant of its task, or as that of a task with the same head."""
    named_task = registry.by_name(task)
    if head.task in named_task.same_heads:
        return huggingface_heads.as_cross_encoder(head, number_of_logits=1, activation=None)
    if head.task != named_task.name:
        return head
    return dataclasses.replace(head, **registry.head_options(task))


def _with_outputs(session: Session, head: HeadSpec) -> Session:
    """Return a session with the outputs that the pipeline of a head reads."""
    outputs = registry.by_name(str(head.task)).graph_outputs
    if session.widths.keys() >= set(outputs):
        return session
    if outputs == (_SCORE,):
        check_one_of(f"the activation of {session.file}", head.activation, _ACTIVATIONS)
        activate = functools.partial(_activate, activation=head.activation)
        return SessionWithLastLayer(session, "logits", _SCORE, 1, activate)
    if not head.pooling:
        return session
    if set(head.layers) - {UNIT_LENGTH}:
        raise ValueError(
            f"{session.file} lacks the layers after the pooling. Load the checkpoint from which it "
            "was made"
        )
    default = _VECTORS_OF_TOKENS[-1]
    source = next((name for name in _VECTORS_OF_TOKENS if name in session.widths), default)
    width = (session.widths.get(source) or 0) * len(head.pooling)
    last_layer = functools.partial(_vectors, modes=head.pooling, is_unit=UNIT_LENGTH in head.layers)
    return SessionWithLastLayer(session, source, _VECTORS, width, last_layer)


def _bert_class_of_graph(
    folder: pathlib.Path, config: Mapping[str, Any], session: Session, task: str | None
) -> str:
    """Return BERT's class with the head of a graph, by its config or else by the user's task."""
    class_name = families.bert_class(config) or "BertModel"
    has_head = class_name in huggingface_heads.ARCHITECTURES and class_name != "BertModel"
    if not any("logits" in name for name in session.widths):
        if has_head and session.widths.keys().isdisjoint((_VECTORS, *_VECTORS_OF_TOKENS)):
            raise ValueError(
                f"{session.file} must have the output logits; it has "
                f"{shown(list(session.widths), 200)}. Rename its output"
            )
        return "BertModel"
    if has_head:
        return class_name
    if task is not None:
        return huggingface_heads.architecture_of_task(registry.by_name(task).name)
    rule = "architectures must name the class with the head of the graph"
    advice = "Add it, such as BertForSequenceClassification, or pass task='classification'"
    raise invalid(folder / "config.json", rule, config.get("architectures"), advice)


def _checkpoint(folder: pathlib.Path, config: dict[str, Any], session: Session) -> Checkpoint:
    """Return a checkpoint with the head, and zeros as biases, for `read_head` of checkpoints."""
    _, groups = huggingface_heads.ARCHITECTURES[config["architectures"][0]]
    bias = np.zeros(session.widths.get("logits") or 1, np.float32)
    weights = {f"{group}/bias": bias for group in groups}
    head = huggingface_heads.read_head(folder, config, weights, tied=True)
    checkpoint = Checkpoint("", str(folder), ModelSpec(config, head=head), weights)
    if not (folder / sentence_transformers.MODULES_FILE).is_file():
        return checkpoint
    return sentence_transformers.with_modules(checkpoint, folder)


def _embedding_head(folder: pathlib.Path, spec: ModelSpec, pooling: str | None) -> HeadSpec:
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
        pooling = "mean"
    check_one_of("pooling", pooling, _POOLINGS)
    return HeadSpec("embedding", pooling=(pooling,), layers=(UNIT_LENGTH,))


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


def _activate(logits: np.ndarray, _: np.ndarray, activation: str | None) -> np.ndarray:
    return _ACTIVATIONS[activation](logits)
