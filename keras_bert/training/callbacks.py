"""The caller's Keras callbacks in a fine-tuning run: checks, and the list that calls them."""

import contextlib

import keras

from keras_bert import keras_private

DEV_LOSS = "dev_loss"
LOWER_IS_BETTER = ("rmse", DEV_LOSS)


def check_callbacks(callbacks, folder, schedule):
    """Raise an error for a callback that cannot work in `finetune`."""
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise ValueError(
                f"callbacks must be keras.callbacks.Callback instances; received {callback!r:.80}"
            )
        name = type(callback).__name__
        if isinstance(callback, keras.callbacks.LearningRateScheduler) and schedule != "linear":
            raise ValueError(
                f"{name} sets the learning rate of each epoch; remove it, or schedule={schedule!r}"
            )
        if isinstance(callback, keras.callbacks.BackupAndRestore) and folder is not None:
            raise ValueError(f"folder already resumes a killed run; remove folder or {name}")
        monitor = getattr(callback, "monitor", None) if _is_keras(callback) else None
        of_training = monitor not in (None, "loss") and not monitor.startswith("val_")
        if of_training and folder is not None:
            raise ValueError(
                f"{name} monitors {monitor!r}, which folder does not keep for a killed run. "
                "Monitor a score of dev, or remove folder"
            )
        if isinstance(callback, keras.callbacks.SwapEMAWeights):
            raise ValueError(f"finetune does not average weights; remove the callback {name}")


def rate_setter(callbacks):
    """Return the name of Keras' callback that sets the learning rate, or `None`."""
    for kind in (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau):
        if any(isinstance(callback, kind) for callback in callbacks):
            return kind.__name__
    return None


def check_monitors(callbacks, scores, train_names):
    """Check what callbacks monitor, and set their `mode`, which Keras cannot know for F1.

    `scores` are the names of the scores of the dev data, or `None` without dev data. `train_names`
    are those of the training loss and metrics.
    """
    known = ["val_loss", *(f"val_{score}" for score in scores or ())]
    for callback in callbacks:
        monitor = getattr(callback, "monitor", None)
        if not isinstance(monitor, str):
            continue
        if not monitor.startswith("val_") and not _is_keras(callback):
            continue  # another callback of the caller may add this value to the logs
        if not getattr(callback, "save_best_only", True):  # a ModelCheckpoint of each epoch
            continue
        received = f"{type(callback).__name__} monitors {monitor!r}"
        if scores is None and monitor.startswith("val_"):
            raise ValueError(f"{received}; pass dev, the data to score")
        all_known = [*train_names, *(known if scores is not None else ())]
        if monitor not in all_known:
            raise ValueError(f"{received}; monitor must be one of {', '.join(all_known)}")
        if getattr(callback, "mode", None) == "auto":
            is_loss = monitor.endswith("loss") or _record_name(monitor) in LOWER_IS_BETTER
            callback.mode = "min" if is_loss else "max"


def _is_keras(callback):
    """Return True for an instance of a callback class of Keras itself."""
    return type(callback).__module__.split(".")[0] == "keras"


def selecting_metric(callbacks, metric):
    """Return the name of the metric that selects the best epoch of dev data.

    `EarlyStopping(restore_best_weights=True)` overrides `metric`.
    """
    for callback in callbacks:
        if not getattr(callback, "restore_best_weights", False):
            continue
        if not callback.monitor.startswith("val_"):
            raise ValueError(
                "with dev, finetune returns the best epoch on dev; set restore_best_weights=False "
                f"or monitor a value of dev, such as 'val_loss'; received {callback.monitor!r}"
            )
        monitored = _record_name(callback.monitor)
        mode = "min" if monitored in LOWER_IS_BETTER else "max"
        starts_later = getattr(callback, "start_from_epoch", None)
        if callback.mode not in ("auto", mode) or starts_later:
            raise ValueError(
                f"restore_best_weights of {type(callback).__name__} needs mode={mode!r} and "
                "start_from_epoch=0, since finetune returns the best of all epochs"
            )
        if metric not in (None, monitored):
            raise ValueError(
                f"metric={metric!r} and the monitor {callback.monitor!r} of "
                f"{type(callback).__name__} both select the best epoch; remove one"
            )
        metric = monitored
    return metric


def _record_name(monitor):
    """Return the key in a history record for a key in the logs: "f1" for "val_f1"."""
    score = monitor.removeprefix("val_")
    return DEV_LOSS if score == "loss" else score


def logs_of(record):
    """Return a history record as the logs of an epoch, with Keras' names."""
    logs = {"loss": record["loss"]}
    for name, value in record.items():
        if name not in ("epoch", "loss"):
            logs["val_loss" if name == DEV_LOSS else f"val_{name}"] = value
    return logs


class Callbacks(keras.callbacks.CallbackList):
    """Calls the caller's callbacks with the caller's model, as one `fit` over all epochs does.

    Each epoch is a `fit` of its own, and of a model for packed batches. Callbacks do not see these
    inner calls.

    Args:
        callbacks: The caller's callbacks.
        model: The caller's model, which shares its variables with `trained`.
        trained: The model whose `fit` is called.
        epochs: Number of epochs.
        steps: Batches per epoch.

    Attributes:
        terminate_on_nan: True if a `TerminateOnNaN` is given. A loss of NaN then ends the run
            without an error, if there is a best epoch.
    """

    def __init__(self, callbacks, model, trained, epochs, steps):
        self._has_batch_calls = bool(callbacks)
        self.terminate_on_nan = any(
            isinstance(each, keras.callbacks.TerminateOnNaN) for each in callbacks
        )
        self._target, self._trained, self._last_logs = model, trained, None
        super().__init__(
            list(callbacks), add_history=True, model=model, epochs=epochs, steps=steps, verbose=0
        )

    @contextlib.contextmanager
    def training(self, history):
        """Call `on_train_begin` and `on_train_end` around a block that trains.

        `history` has the records of an earlier process, whose best values are passed on.

        Yields:
            The number of epochs that a `BackupAndRestore` restored, or 0.
        """
        model = self._target
        model.stop_training = False
        if model is not self._trained and keras.backend.backend() == "jax":
            # `Callback.model` calls this method: within an epoch, JAX's variables are outdated.
            # `predict` calls it too, for the state of `model` itself.
            both = (self._trained.jax_state_sync, model.jax_state_sync)
            model.jax_state_sync = lambda: [synchronize() for synchronize in both]
        if history:
            for callback in self.callbacks:
                if isinstance(callback, keras.callbacks.CSVLogger):
                    callback.append = True
        try:
            self.on_train_begin()
            self._restore_best(history)
            yield keras_private.pop_initial_epoch(model)
            self.on_train_end(self._last_logs)
        finally:
            model.__dict__.pop("jax_state_sync", None)

    def _restore_best(self, history):
        """Tell callbacks that monitor a value its best one so far."""
        whole = [logs_of(record) for record in history if record["epoch"] % 1 == 0]
        for callback in self.callbacks:
            monitor, mode = (getattr(callback, name, None) for name in ("monitor", "mode"))
            values = [logs[monitor] for logs in whole if monitor in logs]
            if not values or mode not in ("min", "max"):
                continue
            callback.best = min(values) if mode == "min" else max(values)
            if hasattr(callback, "wait"):
                callback.wait = len(values) - 1 - values.index(callback.best)

    @property
    def stopped(self):
        """True if a callback has set `model.stop_training`."""
        return self._target.stop_training

    def on_train_batch_begin(self, batch, logs=None):
        if self._has_batch_calls:
            super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        if self._has_batch_calls:  # reading the logs waits for the device
            super().on_train_batch_end(batch, logs)
            if self._target.stop_training:
                self._trained.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        self._last_logs = logs
