"""Labeled texts from TSV, CSV and JSON Lines files, and from the folders of GLUE tasks."""

import csv
import dataclasses
import json
import pathlib
import sys

from keras_bert.data.examples import Examples, check_score
from keras_bert.data.text_files import (
    FORMATS,
    allow_long_csv_fields,
    check_limit,
    json_lines,
    numbered_lines,
    open_utf8,
    warn_of_text_pair,
)
from keras_bert.runtime.escaping import check_name, printable

KINDS = ("label", "label_set", "score")


def read(path, **options):
    r"""Read examples from a file.

    TSV fields end at the next tab, and quotes have no meaning, as in GLUE's files. CSV fields may
    be quoted. Files are UTF-8. A .txt file has one text per line if it is read without labels
    and its first line is not `text` and has no tab.

    Args:
        path: The file.
        text: Column of the text: a name, or a number from 1 if the file has no header.
        text_pair: Column of the second text, for tasks on pairs.
        label: Column of the label; `None` reads no labels.
        kind: `"label"`; `"score"`, a number; or `"label_set"`, any number of labels: a string
            with `separator` between them, or a list in JSON Lines.
        separator: The string between the labels of a set.
        format: `"tsv"`, `"csv"` or `"jsonl"`; by default from the file's extension.
        header: Whether the first row of a TSV or CSV file names the columns.
        skip_ragged: Skip rows that have another number of columns than the first row, and count
            them in `ragged_rows`. By default, such a row is an error.
        limit: Maximum number of rows to read.

    Returns:
        The `Examples`.

    Raises:
        ValueError: If the format is unknown, a column or a value is missing or has the wrong type,
            or the file holds no rows. The message names the file and the row.
        OSError: If the file cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "mail.tsv")
    ...     _ = file.write_text("label\ttext\nspam\tWin now\nham\tSee you at six\n")
    ...     read(file, text="text", label="label").labels
    ['spam', 'ham']
    """
    return next(read_in_parts(path, size=sys.maxsize, **options))


def read_in_parts(
    path,
    *,
    text,
    text_pair=None,
    label=None,
    kind="label",
    separator=",",
    format=None,
    header=True,
    skip_ragged=False,
    limit=None,
    size=10_000,
):
    """Yield `Examples` of at most `size` rows; options as in `read`."""
    path = pathlib.Path(path)
    format = format or FORMATS.get(path.suffix.lower())
    columns = {"text": text, "text_pair": text_pair, "label": label}
    columns = {role: column for role, column in columns.items() if column is not None}
    _check_options(path, columns, kind, separator, format)
    check_limit(limit)
    count, part = 0, _Part()
    with open_utf8(path, newline="" if format == "csv" else "\n") as file:
        if format == "jsonl":
            rows = _json_rows(path, file, columns)
        else:
            rows = _table_rows(path, file, columns, format, header)
        for location, row in rows:
            if isinstance(row, ValueError):
                if not skip_ragged:
                    raise row
                part.ragged_rows += 1
                continue
            if label is not None:
                row["label"] = _label(f"{path}, {location}", row["label"], kind, separator)
            part.rows.append(row)
            part.locations.append(location)
            count += 1
            if limit is not None and count >= limit:
                break
            if count % size == 0:
                yield part.examples(path, columns, kind)
                part = _Part()
    if not count:
        raise ValueError(f"{path} contains no rows")
    if part.rows:
        yield part.examples(path, columns, kind)


@dataclasses.dataclass
class _Part:
    rows: list[dict] = dataclasses.field(default_factory=list)
    locations: list[str] = dataclasses.field(default_factory=list)
    ragged_rows: int = 0

    def examples(self, path, columns, kind):
        values = {role: [row[role] for row in self.rows] for role in columns}
        return Examples(
            texts=values["text"],
            text_pairs=values.get("text_pair"),
            **{f"{kind}s": values.get("label")},
            source=str(path),
            ragged_rows=self.ragged_rows,
            locations=self.locations,
        )


def _check_options(path, columns, kind, separator, format):
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; received {kind!r}")
    if format not in FORMATS.values():
        received = format or path.suffix or "a file without an extension"
        advice = "give `format` (--format)"
        if received in (".conll", ".conllu", "conll", "conllu"):
            advice = "for tagged words, give task='tagging' (--task tagging)"
        raise ValueError(
            f"{path}: the format must be one of tsv, csv, jsonl; received {received!r}; {advice}"
        )
    if not separator:
        raise ValueError("separator (--separator) must not be empty")
    names = list(columns.values())
    if len(set(names)) < len(names):
        raise ValueError(
            f"{path}: the columns of the text, its pair and its label must differ; received "
            f"{', '.join(names)}"
        )


def _label(location, value, kind, separator):
    """Return a label of the given kind, checked."""
    if kind == "score":
        return check_score(f"{location}: scores", value)
    if kind == "label_set":
        labels = value.split(separator) if isinstance(value, str) else value
        labels = tuple(label.strip() for label in labels if label.strip())
    elif isinstance(value, list):
        raise ValueError(f"{location}: a label must be a string; received a list")
    else:
        value = value.strip()
        if not value:
            raise ValueError(f"{location}: the label is empty")
        labels = (value,)
    for label in labels:
        check_name(label, f"{location}: a label")
    return labels if kind == "label_set" else value


def _table_rows(path, file, columns, format, header):
    """Yield the location and the columns of each row of a TSV or CSV file.

    The columns are a dict by role, or a `ValueError` if the row has a wrong number of columns.
    """
    if format == "csv":
        allow_long_csv_fields()
        rows = csv.reader(file, strict=True)  # strict: an unclosed quote is an error
    else:
        rows = (line.split("\t") for _, line in numbered_lines(path, file))
    indices, number, is_plain = None, 0, False
    try:
        for number, row in enumerate(rows, 1):
            if indices is None and header and _is_plain(path, columns, row):
                indices, width, is_plain = {"text": 0}, 1, True
            if is_plain:
                row = ["\t".join(row)]
            if indices is None:
                width = len(row)
                indices = _column_indices(path, columns, row if header else None, width)
                if header:
                    warn_of_text_pair(row, columns.get("text_pair"))
                    continue
            if row in ([], [""]):
                if width > 1:
                    continue  # a blank line, as at the end of many files
                row = [""]  # in a file of texts only, a blank line is an empty text
            # Without a header, rows may have any number of columns after those that are read.
            if max(indices.values()) >= len(row) or header and len(row) != width:
                wanted = f"{width}" if header else f"at least {max(indices.values()) + 1}"
                yield (
                    f"row {number}",
                    ValueError(
                        f"{path}, row {number}: must have {wanted} columns; received {len(row)}"
                    ),
                )
                continue
            yield f"row {number}", {role: row[index] for role, index in indices.items()}
    except csv.Error as error:
        raise ValueError(f"{path}, after row {number}: {error}") from error


def _is_plain(path, columns, first_row):
    """Return True if a .txt file has one text per line instead of columns."""
    return (
        path.suffix.lower() == ".txt" and columns == {"text": "text"} and len(first_row) == 1
        and first_row != ["text"]
    )  # fmt: skip


def _column_indices(path, columns, names, width):
    """Return the index of the column of each role, a dict."""
    if names is None:
        for column in columns.values():
            if not str(column).isdecimal() or not 1 <= int(column) <= width:
                raise ValueError(
                    f"{path}: without a header a column is a number from 1 to {width}; "
                    f"received {column!r}"
                )
        return {role: int(column) - 1 for role, column in columns.items()}
    for role, column in columns.items():
        if names.count(column) != 1:
            found = ", ".join(printable(name, 40) for name in names[:20]) or "without names"
            how_many = "two columns" if column in names else "no column"
            others = [mark for mark in ";|,\t" if len(names) == 1 and mark in names[0]]
            if others:
                raise ValueError(
                    f"{path} has {how_many} {column!r}; its only column is {found}. Its columns "
                    f"seem to be separated by {others[0]!r}; write the file as CSV or TSV, or give "
                    "a DataFrame"
                )
            raise ValueError(
                f"{path} has {how_many} {column!r}; its columns are {found}; give the name of "
                f"the column as `{role}` (--{role.replace('_', '-')})"
                + (", or label=None for data without labels" if role == "label" else "")
            )
    return {role: names.index(column) for role, column in columns.items()}


def _json_rows(path, file, columns):
    """Yield the location and the values of each line of a JSON Lines file, a dict by role."""
    for number, row in json_lines(path, file):
        values = {}
        for role, column in columns.items():
            if column not in row:
                raise ValueError(f"{path}, line {number} has no key {column!r}")
            value = row[column]
            is_labels = False
            if role == "label" and isinstance(value, list):
                value = [_number_as_text(item) for item in value]
                is_labels = all(isinstance(item, str) for item in value)
            elif role == "label":
                value = _number_as_text(value)
            if not isinstance(value, str) and not is_labels:
                raise ValueError(
                    f"{path}, line {number}: {column!r} must be a string; received "
                    f"{json.dumps(value)[:80]}"
                )
            values[role] = value
        yield f"line {number}", values


def _number_as_text(value):
    return json.dumps(value) if isinstance(value, (int, float)) else value


# The options of `read` for the files of each GLUE task.
GLUE: dict[str, dict] = {
    "CoLA": {"text": "4", "label": "2", "header": False},
    "SST-2": {"text": "sentence", "label": "label"},
    "MRPC": {"text": "#1 String", "text_pair": "#2 String", "label": "Quality"},
    "STS-B": {"text": "sentence1", "text_pair": "sentence2", "label": "score", "kind": "score"},
    "QQP": {
        "text": "question1",
        "text_pair": "question2",
        "label": "is_duplicate",
        "skip_ragged": True,  # some questions hold tabs and line ends
    },  # fmt: skip
    "MNLI": {"text": "sentence1", "text_pair": "sentence2", "label": "gold_label"},
    "QNLI": {"text": "question", "text_pair": "sentence", "label": "label"},
    "RTE": {"text": "sentence1", "text_pair": "sentence2", "label": "label"},
    "WNLI": {"text": "sentence1", "text_pair": "sentence2", "label": "label"},
}


def read_glue(folder, split="train", *, task=None, limit=None):
    """Read one split of a GLUE task from its unpacked archive, such as `glue/RTE`.

    `split` is "train" or "dev"; MNLI has "dev_matched", which "dev" stands for, and
    "dev_mismatched". By default, the name of the folder is the task. Source: Wang et al. (2018).
    """
    folder = pathlib.Path(folder)
    task = find_glue(task or folder)
    if task == "MNLI" and split == "dev":
        split = "dev_matched"
    return read(folder / f"{split}.tsv", **GLUE[task], limit=limit)


def find_glue(folder):
    """Return the key of `GLUE` that matches the name of a folder, in any case."""
    names = {name.lower(): name for name in GLUE}
    task = names.get(pathlib.Path(folder).name.lower())
    if task is None:
        raise ValueError(f"{folder}: must be one of GLUE's tasks, {', '.join(GLUE)}")
    return task
