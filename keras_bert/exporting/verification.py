"""Open an export with the engine that serves it, and compare its outputs with those of the model.

Every exporter calls this module before its folder gets its name. So a graph that cannot be opened,
or that computes something else than the model, is an error of `keras_bert.export`.
"""

import math

import keras
import numpy as np

from keras_bert import keras_private
from keras_bert.exporting import graph_folder, graph_outputs
from keras_bert.model_structure import find_encoder, find_output
from keras_bert.runtime import distribution
from keras_bert.tasks.activations import sigmoid, softmax

# Texts at the borders of the tokenizers. The first one has a word for every model.
TEXTS = ("a text, with [MASK].", "", "\u3000\u200b", "한국어 é 😀", "b" * 201)
_ROWS = 3
_LENGTH = 7  # tokens of a row; no other axis of the sample has this size
_CHOICES = 2
# Largest difference of two numbers, as a fraction of the largest of their output.
_TOLERANCE = 1e-3
_TOLERANCE_16_BITS = 0.2  # a GPU or TPU multiplies float32 in about 16 bits, too
NOT_WRITTEN = "It was not written. Choose another format, and report this as a bug of keras_bert"
# Outputs of a Keras model -> names in a graph, if they differ.
GRAPH_NAMES = {
    "sequence_output": "last_hidden_state",
    "pooled_output": "pooler_output",
    "masked_lm": "prediction_logits",
    "next_sentence": "seq_relationship_logits",
}


def sample_inputs(model):
    """Return ids for the inputs of a model: rows of 1 to `_LENGTH` tokens, a dict of int32 arrays.

    Inputs that `keras_bert.heads` does not make are zeros.
    """
    config = find_encoder(model).bert_config
    generator = np.random.default_rng(0)
    length = min(_LENGTH, config["max_position_embeddings"])
    shape = (_ROWS, length)
    if len(model.input["input_mask"].shape) == 3:
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


def outputs_of(model, inputs):
    """Return the outputs of a Keras model by their names in a graph; `""` for a single one."""
    outputs = model({name: keras.ops.convert_to_tensor(inputs[name]) for name in inputs})
    if not isinstance(outputs, dict):
        outputs = {"": outputs}
    return {
        GRAPH_NAMES.get(name, name): keras.ops.convert_to_numpy(keras.ops.cast(output, "float32"))
        for name, output in outputs.items()
        if not isinstance(output, (list, tuple))
    }


def check_graph(session, model, task):
    """Check that a `graph_session.Session` of an ONNX or OpenVINO file computes the model."""
    inputs = sample_inputs(model)
    expected = outputs_of(model, inputs)
    if "" in expected:
        [name] = task.graph_outputs
        expected = {name: expected[""]}
    names = list(expected)
    graph_inputs = graph_outputs.graph_inputs(inputs)
    [(_, values)] = session.run([graph_inputs], names)
    actual = dict(zip(names, values, strict=True))
    check_equal(actual, expected, model, mask=inputs["input_mask"])


def check_litert(runner, model, is_exact):
    """Check that the signature of a LiteRT file computes the model.

    If it is not exact, as with 8 bits, only check that the outputs are numbers.
    """
    inputs = sample_inputs(model)
    actual = runner(**{graph_folder.INPUTS.get(name, name): inputs[name] for name in inputs})
    if not is_exact:
        _check_finite(actual)
        return
    expected = outputs_of(model, inputs)
    if "" in expected:
        [name] = actual
        logits = expected.pop("")
        expected[name] = logits
        if name == "probabilities":
            expected[name] = sigmoid(logits) if find_output(model).multi_label else softmax(logits)
    check_equal(actual, expected, model, mask=inputs["input_mask"])


def check_signature(signature, inputs, compute, model, precision=None, mask=None):
    """Check that a signature of a loaded SavedModel computes what a function of tensors does.

    Args:
        signature: A function of tensors by name, which returns a dict.
        inputs: Arrays by name.
        compute: The function of a dict of tensors; it calls `model`.
        model, precision, mask: As in `check_equal`.
    """
    import tensorflow as tf

    tensors = {name: tf.constant(array) for name, array in inputs.items()}
    actual = {name: output.numpy() for name, output in signature(**tensors).items()}
    expected = {name: output.numpy() for name, output in compute(tensors).items()}
    check_equal(actual, expected, model, precision, mask)


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


def check_is_finite(session, model, task):
    """Check that a `graph_session.Session` of 8 bits, which is inexact, computes numbers."""
    inputs = sample_inputs(model)
    names = list(session.widths if task is None else task.graph_outputs)
    [(_, values)] = session.run([graph_outputs.graph_inputs(inputs)], names)
    _check_finite(dict(zip(names, values, strict=True)))


def _check_finite(outputs):
    for name, value in outputs.items():
        if not np.isfinite(value).all():
            raise ValueError(f"int8 computes NaN or infinity for {name}. {NOT_WRITTEN}")


def check_equal(actual, expected, model, precision=None, mask=None):
    """Check that the floats of two dicts of arrays (batch, ...) are equal within the tolerance.

    Args:
        actual, expected: Outputs by name. Rows of one may have more zeros at their end.
        model: The `keras.Model`, whose dtypes decide the tolerance.
        precision: That of the export, if it is another one.
        mask: 1 at tokens. Outputs with these axes are meaningless at 0.

    Raises:
        ValueError: If they are not.
    """
    tolerance = _tolerance(model, precision)
    for name, reference in expected.items():
        if reference.dtype.kind != "f":
            continue
        value, wanted = _same_shape(np.asarray(actual[name], np.float32), reference)
        if mask is not None and wanted.shape[: mask.ndim] == mask.shape:
            value = value[mask != 0]
            wanted = wanted[mask != 0]
        is_number = np.isfinite(wanted)  # a model in float16 may return infinity
        difference = np.abs(value - wanted)[is_number].max(initial=0)
        limit = tolerance * max(1.0, np.abs(wanted[is_number]).max(initial=0))
        if not difference <= limit:  # NaN is not
            raise ValueError(
                f"the export computes something else than {model.name!r}: the difference of "
                f"{name or 'its output'} is {difference:.2g}. {NOT_WRITTEN}"
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
