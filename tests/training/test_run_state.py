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
    assert [file.name for file in folder.iterdir()] == [run_state.STATE_FILE]
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
        ({"range": 0.5}, "encoder.initializer_range=0.25; this run has 0.5"),
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


def new_state(folder):
    return run_state.RunState(folder, {}, epochs=3, batches=5)


def saved(folder, model):
    """Save the state of a run after two epochs, of which the first one was the best."""
    state = new_state(folder)
    assert not state.restore(model, model)
    for number in (1, 2):
        record = {"epoch": number, "loss": 1.0, "accuracy": 1 / number}
        if number == 1:
            state.keep_best(model, record)
        state.history.append(record)
        model.set_weights([weight + 1 for weight in model.get_weights()])
    state.epoch = 2
    state.callbacks = [{"class": "EarlyStopping", "wait": 1.0}]
    state.save(model)
    return folder / run_state.STATE_FILE


def test_the_state_and_the_best_weights_are_restored(model, tmp_path):
    best = model.get_weights()
    saved(tmp_path, model)
    last = model.get_weights()
    model.set_weights([0 * weight for weight in last])
    state = new_state(tmp_path)
    assert state.restore(model, model) and state.epoch == 2 and state.seconds == 0.0
    for weight, expected in zip(model.get_weights(), last, strict=True):
        np.testing.assert_array_equal(weight, expected)
    assert state.restore_best(model)["epoch"] == 1
    for weight, expected in zip(model.get_weights(), best, strict=True):
        np.testing.assert_array_equal(weight, expected)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epoch": 999}, {"epoch": "3"}, {"epoch": -1},
        {"epoch": 3, "batch": 1}, {"batch": 6}, {"seconds": "1"}, {"rows": -1}, {"stopped": 0},
        {"rows": 10**400}, {"loss": 10**400},
        {"history": [[["epoch", 1]]]}, {"history": [{"epoch": 1}]}, {"history": {}},
        {"history": [{"epoch": 9, "loss": 1.0, "accuracy": 0.5}]},
        {"history": [{"epoch": 1, "loss": "1", "accuracy": 0.5}]},
        {"best": -1}, {"best": 2}, {"best": "0"}, {"before": []}, {"before": {"accuracy": "1"}},
        {"callbacks": [{}]}, {"callbacks": [{"class": "EarlyStopping", "wait": "1"}]},
        {"name": "unknown"},
    ],
)  # fmt: skip
def test_a_state_that_the_run_cannot_have_raises(model, tmp_path, wrong):
    file = saved(tmp_path, model)
    header, arrays = run_state.read(file, "")
    run_state.write(file, {**header, "progress": {**header["progress"], **wrong}}, arrays)
    with pytest.raises(ValueError, match=rf"{run_state.STATE_FILE} is broken .*delete it"):
        new_state(tmp_path).restore(model, model)


@pytest.mark.parametrize("part", ["best weights", "variables", "header", "digest"])
def test_a_part_of_another_file_raises(model, tmp_path, part):
    file = saved(tmp_path, model)
    with np.load(file) as opened:
        arrays = dict(opened)
    count = len(arrays) - 2
    if part == "header":
        arrays["header"] = np.array(str(arrays["header"]).replace('"loss": 1.0', '"loss": 0.5'))
    elif part == "digest":
        del arrays["digest"]
    else:
        name = str(count - 1 if part == "best weights" else 0)
        arrays[name] = arrays[name] + 7
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match=rf"{run_state.STATE_FILE} is broken .*delete it"):
        new_state(tmp_path).restore(model, model)


@pytest.mark.parametrize("part", ["variables", "best weights"])
def test_weights_that_are_not_finite_raise(model, tmp_path, part):
    state = new_state(tmp_path)
    assert not state.restore(model, model)
    finite = model.get_weights()
    model.set_weights([np.full(weight.shape, np.nan) for weight in finite])
    if part == "best weights":
        state.keep_best(model, {"epoch": 1, "loss": 1.0, "accuracy": 0.5})
        state.history = [{"epoch": 1, "loss": 1.0, "accuracy": 0.5}]
        model.set_weights(finite)
    state.save(model)
    with pytest.raises(ValueError, match=rf"{run_state.STATE_FILE} is broken .*NaN.*delete"):
        new_state(tmp_path).restore(model, model)
