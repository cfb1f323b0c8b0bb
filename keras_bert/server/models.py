"""Find SavedModels in model folders, and load them.

As in TensorFlow Serving, a model folder holds one folder per version, named by its number. The
latest version is loaded.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import typing

import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2

from keras_bert.exporting import program, tf_serving
from keras_bert.runtime.escaping import check_name, shown
from keras_bert.server import rest

_FILE = "saved_model.pb"
_LABELS = "assets/labels.txt"
# Lines of TensorFlow's error messages that name a location, not a cause.
_LOCATION = ("Graph execution error", "Detected at node", "<stack traces", "File ", "Node:", "[[")


@dataclasses.dataclass(frozen=True, eq=False)
class Signature:
    """A function of a SavedModel: takes tensors by name and returns a dict of tensors."""

    inputs: dict[str, tf.TensorSpec]
    outputs: dict[str, tf.TensorSpec]
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
class Model:
    """A loaded SavedModel, the version `number` of a model.

    `definitions` has the `SignatureDef`s as dicts for JSON. `labels` has the lines of
    `assets/labels.txt`, or is `None` without that file.
    """

    name: str
    number: int
    signatures: dict[str, Signature]
    definitions: dict[str, dict]
    labels: list[str] | None
    _loaded: typing.Any  # the object that owns the variables

    def signature(self, name):
        """Return the `Signature` with this name, or raise a `ValueError`."""
        if not isinstance(name, str) or name not in self.signatures:
            raise ValueError(
                f"The model has no signature {shown(name, 200)}. Use one of: "
                f"{', '.join(map(repr, sorted(self.signatures)))}"
            )
        return self.signatures[name]


def load(
    folder: str | os.PathLike, number: int = 1, trusted: bool = False, name: str = "model"
) -> Model:
    """Load a version and run it once, because the first run is slow.

    Raises:
        ValueError: If it cannot be loaded, or without `trusted`: a SavedModel is a program.
    """
    folder = pathlib.Path(folder).expanduser()
    loaded = program.load(folder, trusted)
    labels = _read_labels(folder)
    graph = _read_graph(folder)
    # Loaded functions rename their arguments to identifiers. The graph has the exported names.
    signatures = {}
    for key, function in loaded.signatures.items():
        definition = graph.signature_def[key]
        signatures[key] = Signature(_specs(definition.inputs), _specs(definition.outputs), function)
    if default := signatures.get(rest.DEFAULT_SIGNATURE):
        with contextlib.suppress(ValueError):  # the graph may reject zeros
            default(
                {
                    name: tf.make_ndarray(tf_serving.example(spec, ""))
                    for name, spec in default.inputs.items()
                }
            )
    definitions = json_format.MessageToDict(
        graph,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )["signature_def"]
    return Model(name, number, signatures, definitions, labels, loaded)


class Location(typing.NamedTuple):
    """A SavedModel on disk: the name of its model, its version and its folder."""

    name: str
    number: int
    folder: pathlib.Path


def find(path: str | os.PathLike) -> list[Location]:
    """Return the SavedModels in a folder, without loading them.

    `path` is a model folder, the folder of one version, or a folder of model folders.
    """
    path = pathlib.Path(os.path.abspath(path))
    if (path / _FILE).is_file():
        if _is_number(path.name):
            return [Location(path.parent.name or "model", int(path.name), path)]
        return [Location(path.name or "model", 1, path)]
    if not path.is_dir():
        return []
    folders = [path] if _latest_version(path) else sorted(path.iterdir())
    versions = {folder.name or "model": _latest_version(folder) for folder in folders}
    return [Location(name, *version) for name, version in versions.items() if version]


def _latest_version(folder):
    """Return the number and the folder of the latest version in a model folder, or `None`."""
    if not folder.is_dir():
        return None
    versions = [
        (int(path.name), path)
        for path in folder.iterdir()
        if _is_number(path.name) and path.is_dir()
    ]
    return max(versions, default=None)


def _is_number(name):
    return name.isascii() and name.isdecimal() and len(name) <= 18


def _read_graph(folder):
    """Return the `MetaGraphDef` that `tf.saved_model.load` loads."""
    saved = saved_model_pb2.SavedModel.FromString((folder / _FILE).read_bytes())
    # A SavedModel may hold several graphs, for example one for TPUs.
    of_servers = [graph for graph in saved.meta_graphs if "serve" in graph.meta_info_def.tags]
    return [*of_servers, *saved.meta_graphs][0]


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
    """Convert `TensorInfo`s to `tf.TensorSpec`s."""
    return {
        name: tf.TensorSpec(tf.TensorShape(tensor.tensor_shape), tensor.dtype, name)
        for name, tensor in tensors.items()
    }


def _reason(error):
    """Return the line of TensorFlow's error message that names the cause."""
    for line in map(str.strip, str(error).splitlines()):
        if line and not line.startswith(_LOCATION):
            return re.sub(r"^\{\{.*?\}\} ?", "", line.partition(" [Op:")[0])[:500]
    return "no reason given"
