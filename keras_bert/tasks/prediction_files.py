"""Files of answers: TSV, CSV, JSON Lines, or SQuAD's file of predictions."""

import csv
import io
import json
import pathlib
import re

from keras_bert import heads
from keras_bert.data import tabular
from keras_bert.tasks import classification, question_answering, registry, tagging

FORMATS = {**tabular.FORMATS, ".json": "json"}
# The line ends of `str.splitlines`.
_TABS_AND_LINE_ENDS = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


def format_of(path, model):
    """Return the format of a file from its extension: `"jsonl"`, `"csv"`, `"json"` or else `"tsv"`.

    `"json"` is the format of SQuAD's predictions, only for question answering.
    """
    format = FORMATS.get(pathlib.Path(path or "").suffix.lower(), "tsv")
    if format == "json" and registry.for_model(model) is not question_answering:
        raise ValueError(
            f"{path}: .json is the format of SQuAD predictions, only for question answering; use "
            ".jsonl for one object per line, or .csv or .tsv"
        )
    return format


def lines(format, model, answered, *, header=True, probabilities=False):
    """Yield the lines of a file of answers, each one as soon as its answer is available.

    `answered` yields (examples, answers). The columns of CSV and TSV are the keys of JSON Lines,
    and in place of `scores` a column per label. Numbers have four decimals. In TSV, taggers write
    CoNLL columns without a header instead. `"json"` is a single string.
    """
    task = registry.for_model(model)
    if format == "json":
        predictions: dict[str, str] = {}
        for examples, answers in answered:
            predictions |= task.predictions(examples, answers)
        yield json.dumps(predictions, ensure_ascii=False)
        return
    options = {"probabilities": True} if probabilities else {}
    separator = classification.separator(heads.find_output(model).labels)
    row = _csv_row if format == "csv" else _tsv_row
    for examples, answers in answered:
        if format == "tsv" and task is tagging:
            yield from task.lines(model, examples, answers)
            continue
        for record in task.records(model, examples, answers, **options):
            if format == "jsonl":
                yield json.dumps(_rounded(record), ensure_ascii=False)
                continue
            names, values = zip(*_columns(record, separator), strict=True)
            if header:
                yield row(names)
                header = False
            yield row(f"{value:.4f}" if isinstance(value, float) else value for value in values)


def table_lines(path, names, rows):
    """Yield the lines of a table of strings, in the format of the file's extension."""
    format = tabular.FORMATS.get(pathlib.Path(path).suffix.lower(), "tsv")
    if format == "jsonl":
        for row in rows:
            yield json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False)
        return
    line = _csv_row if format == "csv" else _tsv_row
    yield line(names)
    for row in rows:
        yield line(row)


def _rounded(value):
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _columns(record, separator):
    """Yield the columns of a record: pairs of name and value."""
    for name, value in record.items():
        if name == "scores":  # {label: probability}, or a list for multiple choice
            yield from value.items() if isinstance(value, dict) else enumerate(value)
        else:
            yield name, separator.join(value) if isinstance(value, list) else value


def _csv_row(fields):
    row = io.StringIO()
    # csv quotes fields that hold a character of the line terminator, so use "\r\n".
    csv.writer(row, lineterminator="\r\n").writerow(list(fields))
    return row.getvalue().removesuffix("\r\n")


def _tsv_row(fields):
    return "\t".join(_TABS_AND_LINE_ENDS.sub(" ", str(field)) for field in fields)
