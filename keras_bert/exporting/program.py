"""Load a SavedModel after checks.

A SavedModel is a program. Its graph can write files, read them, open connections and call Python,
partly while it loads. No check of the graph can prevent this, so the user must trust its author.
"""

import contextlib
import pathlib
import shutil
import tempfile
import weakref

from keras_bert.hub import own_files
from keras_bert.runtime import reading
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.packages import import_tensorflow
from keras_bert.untrusted import protobuf

_MAX_GRAPH = 2**29  # bytes
_FUNCTION_NAME = "meta_graphs.graph_def.library.function.signature.name"


def load(folder, trusted, copied=True):
    """Return the object that `tf.saved_model.load` returns, and the folder that it was loaded from.

    The folder is a private copy, so that nobody changes it after the check. It exists as long as
    the object, since a graph may read its assets later. `copied=False` loads a trusted SavedModel
    from its own folder. Without `trusted`, it must be an export of this machine.
    """
    tf = import_tensorflow("a SavedModel")
    original = loaded_from = pathlib.Path(folder).expanduser()
    with contextlib.ExitStack() as temporary:
        if copied:
            copy = tempfile.TemporaryDirectory(prefix="keras_bert-", ignore_cleanup_errors=True)
            loaded_from = pathlib.Path(temporary.enter_context(copy))
            _copy(original, loaded_from, trusted)
        _check(loaded_from, original, trusted)
        try:
            loaded = tf.saved_model.load(str(loaded_from))
        except Exception as error:  # protocol buffers, checkpoints and graphs raise many types
            raise ValueError(
                f"{original} could not be loaded: {reading.one_line(error)}"
            ) from error
        weakref.finalize(loaded, temporary.pop_all().close)
    return loaded, loaded_from


def _copy(folder, target, trusted):
    """Copy the files of a SavedModel that TensorFlow loads to an existing folder.

    Special files are a `ValueError`. Unless `trusted`, so are links and a SavedModel that this
    machine did not export. This does not read its files, which may be large.
    """
    _graph_file(folder, folder)
    paths = own_files.loaded_paths(folder, follow_links=trusted)
    if not trusted and not own_files.may_be_own(folder):
        raise _not_own(folder)
    for path in paths:
        copied = target / path.relative_to(folder)
        if path.is_dir():
            copied.mkdir()
        else:
            shutil.copyfile(path, copied)


def _check(folder, original, trusted):
    """Raise a `ValueError` if TensorFlow must not load a SavedModel. No code of it runs.

    Without `trusted`, the SavedModel must be an export of this machine, and `folder` must be a
    private copy: a file could change between the check and the loading. `original` is the user's
    folder, for errors.
    """
    file = _graph_file(folder, original)
    if trusted:  # an export of this machine needs no check of its graph
        _check_graph(file, printable(str(original)))
    elif not own_files.is_own(folder):
        raise _not_own(original)


def _graph_file(folder, original):
    file = folder / "saved_model.pb"
    if not file.is_file():
        raise ValueError(
            f"{printable(str(original))} must be the folder of a SavedModel; it has no "
            "saved_model.pb"
        )
    return file


def _not_own(folder):
    return ValueError(
        f"{printable(str(folder))}: a SavedModel is a program, and this machine did not export "
        "this one. Pass trusted=True or --trusted if you trust its author, or export the model "
        "on this machine"
    )


def _check_graph(file, model):
    """Refuse graphs that would take much memory, or change what TensorFlow's ops do."""
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow.python.framework import op_def_registry

    content = reading.read_bytes(file, _MAX_GRAPH)
    message = saved_model_pb2.SavedModel.DESCRIPTOR
    try:
        protobuf.check(content, message)
        [names] = protobuf.find(content, message, _FUNCTION_NAME)
    except ValueError as error:
        raise ValueError(
            f"{model} is not a SavedModel: its saved_model.pb has {error}; download or export it "
            "again"
        ) from error
    for function in sorted(name.decode("utf-8", "replace") for name in names):
        if op_def_registry.get(function) is not None:
            raise ValueError(
                f"{model} defines a function with the name of TensorFlow's op {function}; export "
                "the model again with TensorFlow"
            )
