"""Multiple-choice data from SWAG's CSV files and from JSON Lines files."""

import csv
import dataclasses
import itertools
import pathlib
import sys

import numpy as np

from keras_bert.data.examples import TaskData, check_count, summary
from keras_bert.data.tables import column_names, read_columns
from keras_bert.data.text_files import (
    FORMATS,
    allow_long_csv_fields,
    check_limit,
    json_rows,
    open_utf8,
)
from keras_bert.runtime.arguments import as_list
from keras_bert.runtime.escaping import printable, shown


@dataclasses.dataclass(frozen=True, repr=False)
class Choices(TaskData):
    """Texts, each with the same number of continuations to choose from.

    Attributes:
        texts: The texts that are continued.
        choices: For each text its continuations, at least two.
        labels: For each text the index of the right continuation, from 0; or `None`.
        source: Where the texts come from, for messages.
        locations: For each text its place in the source, for messages; or `None`.

    Raises:
        ValueError: If the columns differ in length, a text is not a string, the texts differ in
            their number of choices, or a label is not the index of a choice.

    Example:

    >>> len(Choices(["She opened"], [["the door.", "the sky."]], [0]))
    1
    """

    texts: list[str]
    choices: list[list[str]]
    labels: list[int] | None = None
    source: str = "the choices"
    locations: list[str] | None = dataclasses.field(default=None, compare=False)
    row_fields = ("texts", "choices", "labels", "locations")

    def __post_init__(self):
        names = ("texts", "choices") if self.labels is None else ("texts", "choices", "labels")
        columns = {name: as_list(f"{self.source}: {name}", getattr(self, name)) for name in names}
        texts = columns["texts"]
        for name, column in columns.items():
            check_count(self.source, name, column, "texts", len(texts))
        labels = columns.get("labels", [0] * len(texts))
        choices_of_texts: list[list[str]] = []
        for index, (text, label) in enumerate(zip(texts, labels, strict=True)):
            location = self.locations[index] if self.locations else f"item {index + 1}"
            name = f"{self.source}, {location}: the choices"
            choices = columns["choices"][index]
            if isinstance(choices, dict):  # as in ARC: {"text": [...], "label": ["A", ...]}
                raise ValueError(
                    f"{name} must be a list, such as that of its key 'text'; received "
                    f"{shown(choices)}"
                )
            choices = as_list(name, choices)
            choices_of_texts.append(choices)
            check_item(f"{self.source}, {location}", text, choices, label, choices_of_texts[0])
        object.__setattr__(self, "texts", texts)
        object.__setattr__(self, "choices", choices_of_texts)
        if self.labels is not None:
            object.__setattr__(self, "labels", [int(label) for label in labels])

    def sample_of_texts(self, count):
        return list(self.texts[:count])

    def __len__(self):
        return len(self.texts)

    def __repr__(self):
        return summary(self, len(self), [] if self.labels is None else ["labels"])


def check_item(location, text, choices, label, first):
    """Raise an error for an item that is malformed, or has fewer or more choices than `first`."""
    is_list = hasattr(choices, "__len__") and not isinstance(choices, (str, dict))
    if not is_list or len(choices) < 2 or len(choices) != len(first):
        raise ValueError(
            f"{location}: the choices must be a list of at least two texts, with the length of the "
            f"first list; received {shown(choices)}"
        )
    for item in (text, *choices):
        if not isinstance(item, str):
            raise ValueError(f"{location}: texts must be strings; received {shown(item)}")
    if not isinstance(label, (int, np.integer)) or not 0 <= label < len(choices):
        raise ValueError(
            f"{location}: the label must be 0 to {len(choices) - 1}; received {shown(label)}. It "
            "is the index of the right choice"
        )


def read(path, **options):
    r"""Read multiple-choice data from a file.

    The file is JSON Lines with the keys `text`, `choices` (a list) and `label` (the index of the
    right choice, from 0), or SWAG's CSV with the columns `sent1`, `sent2` (the start of every
    ending), `ending0`, `ending1`, ... and `label`.

    Args:
        path: The file.
        format: `"csv"` or `"jsonl"`; by default from the file's extension.
        limit: Maximum number of rows to read.
        labeled: Whether to read labels. If False, the file may lack them.

    Returns:
        The `Choices`.

    Raises:
        ValueError: If the format is unknown, or a value is missing or has a wrong type. The
            message names the file and the line.
        OSError: If the file cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "endings.jsonl")
    ...     _ = file.write_text('{"text": "a", "choices": ["b", "c"], "label": 1}\n')
    ...     read(file).labels
    [1]
    """
    return next(read_in_parts(path, size=sys.maxsize, **options))


def read_table(table, *, limit=None):
    """Read `Choices` from a table with the columns text, choices and, if it exists, label.

    Or with the columns of SWAG, as in CSV files.
    """
    names = column_names(table)
    if "sent1" in names and "text" not in names:
        endings = _endings("the table", names)
        columns = read_columns(table, ["sent1", "sent2", *endings], ("label",), limit, "Choices")
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        rows = [_of_swag(row, endings) for row in rows]
        values = {name: [row[name] for row in rows] for name in ("text", "choices")}
        values["label"] = columns.get("label")
    else:
        values = read_columns(table, ("text", "choices"), ("label",), limit, "Choices")
    labels = values.get("label")
    if labels is not None:
        labels = [_number(label) for label in labels]
    return Choices(values["text"], values["choices"], labels, "the table")


def read_in_parts(path, *, format=None, limit=None, labeled=True, size=10_000):
    """Yield `Choices` of at most `size` rows; options as in `read`."""
    path = pathlib.Path(path)
    format = format or FORMATS.get(path.suffix.lower(), "jsonl")
    if format not in ("csv", "jsonl"):
        raise ValueError(
            f"{path}: format (--format) must be csv or jsonl; received {shown(format)}"
        )
    check_limit(limit)
    read_rows = _swag_rows if format == "csv" else json_rows
    is_empty = True
    with open_utf8(path, newline="" if format == "csv" else "\n") as file:
        rows = itertools.islice(read_rows(path, file), limit)
        while part := list(itertools.islice(rows, size)):
            is_empty = False
            locations = [location for location, _ in part]
            texts = [row.get("text") for _, row in part]
            choices = [row.get("choices") for _, row in part]
            labels = [_number(row.get("label")) for _, row in part] if labeled else None
            yield Choices(texts, choices, labels, str(path), locations)
    if is_empty:
        raise ValueError(f"{path} contains no rows")


def _number(label):
    """Return the number that a label is written as, or the label itself."""
    is_number = isinstance(label, str) and label.isdecimal() and len(label) < 10
    # pandas stores integers beside missing values as floats.
    is_whole = isinstance(label, float) and label.is_integer()
    return int(label) if is_number or is_whole else label


def _endings(where, names):
    """Return the names of the columns of SWAG's endings."""
    count = sum(str(name).startswith("ending") for name in names)
    endings = [f"ending{number}" for number in range(count)]
    if not endings or not {"sent1", "sent2", *endings} <= set(names):
        known = ", ".join(printable(str(name), 40) for name in names[:20])
        raise ValueError(
            f"{where}: must have the columns sent1, sent2, ending0, ending1, ... without a gap; "
            f"received {known}"
        )
    return endings


def _of_swag(row, endings):
    """Return text, choices and label of a row of SWAG, a dict. An empty cell is an empty text."""
    start = row["sent2"] or ""
    return {
        "text": row["sent1"] or "",
        "choices": [f"{start} {row[ending] or ''}" for ending in endings],
        "label": row.get("label"),
    }


def _swag_rows(path, file):
    """Yield the location and a dict of text, choices and label for each row."""
    allow_long_csv_fields()
    rows = csv.DictReader(file, strict=True)
    try:
        names = rows.fieldnames or []
        endings = _endings(path, names) if names else []
        for row in rows:
            location = f"line {rows.line_num}"  # the last line of the row: fields may span lines
            if None in row or None in row.values():
                raise ValueError(f"{path}, {location}: must have {len(names)} fields")
            yield location, _of_swag(row, endings)
    except csv.Error as error:
        raise ValueError(f"{path}, after line {rows.line_num}: {error}") from error
