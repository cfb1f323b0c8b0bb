"""Heads: the contract on each backend, labels, and what a head refuses."""

import keras
import numpy as np
import pytest

from keras_bert import heads
from tests import contract as promises


@pytest.fixture
def encoder():
    return promises.build("encoder")


@pytest.mark.parametrize("head", promises.HEADS)
def test_contract(contract, backend, head):
    contract(head, backend)


def test_a_classifier_is_a_plain_functional_model_with_labels(encoder):
    model = heads.classifier(encoder, 2)
    assert type(model) is type(keras.Model(encoder.input, encoder.output))
    assert heads.find_encoder(model) is encoder
    output = heads.find_output(model)
    assert (output.task, output.labels) == ("classifier", ["0", "1"])
    model = heads.classifier(encoder, labels=["no", "yes", 3])
    assert heads.find_output(model).labels == ["no", "yes", "3"]
    assert model.output_shape == (None, 3)


def test_a_head_shares_the_encoder_and_its_weights(encoder):
    model = heads.classifier(encoder, 2)
    shared = {id(v) for v in encoder.trainable_variables}
    own = [v.path for v in model.trainable_variables if id(v) not in shared]
    assert own == ["logits/kernel", "logits/bias"]
    assert shared < {id(v) for v in model.trainable_variables}


def test_a_classifier_reads_the_pooled_output(encoder):
    model = heads.classifier(encoder, 3)
    inputs = promises.batch()
    logits = model.get_layer("logits")
    expected = encoder(inputs)["pooled_output"] @ logits.kernel + logits.bias
    np.testing.assert_allclose(model(inputs), expected, atol=1e-6)


@pytest.mark.parametrize("given, expected", [(None, 0.2), (0.0, 0.0), (0.7, 0.7)])
def test_dropout_is_the_encoders_unless_given(encoder, given, expected):
    assert heads.classifier(encoder, 2, dropout=given).get_layer("dropout").rate == expected


def test_dropout_only_in_training(encoder):
    model = heads.classifier(encoder, 2, dropout=0.9)
    inputs = promises.batch()
    np.testing.assert_array_equal(model(inputs), model(inputs, training=False))
    assert (model(inputs, training=True).numpy() != model(inputs, training=True).numpy()).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "at least 2 classes; received 0"),
        ({"num_classes": 1}, "at least 2 classes; received 1"),
        (
            {"num_classes": 3, "labels": ["a", "b"]},
            "a classifier for 3 classes needs as many labels; received 2",
        ),
        ({"labels": ["a", "b", "a"]}, "may occur once; received 'a' twice"),
        ({"labels": [1, "1"]}, "may occur once; received '1' twice"),
    ],
)
def test_classifier_errors(encoder, options, message):
    with pytest.raises(ValueError, match=message):
        heads.classifier(encoder, **options)


def test_find_encoder_errors(encoder):
    nothing = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="has 0"):
        heads.find_encoder(nothing)
    other = promises.build("encoder", name="other")
    a, b = encoder(encoder.input), other(encoder.input)
    both = keras.Model(encoder.input, [a["pooled_output"], b["pooled_output"]])
    with pytest.raises(ValueError, match="has 2"):
        heads.find_encoder(both)


def test_find_output_of_a_model_without_one(encoder):
    assert heads.find_output(encoder) is None
    assert heads.find_output(heads.classifier(encoder, 2)) is not None


def test_a_head_fits_and_learns(encoder):
    model = heads.classifier(encoder, 2, dropout=0.0)
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 40, (32, 6))
    label = rng.integers(0, 2, 32)
    ids[:, 2] = 3 + label  # one piece tells
    inputs = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    model.compile(
        keras.optimizers.Adam(3e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
    model.fit(inputs, label, batch_size=16, epochs=30, verbose=0)
    assert model.evaluate(inputs, label, verbose=0, return_dict=True)["accuracy"] > 0.95
