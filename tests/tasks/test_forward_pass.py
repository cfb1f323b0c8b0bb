"""A model as a function: its precision, and several passes of one model at once.

`make test-no-tensorflow` runs this file with JAX and torch.
"""

import threading

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from tests import tiny

pytestmark = pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="for JAX and torch")
TEXTS = ["this film is good!", "bad film", "so good", "so bad!"]


def classifier(**options):
    return heads.classifier(tiny.encoder(initializer_range=0.5, **options), labels=["bad", "good"])


def scores(pipeline):
    rows = [sorted(row, key=lambda row: row["label"]) for row in pipeline(TEXTS, top_k=None)]
    return np.array([[label["score"] for label in row] for row in rows])


def test_a_precision_does_not_reach_another_thread():
    model = classifier()
    expected = scores(keras_bert.pipeline(classifier()))
    block = model.get_layer("bert_encoder").get_layer("layer_0")
    activation = block.activation
    threads, results = [], []

    def compute_in_float32():
        results.append(scores(keras_bert.pipeline(model)))
        results.append(str(block.compute_dtype))

    def slow_activation(x):
        if keras.backend.standardize_dtype(x.dtype) == "bfloat16" and not threads:
            threads.append(threading.Thread(target=compute_in_float32))
            threads[0].start()
            threads[0].join()
        return activation(x)

    block.activation = slow_activation
    rounded = scores(keras_bert.pipeline(model, precision="bfloat16"))
    in_thread, dtype = results
    assert np.abs(rounded - expected).max() > 1e-5
    np.testing.assert_allclose(in_thread, expected, atol=1e-6)
    assert dtype == "float32"


def test_float32_of_an_encoder_that_computes_in_bfloat16():
    encoder = tiny.encoder(initializer_range=0.5, pooling="mean")
    expected = keras_bert.pipeline(encoder)(TEXTS)
    half = encoder.with_options(dtype="mixed_bfloat16")
    assert np.abs(keras_bert.pipeline(half)(TEXTS) - expected).max() > 1e-3
    exact = keras_bert.pipeline(half, precision="float32")(TEXTS)
    np.testing.assert_allclose(exact, expected, atol=1e-5)


def test_a_pipeline_in_a_callback_sees_the_trained_weights():
    model = classifier()
    pipeline = keras_bert.pipeline(model)
    inputs, labels, _ = tiny.encode(model, tiny.examples(), 8).batch(np.arange(16), 8)
    results = []
    callback = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: results.append(scores(pipeline))
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(inputs, labels, batch_size=8, verbose=0, callbacks=[callback])
    first, last = results
    assert np.abs(first - last).max() > 1e-6
    np.testing.assert_allclose(last, scores(pipeline), atol=1e-6)


@pytest.mark.parametrize("attribute", ["activation", "dtype_policy"])
def test_a_new_pipeline_of_a_changed_model(attribute):
    model = classifier()
    before = scores(keras_bert.pipeline(model))
    block = model.get_layer("bert_encoder").get_layer("layer_0")
    value = {"activation": keras.activations.relu, "dtype_policy": "mixed_bfloat16"}[attribute]
    setattr(block, attribute, value)
    assert np.abs(scores(keras_bert.pipeline(model)) - before).max() > 1e-6


EIGHT_DEVICES = """
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import keras
import numpy as np

import keras_bert
from keras_bert import distribution
from keras_bert.tasks.forward_pass import forward_pass
from tests import tiny

texts = ["this film is good!", "bad film", "so good", "so bad!", "film"]


def check(encoder, name, options):
    encoder.load_weights(path)
    vectors = keras_bert.pipeline(encoder, **options).encode(texts)
    largest = np.abs(vectors - expected).max()
    print(name, bool(largest < 1e-6), bool(largest < 0.05), distribution.replicas())


one = tiny.encoder(initializer_range=0.5, pooling="mean")
path = os.path.join(sys.argv[1], "one.weights.h5")
one.save_weights(path)
expected = keras_bert.pipeline(one).encode(texts)
with distribution.scope("mirrored"):
    check(one, "one:", {})  # the weights are on one device
    several = tiny.encoder(initializer_range=0.5, pooling="mean")
    check(several, "several:", {})
    check(several, "bfloat16:", {"precision": "bfloat16"})
    inputs = {name: np.ones((16, 8), np.int32) for name in several.input}
    output = forward_pass(several)(inputs)["sequence_output"]
    print("rows per device:", {shard.data.shape[0] for shard in output.addressable_shards})
check(several, "outside:", {})
"""


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX has virtual devices")
def test_the_devices_of_jax_share_a_batch(python, tmp_path):
    lines = python("-c", EIGHT_DEVICES, tmp_path, backend="jax").splitlines()
    for expected in (
        "one: True True 8",
        "several: True True 8",
        "bfloat16: False True 8",
        "rows per device: {2}",
        "outside: True True 1",
    ):
        assert expected in lines, (expected, lines)
