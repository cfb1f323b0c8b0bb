"""Files of answers: TSV, CSV, JSON Lines, or SQuAD's file of predictions."""

import csv
import io
import json
import pathlib

from keras_bert import heads
from keras_bert.tasks import classification, question_answering, registry

FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".json": "json"}


def format_of(path, model):
    """Return the format of a file of answers, from its extension.

    `"jsonl"`, `"csv"`, `"json"` (only question answering) or, for any other extension, `"tsv"`.
    """
    format = FORMATS.get(pathlib.Path(path or "").suffix.lower(), "tsv")
    if format == "json" and registry.for_model(model) is not question_answering:
        raise ValueError(
            f"{path}: .json is SQuAD's file of predictions, only for question answering; use "
            ".jsonl for one object per line, or .csv or .tsv"
        )
    return format


def lines(format, model, answered, header=True):
    """Yield the lines of a file of answers, each one as soon as its answer is available.

    `answered` yields (examples, answers, inputs); `inputs` is a list of dicts, the texts to
    write beside each answer, or `None`. Numbers have four decimals in all formats. The columns
    of CSV are the keys of JSON Lines. In CSV, the labels of a set are joined by
    `classification.separator`, and a dict has a column per key. `"json"` is a single string. A
    TSV file has column names only with `header`.
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
    has_header, separator = False, classification.separator(heads.find_output(model).labels)
    for examples, answers, inputs in answered:
        for index, record in enumerate(task.records(model, examples, answers)):
            if inputs is not None:
                record |= inputs[index]
            if format == "jsonl":
                yield json.dumps(_rounded(record), ensure_ascii=False)
                continue
            if not has_header:
                yield _csv_row(_names(record))
                has_header = True
            yield _csv_row(_fields(record, separator))


def _tsv(task, model, answered, header):
    names = task.header(model) if header else None
    for examples, answers, inputs in answered:
        if names is not None:
            yield "\t".join([names, *(inputs[0] if inputs is not None else ())])
            names = None
        for index, line in enumerate(task.lines(model, examples, answers)):
            if inputs is not None:
                # A text must not hold a tab or a line end.
                line = "\t".join([line, *(" ".join(t.split()) for t in inputs[index].values())])
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
    # Fields that hold a character of the line terminator are quoted, so it must be "\r\n" here.
    csv.writer(row, lineterminator="\r\n").writerow(list(fields))
    return row.getvalue().removesuffix("\r\n")
