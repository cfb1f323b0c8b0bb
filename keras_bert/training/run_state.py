"""The state of a run on disk, from which a killed run resumes.

A state file is an `.npz` file of a JSON header, numbered arrays, the values of variables, and the
digest of both. So the parts of a file belong together.
"""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import sys
from typing import Any

import keras
import numpy as np

from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.files import atomic_write, remove_stale_temporaries
from keras_bert.runtime.reading import json_value, one_line
from keras_bert.untrusted import containers, links

STATE_FILE = "training.npz"
START_OVER = "delete it to start over"
_HEADER = "header"  # names in the file
_DIGEST = "digest"
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

    def read(self, check=None):
        """Return the `progress` and the arrays of the newest file; `None` if there is no file.

        `check` is `None`, or a function that raises an error for a wrong `progress`. A broken file,
        or one of a run with other settings, is a `ValueError`.
        """
        if not self.files():
            return None
        file = self.files()[-1]
        header, arrays = read(file, self.if_broken)
        with reading(file, self.if_broken):
            check_types(header, {"settings": dict, "progress": dict})
        # Different settings can change the progress and the variables, so compare them first.
        check_settings(file, header["settings"], self.settings, self.if_other)
        if check is not None:
            with reading(file, self.if_broken):
                check(header["progress"])
        return header["progress"], arrays

    def restore(self, variables, check=None):
        """Assign the values of the newest file to variables; return the `progress` or `None`.

        `check` is as in `read`.
        """
        saved = self.read(check)
        if saved is None:
            return None
        progress, arrays = saved
        with reading(self.files()[-1], self.if_broken):
            values = values_of(variables, arrays)
        assign(variables, values)
        return progress


# Attributes of `RunState` in the file, with their types in JSON.
_SAVED = {
    "epoch": int, "batch": int, "history": list, "seconds": float, "loss": float, "rows": int,
    "stopped": bool, "before": dict, "callbacks": list, "best": int,
}  # fmt: skip
_NO_BEST = -1


class RunState:
    """Progress and history of a fine-tuning run, and its best weights so far.

    Without a `folder`, nothing is saved. A run resumes only with equal `settings`, a dict that JSON
    can represent. The run has `epochs`, each of `batches` batches.

    Attributes:
        epoch, batch: The next batch to train on.
        history: A list of records: the metrics of an epoch, or of a score within an epoch.
        seconds: Time spent in training.
        stopped: True if a callback ended the training.
        before: Metrics of the dev data before the training, if the model could answer.
        callbacks: The `user_callbacks.states_of` the user's callbacks.
        loss, rows: Mean loss of the current epoch so far, and its number of sequences that count.
        best: Index in `history` of the record of the best weights, or -1.
    """

    def __init__(self, folder, settings, epochs, batches):
        self._checkpoints: Checkpoints | None = None
        if folder is not None:
            self._checkpoints = Checkpoints(folder, settings, STATE_FILE, keep=1)
        self._epochs = epochs
        self._batches = batches
        self._best_record: dict | None = None
        self._best_weights: list = []
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
        self._checkpoints.save([*variables_of(model), *self._best_weights], progress)

    @property
    def best(self):
        return _NO_BEST if self._best_record is None else self.history.index(self._best_record)

    def restore(self, trained, model):
        """Build the optimizer, read the state of an earlier run, and return True if there was one.

        `trained` is the model that takes the batches, and `model` the one whose best weights are
        kept. Broken files and other settings are a `ValueError`.
        """
        trained.optimizer.build(trained.trainable_variables)
        if self._checkpoints is None:
            return False
        saved = self._checkpoints.read(self._check)
        if saved is None:
            return False
        progress, arrays = saved
        best = progress.pop("best")
        variables = variables_of(trained)
        weights = [] if best == _NO_BEST else model.weights
        with reading(self._checkpoints.folder / STATE_FILE, START_OVER):
            values = values_of([*variables, *weights], arrays)
        assign(variables, values[: len(variables)])
        for name, value in progress.items():
            setattr(self, name, value)
        if best != _NO_BEST:
            self._best_record = self.history[best]
            self._best_weights = values[len(variables) :]
        return True

    def _check(self, progress):
        """Raise an error for a `progress` that a run of these epochs and batches cannot have."""
        check_types(progress, _SAVED)
        epoch = progress["epoch"]
        last_batch = 0 if epoch == self._epochs else self._batches
        _check_range("epoch", epoch, 0, self._epochs)
        _check_range("batch", progress["batch"], 0, last_batch)
        for name in ("rows", "seconds"):
            _check_range(name, progress[name], 0, sys.float_info.max)
        history = progress["history"]
        previous = 0
        for record in history:
            _check_numbers("a record of the history", record, ("epoch", "loss"))
            _check_range("epoch of a record", record["epoch"], previous, epoch + 1)
            previous = record["epoch"]
        _check_numbers("before", progress["before"])
        for state in progress["callbacks"]:
            check_types(state, {"class": str}, others=float)
        is_scored = any(record.keys() - {"epoch", "loss"} for record in history)
        first = 0 if is_scored else _NO_BEST
        _check_range("best", progress["best"], first, len(history) - 1 if is_scored else _NO_BEST)

    @property
    def has_best(self):
        """True if there are weights of a best epoch."""
        return self._best_record is not None

    def keep_best(self, model, record):
        """Keep the model's weights as the best so far, with the metrics of their epoch."""
        self._best_record = record
        self._best_weights = [keras.ops.convert_to_numpy(weight) for weight in model.weights]

    def restore_best(self, model):
        """Set the best weights; return the metrics of their epoch, or `None` if there are none."""
        if self._best_record is not None:
            assign(model.weights, self._best_weights)
        return self._best_record

    def clear(self):
        """Delete the file of a finished run."""
        if self._checkpoints is not None:
            (self._checkpoints.folder / STATE_FILE).unlink(missing_ok=True)


def check_types(values, types, others=None):
    """Raise an error unless a dict has these names with values of these types in JSON.

    `others` is the type of all further values, or `None` if there may be none.
    """
    if type(values) is not dict:
        raise ValueError(f"it has {shown(values)} in place of a record")
    missing = types.keys() - values.keys()
    if missing:
        raise ValueError(f"it has no {min(missing)}")
    for name, value in values.items():
        kind = types.get(name, others)
        kinds = (int, float) if kind is float else (kind,)
        is_too_large = type(value) is int and abs(value) >= 2**63  # for a float, or for NumPy
        if type(value) not in kinds or is_too_large:
            raise ValueError(f"it has {printable(name, 200)}={shown(value, 200)}")


def _check_numbers(what, values, required=()):
    try:
        check_types(values, dict.fromkeys(required, float), others=float)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error


def _check_range(name, value, lowest, highest):
    if not lowest <= value <= highest:
        raise ValueError(f"it has {name}={value}, which is not from {lowest} to {highest}")


def write(file, header, variables):
    """Write a state file atomically: a header that JSON can represent, and values of variables."""
    arrays = {str(index): _to_array(variable) for index, variable in enumerate(variables)}
    text = json.dumps(header, ensure_ascii=False)
    digest_of_file = _digest(text, arrays.values())
    arrays |= {_HEADER: np.array(text), _DIGEST: np.array(digest_of_file)}
    # Durable: older files are deleted afterwards.
    with atomic_write(file, durable=True) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **arrays)


def read(file, remedy):
    """Return `(header, arrays)` of a state file; `remedy` ends the error for a broken file."""
    with reading(file, remedy):
        links.check_file(file)
        arrays = containers.read_npz(file)
        text = str(arrays.pop(_HEADER))
        digest_of_file = str(arrays.pop(_DIGEST))
        header = json_value(text)
        numbered = [arrays[str(index)] for index in range(len(arrays))]
        if not all(np.isfinite(array).all() for array in numbered):
            raise ValueError("it holds NaN or infinity")
        if _digest(text, numbered) != digest_of_file:
            raise ValueError("its parts do not belong together")
    return header, numbered


def _digest(text, arrays):
    """Return a hash of the header and the arrays of a file."""
    hashed = hashlib.sha256(text.encode())
    for array in arrays:
        hashed.update(f"{array.dtype.str} {array.shape}".encode())
        hashed.update(array.tobytes())
    return hashed.hexdigest()


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
