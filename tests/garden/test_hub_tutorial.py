"""TF-Hub's tutorial "Classify text with BERT" and its like, on our pair in place of Google's.

What those programs do with `hub.KerasLayer` under Keras 2 is done here: only the handles differ.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("tf_keras", reason="tf_keras is not installed")
pytest.importorskip("tensorflow_hub", reason="tensorflow-hub is not installed")
TEXTS = ["so good!", "bad film", "this is good", "so bad"] * 8
EXPORT = """
import sys
import keras_bert
from tests import tiny
encoder = tiny.encoder(
    hidden_size=16, num_hidden_layers=1, initializer_range=0.25, max_position_embeddings=160,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
encoder.preprocessor = keras_bert.Preprocessor(tiny.PIECES, max_sequence_length=160)
keras_bert.export(keras_bert.heads.pretraining(encoder), sys.argv[1])
"""


@pytest.fixture(scope="module")
def handles(tmp_path_factory):
    """Preprocessor and encoder, exported by a process with Keras 3, as this one has Keras 2."""
    folder = tmp_path_factory.mktemp("pair")
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    environment.pop("TF_USE_LEGACY_KERAS", None)
    subprocess.run([sys.executable, "-c", EXPORT, folder], check=True, env=environment)
    return str(folder / "preprocess" / "1"), str(folder / "encoder" / "1")


def build_classifier(preprocess_handle, encoder_handle):
    import tensorflow as tf
    import tensorflow_hub as hub
    import tf_keras

    text_input = tf_keras.layers.Input(shape=(), dtype=tf.string, name="text")
    encoder_inputs = hub.KerasLayer(preprocess_handle, name="preprocessing")(text_input)
    encoder = hub.KerasLayer(encoder_handle, trainable=True, name="BERT_encoder")
    net = encoder(encoder_inputs)["pooled_output"]
    net = tf_keras.layers.Dropout(0.1)(net)
    net = tf_keras.layers.Dense(1, activation=None, name="classifier")(net)
    return tf_keras.Model(text_input, net)


def test_classify_text_with_bert(handles, tmp_path):
    import tensorflow as tf
    import tf_keras

    model = build_classifier(*handles)
    labels = np.array([1, 0, 1, 0] * 8, "float32")
    before = [weight.numpy() for weight in model.trainable_weights]
    model.compile(
        tf_keras.optimizers.Adam(1e-2),
        tf_keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=tf_keras.metrics.BinaryAccuracy(threshold=0.0),
    )
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, labels)).batch(8)
    history = model.fit(dataset, epochs=15, verbose=0).history
    assert history["binary_accuracy"][-1] > 0.95
    moved = [
        np.abs(weight.numpy() - old).max()
        for weight, old in zip(model.trainable_weights, before, strict=True)
    ]
    assert sum(change > 0 for change in moved) > len(moved) - 3
    model.save(str(tmp_path / "saved"), include_optimizer=False, save_format="tf")
    again = tf.saved_model.load(str(tmp_path / "saved"))
    expected = model.predict(TEXTS[:4], verbose=0)
    found = again(tf.constant(TEXTS[:4]))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_pairs_packed_by_arguments(handles):
    """As the preprocessors' page has it: tokenize each segment, pack to a length of one's own."""
    import tensorflow as tf
    import tensorflow_hub as hub
    import tf_keras

    preprocessor = hub.load(handles[0])
    segments = [tf_keras.layers.Input(shape=(), dtype=tf.string) for _ in range(2)]
    tokenize = hub.KerasLayer(preprocessor.tokenize)
    pack = hub.KerasLayer(preprocessor.bert_pack_inputs, arguments={"seq_length": 16})
    packed = pack([tokenize(segment) for segment in segments])
    encoder = hub.KerasLayer(handles[1], trainable=False)
    outputs = encoder(packed)
    model = tf_keras.Model(segments, {**packed, "pooled": outputs["pooled_output"]})
    found = model([tf.constant(["this film", "so"]), tf.constant(["is good", "bad!"])])
    assert found["input_word_ids"].shape == (2, 16)
    assert found["input_word_ids"][0].numpy().tolist()[:7] == [2, 12, 7, 3, 13, 5, 3]
    assert found["input_type_ids"][0].numpy().tolist()[:8] == [0, 0, 0, 0, 1, 1, 1, 0]
    assert len(encoder.trainable_weights) == 0 and len(encoder.weights) > 10
