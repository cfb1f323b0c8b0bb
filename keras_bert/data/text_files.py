"""Reading text files line by line, with errors that name the file and the line."""

import codecs
import contextlib
import csv
import itertools
import pathlib
import sys
import warnings

from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.reading import json_value
from keras_bert.runtime.warn import level_of_caller

FORMATS = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "tsv",
}
# First bytes of files that are not text -> the function of pandas that reads them.
_READERS = {
    b"PK\x03\x04": "read_excel",
    b"PAR1": "read_parquet",
    b"\x1f\x8b": "read_csv",
    b"BZh": "read_csv",
    b"\xfd7zX": "read_csv",
}


def check_limit(limit):
    """Raise a `ValueError` if `limit` is below 1; `None` means all rows."""
    if limit is not None:
        as_integer("limit (--limit)", limit, 1)


def warn_of_text_pair(names, text_pair):
    """Warn if data has a column `text_pair` that is not read."""
    if text_pair is None and "text_pair" in names:
        warnings.warn(
            "the column text_pair is not read. For pairs of texts, give text_pair='text_pair' "
            "(--text-pair text_pair), and for classes of pairs the task 'pair' (--task pair)",
            stacklevel=level_of_caller(),
        )


@contextlib.contextmanager
def open_utf8(path, newline="\n"):
    r"""Open a UTF-8 file for reading, split at `\n` only by default. Skip a byte order mark.

    A file in another encoding raises a `ValueError` that says how to convert it.
    """
    path = pathlib.Path(path)
    check_is_text(path)
    try:
        with open(path, encoding="utf-8-sig", newline=newline) as file:
            yield file
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}{_first_wrong_byte(path)}. Korean files may be CP949, Western ones CP1252. "
            f"{_conversion('CP949')}"
        ) from error


def check_is_text(path):
    """Raise a `ValueError` with a way to read the file if its first bytes are not of UTF-8 text."""
    if not path.is_file():  # a pipe cannot be read twice
        return
    with open(path, "rb") as file:
        head = file.read(4)
    for start, function in _READERS.items():
        if head.startswith(start):
            raise ValueError(
                f"{path}: must be a text file; this one is binary or compressed. Give a DataFrame: "
                f"pandas.{function}(path)"
            )
    # A zero is valid in UTF-8, but no text has it.
    if b"\0" in head or head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{path}: must be UTF-8; this is UTF-16. {_conversion('UTF-16')}")


def _first_wrong_byte(path):
    """Return the line and the value of the first byte that is not UTF-8, for the error."""
    data = path.read_bytes() if path.is_file() else b""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return f", line {line}: must be UTF-8; received the byte 0x{data[error.start]:02x}"
    return ": must be UTF-8"


def _conversion(encoding):
    """Return advice to convert a file to UTF-8."""
    return (
        f"Convert it: iconv -f {encoding} -t UTF-8 OLD > NEW, or give a DataFrame: "
        f"pandas.read_csv(path, encoding='{encoding.lower()}')"
    )


def numbered_lines(path, file):
    r"""Yield (line number from 1, line without its end). A `\r` within a line is a `ValueError`."""
    for number, line in enumerate(file, 1):
        line = line.removesuffix("\n").removesuffix("\r")
        if "\r" in line:
            raise ValueError(
                f"{path}, line {number}: lines must end in \\n or \\r\\n; received \\r"
            )
        yield number, line


def json_rows(path, file):
    """Yield (location, dict) for each row of JSON Lines or of one JSON list. Skip blank lines.

    NaN and Infinity are errors. `path` is only for messages.
    """
    for number, line in enumerate(file, 1):
        start = line.lstrip()
        if start.startswith("["):
            rows = _parse(f"{path}, line {number}", itertools.chain([line], file))
            for index, row in enumerate(rows, 1):
                yield _checked_row(path, f"item {index}", row)
            return
        if start:
            row = _parse(f"{path}, line {number}", [line])
            yield _checked_row(path, f"line {number}", row)


def _parse(where, lines):
    try:
        return json_value("".join(lines), parse_constant=_reject_constant)
    except ValueError as error:
        raise ValueError(
            f"{where} is not JSON ({error}). Write an object a line, or a list of objects"
        ) from error


def _checked_row(path, location, row):
    if not isinstance(row, dict):
        raise ValueError(f"{path}, {location}: must be a JSON object")
    return location, row


def _reject_constant(name):
    raise ValueError(f"{name} is not a JSON number")


def allow_long_csv_fields():
    """Let the `csv` module read fields of more than 128 KiB, in the whole process."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
