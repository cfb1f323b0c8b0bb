"""How far the answers of an export differ from those in float32."""

import dataclasses

import numpy as np

from keras_bert.tasks import registry

_BATCH = 32


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Comparison of two sets of answers to the same texts.

    Attributes:
        examples: Number of examples.
        equal: Fraction of the examples whose labels, tags or answers are equal; `None` if the
            answers are only numbers.
        difference: Largest difference of a score, a probability or an embedding.
        accuracy, float32_accuracy: Fractions of the examples with the right label; `None` unless
            each example has one label.
        time_ratio: Time, divided by that in float32; `None` if it was not measured.
    """

    examples: int
    equal: float | None
    difference: float
    accuracy: float | None = None
    float32_accuracy: float | None = None
    time_ratio: float | None = None

    def __str__(self):
        parts = [f"on {self.examples:,} examples"]
        if self.equal is not None:
            parts.append(f"{self.equal:.2%} of the answers are equal")
        if self.accuracy is not None:
            parts.append(
                f"the accuracy is {self.accuracy:.4f} (float32: {self.float32_accuracy:.4f})"
            )
        parts.append(f"the largest difference of a number is {self.difference:.2g}")
        if self.time_ratio is not None:
            parts.append(f"{self.time_ratio:.2f} times as long")
        return ", ".join(parts)


def check_data(dev, output):
    """Check that `dev` fits the model's task and has all inputs and no unknown label.

    Args:
        dev: The argument `dev` of `export`.
        output: The `layers.TaskOutput` of the model.

    Raises:
        ValueError: If it does not.
    """
    task = registry.by_name(output.task)
    kinds = task.compares or task.data
    if not isinstance(dev, kinds):
        names = " or ".join(f"keras_bert.{kind.__name__}" for kind in kinds)
        raise ValueError(
            f"dev must be {names}; received {type(dev).__name__}. Read a file with keras_bert.read"
        )
    task.columns_of(dev, output)
    if task.right_labels(dev) is not None:
        task.check_targets(output, dev)


def compare(actual, expected, examples, output):
    """Compare two functions of strings that return dicts of arrays (batch, ...).

    Args:
        actual, expected: The functions. They take the inputs of the task, lists of strings. If they
            return `label`, bytes (batch,), it is compared with the labels of the examples.
        examples: Data of the task, such as `keras_bert.Examples`.
        output: The `layers.TaskOutput` of the model.

    Returns:
        An `Agreement`.

    Raises:
        ValueError: If the data has no column for an input.
    """
    task = registry.by_name(output.task)
    columns = task.columns_of(examples, output)
    labels = task.right_labels(examples)
    equal: list[bool] = []
    correct: list[tuple[bool, bool]] = []
    difference = 0.0
    for start in range(0, len(examples), _BATCH):
        batch = slice(start, start + _BATCH)
        texts = [column[batch] for column in columns]
        outputs = actual(*texts)
        reference = expected(*texts)
        difference = _larger(difference, outputs, reference)
        equal.extend(_equal_rows(outputs, reference))
        if labels is not None and "label" in reference:
            right = np.array([str(label).encode() for label in labels[batch]], object)
            correct.extend(zip(outputs["label"] == right, reference["label"] == right, strict=True))
    accuracies = np.mean(correct, axis=0).tolist() if correct else (None, None)
    share = float(np.mean(equal)) if equal else None
    return Agreement(len(examples), share, difference, *accuracies)


def _larger(difference, outputs, reference):
    """Return the largest difference of two floats with the same name, at least `difference`."""
    for name, value in reference.items():
        if value.dtype.kind == "f":
            largest = np.abs(outputs[name] - value).max(initial=0)
            difference = float(np.maximum(difference, largest))  # NaN stays NaN
    return difference


def _equal_rows(outputs, reference):
    """Return for each row if its labels, tags or answers are equal; empty if there are none."""
    columns = [
        (outputs[name] == value).reshape(len(value), -1).all(axis=1)
        for name, value in reference.items()
        if value.dtype.kind != "f"
    ]
    return np.all(columns, axis=0) if columns else []
