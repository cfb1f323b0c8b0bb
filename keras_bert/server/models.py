"""Load SavedModels from model folders and reload them when a new version appears.

As in TensorFlow Serving, a model folder holds one folder per version, named by its number. The
latest version is served. If a version cannot be loaded, only the status of the model changes.
"""

import contextlib
import dataclasses
import gc
import os
import pathlib
import re
import tempfile
import threading
import typing
import weakref

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2

from keras_bert.exporting import program
from keras_bert.runtime.escaping import check_name
from keras_bert.server import rest

_FILE = "saved_model.pb"
_LABELS = "assets/labels.txt"
_OK = ("OK", "")
_MISSING_LIMIT = 2  # a model is unloaded after its folder is missing in this many refreshes
# Lines of TensorFlow's error messages that name a location, not a cause.
_LOCATION = ("Graph execution error", "Detected at node", "<stack traces", "File ", "Node:", "[[")


@dataclasses.dataclass(frozen=True, eq=False)
class Signature:
    """A function of a SavedModel: takes tensors by name and returns a dict of tensors."""

    inputs: dict[str, rest.Spec]
    outputs: dict[str, rest.Spec]
    function: typing.Callable

    def __call__(self, arrays):
        """Run the function on a dict of arrays and return one. Strings are bytes in object arrays.

        Values that the graph rejects are a `ValueError`.
        """
        tensors = {
            name: tf.constant(array, tf.string if array.dtype == object else array.dtype)
            for name, array in arrays.items()
        }
        try:
            return {name: value.numpy() for name, value in self.function(**tensors).items()}
        except (
            tf.errors.InvalidArgumentError,
            tf.errors.FailedPreconditionError,
            tf.errors.OutOfRangeError,
        ) as error:
            raise ValueError(_reason(error)) from error
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryError(_reason(error)) from error


@dataclasses.dataclass(frozen=True, eq=False)
class Version:
    """A loaded SavedModel.

    `definitions` has the `SignatureDef`s as dicts for JSON. `labels` has the lines of
    `assets/labels.txt`, or is `None` without that file.
    """

    number: int
    signatures: dict[str, Signature]
    definitions: dict[str, dict]
    labels: list[str] | None
    _loaded: typing.Any  # the object that owns the variables

    def signature(self, name):
        """Return the `Signature` with this name, or raise a `ValueError`."""
        if name not in self.signatures:
            raise ValueError(
                f"The model has no signature {name[:200]!r}. Use one of: "
                f"{', '.join(map(repr, sorted(self.signatures)))}"
            )
        return self.signatures[name]

    def example(self):
        """Return an example row for `serving_default`, made from its data types."""
        default = self.signatures.get(rest.DEFAULT_SIGNATURE)
        rows = (
            {name: _example_row(spec) for name, spec in default.inputs.items()} if default else {}
        )
        return rows if len(rows) != 1 else next(iter(rows.values()))


def load(folder, number, trusted=False):
    """Load a version and run it once, because the first run is slow. Return a `Version`.

    Without `trusted`, it must be an export of this machine, or it is a `ValueError`.
    """
    original = pathlib.Path(folder)
    folder = original
    with contextlib.ExitStack() as temporary:
        if not trusted:  # TensorFlow loads a copy, so that nobody changes it after the check
            copy = tempfile.TemporaryDirectory(prefix="keras_bert-", ignore_cleanup_errors=True)
            folder = pathlib.Path(temporary.enter_context(copy))
            program.copy(original, folder, trusted=False)
        program.check(folder, original, trusted)
        labels = _read_labels(folder)
        loaded = tf.saved_model.load(str(folder))
        graph = _read_graph(folder)
        weakref.finalize(loaded, temporary.pop_all().close)  # a graph may read its assets later
    # Loaded functions rename their arguments to identifiers. The graph has the exported names.
    signatures = {
        name: Signature(
            _specs(graph.signature_def[name].inputs),
            _specs(graph.signature_def[name].outputs),
            function,
        )
        for name, function in loaded.signatures.items()
    }
    if default := signatures.get(rest.DEFAULT_SIGNATURE):
        with contextlib.suppress(ValueError):  # the graph may reject zeros
            default({name: _zeros(spec) for name, spec in default.inputs.items()})
    definitions = json_format.MessageToDict(
        graph,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )["signature_def"]
    return Version(number, signatures, definitions, labels, loaded)


class Model:
    """A model folder and `current`, its loaded `Version` or `None`.

    With `number`, `folder` is the folder of the only version.
    """

    def __init__(self, name, folder, number=None, trusted=False):
        self.name = name
        self._trusted = trusted
        self.folder = pathlib.Path(folder)
        self.current = None
        self._number = number
        # Fingerprints of files: of the current version, of all versions at the last refresh, and
        # of the versions that could not be loaded.
        self._fingerprint = None
        self._seen: dict[int, tuple] = {}
        self._failed: dict[int, tuple] = {}
        self._states: dict[int, tuple] = {}
        self._missing = 0
        self._lock = threading.Lock()

    def refresh(self, settled=True):
        """Look at the folder and load the latest version that is new or has changed.

        If `settled`, skip versions that changed since the last refresh: they may still be
        copied.
        """
        with self._lock:
            found = self._find_versions()
            self._missing = 0 if found else self._missing + 1
            if self._missing >= _MISSING_LIMIT:
                self._unload()
            self._forget_failed(set(self._failed) - set(found))
            seen, self._seen = self._seen, {n: _fingerprint(path) for n, path in found.items()}
            for number in sorted(found, reverse=True):
                fingerprint = self._seen[number]
                is_current = self.current is not None and self.current.number == number
                if is_current and fingerprint == self._fingerprint:
                    break
                has_failed = self._failed.get(number) == fingerprint
                is_changing = settled and seen.get(number) != fingerprint
                if not (has_failed or is_changing) and self._load(
                    number, found[number], fingerprint
                ):
                    break
                if is_current:  # keep serving from memory, although its files have changed
                    break

    def version(self, number=None, label=None):
        """Return the served `Version`, or raise a `LookupError` for another number.

        Any label is a `ValueError`: labels need TensorFlow Serving's configuration file.
        """
        if label is not None:
            raise ValueError(f"Unrecognized servable version label: {label[:200]}")
        current = self.current
        if current is None or number not in (None, current.number):
            wanted = (
                f"Latest({self.name})" if number is None else f"Specific({self.name}, {number})"
            )
            raise LookupError(f"Servable not found for request: {wanted}")
        return current

    def states(self, number=None):
        """Return a list of `(number, state, (code, message))`, latest version first.

        Raises a `LookupError` if there is no such version, or none at all.
        """
        states = dict(self._states)  # a copy, because another thread changes them
        states = dict(sorted(states.items(), reverse=True))
        if number is not None and number not in states:
            raise LookupError(f"Could not find version {number} of model {self.name}")
        if not states:
            raise LookupError(f"Could not find any versions of model {self.name}")
        wanted = states if number is None else {number: states[number]}
        return [(key, state, reason) for key, (state, reason) in wanted.items()]

    def _find_versions(self):
        if self._number is None:
            return _version_folders(self.folder)
        return {self._number: self.folder} if (self.folder / _FILE).is_file() else {}

    def _forget_failed(self, numbers):
        for number in numbers:
            del self._failed[number], self._states[number]
            if self.current is not None and self.current.number == number:
                self._states[number] = ("AVAILABLE", _OK)

    def _load(self, number, folder, fingerprint):
        """Load a version and make it current. Return False if it cannot be loaded."""
        before = self.current
        if before is None or before.number != number:
            self._states[number] = ("LOADING", _OK)
        try:
            loaded = load(folder, number, self._trusted)
        except Exception as error:  # protocol buffers, checkpoints and graphs raise different types
            self._failed[number] = fingerprint
            reason = ("UNKNOWN", f"{type(error).__name__}: {_reason(error)}")
            kept = before is not None and before.number == number
            self._states[number] = ("AVAILABLE" if kept else "END", reason)
            return False
        self._failed.pop(number, None)
        if before is not None:
            self._states[before.number] = ("END", _OK)
        self._states[number] = ("AVAILABLE", _OK)
        self.current, self._fingerprint = loaded, fingerprint
        del before, loaded
        gc.collect()  # SavedModels contain reference cycles; free the previous weights
        return True

    def _unload(self):
        if self.current is not None:
            self._states[self.current.number] = ("END", _OK)
            self.current = self._fingerprint = None
            gc.collect()


def find(path, name=None, trusted=False):
    """Return a list of `Model` for the SavedModels in a folder, without loading them.

    `path` is a model folder, the folder of one version, or a folder of model folders. `name`
    replaces the name of a single model.
    """
    path = pathlib.Path(os.path.abspath(path))
    if (path / _FILE).is_file():
        if _is_number(path.name):
            return [Model(name or path.parent.name or "model", path, int(path.name), trusted)]
        return [Model(name or path.name or "model", path, 1, trusted)]
    if _version_folders(path):
        return [Model(name or path.name or "model", path, trusted=trusted)]
    children = sorted(path.iterdir()) if path.is_dir() else []
    found = [
        Model(child.name, child, trusted=trusted) for child in children if _version_folders(child)
    ]
    if name is not None and len(found) > 1:
        raise ValueError(
            f"{path} holds {len(found)} models. Give the folder of one model to set its name, or "
            "leave out the name."
        )
    for model in found:
        model.name = name or model.name
    return found


def _version_folders(folder):
    """Return a dict from version numbers to their folders."""
    try:
        return {
            int(entry.name): pathlib.Path(entry.path)
            for entry in os.scandir(folder)
            if _is_number(entry.name) and entry.is_dir()
        }
    except OSError:  # the folder does not exist, or was removed meanwhile
        return {}


def _is_number(name):
    return name.isascii() and name.isdecimal() and len(name) <= 18


def _fingerprint(folder):
    """Return a tuple that changes when a file in the folder changes."""
    files = []
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                stat = os.stat(os.path.join(root, name))
                files.append((root, name, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(sorted(files))


def _read_graph(folder):
    """Return the `MetaGraphDef` that `tf.saved_model.load` loads."""
    saved = saved_model_pb2.SavedModel.FromString((folder / _FILE).read_bytes())
    # A SavedModel may hold several graphs, for example one for TPUs.
    return next(graph for graph in saved.meta_graphs if "serve" in graph.meta_info_def.tags)


def _read_labels(folder):
    file = folder / _LABELS
    if not file.is_file():
        return None
    # Do not use splitlines: it also splits at U+2028, which `check_name` refuses.
    text = file.read_bytes().decode("utf-8").replace("\r\n", "\n")
    labels = text.removesuffix("\n").split("\n")
    for label in labels:
        check_name(label, f"{file}: a label")
    return labels


def _specs(tensors):
    return {name: _spec(tensor) for name, tensor in tensors.items()}


def _spec(tensor):
    """Convert a `TensorInfo` to a `rest.Spec`."""
    dtype, shape = tf.as_dtype(tensor.dtype), tf.TensorShape(tensor.tensor_shape)
    return rest.Spec(
        "object" if dtype == tf.string else dtype.name,
        None if shape.rank is None else tuple(shape.as_list()),
    )


def _zeros(spec):
    """Return an array of one row of zeros or empty strings."""
    shape = [1 if size is None else size for size in spec.shape or ()]
    if spec.dtype == "object":
        return np.full(shape, b"", object)
    return np.zeros(shape, tf.as_dtype(spec.dtype).as_numpy_dtype)


def _example_row(spec):
    row = _zeros(spec)[0] if spec.shape else _zeros(spec)
    if spec.dtype == "object":
        row = np.full(np.shape(row), "your text", object)
    return row.tolist()


def _reason(error):
    """Return the line of TensorFlow's error message that names the cause."""
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(_LOCATION)] or [
        "no reason given"
    ]
    return re.sub(r"^\{\{.*?\}\} ?", "", lines[0].partition(" [Op:")[0])[:500]
