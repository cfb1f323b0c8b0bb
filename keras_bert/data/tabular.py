"""Labeled texts from TSV, CSV and JSON Lines files, and from the folders of GLUE tasks."""

import collections
import csv
import dataclasses
import json
import pathlib
import sys
import typing

from keras_bert.data.examples import Examples, check_score
from keras_bert.data.label_columns import flagged_set, labeled_rows, split_sets, warn_of_label_sets
from keras_bert.data.text_files import (
    FORMATS,
    allow_long_csv_fields,
    check_limit,
    json_rows,
    numbered_lines,
    open_utf8,
    warn_of_text_pair,
)
from keras_bert.runtime.escaping import check_name, printable
from keras_bert.runtime.label_types import typed_texts

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
        label: Column of the label; `None` reads no labels. For label sets also a list of columns
            of 0 and 1, whose names are the labels. In JSON, `"labels.label"` is a key within an
            object.
        kind: `"label"`; `"score"`, a number; or `"label_set"`, any number of labels: a string
            with `separator` between them, or a list in JSON Lines.
        separator: The string between the labels of a set.
        format: `"tsv"`, `"csv"` or `"jsonl"`, which also reads one list of objects; by default
            from the file's extension.
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
    examples = next(read_in_parts(path, size=sys.maxsize, **options))
    label = options.get("label")
    if examples.label_sets is not None and not isinstance(label, list):
        separator = options.get("separator", ",")
        warn_of_label_sets(path, label, separator, examples.label_sets)
    return examples


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
    keep_rows=False,
    size=10_000,
):
    """Yield `Examples` of at most `size` rows; options as in `read`.

    With `keep_rows`, the examples have all columns of the file as their `rows`.
    """
    path = pathlib.Path(path)
    format = format or FORMATS.get(path.suffix.lower())
    columns = _columns(text, text_pair, label, header)
    _check_options(path, columns, label, kind, separator, format)
    check_limit(limit)
    typed = format != "jsonl"
    count = 0
    part = _Part()
    with open_utf8(path, newline="" if format == "csv" else "\n") as file:
        if format == "jsonl":
            rows = json_rows(path, file)
        else:
            rows = _table_rows(path, file, columns, format, header)
        for location, row in rows:
            if isinstance(row, ValueError):
                if not skip_ragged:
                    raise row
                part.ragged_rows += 1
                continue
            part.values.append(_values(f"{path}, {location}", row, columns, label, kind))
            part.rows.append(row if keep_rows else None)
            part.locations.append(location)
            count += 1
            if limit is not None and count >= limit:
                break
            if count % size == 0:
                yield part.examples(path, kind, typed, label, separator)
                part = _Part()
    if not count:
        raise ValueError(f"{path} contains no rows")
    if part.values:
        yield part.examples(path, kind, typed, label, separator)


def _values(where, row, columns, label, kind):
    """Return the values of a row by role; `where` is its location, for errors."""
    values = {role: _value(where, row, role, name) for role, name in columns.items()}
    if label is not None:
        values["label"] = _label(where, values, label, kind)
    return values


def _columns(text, text_pair, label, header):
    """Return {role: name of a column}, for example {"text": "comment", "label": "class"}."""
    columns = {"text": text, "text_pair": text_pair}
    for role, column in _label_columns(label):
        columns[role] = column
    columns = {role: column for role, column in columns.items() if column is not None}
    if header:
        return columns
    return {role: str(number) for role, number in columns.items()}


def _label_columns(label):
    """Return pairs of a role and a column: a single pair, or a pair for each column of a list."""
    if not isinstance(label, list):
        return [("label", label)]
    return [(f"label {index}", column) for index, column in enumerate(label)]


@dataclasses.dataclass
class _Part:
    """Rows of a file: the values of each row by role, its location and all of its columns."""

    values: list[dict] = dataclasses.field(default_factory=list)
    locations: list[str] = dataclasses.field(default_factory=list)
    rows: list[dict | None] = dataclasses.field(default_factory=list)
    ragged_rows: int = 0

    def examples(self, path, kind, typed, label, separator):
        """Return the `Examples`; with `typed`, labels get the type that their text shows."""
        columns = {role: [row[role] for row in self.values] for role in self.values[0]}
        columns |= {"location": self.locations, "row": self.rows}
        labels = columns.get("label")
        if kind == "label_set" and labels is not None:
            columns["label"] = labels = split_sets(labels, separator)
        if kind in ("label", "label_set") and labels is not None:
            kept = labeled_rows(path, labels)
            for role, column in columns.items():
                columns[role] = [column[index] for index in kept]
            labels = columns["label"]
        if kind == "label" and labels is not None and typed:
            labels = typed_texts(labels)
        if kind == "label_set" and labels is not None:
            for location, label_set in zip(columns["location"], labels, strict=True):
                for name in label_set:
                    check_name(str(name), f"{path}, {location}: a label")
        labels_of_kind: dict[str, typing.Any] = {f"{kind}s": labels}
        return Examples(
            texts=columns["text"],
            text_pairs=columns.get("text_pair"),
            **labels_of_kind,
            known_labels=label if isinstance(label, list) else None,
            source=str(path),
            ragged_rows=self.ragged_rows,
            locations=columns["location"],
            rows=columns["row"] if None not in columns["row"] else None,
        )


def _check_options(path, columns, label, kind, separator, format):
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; received {kind!r:.80}")
    if isinstance(label, list) and kind != "label_set":
        raise ValueError(
            f"{path}: label must be one column; received {label!r:.80}. Several columns are for "
            "the task multi_label"
        )
    if format not in FORMATS.values():
        received = format or path.suffix or "a file without an extension"
        advice = "give `format` (--format)"
        if received in (".conll", ".conllu", "conll", "conllu"):
            advice = "for tagged words, give task='tagging' (--task tagging)"
        raise ValueError(
            f"{path}: the format must be one of tsv, csv, jsonl; received {received!r:.80}; "
            f"{advice}"
        )
    if not separator:
        raise ValueError("separator (--separator) must not be empty")
    names = list(columns.values())
    if len(set(names)) < len(names):
        raise ValueError(
            f"{path}: the columns of the text, its pair and its label must differ; received "
            f"{printable(', '.join(names), 200)}"
        )


def _value(where, row, role, name):
    """Return the value of the column `name` of a row, checked for its role: a text or a label."""
    value = row.get(name)
    if name not in row:
        # A name such as labels.label stands for a value within an object.
        value = row
        for key in name.split("."):
            if not isinstance(value, dict) or key not in value:
                raise ValueError(
                    f"{where} has no key {name!r:.80}; its keys are "
                    f"{printable(', '.join(row), 200)}"
                )
            value = value[key]
    is_text = role in ("text", "text_pair")
    types = (str,) if is_text else (str, int, float, list)
    if not isinstance(value, types):
        raise ValueError(
            f"{where}: {name!r:.80} must be a string; received {json.dumps(value)[:80]}"
        )
    return value


def _label(where, values, label, kind):
    """Return the label of a row in the form of its kind, checked."""
    if isinstance(label, list):
        return flagged_set(where, label, [values.pop(role) for role, _ in _label_columns(label)])
    value = values["label"]
    if kind == "score":
        return check_score(f"{where}: scores", value)
    if kind == "label_set":
        return value if isinstance(value, list) else str(value)
    if isinstance(value, list):
        raise ValueError(f"{where}: a label must be a string; received a list")
    if isinstance(value, str):
        value = value.strip()
        if not value:
            raise ValueError(f"{where}: the label is empty")
        check_name(value, f"{where}: a label")
    return value


def _table_rows(path, file, columns, format, header):
    """Yield the location and all columns of each row of a TSV or CSV file, a dict.

    In place of a row with a wrong number of columns, a `ValueError` is yielded.
    """
    if format == "csv":
        allow_long_csv_fields()
        rows = csv.reader(file, strict=True)  # strict: an unclosed quote is an error
    else:
        rows = (line.split("\t") for _, line in numbered_lines(path, file))
    names = None
    number = 0
    least = 0  # columns of a row
    is_plain = False
    try:
        for number, row in enumerate(rows, 1):
            if names is None and header and _is_plain(path, columns, row):
                is_plain = True
                names = ["text"]
                least = 1
            if is_plain:
                row = ["\t".join(row)]
            if names is None:
                names = row if header else [str(index) for index in range(1, len(row) + 1)]
                _check_columns(path, columns, names, header)
                names = _distinct(names)
                least = len(names) if header else max(int(name) for name in columns.values())
                if header:
                    warn_of_text_pair(row, columns.get("text_pair"))
                    continue
            if row in ([], [""]):
                if len(names) > 1:
                    continue  # a blank line, as at the end of many files
                row = [""]  # in a file of texts only, a blank line is an empty text
            # Without a header, rows may have any number of columns after those that are read.
            if len(row) < least or header and len(row) != least:
                wanted = f"{least}" if header else f"at least {least}"
                error = ValueError(
                    f"{path}, row {number}: must have {wanted} columns; received {len(row)}"
                )
                yield f"row {number}", error
                continue
            yield f"row {number}", dict(zip(names, row, strict=False))
    except csv.Error as error:
        raise ValueError(f"{path}, after row {number}: {error}") from error


def _distinct(names):
    """Add a number to repeated names of columns. `_check_columns` has refused to read these."""
    seen: collections.Counter[str] = collections.Counter()
    distinct = []
    for name in names:
        distinct.append(f"{name}.{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return distinct


def _is_plain(path, columns, first_row):
    """Return True if a .txt file has one text per line instead of columns."""
    if path.suffix.lower() != ".txt" or columns != {"text": "text"}:
        return False
    return len(first_row) == 1 and first_row != ["text"]


def _check_columns(path, columns, names, header):
    """Raise an error for a column that is not in the file, or occurs twice."""
    for role, column in columns.items():
        if not header and (not column.isdecimal() or column not in names):
            raise ValueError(
                f"{path}: without a header a column is a number from 1 to {len(names)}; "
                f"received {column!r:.80}"
            )
        if names.count(column) != 1:
            shown = ", ".join(printable(name, 40) for name in names[:20]) or "without names"
            how_many = "two columns" if column in names else "no column"
            others = [mark for mark in ";|,\t" if len(names) == 1 and mark in names[0]]
            if others:
                raise ValueError(
                    f"{path} has {how_many} {column!r:.80}; its only column is {shown}. Its "
                    f"columns seem to be separated by {others[0]!r:.80}; write the file as CSV or "
                    "TSV, or give a DataFrame"
                )
            argument = role.partition(" ")[0]  # "label 2" is a column of the argument `label`
            option = argument.replace("_", "-")
            advice = f"give the name of the column as `{argument}` (--{option})"
            if role == "label":
                advice += ", or label=None for data without labels"
            raise ValueError(
                f"{path} has {how_many} {column!r:.80}; its columns are {shown}; {advice}"
            )


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
