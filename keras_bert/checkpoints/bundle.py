"""Read TensorFlow checkpoints: an index file and data files.

A name-based checkpoint (TensorFlow 1) stores each variable under its name. An object-based
checkpoint (TensorFlow 2) also stores the graph of the objects that were saved. Each variable is a
node of the graph, with the key of its tensor.

Source: tensorflow/core/protobuf/trackable_object_graph.proto, tensor_bundle.proto.
"""

import contextlib
import glob
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from keras_bert.runtime import reading
from keras_bert.runtime.escaping import printable
from keras_bert.untrusted import bundle_index, protobuf

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_MAX_STATE_FILE = 2**20  # bytes of the file "checkpoint"
# BERT-Large with Adam's slots has 2**12 nodes with 2**16 fields.
_MAX_NODES = 2**17
_MAX_FIELDS = 2**20
PREFERRED = "bert_model.ckpt"
_LATEST = re.compile(rb'^model_checkpoint_path: "(.+)"$', re.MULTILINE)


class Bundle(NamedTuple):
    """An open checkpoint. `load` reads the tensor with a given name, as an array.

    `prefix` is the path without ".index".
    """

    prefix: Path
    shapes: dict[str, tuple[int, ...]]
    load: Callable[[str], Any]

    @property
    def is_object_based(self) -> bool:
        return GRAPH in self.shapes


class Node(NamedTuple):
    """A node of an object graph. `children` maps attributes to indices of nodes.

    `key` is the name of the tensor, or `None` if the node is not a variable. `name` is the name of
    the variable, or "".
    """

    children: dict[str, int]
    key: str | None
    name: str


def find(path: Path) -> Path:
    """Return the path of the checkpoint in a folder, without ".index".

    If there are several, bert_model.ckpt is preferred, then the latest according to the file
    "checkpoint" that TensorFlow writes.
    """
    names = [file.name for file in path.glob("*.index") if file.name.isprintable()]
    found = sorted(path / name.removesuffix(".index") for name in names)
    if not found:
        raise FileNotFoundError(f"{path}: no checkpoint, looked for {PREFERRED}.index")
    state_file = path / "checkpoint"
    latest = None
    if state_file.is_file():
        latest = _LATEST.search(reading.read_bytes(state_file, _MAX_STATE_FILE))
    # The path in the file may be that of the machine that trained the model.
    name = Path(latest[1].decode("utf-8", "replace")).name if latest else PREFERRED
    for prefix in (path / PREFERRED, path / name):
        if prefix in found:
            return prefix
    if len(found) > 1:
        raise ValueError(
            f"{path}: must hold one checkpoint or {PREFERRED}, received "
            f"{printable(', '.join(prefix.name for prefix in found), 200)}"
        )
    return found[0]


def holds_graph(path: Path) -> bool:
    """Return True if the checkpoint in a folder is object-based. A broken one counts as name-based.

    Only the index is searched, for the name of the object graph. If `find` cannot choose among
    several checkpoints, the first is used.
    """
    files = sorted(path.glob("*.index"))
    if not files:
        return False
    with contextlib.suppress(ValueError):
        prefix = find(path)
        files = [prefix.with_name(f"{prefix.name}.index")]
    # Keys are stored without the prefix that they share with the previous key: drop the "_".
    with open(files[0], "rb") as stream:
        return GRAPH[1:].encode() in stream.read(bundle_index.MAX_INDEX)


def read(prefix: Path) -> Bundle:
    """Open the checkpoint with a path without ".index". Tensors are loaded on access."""
    import tensorflow as tf  # Takes seconds to import, and only this format needs it.

    data_files = sorted(prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*"))
    if not data_files:
        raise FileNotFoundError(f"{prefix}.data-00000-of-00001: missing for {prefix.name}.index")
    for file in (prefix.with_name(f"{prefix.name}.index"), *data_files):
        reading.check_not_lfs_pointer(file)
    broken = (tf.errors.OpError, IndexError, RuntimeError, ValueError)

    def fail(error: Exception, what: str) -> ValueError:
        return ValueError(
            f"{prefix}: must be a complete TensorFlow checkpoint (.index and .data), received "
            f"{what}{reading.one_line(error)}"
        )

    try:
        entries = bundle_index.read(prefix)  # TensorFlow would crash on a broken index
        # `tf.train.load_checkpoint` reads other files if there is a folder named like the prefix.
        reader = tf.compat.v1.train.NewCheckpointReader(str(prefix))
        if reader.get_variable_to_shape_map().keys() != entries.keys():
            raise ValueError("an index with other tensors than TensorFlow finds")
    except broken as error:
        raise fail(error, "") from error

    def load(name: str) -> Any:
        try:
            return reader.get_tensor(name)
        except broken as error:
            raise fail(error, f"in {name!r:.200}: ") from error

    return Bundle(prefix, {name: entry.shape for name, entry in entries.items()}, load)


def read_graph(bundle: Bundle) -> list[Node]:
    """Return the nodes of an object-based checkpoint; node 0 is the root."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    rule = f"{bundle.prefix}: {GRAPH} must be an object graph"
    content = bundle.load(GRAPH)
    message = trackable_object_graph_pb2.TrackableObjectGraph
    try:
        if not isinstance(content, bytes):
            raise ValueError(f"a tensor of the type {type(content).__name__}")
        protobuf.check(content, message.DESCRIPTOR, _MAX_FIELDS)
        graph = message.FromString(content)
    except (DecodeError, ValueError) as error:
        raise ValueError(f"{rule}, received {reading.one_line(error)}") from error
    if len(graph.nodes) > _MAX_NODES:
        raise ValueError(
            f"{rule}, received {len(graph.nodes)} nodes, at most {_MAX_NODES} are allowed"
        )
    nodes = []
    for proto in graph.nodes:
        children = {child.local_name: child.node_id for child in proto.children}
        if not all(0 <= number < len(graph.nodes) for number in children.values()):
            raise ValueError(f"{rule}, received a link to a missing node")
        values = [value for value in proto.attributes if value.name == "VARIABLE_VALUE"]
        key, name = (values[0].checkpoint_key, values[0].full_name) if values else (None, "")
        nodes.append(Node(children, key, name))
    return nodes
