"""Reading of data files: columns, tasks, and notes about truncated or skipped rows."""

import os
import sys

from keras_bert import heads, provenance
from keras_bert.data import tabular
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.terminal import print_line
from keras_bert.tasks import reader, registry
from keras_bert.tasks.embedding import retrieval
from keras_bert.tasks.multiple_choice import data as swag
from keras_bert.tasks.question_answering import data as squad
from keras_bert.tasks.tagging import data as conll

# Task -> how `tabular.read` reads labels.
_KINDS = {"classification": "label", "pair": "label", "multi-label": "label_set"}
_KINDS |= {"regression": "score", "embedding": "score"}
_HEAD_TASKS = {
    "tagging": "tagging",
    "question_answering": "question-answering",
    "multiple_choice": "multiple-choice",
    "regression": "regression",
    "embedding": "embedding",
}

# Names of `inference.counts` -> text of the note.
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
    if getattr(args, "task", None) == "embedding" and "label" not in given:
        columns["label"] = None  # pairs without scores
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


def read(path, task, columns, format, limit=None):
    """Read a file as labeled data of a task."""
    if task == "tagging":
        places = {"word": columns["word"], "tag": columns["tag"]}
        return conll.read(path, **places, format=format, limit=limit)
    if task == "question-answering":
        _check_no_format(format)
        return squad.read(path, limit=limit, characters=columns["characters"] or None)
    if task == "multiple-choice":
        return swag.read(path, format=format, limit=limit)
    options = _of_texts(columns, task) | {"skip_ragged": columns["skip_ragged"]}
    if task == "embedding":
        del options["kind"]
        options |= {name: columns[name] for name in ("negatives", "score_range")}
        return reader.read(path, "embedding", **options, format=format, limit=limit)
    return tabular.read(path, **options, format=format, limit=limit)


def read_retrieval(path, split):
    """Return `data.retrieval.RetrievalData` if the path is a folder or JSON, else `None`."""
    is_retrieval = os.path.isdir(path) or os.path.splitext(path)[1].lower() == ".json"
    return retrieval.read(path, split) if is_retrieval else None


def read_in_parts(path, task, columns, format):
    """Read a file without labels, which may be larger than the memory, in parts."""
    if task == "tagging":
        return conll.read_in_parts(path, word=columns["word"], tag=None, format=format)
    if task == "question-answering":  # a single JSON object
        _check_no_format(format)
        return [squad.read(path, labeled=False)]
    if task == "multiple-choice":
        return swag.read_in_parts(path, format=format, labeled=False)
    options = _of_texts(columns, task) | {"label": None}
    return tabular.read_in_parts(path, **options, format=format, keep_rows=True)


def _check_no_format(format):
    if format is not None:
        raise ValueError(f"question answering reads only SQuAD's JSON. Remove --format {format}")


def _of_texts(columns, task):
    """Return the columns of texts or pairs, as arguments of `tabular.read`."""
    if task == "pair" and not columns["text_pair"]:
        raise ValueError("the task pair needs --text-pair, the column of the second text")
    names = ("text", "text_pair", "label", "separator", "header")
    options = {**{name: columns[name] for name in names}, "kind": _KINDS[task]}
    label = options["label"]
    if task == "multi-label" and isinstance(label, str) and "," in label:
        options["label"] = label.split(",")
    return options


def task_of(model):
    """Return the name of a model's task on the command line."""
    registry.for_model(model)  # raises an error if it has none
    output = heads.find_output(model)
    if output.task == "classification":
        single = "pair" if output.pairs else "classification"
        return "multi-label" if output.multi_label else single
    return _HEAD_TASKS[output.task]


def notes(examples, dev=None, metrics=()):
    """Yield notes about rows that were skipped or truncated."""
    counts = dict(metrics)
    same = dev is not None and dev.source == examples.source
    for part, prefix in ((examples, ""), (dev, "dev_")):
        where = "" if part is None else part.source + ", scored" * (same and bool(prefix))
        for name, note in _OF_DATA.items():
            if count := getattr(part, name, 0):
                yield f"{note}: {count} ({where})"
        for name, note in _COUNTED.items():
            if count := counts.get(prefix + name):
                yield f"{note}: {count} ({where})"


def print_counts(counts):
    """Print notes on stderr, since predictions may be on stdout."""
    for name, note in _COUNTED.items():
        if counts[name]:
            print_line(f"{note}: {counts[name]}", file=sys.stderr)
