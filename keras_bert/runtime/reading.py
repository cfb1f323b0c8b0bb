"""Read bytes, text and JSON from untrusted files: bounded in size, with one-line errors."""

import collections
import itertools
import json
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

from keras_bert.runtime import budget
from keras_bert.runtime.escaping import printable, shown

_MAX_MESSAGE = 500  # characters
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_OF_ITEMS = "[{:"  # each list, object and key of JSON has one of these characters
_JSON_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NESTING = [0] * 256  # change of the depth by each byte
_NESTING[ord("[")] = _NESTING[ord("{")] = 1
_NESTING[ord("]")] = _NESTING[ord("}")] = -1
_NOT_BRACKETS = bytes(byte for byte in range(256) if not _NESTING[byte])
# Keras puts the reason of an error between other text:
#   Exception encountered when calling X.call().\n\n<reason in bold>\n\nArguments received by ...
#   <class X> could not be deserialized properly. ...\n\nException encountered: <reason>
_BOLD = re.compile(r"\x1b\[\d*m")
_BEFORE_REASON = re.compile(
    r"\A.*Exception encountered(?:: | when calling [^\n]{1,200}\n\n)", re.DOTALL
)
_AFTER_REASON = re.compile(r"(?:\n\nArguments received by | Full object config: ).*", re.DOTALL)


def open_regular(file: Path) -> BinaryIO:
    """Open a regular file to read its bytes. A pipe or a device, which may never end, is an error.

    The open file is checked, so that exchanging it before changes nothing.
    """
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    stream = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        stream.close()
        raise ValueError(f"{file}: must be a file, received a folder, a pipe or a device")
    return stream


def check_not_lfs_pointer(file: Path) -> None:
    """Raise a `ValueError` if a file is the pointer that git leaves in place of a large file."""
    with open_regular(file) as stream:
        _refuse_lfs_pointer(file, stream.read(len(_LFS_POINTER)))


def _refuse_lfs_pointer(file: Path, data: bytes) -> None:
    if data.startswith(_LFS_POINTER):
        raise ValueError(
            f"{file}: is a git-lfs pointer, not the file itself; run `git lfs pull` in its folder, "
            "or download the file again"
        )


def read_bytes(file: Path, limit: int = budget.MAX_TEXT) -> bytes:
    """Return the content of a file, or raise a `ValueError` if it has more than `limit` bytes."""
    with open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        data = stream.read(size + 1) if size <= limit else b""
    budget.check(max(size, len(data)), "bytes", limit, file)
    _refuse_lfs_pointer(file, data)
    return data


def read_text(file: Path) -> str:
    """Return the text of a UTF-8 file. Line ends stay as they are."""
    data = read_bytes(file)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{file}: must be UTF-8, received byte 0x{data[error.start]:02x} in line {line}"
        ) from error


def parse_json(data: bytes, file: object) -> dict[str, Any]:
    """Parse JSON in UTF-8 that holds one object; `file` is the name for error messages."""
    value: dict[str, Any] = _parse(data, file, dict)
    return value


def parse_json_list(data: bytes, file: object) -> list[Any]:
    """Parse JSON in UTF-8 that holds one list; `file` is the name for error messages."""
    value: list[Any] = _parse(data, file, list)
    return value


def json_value(text: str, **options: Any) -> Any:
    """Parse JSON with `json.loads` after `check_json`. A repeated key is an error."""
    check_json(text)
    return json.loads(text, object_pairs_hook=_reject_duplicates, **options)


def check_json(text: str) -> None:
    """Raise a `ValueError` for JSON with many or deeply nested lists, objects and keys.

    An object takes 200 bytes of memory. A deeply nested value exceeds the recursion limit of the
    parser, or of whatever walks over the value.
    """
    if sum(map(text.count, _OF_ITEMS)) <= budget.MAX_DEPTH:
        return
    structure = _JSON_STRING.sub("", text)
    items = sum(map(structure.count, _OF_ITEMS))
    budget.check(items, "lists, objects and keys", budget.MAX_ITEMS)
    brackets = structure.encode("utf-8", "replace").translate(None, _NOT_BRACKETS)
    depth = max(itertools.accumulate(map(_NESTING.__getitem__, brackets)), default=0)
    budget.check(depth, "nested values", budget.MAX_DEPTH)


def _parse(data: bytes, file: object, kind: type) -> Any:
    try:
        value = json_value(data.decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} cannot be read as JSON in UTF-8: {one_line(error)}") from error
    if not isinstance(value, kind):
        name = "object" if kind is dict else "list"
        raise ValueError(f"{file}: must hold a JSON {name}, received {type(value).__name__}")
    return value


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        [(name, _)] = counts.most_common(1)
        raise ValueError(f"the key {shown(name)} twice in an object")
    return values


def first_line(error: BaseException) -> str:
    """Return the first line of `reason`, printable, for libraries that add advice in more lines."""
    return printable(reason(error).splitlines()[0])


def one_line(error: BaseException, limit: int | None = _MAX_MESSAGE) -> str:
    """Return `reason` as one printable line. White space is collapsed."""
    return printable(" ".join(reason(error).split()), limit)


def reason(error: BaseException) -> str:
    """Return the message of an error without what Keras writes around it.

    An empty message becomes the name of the error's class. For an `OSError` with a file name, the
    reason is the file name and what the system says.
    """
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = _BOLD.sub("", str(error))
    text = _BEFORE_REASON.sub("", text)
    text = _AFTER_REASON.sub("", text)
    return text.strip() or type(error).__name__
