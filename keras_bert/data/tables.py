"""Examples from tables in memory: DataFrames, Hugging Face datasets and dicts of columns."""

import itertools
import numbers
import typing

from keras_bert.data.examples import Examples
from keras_bert.data.label_columns import (
    UNLABELED,
    flagged_set,
    labeled_rows,
    split_sets,
    warn_of_label_sets,
)
from keras_bert.data.text_files import check_limit, warn_of_text_pair
from keras_bert.runtime.escaping import printable

_LABELS = ("labels", "label_sets", "scores")  # roles of a column of labels


def read(table, *, text, text_pair, label, kind, separator, limit, **of_files):
    """Read `Examples` from a table with columns `table[name]`; arguments as in `tabular.read`."""
    columns = {"texts": text, "text_pairs": text_pair}
    has_flags = kind == "label_set" and isinstance(label, list)
    if not has_flags:
        columns[f"{kind}s"] = label
    values = _values(table, columns, limit)
    source = "the table"
    if has_flags:
        flags = read_columns(table, label, (), limit).values()
        values["label_sets"] = [
            flagged_set(f"{source}, row {number}", label, row)
            for number, row in enumerate(zip(*flags, strict=True), 1)
        ]
    elif "label_sets" in values:
        sets = split_sets(values["label_sets"], separator)
        warn_of_label_sets(source, label, separator, sets)
        values["label_sets"] = sets
    rows = None
    role = "label_sets" if has_flags else "labels"
    if role in values:
        rows = labeled_rows(source, values[role])
        is_complete = len(rows) == len(values[role])
        values = {role: [column[row] for row in rows] for role, column in values.items()}
        if not is_complete:
            values[role] = _integers(values[role])
    locations = None if rows is None else [f"row {row + 1}" for row in rows]
    known_labels = label if has_flags else None
    return Examples(**values, source=source, locations=locations, known_labels=known_labels)


def _integers(labels):
    """Return integers for whole floats: pandas stores integers beside missing values as floats."""
    if all(isinstance(label, float) and label.is_integer() for label in labels):
        return [int(label) for label in labels]
    return labels


def of_rows(rows):
    """Return a dict of columns for a list of dicts; a row without a column has None there.

    Example:

    >>> of_rows([{"text": "a", "label": 1}, {"text": "b"}])
    {'text': ['a', 'b'], 'label': [1, None]}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _values(table, columns, limit):
    """Return the columns of a table, lists by role, with the names of Hugging Face's classes."""
    names = column_names(table)
    check_limit(limit)
    warn_of_text_pair(names, columns.get("text_pairs"))
    columns = {role: name for role, name in columns.items() if name is not None}
    missing = next((name for name in columns.values() if name not in names), None)
    if missing is not None:
        shown = printable(", ".join(map(str, names)))
        raise ValueError(
            f"the table has no column {missing!r:.80}; it has {shown}. Name the columns with text, "
            "text_pair and label"
        )
    values: dict[str, typing.Any] = {
        role: list(itertools.islice(table[name], limit)) for role, name in columns.items()
    }
    label = next((columns[role] for role in _LABELS if role in columns), None)
    names, names_of_lists = class_names(table, label)
    if names and "scores" in values:
        raise ValueError(
            f"the column {label!r:.80} of the table holds classes, and scores are needed. Give the "
            "column of the scores as label"
        )
    if names and "labels" in values:
        values["labels"] = named(values["labels"], names, itertools.count(1), UNLABELED)
    if names_of_lists and "label_sets" in values:
        values["label_sets"] = [
            named(labels, names_of_lists, itertools.repeat(number))
            for number, labels in enumerate(values["label_sets"], 1)
        ]
    return values


def read_columns(table, required, optional, limit, kind="Examples"):
    """Return {name: list} of the required columns, and of the optional ones that the table has.

    `kind` is the name of the class of the data, for messages.
    """
    names = column_names(table)
    check_limit(limit)
    missing = next((name for name in required if name not in names), None)
    if missing is not None:
        shown = printable(", ".join(map(str, names)))
        raise ValueError(
            f"the table has no column {missing!r:.80}; it has {shown}. Rename yours, or use "
            f"keras_bert.{kind} for lists"
        )
    kept = [*required, *(name for name in optional if name in names)]
    return {name: list(table[name])[:limit] for name in kept}


def class_names(table, column):
    """Return the names of the classes in a column of a Hugging Face dataset, and in its lists."""
    feature = getattr(table, "features", {}).get(column)
    feature_of_lists = getattr(feature, "feature", None)
    return getattr(feature, "names", None), getattr(feature_of_lists, "names", None)


def named(indices, names, rows, missing=None):
    """Return the names of the classes of Hugging Face's ClassLabel; -1 becomes `missing`."""
    found = []
    for index, row in zip(indices or (), rows, strict=False):
        if isinstance(index, str) and index in names:
            found.append(index)
            continue
        if index == -1 and missing is not None:
            found.append(missing)
            continue
        if not isinstance(index, numbers.Integral) or not 0 <= int(index) < len(names):
            raise ValueError(
                f"the table, row {row}: has no label; received {index!r:.80}. For data without "
                "labels, give label=None"
            )
        found.append(names[int(index)])
    return found


def column_names(table):
    """Return the names of the columns of a table."""
    for name in ("column_names", "columns"):  # of Hugging Face and of pandas
        if hasattr(table, name):
            return list(getattr(table, name))
    if isinstance(table, dict):
        return list(table)
    raise ValueError(
        "data must be a file, a DataFrame, a Dataset or a dict of columns; received "
        f"{type(table).__name__}. For lists, use Examples(texts, labels=labels)"
    )


def check_no_format(format):
    """Raise an error for the format of a file if the data is a table in memory."""
    if format is not None:
        raise ValueError(f"format is for files; received {format!r:.80} with a table. Remove it")
