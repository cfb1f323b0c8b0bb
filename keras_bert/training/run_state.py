"""The state of a fine-tuning run on disk, from which a killed run resumes."""

import hashlib
import json
import pathlib

import keras
import numpy as np

from keras_bert.training import state_file

STATE_FILE = "training.npz"
BEST_FILE = "best.npz"
_HEADER = "place"
# Required keys of the state and their types.
_TYPES = {
    "settings": dict,
    "epoch": int,
    "batch": int,
    "history": list,
    "seconds": (int, float),
    "loss": (int, float),
    "rows": int,
}
_ATTRIBUTES = [key for key in _TYPES if key != "settings"]
_ROWS = 1024  # sequences per batch that is hashed


class RunState:
    """Progress and history of a run, and the variables of its model and optimizer.

    Without a `folder`, only the best weights are kept, in memory. A run resumes only with equal
    `settings`, a dict that JSON can represent.

    Attributes:
        epoch, batch: The next batch to train on.
        history: A dict of metrics per completed epoch.
        seconds: Time spent in training.
        stopped: True if a callback ended the training.
        loss, rows: Mean loss of the current epoch so far, and its number of rows.
    """

    def __init__(self, folder, settings):
        self._folder = None if folder is None else pathlib.Path(folder)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        self._settings = json.loads(json.dumps(settings))
        self._best = None
        self.epoch, self.batch, self.history = 0, 0, []
        self.seconds, self.loss, self.rows = 0.0, 0.0, 0
        self.stopped = False

    def next_epoch(self):
        """Move to the beginning of the next epoch."""
        self.epoch, self.batch, self.loss, self.rows = self.epoch + 1, 0, 0.0, 0

    def save(self, model):
        """Write the state atomically; it replaces the previous one."""
        if self._folder is None:
            return
        if keras.backend.backend() == "jax":
            model.jax_state_sync()  # during `fit` the variables are outdated
        header = {"settings": self._settings}
        header |= {key: getattr(self, key) for key in _ATTRIBUTES}
        header |= {"stopped": True} if self.stopped else {}
        arrays = _to_arrays(_variables(model))
        state_file.write(self._folder / STATE_FILE, _HEADER, header, arrays)

    def restore(self, model):
        """Build the optimizer, read the state of an earlier run, and return True if there was one.

        Broken files and other settings are a `ValueError`.
        """
        model.optimizer.build(model.trainable_variables)
        file = None if self._folder is None else self._folder / STATE_FILE
        if file is None or not file.is_file():
            self.clear()  # without a state, the best weights belong to some other run
            return False
        variables = _variables(model)
        remedy = "delete it to start over"
        header, values = _read(file, _TYPES, remedy)
        # Different settings can change the variables, so compare the settings first.
        state_file.check_settings(file, header["settings"], self._settings, remedy)
        if [value.shape for value in values] != [tuple(each.shape) for each in variables]:
            raise ValueError(f"{file} is broken (its variables have other shapes); {remedy}")
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        for key in _ATTRIBUTES:
            setattr(self, key, header[key])
        self.stopped = bool(header.get("stopped"))
        if any(record.keys() - {"epoch", "loss"} for record in self.history):
            self._read_best(file.parent, model)  # report an error before the training, not after
        return True

    @property
    def has_best(self):
        """True if there are weights of a best epoch."""
        if self._folder is None:
            return self._best is not None
        return (self._folder / BEST_FILE).is_file()

    def keep_best(self, model, record):
        """Keep the model's weights as the best so far, with the metrics of their epoch."""
        if self._folder is None:
            self._best = record, [keras.ops.convert_to_numpy(weight) for weight in model.weights]
        else:
            arrays = _to_arrays(model.weights)
            state_file.write(self._folder / BEST_FILE, _HEADER, record, arrays)

    def restore_best(self, model):
        """Set the best weights; return the metrics of their epoch, or `None` if there are none."""
        best = self._best
        if self._folder is not None and self.has_best:
            best = self._read_best(self._folder, model)
        if best is None:
            return None
        record, values = best
        for weight, value in zip(model.weights, values, strict=True):
            weight.assign(value)
        return record

    def _read_best(self, folder, model):
        """Return the record of the best epoch and its weights."""
        file = folder / BEST_FILE
        remedy = f"delete {STATE_FILE} beside it to start over"
        if not file.is_file():
            raise ValueError(f"{file}, the best weights of the run, is missing; {remedy}")
        record, values = _read(file, {"epoch": (int, float)}, remedy)
        shapes = [tuple(weight.shape) for weight in model.weights]
        # A run killed between saving these weights and its state repeats that part of the epoch.
        known = record["epoch"] in [each["epoch"] for each in self.history]
        known = known or self.epoch < record["epoch"] <= self.epoch + 1
        if not known or [value.shape for value in values] != shapes:
            raise ValueError(f"{file} does not belong to the run in {folder}; {remedy}")
        return record, values

    def clear(self):
        """Delete the files of a finished run."""
        if self._folder is not None:
            for name in (STATE_FILE, BEST_FILE):
                (self._folder / name).unlink(missing_ok=True)


def digest(encoded):
    """Return a hash of the ids, targets and weights of encoded data, 16 hexadecimal digits."""
    found = hashlib.sha256()
    for start in range(0, len(encoded), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(encoded)))
        batch = encoded.batch(rows, int(encoded.lengths[rows].max()))
        for array in keras.tree.flatten([part for part in batch if part is not None]):
            found.update(array.tobytes())
    return found.hexdigest()[:16]


def _variables(model):
    return [*model.variables, *model.optimizer.variables]


def _to_arrays(variables):
    arrays = [keras.ops.convert_to_numpy(variable) for variable in variables]
    # NumPy's files cannot hold bfloat16. The conversion to float32 and back is exact.
    return [a.astype("float32") if a.dtype.name == "bfloat16" else a for a in arrays]


def _read(file, types, remedy):
    """Return the header and the arrays of a file, after a check of the header's types."""
    with state_file.reading(file, remedy):
        header, arrays = state_file.read(file, _HEADER)
        is_valid = all(isinstance(header[key], kind) for key, kind in types.items())
        history = header.get("history", ())
        if not is_valid or not all(isinstance(each, dict) and "epoch" in each for each in history):
            raise ValueError("a key is missing or of another type")
    return header, arrays
