"""Folders of SavedModels as what a server answers with: of each model the latest version.

As TensorFlow Serving has it: a model folder holds a folder for each version, named by its number;
a new one is loaded and takes over, the one before is let go. A version that cannot be loaded
changes nothing but the model's status.
"""

import contextlib
import dataclasses
import gc
import os
import pathlib
import re
import threading
import typing

import numpy as np
import tensorflow as tf

from keras_bert.exporting import allowed_ops
from keras_bert.server import rest

_FILE = "saved_model.pb"
_LABELS = "assets/labels.txt"
_OK = ("OK", "")
_GONE = 2  # looks in which a folder is not there until its model is let go


@dataclasses.dataclass(frozen=True, eq=False)
class Signature:
    """A function of a SavedModel.

    Attributes:
        inputs, outputs: dicts of `rest.Spec`.
        function: from tensors by name to tensors by name.
    """

    inputs: dict[str, rest.Spec]
    outputs: dict[str, rest.Spec]
    function: typing.Callable

    def __call__(self, arrays):
        """Runs it.

        Args:
            arrays: dict of arrays, strings as bytes in arrays of objects.

        Returns:
            The same of the outputs.

        Raises:
            ValueError: the graph does not take these values.
            MemoryError: there is not enough memory for them.
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
    """A SavedModel in memory.

    Attributes:
        number: its version.
        signatures: name -> `Signature`.
        definitions: name -> the `SignatureDef` as a dict for JSON.
        labels: the list in `assets/labels.txt`, or `None`.
    """

    number: int
    signatures: dict[str, Signature]
    definitions: dict[str, dict]
    labels: list[str] | None
    _loaded: typing.Any  # what owns the variables

    def signature(self, name):
        """The `Signature` of a name; `ValueError` where there is none."""
        if name not in self.signatures:
            raise ValueError(
                f"there is no signature {name[:200]!r}; this model has "
                f"{', '.join(map(repr, sorted(self.signatures)))}"
            )
        return self.signatures[name]

    def example(self):
        """A row that `serving_default` takes, for JSON, as good as its types tell."""
        default = self.signatures.get(rest.DEFAULT_SIGNATURE)
        rows = {name: _row(spec) for name, spec in default.inputs.items()} if default else {}
        return rows if len(rows) != 1 else next(iter(rows.values()))


def load(folder, number, trusted=False):
    """Loads a version, and runs it once, since the first run is slow.

    Args:
        folder: of the SavedModel.
        number: its version.
        trusted: if True, skip the check of `allowed_ops`.

    Returns:
        A `Version`.

    Raises:
        ValueError: an op that needs `trusted=True`.
        Exception: whatever TensorFlow throws at a SavedModel that is not whole.
    """
    from google.protobuf import json_format
    from tensorflow.core.protobuf import saved_model_pb2

    folder = pathlib.Path(folder)
    if not trusted:
        allowed_ops.check(folder)
    loaded = tf.saved_model.load(str(folder))
    saved = saved_model_pb2.SavedModel.FromString((folder / _FILE).read_bytes())
    # Of several graphs, for TPUs say, the first with this tag is loaded.
    graph = next(graph for graph in saved.meta_graphs if "serve" in graph.meta_info_def.tags)
    definitions = json_format.MessageToDict(
        graph,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )["signature_def"]
    signatures = {}
    for name, function in loaded.signatures.items():
        # Not the names that Python's function has: those are made into identifiers.
        definition = graph.signature_def[name]
        inputs, outputs = _specs(definition.inputs), _specs(definition.outputs)
        signatures[name] = Signature(inputs, outputs, function)
    labels = folder / _LABELS
    if labels.is_symlink() or labels.parent.is_symlink():
        raise ValueError(f"{labels} is a link. Serve a SavedModel without links")
    version = Version(
        number,
        signatures,
        definitions,
        _read_labels(labels) if labels.is_file() else None,
        loaded,
    )
    if default := signatures.get(rest.DEFAULT_SIGNATURE):
        with contextlib.suppress(ValueError):  # zeros may be nothing that it takes
            default({name: _zeros(spec) for name, spec in default.inputs.items()})
    return version


class Model:
    """A model by its name.

    Attributes:
        name: in the paths of requests.
        current: the `Version` that answers, or `None`.

    Args:
        name: as above.
        folder: the model folder; with `number`, the folder of the only version.
        number: that version's.
        trusted: as for `load`.
    """

    def __init__(self, name, folder, number=None, trusted=False):
        self.name = name
        self._trusted = trusted
        self.folder = pathlib.Path(folder)
        self.current = None
        self._number = number
        self._identity = None  # of the current version's files
        self._seen: dict[int, tuple] = {}  # a version's files when they were last looked at
        self._failed: dict[int, tuple] = {}  # those of versions that could not be loaded
        self._states: dict[int, tuple] = {}
        self._missing = 0
        self._lock = threading.Lock()

    def refresh(self, settled=True):
        """Looks at the folder, and loads what is new.

        Args:
            settled: leave alone what changed since the last look, such as a version that is still
                being copied.
        """
        with self._lock:
            found = self._versions()
            self._missing = 0 if found else self._missing + 1
            if self._missing >= _GONE:
                self._let_go()
            for gone in set(self._failed) - set(found):
                del self._failed[gone], self._states[gone]
                if self.current is not None and self.current.number == gone:
                    self._states[gone] = ("AVAILABLE", _OK)
            seen, self._seen = self._seen, {n: _identity(path) for n, path in found.items()}
            for number in sorted(found, reverse=True):
                identity = self._seen[number]
                is_current = self.current is not None and self.current.number == number
                if is_current and identity == self._identity:
                    break
                has_failed = self._failed.get(number) == identity
                is_moving = settled and seen.get(number) != identity
                if not (has_failed or is_moving) and self._load(number, found[number], identity):
                    break
                if is_current:  # it goes on from memory while its files are not right
                    break

    def version(self, number=None, label=None):
        """The `Version` that answers; `LookupError` where it is another or none.

        Args:
            number: the one asked for, or `None`.
            label: of a version. Labels are set in the configuration file of TensorFlow Serving,
                so here there are none, and it is a `ValueError`.
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
        """The states for `rest.status`, of all versions or one; `LookupError` for others."""
        states = dict(sorted(self._states.items(), reverse=True))
        if number is not None and number not in states:
            raise LookupError(f"Could not find version {number} of model {self.name}")
        if not states:
            raise LookupError(f"Could not find any versions of model {self.name}")
        wanted = states if number is None else {number: states[number]}
        return [(key, state, reason) for key, (state, reason) in wanted.items()]

    def _versions(self):
        if self._number is None:
            return _numbered(self.folder)
        return {self._number: self.folder} if (self.folder / _FILE).is_file() else {}

    def _load(self, number, folder, identity):
        before = self.current
        if before is None or before.number != number:
            self._states[number] = ("LOADING", _OK)
        try:
            loaded = load(folder, number, self._trusted)
        except Exception as error:  # of many kinds, from protocol buffers to checkpoints
            self._failed[number] = identity
            reason = ("UNKNOWN", f"{type(error).__name__}: {_reason(error)}")
            kept = before is not None and before.number == number
            self._states[number] = ("AVAILABLE" if kept else "END", reason)
            return False
        self._failed.pop(number, None)
        if before is not None:
            self._states[before.number] = ("END", _OK)
        self._states[number] = ("AVAILABLE", _OK)
        self.current, self._identity = loaded, identity
        del before, loaded
        gc.collect()  # SavedModels contain reference cycles: free the old weights now
        return True

    def _let_go(self):
        if self.current is not None:
            self._states[self.current.number] = ("END", _OK)
            self.current = self._identity = None
            gc.collect()


def find(path, name=None, trusted=False):
    """The models in a folder; nothing is loaded yet.

    Args:
        path: a model folder, which holds folders named by a version; the folder of one version;
            or a folder of model folders.
        name: for the one model there; by default the model folder's.
        trusted: as for `load`.

    Returns:
        A list of `Model`, empty where there is no SavedModel.

    Raises:
        ValueError: a name for several models.

    Example:

    >>> find("no-such-folder")
    []
    """
    path = pathlib.Path(os.path.abspath(path))
    if (path / _FILE).is_file():
        if _is_number(path.name):
            return [Model(name or path.parent.name or "model", path, int(path.name), trusted)]
        return [Model(name or path.name or "model", path, 1, trusted)]
    if _numbered(path):
        return [Model(name or path.name or "model", path, trusted=trusted)]
    children = sorted(path.iterdir()) if path.is_dir() else []
    found = [Model(child.name, child, trusted=trusted) for child in children if _numbered(child)]
    if name is not None and len(found) > 1:
        raise ValueError(f"{path} holds {len(found)} models; a name is for one")
    for model in found:
        model.name = name or model.name
    return found


def _numbered(folder):
    """Number -> folder of the versions in a model folder."""
    try:
        return {
            int(entry.name): pathlib.Path(entry.path)
            for entry in os.scandir(folder)
            if _is_number(entry.name) and entry.is_dir()
        }
    except OSError:  # there is none, or none any more
        return {}


def _is_number(name):
    return name.isascii() and name.isdecimal() and len(name) <= 18


def _identity(folder):
    """What changes when a file of the version does."""
    files = []
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                stat = os.stat(os.path.join(root, name))
                files.append((root, name, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(sorted(files))


def _read_labels(file):
    # Not splitlines: a label may hold U+2028, which ends no line here.
    text = file.read_bytes().decode("utf-8").replace("\r\n", "\n")
    return text.removesuffix("\n").split("\n")


def _specs(tensors):
    """Those of a signature's `TensorInfo`s."""
    return {name: _spec(tensor) for name, tensor in tensors.items()}


def _spec(tensor):
    dtype, shape = tf.as_dtype(tensor.dtype), tf.TensorShape(tensor.tensor_shape)
    return rest.Spec(
        "object" if dtype == tf.string else dtype.name,
        None if shape.rank is None else tuple(shape.as_list()),
    )


def _zeros(spec):
    """One row of nothing."""
    shape = [1 if size is None else size for size in spec.shape or ()]
    if spec.dtype == "object":
        return np.full(shape, b"", object)
    return np.zeros(shape, tf.as_dtype(spec.dtype).as_numpy_dtype)


def _row(spec):
    row = _zeros(spec)[0] if spec.shape else _zeros(spec)
    if spec.dtype == "object":
        row = np.full(np.shape(row), "your text", object)
    return row.tolist()


def _reason(error):
    """The line of TensorFlow's message that says what is wrong; the others say where."""
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(_WHERE)] or ["no reason given"]
    return re.sub(r"^\{\{.*?\}\} ?", "", lines[0].partition(" [Op:")[0])[:500]


_WHERE = ("Graph execution error", "Detected at node", "<stack traces", "File ", "Node:", "[[")
