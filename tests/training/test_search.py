"""Hyperparameter search: each run begins with the same weights, and the best run is found."""

import keras
import numpy as np
import pytest

from keras_bert import heads
from keras_bert.training import callbacks, finetuning, search
from tests import tiny

pytestmark = pytest.mark.usefixtures("eager")

DEV = tiny.examples(tiny.ROWS[:2])


def numbers(encoder):
    return [keras.ops.convert_to_numpy(weight) for weight in encoder.weights]


@pytest.mark.slow
def test_a_grid_of_four(monkeypatch):
    encoder = tiny.learner()
    before, starts, ends, seen = numbers(encoder), [], [], []
    plain = finetuning.finetune

    def finetune(encoder, *args, **options):
        starts.append(numbers(encoder))
        model, metrics = plain(encoder, *args, **options)
        ends.append(model.get_weights())
        return model, metrics

    monkeypatch.setattr(finetuning, "finetune", finetune)
    examples = tiny.examples(tiny.ROWS[:8])
    grid = {"batch_size": (4, 8), "learning_rate": (1e-2, 1e-3), "epochs": (1,)}
    trials = search.grid(
        encoder, examples, examples, choices=grid, on_trial=seen.append, epochs=9, max_length=16,
        metric="f1", show_progress=False,
    )  # fmt: skip
    recipes = [(4, 1e-2, 1), (4, 1e-3, 1), (8, 1e-2, 1), (8, 1e-3, 1)]
    assert [tuple(run["options"].values()) for run in trials.runs] == recipes
    assert seen == trials.runs
    for start in starts:
        for a, b in zip(start, before, strict=True):
            np.testing.assert_array_equal(a, b)
    for run in trials.runs:
        assert (run["metric"], run["value"]) == ("f1", run["metrics"]["f1"])
        assert len(run["metrics"]["history"]) == 1
    best = ends[trials.runs.index(trials.best)]
    for a, b in zip(trials.model.get_weights(), best, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(ends[-1], ends[0], strict=True))
    for a, b in zip(numbers(encoder), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_best_run_is_first_of_equals_and_lowest_error():
    def best(metric, *values):
        runs = [{"metric": metric, "value": v, "number": n} for n, v in enumerate(values)]
        return search.Trials(runs).best["number"]

    assert best("accuracy", 0.5, 0.9, 0.9) == 1
    assert best("rmse", 0.5, 0.9, 0.2) == 2


def test_ctrl_c_ends_the_search(monkeypatch):
    stopped, encoder = iter([False, True, False]), tiny.encoder()

    def finetune(*args, **options):
        return encoder, {"metric": "f1", "f1": 0.5, "stopped": next(stopped)}

    monkeypatch.setattr(finetuning, "finetune", finetune)
    trials = search.grid(encoder, None, DEV)
    assert len(trials.runs) == 2 and trials.stopped


@pytest.mark.parametrize("run", [0, 2])
def test_ctrl_c_between_two_runs_keeps_completed_runs(run, monkeypatch):
    encoder, seen = tiny.encoder(), []

    def finetune(*args, **options):
        if len(seen) == run:
            raise KeyboardInterrupt  # for example during tokenization
        seen.append(options)
        return encoder, {"metric": "f1", "f1": 0.5, "stopped": False}

    monkeypatch.setattr(finetuning, "finetune", finetune)
    if not run:
        with pytest.raises(KeyboardInterrupt):
            search.grid(encoder, None, DEV)
        return
    trials = search.grid(encoder, None, DEV)
    assert len(trials.runs) == 2 and trials.stopped and trials.model is encoder


def test_a_linked_tensorboard_folder_is_refused(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "epochs 1").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="must not be a link"):
        search.grid(
            tiny.encoder(), None, DEV, choices={"epochs": (1,)}, tensorboard=tmp_path / "logs"
        )


def test_each_run_has_a_tensorboard_folder(monkeypatch, tmp_path):
    encoder, folders = tiny.encoder(), []

    def finetune(*args, **options):
        folders.append(options["tensorboard"])
        return encoder, {"metric": "f1", "f1": 0.5, "stopped": False}

    monkeypatch.setattr(finetuning, "finetune", finetune)
    search.grid(encoder, None, DEV, choices={"epochs": (1, 2)}, tensorboard=tmp_path)
    assert folders == [tmp_path / "epochs 1", tmp_path / "epochs 2"]


def test_a_run_that_diverges_is_left_out(monkeypatch, capsys):
    encoder = tiny.encoder()

    def finetune(*args, epochs, **options):
        if epochs != 2:
            raise callbacks.Diverged("the loss is nan")
        return encoder, {"metric": "f1", "f1": 0.5, "stopped": False}

    monkeypatch.setattr(finetuning, "finetune", finetune)
    trials = search.grid(encoder, None, DEV, choices={"epochs": (1, 2, 3)})
    assert [run["options"] for run in trials.runs] == [{"epochs": 2}]
    assert capsys.readouterr().err.count("training diverged") == 2
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
