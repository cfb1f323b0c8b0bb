"""Load a SavedModel, which is a program.

Its graph can write files, read them, open connections and call Python, partly while it loads. No
check of the graph can prevent this, so the user must trust its author.
"""

import pathlib
import shutil

from keras_bert.runtime import reading
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.packages import import_tensorflow

_FILE = "saved_model.pb"
# What TensorFlow loads. Folders of a SavedModel can hold other files, such as warm-up requests.
_LOADED_FILES = (_FILE, "fingerprint.pb")
_LOADED_FOLDERS = ("variables", "assets")


def load(folder, trusted, copy=None):
    """Return the object that `tf.saved_model.load` returns. Without `trusted`, raise `ValueError`.

    If `copy` is an empty folder, the files are copied to it and loaded from there.
    """
    tf = import_tensorflow("a SavedModel")
    folder = pathlib.Path(folder).expanduser()
    name = printable(str(folder))
    if not (folder / _FILE).is_file():
        raise ValueError(f"{name} must be the folder of a SavedModel; it has no {_FILE}")
    if not trusted:
        raise ValueError(
            f"{name}: a SavedModel is a program, so it runs only with trusted=True, or --trusted "
            "on the command line; use it if you trust the author"
        )
    if copy is not None:
        _copy(folder, pathlib.Path(copy))
    try:
        return tf.saved_model.load(str(copy or folder))
    except Exception as error:  # protocol buffers, checkpoints and graphs raise many types
        raise ValueError(f"{name} could not be loaded: {reading.one_line(error)}") from error


def _copy(folder, target):
    """Copy the files of a SavedModel that TensorFlow loads. Links become files."""
    for name in _LOADED_FILES:
        if (folder / name).exists():
            shutil.copyfile(folder / name, target / name)
    for name in _LOADED_FOLDERS:
        if (folder / name).exists():
            shutil.copytree(folder / name, target / name)
