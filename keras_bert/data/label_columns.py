"""Columns of labels in files and tables: labels that are missing, and label sets."""

import ast
import itertools
import json
import math
import numbers
import re
import warnings

from keras_bert.runtime.escaping import shown
from keras_bert.runtime.warn import level_of_caller

UNLABELED = "-"  # SNLI's label of pairs on which the annotators did not agree
_SEPARATORS = (",", ";", "|", "/", "+", "&", "\t")
_NUMBER = r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_CONSTANTS = {"True": True, "true": True, "False": False, "false": False}
_ITEM = rf"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|{_NUMBER}|{"|".join(_CONSTANTS)})"""
_ITEMS = re.compile(_ITEM)
# A list, tuple or set of strings or numbers, in JSON or as Python shows it. NumPy writes no commas.
_LIST = re.compile(rf"[\[({{]\s*(?:{_ITEM}(?:(?:\s*,\s*|\s+){_ITEM})*\s*,?\s*)?[\])}}]")
# A number, string or boolean of NumPy 2 in a list, as pandas writes it to CSV: `np.int64(1)`.
_NUMPY_SCALAR = re.compile(rf"np\.(?:\w+\(({_ITEM})\)|(True|False)_)")
_VECTOR = re.compile(rf"\s*{_NUMBER}(?:[\s,;|]+{_NUMBER})+\s*")
_FLAGS = {"false": 0.0, "true": 1.0}


def labeled_rows(source, labels):
    """Return the indices of the rows that have a label, and warn of the others.

    A row has no label if its cell is empty or NaN; if it is `UNLABELED`, unless "+" is a label; or
    if it is -1 and the other labels are 0, 1, 2 and so on, as in the SNLI of Hugging Face.
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
    if isinstance(value, (list, tuple, dict)) or hasattr(value, "ndim") and value.ndim > 0:
        return False
    try:
        return value is None or bool(value == "") or bool(value != value)
    except TypeError:  # the truth of pandas' NA
        return True


def clean(label):
    """Return a label as data holds it: strings without white space at their ends."""
    return label.strip() if isinstance(label, str) else label


def targets_of_row(where, names, values):
    """Return the targets of a row, a number from 0 to 1 for each column of a label, as a tuple.

    Return `None` if the row has no labels: all values are missing or -1, as in Jigsaw's test data.
    """
    if all(is_missing(value) or str(value).strip() in ("-1", "-1.0") for value in values):
        return None
    targets = []
    for name, value in zip(names, values, strict=True):
        target = _target(str(value).strip().lower())
        if not 0 <= target <= 1:
            raise ValueError(
                f"{where}: the column {shown(name)} of a label must hold 0 or 1, or a probability; "
                f"received {shown(value)}"
            )
        targets.append(target)
    return tuple(targets)


def _target(text):
    """Return the number that a cell shows; NaN for other texts."""
    if text in _FLAGS:
        return _FLAGS[text]
    return float(text) if re.fullmatch(_NUMBER, text) else math.nan


def vectors_of(where, rows, names):
    """Return rows of 0 and 1, or of probabilities, as tuples of floats; `None` for sets of names.

    `rows` are lists of labels. Numbers are the targets of labels if all rows have the same length
    and all numbers are from 0 to 1. A single 0 or 1 per row is the name of a label, without names.

    Example:

    >>> vectors_of("x", [[1, 0, 1], [0, 0, 1]], None), vectors_of("x", [[0], [0, 1]], None)
    ([(1.0, 0.0, 1.0), (0.0, 0.0, 1.0)], None)
    """
    values = [value for row in rows for value in row]
    if not values or not all(isinstance(value, numbers.Real) for value in values):
        return None
    lengths = set(map(len, rows))
    is_named = names is not None and lengths == {len(names)}
    are_floats = any(isinstance(value, float) for value in values)
    if _are_targets(rows) and (is_named or are_floats or lengths != {1}):
        return [tuple(map(float, row)) for row in rows]
    if are_floats:
        number = next((value for value in values if not 0 <= value <= 1), values[0])
        raise ValueError(
            f"{where} of floats must be rows of the same length, with a number from 0 to 1 for "
            f"each label; received {shown(number)} in rows of {min(lengths)} to {max(lengths)}. "
            "Names of labels must be strings or integers"
        )
    return None


def _are_targets(rows):
    """Return True if the rows have the same length, and numbers from 0 to 1."""
    values = list(itertools.chain(*rows))
    if not all(isinstance(value, numbers.Real) for value in values):
        return False
    return all(0 <= value <= 1 for value in values) and len(set(map(len, rows))) == 1


def split_sets(column, separator):
    """Return the label sets of a column. Strings are split at `separator`.

    If all strings look like lists, such as "['x', 'y']", which pandas writes to CSV, or like the
    same number of numbers, such as "1 0 1", they are read as lists. Other values are returned as
    they are.
    """
    set_of_text = {text: _written_list(text) for text in column if isinstance(text, str)}
    are_lists = any(set_of_text.values()) and None not in set_of_text.values()
    if not are_lists and set_of_text and all(map(_VECTOR.fullmatch, set_of_text)):
        set_of_text = {text: _items(text) for text in set_of_text}
        are_lists = _are_targets(list(set_of_text.values()))
    if not are_lists:
        set_of_text = {text: _split_set(text, separator) for text in set_of_text}
    sets = []
    for labels in column:
        if labels is None:  # an empty cell of a table is an empty string in a file
            labels = ()
        sets.append(set_of_text[labels] if isinstance(labels, str) else labels)
    return sets


def _split_set(text, separator):
    parts = (part.strip() for part in text.split(separator))
    return tuple(part for part in parts if part)


def _written_list(text):
    """Return the list of strings or integers that a text shows; `None` for other texts."""
    text = _NUMPY_SCALAR.sub(lambda match: match[1] or match[2], text.strip())
    if not text:
        return ()
    if not _LIST.fullmatch(text):
        return None
    return _items(text)


def _items(text):
    """Return the strings and numbers of a written list."""
    return tuple(_CONSTANTS.get(item, _literal(item)) for item in _ITEMS.findall(text))


def _literal(item):
    """Return the value of a string in quotes, or of a number."""
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(item)
        except (ValueError, SyntaxError):
            continue
    return item  # such as a number with leading zeros


def warn_of_label_sets(examples, column, separator):
    """Warn of label sets that seem to have another separator, or to be columns of 0 and 1."""
    source = examples.source
    sets = examples.label_sets
    has_names = examples.known_labels is not None  # of columns, or of rows of numbers
    if sets is None or has_names or any(len(label_set) > 1 for label_set in sets):
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
