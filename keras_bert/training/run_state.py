"""The state of a fine-tuning run on disk, from which a killed run resumes."""

import hashlib
import json
import pathlib

import keras
import numpy as np

from keras_bert.training import state_file

STATE_FILE = "training.npz"
BEST_FILE = "best.npz"
_TYPES: dict[str, type | tuple[type, ...]] = {
    "epoch": int,
    "batch": int,
    "history": list,
    "seconds": (int, float),
    "loss": (int, float),
    "rows": int,
    "stopped": bool,
}
_ROWS = 1024  # sequences per batch that is hashed


class RunState:
    """Progress and history of a run, and the variables of its model and optimizer.

    Without a `folder`, only the best weights are kept, in memory. A run resumes only with equal
    `settings`, a dict that JSON can represent.

    Attributes:
        epoch, batch: The next batch to train on.
        history: A list of records: the metrics of an epoch, or of a score within an epoch.
        seconds: Time spent in training.
        stopped: True if a callback ended the training.
        loss, rows: Mean loss of the current epoch so far, and its number of rows.
    """

    def __init__(self, folder, settings):
        self._folder = None if folder is None else pathlib.Path(folder)
        self._settings = json.loads(json.dumps(settings))
        self._best: tuple[dict, list] | None = None  # only without a folder
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
        progress = {name: getattr(self, name) for name in _TYPES}
        header = {"settings": self._settings, "progress": progress}
        self._folder.mkdir(parents=True, exist_ok=True)
        state_file.write(self._folder / STATE_FILE, header, _variables(model))

    def restore(self, model):
        """Build the optimizer, read the state of an earlier run, and return True if there was one.

        Broken files and other settings are a `ValueError`.
        """
        model.optimizer.build(model.trainable_variables)
        file = None if self._folder is None else self._folder / STATE_FILE
        if file is None or not file.is_file():
            self.clear()  # without a state, the best weights belong to some other run
            return False
        remedy = "delete it to start over"
        progress = state_file.restore(
            file, self._settings, _variables(model), if_broken=remedy, if_other=remedy
        )
        with state_file.reading(file, remedy):
            if not all(isinstance(progress[name], kind) for name, kind in _TYPES.items()):
                raise ValueError("a value of its progress has another type")
            for record in progress["history"]:
                _check_record(record)
        for name in _TYPES:
            setattr(self, name, progress[name])
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
            self._folder.mkdir(parents=True, exist_ok=True)
            state_file.write(self._folder / BEST_FILE, {"record": record}, model.weights)

    def restore_best(self, model):
        """Set the best weights; return the metrics of their epoch, or `None` if there are none."""
        if not self.has_best:
            return None
        record, values = self._best or self._read_best(self._folder, model)
        state_file.assign(model.weights, values)
        return record

    def _read_best(self, folder, model):
        """Return the record of the best epoch and its weights."""
        file = folder / BEST_FILE
        remedy = f"delete {STATE_FILE} beside it to start over"
        if not file.is_file():
            raise ValueError(f"{file}, the best weights of the run, is missing; {remedy}")
        header, arrays = state_file.read(file, remedy)
        with state_file.reading(file, remedy):
            record = header["record"]
            _check_record(record)
            values = state_file.values_of(model.weights, arrays)
        # A run killed between saving these weights and its state repeats that part of the epoch.
        is_known = record["epoch"] in [other["epoch"] for other in self.history]
        if not is_known and not self.epoch < record["epoch"] <= self.epoch + 1:
            raise ValueError(f"{file} does not belong to the run in {folder}; {remedy}")
        return record, values

    def clear(self):
        """Delete the files of a finished run."""
        if self._folder is not None:
            for name in (STATE_FILE, BEST_FILE):
                (self._folder / name).unlink(missing_ok=True)


def digest(encoded):
    """Return a hash of the ids, targets and weights of encoded data, 16 hexadecimal digits."""
    hashed = hashlib.sha256()
    for start in range(0, len(encoded), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(encoded)))
        batch = encoded.batch(rows, int(encoded.lengths[rows].max()))
        for array in keras.tree.flatten([part for part in batch if part is not None]):
            hashed.update(array.tobytes())
    return hashed.hexdigest()[:16]


def _check_record(record):
    if not isinstance(record["epoch"], (int, float)):
        raise ValueError("a record of its history has no epoch")


def _variables(model):
    return [*model.variables, *model.optimizer.variables]
