"""Hyperparameter search: each run begins with the same weights, and the best run is found."""

import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.training import callbacks, finetuning, search
from tests import tiny

pytestmark = pytest.mark.usefixtures("eager")

DEV = tiny.examples(tiny.ROWS[:2])


@pytest.mark.slow
def test_a_grid_of_four():
    encoder = tiny.learner()
    before = encoder.get_weights()
    seen = []
    examples = tiny.examples(tiny.ROWS[:8])
    grid = {"batch_size": (4, 8), "learning_rate": (1e-2, 1e-3), "epochs": (1,)}
    options = {"max_length": 16, "metric": "f1", "show_progress": False}
    trials = search.grid(
        encoder, examples, examples, choices=grid, on_trial=seen.append, epochs=9, **options
    )
    recipes = [(4, 1e-2, 1), (4, 1e-3, 1), (8, 1e-2, 1), (8, 1e-3, 1)]
    assert [tuple(run["options"].values()) for run in trials.runs] == recipes
    assert seen == trials.runs
    for run in trials.runs:
        assert (run["metric"], run["value"]) == ("f1", run["metrics"]["f1"])
        assert len(run["metrics"]["history"]) == 1
    assert keras_bert.evaluate(trials.model, examples)["f1"] == trials.best["value"]
    # Each run begins with the weights of the encoder.
    last = trials.runs[-1]
    _, alone = finetuning.finetune(encoder, examples, examples, **last["options"], **options)
    assert last["metrics"]["train_loss"] == alone["train_loss"]
    for weight, old in zip(encoder.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_best_run_is_first_of_equals_and_lowest_error():
    def best(metric, *values):
        runs = [{"metric": metric, "value": v, "number": n} for n, v in enumerate(values)]
        return search.Trials(runs).best["number"]

    assert best("accuracy", 0.5, 0.9, 0.9) == 1
    assert best("rmse", 0.5, 0.9, 0.2) == 2


@pytest.fixture
def ends(monkeypatch):
    """Function that replaces the runs by their ends: an error, or if it was stopped."""

    def script(*ends):
        options_of_runs = []

        def finetune(encoder, *args, **options):
            end = ends[len(options_of_runs)]
            options_of_runs.append(options)
            if isinstance(end, BaseException):
                raise end
            return encoder, {"metric": "f1", "f1": 0.5, "stopped": end}

        monkeypatch.setattr(finetuning, "finetune", finetune)
        return options_of_runs

    return script


@pytest.mark.parametrize("ends_of_runs", [(False, True), (False, False, KeyboardInterrupt())])
def test_ctrl_c_in_a_run_or_between_runs_keeps_completed_runs(ends, ends_of_runs):
    encoder = tiny.encoder()
    ends(*ends_of_runs)
    trials = search.grid(encoder, None, DEV)
    assert len(trials.runs) == 2 and trials.stopped and trials.model is encoder
    ends(KeyboardInterrupt())  # there is nothing to return
    with pytest.raises(KeyboardInterrupt):
        search.grid(encoder, None, DEV)


def test_each_run_has_a_tensorboard_folder(ends, tmp_path):
    options_of_runs = ends(False, False)
    options = {"choices": {"epochs": (1, 2)}, "tensorboard": tmp_path}
    search.grid(tiny.encoder(), None, DEV, **options)
    folders = [tmp_path / "epochs 1", tmp_path / "epochs 2"]
    assert [options["tensorboard"] for options in options_of_runs] == folders
    folders[0].symlink_to(tmp_path)
    with pytest.raises(ValueError, match="must not be a link"):
        search.grid(tiny.encoder(), None, DEV, **options)


def test_a_run_that_diverges_is_left_out(ends, capsys):
    encoder = tiny.encoder()
    diverged = callbacks.Diverged("the loss is nan")
    ends(diverged, False, diverged)
    trials = search.grid(encoder, None, DEV, choices={"epochs": (1, 2, 3)})
    assert [run["options"] for run in trials.runs] == [{"epochs": 2}]
    assert capsys.readouterr().err.count("training diverged") == 2
    ends(diverged)
    with pytest.raises(callbacks.Diverged):
        search.grid(encoder, None, DEV, choices={"epochs": (1,)})
    for choices in (3, ()):
        with pytest.raises(ValueError, match="the choices of epochs must be a list"):
            search.grid(encoder, None, DEV, choices={"epochs": choices})


def test_a_model_with_a_head_and_missing_dev_data_are_refused_before_a_run(monkeypatch):
    encoder, runs = tiny.encoder(), []
    monkeypatch.setattr(finetuning, "finetune", lambda *args, **options: runs.append(args))
    with pytest.raises(ValueError, match="same encoder; received .*find_encoder"):
        search.grid(heads.classifier(encoder, 2), DEV, DEV)
    with pytest.raises(ValueError, match="needs dev"):
        search.grid(encoder, DEV, None)
    assert not runs
