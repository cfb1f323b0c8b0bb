"""Reading text files line by line, with errors that name the file and the line."""

import contextlib
import csv
import json
import pathlib
import sys


def check_limit(limit):
    """Check a maximum number of rows to read.

    Args:
        limit: The number, or `None` for all rows.

    Raises:
        ValueError: If the limit is below 1.

    Example:

    >>> check_limit(0)
    Traceback (most recent call last):
    ValueError: limit (--limit) must be at least 1; received 0
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit (--limit) must be at least 1; received {limit}")


@contextlib.contextmanager
def open_utf8(path, newline="\n"):
    r"""Open a UTF-8 text file for reading. A byte order mark is skipped.

    Args:
        path: The file.
        newline: As in `open`; the default splits lines at `\n` only.

    Yields:
        The open file.

    Raises:
        ValueError: If the file is not UTF-8; names the line and the byte.
        OSError: If the file cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "texts.tsv")
    ...     _ = file.write_text("\ufefftext\n", encoding="utf-8")
    ...     with open_utf8(file) as lines:
    ...         list(lines)
    ['text\n']
    """
    try:
        with open(path, encoding="utf-8-sig", newline=newline) as file:
            yield file
    except UnicodeDecodeError as error:
        raise _not_utf8(path) from error


def _not_utf8(path):
    """Return the error for the first byte of a file that is not UTF-8."""
    if pathlib.Path(path).is_file():  # a pipe cannot be read a second time
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as error:
                    byte = line[error.start]
                    return ValueError(
                        f"{path}, line {number}: must be UTF-8; received the byte 0x{byte:02x}"
                    )
    return ValueError(f"{path}: must be UTF-8")


def numbered_lines(path, file):
    r"""Yield the lines of a file without line ends, with their numbers.

    Args:
        path: Path of the file, for error messages.
        file: From `open_utf8`.

    Yields:
        Pairs of a line number, from 1, and the text of the line.

    Raises:
        ValueError: If a line holds a `\r` that is not part of its line end.

    Example:

    >>> list(numbered_lines("a.tsv", ["a\tb\r\n", "c"]))
    [(1, 'a\tb'), (2, 'c')]
    """
    for number, line in enumerate(file, 1):
        line = line.removesuffix("\n").removesuffix("\r")
        if "\r" in line:
            raise ValueError(
                f"{path}, line {number}: lines must end in \\n or \\r\\n; received \\r"
            )
        yield number, line


def json_lines(path, file):
    """Yield the objects of a JSON Lines file, with their line numbers. Skip blank lines.

    Args:
        path: Path of the file, for error messages.
        file: From `open_utf8`.

    Yields:
        Pairs of a line number, from 1, and a dict.

    Raises:
        ValueError: If a line is not a JSON object, or holds NaN or Infinity.

    Example:

    >>> list(json_lines("a.jsonl", ['{"text": "a"}']))
    [(1, {'text': 'a'})]
    """
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=_reject_constant)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: is not JSON ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: must be a JSON object")
        yield number, row


def _reject_constant(name):
    raise ValueError(f"{name} is not a JSON number")


def allow_long_csv_fields():
    """Let the `csv` module read fields of more than 128 KiB, in the whole process.

    Example:

    >>> allow_long_csv_fields()
    """
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
