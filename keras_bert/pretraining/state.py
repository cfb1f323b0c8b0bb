"""Checkpoints of a pretraining run, from which a killed run resumes."""

import json
import pathlib
import re

from keras_bert.runtime.files import check_subfolder, remove_stale_temporaries
from keras_bert.training import state_file

_FOLDER = "checkpoints"
_NAME = re.compile(r"step-\d+\.npz")


class Checkpoints:
    """The `keep` newest checkpoints of a run: variables of model and optimizer, and further values.

    `settings` is a dict that JSON can represent. A run resumes only with equal settings.
    """

    REMEDY = "delete it to resume from the checkpoint before it"
    _ELSEWHERE = "use another folder; pass the model of this run as --model to train it further"

    def __init__(self, folder, settings, keep=3):
        if keep < 1:
            raise ValueError(f"keep must be at least 1; received {keep}")
        self._folder = pathlib.Path(folder, _FOLDER)
        self._settings = json.loads(json.dumps(settings))
        self._keep = keep

    def save(self, step, variables, progress):
        """Write a checkpoint, then delete the oldest ones.

        On an error, earlier checkpoints are unchanged. JSON can represent `progress`, a dict.
        """
        check_subfolder(self._folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"step-{step:08}.npz"
        header = {"settings": self._settings, "progress": progress}
        try:
            # Durable, because the older checkpoints are deleted afterwards.
            state_file.write(file, header, variables, durable=True)
        except OSError as error:
            raise OSError(
                error.errno, f"{error.strerror or error}; {self.newest()}", str(file)
            ) from error
        for old in self._files()[: -self._keep]:
            old.unlink()
        remove_stale_temporaries(self._folder / "step-*.npz")

    def exist(self):
        """Return True if there is a checkpoint."""
        return bool(self._files())

    def newest(self):
        """Describe the newest checkpoint, as a part of an error message."""
        files = self._files()
        return f"the last checkpoint is {files[-1]}" if files else "there is no checkpoint yet"

    def newest_file(self):
        """Return the path of the newest checkpoint."""
        return self._files()[-1]

    def restore(self, variables):
        """Assign the values of the newest checkpoint to variables, in the order of `save`.

        Return `(step, progress)`, or `None` if there is no checkpoint. A broken checkpoint, or one
        of a run with other settings, is a `ValueError`.
        """
        files = self._files()
        if not files:
            return None
        file = files[-1]
        progress = state_file.restore(
            file,
            self._settings,
            variables,
            if_broken=self.REMEDY,
            if_other=self._ELSEWHERE,
        )
        return int(file.stem.removeprefix("step-")), progress

    def _files(self):
        check_subfolder(self._folder)
        if not self._folder.is_dir():
            return []
        return sorted(file for file in self._folder.iterdir() if _NAME.fullmatch(file.name))
