"""Examples from tables in memory: DataFrames, Hugging Face datasets and dicts of columns."""

import collections
import itertools
import numbers

from keras_bert.data import cells, label_columns
from keras_bert.data.examples import Examples
from keras_bert.data.text_files import check_limit, warn_of_text_pair
from keras_bert.runtime.arguments import as_list
from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.label_types import typed_texts


def columns_by_role(source, text, text_pair, label, kind):
    """Return {role: name of a column}. The columns of a list have the roles "label 0" and so on."""
    if isinstance(label, list) and kind != "label_set":
        raise ValueError(f"{source}: several columns as label are only for the task multi_label")
    columns = {"text": text, "text_pair": text_pair}
    if isinstance(label, list):
        columns |= {f"label {index}": column for index, column in enumerate(label)}
    else:
        columns["label"] = label
    columns = {role: column for role, column in columns.items() if column is not None}
    if len(set(columns.values())) < len(columns):
        raise ValueError(
            f"{source}: the columns of the text, its pair and its label must differ; received "
            f"{printable(', '.join(map(str, columns.values())), 200)}"
        )
    return columns


def read(table, *, text, text_pair, label, kind, separator, limit, **of_files):
    """Read `Examples` from a table with columns `table[name]`; arguments as in `tabular.read`."""
    roles = columns_by_role("the table", text, text_pair, label, kind)
    warn_of_text_pair(column_names(table), text_pair)
    advice = "Give their names as text=, text_pair= and label="
    values = read_columns(table, list(roles.values()), (), limit, "Examples", advice)
    columns = {role: values[name] for role, name in roles.items()}
    if "label" in columns:
        columns["label"] = _named(table, label, kind, columns["label"])
    columns["location"] = [f"row {number}" for number, _ in enumerate(columns["text"], 1)]
    examples = examples_of(columns, "the table", label, kind, separator)
    label_columns.warn_of_label_sets(examples, label, separator)
    return examples


def examples_of(columns, source, label, kind, separator, *, typed=True, ragged_rows=0):
    """Return the `Examples` of columns, {role: list}, of the rows that have a label.

    The roles are those of `columns_by_role`, `location` and optionally `row`. If not `typed`,
    labels get the type that their text shows.
    """
    for role in ("text", "text_pair"):
        if role in columns:  # an empty cell is an empty text in files too
            columns[role] = ["" if text is None else text for text in columns[role]]
    known_labels = None
    if isinstance(label, list):
        known_labels = label
        values_of_rows = zip(
            *(columns.pop(f"label {index}") for index in range(len(label))), strict=True
        )
        columns["label"] = [
            label_columns.targets_of_row(f"{source}, {location}", label, values)
            for location, values in zip(columns["location"], values_of_rows, strict=True)
        ]
    elif kind == "label_set" and "label" in columns:
        columns["label"] = label_columns.split_sets(columns["label"], separator)
    elif kind == "label" and "label" in columns:
        columns["label"] = [label_columns.clean(label) for label in columns["label"]]
    if kind != "score" and "label" in columns:
        rows = label_columns.labeled_rows(source, columns["label"])
        is_complete = len(rows) == len(columns["label"])
        columns = {role: [column[row] for row in rows] for role, column in columns.items()}
        if not is_complete:
            columns["label"] = _integers(columns["label"])
        if kind == "label" and not typed:
            columns["label"] = typed_texts(columns["label"])
    return Examples(
        texts=columns["text"],
        text_pairs=columns.get("text_pair"),
        **{f"{kind}s": columns.get("label")},
        known_labels=known_labels,
        source=source,
        locations=columns["location"],
        rows=columns.get("row"),
        ragged_rows=ragged_rows,
    )


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


def _named(table, column, kind, values):
    """Return a column of labels with the names of Hugging Face's classes in place of indices."""
    names, names_of_lists = class_names(table, column)
    if names and kind == "score":
        raise ValueError(
            f"the column {shown(column)} of the table holds classes, and scores are needed"
        )
    if names and kind == "label":
        return named(values, names, itertools.count(1), -1, label_columns.UNLABELED)
    if names_of_lists and kind == "label_set":
        return [
            named(labels, names_of_lists, itertools.repeat(number))
            for number, labels in enumerate(values, 1)
        ]
    return values


def read_columns(table, required, optional, limit, kind, advice="Rename the columns"):
    """Return {name: list} of the required columns, and of the optional ones that the table has.

    `kind` is the name of the class of the data, and `advice` ends the error for a missing column.
    """
    names = collections.Counter(column_names(table))
    check_limit(limit)
    missing = [name for name in required if name not in names]
    if missing:
        known = printable(", ".join(map(str, names)), 500) or "no columns"
        raise ValueError(
            f"the table has no column {shown(missing[0])}; it has {known}. {advice}, or "
            f"use keras_bert.{kind} for lists"
        )
    columns = {}
    for name in [*required, *(name for name in optional if name in names)]:
        check_single(names, name)
        values = as_list(f"the table: the column {shown(name)}", table[name], limit)
        columns[name] = [cells.plain(value) for value in values]
        first = next(iter(columns))
        if len(columns[name]) != len(columns[first]):
            raise ValueError(
                f"the table: the column {shown(name)} must have the {len(columns[first])} rows of "
                f"{shown(first)}; received {len(columns[name])}"
            )
    return columns


def check_single(names, name):
    """Raise a `ValueError` if two columns have the same name; `names` is a `Counter`."""
    if names[name] > 1:
        known = printable(", ".join(map(str, names)), 500)
        raise ValueError(
            f"the table has two columns {shown(name)}; its columns are {known}. Rename one of them"
        )


def class_names(table, column):
    """Return the names of the classes in a column of a Hugging Face dataset, and in its lists."""
    feature = getattr(table, "features", {}).get(column)
    feature_of_lists = getattr(feature, "feature", None)
    return getattr(feature, "names", None), getattr(feature_of_lists, "names", None)


def named(indices, names, rows, missing=None, mark=None):
    """Return the names of Hugging Face's classes; the index `missing` becomes `mark`."""
    labels = []
    for index, row in zip(indices or (), rows, strict=False):
        if isinstance(index, str) and index in names:
            labels.append(index)
        elif missing is not None and index == missing:
            labels.append(mark)
        elif isinstance(index, numbers.Integral) and 0 <= int(index) < len(names):
            labels.append(names[int(index)])
        else:
            raise ValueError(
                f"the table, row {row}: has no label; received {shown(index)}. For data without "
                "labels, give label=None"
            )
    return labels


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
        raise ValueError(f"format is for files; received {shown(format)} with a table. Remove it")
