"""The grid: every recipe from the same start, and the best of them."""

import keras
import numpy as np

from keras_bert.finetuning import search
from tests import tiny


def test_every_recipe_starts_from_the_same_weights():
    encoder = tiny.learner()
    start = [keras.ops.convert_to_numpy(weight) for weight in encoder.weights]
    choices = {"learning_rate": (1e-2, 1e-9, 1e-2), "epochs": (8,)}
    seen = []
    trials = search.grid(
        encoder, tiny.examples(), tiny.examples(), choices=choices, on_trial=seen.append,
        batch_size=8, max_length=16, show_progress=False,
    )  # fmt: skip
    assert seen == trials.runs
    assert [run["options"]["learning_rate"] for run in trials.runs] == [1e-2, 1e-9, 1e-2]
    # Had the second or third gone on with the weights of the first, it would start better.
    first, second, third = (run["metrics"]["history"] for run in trials.runs)
    assert second[0]["loss"] > first[-1]["loss"] + 0.1
    np.testing.assert_allclose(first[0]["loss"], third[0]["loss"], rtol=1e-4)
    best = search.best(trials)
    assert best["value"] == max(run["value"] for run in trials.runs)
    assert best["metrics"]["metric"] == best["metric"] == "accuracy"
    search.reset(encoder, trials)
    for weight, value in zip(encoder.weights, start, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_the_papers_grid():
    assert search.GRID["batch_size"] == (16, 32)
    assert search.GRID["learning_rate"] == (5e-5, 3e-5, 2e-5)
    assert search.GRID["epochs"] == (2, 3, 4)
