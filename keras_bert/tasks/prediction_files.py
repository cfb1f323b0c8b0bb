"""Files of answers: TSV, CSV, JSON Lines, or SQuAD's file of predictions."""

import itertools
import json
import pathlib

from keras_bert.data import text_files
from keras_bert.data.table_rows import csv_row, tsv_row
from keras_bert.runtime.arguments import TEXT_ROLES
from keras_bert.runtime.escaping import shown

# Keys of an answer whose values are labels. Labels that are floats are written in full.
_LABELS = ("label", "labels", "tag", "tags")
FORMATS = {**text_files.FORMATS, ".json": "json"}


def format_of(path, task):
    """Return the format of a file from its extension: `"jsonl"`, `"csv"`, `"json"` or else `"tsv"`.

    `"json"` is one object, such as SQuAD's predictions, for a `Task` with `has_predictions_file`.
    """
    format = FORMATS.get(pathlib.Path(path or "").suffix.lower(), "tsv")
    if format == "json" and not task.has_predictions_file:
        raise ValueError(f"{path}: .json files are only for question answering; use .jsonl or .csv")
    return format


def lines(format, task, output, answered, *, header=True, probabilities=False):
    """Yield the lines of a file of answers, each one as soon as its answer is available.

    `task` and `output` are the `Task` and the `layers.TaskOutput` of the model. `answered` yields
    (examples, answers). The columns of CSV and TSV are the keys of JSON Lines,
    and in place of `scores` a column per label. Numbers have four decimals. A task can have forms
    of its own for TSV and CSV.
    `"json"` is a single string.
    """
    if format == "json":
        predictions: dict[str, str] = {}
        for examples, answers in answered:
            predictions |= task.predictions(examples, answers)
        yield json.dumps(predictions, ensure_ascii=False)
        return
    separator = _separator(output.labels)
    row = csv_row if format == "csv" else tsv_row
    columns = None
    for examples, answers in answered:
        records = task.rows(output, examples, answers, probabilities)
        own_lines = task.own_lines(format, records)
        if own_lines is not None:
            yield from own_lines
            continue
        if format == "csv":
            records = task.table_rows(records, examples)
        rows = itertools.repeat({}) if examples.rows is None else examples.rows
        for record, input_row in zip(records, rows, strict=False):
            if input_row:  # it has the texts, under the names of the input
                record = {key: record[key] for key in record if key not in TEXT_ROLES}
            if format == "jsonl":
                answer = {_name(key, input_row): value for key, value in _rounded(record).items()}
                yield json.dumps(answer | input_row, ensure_ascii=False)
                continue
            names, values = zip(*_columns(record, separator), strict=True)
            if columns is None:
                columns = list(input_row)
                if header:
                    yield row([*(_name(name, input_row) for name in names), *columns])
            yield row([*values, *_values(examples, columns, input_row)])


def _name(key, input_row):
    """Return the name of a column of an answer beside those of the row in the input."""
    return f"predicted_{key}" if key in input_row else key


def _values(examples, columns, input_row):
    """Return the columns of a row in the input as texts."""
    other = next((name for name in input_row if name not in columns), None)
    if other is not None:
        raise ValueError(
            f"{examples.source}: a row has the key {shown(other)}, which the first row does not "
            "have. Write a .jsonl file"
        )
    values = (input_row.get(name, "") for name in columns)
    return [
        item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in values
    ]


def _separator(labels):
    """Return the first of `,;|/+` that occurs in no label, or the last one."""
    return next((sign for sign in ",;|/" if not any(sign in name for name in labels or ())), "+")


def table_lines(path, names, rows):
    """Yield the lines of a table of strings, in the format of the file's extension."""
    format = text_files.FORMATS.get(pathlib.Path(path).suffix.lower(), "tsv")
    if format == "jsonl":
        for row in rows:
            yield json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False)
        return
    line = csv_row if format == "csv" else tsv_row
    yield line(names)
    for row in rows:
        yield line(row)


def _rounded(record):
    """Return a record with four decimals of each number that is no label."""
    rounded = json.loads(json.dumps(record), parse_float=lambda number: round(float(number), 4))
    labels = {key: record[key] for key in _LABELS if key in record}
    return rounded | labels


def _columns(record, separator):
    """Yield the columns of a record: pairs of name and text."""
    for name, value in record.items():
        if name == "scores":  # {label: probability}, or a list for multiple choice
            scores = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((str(label), f"{score:.4f}") for label, score in scores)
        elif isinstance(value, list):
            yield name, separator.join(map(str, value))
        elif isinstance(value, float) and name not in _LABELS:
            yield name, f"{value:.4f}"
        else:
            yield name, str(value)
