"""Examples from tables in memory: DataFrames, Hugging Face datasets and dicts of columns."""

import itertools
import numbers
import typing

from keras_bert.data.examples import Examples
from keras_bert.data.text_files import check_limit, warn_of_text_pair
from keras_bert.runtime.escaping import printable


def read(table, *, text, text_pair, label, kind, separator, limit, **of_files):
    """Read `Examples` from a table with columns `table[name]`; arguments as in `tabular.read`."""
    names = _column_names(table)
    check_limit(limit)
    warn_of_text_pair(names, text_pair)
    columns = {"texts": text, "text_pairs": text_pair, f"{kind}s": label}
    columns = {role: name for role, name in columns.items() if name is not None}
    missing = next((name for name in columns.values() if name not in names), None)
    if missing is not None:
        shown = printable(", ".join(map(str, names)))
        raise ValueError(
            f"the table has no column {missing!r}; it has {shown}. Name the columns with text, "
            "text_pair and label"
        )
    values: dict[str, typing.Any] = {
        role: list(itertools.islice(table[name], limit)) for role, name in columns.items()
    }
    feature = getattr(table, "features", {}).get(label)  # of a Hugging Face dataset
    names = getattr(feature, "names", None)  # of a ClassLabel
    if names and "scores" in values:
        raise ValueError(
            f"the column {label!r} of the table holds classes, and scores are needed. Give the "
            "column of the scores as label"
        )
    if names and "labels" in values:
        values["labels"] = _named(values["labels"], names, itertools.count(1))
    names = getattr(getattr(feature, "feature", None), "names", None)  # of lists of classes
    if names and "label_sets" in values:
        values["label_sets"] = [
            _named(labels, names, itertools.repeat(number))
            for number, labels in enumerate(values["label_sets"], 1)
        ]
    if "label_sets" in values:
        values["label_sets"] = [_split(labels, separator) for labels in values["label_sets"]]
    return Examples(**values, source="the table")


def _named(indices, names, rows):
    """Return the names of the classes of Hugging Face's ClassLabel."""
    found = []
    for index, row in zip(indices or (), rows, strict=False):
        if isinstance(index, str) and index in names:
            found.append(index)
            continue
        if not isinstance(index, numbers.Integral) or not 0 <= int(index) < len(names):
            raise ValueError(
                f"the table, row {row}: has no label; received {index!r}. For data without labels, "
                "give label=None"
            )
        found.append(names[int(index)])
    return found


def _column_names(table):
    for name in ("column_names", "columns"):  # of Hugging Face and of pandas
        if hasattr(table, name):
            return list(getattr(table, name))
    if isinstance(table, dict):
        return list(table)
    raise ValueError(
        "data must be a file, a DataFrame, a Dataset or a dict of columns; received "
        f"{type(table).__name__}. For lists, use Examples(texts, labels=labels)"
    )


def _split(labels, separator):
    """Return a set of labels, a list or a string with `separator` between them, as a list."""
    if not isinstance(labels, str):
        return labels
    return [part.strip() for part in labels.split(separator) if part.strip()]
