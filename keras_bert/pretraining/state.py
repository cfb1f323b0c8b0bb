"""The state of a pretraining run on disk: the last few checkpoints, each whole or not there."""

import json
import pathlib
import re

import keras
import numpy as np

from keras_bert.checkpoints import containers
from keras_bert.runtime.files import atomic_write, remove_stale_temporaries
from keras_bert.runtime.reading import one_line

_FOLDER = "checkpoints"
_NAME = re.compile(r"step-\d+\.npz")


class Checkpoints:
    """Checkpoints of a run: all numbers of model and optimizer, and the place in the data.

    Args:
        folder: of the run.
        settings: what must be the same for a run to go on, a dict that JSON can hold.
        keep: how many are kept, the newest ones.

    Raises:
        ValueError: `keep` is below 1.

    Example:

    >>> import tempfile
    >>> variables = [keras.Variable([1.0])]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoints = Checkpoints(folder, {"seed": 0}, keep=1)
    ...     checkpoints.save(5, variables, {"epoch": 0})
    ...     checkpoints.restore(variables)
    (5, {'epoch': 0})
    """

    def __init__(self, folder, settings, keep=3):
        if keep < 1:
            raise ValueError(f"keep must be at least 1; received {keep}")
        self._folder = pathlib.Path(folder, _FOLDER)
        self._settings = json.loads(json.dumps(settings))
        self._keep = keep

    def save(self, step, variables, extra):
        """Writes a checkpoint, then deletes those that are too many.

        Args:
            step: steps that are done.
            variables: Keras variables.
            extra: a dict that JSON can hold.

        Raises:
            OSError: it cannot be written; the ones before it are still there.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"step-{step:08}.npz"
        arrays = {
            str(index): np.asarray(keras.ops.convert_to_numpy(variable))
            for index, variable in enumerate(variables)
        }
        about = json.dumps({"settings": self._settings, "extra": extra}, ensure_ascii=False)
        # The disk has it before those go that it stands for.
        try:
            with atomic_write(file, durable=True) as beside, open(beside, "wb") as stream:
                np.savez(stream, about=about, **{k: _as_bytes(v) for k, v in arrays.items()})
        except OSError as error:  # a full disk names no file
            raise OSError(
                error.errno, f"{error.strerror or error}; {self.newest()}", str(file)
            ) from error
        for old in self._files()[: -self._keep]:
            old.unlink()
        remove_stale_temporaries(self._folder / "step-*.npz")

    def exist(self):
        """Whether there is one."""
        return bool(self._files())

    def newest(self):
        """Says which checkpoint there is to go on from, as a part of a message."""
        files = self._files()
        return f"the last checkpoint is {files[-1]}" if files else "there is no checkpoint yet"

    def restore(self, variables):
        """Reads the newest checkpoint.

        Args:
            variables: those that were saved, in the same order; they are set.

        Returns:
            (step, extra), or `None` if there is no checkpoint.

        Raises:
            ValueError: it is of a run with other settings, or is broken.
        """
        files = self._files()
        if not files:
            return None
        file = files[-1]
        try:
            arrays = containers.read_npz(file)
            about = json.loads(str(arrays.pop("about")))
            self._check(file, about["settings"])
            step, extra = int(file.stem.removeprefix("step-")), about["extra"]
            if len(arrays) != len(variables):
                raise ValueError(f"it holds {len(arrays)} variables, not {len(variables)}")
            values = [
                _from_bytes(arrays[str(index)], variable)
                for index, variable in enumerate(variables)
            ]
        except _OtherSettings:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{file} is broken ({one_line(error)}); delete it to go on from the one before"
            ) from error
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        return step, extra

    def _files(self):
        if not self._folder.is_dir():
            return []
        return sorted(file for file in self._folder.iterdir() if _NAME.fullmatch(file.name))

    def _check(self, file, before):
        now, before = dict(_flat(self._settings)), dict(_flat(before))
        for key in now | before:
            if now.get(key) != before.get(key):
                raise _OtherSettings(
                    f"{file} is of a run with {key}={before.get(key)!r:.200}, this one has "
                    f"{now.get(key)!r:.200}; take another folder, where it may go on with the "
                    "model of this one (--model)"
                )


class _OtherSettings(ValueError):
    """A run goes on with the settings it began with."""


def _flat(settings, outer=""):
    """(name, value) of settings within settings, such as ("model.hidden_size", 8)."""
    for key, value in settings.items():
        if isinstance(value, list):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            yield from _flat(value, f"{outer}{key}.")
        else:
            yield f"{outer}{key}", value


def _as_bytes(array):
    """NumPy's files know no bfloat16."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _from_bytes(array, variable):
    if variable.dtype == "bfloat16":
        import ml_dtypes

        array = array.view(ml_dtypes.bfloat16)
    if tuple(array.shape) != tuple(variable.shape):
        raise ValueError(f"{variable.path} has shape {variable.shape}, received {array.shape}")
    return array
