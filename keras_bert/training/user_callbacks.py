"""The user's Keras callbacks in a fine-tuning run: checks, and what they get on resuming."""

from typing import Any

import keras
import numpy as np

from keras_bert import optimizers
from keras_bert.runtime.escaping import shown
from keras_bert.tasks import registry

DEV_LOSS = "dev_loss"
# Attributes of the callbacks of Keras that compare epochs with earlier ones.
_STATE = {"best", "wait", "cooldown_counter"}


def lower_is_better(name):
    """Return True for an error or the dev loss, False for a score."""
    return name == DEV_LOSS or registry.lower_is_better(name)


def as_checked_list(callbacks, folder, dev):
    """Return the argument `callbacks` of `finetune` as a list.

    A callback of Keras that would change the result of a resumed run is an error.
    """
    callbacks = [] if callbacks is None else keras.tree.flatten(callbacks)
    for callback in callbacks:
        name = type(callback).__name__
        if not isinstance(callback, keras.callbacks.Callback):
            raise ValueError(
                f"callbacks must be a list of keras.callbacks.Callback; received {shown(callback)}"
            )
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            raise ValueError(f"{name} does not work in finetune; use folder to resume a killed run")
        if isinstance(callback, keras.callbacks.SwapEMAWeights):
            raise ValueError(f"finetune does not average weights; remove the callback {name}")
        if folder is None or type(callback).__module__.split(".")[0] != "keras":
            continue
        if dev is None and getattr(callback, "restore_best_weights", False):
            raise ValueError(
                f"without dev, folder does not keep the best weights of {name} for a killed run. "
                "Give dev, or remove folder or restore_best_weights"
            )
        monitor = getattr(callback, "monitor", None)
        if monitor not in (None, "loss") and not monitor.startswith("val_"):
            raise ValueError(
                f"{name} monitors {monitor!r}, which folder does not keep for a killed run. "
                "Monitor a score of dev, or remove folder"
            )
    return callbacks


def rate_setter(callbacks):
    """Return the name of Keras' callback that sets the learning rate, or `None`."""
    for kind in (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau):
        if any(isinstance(callback, kind) for callback in callbacks):
            return kind.__name__
    return None


def with_settable_rate(optimizer, callbacks, recipe):
    """Give AdamW a constant rate, which a callback can set, in place of the schedule."""
    if rate_setter(callbacks) is None or recipe.optimizer is not None:
        return optimizer
    config = optimizer.get_config() | {"learning_rate": recipe.learning_rate}
    return optimizers.AdamW.from_config(config)


def set_modes(callbacks):
    """Set the `mode` of callbacks, which Keras cannot know for F1 and other scores."""
    for callback in callbacks:
        if getattr(callback, "mode", None) == "auto":
            monitor = callback.monitor
            is_loss = monitor.endswith("loss") or lower_is_better(_record_name(monitor))
            callback.mode = "min" if is_loss else "max"


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
            mode = "min" if lower_is_better(metric) else "max"
            if callback.mode not in ("auto", mode) or getattr(callback, "start_from_epoch", None):
                raise ValueError(
                    f"restore_best_weights needs mode={mode!r} and start_from_epoch=0, since "
                    "finetune returns the best of all epochs"
                )
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


def states_of(callbacks):
    """Return what `restore` needs: the class of each callback, and its values of `_STATE`."""
    states = []
    for callback in callbacks:
        state: dict[str, Any] = {"class": type(callback).__name__}
        for name in _STATE:
            value = getattr(callback, name, None)
            if isinstance(value, (int, float, np.number)):
                state[name] = float(value)
        states.append(state)
    return states


def restore(callbacks, states):
    """Give the callbacks of a resumed run the values of an earlier process.

    The n-th callback of a class gets the n-th state of this class.
    """
    left = list(states)
    for callback in callbacks:
        for state in left:
            if state["class"] == type(callback).__name__:
                left.remove(state)
                for name in _STATE & state.keys():
                    setattr(callback, name, state[name])
                break
