"""Tests of classification and regression: heads, targets, weights, answers, metrics."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from keras_bert import heads
from keras_bert.data.examples import Examples
from keras_bert.tasks.classification.task import Classification, Regression
from keras_bert.tasks.keras_predictor import KerasPredictor
from tests import tiny

classification = Classification()


def model_of(**options):
    return heads.classifier(tiny.encoder(num_hidden_layers=1), **options)


LABELS = ["x", "y", "z"]
SETS = Examples(["a"] * 3, label_sets=[["z", "x"], [], ["y"]])


def test_labels_that_are_numbers_are_in_their_order():
    encoder = tiny.encoder(num_hidden_layers=1)
    model = classification.build(encoder, Examples(["a"] * 3, labels=["10", "9", "10"]))
    assert heads.find_output(model).labels == ["9", "10"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"labels": ["x"]}, "the examples: a .* two labels"), ({"label_sets": [[]]}, "at least 1")],
)
def test_build_rejects_data_without_labels(options, message):
    with pytest.raises(ValueError, match=message):
        classification.build(tiny.encoder(num_hidden_layers=1), Examples(["a"], **options))


def test_build_warns_if_the_labels_look_like_texts():
    numbers = [str(number) for number in range(30)]
    encoder = tiny.encoder(num_hidden_layers=1)
    with pytest.warns(UserWarning, match="30 texts have 30 different labels, such as '0'. Check"):
        classification.build(encoder, Examples(numbers, labels=numbers))
    classification.build(encoder, Examples(numbers * 2, labels=numbers * 2))


LABELED = Examples(["a"], labels=["x"])


@pytest.mark.parametrize(
    ("options", "examples", "class_weight", "message"),
    [
        ({}, Examples(["a"], labels=["odd"]), None, "the label 'odd' is not .*: x, y, z"),
        ({}, Examples(["a"], text_pairs=["b"]), None, "reads single texts"),
        ({"pairs": True}, Examples(["a"]), None, "reads pairs of texts"),
        ({}, SETS, None, "the model takes labels; received label sets in the examples"),
        ({"multi_label": True}, Examples(["a"], scores=[1]), None, "takes label sets; received"),
        ({}, LABELED, {"odd": 1}, "class_weight .* received 'odd'"),
        ({}, LABELED, "balancd", "class_weight must be"),
        ({}, LABELED, {"x": -1}, "class_weight must be at least 0"),
        ({}, LABELED, {"x": float("nan")}, "class_weight must be at least 0"),
        ({"multi_label": True}, SETS, "balanced", "with one label per text"),
    ],
)
def test_encode_rejects_other_data(options, examples, class_weight, message):
    with pytest.raises(ValueError, match=message):
        KerasPredictor(model_of(labels=LABELS, **options)).encode(
            examples, 8, class_weight=class_weight
        )


def test_class_weight_of_numeric_labels():
    examples = Examples(["a", "b"], labels=[0, 1])
    encoded = KerasPredictor(model_of(labels=[0, 1])).encode(examples, 8, class_weight={1: 3})
    assert encoded.batch([0, 1], 8)[2].tolist() == [1, 3]


RNG = np.random.default_rng(0)


@pytest.mark.parametrize("count", [2, 3])
def test_scores_of_labels(count):
    output = heads.TaskOutput("classification", labels=LABELS[:count])
    examples = Examples(["a"] * 50, labels=[LABELS[i] for i in RNG.integers(0, count, 50)])
    answers = RNG.random((50, count))
    found = classification.score(output, examples, answers)
    given, chosen = examples.labels, [LABELS[i] for i in answers.argmax(1)]
    assert found["accuracy"] == metrics.accuracy_score(given, chosen)
    assert found["mcc"] == pytest.approx(metrics.matthews_corrcoef(given, chosen))
    assert found["majority"] == max(map(given.count, LABELS)) / 50
    if count == 2:
        assert found["f1"] == metrics.f1_score(given, chosen, pos_label="y")
    else:
        assert found["macro_f1"] == metrics.f1_score(given, chosen, average="macro")


def test_score_of_a_single_label_does_not_warn():
    output = heads.TaskOutput("classification", labels=LABELS[:2])
    found = classification.score(
        output, Examples(["a"] * 2, labels=["x"] * 2), np.array([[0.9, 0.1]] * 2)
    )
    assert found == {"accuracy": 1.0, "f1": 0.0, "mcc": 0.0, "majority": 1.0}


def test_scores_of_label_sets():
    answers = np.array([[0.9, 0.1, 0.5], [0.1, 0.6, 0.1], [0.2, 0.9, 0.4]])
    output = heads.TaskOutput("classification", labels=LABELS, multi_label=True)
    found = classification.score(output, SETS, answers)
    # Correct: x, z, y; wrong: y in the second text.
    assert found == pytest.approx(
        {"micro_f1": 6 / 7, "macro_f1": (1 + 2 / 3 + 1) / 3, "exact_match": 2 / 3}
    )


def test_scores_of_numbers():
    output = heads.TaskOutput("regression")
    given, answers = RNG.normal(size=20), RNG.normal(size=20).astype(np.float32)
    found = Regression().score(output, Examples(["a"] * 20, scores=given), answers)
    assert found["pearson"] == pytest.approx(stats.pearsonr(given, answers).statistic)
    assert found["spearman"] == pytest.approx(stats.spearmanr(given, answers).statistic)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((given - answers) ** 2)))
    # Constant answers have correlation 0, without a warning.
    found = Regression().score(output, Examples(["a"] * 20, scores=given), np.ones(20, np.float32))
    assert (found["pearson"], found["spearman"]) == (0.0, 0.0)


def test_metrics_of_one_label():
    """scikit-learn takes an array (n, 1) for two classes."""
    output = heads.TaskOutput("classification", labels=["x"], multi_label=True)
    examples = Examples(["a"] * 5, label_sets=[["x"], ["x"], [], [], []])
    answers = np.array([[0.9], [0.1], [0.2], [0.2], [0.2]])
    found = classification.score(output, examples, answers)
    assert found == pytest.approx({"micro_f1": 2 / 3, "macro_f1": 2 / 3, "exact_match": 0.8})
    row = classification.report(output, examples, answers)["x"]
    assert row == pytest.approx({"precision": 1, "recall": 0.5, "f1": 2 / 3, "support": 2})
