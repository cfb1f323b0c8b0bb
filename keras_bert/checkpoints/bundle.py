"""TensorFlow's checkpoint files: an index, shards of data, and, in those by object, a graph.

A checkpoint "by name" (TensorFlow 1) has a tensor for each variable's name. One "by object"
(TensorFlow 2) holds besides a graph of the objects that it was saved from, whose nodes say under
which key each variable is kept; a variable that several objects share is one node.

Source: tensorflow/core/protobuf/trackable_object_graph.proto, tensor_bundle.proto.
"""

import contextlib
import glob
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from keras_bert.checkpoints import bundle_index, folder

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_MAX_NODES = 2**17  # objects; BERT-Large with Adam's slots has 2**12
PREFERRED = "bert_model.ckpt"
_LATEST = re.compile(rb'^model_checkpoint_path: "(.+)"$', re.MULTILINE)


class Bundle(NamedTuple):
    """An opened checkpoint: name -> shape of every tensor, and a function that loads one."""

    prefix: Path
    shapes: dict[str, tuple[int, ...]]
    load: Callable[[str], Any]

    @property
    def is_by_object(self) -> bool:
        """Whether the tensors' names are keys of an object graph."""
        return GRAPH in self.shapes


class Node(NamedTuple):
    """An object of an object graph.

    Args:
        children: Name of an attribute -> number of the node that it holds.
        key: The tensor with the object's value, or None where it is no variable.
        name: The variable's own name, or "".
    """

    children: dict[str, int]
    key: str | None
    name: str


def find(path: Path) -> Path:
    """The checkpoint in a folder: its name without .index, which is what TensorFlow goes by.

    Of several it is bert_model.ckpt, or else the one that TensorFlow noted as the latest.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If there are several, and nothing says which.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("bert_model.ckpt", "old.ckpt-1"):
        ...         Path(folder, f"{name}.index").touch()
        ...     find(Path(folder)).name
        'bert_model.ckpt'
    """
    found = sorted(file.with_suffix("") for file in path.glob("*.index"))
    if not found:
        raise FileNotFoundError(f"{path}: no checkpoint, looked for {PREFERRED}.index")
    notes = path / "checkpoint"
    latest = _LATEST.search(notes.read_bytes()) if notes.is_file() else None
    # It may be the path on the machine that trained.
    name = Path(latest[1].decode("utf-8", "replace")).name if latest else PREFERRED
    for prefix in (path / PREFERRED, path / name):
        if prefix in found:
            return prefix
    if len(found) > 1:
        raise ValueError(
            f"{path}: must hold one checkpoint or {PREFERRED}, received "
            f"{', '.join(prefix.name for prefix in found)}"
        )
    return found[0]


def holds_graph(path: Path) -> bool:
    """Whether the checkpoint in a folder is one by object, as far as a glance at the index tells.

    The index is not compressed, so that the name of the graph stands in it; nothing else is read,
    and what is broken counts as one by name. Where nothing says which of several it is, the first
    is looked at.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.index").write_bytes(b"..._CHECKPOINTABLE_OBJECT_GRAPH...")
        ...     holds_graph(Path(folder))
        True
    """
    files = sorted(path.glob("*.index"))
    if not files:
        return False
    with contextlib.suppress(ValueError):
        prefix = find(path)
        files = [prefix.with_name(f"{prefix.name}.index")]
    # Without the first letter: keys are stored without what they share with the one before.
    return GRAPH[1:].encode() in files[0].read_bytes()


def read(prefix: Path) -> Bundle:
    """Opens a checkpoint; tensors are read when they are asked for.

    Raises:
        FileNotFoundError: If there is no data beside the index.
        ValueError: If it is broken; so does `load`.
    """
    import tensorflow as tf  # Only checkpoints of its own need it; it takes seconds to import.

    if not any(prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*")):
        raise FileNotFoundError(f"{prefix}.data-00000-of-00001: missing beside {prefix.name}.index")
    broken = (tf.errors.OpError, IndexError, RuntimeError, ValueError)

    def fail(error: Exception, what: str) -> ValueError:
        return ValueError(
            f"{prefix}: must be a whole TensorFlow checkpoint, .index and .data, received "
            f"{what}{folder.one_line(error)}"
        )

    try:
        entries = bundle_index.read(prefix)  # TensorFlow would crash on a broken index
        reader = tf.train.load_checkpoint(str(prefix))
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
    """Reads the object graph of a checkpoint by object; node 0 is the root.

    Raises:
        ValueError: If it is broken.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    rule = f"{bundle.prefix}: {GRAPH} must be a graph of objects"
    found = bundle.load(GRAPH)
    try:
        graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(found)
    except (DecodeError, TypeError) as error:
        raise ValueError(f"{rule}, received {folder.one_line(error)}") from error
    if len(graph.nodes) > _MAX_NODES:
        raise ValueError(
            f"{rule}, received {len(graph.nodes)} nodes, at most {_MAX_NODES} are allowed"
        )
    nodes = []
    for proto in graph.nodes:
        children = {child.local_name: child.node_id for child in proto.children}
        if not all(0 <= number < len(graph.nodes) for number in children.values()):
            raise ValueError(f"{rule}, received a link to no object of its {len(graph.nodes)}")
        values = [value for value in proto.attributes if value.name == "VARIABLE_VALUE"]
        key, name = (values[0].checkpoint_key, values[0].full_name) if values else (None, "")
        nodes.append(Node(children, key, name))
    return nodes
