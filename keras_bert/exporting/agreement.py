"""How far the answers of an export differ from those in float32."""

import dataclasses
import warnings

import numpy as np

from keras_bert.model_structure import find_encoder, find_output
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import registry

_BATCH = 32
_MIN_COSINE = 0.99  # least mean cosine of embeddings without a warning
_MAX_POINTS = 1  # largest loss without a warning: points of the metric, or percent of the answers


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
            parts.append(f"it takes {self.time_ratio:.2f} of the time of float32")
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


def check_dev(dev, quantize, model, task):
    """Check that int8 can be compared with float32 on `dev`, unless it is `None`.

    `task` is the `Task` of the model, or `None`.
    """
    if dev is None:
        return
    if quantize is None:
        raise ValueError('dev needs quantize="int8", which is compared with float32. Remove dev')
    if task is None or find_encoder(model).preprocessor is None:
        raise ValueError(
            "dev needs a model with a head and a preprocessor; received "
            f"{'an encoder' if task is None else 'no preprocessor'}. Leave out dev"
        )
    check_data(dev, find_output(model))
    if not len(dev):
        raise ValueError(f"{dev.source} contains no examples. Give some for dev")


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
    is_right: list[bool] = []
    is_reference_right: list[bool] = []
    difference = 0.0
    count = len(columns[0])  # for embeddings, a row of the data has several texts
    for start in range(0, count, _BATCH):
        batch = slice(start, start + _BATCH)
        texts = [column[batch] for column in columns]
        outputs = actual(*texts)
        reference = expected(*texts)
        difference = _largest_difference(difference, outputs, reference)
        equal.extend(_equal_rows(outputs, reference))
        if labels is not None and "label" in reference:
            right = np.array([str(label).encode() for label in labels[batch]], object)
            is_right.extend(outputs["label"] == right)
            is_reference_right.extend(reference["label"] == right)
    share = float(np.mean(equal)) if equal else None
    if not is_right:
        return Agreement(count, share, difference)
    accuracy = float(np.mean(is_right))
    reference_accuracy = float(np.mean(is_reference_right))
    return Agreement(count, share, difference, "accuracy", accuracy, reference_accuracy)


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
    actual.seconds = 0.0
    expected.seconds = 0.0
    results = pipelines[0](rows, show_progress=False, **task.compared_options)
    reference = pipelines[1](rows, show_progress=False, **task.compared_options)
    ratio = actual.seconds / expected.seconds
    scores = {}
    if task.is_scorable(examples):
        metrics = [pipeline.evaluate(examples) for pipeline in pipelines]
        name = next(iter(metrics[0]))
        scores = {"metric": name, "score": metrics[0][name], "float32_score": metrics[1][name]}
    differences = []
    is_equal_per_row = []
    for result, reference_result in zip(results, reference, strict=True):
        difference, is_equal = _compare_values(result, reference_result)
        differences.append(difference)
        is_equal_per_row.append(is_equal)
    cosine = None
    if isinstance(reference, np.ndarray):
        lengths = np.linalg.norm(results, axis=1) * np.linalg.norm(reference, axis=1)
        cosine = float(np.mean((results * reference).sum(axis=1) / np.maximum(lengths, 1e-12)))
    equal = None
    if cosine is None and any(is_equal is not None for is_equal in is_equal_per_row):
        # A row without words, such as a text without entities in both, is equal.
        equal = float(np.mean([is_equal is not False for is_equal in is_equal_per_row]))
    return Agreement(
        len(rows), equal, float(np.max(differences)), **scores, cosine=cosine, time_ratio=ratio
    )


def warn_of_changes(comparison, dev):
    """Warn if int8 changes the answers too much on the dev data."""
    change = None
    points = 100 * (comparison.float32_score - comparison.score)
    if comparison.metric is not None:
        if not points <= _MAX_POINTS + 1e-6:  # 0.9 - 0.89 is a little more than 0.01; or NaN
            change = f"int8 loses {points:.1f} points of {comparison.metric.replace('_', ' ')}"
    elif comparison.equal is not None and 100 * (1 - comparison.equal) > _MAX_POINTS + 1e-6:
        change = f"int8 changes {1 - comparison.equal:.1%} of the answers"
    elif comparison.cosine is not None and comparison.cosine < _MIN_COSINE:
        change = f"the mean cosine similarity of int8 and float32 is {comparison.cosine:.3f}"
    if change is not None:
        warnings.warn(
            f"{dev.source}: {change}. Export without quantize if that is too much",
            stacklevel=level_of_caller(),
        )


def inputs_of(examples, engine):
    """Return the data as a list of inputs for the pipeline of an engine."""
    columns = engine.task.columns_of(examples, engine.described.output)
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _largest_difference(difference, outputs, reference):
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
