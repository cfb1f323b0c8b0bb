"""Tasks of whole texts: targets, weights, answers, metrics, and lines of a file."""

import numpy as np
import pytest

from keras_bert import heads
from keras_bert.finetuning import texts
from keras_bert.finetuning.data import Examples
from tests import tiny

TEXTS = ["good", "bad film", "", "so good"]


@pytest.fixture
def classifier():
    return heads.classifier(tiny.encoder(), labels=["bad", "good"])


def test_targets_follow_the_models_labels(classifier):
    examples = Examples(TEXTS, labels=["good", "bad", "good", "bad"])
    inputs, targets, weights = texts.encode(classifier, examples, 8).batch([2, 0], 4)
    assert targets.tolist() == [1, 1]
    assert weights.tolist() == [1.0, 1.0]
    assert inputs["input_word_ids"].tolist() == [[2, 3, 0, 0], [2, 5, 3, 0]]
    model = heads.classifier(tiny.encoder(), labels=["x", "y", "z"], multi_label=True)
    sets = Examples(TEXTS, label_sets=[["z", "x"], [], ["y"], ["z"]])
    _, targets, _ = texts.encode(model, sets, 8).batch([0, 1], 4)
    assert targets.tolist() == [[1, 0, 1], [0, 0, 0]]
    model = heads.regressor(tiny.encoder())
    _, targets, _ = texts.encode(model, Examples(TEXTS, scores=[1, 2, 3, 4]), 8).batch([3], 4)
    assert targets.tolist() == [[4.0]]


def test_class_weights(classifier):
    examples = Examples(TEXTS, labels=["good", "good", "good", "bad"])
    encoded = texts.encode(classifier, examples, 8, class_weight="balanced")
    weights = encoded.batch([0, 1, 2, 3], 4)[2]
    np.testing.assert_allclose(weights, [2 / 3] * 3 + [2])  # each label weighs two of four texts
    encoded = texts.encode(classifier, examples, 8, class_weight={"bad": 5})
    assert encoded.batch([0, 3], 4)[2].tolist() == [1, 5]
    with pytest.raises(ValueError, match="class_weight names 'odd', which is no label"):
        texts.encode(classifier, examples, 8, class_weight={"odd": 1})
    with pytest.raises(ValueError, match="classifiers with one label a text"):
        scores = Examples(TEXTS, scores=[1, 2, 3, 4])
        texts.encode(heads.regressor(tiny.encoder()), scores, 8, class_weight="balanced")


def test_what_does_not_fit_the_model_is_an_error(classifier):
    with pytest.raises(ValueError, match="f: has the label 'odd', which is none of the model's"):
        texts.encode(classifier, Examples(["a"], labels=["odd"], source="f"), 8)
    with pytest.raises(ValueError, match="reads single texts; f has pairs of texts"):
        texts.encode(classifier, Examples(["a"], ["b"], source="f"), 8)
    with pytest.raises(ValueError, match="f: has no labels to learn from"):
        texts.build(tiny.encoder(), Examples(["a"], source="f"))
    with pytest.raises(ValueError, match="at least two labels to tell apart; received only 'x'"):
        texts.build(tiny.encoder(), Examples(["a"], labels=["x"]))


def test_texts_that_are_cut_are_counted(classifier):
    encoded = texts.encode(classifier, Examples(["good " * 30, "good"]), 8)
    assert (encoded.truncated, encoded.lengths.tolist()) == (1, [8, 3])


def probabilities(*best):
    """Answers of a classifier of two or three labels, sure of the given ones."""
    return np.eye(max(best) + 1)[list(best)] * 0.8 + 0.1


def test_metrics_of_two_labels(classifier):
    examples = Examples(["a"] * 5, labels=["good", "good", "good", "bad", "bad"])
    found = texts.score(classifier, examples, probabilities(1, 1, 0, 1, 0))
    # Of good: 2 right, 1 missed, 1 too many.
    expected = {"accuracy": 3 / 5, "f1": 2 * 2 / (2 * 2 + 1 + 1), "mcc": 1 / 6, "majority": 3 / 5}
    assert list(found) == list(expected)
    np.testing.assert_allclose(list(found.values()), list(expected.values()))


def test_metrics_of_more_labels_and_of_label_sets():
    model = heads.classifier(tiny.encoder(), labels=["x", "y", "z"])
    examples = Examples(["a"] * 4, labels=["x", "y", "z", "z"])
    found = texts.score(model, examples, probabilities(0, 1, 2, 1))
    assert list(found) == ["accuracy", "macro_f1", "mcc", "majority"]
    np.testing.assert_allclose([found["accuracy"], found["macro_f1"]], [3 / 4, (1 + 4 / 3) / 3])
    model = heads.classifier(tiny.encoder(), labels=["x", "y"], multi_label=True)
    sets = Examples(["a"] * 2, label_sets=[["x"], ["x", "y"]])
    found = texts.score(model, sets, np.array([[0.9, 0.1], [0.6, 0.4]]))
    assert list(found) == ["micro_f1", "macro_f1", "exact_match"]
    np.testing.assert_allclose(list(found.values()), [4 / 5, 1 / 2, 1 / 2])


def test_metrics_of_numbers():
    model = heads.regressor(tiny.encoder())
    examples = Examples(["a"] * 4, scores=[1, 2, 3, 5])
    found = texts.score(model, examples, np.array([1.0, 2.0, 3.0, 9.0]))
    np.testing.assert_allclose(found["pearson"], np.corrcoef([1, 2, 3, 5], [1, 2, 3, 9])[0, 1])
    np.testing.assert_allclose([found["spearman"], found["rmse"]], [1.0, 2.0])
    # The same for all has no correlation; that is no reason for a warning.
    assert texts.score(model, examples, np.ones(4))["pearson"] == 0.0


def test_lines_of_a_file(classifier):
    assert texts.header(classifier) == "label\tscore"
    assert list(texts.lines(classifier, None, probabilities(1, 0)))[0] == "good\t0.9000"
    model = heads.classifier(tiny.encoder(), labels=["x", "y"], multi_label=True)
    assert texts.header(model) == "labels\tx\ty"
    rows = np.array([[0.9, 0.5], [0.1, 0.2]])
    assert list(texts.lines(model, None, rows)) == ["x,y\t0.9000\t0.5000", "\t0.1000\t0.2000"]
    model = heads.regressor(tiny.encoder())
    assert texts.header(model) == "score"
    assert list(texts.lines(model, None, np.array([2.5]))) == ["2.5000"]
