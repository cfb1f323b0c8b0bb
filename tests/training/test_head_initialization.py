"""The first weights of a new head."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.data.examples import Examples
from keras_bert.tasks import head_start, registry
from keras_bert.tasks.classification.task import Classification
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.tasks.tagging.data import TaggedSentences
from keras_bert.tasks.tagging.task import Tagging
from keras_bert.training import finetuning, head_initialization
from tests import tiny

tagging = Tagging()

classification = Classification()

TEXTS = ["good", "bad", "film film", "this a"] * 50
KINDS = {
    "two labels": Examples(TEXTS, labels=["good", "bad"] * 100),
    "three labels": Examples(TEXTS, labels=["a", "b", "c", "b"] * 50),
    "label sets": Examples(TEXTS, label_sets=[["a"], ["b"], ["a", "c"], ["b", "c"]] * 50),
    "scores": Examples(TEXTS, scores=[1, -1, 2, -2] * 50),
    "tags": TaggedSentences(
        [["this", "good", "film"], ["bad", "films"], ["so", "goodly"]] * 20,
        [["O", "B-a", "O"], ["B-b", "O"], ["O", "B-a"]] * 20,
    ),
}


@pytest.fixture(autouse=True)
def quick(eager):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_the_frozen_model_already_knows_the_labels(kind):
    examples = KINDS[kind]
    model = registry.for_data(examples).build(
        tiny.learner(pooling=None if kind == "tags" else "mean"), examples
    )
    before = model.get_weights()
    encoded = KerasPredictor(model).encode(examples, 32)
    head_initialization.initialize_head(model, encoded, 0)
    scores = keras_bert.evaluate(model, examples)
    assert next(iter(scores.values())) > 0.7
    changed = [
        weight.path for weight, old in zip(model.weights, before, strict=True)
        if (keras.ops.convert_to_numpy(weight) != old).any()
    ]  # fmt: skip
    assert len(changed) == 2 and all("logits" in path for path in changed)


@pytest.mark.parametrize("count", [2, 501])
def test_examples_without_weight_say_nothing(count):
    output = heads.TaskOutput("classification", labels=list(map(str, range(count))))
    vectors = np.eye(4)
    for targets in (np.array([0, 1, 0, 1]), np.eye(4, count)):
        columns = head_start.fit_labels(output, vectors, targets, np.zeros(4))
        assert columns == [None] * count
    assert head_start.fit_number(output, vectors, np.arange(4.0), np.zeros(4)) == [None]


def test_logits_of_two_classes_are_those_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    examples = KINDS["two labels"]
    model = classification.build(tiny.learner(pooling="mean"), examples)
    head_initialization.initialize_head(model, KerasPredictor(model).encode(examples, 32), 0)
    pooled = keras.Model(model.input, model.get_layer("pooling").output)
    inputs = heads.find_encoder(model).preprocessor(TEXTS)
    vectors = keras.ops.convert_to_numpy(pooled(inputs))
    fitted = LogisticRegression(max_iter=1000).fit(vectors, examples.labels)
    found = keras.ops.convert_to_numpy(keras.ops.softmax(model(inputs)))
    np.testing.assert_allclose(found, fitted.predict_proba(vectors), atol=1e-3)


@pytest.mark.parametrize(
    ("pooling", "examples"),
    [
        (None, KINDS["two labels"]),  # that of the encoder is not that of the head
        ("cls", KINDS["two labels"]),
        ("mean", Examples(TEXTS, label_sets=[["good", "bad"]] * 200)),  # no text without a label
    ],
)
def test_other_heads_keep_their_random_weights(pooling, examples):
    model = heads.classifier(
        tiny.encoder(pooling=pooling), labels=["good", "bad"], pooling="mean",
        multi_label=examples.labels is None,
    )  # fmt: skip
    before = model.get_weights()
    head_initialization.initialize_head(model, KerasPredictor(model).encode(examples, 32), 0)
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_finetune_starts_a_new_head_only():
    examples, options = KINDS["two labels"], {"epochs": 1, "learning_rate": 0, "max_length": 16}
    encoder = tiny.learner(pooling="mean")
    model, metrics = finetuning.finetune(
        encoder, examples, examples, show_progress=False, **options
    )
    assert metrics["accuracy"] > 0.7
    given = heads.classifier(encoder, labels=["bad", "good"])
    before = given.get_layer("logits").get_weights()
    finetuning.finetune(given, examples, show_progress=False, **options)
    for weight, old in zip(given.get_layer("logits").get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


@pytest.mark.parametrize("texts_per_class", [1, 3])
def test_heads_of_hundreds_of_labels(texts_per_class):
    classes = 600  # more than a regression fits
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(classes, 32))
    targets = np.tile(np.arange(classes), texts_per_class)
    vectors = centers[targets] + 0.1 * generator.normal(size=(len(targets), 32))
    output = heads.TaskOutput("classification", labels=range(classes))
    for rows in (targets, np.eye(classes, dtype="float32")[targets]):  # labels, and label sets
        columns = head_start.fit_labels(output, vectors, rows, np.ones(len(vectors)))
        kernel, bias = (np.array(part) for part in zip(*columns, strict=True))
        predicted = (centers @ kernel.T + bias).argmax(axis=1)
        assert np.mean(predicted == np.arange(classes)) > 0.9
