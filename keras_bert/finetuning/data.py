"""Labelled texts from TSV, CSV and JSON Lines files."""

import collections
import csv
import dataclasses
import json
import pathlib
import sys

FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "tsv"}


@dataclasses.dataclass(frozen=True)
class Examples:
    """Texts, with pairs and labels where there are any; lists of one length.

    Attributes:
        texts: the first or only texts.
        text_pairs: the second texts, or `None`.
        labels: the labels as they stand in the file, or `None`; whatever they are, they are
            kept as strings.
        source: where they come from, for messages.

    Raises:
        ValueError: the columns differ in length, or a text is no string.

    Example:

    >>> Examples(["Win now", "See you at six"], labels=[1, 0]).label_names()
    ['0', '1']
    """

    texts: list[str]
    text_pairs: list[str] | None = None
    labels: list[str] | None = None
    source: str = "the examples"

    def __post_init__(self):
        for name in ("texts", "text_pairs", "labels"):
            column = getattr(self, name)
            if column is None:
                continue
            if isinstance(column, str):
                raise ValueError(f"{name} must be a list of strings; received one string")
            column = [str(item) for item in column] if name == "labels" else list(column)
            if len(column) != len(self.texts):
                raise ValueError(
                    f"{self.source}: {name} must be as many as the texts, {len(self.texts)}; "
                    f"received {len(column)}"
                )
            wrong = [item for item in column if not isinstance(item, str)]
            if wrong:
                raise ValueError(
                    f"{self.source}: {name} must be strings; received {wrong[0]!r:.80}"
                )
            object.__setattr__(self, name, column)

    def __len__(self):
        return len(self.texts)

    def label_names(self):
        """Returns the distinct labels, sorted; numbers by value."""
        names = set(self.labels or ())
        try:
            return sorted(names, key=lambda name: (float(name), name))
        except ValueError:
            return sorted(names)

    def majority_share(self):
        """Returns the share of the most frequent label, 0 to 1: what guessing it would score."""
        counts = collections.Counter(self.labels or ())
        return max(counts.values()) / counts.total()


def read(path, *, text, text_pair=None, label=None, format=None, header=True, limit=None):
    r"""Reads examples from a file.

    In TSV a field ends at the next tab and quotes mean nothing, as in GLUE's files; CSV is
    quoted as usual. Files are UTF-8.

    Args:
        path: the file.
        text: column of the text: a name, or without a header a number from 1.
        text_pair: column of the second text, if the task has pairs.
        label: column of the label, if it is wanted.
        format: `"tsv"`, `"csv"` or `"jsonl"`; default: by the file's ending.
        header: whether the first row of a TSV or CSV file names the columns.
        limit: read no more than so many rows.

    Returns:
        The `Examples`.

    Raises:
        ValueError: the format is not known, a column or a value is missing or no text, or the
            file holds no rows; the message names file and row.
        OSError: the file cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "mail.tsv")
    ...     _ = file.write_text("label\ttext\nspam\tWin now\nham\tSee you at six\n")
    ...     read(file, text="text", label="label").labels
    ['spam', 'ham']
    """
    path = pathlib.Path(path)
    format = format or FORMATS.get(path.suffix.lower())
    if format not in FORMATS.values():
        raise ValueError(
            f"{path}: the format must be one of tsv, csv, jsonl; received "
            f"{format or path.suffix or 'a file without an ending'!r}"
        )
    columns = [column for column in (text, text_pair, label) if column is not None]
    if len(set(columns)) < len(columns):
        raise ValueError(f"{path}: each column has one use; received {', '.join(columns)}")
    read_rows = _json_rows if format == "jsonl" else _table_rows
    values = collections.defaultdict(list)
    try:
        with open(path, encoding="utf-8-sig", newline="" if format == "csv" else "\n") as file:
            for place, row in read_rows(path, file, columns, label, format, header):
                for column, value in zip(columns, row, strict=True):
                    values[column].append(value)
                if label is not None and not values[label][-1]:
                    raise ValueError(f"{path}, {place}: the label is empty")
                if limit is not None and len(values[text]) >= limit:
                    break
    except UnicodeDecodeError as error:
        bad = error.object[error.start : error.start + 1].hex()
        raise ValueError(f"{path}: must be UTF-8; received the byte 0x{bad}") from error
    if not values[text]:
        raise ValueError(f"{path}: holds no rows")
    return Examples(
        texts=values[text],
        text_pairs=None if text_pair is None else values[text_pair],
        labels=None if label is None else values[label],
        source=str(path),
    )


def _table_rows(path, file, columns, label, format, header):
    """For each row of a TSV or CSV file where it stands and its wanted columns."""
    if format == "csv":
        csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # the default refuses long texts
        rows = csv.reader(file, strict=True)  # an open quote would swallow the rest
    else:
        rows = (line.rstrip("\r\n").split("\t") for line in file)
    places, number = None, 0
    try:
        for number, row in enumerate(rows, 1):
            if places is None:
                width = len(row)
                places = _places(path, columns, row if header else None, width)
                if header:
                    continue
            if row in ([], [""]):
                if width > 1:
                    continue  # a blank line, as at the end of many files
                row = [""]  # the empty text of a file of texts alone
            # Without a header files may well differ in what comes after the columns they need.
            if max(places) >= len(row) or header and len(row) != width:
                wanted = f"{width}" if header else f"at least {max(places) + 1}"
                raise ValueError(
                    f"{path}, row {number}: must have {wanted} columns; received {len(row)}"
                )
            yield f"row {number}", [row[place] for place in places]
    except csv.Error as error:
        raise ValueError(f"{path}, after row {number}: {error}") from error


def _places(path, columns, names, width):
    if names is None:
        for column in columns:
            if not str(column).isdecimal() or not 1 <= int(column) <= width:
                raise ValueError(
                    f"{path}: without a header a column is a number from 1 to {width}; "
                    f"received {column!r}"
                )
        return [int(column) - 1 for column in columns]
    for column in columns:
        if names.count(column) != 1:
            found = ", ".join(name[:40] for name in names[:20])
            how_many = "two columns" if column in names else "no column"
            raise ValueError(f"{path}: has {how_many} {column!r}; its columns are {found}")
    return [names.index(column) for column in columns]


def _json_rows(path, file, columns, label, format, header):
    """For each line of a JSON Lines file where it stands and its wanted values."""
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: is not JSON ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: must be a JSON object")
        values = []
        for column in columns:
            if column not in row:
                raise ValueError(f"{path}, line {number}: has no key {column!r}")
            value = row[column]
            if column == label and isinstance(value, (int, bool)):
                value = str(value)  # classes are often numbers
            if not isinstance(value, str):
                raise ValueError(
                    f"{path}, line {number}: {column!r} must be a string; received "
                    f"{json.dumps(value)[:80]}"
                )
            values.append(value)
        yield f"line {number}", values
