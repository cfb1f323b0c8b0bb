"""Read and check the index of a TensorFlow checkpoint, in Python.

TensorFlow does not validate an index: a modified index with a matching checksum can crash the
process. TensorFlow opens a checkpoint only after this module has checked its index.

Source: tensorflow/core/lib/io/format.cc and block.cc (a table of LevelDB),
tensorflow/core/protobuf/tensor_bundle.proto.
"""

import math
from pathlib import Path
from typing import NamedTuple

from keras_bert.runtime import reading
from keras_bert.untrusted import containers
from keras_bert.untrusted.protobuf import varint

MAX_INDEX = 2**24  # bytes; BERT-Large with Adam's slots has 2**17
_MAX_ENTRIES = 2**17  # tensors; BERT-Large with Adam's slots has 2**11
_MAX_KEY = 2**11  # bytes of a name; a key may share bytes with the key before it
_MAX_KEYS = 2**24  # bytes of all names; those of BERT-Large with Adam's slots have 2**18
_MAX_NUMBER = 5  # bytes of a number, which has at most 32 bits
_MAX_LENGTH = 10  # bytes of the length of a string
_CHECKSUM = 4  # bytes
_FOOTER = 48  # bytes
_TRAILER = 5  # bytes after a block: type of compression, checksum
_MAGIC = 0xDB4775248B80FB57
# tf.DataType -> bytes per value. Strings have no fixed size.
_STRING = 7
_SIZES = {1: 4, 2: 8, 3: 4, 4: 1, 5: 2, 6: 1, 9: 8, 10: 1, 14: 2, 17: 2, 19: 2, 22: 4, 23: 8}


class Entry(NamedTuple):
    """Location of a tensor in the data files.

    `shard` is the index of the data file; `offset` and `size` are in bytes.
    """

    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int


def read(prefix: Path) -> dict[str, Entry]:
    """Read name -> `Entry` of the checkpoint with a path without ".index".

    Each entry is checked against the sizes of the data files.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import tensor_bundle_pb2

    index = reading.read_bytes(prefix.with_name(f"{prefix.name}.index"), MAX_INDEX)
    items = _read_table(index)
    if not items or items[0][0] != b"":
        raise ValueError("the index has no header")
    try:
        header = tensor_bundle_pb2.BundleHeaderProto.FromString(items[0][1])
        found = [
            (key.decode(), tensor_bundle_pb2.BundleEntryProto.FromString(value))
            for key, value in items[1:]
        ]
    except (DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the index has a broken entry: {reading.one_line(error)}") from error
    if header.endianness != tensor_bundle_pb2.BundleHeaderProto.LITTLE:
        raise ValueError("the checkpoint is big-endian")
    if not 1 <= header.num_shards <= 10_000:
        raise ValueError(f"the index names {header.num_shards} data files")
    shards = [
        prefix.with_name(f"{prefix.name}.data-{shard:05}-of-{header.num_shards:05}")
        for shard in range(header.num_shards)
    ]
    for shard in shards:
        if not shard.is_file():
            raise ValueError(f"the data file {shard.name} is missing")
    sizes = [shard.stat().st_size for shard in shards]
    entries = {name: _entry(name, proto, sizes) for name, proto in found}
    unclaimed = list(sizes)
    for entry in entries.values():
        unclaimed[entry.shard] -= entry.size
        if unclaimed[entry.shard] < 0:
            raise ValueError(f"tensors overlap in {shards[entry.shard].name}")
    for name, proto in found:
        if proto.dtype == _STRING:
            _check_string(name, entries[name], shards)
    return entries


def _entry(name, proto, sizes) -> Entry:  # type: ignore[no-untyped-def]  # protocol buffers
    """Check an entry against the sizes of the data files."""
    if len(proto.slices):
        raise ValueError(f"{name!r:.200} is split into slices")
    shape = tuple(dim.size for dim in proto.shape.dim)
    if proto.shape.unknown_rank or len(shape) > containers.MAX_RANK or min(shape, default=0) < 0:
        raise ValueError(f"{name!r:.200} has the invalid shape {shape}")
    entry = Entry(shape, proto.shard_id, proto.offset, proto.size)
    if not (
        0 <= entry.shard < len(sizes)
        and 0 <= entry.offset <= entry.offset + entry.size <= sizes[entry.shard]
        and entry.size >= 0
    ):
        raise ValueError(f"{name!r:.200} is outside the data files")
    if proto.dtype == _STRING:
        fits = shape == ()  # the object graph
    else:
        fits = proto.dtype in _SIZES and entry.size == math.prod(shape) * _SIZES[proto.dtype]
    if not fits:
        raise ValueError(
            f"{name!r:.200} of type {proto.dtype} and shape {shape} has {entry.size} bytes"
        )
    return entry


def _check_string(name: str, entry: Entry, shards: list[Path]) -> None:
    """Check that a string fills its entry: TensorFlow allocates as many bytes as it declares.

    An entry has the length of the string, the checksum of this number, and the string.
    """
    with open(shards[entry.shard], "rb") as stream:
        stream.seek(entry.offset)
        start = stream.read(min(entry.size, _MAX_LENGTH))
    length, position = varint(start, 0, _MAX_LENGTH)
    if position + _CHECKSUM + length != entry.size:
        raise ValueError(
            f"{name!r:.200} has {entry.size} bytes, but declares a string of {length} bytes"
        )


def _read_table(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the keys and values of a table, in order."""
    if len(data) < _FOOTER or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise ValueError("the index is truncated or not an index")
    position = len(data) - _FOOTER
    handles = []
    for _ in range(4):  # offset and size of the metadata block, and of the index block
        number, position = varint(data, position, _MAX_NUMBER)
        handles.append(number)
    _read_block(data, handles[0], handles[1])
    items: list[tuple[bytes, bytes]] = []
    end = 0
    key_bytes = 0
    for _, handle in _read_block(data, handles[2], handles[3]):
        offset, position = varint(handle, 0, _MAX_NUMBER)
        size, position = varint(handle, position, _MAX_NUMBER)
        if position != len(handle) or offset < end:
            raise ValueError("the blocks of the index overlap")
        end = offset + size + _TRAILER
        block = _read_block(data, offset, size)
        items += block
        key_bytes += sum(len(key) for key, _ in block)
        _check_keys(key_bytes)
        if len(items) > _MAX_ENTRIES:
            raise ValueError(f"the index has more than {_MAX_ENTRIES} tensors")
    keys = [key for key, _ in items]
    if any(key >= following for key, following in zip(keys, keys[1:], strict=False)):
        raise ValueError("the keys of the index are not sorted")
    return items


def _check_keys(key_bytes: int) -> None:
    if key_bytes > _MAX_KEYS:
        raise ValueError(f"the names in the index have more than {_MAX_KEYS} bytes")


def _read_block(data: bytes, offset: int, size: int) -> list[tuple[bytes, bytes]]:
    """Return the keys and values of a block, whose keys are prefix-compressed."""
    limit = offset + size
    if size < 4 or limit + _TRAILER > len(data) - _FOOTER:
        raise ValueError("a block of the index is outside the file")
    if data[limit] != 0:
        raise ValueError("a block of the index is compressed")
    restarts = int.from_bytes(data[limit - 4 : limit], "little")
    end = limit - 4 - 4 * restarts
    if restarts < 1 or end < offset:
        raise ValueError("a block of the index has no restarts")
    items: list[tuple[bytes, bytes]] = []
    full_keys = {0}  # offsets of entries with a full key
    key = b""
    key_bytes = 0
    position = offset
    while position < end:
        start = position
        shared, position = varint(data, position, _MAX_NUMBER)
        rest, position = varint(data, position, _MAX_NUMBER)
        length, position = varint(data, position, _MAX_NUMBER)
        if shared > len(key) or position + rest + length > end:
            raise ValueError("an entry of the index is truncated")
        if shared + rest > _MAX_KEY or len(items) == _MAX_ENTRIES:
            raise ValueError(
                f"the index has a name of more than {_MAX_KEY} bytes, or more than {_MAX_ENTRIES} "
                "tensors"
            )
        if not shared:
            full_keys.add(start - offset)
        key = key[:shared] + data[position : position + rest]
        position += rest
        key_bytes += len(key)
        _check_keys(key_bytes)
        items.append((key, data[position : position + length]))
        position += length
    starts = [int.from_bytes(data[at : at + 4], "little") for at in range(end, limit - 4, 4)]
    if starts[0] != 0 or not full_keys.issuperset(starts) or sorted(set(starts)) != starts:
        raise ValueError("the restart offsets of the index do not point at entries")
    return items
