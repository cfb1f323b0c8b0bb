"""Labelled texts, and the TSV, CSV and JSON Lines files and GLUE folders they come from."""

import collections
import csv
import dataclasses
import json
import math
import pathlib
import sys
from collections.abc import Iterable

from keras_bert.heads import check_label
from keras_bert.runtime.terminal import printable

# What is larger overflows in float32 once it is squared.
_LARGEST = 1e18
FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "tsv"}


@dataclasses.dataclass(frozen=True)
class Examples:
    """Texts, with pairs and labels where there are any; lists of one length.

    Attributes:
        texts: the first or only texts.
        text_pairs: the second texts, or `None`.
        labels: the labels as they stand in the file, or `None`; whatever they are, they are
            kept as strings.
        label_sets: instead of labels, any number of them for each text.
        scores: instead of labels, a number for each text.
        source: where they come from, for messages.
        ragged_rows: how many rows of the file were left out as they have not its columns.
        places: where in the file each stands, such as "row 2", for messages; or `None`.

    Raises:
        ValueError: the columns differ in length, a text is no string, a score no number, a label
            `None` or NaN, or there are two kinds of labels.

    Example:

    >>> Examples(["Win now", "See you at six"], labels=[1, 0]).label_names()
    ['0', '1']
    """

    texts: list[str]
    text_pairs: list[str] | None = None
    labels: list[str] | None = None
    label_sets: list[tuple[str, ...]] | None = None
    scores: list[float] | None = None
    source: str = "the examples"
    ragged_rows: int = 0
    places: list[str] | None = None

    def __post_init__(self):
        kinds = [self.labels, self.label_sets, self.scores]
        if sum(kind is not None for kind in kinds) > 1:
            raise ValueError(f"{self.source}: labels, label_sets and scores exclude each other")
        self._check_strings()
        if self.label_sets is not None:
            sets = [self._check_labels(labels) for labels in self.label_sets]
            object.__setattr__(self, "label_sets", sets)
        if self.scores is not None:
            scores = [_number(f"{self.source}: scores", score) for score in self.scores]
            object.__setattr__(self, "scores", scores)
        for name in ("label_sets", "scores"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.texts):
                raise ValueError(
                    f"{self.source}: {name} must be as many as the texts, {len(self.texts)}; "
                    f"received {len(column)}"
                )

    def _check_strings(self):
        for name in ("texts", "text_pairs", "labels"):
            column = getattr(self, name)
            if column is None:
                continue
            if isinstance(column, str):
                raise ValueError(f"{name} must be a list of strings; received one string")
            column = list(self._check_labels(column) if name == "labels" else column)
            if len(column) != len(self.texts):
                raise ValueError(
                    f"{self.source}: {name} must be as many as the texts, {len(self.texts)}; "
                    f"received {len(column)}"
                )
            wrong = [item for item in column if not isinstance(item, str)]
            if wrong:
                raise ValueError(
                    f"{self.source}: {name} must be strings; received {wrong[0]!r:.80}"
                )
            object.__setattr__(self, name, column)

    def _check_labels(self, labels):
        """Labels as strings; what tables have for a missing one is none."""
        if isinstance(labels, str) or not isinstance(labels, Iterable):
            raise ValueError(
                f"{self.source}: each of label_sets must be a list of labels; "
                f"received {labels!r:.80}"
            )
        for label in labels:
            # What is not itself: NaN of any kind, NaT.
            if label is None or label == "" or label != label:
                raise ValueError(f"{self.source}: labels must be there; received {label!r}")
            if isinstance(label, bytes):
                raise ValueError(f"{self.source}: labels must be strings; received {label!r:.80}")
        return tuple(str(label) for label in labels)

    def __len__(self):
        return len(self.texts)

    def place(self, index):
        """Where an example comes from, for messages.

        Example:

        >>> Examples(["a"]).place(0), Examples(["a"], source="a.tsv", places=["row 2"]).place(0)
        ('the examples, example 1', 'a.tsv, row 2')
        """
        where = f"example {index + 1}" if self.places is None else self.places[index]
        return f"{self.source}, {where}"

    def label_names(self):
        """Returns the distinct labels, sorted; numbers by value."""
        names = set(self.labels or ()).union(*self.label_sets or ())
        try:
            values = {name: float(name) for name in names}
        except ValueError:
            return sorted(names)
        if any(map(math.isnan, values.values())):  # which has no place among numbers
            return sorted(names)
        return sorted(names, key=lambda name: (values[name], name))

    def majority_share(self):
        """Returns the share of the most frequent label, 0 to 1: what guessing it would score."""
        counts = collections.Counter(self.labels or ())
        return max(counts.values()) / counts.total()


def _number(what, value):
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # the last of an int with 400 digits
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{what} must be numbers; received {value!r:.80}")
    if abs(number) > _LARGEST:
        raise ValueError(f"{what} must be at most {_LARGEST:g} in size; received {value!r:.80}")
    return number


def read(path, **options):
    r"""Reads examples from a file.

    In TSV a field ends at the next tab and quotes mean nothing, as in GLUE's files; CSV is
    quoted as usual. Files are UTF-8.

    Args:
        path: the file.
        text: column of the text: a name, or without a header a number from 1.
        text_pair: column of the second text, if the task has pairs.
        label: column of the label, if it is wanted.
        kind: what the label is: `"label"`; `"score"`, a number; or `"label_set"`, any number of
            labels with `separator` between them, in JSON Lines a list.
        separator: between the labels of a set.
        format: `"tsv"`, `"csv"` or `"jsonl"`; default: by the file's ending.
        header: whether the first row of a TSV or CSV file names the columns.
        skip_ragged: leave out rows with more or fewer fields than the first row, and count them
            in `ragged_rows`; otherwise they are an error.
        limit: read no more than so many rows.

    Returns:
        The `Examples`.

    Raises:
        ValueError: the format is not known, a column or a value is missing or no text, or the
            file holds no rows; the message names file and row.
        OSError: the file cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "mail.tsv")
    ...     _ = file.write_text("label\ttext\nspam\tWin now\nham\tSee you at six\n")
    ...     read(file, text="text", label="label").labels
    ['spam', 'ham']
    """
    parts = list(read_in_parts(path, size=sys.maxsize, **options))
    return parts[0]


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
    size=10_000,
):
    r"""Reads examples from a file of any size, a part at a time.

    Args: as for `read`, and
        size: examples a part.

    Yields:
        `Examples`; at least one.

    Raises:
        ValueError, OSError: as for `read`.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "mail.tsv")
    ...     _ = file.write_text("text\na\nb\nc\n")
    ...     [part.texts for part in read_in_parts(file, text="text", size=2)]
    [['a', 'b'], ['c']]
    """
    path = pathlib.Path(path)
    format = format or FORMATS.get(path.suffix.lower())
    if kind not in ("label", "label_set", "score"):
        raise ValueError(f"kind must be label, label_set or score; received {kind!r}")
    if format not in FORMATS.values():
        raise ValueError(
            f"{path}: the format must be one of tsv, csv, jsonl; received "
            f"{format or path.suffix or 'a file without an ending'!r}; name it by `format` "
            "(--format)"
        )
    check_limit(limit)
    if not separator:
        raise ValueError("separator (--separator) must not be empty")
    given = {"text": text, "text_pair": text_pair, "label": label}
    given = {role: column for role, column in given.items() if column is not None}
    columns = list(given.values())
    if len(set(columns)) < len(columns):
        raise ValueError(f"{path}: each column has one use; received {', '.join(columns)}")
    count, ragged, values = 0, 0, collections.defaultdict[str, list](list)
    places: list[str] = []

    def part():
        labels = None if label is None else values[label]
        return Examples(
            texts=values[text],
            text_pairs=None if text_pair is None else values[text_pair],
            **{f"{kind}s": labels},
            source=str(path),
            ragged_rows=ragged,
            places=places.copy(),
        )

    try:
        with open(path, encoding="utf-8-sig", newline="" if format == "csv" else "\n") as file:
            if format == "jsonl":
                rows = _json_rows(path, file, columns, label)
            else:
                rows = _table_rows(path, file, given, format, header)
            for place, row in rows:
                if row is None:
                    if not skip_ragged:
                        raise ValueError(f"{path}, {place}")
                    ragged += 1
                    continue
                for column, value in zip(columns, row, strict=True):
                    if column == label:
                        value = _label(f"{path}, {place}", value, kind, separator)
                    values[column].append(value)
                places.append(place)
                count += 1
                if limit is not None and count >= limit:
                    break
                if count % size == 0:
                    yield part()
                    ragged = 0
                    values.clear()
                    places.clear()
    except UnicodeDecodeError as error:
        raise not_utf8(path) from error
    if not count:
        raise ValueError(f"{path}: holds no rows")
    if values[text]:
        yield part()


def check_limit(limit):
    """Raises for a number of rows, or `None` for all, that no reader can read.

    Example:

    >>> check_limit(0)
    Traceback (most recent call last):
    ValueError: limit (--limit) must be at least 1; received 0
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit (--limit) must be at least 1; received {limit}")


def numbered_lines(path, file):
    r"""The lines of a file without their ends, each with its number.

    Args:
        path: of the file, for messages.
        file: opened as text with `newline="\n"`.

    Yields:
        (number from 1, text).

    Raises:
        ValueError: a line holds an end of another kind, so that it is more than one.

    Example:

    >>> list(numbered_lines("a.tsv", ["a\tb\r\n", "c"]))
    [(1, 'a\tb'), (2, 'c')]
    """
    for number, line in enumerate(file, 1):
        line = line.removesuffix("\n").removesuffix("\r")
        if "\r" in line:
            raise ValueError(
                f"{path}, line {number}: lines must end in \\n or \\r\\n; received \\r"
            )
        yield number, line


def not_utf8(path):
    r"""An error that names the line and the byte of a file where it is no UTF-8.

    Args:
        path: of the file.

    Returns:
        A `ValueError` to raise.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "texts.tsv")
    ...     _ = file.write_bytes(b"text\ncaf\xe9\n")
    ...     str(not_utf8(file)).removeprefix(folder)
    '/texts.tsv, line 2: must be UTF-8; received the byte 0xe9'
    """
    if not pathlib.Path(path).is_file():  # what a pipe held is gone
        return ValueError(f"{path}: must be UTF-8")
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return ValueError(
                    f"{path}, line {number}: must be UTF-8; received the byte "
                    f"0x{line[error.start]:02x}"
                )
    return ValueError(f"{path}: must be UTF-8")


def _label(place, value, kind, separator):
    """A label of the given kind, checked."""
    if kind == "score":
        return _number(f"{place}: scores", value)
    if kind == "label_set":
        labels = value.split(separator) if isinstance(value, str) else value
        labels = tuple(label.strip() for label in labels if label.strip())
        for label in labels:
            _check_label(place, label)
        return labels
    if isinstance(value, list):
        raise ValueError(f"{place}: a label must be a string; received a list")
    value = value.strip()
    if not value:
        raise ValueError(f"{place}: the label is empty")
    _check_label(place, value)
    return value


def _check_label(place, label):
    try:
        check_label(label)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


# GLUE's folders: the options of `read` for each, as their files have the columns.
GLUE: dict[str, dict] = {
    "CoLA": {"text": "4", "label": "2", "header": False},
    "SST-2": {"text": "sentence", "label": "label"},
    "MRPC": {"text": "#1 String", "text_pair": "#2 String", "label": "Quality"},
    "STS-B": {"text": "sentence1", "text_pair": "sentence2", "label": "score", "kind": "score"},
    "QQP": {
        "text": "question1",
        "text_pair": "question2",
        "label": "is_duplicate",
        "skip_ragged": True,  # some questions were broken by tabs and line ends
    },  # fmt: skip
    "MNLI": {"text": "sentence1", "text_pair": "sentence2", "label": "gold_label"},
    "QNLI": {"text": "question", "text_pair": "sentence", "label": "label"},
    "RTE": {"text": "sentence1", "text_pair": "sentence2", "label": "label"},
    "WNLI": {"text": "sentence1", "text_pair": "sentence2", "label": "label"},
}


def read_glue(folder, split="train", *, task=None, limit=None):
    r"""Reads a part of a GLUE task as its archive unpacks.

    Source: gluebenchmark.com; Wang et al. (2018).

    Args:
        folder: of the task, such as `glue/RTE`.
        split: `"train"` or `"dev"`; MNLI also has `"dev_matched"`, which `"dev"` stands for,
            and `"dev_mismatched"`.
        task: a key of `GLUE`; default: the folder's name.
        limit: read no more than so many rows.

    Returns:
        The `Examples`.

    Raises:
        ValueError: no such task, or the file is not as it must be.
        OSError: the file cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     folder = pathlib.Path(parent, "RTE")
    ...     folder.mkdir()
    ...     text = "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n"
    ...     _ = (folder / "dev.tsv").write_text(text)
    ...     read_glue(folder, "dev").labels
    ['entailment']
    """
    folder = pathlib.Path(folder)
    task = find_glue(task or folder)
    if task == "MNLI" and split == "dev":
        split = "dev_matched"
    return read(folder / f"{split}.tsv", **GLUE[task], limit=limit)


def find_glue(folder):
    """The key of `GLUE` that a folder is named for, in any case; else a `ValueError`.

    Example:

    >>> find_glue("glue/mrpc")
    'MRPC'
    """
    names = {name.lower(): name for name in GLUE}
    task = names.get(pathlib.Path(folder).name.lower())
    if task is None:
        raise ValueError(f"{folder}: must be one of GLUE's tasks, {', '.join(GLUE)}")
    return task


def allow_long_fields():
    """Lets the module `csv`, in all of this process, read fields of more than 128 KiB.

    Example:

    >>> allow_long_fields()
    """
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))


def _table_rows(path, file, given, format, header):
    """For each row of a TSV or CSV file where it stands and its wanted columns.

    Of a ragged row what is wrong with it, and `None`.
    """
    if format == "csv":
        allow_long_fields()
        rows = csv.reader(file, strict=True)  # an open quote would swallow the rest
    else:
        rows = (line.split("\t") for _, line in numbered_lines(path, file))
    places, number = None, 0
    try:
        for number, row in enumerate(rows, 1):
            if places is None:
                width = len(row)
                places = _places(path, given, row if header else None, width)
                if header:
                    continue
            if row in ([], [""]):
                if width > 1:
                    continue  # a blank line, as at the end of many files
                row = [""]  # the empty text of a file of texts alone
            # Without a header files may well differ in what comes after the columns they need.
            if max(places) >= len(row) or header and len(row) != width:
                wanted = f"{width}" if header else f"at least {max(places) + 1}"
                yield f"row {number}: must have {wanted} columns; received {len(row)}", None
                continue
            yield f"row {number}", [row[place] for place in places]
    except csv.Error as error:
        raise ValueError(f"{path}, after row {number}: {error}") from error


def _places(path, given, names, width):
    """Where in a row the columns stand that are given for the text, its pair and its label."""
    if names is None:
        for column in given.values():
            if not str(column).isdecimal() or not 1 <= int(column) <= width:
                raise ValueError(
                    f"{path}: without a header a column is a number from 1 to {width}; "
                    f"received {column!r}"
                )
        return [int(column) - 1 for column in given.values()]
    for role, column in given.items():
        if names.count(column) != 1:
            found = ", ".join(printable(name, 40) for name in names[:20]) or "without names"
            how_many = "two columns" if column in names else "no column"
            raise ValueError(
                f"{path}: has {how_many} {column!r}; its columns are {found}; name the one to read "
                f"by `{role}` (--{role.replace('_', '-')})"
            )
    return [names.index(column) for column in given.values()]


def _no_number(name):
    raise ValueError(f"{name} is no number")


def _json_rows(path, file, columns, label):
    """For each line of a JSON Lines file where it stands and its wanted values."""
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: is not JSON ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: must be a JSON object")
        values = []
        for column in columns:
            if column not in row:
                raise ValueError(f"{path}, line {number}: has no key {column!r}")
            value = row[column]
            if column == label and isinstance(value, (int, float, bool)):
                value = json.dumps(value)  # classes are often numbers
            is_set = (
                column == label
                and isinstance(value, list)
                and all(isinstance(item, (str, int, float)) for item in value)
            )
            if is_set:
                value = [item if isinstance(item, str) else json.dumps(item) for item in value]
            if not isinstance(value, str) and not is_set:
                raise ValueError(
                    f"{path}, line {number}: {column!r} must be a string; received "
                    f"{json.dumps(value)[:80]}"
                )
            values.append(value)
        yield f"line {number}", values
