"""How far the answers of an export differ from those in float32."""

import dataclasses
import time

import numpy as np
import tensorflow as tf

_BATCH = 32

# Inputs of the signatures, and the columns of the data that hold them.
_COLUMNS = {
    "text": ("texts", "words"),
    "text_pair": ("text_pairs",),
    "question": ("questions",),
    "context": ("contexts",),
    "choices": ("choices",),
}
# Inputs of the signatures, and data classes, of the tasks that do not take `Examples` only.
_INPUTS = {
    "tagger": ["text"],
    "span_selector": ["question", "context"],
    "multiple_choice": ["text", "choices"],
}
_DATA = {
    "tagger": ("TaggedSentences", "Examples"),
    "span_selector": ("Questions",),
    "multiple_choice": ("Choices",),
}


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Comparison of two sets of answers to the same texts.

    Attributes:
        examples: Number of examples.
        equal: Fraction of the examples whose labels, tags or answers are equal; `None` if the
            answers are only numbers.
        difference: Largest difference of a score, a probability or an embedding.
        time: Time of the answers as a multiple of the time in float32, on the exporting machine.
        accuracy, float32_accuracy: Fractions of the examples with the right label; `None` unless
            the examples have `labels`.
    """

    examples: int
    equal: float | None
    difference: float
    time: float
    accuracy: float | None = None
    float32_accuracy: float | None = None

    @property
    def loss(self):
        """Loss of accuracy; without labels the fraction of changed answers, or `None`."""
        if self.accuracy is not None and self.float32_accuracy is not None:
            return self.float32_accuracy - self.accuracy
        return None if self.equal is None else 1 - self.equal

    def __str__(self):
        parts = [f"on {self.examples:,} examples"]
        if self.equal is not None:
            parts.append(f"{self.equal:.2%} of the answers are equal")
        if self.accuracy is not None:
            parts.append(
                f"the accuracy is {self.accuracy:.4f} (float32: {self.float32_accuracy:.4f})"
            )
        parts.append(f"the largest difference of a number is {self.difference:.2g}")
        return f"{', '.join(parts)}, and the answers took {self.time:.2f} times as long"


def input_names(output):
    """Return the names of the inputs of the signature that takes strings.

    Args:
        output: The `layers.TaskOutput` of a model.
    """
    return _INPUTS.get(output.task, ["text", "text_pair"] if output.pairs else ["text"])


def check_data(dev, output):
    """Raise an error unless `dev` can be the data of a comparison.

    Args:
        dev: The argument `dev` of `export`.
        output: The `layers.TaskOutput` of the model.

    Raises:
        ValueError: If `dev` is not data of the model's task, or has no column for an input.
    """
    expected = _DATA.get(output.task, ("Examples",))
    # By name, because `keras_bert.data` is a layer above this one.
    if not any(each.__name__ in expected for each in type(dev).__mro__):
        raise ValueError(
            f"dev must be {' or '.join(f'keras_bert.{name}' for name in expected)}; received "
            f"{type(dev).__name__}. Read a file with keras_bert.read"
        )
    for name in input_names(output):
        _column(dev, name)


def compare(actual, expected, examples, names):
    """Compare two functions of strings that return dicts of tensors (batch, ...).

    Args:
        actual, expected: The functions. They take the inputs `names`, in this order. If they
            return `label`, strings (batch,), it is compared with the labels of the examples.
        examples: Data of the task, such as `keras_bert.Examples`.
        names: Names of the inputs, such as `["text"]`.

    Returns:
        An `Agreement`.

    Raises:
        ValueError: If the data has no column for an input.
    """
    columns = [_column(examples, name) for name in names]
    labels = getattr(examples, "labels", None)
    equal, difference, right, seconds = [], 0.0, [0, 0], []
    for start in range(0, len(examples), _BATCH):
        texts = [tf.constant(column[start : start + _BATCH], tf.string) for column in columns]
        began = time.perf_counter()
        found = actual(*texts)
        middle = time.perf_counter()
        reference = expected(*texts)
        seconds.append((middle - began, time.perf_counter() - middle))
        if labels is not None and "label" in reference:
            given = np.array([label.encode() for label in labels[start : start + _BATCH]], object)
            for index, answers in enumerate((found, reference)):
                right[index] += int(np.sum(answers["label"].numpy() == given))
        same = None
        for name, value in reference.items():
            one, other = found[name].numpy(), value.numpy()
            if value.dtype.is_floating:
                largest = np.abs(one - other).max(initial=0)
                difference = float(np.maximum(difference, largest))  # NaN stays NaN
            else:
                rows = (one == other).reshape(len(one), -1).all(axis=1)
                same = rows if same is None else same & rows
        if same is not None:
            equal.extend(same)
    # The first call of a function is slow.
    total, reference_total = np.sum(seconds[1:] or seconds, axis=0)
    count = len(examples)
    has_labels = labels is not None and "label" in reference
    return Agreement(
        count,
        float(np.mean(equal)) if equal else None,
        difference,
        float(total / reference_total),
        *((each / count for each in right) if has_labels else ()),
    )


def _column(examples, name):
    for attribute in _COLUMNS[name]:
        column = getattr(examples, attribute, None)
        if column is not None:
            return [" ".join(row) for row in column] if attribute == "words" else list(column)
    source = getattr(examples, "source", type(examples).__name__)
    raise ValueError(
        f"{source} has no column for the input {name!r} of the model. Give data of the model's task"
    )
