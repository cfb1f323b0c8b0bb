"""Heads and poolings in Hugging Face's folders: task, labels and the class of a checkpoint.

Source: huggingface/transformers, models/bert/modeling_bert.py and configuration_utils.py;
UKPLab/sentence-transformers, cross_encoder/model.py.
"""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import canonical, folder, json_schema
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.model_spec import HeadSpec
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.warn import level_of_caller
from keras_bert.untrusted.errors import invalid

FORMAT = "huggingface"

POOLING_FILE = "1_Pooling/config.json"
# Key in files before version 5.7 of sentence-transformers -> mode, in the order in which the
# vectors are concatenated.
_MODE_OF_KEY = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# Name of the class in torch.nn -> activation in Keras.
TORCH_ACTIVATIONS = {
    "Identity": "linear", "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "Sigmoid": "sigmoid",
    "SiLU": "silu",
}  # fmt: skip
_TASKS_OF_NUMBERS = ("regression", "reranking")
_OLD_ACTIVATION_KEY = "sbert_ce_default_activation_function"  # before version 4
_IS_MULTI_LABEL = {"multi_label_classification": True, "single_label_classification": False}
_SOFTMAX = ("torch.nn.Softmax", "torch.nn.modules.activation.Softmax")


# Class in transformers -> its task, and its groups of weights besides the encoder. For a checkpoint
# without a task, the first class with the same groups is used.
ARCHITECTURES: dict[str, tuple[str | None, set[str]]] = {
    "BertModel": (None, {"pooler"}),
    "BertForPreTraining": ("pretraining", {"pooler", "masked_lm", "next_sentence"}),
    "BertForMaskedLM": ("masked_tokens", {"masked_lm"}),
    "BertForNextSentencePrediction": ("next_sentence", {"pooler", "next_sentence"}),
    "BertForSequenceClassification": ("classification", {"pooler", "classifier"}),
    "BertForTokenClassification": ("tagging", {"classifier"}),
    "BertForMultipleChoice": ("multiple_choice", {"pooler", "classifier"}),
    "BertForQuestionAnswering": ("question_answering", {"span_selector"}),
}


# Tasks whose class is that of another task. `finetuning_task` tells them apart.
_TASK_OF_CLASS: dict[str | None, str] = {
    "regression": "classification",
    "reranking": "classification",
    "sparse_embedding": "masked_tokens",
}


def architecture(checkpoint: Checkpoint) -> str:
    """Return the class in transformers that has exactly the heads of a checkpoint."""
    if checkpoint.groups <= {"pooler"}:
        return "BertModel"
    task_name = checkpoint.spec.head.task
    wanted = _TASK_OF_CLASS.get(task_name) or task_name
    fitting = {
        name: groups
        for name, (task, groups) in ARCHITECTURES.items()
        if groups <= checkpoint.groups and task and wanted in (task, None)
    }
    for name, groups in fitting.items():
        if groups == checkpoint.groups:
            return name
    advice = ""
    if fitting:
        name, groups = next(iter(fitting.items()))
        advice = f"; drop {', '.join(sorted(checkpoint.groups - groups))} for {name}"
    raise ValueError(
        f"{FORMAT}: a checkpoint must have the weights of one class in transformers, received "
        f"{', '.join(sorted(checkpoint.groups))}{advice}"
    )


def architecture_of_task(task: str | None) -> str:
    """Return the class in transformers for a task, or for an encoder: `None`."""
    wanted = _TASK_OF_CLASS.get(task) or task
    names = {task: name for name, (task, _) in ARCHITECTURES.items()}
    return names.get(wanted, "BertModel")


def keras_activation(path: object) -> str | None:
    """Return the activation in Keras for the path of a class in torch.nn, or None if unknown."""
    package, _, name = str(path).rpartition(".")
    is_torch = f"{package}.".startswith("torch.nn.")
    return TORCH_ACTIVATIONS.get(name) if is_torch else None


def torch_activation(activation: str) -> str:
    """Return the path of the class in torch.nn for an activation in Keras."""
    names = {keras_name: name for name, keras_name in TORCH_ACTIVATIONS.items()}
    if activation not in names:
        rule = f"the activation of a head must be one of {', '.join(names)}"
        raise invalid(FORMAT, rule, activation, canonical.USE_KERAS)
    module = "linear" if activation == "linear" else "activation"
    return f"torch.nn.modules.{module}.{names[activation]}"


def config_of_head(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the keys of config.json that describe the head of a checkpoint."""
    config: dict[str, Any] = {}
    head = checkpoint.spec.head
    if head.task in _TASK_OF_CLASS:
        config["finetuning_task"] = head.task
    labels = head.labels
    is_classifier = "classifier/bias" in checkpoint.weights
    if is_classifier and not labels:
        labels = [f"LABEL_{index}" for index in range(len(checkpoint.weights["classifier/bias"]))]
    if labels:
        config["id2label"] = {str(index): label for index, label in enumerate(labels)}
        config["label2id"] = {label: index for index, label in enumerate(labels)}
    if is_classifier:
        config["problem_type"] = _problem_type(head)
    if head.dropout is not None:
        config["classifier_dropout"] = head.dropout
    if head.pairs:
        activation = activation_of_pairs(head)
        config["sentence_transformers"] = {"activation_fn": activation}
        config[_OLD_ACTIVATION_KEY] = activation
    if not head.tied:
        config["tie_word_embeddings"] = False
    return config


def _problem_type(head: HeadSpec) -> str | None:
    """Return the value by which the text-classification pipelines choose a function of the logits.

    For one logit, that is a sigmoid by default, and no function for "regression". These pipelines
    exist in transformers, optimum-onnx and optimum-intel.
    """
    if head.task in _TASKS_OF_NUMBERS:
        return None if head.activation == "sigmoid" else "regression"
    if head.task == "classification":
        kind = "multi" if head.multi_label else "single"
        return f"{kind}_label_classification"
    return None


def activation_of_pairs(head: HeadSpec) -> str:
    """Return the path of the class in torch.nn that makes the scores of a cross-encoder."""
    activation = "sigmoid" if head.multi_label else head.activation or "linear"
    return torch_activation(activation)


def read_head(
    path: Path, config: Mapping[str, Any], weights: Mapping[str, np.ndarray], tied: bool
) -> HeadSpec:
    """Return the head that config.json and the weights describe."""
    head = _head_of_class(path, config, weights)
    head = dataclasses.replace(
        head,
        labels=_read_labels(path, config, head.task, weights),
        tied=tied or not any(name.startswith("masked_lm/") for name in weights),
    )
    return _with_pairs(head, config, number_of_logits(weights))


def number_of_logits(weights: Mapping[str, np.ndarray]) -> int:
    """Return the number of logits of a classifier, or 0 without one."""
    return len(weights["classifier/bias"]) if "classifier/bias" in weights else 0


def _head_of_class(
    path: Path, config: Mapping[str, Any], weights: Mapping[str, np.ndarray]
) -> HeadSpec:
    """Return the head of the class in transformers that the config names."""
    names = config.get("architectures") or [""]
    task, groups = ARCHITECTURES.get(str(names[0]), (None, set()))
    if task is None or not groups - {"pooler"} <= set(map(canonical.group_of, weights)):
        return HeadSpec()
    if task == "masked_tokens" and config.get("finetuning_task") == "sparse_embedding":
        return HeadSpec("sparse_embedding")
    problem = config.get("problem_type")
    # transformers takes a single output without a `problem_type` for a regression.
    is_single = problem is None and number_of_logits(weights) == 1
    if task == "classification" and (problem == "regression" or is_single):
        count = number_of_logits(weights)
        if count != 1:
            rule = "a regression must have one output"
            raise invalid(path / "config.json", rule, count)
        return HeadSpec("regression")
    return HeadSpec(task, multi_label=_IS_MULTI_LABEL.get(str(problem)))


def task_of_groups(checkpoint: Checkpoint) -> str | None:
    """Return the first task that has all heads of a checkpoint that does not name its task."""
    heads = checkpoint.groups - {"pooler"}
    for task, groups in ARCHITECTURES.values():
        if groups - {"pooler"} == heads:
            return task
    raise ValueError(
        f"{checkpoint.path}: no head has all of {', '.join(sorted(heads))}; drop some of them"
    )


def possible_tasks(checkpoint: Checkpoint) -> list[str]:
    """Return the tasks whose head a checkpoint may have.

    For formats other than Hugging Face, only tasks with a classifier or a span selector.
    """
    if checkpoint.format != FORMAT and not {"classifier", "span_selector"} & checkpoint.groups:
        return []
    tasks = [
        task for task, groups in ARCHITECTURES.values() if groups <= checkpoint.groups and task
    ]
    if "classifier" not in checkpoint.groups:
        return tasks
    if len(checkpoint.weights["classifier/bias"]) > 1:
        return [task for task in tasks if task != "multiple_choice"]
    tasks = [task for task in tasks if task not in ("classification", "tagging")]
    return [*tasks, "regression", "reranking"] if "pooler" in checkpoint.groups else tasks


def _read_labels(
    path: Path, config: Mapping[str, Any], task: str | None, weights: Mapping[str, np.ndarray]
) -> list[str] | None:
    """Return the names of the classes as strings, or None for the defaults (LABEL_0, ...).

    Names that do not fit the classifier are not used, with a warning.
    """
    if "classifier/bias" not in weights or task in ("regression", "reranking", "multiple_choice"):
        return None
    names = config.get("id2label")
    if isinstance(names, list):
        names = {str(index): name for index, name in enumerate(names)}
    if not isinstance(names, dict):
        return None
    label_of = {index: str(name) for index, name in names.items() if name is not None}
    if all(label == f"LABEL_{index}" for index, label in label_of.items()):
        return None
    classes = [str(index) for index in range(len(weights["classifier/bias"]))]
    if set(label_of) != set(classes):
        warnings.warn(
            f"{path}: id2label must name the classifier's {len(classes)} classes; received "
            f"{shown(config['id2label'], 200)}. Classes without a name are called 0, 1, ...; pass "
            "labels=[...] to name them",
            stacklevel=level_of_caller(),
        )
    if not set(label_of) <= set(classes):  # the names of another classifier
        return None
    return [label_of.get(index, index) for index in classes]


def _with_pairs(head: HeadSpec, config: Mapping[str, Any], number_of_logits: int) -> HeadSpec:
    """Return a head that reads pairs of texts if its config says so.

    The config of a cross-encoder of sentence-transformers says so by a key of its own. With one
    score, it is a reranker, unless its config names the other task or its `problem_type` is
    "regression". Otherwise, a classifier with a label such as "entailment" reads pairs.
    """
    settings = config.get("sentence_transformers")
    if not isinstance(settings, dict) and _OLD_ACTIVATION_KEY in config:
        settings = {"activation_fn": config[_OLD_ACTIVATION_KEY]}
    if isinstance(settings, dict):
        cross_encoder = as_cross_encoder(head, number_of_logits, settings.get("activation_fn"))
        if cross_encoder.task != "reranking":
            return cross_encoder
        task = config.get("finetuning_task")
        if task not in _TASKS_OF_NUMBERS:
            task = "regression" if config.get("problem_type") == "regression" else "reranking"
        return dataclasses.replace(cross_encoder, task=task)
    names_entailment = any("entailment" in label.lower() for label in head.labels or ())
    if head.task == "classification" and names_entailment:
        return dataclasses.replace(head, pairs=True)
    return head


def as_cross_encoder(head: HeadSpec, number_of_logits: int, activation: object) -> HeadSpec:
    """Return a head that gives the same scores as `CrossEncoder.predict`.

    `activation` is the path of a class in torch.nn. `None` means a sigmoid for a single score, and
    no activation for several scores.
    """
    task = head.task or "classification"
    if not number_of_logits or task not in ("classification", "regression", "reranking"):
        return head
    is_score = number_of_logits == 1
    if activation is None:
        activation = torch_activation("sigmoid" if is_score else "linear")
    elif activation in _SOFTMAX and not is_score:
        activation = torch_activation("linear")  # the scores of a classifier are a softmax
    # An unknown activation is an error when the head is built.
    name = keras_activation(activation) or str(activation)
    if is_score:
        return dataclasses.replace(head, task="reranking", pairs=True, activation=name)
    if name == "sigmoid":
        return dataclasses.replace(head, task=task, pairs=True, multi_label=True)
    return dataclasses.replace(head, task=task, pairs=True, activation=name)


def read_pooling(file: Path) -> tuple[str, ...]:
    """Return the modes of a pooling module of sentence-transformers."""
    json_schema.check(file, folder.read_json(file), {"include_prompt": True})
    return _read_modes(file)


def _read_modes(file: Path) -> tuple[str, ...]:
    config = folder.read_json(file)
    modes = config.get("pooling_mode")
    if modes is None and config.keys().isdisjoint(_MODE_OF_KEY):
        modes = "mean"
    if modes is None:
        json_schema.check(file, config, dict.fromkeys(_MODE_OF_KEY, json_schema.FLAG))
        modes = [mode for key, mode in _MODE_OF_KEY.items() if config.get(key)]
    modes = [modes] if isinstance(modes, str) else modes
    known = list(_MODE_OF_KEY.values())
    if not modes or not isinstance(modes, list) or not all(mode in known for mode in modes):
        raise invalid(file, f"must choose poolings of {', '.join(known)}", config)
    return tuple(modes)


def pooling_of_encoder(file: Path) -> str | None:
    """Return the mode in the file of a pooling module; `None` unless there is exactly one.

    An encoder has no prompts, so it does not matter whether their vectors are pooled.
    """
    if not folder.has_file(file):
        return None
    try:
        modes = _read_modes(file)
    except (ValueError, OSError):  # an error with the head
        return None
    return modes[0] if len(modes) == 1 else None


def write_pooling(path: Path, modes: Sequence[str], hidden_size: int) -> None:
    """Write the pooling module in the folder of a model."""
    config: dict[str, Any] = {key: mode in modes for key, mode in _MODE_OF_KEY.items()}
    if list(modes) != [mode for mode in _MODE_OF_KEY.values() if mode in modes]:
        config = {"pooling_mode": list(modes)}  # the older keys have no order
    file = path / POOLING_FILE
    file.parent.mkdir()
    folder.write_json(file, {"word_embedding_dimension": hidden_size, **config})
