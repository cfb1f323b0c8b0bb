"""Read and check the index of a TensorFlow checkpoint, without TensorFlow.

Source: tensorflow/core/lib/io/format.cc and block.cc (a table of LevelDB),
tensorflow/core/protobuf/tensor_bundle.proto.
"""

import itertools
import math
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from keras_bert.runtime import budget, reading
from keras_bert.runtime.escaping import shown
from keras_bert.untrusted import protobuf
from keras_bert.untrusted.checksums import masked_crc32c

_FOOTER = 48  # bytes
_TRAILER = 5  # bytes after a block: type of compression, checksum
_UNCOMPRESSED = 0
_MAGIC = 0xDB4775248B80FB57
_LITTLE_ENDIAN = 0
_VERSION = 1  # of the format of checkpoints
# tf.DataType -> NumPy's type. A string has the type "O".
_TYPES: dict[int, Any] = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 7: "O", 9: "<i8", 10: "?",
    14: ml_dtypes.bfloat16, 17: "<u2", 19: "<f2", 22: "<u4", 23: "<u8",
}  # fmt: skip


class Entry(NamedTuple):
    """Location of a tensor in a data file. `offset` and `size` are in bytes.

    `checksum` is that of `masked_crc32c`. A string has the type `object`.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    file: Path
    offset: int
    size: int
    checksum: int


def read(prefix: Path) -> dict[str, Entry]:
    """Read name -> `Entry` of the checkpoint with a path without ".index".

    Each entry is checked against the sizes of the data files.
    """
    from google.protobuf.message import DecodeError

    from keras_bert.untrusted.tensorflow_messages import BundleEntryProto, BundleHeaderProto

    index = reading.read_bytes(prefix.with_name(f"{prefix.name}.index"), budget.MAX_HEADER)
    items = _read_table(index)
    if not items or items[0][0] != b"":
        raise ValueError("the index has no header")
    try:
        header = BundleHeaderProto.FromString(items[0][1])
        protos = {key.decode(): BundleEntryProto.FromString(value) for key, value in items[1:]}
    except (DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the index has a broken entry: {reading.one_line(error)}") from error
    size_of = _data_files(prefix, header)
    files = list(size_of)
    entries = {name: _entry(name, proto, files, size_of) for name, proto in protos.items()}
    unclaimed = dict(size_of)
    for entry in entries.values():
        unclaimed[entry.file] -= entry.size
        if unclaimed[entry.file] < 0:
            raise ValueError(f"tensors overlap in {entry.file.name}")
    return entries


def _data_files(prefix: Path, header: Any) -> dict[Path, int]:
    """Return data file -> size in bytes, in the order of their numbers."""
    if header.endianness != _LITTLE_ENDIAN or header.version.min_consumer > _VERSION:
        raise ValueError("the checkpoint is big-endian or of a later version of the format")
    if header.num_shards < 1:
        raise ValueError(f"the index names {header.num_shards} data files")
    size_of = {}
    for shard in range(header.num_shards):
        file = prefix.with_name(f"{prefix.name}.data-{shard:05}-of-{header.num_shards:05}")
        if not file.is_file():
            raise ValueError(f"the data file {file.name} is missing")
        size_of[file] = file.stat().st_size
    return size_of


def _entry(name: str, proto: Any, files: list[Path], size_of: dict[Path, int]) -> Entry:
    """Check an entry against the sizes of the data files."""
    if len(proto.slices):
        raise ValueError(f"{shown(name, 200)} is split into slices")
    shape = tuple(dim.size for dim in proto.shape.dim)
    if proto.shape.unknown_rank or len(shape) > budget.MAX_RANK or min(shape, default=0) < 0:
        raise ValueError(f"{shown(name, 200)} has the invalid shape {shape}")
    if not (
        0 <= proto.shard_id < len(files)
        and 0 <= proto.offset <= proto.offset + proto.size <= size_of[files[proto.shard_id]]
    ):
        raise ValueError(f"{shown(name, 200)} is outside the data files")
    dtype = np.dtype(_TYPES.get(proto.dtype, "V"))
    # The object graph is a string, of any size.
    fits = shape == () if dtype.hasobject else proto.size == math.prod(shape) * dtype.itemsize
    if proto.dtype not in _TYPES or not fits:
        raise ValueError(f"{shown(name, 200)} of type {proto.dtype} has {proto.size} bytes")
    return Entry(shape, dtype, files[proto.shard_id], proto.offset, proto.size, proto.crc32c)


def _read_table(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the keys and values of a table, in order."""
    if len(data) < _FOOTER or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise ValueError("the index is truncated or not an index")
    position = len(data) - _FOOTER
    handles = []
    for _ in range(4):  # offset and size of the metadata block, and of the index block
        number, position = protobuf.varint(data, position, protobuf.VARINT_32)
        handles.append(number)
    _read_block(data, handles[0], handles[1])
    items: list[tuple[bytes, bytes]] = []
    end = 0
    for _, handle in _read_block(data, handles[2], handles[3]):
        offset, position = protobuf.varint(handle, 0, protobuf.VARINT_32)
        size, position = protobuf.varint(handle, position, protobuf.VARINT_32)
        if position != len(handle) or offset < end:
            raise ValueError("the blocks of the index overlap")
        end = offset + size + _TRAILER
        items += _read_block(data, offset, size)
        budget.check(len(items), "tensors", budget.MAX_OBJECTS)
    keys = [key for key, _ in items]
    if any(key >= following for key, following in itertools.pairwise(keys)):
        raise ValueError("the keys of the index are not sorted")
    return items


def _read_block(data: bytes, offset: int, size: int) -> list[tuple[bytes, bytes]]:
    """Return the keys and values of a block, whose keys are prefix-compressed."""
    limit = offset + size
    if size < 4 or limit + _TRAILER > len(data) - _FOOTER:
        raise ValueError("a block of the index is outside the file")
    stored = int.from_bytes(data[limit + 1 : limit + _TRAILER], "little")
    if data[limit] != _UNCOMPRESSED or masked_crc32c(data[offset : limit + 1]) != stored:
        raise ValueError("a block of the index is damaged; copy or download it again")
    # The offsets of full keys, at the end, are only for a binary search.
    end = limit - 4 - 4 * int.from_bytes(data[limit - 4 : limit], "little")
    items: list[tuple[bytes, bytes]] = []
    key = b""
    position = offset
    while position < end:
        shared, position = protobuf.varint(data, position, protobuf.VARINT_32)
        rest, position = protobuf.varint(data, position, protobuf.VARINT_32)
        length, position = protobuf.varint(data, position, protobuf.VARINT_32)
        if shared > len(key) or position + rest + length > end:
            raise ValueError("an entry of the index is truncated")
        budget.check(shared + rest, "bytes in a name", budget.MAX_NAME)
        budget.check(len(items), "tensors", budget.MAX_OBJECTS)
        key = key[:shared] + data[position : position + rest]
        position += rest
        items.append((key, data[position : position + length]))
        position += length
    return items
