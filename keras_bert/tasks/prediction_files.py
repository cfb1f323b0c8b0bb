"""Files of answers: TSV, CSV, JSON Lines, or SQuAD's file of predictions."""

import csv
import io
import json
import pathlib

from keras_bert import heads
from keras_bert.data import tabular
from keras_bert.tasks import classification, question_answering, registry

FORMATS = {**tabular.FORMATS, ".json": "json"}


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


def lines(format, model, answered, header=True):
    """Yield the lines of a file of answers, each one as soon as its answer is available.

    `answered` yields (examples, answers, inputs). `inputs` is `None` or a dict per answer: texts to
    write beside the answer. Only TSV depends on `header`. `"json"` is a single string.
    Numbers have four decimals. The columns of CSV are the keys of JSON Lines.
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
                # Replace tabs and line ends, which separate fields and lines.
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
    # csv quotes fields that hold a character of the line terminator, so use "\r\n".
    csv.writer(row, lineterminator="\r\n").writerow(list(fields))
    return row.getvalue().removesuffix("\r\n")
