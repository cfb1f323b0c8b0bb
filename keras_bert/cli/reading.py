"""Which file holds what: columns, tasks, and what a person should know of how it was read."""

import sys

from keras_bert import heads
from keras_bert.cli import arguments
from keras_bert.data import conll, squad, swag, tabular
from keras_bert.tasks import registry

# What each task reads a text file's label as.
_KINDS = {"classification": "label", "pair": "label", "multi-label": "label_set"}
_KINDS |= {"regression": "score"}
_HEAD_TASKS = {
    "tagger": "tagging",
    "span_selector": "qa",
    "multiple_choice": "multiple-choice",
    "regressor": "regression",
}

# What `predict.counts` counts.
_COUNTED = {
    "truncated": "texts longer than the model reads (finetune's --max-length), cut there",
    "without_pieces": "texts that are empty or invisible characters alone",
    "words_without_pieces": "words of invisible characters alone, which the model does not see",
    "cut_words": "words longer than the model reads, cut there",
    "cut_questions": "questions longer than a window has room for, cut there",
    "cut_answers": "answers longer than a window, from which nothing is learned",
    "invisible_answers": "answers of invisible characters alone, from which nothing is learned",
}

# What the data counts.
_OF_DATA = {
    "ragged_rows": "rows that have not the columns of the file, left out",
    "moved_answers": "answers that do not stand where the file says, taken at the nearest place",
    "lost_answers": "answers that do not stand in their text, from which nothing is learned",
}

# Where in a file things are, unless it is said: the names of options, and of arguments of `read`.
COLUMNS = {
    "text": "text",
    "text_pair": None,
    "label": "label",
    "separator": ",",
    "header": True,
    "word": 1,
    "tag": -1,
    "skip_ragged": False,  # no option: GLUE's QQP has broken rows
    "characters": False,
}


def columns_of(args, model=None):
    """The columns that the command line names, or else those that a model was trained on."""
    given = {name: getattr(args, name, None) for name in COLUMNS}
    given = {name: value for name, value in given.items() if value is not None}
    if model is not None and not given:
        trained = arguments.metrics_of(model).get("columns")
        given = trained if isinstance(trained, dict) else {}
    return {name: given.get(name, default) for name, default in COLUMNS.items()}


def read(path, task, columns, format, limit=None):
    """A file as the labelled data of a task."""
    if task == "tagging":
        places = {"word": columns["word"], "tag": columns["tag"]}
        return conll.read(path, **places, format=format, limit=limit)
    if task == "qa":
        _check_no_format(format)
        return squad.read(path, limit=limit, characters=columns["characters"] or None)
    if task == "multiple-choice":
        return swag.read(path, format=format, limit=limit)
    options = _of_texts(columns, task) | {"skip_ragged": columns["skip_ragged"]}
    return tabular.read(path, **options, format=format, limit=limit)


def read_in_parts(path, task, columns, format):
    """A file to be answered, a part at a time."""
    if task == "tagging":
        return conll.read_in_parts(path, word=columns["word"], tag=None, format=format)
    if task == "qa":  # one JSON object, which is read as a whole or not at all
        _check_no_format(format)
        return [squad.read(path, labelled=False)]
    if task == "multiple-choice":
        return swag.read_in_parts(path, format=format, labelled=False)
    return tabular.read_in_parts(path, **{**_of_texts(columns, task), "label": None}, format=format)


def _check_no_format(format):
    if format is not None:
        raise ValueError(f"questions are read from SQuAD's JSON alone; received --format {format}")


def _of_texts(columns, task):
    """The columns of single texts and pairs, as the arguments of `data.read`."""
    if task == "pair" and not columns["text_pair"]:
        raise ValueError("pairs need --text-pair, the column of the second text")
    names = ("text", "text_pair", "label", "separator", "header")
    return {**{name: columns[name] for name in names}, "kind": _KINDS[task]}


def task_of(model):
    """The name of a model's task on the command line."""
    registry.for_model(model)  # or an error
    output = heads.find_output(model)
    if output.task == "classifier":
        single = "pair" if output.pairs else "classification"
        return "multi-label" if output.multi_label else single
    return _HEAD_TASKS[output.task]


def notes(examples, dev=None, metrics=()):
    """What a person should know about how the data was read."""
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
    """Says on stderr, as the answers may be on stdout, what of the texts was not read."""
    for name, note in _COUNTED.items():
        if counts[name]:
            print(f"{note}: {counts[name]}", file=sys.stderr)
