"""The Keras callbacks of a fine-tuning run: score, keep the best weights, save, stop."""

import time

import keras
import numpy as np

from keras_bert.model_structure import path_of_diverged_weight
from keras_bert.training import user_callbacks
from keras_bert.training.user_callbacks import DEV_LOSS, logs_of, lower_is_better

_SAVE_SECONDS = 300  # between two saved states within an epoch
_NOT_METRICS = ("epoch", "loss", DEV_LOSS)  # keys of a history record


class Diverged(ValueError):
    """The loss or a weight is NaN or infinite."""

    def __init__(self, what):
        super().__init__(f"training diverged, {what}; a lower learning rate may help")


class Steps(keras.callbacks.Callback):
    """Checks each step of a run, and completes the last step.

    It ends the training after Ctrl-C, also if a library has swallowed the `KeyboardInterrupt`, and
    if the loss or, at the end of an epoch, a weight is not finite.

    Args:
        plan: The `BatchPlan`.
        state: The `RunState`, which counts the batches.
        stop: The `StopRequest`.
    """

    def __init__(self, plan, state, stop):
        super().__init__()
        self._plan = plan
        self._state = state
        self._stop = stop

    def on_train_batch_begin(self, batch, logs=None):
        if self._plan.cache is not None:
            batch_index = self._state.epoch * self._plan.batches + self._state.batch
            self._plan.cache.set_gradients(batch_index)

    def on_train_batch_end(self, batch, logs=None):
        self._stop.check()
        if not np.isfinite(logs["loss"]):
            raise Diverged(f"the loss is {logs['loss']}")

    def on_epoch_end(self, epoch, logs=None):
        is_complete = self._state.batch == self._plan.batches  # a callback can end it early
        if is_complete and epoch + 1 == self._plan.epochs:
            self._complete_last_step()
        self._stop.check()
        # The last loss was computed before the last update of the weights.
        path = path_of_diverged_weight(self.model.trainable_variables)
        if path is not None:
            raise Diverged(f"{path} holds NaN or infinity")

    def _complete_last_step(self):
        """Train on `plan.missing` more batches, so that all accumulated gradients are applied."""
        plan = self._plan
        first = plan.epochs * plan.batches
        for batch_index in range(first, first + plan.missing):
            if plan.cache is not None:
                plan.cache.set_gradients(batch_index)
            plan.trained.train_on_batch(*plan.batch(batch_index))


class ScoreDev(keras.callbacks.Callback):
    """Scores the model, keeps its weights if they are the best, and adds a line to the history.

    Args:
        run: The `FinetuningRun`, whose `score` may be `None`.
        state: Its `RunState`.
        progress: Its `Progress`.
    """

    def __init__(self, run, state, progress):
        super().__init__()
        self._run = run
        self._state = state
        self._progress = progress
        self._logs = {}

    def on_train_batch_end(self, batch, logs=None):
        done = self._state.batch
        batches = self._run.plan.batches
        every = self._run.recipe.batches_between_scores(batches)
        if every and done % every == 0 and done < batches:
            with self._progress.paused():
                self._record()

    def on_epoch_end(self, epoch, logs=None):
        history = self._state.history
        epochs_done = self._state.epochs_done(self._run.plan.batches)
        # The batch after which a callback ended the epoch early may be scored already.
        is_scored = history and history[-1]["epoch"] == epochs_done
        record = history[-1] if is_scored else self._record()
        logs.update(logs_of(record))  # the following callbacks get the scores
        self._logs = logs
        if self._run.patience is not None:
            best_record = best(history, self._run.metric)
            if record["epoch"] - best_record["epoch"] >= self._run.patience:
                self.model.stop_training = True

    def on_train_end(self, logs=None):
        logs.update(self._logs)

    def _record(self):
        """Append the metrics at this point of the training to the history, and return them."""
        run = self._run
        state = self._state
        record = {"epoch": state.epochs_done(run.plan.batches), "loss": state.loss}
        model = self.model  # on JAX, this updates its variables
        if run.fit_head is not None:
            run.fit_head()
        if run.score is not None:
            for callback in run.callbacks:
                callback.on_test_begin()
            record |= run.score()
            logs = logs_of(record)
            del logs["loss"]  # of the training
            logs = {key.removeprefix("val_"): value for key, value in logs.items()}
            for callback in run.callbacks:
                callback.on_test_end(logs)
            metric = run.metric or first_metric(record)
            self._progress.show_dev(metric, record[metric])
            if best([*state.history, record], metric) is record:
                state.keep_best(model, record)
        self._progress.report(record)
        state.history.append(record)
        return record


class SaveState(keras.callbacks.Callback):
    """Saves the `RunState` after each epoch and each score, and every five minutes.

    It comes last: a saved state holds what the other callbacks did, such as `stop_training`.
    """

    def __init__(self, state, plan, callbacks):
        super().__init__()
        self._state = state
        self._plan = plan
        self._callbacks = callbacks  # of the user

    def on_train_begin(self, logs=None):
        self._saved = time.perf_counter()
        self._saved_scores = len(self._state.history)

    def on_train_batch_end(self, batch, logs=None):
        if self._state.batch == self._plan.batches:
            return  # `on_epoch_end` follows
        is_scored = len(self._state.history) > self._saved_scores
        if is_scored or time.perf_counter() - self._saved > _SAVE_SECONDS:
            self._save()

    def on_epoch_end(self, epoch, logs=None):
        self._state.stopped = self.model.stop_training
        if self._state.batch == self._plan.batches:
            self._state.next_epoch()
        self._save()

    def _save(self):
        self._state.callbacks = user_callbacks.states_of(self._callbacks)
        self._state.save(self._plan.trained)
        self._saved = time.perf_counter()
        self._saved_scores = len(self._state.history)


def first_metric(record):
    """Return the name of the first metric in a record of the history."""
    return next(key for key in record if key not in _NOT_METRICS)


def best(history, metric=None):
    """Return the record of the best epoch.

    Args:
        history: A list of records, a dict of metrics per epoch.
        metric: Name of the metric. `None`: the first one in the records.
    """
    if metric is None:
        metric = first_metric(history[0])
    return max(history, key=lambda record: goodness(metric, record[metric]))


def goodness(metric, value):
    """Return a metric's value such that higher is better. NaN is the worst value.

    Example:

    >>> goodness("accuracy", 0.75), goodness("rmse", 0.75), goodness("f1", float("nan"))
    (0.75, -0.75, -inf)
    """
    if np.isnan(value):  # no comparison with NaN is true
        return -np.inf
    return -value if lower_is_better(metric) else value
