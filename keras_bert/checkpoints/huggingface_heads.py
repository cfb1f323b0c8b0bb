"""Heads of Hugging Face's classes: task, labels and the class of a checkpoint.

Source: huggingface/transformers, models/bert/modeling_bert.py and configuration_utils.py.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from keras_bert.checkpoints import canonical, folder
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.runtime.escaping import check_name

FORMAT = "huggingface"

# Class in transformers -> task, and weights besides the encoder. For a checkpoint without a task,
# the first class with the same weights is used.
ARCHITECTURES: dict[str, tuple[str | None, set[str]]] = {
    "BertModel": (None, {"pooler"}),
    "BertForPreTraining": ("pretraining", {"pooler", "masked_lm", "next_sentence"}),
    "BertForMaskedLM": ("masked_lm", {"masked_lm"}),
    "BertForNextSentencePrediction": ("next_sentence", {"pooler", "next_sentence"}),
    "BertForSequenceClassification": ("classifier", {"pooler", "classifier"}),
    "BertForTokenClassification": ("tagger", {"classifier"}),
    "BertForMultipleChoice": ("multiple_choice", {"pooler", "classifier"}),
    "BertForQuestionAnswering": ("span_selector", {"span_selector"}),
}
PROBLEMS: dict[tuple[str | None, bool], str] = {
    ("classifier", False): "single_label_classification",
    ("classifier", True): "multi_label_classification",
    ("regressor", False): "regression",
}


def architecture(checkpoint: Checkpoint) -> str:
    """Return the class in transformers that has exactly the heads of a checkpoint."""
    for name, (task, groups) in ARCHITECTURES.items():
        if checkpoint.groups == groups and checkpoint.task in (task, None):
            return name
        if checkpoint.task == "regressor" and task == "classifier" and checkpoint.groups == groups:
            return name
    if checkpoint.groups <= {"pooler"}:
        return "BertModel"
    fits = [pair for pair in ARCHITECTURES.items() if pair[1][1] < checkpoint.groups]
    if checkpoint.task is not None:
        fits = [pair for pair in ARCHITECTURES.items() if pair[1][0] == checkpoint.task]
    wanted = next((pair for pair in fits if pair[1][0] is not None), None)
    advice = ""
    if wanted is not None and (extra := checkpoint.groups - wanted[1][1]):
        advice = f"; drop {', '.join(sorted(extra))} for {wanted[0]}"
    raise ValueError(
        f"{FORMAT}: a checkpoint must have the weights of one class in transformers, received "
        f"{', '.join(sorted(checkpoint.groups))}{advice}"
    )


def read_task(path: Path, weights: Mapping[str, np.ndarray]) -> tuple[str | None, bool]:
    """Return the task in the config, and True if a text can have several classes."""
    config = folder.read_json(path / "config.json")
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    task, groups = ARCHITECTURES.get(name if isinstance(name, str) else "", (None, set()))
    if task is None or not groups - {"pooler"} <= set(map(canonical.group_of, weights)):
        return None, False
    problem = config.get("problem_type")
    if task == "classifier" and (
        problem == "regression" or problem is None and len(weights["classifier/bias"]) == 1
    ):
        task = "regressor"
    return task, problem == "multi_label_classification"


def read_labels(path: Path, weights: Mapping[str, np.ndarray]) -> list[str] | None:
    """Return the names of the classes, or None for the defaults (LABEL_0, LABEL_1, ...)."""
    file = path / "config.json"
    names = folder.read_json(file).get("id2label")
    if "classifier/bias" not in weights or not names:
        return None
    classes = len(weights["classifier/bias"])
    names = names if isinstance(names, dict) else {}
    labels = [names[str(i)] for i in range(len(names)) if isinstance(names.get(str(i)), str)]
    if labels and labels == [f"LABEL_{i}" for i in range(len(names))]:
        return None
    if len(labels) != classes or len(names) != classes:
        raise ValueError(
            f"{file}: id2label must name the classifier's {classes} classes, received "
            f"{names!r:.200}"
        )
    for label in labels:
        check_name(label, f"{file}: a label of id2label")
    return labels
