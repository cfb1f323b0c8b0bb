"""Tests of the inference graph. The reference is the Keras model itself."""

import os
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework.test_util import IsMklEnabled

import keras_bert
from keras_bert import heads
from keras_bert.runtime import processor
from keras_bert.tasks import inference_graph
from tests import tiny

_TOKENS = np.array([[2, 5, 7, 3, 0, 0], [2, 6, 9, 10, 8, 3], [2, 3, 0, 0, 0, 0]], np.int32)


def batch(mask=None):
    """Return encoder inputs (3, 6), by default with a mask of the tokens."""
    mask = (_TOKENS > 0).astype(np.int32) if mask is None else np.array(mask, np.int32)
    types = np.tile(np.array([0, 0, 0, 1, 1, 1], np.int32), (3, 1))
    return {"input_word_ids": _TOKENS, "input_mask": mask, "input_type_ids": types}


def compute(model, inputs, **options):
    """Run the inference graph of a model."""
    function = graph(inference_graph.forward_function(model, **options), inputs)
    return keras.tree.map_structure(np.array, function(inputs))


def graph(forward, inputs):
    """Make one graph for batches of all shapes, as in an export."""
    specs = {key: tf.TensorSpec([None] * value.ndim, tf.int32) for key, value in inputs.items()}
    return tf.function(forward, input_signature=[specs], autograph=False)


def assert_equal_to_encoder(
    encoder, inputs, atol=1e-5, precision="float32", frozen=False, skip_padding=True
):
    """Compare with the outputs of the encoder: the vectors of [CLS] and of all tokens."""
    encode = inference_graph._Encoder(encoder, precision, frozen)
    encode.skip_padding = skip_padding
    found = keras.tree.map_structure(np.array, graph(encode, inputs)(inputs))
    expected = keras.tree.map_structure(np.array, encoder(inputs, training=False))
    is_token = inputs["input_mask"] != 0
    is_token[:, 0] = True
    is_token |= not skip_padding
    np.testing.assert_allclose(found["pooled_output"], expected["pooled_output"], atol=atol)
    for name in ("sequence_output", "encoder_outputs"):
        for one, other in zip(*map(keras.tree.flatten, (found[name], expected[name])), strict=True):
            np.testing.assert_allclose(one[is_token], other[is_token], atol=atol)
            assert not one[~is_token].any()


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new", "relu"])
def test_outputs_equal_those_of_the_encoder(frozen, hidden_act):
    encoder = tiny.encoder(initializer_range=1.0, hidden_act=hidden_act)
    assert_equal_to_encoder(encoder, batch(), frozen=frozen)


@pytest.mark.parametrize("skip_padding", [True, False])
@pytest.mark.parametrize(
    "mask",
    [
        np.zeros((3, 6)),
        np.ones((3, 6)),
        [[0, 0, 1, 1, 0, 0], [1, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 1]],
        [[2, -1, 0, 0, 0, 3]] * 3,
    ],
    ids=["all padding", "no padding", "gaps", "other numbers"],
)
def test_any_mask(mask, skip_padding):
    encoder = tiny.encoder(initializer_range=1.0)
    assert_equal_to_encoder(encoder, batch(mask), skip_padding=skip_padding)


def test_an_activation_that_was_changed():
    encoder = tiny.encoder(pooling="mean")
    before = keras_bert.pipeline(encoder)(["so good"])
    for layer in encoder.layers:
        if isinstance(layer, keras_bert.layers.TransformerBlock):
            layer.activation = keras.activations.relu
    after = keras_bert.pipeline(encoder)(["so good"])
    assert np.abs(after - before).max() > 1e-4


def test_a_large_epsilon():
    """TensorFlow can replace a LayerNorm by a kernel whose epsilon is always 0.001."""
    encoder = tiny.encoder(initializer_range=0.001, layer_norm_eps=1e-4)
    assert_equal_to_encoder(encoder, batch(), frozen=True)
    assert_equal_to_encoder(encoder, batch())


def test_sequences_beyond_the_position_embeddings_are_an_error():
    inputs = dict.fromkeys(batch(), np.ones((1, 33), np.int32))
    with pytest.raises(tf.errors.InvalidArgumentError):
        compute(tiny.encoder(), inputs)


def test_a_head_of_your_own():
    encoder = tiny.encoder(initializer_range=1.0)
    x = encoder(encoder.input)
    both = keras.layers.Concatenate()([x["pooled_output"], x["encoder_outputs"][0][:, 0]])
    model = keras.Model(encoder.input, keras.layers.Dense(2)(both))
    np.testing.assert_allclose(compute(model, batch()), model(batch()), atol=1e-5)


def test_a_head_on_the_pooled_vector():
    inputs = batch([[0] * 6, [1, 1, 1, 1, 0, 0], [0, 1, 0, 0, 0, 0]])
    model = heads.regressor(tiny.encoder(initializer_range=1.0))
    np.testing.assert_allclose(compute(model, inputs), model(inputs), atol=1e-5)


@pytest.mark.parametrize("frozen", [True, False])
def test_bfloat16(frozen):
    encoder = tiny.encoder(initializer_range=0.3)
    assert_equal_to_encoder(encoder, batch(), 0.1, precision="bfloat16", frozen=frozen)
    difference = (
        compute(encoder, batch(), precision="bfloat16")["pooled_output"]
        - compute(encoder, batch())["pooled_output"]
    )
    assert np.abs(difference).max() > 1e-4  # it is not float32


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_weights_of_a_large_encoder_stay_variables(precision, monkeypatch):
    monkeypatch.setattr(inference_graph, "_MAX_CONSTANTS", 0)
    encoder = tiny.encoder(initializer_range=0.3)
    dense = encoder.get_layer("layer_1").intermediate
    dense.enable_lora(2)
    dense.lora_kernel_b.assign(np.ones(dense.lora_kernel_b.shape))
    atol = 1e-5 if precision == "float32" else 0.1
    assert_equal_to_encoder(encoder, batch(), atol, precision=precision, frozen=True)
    function = graph(inference_graph.forward_function(encoder, precision, frozen=True), batch())
    nodes = function.get_concrete_function().graph.as_graph_def().node
    sizes = [node.attr["value"].tensor.ByteSize() for node in nodes if node.op == "Const"]
    assert max(sizes) < 100


def test_the_precision_is_that_of_the_model():
    encoder = tiny.encoder(initializer_range=1.0, dtype="mixed_bfloat16")
    found = compute(encoder, batch())["pooled_output"]
    expected = compute(encoder, batch(), precision="bfloat16")["pooled_output"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_a_quantized_model_is_called_as_it_is():
    model = heads.classifier(tiny.encoder(initializer_range=1.0), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of layers that it does not quantize
        model.quantize("int8")
    np.testing.assert_allclose(compute(model, batch()), model(batch()), atol=1e-6)
    with pytest.raises(ValueError, match="neither quantized nor in float16"):
        inference_graph.forward_function(model, "bfloat16")


def test_a_call_with_training_true_has_no_dropout():
    encoder = tiny.encoder(initializer_range=1.0, hidden_dropout_prob=0.5)
    x = encoder(encoder.input, training=True)["pooled_output"]
    model = keras.Model(encoder.input, keras.layers.Dropout(0.5)(x, training=True))
    expected = encoder(batch(), training=False)["pooled_output"]
    np.testing.assert_allclose(compute(model, batch()), expected, atol=1e-5)


@pytest.mark.parametrize("layer", [
    keras.layers.GlobalAveragePooling1D, keras.layers.GlobalMaxPooling1D,
    lambda: keras.layers.LSTM(3), keras.layers.Flatten,
])  # fmt: skip
def test_layers_that_read_padding(layer):
    encoder = tiny.encoder(initializer_range=1.0)
    inputs = {key: keras.Input((6,), dtype="int32", name=key) for key in encoder.input}
    model = keras.Model(inputs, layer()(encoder(inputs)["sequence_output"]))
    np.testing.assert_allclose(compute(model, batch()), model(batch()), atol=2e-5)


@pytest.mark.skipif(not IsMklEnabled(), reason="TensorFlow runs without oneDNN")
def test_tensorflow_fuses_the_ops():
    encoder = tiny.encoder()
    for weight in encoder.weights:  # TensorFlow removes biases of zeros
        weight.assign(weight + 0.1)
    forward = inference_graph.forward_function(encoder, frozen=True)
    function = graph(lambda inputs: forward(inputs)["pooled_output"], batch())
    context.enable_run_metadata()
    function(batch())
    graphs = context.export_run_metadata().function_graphs
    context.disable_run_metadata()
    nodes = [node for graph in graphs for part in graph.partition_graphs for node in part.node]
    fused = [b" ".join(node.attr["fused_ops"].list.s) for node in nodes if "fused_ops" in node.attr]
    assert fused.count(b"BiasAdd GeluExact") == 2  # layers
    assert fused.count(b"BiasAdd Add") == 4  # residuals
    assert fused.count(b"Mul Add") == 2  # attention logits
    assert not [node.name for node in nodes if "Transpose" in node.op]


ALTERNATE = """
import sys
import tensorflow as tf

served = tf.saved_model.load(sys.argv[1]).signatures["ids"]
for turn in range(2):
    print("turn", turn, flush=True)
    for rows, length in ((1, 3), (1, 16), (8, 8), (32, 32), (2, 30)):
        ones = tf.ones([rows, length], tf.int32)
        served(input_word_ids=ones, input_mask=ones, input_type_ids=ones)
"""


@pytest.mark.skipif(not IsMklEnabled(), reason="TensorFlow has no oneDNN here")
@pytest.mark.slow
@pytest.mark.parametrize("precision", inference_graph.PRECISIONS)
def test_weights_are_packed_once_for_few_and_for_many_tokens(precision, tmp_path):
    if precision == "bfloat16" and "avx512_bf16" not in processor.instruction_sets():
        pytest.skip("the processor has no instructions for bfloat16")
    encoder = tiny.encoder(hidden_size=192, intermediate_size=384)
    for weight in encoder.weights:  # TensorFlow removes biases of zeros
        weight.assign(weight + 0.1)
    model = heads.classifier(encoder, 2, pooling="mean")
    path = keras_bert.export(model, tmp_path / "a", precision=precision)
    result = subprocess.run(
        [sys.executable, "-c", ALTERNATE, path],
        env={**os.environ, "ONEDNN_VERBOSE": "profile_exec", "TF_ENABLE_ONEDNN_OPTS": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, second = result.stdout.split("turn 1")
    assert ",inner_product," in first and ",inner_product," in second
    assert ",reorder," not in second
