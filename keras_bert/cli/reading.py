"""Reading of data files: columns, tasks, and notes about truncated or skipped rows."""

import os
import sys

from keras_bert import heads, provenance
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.terminal import print_line
from keras_bert.tasks import reader, registry

# Names of `Encoded.counts` -> text of the note.
_COUNTED = {
    "truncated": "texts truncated to the maximum length (--max-length of finetune)",
    "without_tokens": "texts that are empty or contain only invisible characters",
    "words_without_tokens": "words of only invisible characters, which the model does not see",
    "cut_words": "words truncated to the maximum length",
    "cut_questions": "questions truncated to fit into a window",
    "cut_answers": "answers longer than a window, not used for training",
    "invisible_answers": "answers of only invisible characters, not used for training",
}

# Attributes of the data that are counts -> text of the note.
_OF_DATA = {
    "ragged_rows": "rows skipped because their number of columns differs",
    "moved_answers": "answers not at the position in the file; the nearest occurrence is used",
    "lost_answers": "answers that do not occur in their context, not used for training",
}

# Defaults of the options for columns; the keys are also arguments of the readers.
COLUMNS = {
    "text": "text",
    "text_pair": None,
    "label": "label",
    "separator": ",",
    "header": True,
    "word": 1,
    "tag": -1,
    "negatives": (),
    "score_range": None,
    "skip_ragged": False,  # not an option: only for GLUE's QQP, which has broken rows
    "characters": False,
}


def columns_of(args, model=None):
    """Return the columns from the command line, or those that a model was trained with."""
    given = {name: getattr(args, name, None) for name in COLUMNS}
    given = {name: value for name, value in given.items() if value is not None}
    if model is not None and not given:
        given = _columns_of_training(model)
    columns = {name: given.get(name, default) for name, default in COLUMNS.items()}
    task = getattr(args, "task", None)
    if task is not None and "label" not in given:
        columns["label"] = registry.by_name(task).default_label
    return columns


def _columns_of_training(model):
    """Return the columns in the metrics of a saved model, checked: its author may be a stranger."""
    columns = provenance.read_metrics(model).get("columns")
    if columns is None:
        return {}
    advice = "Name the columns on the command line, such as --text and --label"
    if not isinstance(columns, dict):
        raise ValueError(
            f"{model}: the columns in its metrics must be an object; received "
            f"{shown(columns)}. {advice}"
        )
    for name, is_valid in _IS_COLUMN.items():
        if name in columns and not is_valid(columns[name]):
            raise ValueError(
                f"{model}: the column {name} in its metrics must not be {shown(columns[name])}. "
                f"{advice}"
            )
    return columns


def _is_text(value):
    return isinstance(value, str) and bool(value)


def _is_text_or_number(value):
    return _is_text(value) or type(value) is int and abs(value) < 2**31


def _is_flag(value):
    return isinstance(value, bool)


def _is_list_of_texts(value):
    return isinstance(value, list) and all(map(_is_text, value))


def _is_range_or_none(value):
    if value is None:
        return True
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and all(type(limit) in (int, float) for limit in value)


# What the metrics of a saved model may hold for each of `COLUMNS`.
_IS_COLUMN = {
    "text": _is_text_or_number,
    "text_pair": lambda value: value is None or _is_text_or_number(value),
    "label": lambda value: value is None or _is_text_or_number(value) or _is_list_of_texts(value),
    "separator": _is_text,
    "header": _is_flag,
    "word": _is_text_or_number,
    "tag": _is_text_or_number,
    "negatives": _is_list_of_texts,
    "score_range": _is_range_or_none,
    "skip_ragged": _is_flag,
    "characters": _is_flag,
}


def read(path, name, columns, format, limit=None):
    """Read a file as labeled data of a task or of a variant, such as "pair"."""
    task = registry.by_name(name)
    name = name.replace("-", "_")
    return task.read(name, path, _options(task, name, columns, format, limit))


def read_in_parts(path, name, columns, format):
    """Read a file without labels, which may be larger than the memory, in parts."""
    task = registry.by_name(name)
    return task.read_in_parts(name, path, _options(task, name, columns, format, None))


def read_retrieval(path, split):
    """Return `RetrievalData` if the path is a folder or JSON, else `None`."""
    is_retrieval = os.path.isdir(path) or os.path.splitext(path)[1].lower() == ".json"
    return reader.read(path, "retrieval", split=split) if is_retrieval else None


def _options(task, name, columns, format, limit):
    """Return the options for `Task.read` from the command line."""
    if name not in task.reads:
        raise ValueError(f"the task {name} reads no files{task.instead}")
    takes = task.reads[name]
    if format is not None and "format" not in takes:
        raise ValueError(f"the task {name} reads one format only. Remove --format {format}")
    if name == "pair" and not columns["text_pair"]:
        raise ValueError("the task pair needs --text-pair, the column of the second text")
    values = {**columns, "format": format, "limit": limit}
    values["characters"] = columns["characters"] or None
    label = columns["label"]
    if name == "multi_label" and isinstance(label, str) and "," in label:
        values["label"] = label.split(",")
    return {option: values[option] for option in takes}


def task_of(model):
    """Return the name of a model's task, or of the variant."""
    return registry.for_model(model).variant_of(heads.find_output(model))


def notes(examples, dev=None, metrics=()):
    """Yield notes about rows that were skipped or truncated."""
    counts = dict(metrics)
    same = dev is not None and dev.source == examples.source
    for part, prefix in ((examples, ""), (dev, "dev_")):
        where = "" if part is None else part.source + ", scored" * (same and bool(prefix))
        of_data = {} if part is None else {**part.counts(), "ragged_rows": part.ragged_rows}
        for name, note in _OF_DATA.items():
            if of_data.get(name):
                yield f"{note}: {of_data[name]} ({where})"
        for name, note in _COUNTED.items():
            if count := counts.get(prefix + name):
                yield f"{note}: {count} ({where})"


def print_counts(counts):
    """Print notes on stderr, since predictions may be on stdout."""
    for name, note in _COUNTED.items():
        if counts[name]:
            print_line(f"{note}: {counts[name]}", file=sys.stderr)
