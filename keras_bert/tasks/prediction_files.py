"""Answers as the lines of a file: TSV, CSV, JSON Lines, or SQuAD's file of predictions."""

import csv
import io
import json
import pathlib

from keras_bert import heads
from keras_bert.tasks import classification, question_answering, registry

FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".json": "json"}


def format_of(path, model):
    """The format that a file's ending asks for.

    Args:
        path: the file, or `None`.
        model: whose answers they are.

    Returns:
        `"jsonl"`, `"csv"`, `"json"` or, for any other ending, `"tsv"`.

    Raises:
        ValueError: `.json` for another task than questions.

    Example:

    >>> format_of("answers.csv", None), format_of("answers", None)
    ('csv', 'tsv')
    """
    format = FORMATS.get(pathlib.Path(path or "").suffix.lower(), "tsv")
    if format == "json" and registry.for_model(model) is not question_answering:
        raise ValueError(
            f"{path}: .json is SQuAD's file of predictions, for qa alone; name it .jsonl for an "
            "object a line, or .csv or .tsv"
        )
    return format


def lines(format, model, answered, header=True):
    """Makes the lines of a file of answers.

    Numbers have four decimals in every format. In CSV the columns are those of JSON Lines, a list
    of labels in one field with `texts.separator` between them, a dict as a column for each key.

    Args:
        format: from `format_of`.
        model: what gave the answers.
        answered: an iterator of (examples, answers, asked), in order; `asked` is a dict for each
            example of what is to be shown with its answer, or `None`.
        header: whether a TSV file begins with the names of its columns; CSV always does.

    Yields:
        Strings without a line end, as soon as their answers are there; the one of `"json"` last.
    """
    task = registry.for_model(model)
    if format == "json":
        predictions: dict[str, str] = {}
        for examples, answers, _ in answered:
            predictions |= task.predictions(examples, answers)
        yield json.dumps(predictions, ensure_ascii=False)
        return
    if format == "tsv":
        yield from _tsv(task, model, answered, header)
        return
    begun, separator = False, classification.separator(heads.find_output(model).labels)
    for examples, answers, asked in answered:
        for index, record in enumerate(task.records(model, examples, answers)):
            if asked is not None:
                record |= asked[index]
            if format == "jsonl":
                yield json.dumps(_rounded(record), ensure_ascii=False)
                continue
            if not begun:
                yield _csv_row(_names(record))
            begun = True
            yield _csv_row(_fields(record, separator))


def _tsv(task, model, answered, header):
    names = task.header(model) if header else None
    for examples, answers, asked in answered:
        if names is not None:
            yield "\t".join([names, *(asked[0] if asked is not None else ())])
            names = None
        for index, line in enumerate(task.lines(model, examples, answers)):
            if asked is not None:
                # One line, one column each, whatever white space the text has.
                line = "\t".join([line, *(" ".join(t.split()) for t in asked[index].values())])
            yield line


def _rounded(value):
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value


def _names(record):
    for key, value in record.items():
        yield from value if isinstance(value, dict) else [key]


def _fields(record, separator):
    for value in record.values():
        for item in value.values() if isinstance(value, dict) else [value]:
            if isinstance(item, float):
                yield f"{item:.4f}"
            else:
                yield separator.join(item) if isinstance(item, list) else item


def _csv_row(fields):
    row = io.StringIO()
    # A field is quoted for what is in the line end too, so the usual one is given and taken off.
    csv.writer(row, lineterminator="\r\n").writerow(list(fields))
    return row.getvalue().removesuffix("\r\n")
