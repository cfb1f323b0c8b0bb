"""Tests of exported SavedModels in another process and another folder, as users run them."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from tests import tiny

TEXTS = ["this film is good!", "", "so bad", "한국어 " * 40, "\x00\ufffd", "good " * 500]
# A client without Keras and tensorflow-text.
CLIENT = """
import json, sys
import numpy as np
import tensorflow as tf
served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
answers = served(**{k: tf.constant(v, tf.string) for k, v in json.loads(sys.argv[2]).items()})
print(json.dumps({k: v.numpy().tolist() if v.dtype != tf.string
                  else [s.decode() for s in v.numpy()] for k, v in answers.items()}))
assert "keras_bert" not in sys.modules and "tensorflow_text" not in sys.modules
"""


def run(program, *arguments):
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


@pytest.fixture(scope="module")
def classifier():
    keras.utils.set_random_seed(1)
    return keras_bert.heads.classifier(tiny.encoder(), labels=["bad", "good", "좋음"])


@pytest.fixture(scope="module")
def exported(classifier, tmp_path_factory):
    """The folder of the version, moved to another place."""
    written = keras_bert.export(classifier, tmp_path_factory.mktemp("models") / "reviews")
    moved = tmp_path_factory.mktemp("elsewhere") / "1"
    shutil.move(written, moved)
    return moved


def expected_probabilities(model, texts, pairs=()):
    preprocessor = keras_bert.heads.find_encoder(model).preprocessor
    tokens = [preprocessor.tokenizer.tokenize(item) for item in (texts, *pairs)]
    inputs = preprocessor.pack(*tokens, sequence_length=32, max_sequence_length=32)
    return tf.nn.softmax(model(inputs, training=False)).numpy()


@pytest.mark.slow
def test_process_with_only_tensorflow(classifier, exported):
    answers = json.loads(run(CLIENT, exported, json.dumps({"text": TEXTS})))
    expected = expected_probabilities(classifier, TEXTS)
    np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)
    labels = ["bad", "good", "좋음"]
    assert answers["label"] == [labels[row.argmax()] for row in expected]
    np.testing.assert_allclose(answers["score"], expected.max(axis=1), atol=1e-5)


def test_invalid_utf8(classifier, exported):
    served = tf.saved_model.load(str(exported)).signatures["serving_default"]
    broken = served(text=tf.constant([b"good\xff\xfe film", b"\xed\xa0\x80"]))
    np.testing.assert_allclose(
        broken["probabilities"], expected_probabilities(classifier, ["good film", ""]), atol=1e-5
    )


def test_texts_are_padded_to_the_longest_of_the_batch(tmp_path, monkeypatch):
    model = keras_bert.heads.classifier(tiny.encoder(), 2)
    calls = []
    pack = keras_bert.Preprocessor.pack

    def spy(self, *ids, **options):
        calls.append(options)
        return pack(self, *ids, **options)

    monkeypatch.setattr(keras_bert.Preprocessor, "pack", spy)
    keras_bert.export(model, tmp_path)
    assert calls
    assert all(options == {"sequence_length": None, "max_sequence_length": 32} for options in calls)


def test_ids_signature(classifier, exported):
    ids = tf.saved_model.load(str(exported)).signatures["ids"]
    inputs = classifier_inputs = keras_bert.heads.find_encoder(classifier).preprocessor(
        ["this film is good!"]
    )
    answer = ids(**inputs)
    expected = tf.nn.softmax(classifier(classifier_inputs, training=False))
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)


@pytest.mark.slow
def test_next_version_has_no_optimizer(tmp_path):
    model = keras_bert.heads.classifier(tiny.encoder(), 2)
    keras_bert.export(model, tmp_path / "model")
    model.compile(keras_bert.optimizers.adamw(1e-3, total_steps=2), "mse")
    inputs = keras_bert.heads.find_encoder(model).preprocessor(["good"])
    model.fit(inputs, np.zeros((1, 2)), verbose=0)
    (tmp_path / "model" / "7").mkdir()
    version = keras_bert.export(model, tmp_path / "model")
    assert version == tmp_path / "model" / "8"
    checkpoint = str(version / "variables" / "variables")
    names = [name for name, _ in tf.train.list_variables(checkpoint)]
    assert not [name for name in names if "optimizer" in name or "momentum" in name]
    sizes = [
        (tmp_path / "model" / v / "variables" / "variables.data-00000-of-00001").stat().st_size
        for v in ("1", "8")
    ]
    assert sizes[0] == sizes[1]


def test_functional_model_on_strings(tmp_path):
    bert = tiny.encoder()
    text = keras.Input(shape=(), dtype="string", name="text")  # its tensor has a different name
    stars = keras.Input(shape=(1,), name="stars")
    x = bert(bert.preprocessor(text))["pooled_output"]
    x = keras.layers.Concatenate()([x, stars])
    model = keras.Model([text, stars], keras.layers.Dense(2, name="answer")(x))
    version = keras_bert.export(model, tmp_path)
    loaded = tf.saved_model.load(str(version))
    values = tf.constant(["good film"]), tf.constant([[3.0]])
    answer = loaded.signatures["serving_default"](text=values[0], stars=values[1])
    np.testing.assert_allclose(answer["answer"], model(list(values)), atol=1e-5)
    np.testing.assert_array_equal(loaded(*values), answer["answer"])


def test_outputs_need_different_names(tmp_path):
    bert = tiny.encoder(num_hidden_layers=1)
    text = keras.Input(shape=(), dtype="string", name="text")
    inner = keras.Model(bert.input, bert.output["pooled_output"], name="inner")
    tokens = bert.preprocessor(text)
    model = keras.Model(text, [inner(tokens), inner(tokens)], name="twins")
    with pytest.raises(ValueError, match="outputs of 'twins' have the same name: inner, inner"):
        keras_bert.export(model, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("failure", [OSError("No space left on device"), KeyboardInterrupt()])
def test_failed_export_leaves_no_files(classifier, tmp_path, monkeypatch, failure):
    def save_half(module, folder, signatures):
        pathlib.Path(folder, "saved_model.pb").write_bytes(b"half")
        raise failure

    monkeypatch.setattr(tf.saved_model, "save", save_half)
    with pytest.raises(type(failure)):
        keras_bert.export(classifier, tmp_path / "new" / "model")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_models_that_cannot_be_exported(tmp_path):
    bert = tiny.encoder()
    with pytest.raises(ValueError, match="must end in a head"):
        keras_bert.export(keras_bert.heads.features(bert, -1), tmp_path / "x")
    bert.preprocessor = None
    with pytest.raises(ValueError, match="has no vocabulary"):
        keras_bert.export(keras_bert.heads.classifier(bert, 2), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_other_backends_are_an_error(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="needs TensorFlow, .*this process runs jax"):
        keras_bert.export(classifier, tmp_path)


@pytest.mark.filterwarnings("ignore:.* texts were truncated")
def test_bfloat16_and_its_agreement_in_the_card(classifier, tmp_path):
    dev = keras_bert.Examples(TEXTS * 10)
    version = keras_bert.export(classifier, tmp_path, precision="bfloat16", dev=dev)
    answers = tf.saved_model.load(str(version)).signatures["serving_default"](text=TEXTS)
    expected = expected_probabilities(classifier, TEXTS)
    difference = np.abs(answers["probabilities"] - expected).max()
    assert 0 < difference < 0.01
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| precision | bfloat16 |" in card
    assert re.search(
        r"on 60 examples, .* of the answers are equal, .* of the time of float32", card
    )


def test_bfloat16_stores_the_word_embeddings_of_a_masked_lm_once(tmp_path):
    model = keras_bert.heads.masked_lm(tiny.encoder(hidden_size=256, initializer_range=0.3))
    folders = {
        precision: keras_bert.export(model, tmp_path / precision, precision=precision)
        for precision in ("float32", "bfloat16")
    }
    loaded = tf.saved_model.load(str(folders["bfloat16"]))
    table = (model.layers[-2].vocab_size, 256)
    found = [variable.dtype for variable in loaded.model_variables if variable.shape == table]
    assert found == [tf.bfloat16]
    answers = [
        tf.saved_model.load(str(folder)).signatures["serving_default"](
            text=tf.constant(["so [MASK] a film", "[MASK]"])
        )["scores"]
        for folder in folders.values()
    ]
    np.testing.assert_allclose(*answers, atol=0.02)


def test_the_precision_of_an_encoder_is_not_an_option(tmp_path):
    with pytest.raises(ValueError, match="does not apply to encoders and pretraining models"):
        keras_bert.export(tiny.encoder(), tmp_path / "a", precision="bfloat16")
