"""Tests of exported SavedModels in another process and another folder, as users run them."""

import pathlib
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from tests import tiny

TEXTS = ["this film is good!", "", "so bad", "한국어 " * 40, "\x00\ufffd", "good " * 500]


@pytest.fixture(scope="module")
def classifier():
    keras.utils.set_random_seed(1)
    return keras_bert.heads.classifier(tiny.encoder(), labels=["bad", "good", "좋음"])


@pytest.fixture(scope="module")
def packing():
    """The options of each `Preprocessor.pack` during the export."""
    return []


@pytest.fixture(scope="module")
def exported(classifier, packing, tmp_path_factory):
    """The folder of the version, moved to another place."""
    pack = keras_bert.Preprocessor.pack

    def recorded(self, *ids, **options):
        packing.append(options)
        return pack(self, *ids, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras_bert.Preprocessor, "pack", recorded)
        written = keras_bert.export(classifier, tmp_path_factory.mktemp("models") / "reviews")
    moved = tmp_path_factory.mktemp("elsewhere") / "1"
    shutil.move(written, moved)
    return moved


def expected_probabilities(model, texts, pairs=()):
    preprocessor = keras_bert.heads.find_encoder(model).preprocessor
    tokens = [preprocessor.tokenizer.tokenize(item) for item in (texts, *pairs)]
    inputs = preprocessor.pack(*tokens, sequence_length=32, max_sequence_length=32)
    return tf.nn.softmax(model(inputs, training=False)).numpy()


def test_invalid_utf8(classifier, exported):
    served = tf.saved_model.load(str(exported)).signatures["serving_default"]
    broken = served(text=tf.constant([b"good\xff\xfe film", b"\xed\xa0\x80"]))
    np.testing.assert_allclose(
        broken["probabilities"], expected_probabilities(classifier, ["good film", ""]), atol=1e-5
    )


def test_texts_are_padded_to_the_longest_of_the_batch(exported, packing):
    assert packing
    for options in packing:
        assert options == {"sequence_length": None, "max_sequence_length": 32}


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


@pytest.mark.filterwarnings("ignore:.* texts were truncated")
def test_bfloat16_and_its_agreement_in_the_card(classifier, tmp_path):
    dev = keras_bert.Examples(TEXTS * 10)
    version = keras_bert.export(classifier, tmp_path, precision="bfloat16", dev=dev)
    loaded = tf.saved_model.load(str(version))
    answers = loaded.signatures["serving_default"](text=TEXTS)
    expected = expected_probabilities(classifier, TEXTS)
    difference = np.abs(answers["probabilities"] - expected).max()
    assert 0 < difference < 0.01
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| precision | bfloat16 |" in card
    assert re.search(
        r"on 60 examples, .* of the answers are equal, .* of the time of float32", card
    )
