"""How far the answers of an export differ from those in float32."""

import dataclasses

import numpy as np

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
    "tagging": ["text"],
    "question_answering": ["question", "context"],
    "multiple_choice": ["text", "choices"],
}
_DATA = {
    "tagging": ("TaggedSentences", "Examples"),
    "question_answering": ("Questions",),
    "multiple_choice": ("Choices",),
}
_WITH_LABEL = ("classification", "next_sentence")  # tasks whose answers can have a `label`


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
    """

    examples: int
    equal: float | None
    difference: float
    accuracy: float | None = None
    float32_accuracy: float | None = None

    def __str__(self):
        parts = [f"on {self.examples:,} examples"]
        if self.equal is not None:
            parts.append(f"{self.equal:.2%} of the answers are equal")
        if self.accuracy is not None:
            parts.append(
                f"the accuracy is {self.accuracy:.4f} (float32: {self.float32_accuracy:.4f})"
            )
        return ", ".join([*parts, f"the largest difference of a number is {self.difference:.2g}"])


def input_names(output):
    """Return the names of the inputs of the signature that takes strings.

    Args:
        output: The `layers.TaskOutput` of a model.
    """
    return _INPUTS.get(output.task, ["text", "text_pair"] if output.pairs else ["text"])


def check_data(dev, output):
    """Check that `dev` fits the model's task and has all inputs.

    Args:
        dev: The argument `dev` of `export`.
        output: The `layers.TaskOutput` of the model.

    Raises:
        ValueError: If `dev` is not data of the model's task, is empty, has no column for an input,
            has pairs for a model of single texts, or a label that the model does not know.
    """
    expected = _DATA.get(output.task, ("Examples",))
    # By name, because `keras_bert.data` is a layer above this one.
    if not any(each.__name__ in expected for each in type(dev).__mro__):
        raise ValueError(
            f"dev must be {' or '.join(f'keras_bert.{name}' for name in expected)}; received "
            f"{type(dev).__name__}. Read a file with keras_bert.read"
        )
    if not len(dev):
        raise ValueError(f"{dev.source} contains no examples")
    for name in input_names(output):
        _column(dev, name)
    if not output.pairs and getattr(dev, "text_pairs", None) is not None:
        raise ValueError(
            f"the model reads single texts; {dev.source} has pairs of texts. Give single texts"
        )
    given = getattr(dev, "labels", None) if output.task in _WITH_LABEL else None
    unknown = next((label for label in given or () if str(label) not in output.labels), None)
    if unknown is not None:
        raise ValueError(
            f"{dev.source}: the label {unknown!r:.80} is not one of the model's labels: "
            f"{', '.join(output.labels[:20])}"
        )


def compare(actual, expected, examples, names):
    """Compare two functions of strings that return dicts of arrays (batch, ...).

    Args:
        actual, expected: The functions. They take the inputs `names`, lists of strings in this
            order. If they return `label`, bytes (batch,), it is compared with the labels of the
            examples.
        examples: Data of the task, such as `keras_bert.Examples`.
        names: Names of the inputs, such as `["text"]`.

    Returns:
        An `Agreement`.

    Raises:
        ValueError: If the data has no column for an input.
    """
    columns = [_column(examples, name) for name in names]
    labels = getattr(examples, "labels", None)
    equal: list[bool] = []
    correct: list[tuple[bool, bool]] = []
    difference = 0.0
    for start in range(0, len(examples), _BATCH):
        batch = slice(start, start + _BATCH)
        texts = [column[batch] for column in columns]
        found = actual(*texts)
        reference = expected(*texts)
        difference = _larger(difference, found, reference)
        equal.extend(_equal_rows(found, reference))
        if labels is not None and "label" in reference:
            right = np.array([str(label).encode() for label in labels[batch]], object)
            correct.extend(zip(found["label"] == right, reference["label"] == right, strict=True))
    accuracies = np.mean(correct, axis=0).tolist() if correct else (None, None)
    share = float(np.mean(equal)) if equal else None
    return Agreement(len(examples), share, difference, *accuracies)


def _larger(difference, found, reference):
    """Return the largest difference of two floats with the same name, at least `difference`."""
    for name, value in reference.items():
        if value.dtype.kind == "f":
            largest = np.abs(found[name] - value).max(initial=0)
            difference = float(np.maximum(difference, largest))  # NaN stays NaN
    return difference


def _equal_rows(found, reference):
    """Return for each row if its labels, tags or answers are equal; empty if there are none."""
    columns = [
        (found[name] == value).reshape(len(value), -1).all(axis=1)
        for name, value in reference.items()
        if value.dtype.kind != "f"
    ]
    return np.all(columns, axis=0) if columns else []


def _column(examples, name):
    for attribute in _COLUMNS[name]:
        column = getattr(examples, attribute, None)
        if column is not None:
            return [" ".join(row) for row in column] if attribute == "words" else list(column)
    source = getattr(examples, "source", type(examples).__name__)
    raise ValueError(
        f"{source} has no column for the input {name!r} of the model. Give data of the model's task"
    )
