"""Compare an export with its model: on samples before it gets its name, and on the user's data.

`check` raises an error if the opened export computes something else than the model. `on_dev` says
how far the answers of an export in lower precision differ from those in float32.
"""

import dataclasses
import math
import typing
import warnings

import keras
import numpy as np
import scipy.sparse

from keras_bert import keras_private
from keras_bert.model_structure import find_encoder, has_choices
from keras_bert.runtime import distribution
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks.inputs import check_data

# Texts at the borders of the tokenizers. The first one has a word for every model.
TEXTS = ("a text, with [MASK].", "", "\u3000\u200b", "한국어 é 😀", "b" * 201)
_ROWS = 3
_LENGTH = 7  # tokens of a row; no other axis of the sample has this size
_CHOICES = 2
# Largest difference of two numbers, as a fraction of the largest of their output.
_TOLERANCE = 1e-3
_ROUNDING = 1e-6  # of outputs that are all near 0
_TOLERANCE_16_BITS = 0.2  # a GPU or TPU multiplies float32 in about 16 bits, too
_NOT_WRITTEN = "It was not written. Choose another format, and report this as a bug of keras_bert"
_MIN_COSINE = 0.99  # least mean cosine of embeddings without a warning
_MAX_POINTS = 1  # largest loss without a warning: points of the metric, or percent of the answers


@dataclasses.dataclass(frozen=True)
class Sample:
    """Inputs on which an opened export is compared with its model.

    Attributes:
        inputs: Arrays by name.
        actual: Function of the inputs: the outputs of the export, arrays by name.
        expected: Function of the inputs: those of the model. `None` if the export has 8 bits, which
            are inexact; then its outputs must be finite.
        mask: 1 at tokens. Outputs with these axes have no meaning at 0.
        tolerance: Largest difference of two numbers, as a fraction; `None`: as the dtypes allow.
    """

    inputs: dict
    actual: typing.Callable
    expected: typing.Callable | None
    mask: typing.Any = None
    tolerance: float | None = None


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
        time_ratio: Time, divided by that in float32.
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


def check(sample, model, precision=None):
    """Raise a `ValueError` if an opened export computes something else than the model.

    `precision` is that of the export, if the model has another one.
    """
    actual = sample.actual(sample.inputs)
    if sample.expected is None:
        for name, value in actual.items():
            if not np.isfinite(value).all():
                raise ValueError(f"int8 computes NaN or infinity for {name}. {_NOT_WRITTEN}")
        return
    tolerance = _tolerance(model, precision) if sample.tolerance is None else sample.tolerance
    for name, reference in sample.expected(sample.inputs).items():
        # Labels and places in the text differ where two scores are nearly equal.
        is_compared = reference.dtype.kind == "f" or (
            tolerance == 0 and reference.dtype.kind == "i"
        )
        if not is_compared:
            continue
        value, wanted = _same_shape(np.asarray(actual[name], reference.dtype), reference)
        if sample.mask is not None and wanted.shape[: sample.mask.ndim] == sample.mask.shape:
            value = value[sample.mask != 0]
            wanted = wanted[sample.mask != 0]
        is_number = np.isfinite(wanted)  # a model in float16 may return infinity
        difference, _ = differences(value[is_number], wanted[is_number])
        limit = tolerance * np.abs(wanted[is_number]).max(initial=0) + _ROUNDING
        if not difference <= limit:  # NaN is not
            raise ValueError(
                f"the export computes something else than {model.name!r}: the difference of "
                f"{name} is {difference:.2g}. {_NOT_WRITTEN}"
            )


def sample_ids(model):
    """Return ids for the inputs of a model: rows of 1 to `_LENGTH` tokens, a dict of int32 arrays.

    Inputs that `keras_bert.heads` does not make are zeros.
    """
    config = find_encoder(model).bert_config
    generator = np.random.default_rng(0)
    length = min(_LENGTH, config["max_position_embeddings"])
    shape = (_ROWS, length)
    if has_choices(model):
        shape = (_ROWS, _CHOICES, length)
    tokens_per_row = np.linspace(1, length, math.prod(shape[:-1])).astype(int)
    position = np.broadcast_to(np.arange(length), shape)
    arrays = {
        "input_word_ids": generator.integers(0, config["vocab_size"], shape),
        "input_mask": position < tokens_per_row.reshape(*shape[:-1], 1),
        "input_type_ids": generator.integers(0, config["type_vocab_size"], shape),
        "masked_lm_positions": position,
    }
    zeros = np.zeros(shape)
    return {name: arrays.get(name, zeros).astype(np.int32) for name in model.input}


def sample_strings(specs):
    """Return arrays for inputs of strings and numbers, by the names of their `tf.TensorSpec`s."""
    inputs = {}
    for index, spec in enumerate(specs):
        shape = [len(TEXTS), *(size or _CHOICES for size in spec.shape[1:])]
        values = np.zeros(1, spec.dtype.as_numpy_dtype)
        if spec.dtype == "string":
            values = np.roll(np.array([text.encode() for text in TEXTS], object), index)
        inputs[spec.name] = np.resize(values, shape)
    return inputs


def outputs_of(model, inputs):
    """Return the outputs of a Keras model by name; `""` is the name of a single one."""
    outputs = model({name: keras.ops.convert_to_tensor(inputs[name]) for name in inputs})
    if not isinstance(outputs, dict):
        outputs = {"": outputs}
    return {
        name: keras.ops.convert_to_numpy(keras.ops.cast(output, "float32"))
        for name, output in outputs.items()
        if not isinstance(output, (list, tuple))
    }


def check_dev(job):
    """Check that an export can be compared with float32 on `dev`, unless it is `None`.

    Raises:
        ValueError: If it has no lower precision, or `dev` does not fit the task of the model, lacks
            an input, or has an unknown label.
    """
    dev = job.dev
    task = job.task
    if dev is None:
        return
    if job.quantize is None and job.precision != "bfloat16":
        raise ValueError(
            'dev needs quantize="int8" or precision="bfloat16", which is compared with float32. '
            "Remove dev"
        )
    if not job.has_pipeline:
        raise ValueError("dev needs a model with a head and a preprocessor. Remove dev")
    check_data("dev", dev, task.comparable_data or task.data)
    task.columns_of(dev, job.output)
    if task.is_scorable(dev):
        task.check_targets(job.output, dev)
    if not len(dev):
        raise ValueError(f"{dev.source} contains no examples. Give some for dev")


def on_dev(actual, expected, dev, precision):
    """Compare the answers of two predictors of the same model; warn if they differ much.

    Args:
        actual, expected: The predictor in lower precision, and that in float32.
        dev: Data of the task; with labels, the main metric is compared, too.
        precision: The lower precision.

    Returns:
        An `Agreement`.
    """
    task = expected.task
    rows = rows_of(dev, expected)
    pipelines = [task.pipeline(predictor) for predictor in (actual, expected)]
    for pipeline in pipelines:
        pipeline(rows[:1])  # the first call allocates memory
        pipeline.predictor.seconds = 0.0
    results, reference = (
        pipeline(rows, show_progress=False, **task.compared_options) for pipeline in pipelines
    )
    ratio = actual.seconds / expected.seconds
    scores = {}
    if task.is_scorable(dev):
        metrics = [pipeline.evaluate(dev) for pipeline in pipelines]
        name = next(iter(metrics[0]))
        scores = {"metric": name, "score": metrics[0][name], "float32_score": metrics[1][name]}
    compared = [differences(*pair) for pair in zip(results, reference, strict=True)]
    cosine = None
    equal = None
    if isinstance(reference, np.ndarray) or scipy.sparse.issparse(reference):
        cosine = _mean_cosine(scipy.sparse.csr_array(results), scipy.sparse.csr_array(reference))
    elif any(is_equal is not None for _, is_equal in compared):
        # A row without words, such as a text without entities in both, is equal.
        equal = float(np.mean([is_equal is not False for _, is_equal in compared]))
    difference = float(np.max([number for number, _ in compared]))
    agreement = Agreement(len(rows), equal, difference, **scores, cosine=cosine, time_ratio=ratio)
    _warn_of_changes(agreement, dev, precision)
    return agreement


def _mean_cosine(vectors, reference):
    products = vectors.multiply(reference).sum(axis=1)
    squares = vectors.multiply(vectors).sum(axis=1) * reference.multiply(reference).sum(axis=1)
    return float(np.mean(products / np.maximum(np.sqrt(squares), 1e-12)))


def rows_of(examples, predictor):
    """Return the data as a list of inputs for the pipeline of a predictor."""
    columns = predictor.task.columns_of(examples, predictor.task_model.output)
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def differences(value, reference):
    """Compare two results: numbers, dense or sparse arrays, words, or lists and dicts of them.

    Return the largest difference of two numbers, and if all words are equal; `None` without words.
    """
    if isinstance(reference, (float, np.floating, np.ndarray)):
        return float(np.max(np.abs(np.subtract(value, reference)), initial=0)), None
    if scipy.sparse.issparse(reference):
        return float(abs(value - reference).max()), None
    if isinstance(reference, dict) and value.keys() == reference.keys():
        return differences(_values_of(value), _values_of(reference))
    is_list = isinstance(reference, list) and isinstance(value, list)
    if not is_list or len(value) != len(reference):
        return 0.0, value == reference
    parts = [differences(*pair) for pair in zip(value, reference, strict=True)]
    words = [is_equal for _, is_equal in parts if is_equal is not None]
    difference = float(np.max([number for number, _ in parts], initial=0))  # NaN stays NaN
    return difference, all(words) if words else None


def _values_of(result):
    """Return the values of a result; a label, which can be a number, as a word."""
    return [str(value) if name == "label" else value for name, value in result.items()]


def _warn_of_changes(agreement, dev, precision):
    """Warn if the lower precision changes the answers too much on the dev data."""
    change = None
    points = 100 * (agreement.float32_score - agreement.score)
    if agreement.metric is not None:
        if not points <= _MAX_POINTS + 1e-6:  # 0.9 - 0.89 is a little more than 0.01; or NaN
            change = f"loses {points:.1f} points of {agreement.metric.replace('_', ' ')}"
    elif agreement.equal is not None and 100 * (1 - agreement.equal) > _MAX_POINTS + 1e-6:
        change = f"changes {1 - agreement.equal:.1%} of the answers"
    elif agreement.cosine is not None and agreement.cosine < _MIN_COSINE:
        change = f"has a mean cosine similarity of {agreement.cosine:.3f} with float32"
    if change is not None:
        warnings.warn(
            f"{dev.source}: {precision} {change}. Export in float32 if that is too much",
            stacklevel=level_of_caller(),
        )


def _same_shape(value, wanted):
    """Return two arrays of the same rank with zeros at the end of shorter axes."""
    shape = np.maximum(value.shape, wanted.shape)
    return tuple(
        np.pad(array, [(0, size - axis) for size, axis in zip(shape, array.shape, strict=True)])
        for array in (value, wanted)
    )


def _tolerance(model, precision):
    """Return the tolerance for the dtypes of a model and the device that computes it."""
    dtypes = {precision, *(layer.compute_dtype for layer in keras_private.all_layers(model))}
    if distribution.has_accelerator() or dtypes & {"bfloat16", "float16"}:
        return _TOLERANCE_16_BITS
    return _TOLERANCE
