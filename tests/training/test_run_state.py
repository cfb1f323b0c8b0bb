"""A killed run resumes and ends with the same weights as an uninterrupted one."""

import shutil

import keras
import numpy as np
import pytest

from keras_bert.training import callbacks, finetuning, run_state
from tests import tiny


@pytest.fixture(scope="module", autouse=True)
def quick():
    with tiny.eagerly():
        yield


# The same texts with exchanged labels.
OTHER = {"good": "bad", "bad": "good"}
SWAPPED = tiny.examples([(OTHER[label], text) for label, text in tiny.ROWS[:18]])


class Killed(Exception):
    """Simulates the end of a process."""


class KillAt(keras.callbacks.Callback):
    """Counts batches, and raises an error after a number of batches."""

    def __init__(self, batches=None, error=Killed):
        super().__init__()
        self.batches, self.error, self.seen = batches, error, 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.seen == self.batches:
            raise self.error


def finetune(folder=None, killer=None, **options):
    """Run 3 epochs with dropout, each of 4 batches of 4 texts and one batch of 2 texts."""
    encoder = tiny.encoder(
        num_hidden_layers=1,
        initializer_range=options.pop("range", 0.25),
        dtype=options.pop("dtype", "float32"),
    )
    encoder.trainable = not options.pop("freeze", False)
    arguments = {
        "train": tiny.examples(tiny.ROWS[:18]),
        "dev": tiny.examples(tiny.ROWS[:4]),
        "epochs": 3,
        "batch_size": 4,
        "learning_rate": 1e-2,
        "metric": "mcc",
        "callbacks": [killer] if killer else [],
        "show_progress": False,
    }
    return finetuning.finetune(encoder, folder=folder, **{**arguments, **options})


def assert_same_run(run, other):
    for a, b in zip(run[0].weights, other[0].weights, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=a.path)
    for records in zip(run[1]["history"], other[1]["history"], strict=True):
        assert records[0] == pytest.approx(records[1], rel=1e-6)
    for key in ("train_loss", "best_epoch", "mcc"):
        assert run[1][key] == pytest.approx(other[1][key], rel=1e-6), key


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Return the folder of a run that was killed in its second epoch."""
    folder = tmp_path_factory.mktemp("killed")
    with pytest.raises(Killed):
        finetune(folder, KillAt(7))
    return folder


def test_killed_run_equals_uninterrupted_run(killed, tmp_path, monkeypatch):
    folder = shutil.copytree(killed, tmp_path / "copy")
    monkeypatch.setattr(callbacks, "_SAVE_SECONDS", 0)
    with pytest.raises(Killed):
        finetune(folder, KillAt(3))
    assert {file.name for file in folder.iterdir()} == {run_state.STATE_FILE, run_state.BEST_FILE}
    # The first state was written at the end of an epoch, the second one after two of its batches,
    # before the kill. There are 3 of 5 batches left, and one epoch.
    counter = KillAt()
    run = finetune(folder, counter)
    assert counter.seen == 3 + 5
    assert list(folder.iterdir()) == []
    assert_same_run(run, finetune())


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ({"epochs": 4}, "epochs=3; this run has 4"),
        ({"batch_size": 5}, "batch_size=4; this run has 5"),
        ({"train": SWAPPED}, "content of the data="),
        ({"range": 0.5}, "encoder's weights="),
        ({"dev": tiny.examples(tiny.ROWS[1:5])}, "content of the dev data="),
        ({"dtype": "mixed_float16"}, "dtype='float32'; this run has 'mixed_float16'"),
        ({"freeze": True}, "trainable variables="),
        ({"class_weight": "balanced"}, "class_weight=None; this run has 'balanced'"),
    ],
)
def test_other_settings_raise(killed, options, setting):
    with pytest.raises(ValueError, match="belongs to a run .*delete it to start over") as caught:
        finetune(killed, **options)
    assert setting in str(caught.value)
    assert (killed / run_state.STATE_FILE).is_file()


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_a_history_of_other_types_raises(model, tmp_path):
    state = run_state.RunState(tmp_path, {})
    assert not state.restore(model, model)
    state.history = [[["epoch", 1]]]
    state.save(model)
    with pytest.raises(ValueError, match=rf"{run_state.STATE_FILE} is broken .*delete it"):
        run_state.RunState(tmp_path, {}).restore(model, model)


@pytest.mark.parametrize("name", [run_state.STATE_FILE, run_state.BEST_FILE])
def test_weights_that_are_not_finite_raise(model, tmp_path, name):
    state = run_state.RunState(tmp_path, {})
    assert not state.restore(model, model)
    model.set_weights([np.full(weight.shape, np.nan) for weight in model.weights])
    state.history = [{"epoch": 1, "loss": 1.0, "accuracy": 0.5}]
    if name == run_state.BEST_FILE:
        state.keep_best(model, {"epoch": 1})
        model.set_weights([np.zeros(weight.shape) for weight in model.weights])
    state.save(model)
    with pytest.raises(ValueError, match=rf"{name} is broken .*NaN.*delete"):
        run_state.RunState(tmp_path, {}).restore(model, model)


def test_best_weights_without_a_state_are_ignored(model, tmp_path):
    """A user who deletes the state to start over may leave the file with the best weights."""
    run_state.RunState(tmp_path, {}).keep_best(model, {})
    before = [np.add(weight.numpy(), 1) for weight in model.weights]
    model.set_weights(before)
    state = run_state.RunState(tmp_path, {})
    assert not state.restore(model, model)
    state.restore_best(model)
    for a, b in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
