"""Read the model and the data files that the command line names; note truncated or skipped rows.

Keras is imported in functions, because commands can run without it on ONNX or OpenVINO folders.
"""

import os
import pathlib
import sys
import warnings
from typing import Any

import keras_bert
from keras_bert import provenance
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.reading import one_line
from keras_bert.runtime.terminal import print_line
from keras_bert.tasks import reader, registry
from keras_bert.text import vocabulary_fit

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
COLUMNS: dict[str, Any] = {
    "text": "text",
    "text_pair": None,
    "label": "label",
    "separator": ",",
    "header": True,
    "word": 1,
    "tag": -1,
    "negatives": [],
    "score_range": None,
    "skip_ragged": False,  # not an option: only for GLUE's QQP, which has broken rows
    "characters": False,
}


def load(args, **options):
    """Load the model that the command line names, with options of `keras_bert.load`."""
    return keras_bert.load(args.model, trusted=args.trusted, **options)


def load_for_training(args):
    """Load a model with its head, or only its encoder if the head cannot be loaded."""
    try:
        return load(args, task="auto")
    except ValueError as error:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were shown, or say what the note says
            encoder = load(args)  # raises what is not about the head
        print_line(f"only the encoder of {args.model} is used, without its head: {one_line(error)}")
        return encoder


def encoder_options(args):
    """Return the options of an encoder that the command line sets, as a dict."""
    options = {"dtype": dtype_of(args), "rematerialize": args.rematerialize}
    return {name: value for name, value in options.items() if value}


def dtype_of(args):
    """Return the dtype policy of the command line; print the choice for "auto"."""
    if args.dtype != "auto":
        return args.dtype
    from keras_bert.runtime import distribution

    dtype = distribution.fastest_dtype()
    print_line(f"--dtype auto: {dtype}")
    return dtype


def given_columns(args):
    """Return the options for columns that the command line names, as a dict."""
    columns = {name: getattr(args, name, None) for name in COLUMNS}
    return {name: value for name, value in columns.items() if value is not None}


def flag(name, value):
    """Return an option as on the command line, such as --text-pair or --no-header."""
    prefix = "no-" if value is False else ""
    return f"--{prefix}{name.replace('_', '-')}"


def check_columns(args, name):
    """Raise an error if the command line names a column that a task or variant does not read."""
    options = _read_options(name)
    for option, value in given_columns(args).items():
        if option not in options:
            raise ValueError(f"{flag(option, value)} does not apply to the task {name}. Remove it")


def columns_of(args, model=None, task=None):
    """Return the columns from the command line; the others are those of a model's training.

    `task` is the name of the task that reads them, if it is not an option of the command.
    """
    columns = given_columns(args)
    if model is not None:
        columns = _columns_of_training(model, columns) | columns
    defaults = dict(COLUMNS)
    task = task or getattr(args, "task", None)
    if task is not None:
        defaults["label"] = registry.by_name(task).default_label
    return {name: columns.get(name, default) for name, default in defaults.items()}


def text_options(args, path):
    """Return the options of `tabular.read` for the texts of a file."""
    columns = columns_of(args, args.model)
    is_chosen = args.text is not None or args.format is not None
    if not is_chosen and _has_a_text_per_line(path, columns["text"]):
        columns = COLUMNS  # such a file does not have the columns of the training
    return {"text": columns["text"], "header": columns["header"], "format": args.format}


def _has_a_text_per_line(path, column):
    """Return True for a .txt file without columns; `column` may be its header."""
    path = pathlib.Path(path)
    if path.suffix.lower() != ".txt" or not path.is_file():
        return False
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        first_line = file.readline().rstrip("\n")
    return "\t" not in first_line and first_line != column


def _columns_of_training(model, given):
    """Return the columns in the metrics of a saved model, checked: its author may be a stranger.

    `given` are the columns of the command line.
    """
    columns = provenance.read_metrics(model).get("columns") or {}
    simple = (str, int, list, type(None))
    if not isinstance(columns, dict) or not all(isinstance(v, simple) for v in columns.values()):
        if given:
            return {}
        raise ValueError(
            f"{model}: its metrics have wrong columns: {shown(columns)}. Name the columns on the "
            "command line, such as --text and --label"
        )
    if "label" in given:  # rows have scores or negatives, not both
        columns = columns | {"negatives": []}
    return columns


def read(path, name, columns, format=None, limit=None):
    """Read a file as labeled data of a task or of a variant, such as "pair"."""
    task = registry.by_name(name)
    return task.read(name, path, _options(name, columns, format, limit))


def read_in_parts(path, name, columns, format):
    """Read a file without labels, which may be larger than the memory, in parts."""
    task = registry.by_name(name)
    return task.read_in_parts(name, path, _options(name, columns, format, None))


def read_retrieval(path, split):
    """Return `RetrievalData` if the path is a folder or JSON, else `None`."""
    is_retrieval = os.path.isdir(path) or os.path.splitext(path)[1].lower() == ".json"
    return reader.read(path, "retrieval", split=split) if is_retrieval else None


def _read_options(name):
    """Return the names of the options with which a task or a variant reads files."""
    task = registry.by_name(name)
    if name not in task.reads:
        raise ValueError(f"the task {name} reads no files{task.command_hint}")
    return task.reads[name]


def _options(name, columns, format, limit):
    """Return the options for `Task.read` from the command line."""
    options = _read_options(name)
    if format is not None and "format" not in options:
        raise ValueError(f"the task {name} reads one format only. Remove --format {format}")
    values = {**columns, "format": format, "limit": limit}
    values["characters"] = columns["characters"] or None
    label = columns["label"]
    if name == "multi_label" and isinstance(label, str) and "," in label:
        values["label"] = label.split(",")
    return {option: values[option] for option in options}


def task_of(model):
    """Return the name of a Keras model's task, or of the variant."""
    from keras_bert import heads

    return registry.for_model(model).variant_of(heads.find_output(model))


def notes(examples, dev=None, metrics=()):
    """Yield notes about rows that were skipped or truncated."""
    counts = dict(metrics)
    for data, prefix in ((examples, ""), (dev, "dev_")):
        if data is None:
            continue
        of_data = {**data.counts(), "ragged_rows": data.ragged_rows}
        of_encoded = {name: counts.get(prefix + name) for name in _COUNTED}
        for name, note in (_OF_DATA | _COUNTED).items():
            if count := (of_data | of_encoded).get(name):
                yield f"{note}: {count} ({data.source})"


def print_misfit(pipe, examples):
    """Print a note on stderr if the vocabulary of the model does not fit the texts."""
    sample = examples.sample_of_texts(vocabulary_fit.SAMPLE)
    note = vocabulary_fit.note(sample, examples.source, pipe.predictor.task_model.tokenizer)
    if note is not None:
        print_line(note, file=sys.stderr)


def print_counts(counts):
    """Print notes on stderr, since predictions may be on stdout."""
    for name, note in _COUNTED.items():
        if counts[name]:
            print_line(f"{note}: {counts[name]}", file=sys.stderr)
