"""The rows of files in CoNLL columns and in CoNLL-U, with errors that name the line.

A row is a pair: the line number; and the columns of a word, or `None` where a sentence ends.
"""

import itertools
import re
from collections.abc import Iterator

Row = tuple[int, list[str] | None]

_CONLLU_COLUMNS = 10
_SAMPLE_LINES = 200  # lines that show whether the first column is an index
_INDEX = re.compile(r"[0-9]{1,9}")
_OTHER_INDEX = re.compile(r"[0-9]+[-.][0-9]+")  # a range of words or an empty node in CoNLL-U
_NUMBER = re.compile(r"[-+]?[0-9.]+")
_COMMENT = re.compile(r"#+\s|#(begin|end) document\b")
_METADATA = re.compile(r"#+ +(.*\S +=( |$)|new(doc|par)( |$))")  # such as "# sent_id = 1"
_JSON = re.compile(r'\{|\[["{]|\[$')
_CONLLU = re.compile(r"(1|1-[0-9]+|0\.1)\t([^\t]*\t){8}[^\t]*")


def conll_rows(path, lines, columns_read) -> tuple[Iterator[Row], bool]:
    """Return the rows of CoNLL columns, and True if their first column numbers the words.

    The first column can only be an index if there are more columns than `columns_read`. If
    `columns_read` is `None`, the first column is never taken for an index.
    """
    lines = itertools.dropwhile(lambda line: not _is_row(line[1]), lines)
    sample = list(itertools.islice(lines, _SAMPLE_LINES))
    words = [line for line in sample if _is_row(line[1])]
    if not words:
        return iter(()), False
    # The first word that cannot be a comment shows the separator and the number of columns.
    layout_number, layout = next((word for word in words if word[1][0] != "#"), words[0])
    tabs = "\t" in layout
    width = len(_split(layout, tabs))
    rows = _checked_rows(path, itertools.chain(sample, lines), tabs, width, layout_number)
    if columns_read is None:
        return rows, False
    _check_format(path, layout_number, layout)
    columns = [_columns(line, tabs, width) for _, line in sample]
    if width > columns_read and _has_index(columns):
        return _split_at_index(path, rows), True
    first_column = [fields[0] for fields in columns if fields]
    if width > columns_read and len(first_column) > 4 and len(set(first_column)) == 1:
        raise ValueError(
            f"{path}: the first column is {first_column[0]!r:.80} in each row; give the column of "
            "the word (--word)"
        )
    return rows, False


def _columns(line, tabs, width):
    """Return the columns of a line; `None` where a sentence ends, and [] for a comment."""
    if not _is_row(line):
        return None
    if _METADATA.match(line):
        return []
    fields = _split(line, tabs)
    # "# NN", with as many columns as the other rows, is the word "#" and not a comment.
    looks_like_comment = _COMMENT.match(fields[0]) or len(fields) != width
    return [] if looks_like_comment and _COMMENT.match(line) else fields


def _checked_rows(path, lines, tabs, width, layout_number):
    """Yield the rows. Check that each has `width` columns, as the line `layout_number` has."""
    for number, line in lines:
        fields = _columns(line, tabs, width)
        if fields is None:
            yield number, None
        elif fields and len(fields) != width:
            separator = "tabs" if tabs else "spaces"
            raise ValueError(
                f"{path}, line {number}: must have {width} columns separated by {separator}, as "
                f"line {layout_number} has; received {len(fields)}"
            )
        elif fields:
            yield number, fields


def _is_row(line):
    """Return True if a line is a word or a comment, False if it ends a sentence."""
    return bool(line.strip()) and not line.startswith("-DOCSTART-")


def _split(line, tabs):
    # Words may hold other white space, and between tabs a word may be a space.
    return line.split("\t") if tabs else [field for field in line.split(" ") if field]


def _check_format(path, number, line):
    """Raise an error if a line shows another format, whose fields would be read as words."""
    formats = {"jsonl": _JSON.match(line), "conllu": _CONLLU.fullmatch(line)}
    for format, match in formats.items():
        if match:
            raise ValueError(
                f"{path}, line {number} looks like the format {format!r}. Give that format "
                f"(--format {format}), or the column of the word (--word)"
            )


def _has_index(columns):
    """Return True if the first column numbers the words of each sentence, from 0 or 1.

    `columns` is a list with the result of `_columns` for each of the first lines.
    """
    has_words = False
    is_after_end = True
    last = -1
    for fields in columns:
        if fields is None:
            is_after_end = True
        if not fields or _is_beside_index(fields[0]):
            continue
        index = int(fields[0]) if _INDEX.fullmatch(fields[0]) else -1
        # Without empty lines, a sentence ends where the index is 0 or 1 again.
        starts_sentence = index in (0, 1) and (is_after_end or last > 1)
        if index < 0 or not starts_sentence and index != last + 1:
            return False
        is_after_end = False
        last = index
        if not _NUMBER.fullmatch(fields[1]):
            has_words = True
    return has_words


def _is_beside_index(first):
    """Return True if the first column of a row shows no word: a comment, a range, an empty node."""
    return first.startswith("#") or _OTHER_INDEX.fullmatch(first) is not None


def _split_at_index(path, rows):
    """Yield the rows of words, and also `None` where the index starts again."""
    last = -1
    for number, fields in rows:
        if fields is None:
            yield number, None
        elif _INDEX.fullmatch(fields[0]):
            index = int(fields[0])
            if index < 2 and index <= last:
                yield number, None
            last = index
            yield number, fields
        elif not _is_beside_index(fields[0]):
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
                f"{path}, line {number}: must start with an index such as 3, 3-4 or 5.1; received "
                f"{fields[0]!r:.80}"
            )
