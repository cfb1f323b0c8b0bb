"""Count and find the fields of serialized protocol buffers, without parsing them.

A message of a few bytes takes hundreds of bytes in memory after parsing. These functions read only
the wire format, so they need no memory for messages, and stop at a limit.

Source: "Encoding" in the documentation of Protocol Buffers.
"""

from collections.abc import Iterator
from typing import Any

MAX_FIELDS = 3 * 2**20  # the graphs of BERT-Large for training and inference have 2**20
_MAX_DEPTH = 100  # the limit of protobuf's own parsers
_MAX_TAG = 5  # bytes of a tag or a size
_MAX_NUMBER = 10  # bytes of any other number
# Wire types. The wire type is the lowest three bits of a tag.
_VARINT = 0
_SIZED = 2  # strings, messages and packed numbers
_FIXED_SIZES = {1: 8, 5: 4}  # bytes
_PACKED = 0  # in a schema: a list of integers, of which each byte can be one and counts as a field

# `FieldDescriptor.cpp_type` of double, float and string, which take no more memory when parsed.
_NOT_PACKED = (5, 6, 9)

# Tag -> `_PACKED`, the set that collects the values, or the schema of a message. Other fields are
# counted and skipped.
_Schema = dict[int, Any]


def check(data: bytes, descriptor: Any, limit: int = MAX_FIELDS) -> None:
    """Raise a `ValueError` if a message is broken, too deep, or has more than `limit` fields.

    `descriptor` is the `DESCRIPTOR` of the message's class. The fields of inner messages count too.
    """
    _scan(data, _schema_of(descriptor, {}), limit)


def find(data: bytes, descriptor: Any, *paths: str, limit: int = MAX_FIELDS) -> list[set[bytes]]:
    """Return a set for each path, with the distinct values of this field.

    A path has the names of fields, such as `"graph_def.node.op"`. Only messages on a path are read.
    A broken message, or more than `limit` fields in those messages, is a `ValueError`.
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
    _scan(data, schema, limit)
    return values_per_path


def _sized_tag(field: Any) -> int:
    return int(field.number << 3 | _SIZED)


def _schema_of(descriptor: Any, known: dict[str, _Schema]) -> _Schema:
    """Return the schema of a message's class. Classes can contain themselves."""
    if descriptor.full_name in known:
        return known[descriptor.full_name]
    schema: _Schema = {}
    known[descriptor.full_name] = schema
    for field in descriptor.fields:
        if field.message_type is not None:
            schema[_sized_tag(field)] = _schema_of(field.message_type, known)
        elif field.cpp_type not in _NOT_PACKED:
            schema[_sized_tag(field)] = _PACKED
    return schema


def _scan(data: bytes, schema: _Schema, limit: int) -> None:
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
            elif inner == _PACKED:
                count += end - start
            if count > limit:
                raise ValueError(f"more than {limit} fields")
            if isinstance(inner, dict):
                if len(unfinished) > _MAX_DEPTH:
                    raise ValueError(f"more than {_MAX_DEPTH} messages inside each other")
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
        tag, position = varint(data, position, _MAX_TAG)
        if tag >= 2**32:  # protobuf's own parsers drop these bits, and see another field
            raise ValueError("a field of an unknown number")
        wire_type = tag & 7
        start_of_value = position
        if wire_type == _SIZED:
            size, start_of_value = varint(data, position, _MAX_TAG)
            position = start_of_value + size
        elif wire_type == _VARINT:
            _, position = varint(data, position, _MAX_NUMBER)
        elif wire_type in _FIXED_SIZES:
            position += _FIXED_SIZES[wire_type]
        else:
            raise ValueError("a field of an unknown type")
        if position > end:
            raise ValueError("a truncated field")
        yield tag, start_of_value, position


def varint(data: bytes | memoryview, position: int, limit: int = _MAX_NUMBER) -> tuple[int, int]:
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
