"""Reading text files line by line, with errors that name the file and the line."""

import contextlib
import csv
import pathlib
import sys
import warnings

from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.reading import json_value
from keras_bert.runtime.warn import level_of_caller

FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "tsv"}


def check_limit(limit):
    """Raise a `ValueError` if `limit` is below 1; `None` means all rows."""
    if limit is not None:
        as_integer("limit (--limit)", limit, 1)


def warn_of_text_pair(names, text_pair):
    """Warn if data has a column `text_pair` that is not read."""
    if text_pair is None and "text_pair" in names:
        warnings.warn(
            "the column text_pair is not read. For pairs of texts, give the task 'pair' and "
            "text_pair='text_pair' (--task pair --text-pair text_pair)",
            stacklevel=level_of_caller(),
        )


@contextlib.contextmanager
def open_utf8(path, newline="\n"):
    r"""Open a UTF-8 file for reading, split at `\n` only by default. Skip a byte order mark.

    A byte that is not UTF-8 raises a `ValueError` that names the line.
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
    r"""Yield (line number from 1, line without its end). A `\r` within a line is a `ValueError`."""
    for number, line in enumerate(file, 1):
        line = line.removesuffix("\n").removesuffix("\r")
        if "\r" in line:
            raise ValueError(
                f"{path}, line {number}: lines must end in \\n or \\r\\n; received \\r"
            )
        yield number, line


def json_lines(path, file):
    """Yield (line number from 1, dict) for each line of a JSON Lines file. Skip blank lines.

    NaN and Infinity are errors. `path` is only for messages.
    """
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json_value(line, parse_constant=_reject_constant)
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not JSON ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: must be a JSON object")
        yield number, row


def _reject_constant(name):
    raise ValueError(f"{name} is not a JSON number")


def allow_long_csv_fields():
    """Let the `csv` module read fields of more than 128 KiB, in the whole process."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
