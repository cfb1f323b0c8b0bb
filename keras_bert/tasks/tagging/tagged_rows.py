"""Tagged sentences: JSON Lines, one sentence a line; CSV and tables, one word a row."""

import csv
from collections.abc import Iterator

from keras_bert.data.label_columns import is_missing
from keras_bert.data.text_files import allow_long_csv_fields, json_rows
from keras_bert.runtime.escaping import printable

# The defaults of `word` and `tag` are numbers of CoNLL columns. In files with names, they stand for
# these keys of JSON and these columns of CSV.
KEYS = {1: "words", -1: "tags"}
_COLUMNS = {1: "word", -1: "tag"}


def json_sentences(path, file, word, tag) -> Iterator[tuple[list, list]]:
    """Yield the words and the tags of each row; `word` and `tag` name the keys of its lists."""
    word_key = KEYS.get(word, word)
    tag_key = KEYS.get(tag, tag)
    for line, row in json_rows(path, file):
        location = f"{path}, {line}"
        words = _list(location, row, word_key, "word")
        tags = [] if tag is None else _list(location, row, tag_key, "tag")
        yield words, tags


def _list(location, row, name, role):
    """Return the list under a key of a row; `role` is the argument that names the key."""
    if name not in row:
        keys = printable(", ".join(row), 200)
        raise ValueError(
            f"{location} has no key {name!r:.80}; its keys are {keys}. Give the key "
            f"as {role} (--{role})"
        )
    if not isinstance(row[name], list):
        raise ValueError(f"{location}: {name!r:.80} must be a list; received {row[name]!r:.80}")
    return row[name]


def csv_sentences(path, file, word, tag) -> Iterator[tuple[list, list]]:
    """Yield the words and the tags of each sentence; `word` and `tag` name columns."""
    allow_long_csv_fields()
    rows = csv.DictReader(file, strict=True)
    try:
        names = _columns_of_words(path, rows.fieldnames or [], word, tag)
        yield from _sentences_of_words(_csv_rows(path, rows, names))
    except csv.Error as error:
        raise ValueError(f"{path}, after line {rows.line_num}: {error}") from error


def _csv_rows(path, rows, names):
    """Yield the location of each row, and its values in the columns `names`."""
    for row in rows:
        location = f"{path}, line {rows.line_num}"
        if None in row or None in row.values():
            width = len(rows.fieldnames or [])
            raise ValueError(f"{location}: must have {width} fields, as the first line has")
        yield location, [row[name] for name in names]


def table_sentences(source, table, columns, word, tag) -> Iterator[tuple[list, list]]:
    """Yield the words and the tags of each sentence of a table with a word per row."""
    names = _columns_of_words(source, columns, word, tag)
    values = zip(*(list(table[name]) for name in names), strict=True)
    rows = (
        (f"{source}, row {number}", ["" if is_missing(value) else value for value in row])
        for number, row in enumerate(values, 1)
    )
    return _sentences_of_words(rows)


def has_a_word_per_row(columns) -> bool:
    """Return True if a table with these columns has the layout of a CSV file of words."""
    return KEYS[1] not in columns and any(map(_is_sentence_column, columns))


def _sentences_of_words(rows) -> Iterator[tuple[list, list]]:
    """Yield the words and the tags of each sentence from rows of sentence, word and tag.

    A sentence ends where its column has another value. An empty value is the same sentence, since
    some files name a sentence only in its first row.
    """
    words: list[str] = []
    tags: list[str] = []
    last = None
    for location, (sentence, *values) in rows:
        if sentence not in ("", last):
            if words:
                yield words, tags
            words = []
            tags = []
            last = sentence
        if "" in values:
            raise ValueError(
                f"{location}: the word or the tag is empty; fill it in or remove the row"
            )
        words.append(values[0])
        tags += values[1:]  # the tag, or nothing without tags
    if words:
        yield words, tags


def _columns_of_words(path, columns, word, tag):
    """Return the names of the columns of the sentence, the word and, unless `None`, the tag."""
    names = [_COLUMNS.get(name, name) for name in (word, tag) if name is not None]
    shown = printable(", ".join(map(str, columns)), 200)
    missing = next((name for name in names if name not in columns), None)
    if missing is not None:
        raise ValueError(
            f"{path} has no column {missing!r:.80}; its columns are {shown}. Give the names as "
            "word and tag (--word, --tag)"
        )
    column = next(filter(_is_sentence_column, columns), None)
    if column is None:
        raise ValueError(
            f"{path}: needs a column sentence that numbers the sentences; its columns are {shown}. "
            "Add it"
        )
    return [column, *names]


def _is_sentence_column(name):
    return str(name).lower().startswith("sentence")
