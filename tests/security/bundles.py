"""Write the files of TensorFlow's checkpoints entry by entry."""

import struct

from tensorflow.core.protobuf import tensor_bundle_pb2

from keras_bert.untrusted import bundle_index, checksums


def varint(number):
    """Encode a number as LevelDB and protocol buffers do."""
    parts = []
    while number >= 128:
        parts.append(number % 128 + 128)
        number //= 128
    return bytes([*parts, number])


def index_block(entries):
    """Return a block of an index with entries (shared bytes, rest of the key, value).

    After the block are the type of its compression and its checksum.
    """
    body = b"".join(
        varint(shared) + varint(len(rest)) + varint(len(value)) + rest + value
        for shared, rest, value in entries
    )
    block = body + struct.pack("<IIx", 0, 1)
    return block + struct.pack("<I", checksums.masked_crc32c(block))


def write_index(file, entries):
    """Write the index of a TensorFlow checkpoint."""
    blocks = [index_block(entries), index_block([])]
    handles, data = [], b""
    for block in blocks:
        handles.append(varint(len(data)) + varint(len(block) - 5))
        data += block
    last = index_block([(0, b"z", handles[0])])
    footer = handles[1] + varint(len(data)) + varint(len(last) - 5)
    data += last
    file.write_bytes(data + footer.ljust(40, b"\0") + struct.pack("<Q", bundle_index._MAGIC))


def write_checkpoint(prefix, data, entries):
    """Write a TensorFlow checkpoint of one data file, with the tensors "a", "b", ..."""
    header = tensor_bundle_pb2.BundleHeaderProto(num_shards=1).SerializeToString()
    items = [(0, b"", header)]
    for name, fields in zip("abc", entries, strict=False):
        content = tensor_bundle_pb2.BundleEntryProto(**fields).SerializeToString()
        items.append((0, name.encode(), content))
    write_index(prefix.with_name(f"{prefix.name}.index"), items)
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(data)
