"""The training loop of fine-tuning: epochs, scores, the best weights, Ctrl-C and divergence."""

import sys
import time
import typing
import warnings

import keras
import numpy as np

from keras_bert.runtime.stopping import stop_requests
from keras_bert.runtime.tensorboard import writer
from keras_bert.runtime.terminal import print_line, progress
from keras_bert.runtime.warn import level_of_caller
from keras_bert.training.callbacks import DEV_LOSS, LOWER_IS_BETTER, Callbacks, logs_of

_SAVE_SECONDS = 300  # between two saved states within an epoch
_READ_SECONDS = 0.2  # between two reads of the loss, each of which waits for the device
_NOT_METRICS = ("epoch", "loss", DEV_LOSS, "majority")  # keys of a history record


class Loop:
    """Trains a model epoch by epoch, beginning where a `RunState` is.

    Args:
        model: The caller's model. `plan.trained` shares its variables.
        plan: The `BatchPlan` of batches.
        state: The `RunState`.
        score: Function that returns the metrics of the held-out data, or `None`.
        metric: Name of the metric that selects the best epoch. `None`: the first one.
        patience: Stop after this many epochs without improvement. `None`: never.
        evaluate_every: Batches between two scores within an epoch. `None`: only at its end.
        callbacks: The caller's Keras callbacks.
        log: A `Log`.
    """

    def __init__(
        self, model, plan, state, *, score, metric, patience, evaluate_every, callbacks, log
    ):
        self.plan = plan
        self._model, self._state, self._log = plan.trained, state, log
        self._score, self._metric, self._patience = score, metric, patience
        self._evaluate_every = evaluate_every
        self._callbacks = Callbacks(callbacks, model, plan.trained, plan.epochs, plan.batches)
        self._watch: typing.Any = None

    def run(self):
        """Train the remaining epochs.

        Returns:
            `True` if Ctrl-C ended the training.

        Raises:
            KeyboardInterrupt: If Ctrl-C came before the first step.
            ValueError: If the loss or a weight is no longer finite.
        """
        state = self._state
        with self._callbacks.training(state.history) as restored_epochs:
            if restored_epochs > state.epoch and self._score is not None:
                warnings.warn(
                    "BackupAndRestore does not keep the scores of earlier epochs, so the best "
                    "epoch is one of the following; finetune(folder=) keeps them",
                    stacklevel=level_of_caller(),
                )
            state.epoch = max(state.epoch, restored_epochs)
            try:
                self._train()
            except KeyboardInterrupt:
                self._synchronize()
                if self._watch is not None:
                    self._watch.read()
                if not self._state.epoch and not self._state.batch:  # no weights to return
                    raise
                return True
            except Diverged as error:
                if not self._state.has_best:
                    raise
                if not self._callbacks.terminate_on_nan:
                    raise Diverged(
                        error.what,
                        ". To keep the best epoch in such a case, pass "
                        "callbacks=[keras.callbacks.TerminateOnNaN()] to keras_bert.finetune",
                    ) from None
        return False

    def finish(self):
        """Set the model's weights to the best ones.

        Returns:
            The record of the best epoch, or `None` without held-out data.
        """
        state = self._state
        record = state.restore_best(self._model)
        if self._score is None:
            return None
        if record is None:  # stopped before the first score
            epoch = round(state.epoch + state.batch / self.plan.batches, 3)
            record = {"epoch": epoch, "loss": state.loss, **self._scores()}
        if record["epoch"] not in [each["epoch"] for each in state.history]:
            state.history.append(record)  # stopped before the epoch was recorded
        return record

    def _scores(self):
        """Return the metrics of the held-out data, or raise KeyboardInterrupt after Ctrl-C."""
        with stop_requests() as stop:
            scores = self._score()
            stop.check()  # a library that swallows Ctrl-C may return only a part of the answers
        return scores

    def _train(self):
        """Train epochs until the last one, Ctrl-C or a callback."""
        state = self._state
        with stop_requests() as stop:
            while not (
                state.stopped or state.epoch >= self.plan.epochs or self._is_out_of_patience()
            ):
                stop.check()
                self._train_epoch(stop)
                self._end_epoch()

    def _is_out_of_patience(self):
        if self._patience is None or not self._state.history:
            return False
        record, _ = best(self._state.history, self._metric)
        return self._state.epoch - record["epoch"] >= self._patience

    def _synchronize(self):
        """Update the model's variables, which JAX leaves outdated within an epoch."""
        if keras.backend.backend() == "jax":
            self._model.jax_state_sync()

    def _train_epoch(self, stop):
        state, plan = self._state, self.plan
        batches = plan.epoch(state.epoch)
        self._callbacks.on_epoch_begin(state.epoch)
        self._watch = _Watch(
            self._log.bar, state, batches, plan.epochs, self._callbacks, self._after_batch, stop
        )
        callbacks = [*plan.callbacks(state.epoch, state.batch), self._watch]
        remaining = batches.for_fit(range(state.batch, len(batches)))
        self._model.fit(remaining, shuffle=False, verbose=0, callbacks=callbacks)
        self._watch.read()  # a callback can stop the epoch before its last batch
        if plan.missing and state.epoch + 1 == plan.epochs:
            # Without further batches, the last accumulated gradients would never be applied.
            more = plan.epoch(plan.epochs)
            indices = [index % len(more) for index in range(plan.missing)]
            callbacks = plan.callbacks(plan.epochs, 0)
            self._model.fit(more.for_fit(indices), shuffle=False, verbose=0, callbacks=callbacks)
        stop.check()
        _check_weights(self._model)

    def _after_batch(self, batch):
        """Score the model after `evaluate_every` batches. `batch` is their number, from 1."""
        every = self._evaluate_every
        if not every or batch % every or batch == self.plan.batches:
            return
        self._synchronize()
        self._watch.read()
        self._record(round(self._state.epoch + batch / self.plan.batches, 3))
        self._state.save(self._model)

    def _end_epoch(self):
        """Score the epoch, keep its weights if they are the best, and save the state."""
        state = self._state
        record = self._record(state.epoch + 1)
        self._callbacks.on_epoch_end(state.epoch, self._watch.logs | logs_of(record))
        state.stopped = self._callbacks.stopped
        state.next_epoch()
        state.save(self._model)

    def _record(self, epoch):
        """Append the metrics at this point of the training to the history, and return them."""
        state = self._state
        record = {"epoch": epoch, "loss": state.loss}
        if self._score is not None:
            self._callbacks.on_test_begin()
            record |= self._scores()
            logs = logs_of(record)
            self._callbacks.on_test_end(
                {key.removeprefix("val_"): logs[key] for key in logs if key != "loss"}
            )
            best_record, metric = best([*state.history, record], self._metric)
            self._watch.show_dev(metric, record[metric])
            if best_record is record:
                state.keep_best(self._model, record)
        self._log.epoch(record)
        state.history.append(record)
        return record


def best(history, metric=None):
    """Return the record of the best epoch, and the name of the metric that selects it.

    Args:
        history: A list of records, a dict of metrics per epoch.
        metric: Name of the metric. `None`: the first one in the records.
    """
    if metric is None:
        metric = next(key for key in history[0] if key not in _NOT_METRICS)
    return max(history, key=lambda record: goodness(metric, record[metric])), metric


def goodness(metric, value):
    """Return a metric's value such that higher is better. NaN is the worst value.

    Example:

    >>> goodness("accuracy", 0.75), goodness("rmse", 0.75), goodness("f1", float("nan"))
    (0.75, -0.75, -inf)
    """
    if np.isnan(value):  # no comparison with NaN is true
        return -np.inf
    return -value if metric in LOWER_IS_BETTER else value


class Log:
    """Reports progress: a bar or a line per epoch on stderr, and scalars for TensorBoard.

    Args:
        show_progress: If `False`, write nothing to stderr.
        tensorboard: Folder for TensorBoard, or `None`.
        epochs: Number of epochs of the run.
        steps_per_epoch: TensorBoard's steps per epoch.
    """

    def __init__(self, show_progress, tensorboard, epochs, steps_per_epoch=1):
        columns = ("loss {task.fields[loss]}", "{task.fields[rate]}")
        self.bar = progress(*columns, "{task.fields[dev]}", show=show_progress)
        self._epochs, self._write = epochs, writer(tensorboard)
        self._steps_per_epoch = steps_per_epoch
        self._has_lines = show_progress and self.bar.disable

    def __enter__(self):
        self.bar.__enter__()
        return self

    def __exit__(self, *error):
        self.bar.__exit__(*error)

    def epoch(self, record):
        """Report the metrics of an epoch."""
        scores = {name: value for name, value in record.items() if name != "epoch"}
        self._write(round(record["epoch"] * self._steps_per_epoch), scores)
        if self._has_lines:
            scores.pop("majority", None)
            text = ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
            print_line(f"epoch {record['epoch']} of {self._epochs}: {text}", file=sys.stderr)


class Diverged(ValueError):
    """The loss or a weight is NaN or infinite."""

    def __init__(self, what, advice=""):
        super().__init__(f"training diverged, {what}; a lower learning rate may help{advice}")
        self.what = what


class _Watch(keras.callbacks.Callback):
    """Updates the progress bar and the run's state during an epoch; detects divergence.

    Attributes:
        logs: The metrics that Keras computed for the epoch.
    """

    def __init__(self, bar, state, batches, epochs, callbacks, after_batch, stop):
        super().__init__()
        self._stop = stop
        self._bar, self._state, self._batches = bar, state, batches
        self._callbacks, self._after_batch = callbacks, after_batch
        self._sizes = [len(rows) for rows in batches.rows]
        self._epoch, self._first, self._batch, self._last = state.epoch, state.batch, None, None
        self._loss, self._rows = state.loss, state.rows
        self._start = self._saved = self._read = time.perf_counter()
        # The first batch, which includes the compilation, does not count for the rate.
        self._timed_from, self._timed_batches = 0.0, 0
        self._seconds_before = state.seconds
        self.logs = {}
        self._task = bar.add_task(
            f"Epoch {state.epoch + 1} of {epochs}",
            total=sum(self._sizes),
            completed=sum(self._sizes[: state.batch]),
            **{"loss": "\u2013", "rate": "" if state.epoch else "compiling", "dev": ""},
        )

    def on_train_batch_begin(self, batch, logs=None):
        self._callbacks.on_train_batch_begin(self._first + batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        self._stop.check()
        self._batch, self._last = batch, logs
        now = time.perf_counter()
        done = self._first + batch + 1
        save = now - self._saved > _SAVE_SECONDS
        is_first = not self._timed_batches
        if save or is_first or now - self._read > _READ_SECONDS or done == len(self._sizes):
            self.read()
        if is_first:
            self._timed_from, self._timed_batches = time.perf_counter(), done
        before = time.perf_counter()
        self._after_batch(done)
        pause = time.perf_counter() - before  # to score the model
        self._timed_from, self._start = self._timed_from + pause, self._start + pause
        if save and self._state.batch < len(self._sizes):
            self._state.save(self.model)
            self._saved = now
        self._callbacks.on_train_batch_end(self._first + batch, logs)

    def on_epoch_end(self, epoch, logs=None):
        self.logs = dict(logs or {})

    def read(self):
        """Copy progress and loss to the state. Waits until the device has done the last step."""
        if self._last is None or self._state.epoch != self._epoch:
            return
        done = self._first + self._batch + 1
        if self._state.batch == done:
            return
        state, loss = self._state, float(self._last["loss"])
        if not np.isfinite(loss):
            raise Diverged(f"the loss is {loss}")
        now = time.perf_counter()
        state.batch = done
        # Keras' loss is the mean over the rows since the beginning of `fit`.
        rows = sum(self._batches.sizes[self._first : state.batch])
        state.rows = self._rows + rows
        state.loss = (self._loss * self._rows + loss * rows) / state.rows
        state.seconds = self._seconds_before + now - self._start
        completed = sum(self._sizes[: state.batch])
        fields = {"loss": f"{loss:.3f}"}
        if 0 < self._timed_batches < state.batch:
            timed = completed - sum(self._sizes[: self._timed_batches])
            fields["rate"] = f"{timed / (now - self._timed_from):.0f} examples/s"
        self._bar.update(self._task, completed=completed, **fields)
        self._read = now

    def show_dev(self, metric, value):
        """Show the score of the completed epoch."""
        self._bar.update(self._task, dev=f"dev {metric} {value:.3f}")


def _check_weights(model):
    """Raise an error if a weight is NaN or infinite.

    The last loss was computed before the last update of the weights, so it does not show that.
    """
    for variable in model.trainable_variables:
        if not np.isfinite(keras.ops.convert_to_numpy(variable)).all():
            raise Diverged(f"{variable.path} holds NaN or infinity")
