"""Regression of numbers on any scale, and labels that are numbers."""

import numpy as np
import pytest

import keras_bert
from keras_bert.tasks.keras_predictor import KerasPredictor
from tests import tiny

pytestmark = pytest.mark.usefixtures("eager")
TEXTS = ["good", "bad film", "so good", "film"] * 4
PRICES = [430_000.0, 200_000.0, 520_000.0, 310_000.0] * 4


def test_a_new_head_starts_at_the_mean_with_a_loss_of_one():
    examples = keras_bert.Examples(TEXTS, scores=PRICES)
    options = {"epochs": 1, "learning_rate": 1e-9, "show_progress": False}
    _, metrics = keras_bert.finetune(tiny.encoder(), examples, examples, **options)
    assert metrics["train_loss"] == pytest.approx(1, rel=0.1)
    assert metrics["rmse"] == pytest.approx(metrics["rmse_of_mean"], rel=0.1)


def test_a_model_that_is_no_better_than_the_mean_is_named(capsys):
    dev = keras_bert.Examples(["good", "film"], scores=[1.0, 2.0])
    train = keras_bert.Examples(TEXTS, scores=PRICES)
    keras_bert.finetune(tiny.encoder(), train, dev, epochs=1, show_progress=True)
    assert "rmse_of_mean" in capsys.readouterr().err


def test_equal_numbers_have_the_scale_1():
    examples = keras_bert.Examples(TEXTS[:3], scores=[0.1] * 3)  # their deviation is 1e-17
    model, _ = keras_bert.finetune(tiny.encoder(), examples, epochs=1, show_progress=False)
    assert keras_bert.heads.find_output(model).target_scale == 1


def test_rows_of_0_and_1_are_the_targets_of_labels():
    rows = [[1, 0, 1], [0, 1, 0]]
    examples = keras_bert.Examples(["a", "b"], label_sets=rows, known_labels=["war", "bank", "tea"])
    assert examples.label_sets == [("war", "tea"), ("bank",)]
    assert examples.label_names() == ["bank", "tea", "war"]
    assert keras_bert.Examples(["a", "b"], label_sets=rows).label_names() == ["0", "1", "2"]


def test_sets_of_integers_stay_names_also_in_a_part():
    examples = keras_bert.Examples(["a", "b", "c"], label_sets=[[0], [0, 1], [7]])
    assert examples[1:2].label_sets == [(0, 1)]
    assert examples[1:2].label_type == "int"


def test_probabilities_are_targets_and_score_as_labels():
    soft = [[0.7, 0.3], [0.2, 0.8]] * 8
    examples = keras_bert.Examples(TEXTS, label_sets=soft, known_labels=["x", "y"])
    model, metrics = keras_bert.finetune(
        tiny.encoder(), examples, examples, epochs=1, learning_rate=1e-9, show_progress=False
    )
    encoded = KerasPredictor(model).encode(examples, 16)
    np.testing.assert_allclose(encoded.batch(np.arange(16), 16)[1], np.array(soft, np.float32))
    assert metrics["dev_loss"] > 0.5  # the entropy of the targets is a lower bound
    assert 0 <= metrics["micro_f1"] <= 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label_sets": [[0.7], [0.3, 0.7]]}, "same length"),
        ({"labels": [[0.7, 0.3], [0.2, 0.8]]}, "multi_label"),
    ],
)
def test_fractions_are_no_names_of_labels(columns, message):
    with pytest.raises(ValueError, match=message):
        keras_bert.Examples(["a", "b"], **columns)
