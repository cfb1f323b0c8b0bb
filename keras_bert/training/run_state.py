"""The state of a run on disk, from which a killed run resumes.

A state file is an `.npz` file of a JSON header and numbered arrays, the values of variables.
"""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
from typing import Any

import keras
import numpy as np

from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.files import atomic_write, remove_stale_temporaries
from keras_bert.runtime.reading import json_value, one_line
from keras_bert.untrusted import containers, links

STATE_FILE = "training.npz"
BEST_FILE = "best.npz"
START_OVER = "delete it to start over"
_HEADER = "header"  # name of the header in the file
_ROWS = 1024  # sequences per batch that is hashed


@dataclasses.dataclass
class Checkpoints:
    """The `keep` newest state files of a run in a folder.

    A run resumes only with equal `settings`, a dict that JSON can represent. In `name`, the number
    of steps replaces "*". The remedies `if_broken` and `if_other` end the errors for a broken file
    and for other settings.
    """

    folder: Any
    settings: dict
    name: str = "step-*.npz"
    keep: int = 3
    if_broken: str = START_OVER
    if_other: str = START_OVER

    def __post_init__(self):
        self.folder = pathlib.Path(self.folder)
        self.settings = json.loads(json.dumps(self.settings, default=str))

    def files(self):
        """Return the paths of the files, the oldest first."""
        return sorted(self.folder.glob(self.name))

    def save(self, variables, progress, step=0):
        """Write a file, then delete the oldest ones.

        On an error, earlier files are unchanged. JSON can represent `progress`, a dict with the
        `history`, a list of dicts.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / self.name.replace("*", f"{step:08}")
        write(file, {"settings": self.settings, "progress": progress}, variables)
        for old in self.files()[: -self.keep]:
            old.unlink()
        remove_stale_temporaries(self.folder / self.name)

    def restore(self, variables):
        """Assign the values of the newest file to variables; return the `progress` or `None`.

        A broken file, or one of a run with other settings, is a `ValueError`.
        """
        if not self.files():
            return None
        file = self.files()[-1]
        header, arrays = read(file, self.if_broken)
        with reading(file, self.if_broken):
            saved = dict(header["settings"])
            progress = dict(header["progress"])
            if not all(isinstance(record, dict) for record in progress["history"]):
                raise ValueError("its history is not a list of records")
        # Different settings can change the variables, so compare the settings first.
        check_settings(file, saved, self.settings, self.if_other)
        with reading(file, self.if_broken):
            values = values_of(variables, arrays)
        assign(variables, values)
        return progress


# Attributes of `RunState` in the file, with their types in JSON.
_SAVED = {
    "epoch": int, "batch": int, "history": list, "seconds": float, "loss": float, "rows": int,
    "stopped": bool, "before": dict, "callbacks": list,
}  # fmt: skip


class RunState:
    """Progress and history of a fine-tuning run, and its best weights so far.

    Without a `folder`, only the best weights are kept, in memory. A run resumes only with equal
    `settings`, a dict that JSON can represent.

    Attributes:
        epoch, batch: The next batch to train on.
        history: A list of records: the metrics of an epoch, or of a score within an epoch.
        seconds: Time spent in training.
        stopped: True if a callback ended the training.
        before: Metrics of the dev data before the training, if the model could answer.
        callbacks: The `user_callbacks.states_of` the user's callbacks.
        loss, rows: Mean loss of the current epoch so far, and its number of examples.
    """

    def __init__(self, folder, settings):
        self._checkpoints: Checkpoints | None = None
        self._best_file: pathlib.Path | None = None
        self._best: tuple[dict, list] | None = None  # only without a folder
        if folder is not None:
            self._checkpoints = Checkpoints(folder, settings, STATE_FILE, keep=1)
            self._best_file = self._checkpoints.folder / BEST_FILE
        self.epoch = 0
        self.batch = 0
        self.history: list[dict] = []
        self.seconds = 0.0
        self.loss = 0.0
        self.rows = 0
        self.stopped = False
        self.before: dict = {}
        self.callbacks: list[dict] = []

    def epochs_done(self, batches):
        """Return the trained epochs of so many batches: an int, or a fraction within an epoch."""
        if self.batch == batches:
            return self.epoch + 1
        return round(self.epoch + self.batch / batches, 3)

    def next_epoch(self):
        """Move to the beginning of the next epoch."""
        self.epoch += 1
        self.batch = 0
        self.loss = 0.0
        self.rows = 0

    def save(self, model):
        """Write the state atomically; it replaces the previous one."""
        if self._checkpoints is None:
            return
        if keras.backend.backend() == "jax":
            model.jax_state_sync()  # during `fit` the variables are outdated
        progress = {name: getattr(self, name) for name in _SAVED}
        self._checkpoints.save(variables_of(model), progress)

    def restore(self, trained, model):
        """Build the optimizer, read the state of an earlier run, and return True if there was one.

        `trained` is the model that takes the batches, and `model` the one whose best weights are
        kept. Broken files and other settings are a `ValueError`.
        """
        trained.optimizer.build(trained.trainable_variables)
        if self._checkpoints is None:
            return False
        progress = self._checkpoints.restore(variables_of(trained))
        if progress is None:
            self.clear()  # without a state, the best weights belong to some other run
            return False
        with reading(self._checkpoints.folder / STATE_FILE, START_OVER):
            for name, kind in _SAVED.items():
                if kind is bool and not isinstance(progress[name], bool):
                    raise TypeError(f"{name} is not true or false")
                setattr(self, name, kind(progress[name]))
        if any(record.keys() - {"epoch", "loss"} for record in self.history):
            self._read_best(model)  # report an error before the training, not after
        return True

    @property
    def has_best(self):
        """True if there are weights of a best epoch."""
        return self._best is not None if self._best_file is None else self._best_file.is_file()

    def keep_best(self, model, record):
        """Keep the model's weights as the best so far, with the metrics of their epoch."""
        if self._best_file is None:
            self._best = record, [keras.ops.convert_to_numpy(weight) for weight in model.weights]
        else:
            self._best_file.parent.mkdir(parents=True, exist_ok=True)
            write(self._best_file, {"record": record}, model.weights)

    def restore_best(self, model):
        """Set the best weights; return the metrics of their epoch, or `None` if there are none."""
        if not self.has_best:
            return None
        record, values = self._best or self._read_best(model)
        assign(model.weights, values)
        return record

    def _read_best(self, model):
        """Return the record of the best epoch and its weights."""
        remedy = f"delete {STATE_FILE} beside it to start over"
        if not self.has_best:
            raise ValueError(
                f"{self._best_file}, the best weights of the run, is missing; {remedy}"
            )
        header, arrays = read(self._best_file, remedy)
        with reading(self._best_file, remedy):
            record = dict(header["record"])
            values = values_of(model.weights, arrays)
            epoch = record["epoch"]
        # A run killed between saving these weights and its state repeats that part of the epoch.
        is_known = epoch in [other["epoch"] for other in self.history]
        if not is_known and not self.epoch < epoch <= self.epoch + 1:
            raise ValueError(f"{self._best_file} does not belong to this run; {remedy}")
        return record, values

    def clear(self):
        """Delete the files of a finished run."""
        if self._checkpoints is not None:
            for name in (STATE_FILE, BEST_FILE):
                (self._checkpoints.folder / name).unlink(missing_ok=True)


def write(file, header, variables):
    """Write a state file atomically: a header that JSON can represent, and values of variables."""
    arrays = {str(index): _to_array(variable) for index, variable in enumerate(variables)}
    arrays[_HEADER] = json.dumps(header, ensure_ascii=False)
    # Durable: older files are deleted afterwards.
    with atomic_write(file, durable=True) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **arrays)


def read(file, remedy):
    """Return `(header, arrays)` of a state file; `remedy` ends the error for a broken file."""
    with reading(file, remedy):
        links.check_file(file)
        arrays = containers.read_npz(file)
        header = dict(json_value(str(arrays.pop(_HEADER))))
        numbered = [arrays[str(index)] for index in range(len(arrays))]
        if not all(np.isfinite(array).all() for array in numbered):
            raise ValueError("it holds NaN or infinity")
    return header, numbered


def saved_settings(folder):
    """Return the settings of the run whose state is in a folder; `None` if there is no state."""
    file = pathlib.Path(folder, STATE_FILE)
    if not file.is_file():
        return None
    with reading(file, START_OVER):
        links.check_file(file)
        header = containers.read_npz(file, [_HEADER])[_HEADER]
        return dict(json_value(str(header))["settings"])


@contextlib.contextmanager
def reading(file, remedy):
    """Convert errors of the block into a `ValueError` that names the file and the remedy."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is broken ({one_line(error)}); {remedy}") from error


def variables_of(model):
    """Return the variables of a model and its optimizer, in the order of a state file."""
    return [*model.variables, *model.optimizer.variables]


def values_of(variables, arrays):
    """Return the values of variables from the arrays of a file, or raise a `ValueError`."""
    if len(arrays) != len(variables):
        raise ValueError(f"it holds {len(arrays)} variables, not {len(variables)}")
    values = []
    for array, variable in zip(arrays, variables, strict=True):
        if variable.dtype == "bfloat16":
            import ml_dtypes

            array = array.view(ml_dtypes.bfloat16)
        if tuple(array.shape) != tuple(variable.shape):
            raise ValueError(f"{variable.path} has shape {variable.shape}, received {array.shape}")
        values.append(array)
    return values


def assign(variables, values):
    """Assign values to variables."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _to_array(variable):
    """Return the value; store bfloat16, which NumPy's files cannot hold, as its uint16 bits."""
    array = np.asarray(keras.ops.convert_to_numpy(variable))
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def check_settings(file, saved, current, remedy):
    """Raise a `ValueError` unless `saved`, the settings in a file, equal `current`.

    Both are nested dicts as JSON represents them. The message names the first setting that differs
    and ends with `remedy`. A missing setting equals `None` and a dict or list without settings.
    """
    saved = dict(keras.tree.flatten_with_path(saved))
    current = dict(keras.tree.flatten_with_path(current))
    for path in current | saved:
        if saved.get(path) != current.get(path):
            name = printable(".".join(map(str, path)), 200)
            raise ValueError(
                f"{file} belongs to a run with {name}={shown(saved.get(path), 200)}; this run has "
                f"{shown(current.get(path), 200)}; {remedy}"
            )


def digest(encoded):
    """Return a hash of the ids, targets and weights of encoded data, 16 hexadecimal digits."""
    hashed = hashlib.sha256()
    for start in range(0, len(encoded), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(encoded)))
        batch = encoded.batch(rows, int(encoded.lengths[rows].max()))
        for array in keras.tree.flatten([part for part in batch if part is not None]):
            hashed.update(array.tobytes())
    return hashed.hexdigest()[:16]
