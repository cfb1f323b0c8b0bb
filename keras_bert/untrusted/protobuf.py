"""Find the fields of serialized protocol buffers, without parsing them.

A message of a few bytes takes hundreds of bytes in memory after parsing. These functions read only
the wire format, so they need no memory for messages, and stop at a limit.

Source: "Encoding" in the documentation of Protocol Buffers.
"""

from collections.abc import Iterator
from typing import Any

from keras_bert.runtime import budget

# Bytes of the longest numbers. Tags and sizes have 32 bits.
VARINT_32 = 5
VARINT_64 = 10
# Wire types. The wire type is the lowest three bits of a tag.
_VARINT = 0
_SIZED = 2  # strings, messages and packed numbers
_FIXED_SIZES = {1: 8, 5: 4}  # bytes

# Tag -> the set that collects the values, or the schema of a message. Other fields are counted and
# skipped.
_Schema = dict[int, Any]


def find(data: bytes, descriptor: Any, *paths: str) -> list[set[bytes]]:
    """Return a set for each path, with the distinct values of this field.

    A path has the names of fields, such as `"graph_def.node.op"`. Only messages on a path are read.
    A broken message, or too many fields in those messages, is a `ValueError`.
    """
    schema: _Schema = {}
    values_per_path: list[set[bytes]] = []
    for path in paths:
        *parents, last = path.split(".")
        message = descriptor
        inner = schema
        for name in parents:
            field = message.fields_by_name[name]
            inner = inner.setdefault(_sized_tag(field), {})
            message = field.message_type
        values: set[bytes] = set()
        inner[_sized_tag(message.fields_by_name[last])] = values
        values_per_path.append(values)
    _scan(data, schema)
    return values_per_path


def _sized_tag(field: Any) -> int:
    return int(field.number << 3 | _SIZED)


def _scan(data: bytes, schema: _Schema) -> None:
    """Visit the fields of a message. Only messages and sets of the schema are read."""
    unfinished = [(fields(data, 0, len(data)), schema)]
    count = 0
    while unfinished:
        message, schema = unfinished[-1]
        for tag, start, end in message:
            count += 1
            inner = schema.get(tag)
            if isinstance(inner, set):
                inner.add(data[start:end])
            if count > budget.MAX_ITEMS:
                budget.check(count, "fields", budget.MAX_ITEMS)
            if isinstance(inner, dict) and start < end:
                unfinished.append((fields(data, start, end), inner))
                break
        else:
            unfinished.pop()


def fields(data: Any, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of the message in `data[start:end]`: tag, start and end of the value.

    `data` is bytes or a memory-mapped file. Inner messages and strings are skipped.
    """
    position = start
    while position < end:
        tag, position = varint(data, position, VARINT_32)
        if tag >= 2**32:  # protobuf's own parsers drop these bits, and see another field
            raise ValueError("a field of an unknown number")
        wire_type = tag & 7
        start_of_value = position
        if wire_type == _SIZED:
            size, start_of_value = varint(data, position, VARINT_32)
            position = start_of_value + size
        elif wire_type == _VARINT:
            _, position = varint(data, position, VARINT_64)
        elif wire_type in _FIXED_SIZES:
            position += _FIXED_SIZES[wire_type]
        else:
            raise ValueError("a field of an unknown type")
        if position > end:
            raise ValueError("a truncated field")
        yield tag, start_of_value, position


def varint(data: bytes | memoryview, position: int, limit: int = VARINT_64) -> tuple[int, int]:
    """Return the number of at most `limit` bytes at a position, and the position after it."""
    # Most numbers have one byte.
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    value = 0
    for index, byte in enumerate(data[position : position + limit]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise ValueError("a truncated or too long number")
