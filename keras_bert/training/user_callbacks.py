"""The user's Keras callbacks in a fine-tuning run: checks, and what they get on resuming."""

import keras

from keras_bert import keras_private, optimizers
from keras_bert.tasks import registry

DEV_LOSS = "dev_loss"


def lower_is_better(name):
    """Return True for an error or the dev loss, False for a score."""
    return name == DEV_LOSS or registry.lower_is_better(name)


def as_list(callbacks):
    """Return one callback, several or `None` as a list."""
    return [] if callbacks is None else keras.tree.flatten(callbacks)


def check_with_folder(callbacks):
    """Raise an error for a callback that cannot work in a run that resumes from a folder."""
    for callback in callbacks:
        name = type(callback).__name__
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            raise ValueError(f"folder already resumes a killed run; remove folder or {name}")
        monitor = getattr(callback, "monitor", None) if _is_keras(callback) else None
        if monitor not in (None, "loss") and not monitor.startswith("val_"):
            raise ValueError(
                f"{name} monitors {monitor!r}, which folder does not keep for a killed run. "
                "Monitor a score of dev, or remove folder"
            )


def rate_setter(callbacks):
    """Return the name of Keras' callback that sets the learning rate, or `None`."""
    for kind in (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau):
        if any(isinstance(callback, kind) for callback in callbacks):
            return kind.__name__
    return None


def with_settable_rate(optimizer, callbacks, recipe):
    """Let the callbacks set the rate of the optimizer of a `FinetuningRecipe`, if one does."""
    setter = rate_setter(callbacks)
    if setter is None or recipe.optimizer is not None:
        return optimizer
    config = optimizer.get_config()
    if setter == "LearningRateScheduler":
        return optimizers.AdamW.from_config({**config, "learning_rate": recipe.learning_rate})
    return optimizers.SettableRateAdamW.from_config(config)


def check_monitors(callbacks, scores, compile_options):
    """Check what callbacks monitor, and set their `mode`, which Keras cannot know for F1.

    `scores` are the names of the scores of the dev data, or `None` without dev data.
    `compile_options` has the training loss and metrics.
    """
    known = ["loss"]
    if isinstance(compile_options.get("loss"), dict):
        known += [f"{name}_loss" for name in compile_options["loss"]]
    known += [metric.name for metric in compile_options.get("weighted_metrics") or ()]
    if scores is not None:
        known += ["val_loss", *(f"val_{score}" for score in scores)]
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
        if monitor not in known:
            raise ValueError(f"{received}; monitor must be one of {', '.join(known)}")
        if getattr(callback, "mode", None) == "auto":
            is_loss = monitor.endswith("loss") or lower_is_better(_record_name(monitor))
            callback.mode = "min" if is_loss else "max"


def _is_keras(callback):
    """Return True for an instance of a callback class of Keras itself."""
    return type(callback).__module__.split(".")[0] == "keras"


def selecting_metric(callbacks, metric):
    """Return the name of the metric that selects the best epoch of dev data.

    `EarlyStopping(restore_best_weights=True)` overrides `metric`.
    """
    for callback in callbacks:
        if getattr(callback, "restore_best_weights", False):
            if not callback.monitor.startswith("val_"):
                raise ValueError(
                    "with dev, finetune returns the best epoch on dev; set "
                    "restore_best_weights=False or monitor a value of dev, such as 'val_loss'; "
                    f"received {callback.monitor!r}"
                )
            metric = _record_name(callback.monitor)
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


def resume(callbacks, model, history):
    """Let a `BackupAndRestore` load its state into the model; return the epoch that comes next.

    A `CSVLogger` keeps the lines of the earlier process, which has left a `history`.
    """
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.CSVLogger) and history:
            callback.append = True
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            callback.set_model(model)
            callback.on_train_begin()
    return keras_private.pop_initial_epoch(model)


class RestoreMonitors(keras.callbacks.Callback):
    """Gives the user's callbacks of a resumed run the best values so far that they monitor.

    Args:
        callbacks: The user's callbacks, which come before this one.
        history: The records of the earlier process.
    """

    def __init__(self, callbacks, history):
        super().__init__()
        self._callbacks = callbacks
        self._logs = [logs_of(record) for record in history if record["epoch"] % 1 == 0]

    def on_train_begin(self, logs=None):
        for callback in self._callbacks:
            monitor, mode = (getattr(callback, name, None) for name in ("monitor", "mode"))
            values = [logs[monitor] for logs in self._logs if monitor in logs]
            if not values or mode not in ("min", "max"):
                continue
            callback.best = min(values) if mode == "min" else max(values)
            if hasattr(callback, "wait"):
                callback.wait = len(values) - 1 - values.index(callback.best)
