"""The state of a run on disk, so that a killed run goes on where it was."""

import hashlib
import json
import pathlib

import keras
import numpy as np

from keras_bert.checkpoints import containers
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.reading import one_line

STATE_FILE = "training.npz"
BEST_FILE = "best.npz"
# Required keys of the state and their types.
_PLACE = {
    "settings": dict,
    "epoch": int,
    "batch": int,
    "history": list,
    "seconds": (int, float),
    "loss": (int, float),
    "rows": int,
}
_ROWS = 1024  # sequences that are digested at once


class RunState:
    """Where a run is: its place, its history, and all numbers of model and optimizer.

    Args:
        folder: where the files are kept; `None`: only the best weights are kept, in memory.
        settings: what must be the same for a run to go on, a dict that JSON can hold.

    Attributes:
        epoch, batch: the next batch to train on.
        history: a list with a dict of metrics for each epoch that is over.
        seconds: time spent in training.
        loss: mean loss of the epoch so far.
        rows: rows of batches that this is the mean of.
    """

    def __init__(self, folder, settings):
        self._folder = None if folder is None else pathlib.Path(folder)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        self._settings = json.loads(json.dumps(settings))
        self._best = None
        self.epoch, self.batch, self.history = 0, 0, []
        self.seconds, self.loss, self.rows = 0.0, 0.0, 0

    def next_epoch(self):
        """Goes to the beginning of the next epoch."""
        self.epoch, self.batch, self.loss, self.rows = self.epoch + 1, 0, 0.0, 0

    def save(self, model):
        """Writes the state; what was there before is replaced at once or not at all."""
        if self._folder is None:
            return
        if keras.backend.backend() == "jax":
            model.jax_state_sync()  # within `fit` the variables are behind
        place = {
            "settings": self._settings,
            "epoch": self.epoch,
            "batch": self.batch,
            "history": self.history,
            "seconds": self.seconds,
            "loss": self.loss,
            "rows": self.rows,
        }
        _write(self._folder / STATE_FILE, _everything(model), json.dumps(place))

    def restore(self, model):
        """Reads the state that an earlier run left.

        Args:
            model: the compiled model; its optimizer is built here.

        Returns:
            Whether there was one.

        Raises:
            ValueError: it is the state of a run with other settings, or is broken.
        """
        model.optimizer.build(model.trainable_variables)
        file = None if self._folder is None else self._folder / STATE_FILE
        if file is None or not file.is_file():
            self.clear()  # the best of a run whose state is gone is none of this one's
            return False
        variables = _everything(model)
        advice = "delete it to start afresh"
        place, values = _read(file, _PLACE, advice)
        changed = self._changed(place["settings"])  # then the variables are others too
        if changed:
            raise ValueError(
                f"{file} is of a run with {changed}={place['settings'].get(changed)!r:.80}, this "
                f"one has {self._settings.get(changed)!r:.80}; {advice}"
            )
        if [value.shape for value in values] != [tuple(each.shape) for each in variables]:
            raise ValueError(f"{file} is broken (it holds other variables); {advice}")
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        self.epoch, self.batch, self.history = place["epoch"], place["batch"], place["history"]
        self.seconds, self.loss, self.rows = place["seconds"], place["loss"], place["rows"]
        if any(record.keys() - {"epoch", "loss"} for record in self.history):
            self._read_best(file.parent, model)  # an error now, and not after the training
        return True

    def _changed(self, settings):
        """The first of the settings that is another one; `None` if all are the same."""
        for key in self._settings | settings:
            if self._settings.get(key) != settings.get(key):
                return key
        return None

    def keep_best(self, model, record):
        """Keeps the model's weights as the best so far, with the metrics of their epoch."""
        if self._folder is not None:
            _write(self._folder / BEST_FILE, model.weights, json.dumps(record))
        else:
            self._best = record, [keras.ops.convert_to_numpy(weight) for weight in model.weights]

    def restore_best(self, model):
        """Sets the model's weights to the best.

        Returns:
            The metrics of their epoch; `None` where nothing was kept.
        """
        best = self._best
        if self._folder is not None and (self._folder / BEST_FILE).is_file():
            best = self._read_best(self._folder, model)
        if best is None:
            return None
        record, values = best
        for weight, value in zip(model.weights, values, strict=True):
            weight.assign(value)
        return record

    def _read_best(self, folder, model):
        """The record of the best epoch, and the weights.

        Raises:
            ValueError: the file is missing, broken, or not of this run.
        """
        file = folder / BEST_FILE
        advice = f"delete {STATE_FILE} beside it to start afresh"
        if not file.is_file():
            raise ValueError(f"{file} with the best weights of the run so far is missing; {advice}")
        record, values = _read(file, {"epoch": int}, advice)
        shapes = [tuple(weight.shape) for weight in model.weights]
        # A run that was killed before it noted an epoch trains it once more, to the same weights.
        known = [*(each["epoch"] for each in self.history), self.epoch + 1]
        if record["epoch"] not in known or [value.shape for value in values] != shapes:
            raise ValueError(f"{file} is not of the run in {folder}; {advice}")
        return record, values

    def clear(self):
        """Deletes the files: the run is over."""
        if self._folder is not None:
            for name in (STATE_FILE, BEST_FILE):
                (self._folder / name).unlink(missing_ok=True)


def digest(encoded):
    """A short name for what there is to be learned: other ids, targets or weights, another name.

    Args:
        encoded: the sequences, see `batches`.

    Returns:
        16 hexadecimal digits.
    """
    found = hashlib.sha256()
    for start in range(0, len(encoded), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(encoded)))
        batch = encoded.batch(rows, int(encoded.lengths[rows].max()))
        for array in keras.tree.flatten([part for part in batch if part is not None]):
            found.update(array.tobytes())
    return found.hexdigest()[:16]


def digest_of_weights(model):
    """A short name for a model's weights, 16 hexadecimal digits; see `digest`."""
    found = hashlib.sha256()
    for weight in model.weights:
        found.update(keras.ops.convert_to_numpy(weight).tobytes())
    return found.hexdigest()[:16]


def _everything(model):
    return [*model.variables, *model.optimizer.variables]


def _read(file, types, advice):
    """What `_write` wrote.

    Args:
        file: the file.
        types: key -> type of what the place must have.
        advice: what to do about a broken file, for the error.

    Returns:
        The place, a dict, and the list of arrays.

    Raises:
        ValueError: the file is broken.
    """
    try:
        arrays = containers.read_npz(file)
        place = json.loads(str(arrays.pop("place", "")))
        is_right = all(isinstance(place[key], kind) for key, kind in types.items())
        if not is_right or not all("epoch" in dict(each) for each in place.get("history", ())):
            raise ValueError("a key is missing or of another type")
        return place, [arrays[str(number)] for number in range(len(arrays))]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{file} is broken ({one_line(error)}); {advice}") from error


def _write(file, variables, place=""):
    arrays = {}
    for index, variable in enumerate(variables):
        array = keras.ops.convert_to_numpy(variable)
        # NumPy's files have no bfloat16. Converting it to float32 and back is exact.
        arrays[str(index)] = array.astype("float32") if array.dtype.name == "bfloat16" else array
    with atomic_write(file) as beside, open(beside, "wb") as stream:
        np.savez(stream, place=place, **arrays)
