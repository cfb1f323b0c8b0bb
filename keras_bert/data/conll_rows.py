"""The rows of files in CoNLL columns and in CoNLL-U, with errors that name the line.

A row is the number of its line and the columns of a word, or `None` where a sentence ends.
"""

import itertools
import re
from collections.abc import Iterator

Row = tuple[int, list[str] | None]

_CONLLU_COLUMNS = 10
_SAMPLE = 200  # lines that show whether the first column is an index
_INDEX = re.compile(r"[0-9]+")
_OTHER_INDEX = re.compile(r"[0-9]+[-.][0-9]+")  # a range of words or an empty node in CoNLL-U
_NUMBER = re.compile(r"[-+]?[0-9.]+")
_COMMENT = re.compile(r"#+\s|#(begin|end) document\b")


def conll_rows(path, lines, columns_read) -> tuple[Iterator[Row], bool]:
    """Return the rows of CoNLL columns without their index, and whether they have one.

    An index is the first of more columns than `columns_read`. If that is `None`, the first column
    is not taken for an index.
    """
    sample, first = _first_lines(lines)
    if first is None:
        return iter(()), False
    number, line = first
    tabs = "\t" in line
    width = len(_split(line, tabs))
    has_index = False
    if columns_read is not None:
        columns = [_columns(line, tabs, width) for _, line in sample]
        _check_conll(path, number, [fields for fields in columns if fields])
        has_index = width > columns_read and _has_index(columns)
        if width > columns_read and not has_index:
            _check_words(path, [fields[0] for fields in columns if fields])
    rows = _checked_rows(path, itertools.chain(sample, lines), tabs, width, number)
    return _without_index(path, rows) if has_index else rows, has_index


def _first_lines(lines):
    """Return the first lines, and the one that fixes the separator and the number of columns.

    That line is the first word that cannot be a comment, else the first word.
    """
    sample, words = [], []
    for number, line in lines:
        sample.append((number, line))
        if _is_row(line):
            words.append((number, line))
        if len(sample) >= _SAMPLE and words:
            break
    certain = (word for word in words if not word[1].startswith("#"))
    return sample, next(certain, words[0] if words else None)


def _columns(line, tabs, width):
    """Return the columns of a line; `None` where a sentence ends, and [] for a comment."""
    if not _is_row(line):
        return None
    fields = _split(line, tabs)
    is_comment = _COMMENT.match(fields[0]) or len(fields) != width
    return [] if is_comment and _COMMENT.match(line) else fields


def _checked_rows(path, lines, tabs, width, first):
    """Yield the rows; raise an error for a row that has not `width` columns as the line `first`."""
    for number, line in lines:
        fields = _columns(line, tabs, width)
        if fields is None:
            yield number, None
        elif fields and len(fields) != width:
            raise ValueError(
                f"{path}, line {number}: must have {width} columns separated by "
                f"{'tabs' if tabs else 'spaces'}, as line {first} has; received {len(fields)}"
            )
        elif fields:
            yield number, fields


def _is_row(line):
    """Return True if a line is a word or a comment, False if it ends a sentence."""
    return bool(line.strip()) and not line.startswith("-DOCSTART-")


def _split(line, tabs):
    # Words may hold other white space, and between tabs a word may be a space.
    return line.split("\t") if tabs else [field for field in line.split(" ") if field]


def _check_conll(path, number, rows):
    """Raise an error if the first rows, lists of columns, show another format."""
    if not rows:
        return
    first = rows[0]
    if first[0].startswith(("{", '["', "[{")) or first == ["["]:
        raise ValueError(
            f"{path}, line {number} is JSON. JSON Lines, one sentence a line, have the format "
            '"jsonl" (--format jsonl)'
        )
    if re.fullmatch(r"1(-[0-9]+)?|0\.1", first[0]) and len(first) == _CONLLU_COLUMNS:
        raise ValueError(
            f"{path}, line {number} looks like CoNLL-U, whose first column is an index; give the "
            'format "conllu" (--format conllu), or the column of the word (--word)'
        )


def _check_words(path, words):
    """Raise an error if the first column is the same in all of the first rows."""
    if len(words) > 4 and len(set(words)) == 1:
        raise ValueError(
            f"{path}: the first column is {words[0]!r:.80} in each row; give the column of the "
            "word (--word)"
        )


def _has_index(columns):
    """Return True if the first column numbers the words of each sentence.

    `columns` has the columns of the first lines, as from `_columns`.
    """
    has_words = False
    allowed = {0, 1}
    last = 0
    for fields in columns:
        if fields is None:
            allowed = {0, 1, last + 1}
        if not fields or _OTHER_INDEX.fullmatch(fields[0]):
            continue
        if not _INDEX.fullmatch(fields[0]) or int(fields[0]) not in allowed:
            return False
        last = int(fields[0])
        allowed = {last + 1} if last < 2 else {0, 1, last + 1}
        has_words = has_words or not _NUMBER.fullmatch(fields[1])
    return has_words


def _without_index(path, rows):
    """Yield rows without their first column, and also `None` where it starts again."""
    last = -1
    for number, fields in rows:
        if fields is None:
            yield number, None
        elif _INDEX.fullmatch(fields[0]):
            if int(fields[0]) < 2 and int(fields[0]) <= last:
                yield number, None
            last = int(fields[0])
            yield number, fields[1:]
        elif not _OTHER_INDEX.fullmatch(fields[0]):
            raise ValueError(
                f"{path}, line {number}: the first column must number the words, as in the first "
                f"rows; received {fields[0]!r:.80}. Or give the column of the word (--word)"
            )


def conllu_rows(path, lines) -> Iterator[Row]:
    """Yield the rows of CoNLL-U without ranges of words and empty nodes."""
    for number, line in lines:
        if not line.strip():
            yield number, None
            continue
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != _CONLLU_COLUMNS:
            raise ValueError(
                f"{path}, line {number}: must have {_CONLLU_COLUMNS} columns separated by tabs; "
                f"received {len(fields)}"
            )
        if _INDEX.fullmatch(fields[0]):
            yield number, fields
        elif not _OTHER_INDEX.fullmatch(fields[0]):
            raise ValueError(
                f"{path}, line {number}: must start with an index such as 3, 3-4 or 5.1; "
                f"received {fields[0]!r:.80}"
            )
