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
        metric: Name of the metric that both were scored by; `None` without labels.
        score, float32_score: The metric, for example 0.9.
        cosine: For embeddings, the mean cosine similarity of the vectors of a text; else `None`.
        time_ratio: Time, divided by that in float32; `None` if it was not measured.
    """

    examples: int
    equal: float | None
    difference: float
    metric: str | None = None
    score: float = 0.0
    float32_score: float = 0.0
    cosine: float | None = None
    time_ratio: float | None = None

    def __str__(self):
        parts = [f"on {self.examples:,} examples"]
        if self.equal is not None:
            parts.append(f"{self.equal:.2%} of the answers are equal")
        if self.metric is not None:
            name = self.metric.replace("_", " ")
            parts.append(f"the {name} is {self.score:.4f} (float32: {self.float32_score:.4f})")
        if self.cosine is not None:
            parts.append(f"the mean cosine similarity is {self.cosine:.4f}")
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
    count = len(columns[0])  # for embeddings, a row of the data has several texts
    for start in range(0, count, _BATCH):
        batch = slice(start, start + _BATCH)
        texts = [column[batch] for column in columns]
        outputs = actual(*texts)
        reference = expected(*texts)
        difference = _larger(difference, outputs, reference)
        equal.extend(_equal_rows(outputs, reference))
        if labels is not None and "label" in reference:
            right = np.array([str(label).encode() for label in labels[batch]], object)
            correct.extend(zip(outputs["label"] == right, reference["label"] == right, strict=True))
    accuracies = ("accuracy", *np.mean(correct, axis=0).tolist()) if correct else ()
    share = float(np.mean(equal)) if equal else None
    return Agreement(count, share, difference, *accuracies)


def compare_pipelines(actual, expected, examples):
    """Compare the pipelines of two `graph_engine.GraphEngine` of the same model.

    Args:
        actual, expected: The `GraphEngine` in lower precision, and that in float32.
        examples: Data of the task; with labels, the main metric is compared, too.

    Returns:
        An `Agreement`, with the ratio of the times.
    """
    task = expected.task
    rows = inputs_of(examples, expected)
    pipelines = [task.pipeline(engine) for engine in (actual, expected)]
    for pipeline in pipelines:
        pipeline(rows[:1])  # the first call allocates memory
    actual.seconds = expected.seconds = 0.0
    results, reference = (pipeline(rows, show_progress=False) for pipeline in pipelines)
    ratio = actual.seconds / expected.seconds
    scores = {}
    if task.is_scorable(examples):
        metrics = [pipeline.evaluate(examples) for pipeline in pipelines]
        name = next(iter(metrics[0]))
        scores = {"metric": name, "score": metrics[0][name], "float32_score": metrics[1][name]}
    pairs = list(zip(results, reference, strict=True))
    numbers, others = zip(*(_compare_values(*pair) for pair in pairs), strict=True)
    cosine = None
    if isinstance(reference, np.ndarray):
        lengths = np.linalg.norm(results, axis=1) * np.linalg.norm(reference, axis=1)
        cosine = float(np.mean((results * reference).sum(axis=1) / np.maximum(lengths, 1e-12)))
    has_words = cosine is None and not all(other is None for other in others)
    equal = float(np.mean([other is not False for other in others])) if has_words else None
    return Agreement(
        len(rows), equal, float(np.max(numbers)), **scores, cosine=cosine, time_ratio=ratio
    )


def inputs_of(examples, engine):
    """Return the data as a list of inputs for the pipeline of an engine."""
    columns = engine.task.columns_of(examples, engine.described.output)
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


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


def _compare_values(value, reference):
    """Compare two results of a pipeline: numbers, arrays, words, or lists and dicts of them.

    Return the largest difference of two numbers, and if all words are equal; `None` without words.
    """
    if isinstance(reference, (float, np.floating, np.ndarray)):
        return float(np.max(np.abs(np.subtract(value, reference)), initial=0)), None
    if isinstance(reference, dict) and value.keys() == reference.keys():
        value, reference = list(value.values()), list(reference.values())
    is_list = isinstance(reference, list) and isinstance(value, list)
    if not is_list or len(value) != len(reference):
        return 0.0, value == reference
    parts = [_compare_values(*pair) for pair in zip(value, reference, strict=True)]
    words = [is_equal for _, is_equal in parts if is_equal is not None]
    difference = float(np.max([number for number, _ in parts], initial=0))  # NaN stays NaN
    return difference, all(words) if words else None
