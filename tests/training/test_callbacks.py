"""Keras' callbacks in `finetune`: they see one `fit` of the caller's model."""

import contextlib
import csv
import math

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.training import finetuning, progress
from tests import tiny

EXAMPLES = tiny.examples(tiny.ROWS[:12])
DEV = tiny.examples(tiny.ROWS[16:24])
callbacks = keras.callbacks


@pytest.fixture(autouse=True)
def quick(eager):
    pass


def finetune(*given, dev=DEV, **options):
    options = {"batch_size": 4, "learning_rate": 1e-2, "max_length": 16, **options}
    if len(given) == 1:
        (given,) = given  # a single callback needs no list
    return finetuning.finetune(
        tiny.learner(), EXAMPLES, dev, callbacks=given, show_progress=False, **options
    )


class Killed(Exception):
    """Simulates the end of a process."""


def kill_at_epoch(number):
    def kill(epoch, logs):
        if epoch == number:
            raise Killed

    return callbacks.LambdaCallback(on_epoch_begin=kill)


class Recorder(callbacks.Callback):
    """Keeps the name, the number and the keys of the logs of each call."""

    def __init__(self):
        super().__init__()
        self.calls = []
        for name in dir(callbacks.Callback):
            if name.startswith("on_"):
                setattr(self, name, self._recording(name))

    def _recording(self, name):
        def record(*args, logs=None):
            numbers = [each for each in args if isinstance(each, int)]
            logs = logs or next((each for each in args if isinstance(each, dict)), None)
            self.calls.append((name, *numbers, sorted(logs or {})))

        return record


def test_callbacks_see_the_calls_of_one_fit():
    """The reference is Keras' `fit` with validation data."""
    ours, theirs = Recorder(), Recorder()
    model, _ = finetune(ours, epochs=2)
    assert ours.model is model and ours.params["epochs"] == 2 and ours.params["steps"] == 3
    inputs = keras.Input((1,))
    plain = keras.Model(inputs, keras.layers.Dense(2)(inputs))
    plain.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    data = np.zeros((3, 1)), np.zeros(3, int)
    plain.fit(*data, 1, 2, verbose=0, callbacks=[theirs], validation_data=data)
    unseen = ("on_test_batch_begin", "on_test_batch_end")
    names = [[call[:-1] for call in each.calls if call[0] not in unseen] for each in (ours, theirs)]
    assert names[0] == names[1]
    for mine, other in zip(
        ours.calls, [c for c in theirs.calls if c[0] not in unseen], strict=True
    ):
        assert set(other[-1]) <= set(mine[-1]), mine
    ends = [call for call in ours.calls if call[0] == "on_epoch_end"]
    assert {"val_f1", "val_mcc", "val_loss", "val_accuracy"} <= set(ends[0][-1])


def test_val_loss_is_the_loss_of_the_returned_model():
    model, metrics = finetune(epochs=1)
    keras_loss = model.evaluate(DEV.to_dataset(model), verbose=0, return_dict=True)["loss"]
    assert metrics["dev_loss"] == pytest.approx(keras_loss, rel=1e-5)
    assert metrics["history"][0]["dev_loss"] == metrics["dev_loss"]
    assert model.history.history["val_loss"] == [pytest.approx(keras_loss, rel=1e-5)]


def test_early_stopping_restores_the_epoch_that_it_monitors():
    stopping = callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True)
    model, metrics = finetune(stopping, epochs=8, learning_rate=0.5, warmup=0)
    losses = [record["dev_loss"] for record in metrics["history"]]
    assert len(losses) < 8 and not metrics["stopped"]
    assert metrics["metric"] == "dev_loss"
    assert metrics["best_epoch"] - 1 == stopping.best_epoch == int(np.argmin(losses))
    assert metrics["dev_loss"] == min(losses)
    for weight, best in zip(model.get_weights(), stopping.best_weights, strict=True):
        np.testing.assert_array_equal(weight, best)


def test_early_stopping_on_a_score_needs_no_mode():
    stopping = callbacks.EarlyStopping("val_f1", patience=1)
    finetune(stopping, epochs=2)
    assert stopping.monitor_op is keras.ops.greater


def test_model_checkpoint_saves_the_best_epoch_and_within_an_epoch(tmp_path):
    each = callbacks.ModelCheckpoint(tmp_path / "{epoch}-{val_accuracy:.2f}.keras")
    best = callbacks.ModelCheckpoint(tmp_path / "best.keras", "val_loss", save_best_only=True)
    steps = callbacks.ModelCheckpoint(tmp_path / "step.keras", save_freq=2)
    model, metrics = finetune(each, best, steps, epochs=2)
    history = metrics["history"]
    names = [f"{record['epoch']}-{record['accuracy']:.2f}.keras" for record in history]
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == sorted([*names, "best.keras", "step.keras"])
    expected = {"best.keras": min(history, key=lambda record: record["dev_loss"])}
    expected |= dict(zip(names, history, strict=True))
    for name, record in expected.items():
        loaded = keras_bert.load(tmp_path / name)
        assert sorted(loaded.input) == sorted(model.input)  # not those of packed batches
        assert keras_bert.evaluate(loaded, DEV)["accuracy"] == record["accuracy"]
    assert keras_bert.pipeline(tmp_path / "step.keras")("so good")["label"] in ("good", "bad")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"schedule": "cosine"}, [1, 0.75, 0.25]),
        ({"schedule": "constant"}, [1, 1, 1]),
        ({"callbacks": callbacks.LearningRateScheduler(lambda e, r: r / 2)}, [1 / 2, 1 / 4, 1 / 8]),
        # Nothing improves by 99, so the first epoch without improvement is the second one.
        ({"callbacks": callbacks.ReduceLROnPlateau("loss", 0.1, 1, min_delta=99)}, [1, 1, 0.1]),
    ],
)
def test_rates_of_the_epochs(options, expected):
    rates = []
    watch = callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: rates.append(float(watch.model.optimizer.learning_rate))
    )
    given = [options["callbacks"]] if "callbacks" in options else []
    finetuning.finetune(
        tiny.encoder(num_hidden_layers=1), tiny.examples(tiny.ROWS[:8]), epochs=3, batch_size=8,
        warmup=0, learning_rate=1e-2, show_progress=False,
        **{**options, "callbacks": [*given, watch]},
    )  # fmt: skip
    np.testing.assert_allclose(rates, np.multiply(expected, 1e-2), rtol=1e-5)


@pytest.mark.slow
def test_terminate_on_nan_returns_the_best_epoch():
    class Spoil(callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                variable = self.model.trainable_variables[0]
                variable.assign(variable * math.nan)

    model, metrics = finetune(Spoil(), callbacks.TerminateOnNaN(), epochs=3)
    assert len(metrics["history"]) == metrics["best_epoch"] == 1
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    with pytest.raises(ValueError, match="training diverged, "):
        finetune(Spoil(), epochs=3)


@pytest.mark.slow
def test_scores_within_an_epoch(tmp_path):
    def kill(batch, logs):
        if batch == 3:
            raise Killed

    options = {"epochs": 2, "batch_size": 3}  # 4 batches per epoch
    for every in (2, 0.5):
        _, metrics = finetune(**options, evaluate_every=every)
        history = metrics["history"]
        assert [record["epoch"] for record in history] == [0.5, 1, 1.5, 2]
        assert all("accuracy" in record and "dev_loss" in record for record in history)
    # The scores do not change the training.
    assert history[-1] == pytest.approx(finetune(**options)[1]["history"][-1])
    options |= {"evaluate_every": 2, "folder": tmp_path}
    with pytest.raises(Killed):
        finetune(callbacks.LambdaCallback(on_train_batch_end=kill), **options)
    _, metrics = finetune(**options)
    for record, other in zip(metrics["history"], history, strict=True):
        assert record == pytest.approx(other, rel=1e-5)


@pytest.fixture
def bar(monkeypatch):
    """Replace the progress bar; return the list of the fields of all its changes."""
    changes = []

    class Bar(contextlib.nullcontext):
        disable = False

        def add_task(self, name, **fields):
            changes.append({"name": name, **fields})

        def update(self, task, **fields):
            changes.append(fields)

    monkeypatch.setattr(progress, "progress", lambda *columns, show: Bar())
    return changes


def test_the_rate_leaves_out_what_is_not_training(bar, monkeypatch):
    """The first batch, which includes the compilation, and the time to score the model."""
    clock = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])

    class OneSecondPerBatch(callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            clock[0] += 1.0

        def on_test_begin(self, logs=None):
            clock[0] += 50.0

    _, metrics = finetune(OneSecondPerBatch(), epochs=1, evaluate_every=1)
    rates = [fields["rate"] for fields in bar if "rate" in fields and "name" not in fields]
    assert rates == ["4 examples/s"] * 2
    assert metrics["train_seconds"] == 3.0


def test_callbacks_can_monitor_the_training():
    stop = callbacks.EarlyStopping("accuracy", patience=1)
    _, metrics = finetune(stop, epochs=4, learning_rate=1e-12)
    assert stop.mode == "max" and len(metrics["history"]) == 2
    stop = callbacks.EarlyStopping("loss", min_delta=9.0, patience=1)
    _, metrics = finetune(stop, epochs=4, dev=None)
    assert len(metrics["history"]) == 2


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (callbacks.EarlyStopping("accuracy"), {"folder": "run"},
         "EarlyStopping monitors 'accuracy', which folder does not keep"),
        (callbacks.EarlyStopping("loss", restore_best_weights=True), {"folder": "run", "dev": None},
         "without dev, folder does not keep the best weights of EarlyStopping"),
        (callbacks.BackupAndRestore("backup"), {}, "use folder to resume a killed run"),
        (callbacks.EarlyStopping("loss", restore_best_weights=True), {},
         "returns the best epoch on dev"),
        (None, {"schedule": "step"}, "schedule must be one of linear, cosine, constant; rec"),
        (None, {"evaluate_every": math.nan}, "evaluate_every must be a (finite )?number"),
        (None, {"evaluate_every": 1.5}, "evaluate_every must be a number of batches or a fraction"),
        (None, {"evaluate_every": 2, "dev": None}, "metric, patience and evaluate_every need dev"),
    ],
)  # fmt: skip
def test_what_cannot_work_raises_before_the_training(given, options, message):
    def fail(**_):
        raise AssertionError

    start = callbacks.LambdaCallback(on_train_begin=fail)
    with pytest.raises(ValueError, match=message):
        finetune(*([given] if given else []), start, **options)


@pytest.mark.slow
def test_a_resumed_run_passes_the_best_values_on(tmp_path):
    def made():
        return (
            callbacks.ModelCheckpoint(tmp_path / "b.keras", "val_loss", save_best_only=True),
            callbacks.EarlyStopping("val_loss", patience=9),
            callbacks.CSVLogger(str(tmp_path / "log.csv")),
        )

    options = {"epochs": 3, "folder": tmp_path / "run"}
    first = made()
    with pytest.raises(Killed):
        finetune(*first, kill_at_epoch(2), **options)
    first[-1].csv_file.close()
    checkpoint, stopping, logger = made()
    seen = []
    begin = callbacks.LambdaCallback(on_epoch_begin=lambda *_: seen.append(checkpoint.best))
    _, metrics = finetune(checkpoint, stopping, logger, begin, **options)
    losses = [record["dev_loss"] for record in metrics["history"]]
    assert seen == [min(losses[:2])]
    assert checkpoint.best == stopping.best == pytest.approx(min(losses))
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]


def test_a_resumed_callback_counts_on(tmp_path):
    """The rate was just reduced, and the count of epochs without improvement began anew."""
    states = []

    def run(*more, **options):
        reduce = callbacks.ReduceLROnPlateau("val_loss", patience=2, min_delta=99, cooldown=3)
        after = callbacks.LambdaCallback(
            on_epoch_end=lambda *_: states.append(
                (reduce.best, reduce.wait, reduce.cooldown_counter)
            )
        )
        finetune(reduce, after, *more, epochs=4, **options)

    run()
    expected = states.copy()
    states.clear()
    with pytest.raises(Killed):
        run(kill_at_epoch(3), folder=tmp_path)
    run(folder=tmp_path)
    assert states == [pytest.approx(state) for state in expected]


def test_the_loss_is_that_of_the_restored_epoch():
    stopping = callbacks.EarlyStopping("loss", mode="max", patience=9, restore_best_weights=True)
    _, metrics = finetune(stopping, dev=None, epochs=3)
    losses = [record["loss"] for record in metrics["history"]]
    assert losses[0] == max(losses) == metrics["train_loss"]


def test_training_that_a_callback_ends_within_an_epoch():
    class Stop(callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

    _, metrics = finetune(Stop(), epochs=3)
    assert metrics["best_epoch"] == metrics["history"][-1]["epoch"] == 0.667
    seen = metrics["examples_per_second"] * metrics["train_seconds"]
    assert seen == pytest.approx(2 / 3 * len(EXAMPLES))


def test_ctrl_c_after_a_batch_returns_a_model():
    def stop(batch, logs):
        raise KeyboardInterrupt

    model, metrics = finetune(callbacks.LambdaCallback(on_train_batch_end=stop), dev=None)
    assert metrics["stopped"] and keras_bert.evaluate(model, DEV)


def test_a_run_that_a_callback_stopped_does_not_go_on(tmp_path):
    class Stop(callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    def fail(model, metrics):
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        finetune(Stop(), epochs=3, folder=tmp_path, on_end=fail)
    _, metrics = finetune(Stop(), epochs=3, folder=tmp_path)
    assert len(metrics["history"]) == 1


@pytest.mark.slow
def test_callbacks_on_jax(python):
    names = "early_stopping or checkpoint or rates or scores_within or ctrl_c"
    python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", names, __file__, backend="jax")
