"""Columns of labels in files and tables: labels that are missing, and label sets."""

import ast
import itertools
import json
import re
import warnings

from keras_bert.runtime.escaping import shown
from keras_bert.runtime.warn import level_of_caller

UNLABELED = "-"  # SNLI's label of pairs on which the annotators did not agree
_SEPARATORS = (",", ";", "|", "/", "+", "&", "\t")
_ITEM = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?[0-9]+)"""
# A list, tuple or set of strings or integers, in JSON or as Python shows it.
_LIST = re.compile(rf"[\[({{]\s*(?:{_ITEM}\s*(?:,\s*{_ITEM}\s*)*,?\s*)?[\])}}]")
_FLAGS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


def labeled_rows(source, labels):
    """Return the indices of the rows that have a label, and warn of the others.

    A row has no label if its label is missing, such as NaN, or `UNLABELED` or -1. The label -1 only
    counts if the other labels are 0, 1, 2 and so on, as in the SNLI of Hugging Face.
    """
    missing_rows = {index for index, label in enumerate(labels) if is_missing(label)}
    # pandas stores integers beside missing values as floats: "-1.0" is the label -1.
    texts = [str(label).removesuffix(".0") for label in labels]
    distinct = {text for index, text in enumerate(texts) if index not in missing_rows}
    missing = set()
    if UNLABELED in distinct and "+" not in distinct:  # "-" beside "+" is a label
        missing.add(UNLABELED)
    classes = {str(index) for index in range(len(distinct) - 1)}
    if len(classes) > 2 and distinct == classes | {"-1"}:
        missing.add("-1")
    rows = [
        index
        for index, text in enumerate(texts)
        if index not in missing_rows and text not in missing
    ]
    if labels and not rows:
        raise ValueError(
            f"{source}: no row has a label; all are {shown(labels[0])}. For data without labels, "
            "give label=None (keras-bert predict)"
        )
    if len(rows) < len(labels):
        marks = [*map(repr, sorted(missing)), *(["missing"] if missing_rows else [])]
        warnings.warn(
            f"{source}: {len(labels) - len(rows)} of {len(labels)} rows were left out, because "
            f"they have no label; it is {' or '.join(marks)}",
            stacklevel=level_of_caller(),
        )
    return rows


def is_missing(value):
    """Return True for `None`, an empty string, NaN, NaT and pandas' NA."""
    try:
        return value is None or bool(value == "") or bool(value != value)
    except TypeError:  # the truth of pandas' NA
        return True


def flagged_set(where, names, values):
    """Return the label set of a row: the names of the columns whose value is 1 or true.

    Return `None` if the row has no labels: all values are missing or -1, as in Jigsaw's test data.
    """
    if all(is_missing(value) or str(value).strip() in ("-1", "-1.0") for value in values):
        return None
    labels = []
    for name, value in zip(names, values, strict=True):
        flag = _FLAGS.get(str(value).strip().lower())
        if flag is None:
            raise ValueError(
                f"{where}: the column {shown(name)} of a label must hold 0 or 1; received "
                f"{shown(value)}"
            )
        if flag:
            labels.append(name)
    return tuple(labels)


def split_sets(column, separator):
    """Return the label sets of a column. Strings are split at `separator`.

    If all strings look like lists, such as "['x', 'y']", which pandas writes to CSV, they are read
    as lists. Other values are returned as they are.
    """
    set_of_text = {text: _written_list(text) for text in column if isinstance(text, str)}
    are_lists = any(set_of_text.values()) and None not in set_of_text.values()
    if not are_lists:
        set_of_text = {text: _split_set(text, separator) for text in set_of_text}
    return [set_of_text[labels] if isinstance(labels, str) else labels for labels in column]


def _split_set(text, separator):
    parts = (part.strip() for part in text.split(separator))
    return tuple(part for part in parts if part)


def _written_list(text):
    """Return the list of strings or integers that a text shows; `None` for other texts."""
    text = text.strip()
    if not text:
        return ()
    if not _LIST.fullmatch(text):
        return None
    try:
        return tuple(json.loads(text))
    except ValueError:
        pass
    try:
        return tuple(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return None


def warn_of_label_sets(source, column, separator, sets):
    """Warn of label sets that seem to have another separator, or to be columns of 0 and 1.

    `sets` is `None` for other labels.
    """
    if sets is None or isinstance(column, list) or any(len(label_set) > 1 for label_set in sets):
        return
    labels = set(map(str, itertools.chain.from_iterable(sets)))
    text = " ".join(labels)
    marks = [mark for mark in _SEPARATORS if mark in text]
    words = {word for label in labels if " " in label for word in label.split(" ")}
    if separator != " " and words & labels:
        marks.append(" ")
    if labels and labels <= {"0", "1"}:
        reason = "are only 0 and 1. For a column of 0 and 1 per label"
        advice = f"give the names of the columns: label=[{shown(column)}, ...]"
    elif marks:
        reason = f"hold one label each with the separator {shown(separator)}. If it is another"
        advice = f"give separator={shown(marks[0])} (--separator)"
    else:
        return
    warnings.warn(
        f"{source}: the label sets in {shown(column)} {reason}, {advice}",
        stacklevel=level_of_caller(),
    )
