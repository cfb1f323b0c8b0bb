"""The state of a run on disk, so that a killed run goes on where it was."""

import json
import pathlib

import keras
import numpy as np

from keras_bert.files import whole

STATE_FILE = "training.npz"
BEST_FILE = "best.npz"


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
        try:
            # Opened here: NumPy leaves a broken file open.
            with open(file, "rb") as stream, np.load(stream, allow_pickle=False) as arrays:
                place = json.loads(str(arrays["place"]))
                values = [arrays[str(index)] for index in range(len(variables))]
        except Exception as error:
            raise ValueError(f"{file} is broken ({error}); delete it to start afresh") from error
        changed = [
            key
            for key in self._settings | place["settings"]
            if self._settings.get(key) != place["settings"].get(key)
        ]
        if changed:
            key = changed[0]
            raise ValueError(
                f"{file} is of a run with {key}={place['settings'].get(key)!r}, this one has "
                f"{self._settings.get(key)!r}; delete it to start afresh"
            )
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        self.epoch, self.batch, self.history = place["epoch"], place["batch"], place["history"]
        self.seconds, self.loss, self.rows = place["seconds"], place["loss"], place["rows"]
        return True

    def keep_best(self, model):
        """Keeps the model's weights as the best so far."""
        if self._folder is not None:
            _write(self._folder / BEST_FILE, model.weights)
        else:
            self._best = [keras.ops.convert_to_numpy(weight) for weight in model.weights]

    def restore_best(self, model):
        """Sets the model's weights to the best, where some were kept."""
        values = self._best
        file = None if self._folder is None else self._folder / BEST_FILE
        if file is not None and file.is_file():
            with np.load(file, allow_pickle=False) as arrays:
                values = [arrays[str(index)] for index in range(len(model.weights))]
        for weight, value in zip(model.weights, values or (), strict=values is not None):
            weight.assign(value)

    def clear(self):
        """Deletes the files: the run is over."""
        if self._folder is not None:
            for name in (STATE_FILE, BEST_FILE):
                (self._folder / name).unlink(missing_ok=True)


def _everything(model):
    return [*model.variables, *model.optimizer.variables]


def _write(file, variables, place=""):
    arrays = {
        str(index): keras.ops.convert_to_numpy(variable) for index, variable in enumerate(variables)
    }
    with whole(file) as beside, open(beside, "wb") as stream:
        np.savez(stream, place=place, **arrays)
