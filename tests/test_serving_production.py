"""What goes beside an exported version, read with TensorFlow Serving's own protocol buffers."""

import pathlib

import keras
import pytest
import tensorflow as tf

import keras_bert
from keras_bert.serving import production
from tests import tiny


def requests(version):
    """The warm-up requests of a version: a list of (PredictRequest, its inputs as arrays)."""
    log = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    found = []
    for record in tf.data.TFRecordDataset(str(version / production.WARMUP_FILE)):
        request = log.PredictionLog.FromString(record.numpy()).predict_log.request
        found.append((request, {k: tf.make_ndarray(v) for k, v in request.inputs.items()}))
    return found


@pytest.mark.parametrize("pairs", [False, True])
def test_warmup_requests_are_answered(tmp_path, pairs):
    model = keras_bert.heads.classifier(tiny.encoder(), 2, pairs=pairs)
    version = keras_bert.export(model, tmp_path / "reviews")
    signatures = tf.saved_model.load(str(version)).signatures
    found = requests(version)
    assert len(found) == 2
    for request, inputs in found:
        assert sorted(inputs) == (["text", "text_pair"] if pairs else ["text"])
        signature = signatures[request.model_spec.signature_name]
        answer = signature(**{key: tf.constant(value) for key, value in inputs.items()})
        assert answer["probabilities"].shape == (1, 2)
    # The second is as long as the model takes, long enough for two bytes of length.
    assert len(found[1][1]["text"][0]) > 128


def test_warmup_of_a_users_own_model(tmp_path):
    bert = tiny.encoder()
    text = keras.Input(shape=(), dtype="string", name="text")
    stars = keras.Input(shape=(3,), name="stars")
    x = keras.layers.Concatenate()([bert(bert.preprocessor(text))["pooled_output"], stars])
    version = keras_bert.export(keras.Model([text, stars], keras.layers.Dense(1)(x)), tmp_path)
    for _, inputs in requests(version):
        assert inputs["text"].shape == (1,) and inputs["stars"].shape == (1, 3)
        assert inputs["stars"].dtype == "float32" and not inputs["stars"].any()


def test_the_compose_file_names_the_model(tmp_path):
    folder = tmp_path / "reviews"
    keras_bert.export(keras_bert.heads.classifier(tiny.encoder(), 2), folder)
    compose = (folder / production.COMPOSE_FILE).read_text(encoding="utf-8")
    assert "MODEL_NAME: reviews" in compose
    assert f"/models/reviews/{production.BATCHING_FILE}" in compose
    assert '{"instances": ["your text"]}' in compose
    assert pathlib.Path(folder, production.BATCHING_FILE).read_text().count("value:") == 4


def test_settings_that_are_there_stay(tmp_path):
    (tmp_path / production.COMPOSE_FILE).write_text("mine")
    production.write_settings(tmp_path, ["text", "text_pair"])
    assert (tmp_path / production.COMPOSE_FILE).read_text() == "mine"
    assert (tmp_path / production.BATCHING_FILE).exists()
