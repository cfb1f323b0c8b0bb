"""Examples from tables in memory: DataFrames, Hugging Face datasets and dicts of columns."""

import typing

from keras_bert.data.examples import Examples
from keras_bert.data.text_files import check_limit, warn_of_text_pair


def read(table, *, text, text_pair, label, kind, separator, limit, **of_files):
    """Read `Examples` from a table with columns `table[name]`; arguments as in `tabular.read`."""
    names = _column_names(table)
    check_limit(limit)
    warn_of_text_pair(names, text_pair)
    columns = {"texts": text, "text_pairs": text_pair, f"{kind}s": label}
    columns = {role: name for role, name in columns.items() if name is not None}
    missing = next((name for name in columns.values() if name not in names), None)
    if missing is not None:
        raise ValueError(
            f"the table has no column {missing!r}; it has {', '.join(map(str, names))}. Name the "
            "columns with text, text_pair and label"
        )
    values: dict[str, typing.Any] = {
        role: list(table[name])[:limit] for role, name in columns.items()
    }
    names = getattr(getattr(table, "features", {}).get(label), "names", None)
    if names and "labels" in values:  # Hugging Face's ClassLabel
        values["labels"] = [names[index] for index in values["labels"]]
    if "label_sets" in values:
        values["label_sets"] = [_split(labels, separator) for labels in values["label_sets"]]
    return Examples(**values, source="the table")


def _column_names(table):
    for name in ("column_names", "columns"):  # of Hugging Face and of pandas
        if hasattr(table, name):
            return list(getattr(table, name))
    if isinstance(table, dict):
        return list(table)
    raise ValueError(
        "data must be a file, a DataFrame, a Dataset or a dict of columns; received "
        f"{type(table).__name__}"
    )


def _split(labels, separator):
    """Return a set of labels, a list or a string with `separator` between them, as a list."""
    if not isinstance(labels, str):
        return labels
    return [part.strip() for part in labels.split(separator) if part.strip()]
