"""Labeled texts from TSV, CSV and JSON Lines files, and from the folders of GLUE tasks."""

import collections
import csv
import itertools
import pathlib
import sys

from keras_bert.data import tables, text_files
from keras_bert.data.examples import Examples
from keras_bert.data.label_columns import warn_of_label_sets
from keras_bert.runtime.escaping import printable, shown


def read(path, **options) -> Examples:
    r"""Read examples from a file.

    TSV fields end at the next tab, and quotes have no meaning, as in GLUE's files. CSV fields may
    be quoted. Files are UTF-8. A .txt file has one text per line if it is read without labels
    and its first line is not `text` and has no tab.

    Args:
        path: The file.
        text: Column of the text: a name, or a number from 1 if the file has no header.
        text_pair: Column of the second text, for tasks on pairs.
        label: Column of the label; `None` reads no labels. For label sets also a list of columns
            of 0 and 1, whose names are the labels. In JSON, `"labels.label"` is a key within an
            object.
        kind: `"label"`; `"score"`, a number; or `"label_set"`, any number of labels: a string
            with `separator` between them, or a list in JSON Lines.
        separator: The string between the labels of a set.
        format: `"tsv"`, `"csv"` or `"jsonl"`, which also reads one list of objects; by default
            from the file's extension.
        header: Whether the first row of a TSV or CSV file names the columns.
        skip_ragged: Skip rows that have another number of columns than the first row, and count
            them in `ragged_rows`. By default, such a row is an error.
        limit: Maximum number of rows to read. Skipped rows do not count.

    Returns:
        The `Examples`.

    Raises:
        ValueError: If the format is unknown, a column or a value is missing or has the wrong type,
            or the file holds no rows. The message names the file and the row.
        OSError: If the file cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "mail.tsv")
    ...     _ = file.write_text("label\ttext\nspam\tWin now\nham\tSee you at six\n")
    ...     read(file, text="text", label="label").labels
    ['spam', 'ham']
    """
    examples = next(read_in_parts(path, size=sys.maxsize, **options))
    warn_of_label_sets(examples, options.get("label"), options.get("separator", ","))
    return examples


def read_in_parts(
    path,
    *,
    text,
    text_pair=None,
    label=None,
    kind="label",
    separator=",",
    format=None,
    header=True,
    skip_ragged=False,
    limit=None,
    keep_rows=False,
    size=10_000,
):
    """Yield `Examples` of at most `size` rows; options as in `read`.

    With `keep_rows`, the examples have all columns of the file as their `rows`.
    """
    path = pathlib.Path(path)
    format = _check_format(path, format)
    text_files.check_limit(limit)
    columns = tables.columns_by_role(str(path), text, text_pair, label, kind)
    if format != "jsonl" and not header:
        columns = {role: str(number) for role, number in columns.items()}
    count = 0
    ragged_rows = 0
    part: dict[str, list] = collections.defaultdict(list)

    def examples():
        options = {"typed": format == "jsonl", "ragged_rows": ragged_rows}
        return tables.examples_of(part, str(path), label, kind, separator, **options)

    with text_files.open_utf8(path, newline="" if format == "csv" else "\n") as file:
        if format == "jsonl":
            rows = text_files.json_rows(path, file)
        else:
            rows = _table_rows(path, file, columns, format, header)
        for location, row in rows:
            if isinstance(row, ValueError):
                if not skip_ragged:
                    raise row
                ragged_rows += 1
                continue
            if format == "jsonl" and not count:
                text_files.warn_of_text_pair(row, text_pair)
            for role, name in columns.items():
                part[role].append(_value(f"{path}, {location}", row, name))
            part["location"].append(location)
            if keep_rows:
                part["row"].append(row)
            count += 1
            if count % size == 0:
                yield examples()
                part.clear()
                ragged_rows = 0
            if count == limit:
                break
    if not count:
        raise ValueError(f"{path} contains no rows")
    if part:
        yield examples()


def read_values(path, *, text, format=None, limit=None, **options):
    """Return the values of the column `text` of JSON Lines; [] for other files, without lists."""
    path = pathlib.Path(path)
    if _check_format(path, format) != "jsonl":
        return []
    with text_files.open_utf8(path) as file:
        rows = itertools.islice(text_files.json_rows(path, file), limit)
        return [_value(f"{path}, {location}", row, text) for location, row in rows]


def _check_format(path, format):
    format = format or text_files.FORMATS.get(path.suffix.lower())
    if format not in text_files.FORMATS.values():
        text_files.check_is_text(path)
        received = format or path.suffix or "a file without an extension"
        raise ValueError(
            f"{path}: the format must be one of tsv, csv, jsonl; received {shown(received)}; give "
            "`format` (--format); for tagged words, give task='tagging' (--task tagging)"
        )
    return format


def _value(where, row, name):
    """Return the value of the column `name` of a row."""
    value = row.get(name)
    if name not in row:
        # A name such as labels.label stands for a value within an object.
        value = row
        for key in name.split("."):
            if not isinstance(value, dict) or key not in value:
                known = printable(", ".join(row), 200)
                raise ValueError(f"{where} has no key {shown(name)}; its keys are {known}")
            value = value[key]
    return value


def _table_rows(path, file, columns, format, header):
    """Yield the location and all columns of each row of a TSV or CSV file, a dict.

    In place of a row with a wrong number of columns, a `ValueError` is yielded.
    """
    if format == "csv":
        text_files.allow_long_csv_fields()
        rows = csv.reader(file, strict=True)  # strict: an unclosed quote is an error
    else:
        rows = (line.split("\t") for _, line in text_files.numbered_lines(path, file))
    number = 0
    try:
        for number, row in enumerate(rows, 1):
            if number == 1:
                is_plain = header and _is_plain(path, columns, row)
                names = ["text"] if is_plain else row
                if not header:
                    names = [str(index) for index in range(1, len(row) + 1)]
                _check_columns(path, columns, names, header)
                least = len(names) if header else max(int(name) for name in columns.values())
                names = _distinct(names)
                if header and not is_plain:
                    text_files.warn_of_text_pair(row, columns.get("text_pair"))
                    continue
            if is_plain:
                row = ["\t".join(row)]
            if row in ([], [""]):
                if len(names) > 1:
                    continue  # a blank line, as at the end of many files
                row = [""]  # in a file of texts only, a blank line is an empty text
            # Without a header, rows may have any number of columns after those that are read.
            if len(row) < least or header and len(row) != least:
                message = f"{path}, row {number}: must have {least} columns; received {len(row)}"
                yield f"row {number}", ValueError(message)
                continue
            yield f"row {number}", dict(zip(names, row, strict=False))
    except csv.Error as error:
        raise ValueError(f"{path}, after row {number}: {error}") from error


def _distinct(names):
    """Add a number to repeated names of columns. `_check_columns` has refused to read these."""
    counts: collections.Counter[str] = collections.Counter()
    distinct = []
    for name in names:
        distinct.append(f"{name}.{counts[name]}" if counts[name] else name)
        counts[name] += 1
    return distinct


def _is_plain(path, columns, first_row):
    """Return True if a .txt file has one text per line instead of columns."""
    is_text = path.suffix.lower() == ".txt" and columns == {"text": "text"}
    return is_text and len(first_row) == 1 and first_row != ["text"]


def _check_columns(path, columns, names, header):
    """Raise an error for a column that is not in the file, or occurs twice."""
    counts = collections.Counter(names)
    for role, column in columns.items():
        if counts[column] == 1:
            continue
        if not header:
            raise ValueError(
                f"{path}: without a header a column is a number from 1 to {len(names)}; "
                f"received {shown(column)}"
            )
        known = ", ".join(printable(name, 40) for name in names[:20]) or "without names"
        how_many = "two columns" if column in names else "no column"
        argument = role.partition(" ")[0]  # "label 2" is a column of the argument `label`
        advice = f"give its name as `{argument}` (--{argument.replace('_', '-')})"
        if role == "label":
            advice += ", or label=None for data without labels (keras-bert predict)"
        if len(names) == 1:
            advice += ". For columns that ; or | separate, give a DataFrame"
        raise ValueError(
            f"{path} has {how_many} {shown(column)}; its columns are {known}; {advice}"
        )


_PAIR = {"text": "sentence1", "text_pair": "sentence2", "label": "label"}
# The options of `read` for the files of each GLUE task.
GLUE: dict[str, dict] = {
    "CoLA": {"text": "4", "label": "2", "header": False},
    "SST-2": {"text": "sentence", "label": "label"},
    "MRPC": {"text": "#1 String", "text_pair": "#2 String", "label": "Quality"},
    "STS-B": _PAIR | {"label": "score", "kind": "score"},
    "QQP": {
        "text": "question1",
        "text_pair": "question2",
        "label": "is_duplicate",
        "skip_ragged": True,  # some questions hold tabs and line ends
    },
    "MNLI": _PAIR | {"label": "gold_label"},
    "QNLI": {"text": "question", "text_pair": "sentence", "label": "label"},
    "RTE": _PAIR,
    "WNLI": _PAIR,
}


def read_glue(folder, split="train", *, limit=None):
    """Read one split of a GLUE task from its unpacked archive, such as `glue/RTE`.

    The name of the folder is the task. `split` is "train" or "dev"; MNLI has "dev_matched", which
    "dev" stands for, and "dev_mismatched". Source: Wang et al. (2018).
    """
    task = find_glue(folder)
    if task == "MNLI" and split == "dev":
        split = "dev_matched"
    return read(pathlib.Path(folder, f"{split}.tsv"), **GLUE[task], limit=limit)


def find_glue(folder):
    """Return the key of `GLUE` that matches the name of a folder, in any case."""
    name = pathlib.Path(folder).name.lower()
    for task in GLUE:
        if task.lower() == name:
            return task
    raise ValueError(f"{folder}: must be one of GLUE's tasks, {', '.join(GLUE)}")
