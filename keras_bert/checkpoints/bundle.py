"""Read TensorFlow checkpoints: an index file and data files.

A name-based checkpoint (TensorFlow 1) stores each variable under its name. An object-based
checkpoint (TensorFlow 2) also stores the graph of the objects that were saved. Each variable is a
node of the graph, with the key of its tensor.

Source: tensorflow/core/protobuf/trackable_object_graph.proto, tensor_bundle.proto;
tensorflow/core/util/tensor_bundle/tensor_bundle.cc (WriteStringTensor).
"""

import glob
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_bert.runtime import budget, reading
from keras_bert.runtime.escaping import check_name, printable, shown
from keras_bert.untrusted import bundle_index, protobuf
from keras_bert.untrusted.checksums import masked_crc32c
from keras_bert.untrusted.errors import invalid

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_CHECKSUM = 4  # bytes
PREFERRED = "bert_model.ckpt"
_VALUE = "VARIABLE_VALUE"
_LATEST = re.compile(rb'^model_checkpoint_path: "(.+)"$', re.MULTILINE)


class Bundle(NamedTuple):
    """An open checkpoint. `load` reads the tensor with a given name.

    A tensor is an array, a NumPy scalar, or bytes. `prefix` is the path without ".index".
    """

    prefix: Path
    shapes: dict[str, tuple[int, ...]]
    load: Callable[[str], Any]


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
    prefixes = {file.stem: file.with_suffix("") for file in path.glob("*.index")}
    for name in prefixes:
        check_name(name, "the name of a file")
    if not prefixes:
        raise FileNotFoundError(f"{path}: no checkpoint, looked for {PREFERRED}.index")
    names = [PREFERRED]
    state_file = path / "checkpoint"
    if state_file.is_file():
        latest = _LATEST.search(reading.read_bytes(state_file, budget.MAX_HEADER))
        if latest:  # the path may be that of the machine that trained the model
            names.append(Path(latest[1].decode("utf-8", "replace")).name)
    if len(prefixes) == 1:
        names += prefixes
    for name in names:
        if name in prefixes:
            return prefixes[name]
    shown = printable(", ".join(sorted(prefixes)), 200)
    raise ValueError(f"{path}: must hold one checkpoint or {PREFERRED}, received {shown}")


def holds_graph(path: Path) -> bool:
    """Return True if a checkpoint in a folder is object-based. A broken one counts as name-based.

    Only the indexes are searched, for the name of the object graph.
    """
    files = {file.resolve(): file for file in path.glob("*.index")}  # links may repeat a file
    for file in files.values():
        with reading.open_regular(file) as stream:
            # Keys are stored without what they share with the previous key: drop the "_".
            if GRAPH[1:].encode() in stream.read(budget.MAX_HEADER):
                return True
    return False


def read(prefix: Path) -> Bundle:
    """Open the checkpoint with a path without ".index". Tensors are loaded on access."""
    data_files = sorted(prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*"))
    if not data_files:
        raise FileNotFoundError(f"{prefix}.data-00000-of-00001: missing for {prefix.name}.index")
    for file in (prefix.with_name(f"{prefix.name}.index"), *data_files):
        reading.check_not_lfs_pointer(file)
    rule = "must be a complete TensorFlow checkpoint (.index and .data)"
    try:
        entries = bundle_index.read(prefix)
    except ValueError as error:
        raise invalid(prefix, rule, error) from error

    def load(name: str) -> Any:
        try:
            return _load(entries[name])
        except ValueError as error:
            raise invalid(prefix, f"{rule}, in {shown(name, 200)}", error) from error

    return Bundle(prefix, {name: entry.shape for name, entry in entries.items()}, load)


def _load(entry: bundle_index.Entry) -> Any:
    """Read the tensor of an entry, and check its checksum."""
    octets = np.fromfile(entry.file, np.uint8, entry.size, offset=entry.offset)
    if octets.size != entry.size:
        raise ValueError("less data than when the checkpoint was opened; load it again")
    content: Any
    if entry.dtype == object:
        content, checked = _split_string(octets.data)
    else:
        content = octets.view(entry.dtype).reshape(entry.shape)[()]
        checked = octets
    if masked_crc32c(checked) != entry.checksum:
        raise ValueError("data with a wrong checksum; copy or download the files again")
    return content


def _split_string(data: memoryview) -> tuple[bytes, bytes]:
    """Return a string, and the bytes that its checksum is of.

    `data` has the length of the string, the checksum of the length, and the string. For the entry's
    checksum, the length is written with 4 or 8 bytes.
    """
    length, position = protobuf.varint(data, 0)
    content = bytes(data[position + _CHECKSUM :])
    if len(data) != position + _CHECKSUM + length:
        raise ValueError(f"{len(data)} bytes, but it declares a string of {length} bytes")
    width = 4 if length < 2**32 else 8
    return content, length.to_bytes(width, "little") + data[position:]


def read_graph(bundle: Bundle) -> list[Node]:
    """Return the nodes of an object-based checkpoint; node 0 is the root."""
    from google.protobuf.message import DecodeError

    from keras_bert.untrusted.tensorflow_messages import TrackableObjectGraph

    if GRAPH not in bundle.shapes:
        raise ValueError(
            f"{bundle.prefix}: must be an object-based checkpoint (TensorFlow 2), received a "
            "name-based one (TensorFlow 1)"
        )
    content = bundle.load(GRAPH)
    try:
        budget.check(len(content), "bytes", budget.MAX_HEADER)
        graph = TrackableObjectGraph.FromString(content)
        budget.check(len(graph.nodes), "objects", 8 * budget.MAX_OBJECTS)
    except (DecodeError, TypeError, ValueError) as error:
        raise invalid(bundle.prefix, f"{GRAPH} must be an object graph", error) from error
    nodes = []
    for proto in graph.nodes:
        children = {child.local_name: child.node_id for child in proto.children}
        for index in children.values():
            if not 0 <= index < len(graph.nodes):
                raise invalid(bundle.prefix, f"{GRAPH} must link to its own nodes", index)
        keys = {value.name: value.checkpoint_key for value in proto.attributes}
        names = {value.name: value.full_name for value in proto.attributes}
        nodes.append(Node(children, keys.get(_VALUE), names.get(_VALUE, "")))
    return nodes
