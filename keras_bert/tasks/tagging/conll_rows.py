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


def conll_rows(path, lines, columns_read) -> tuple[Iterator[Row], bool]:
    """Return the rows of CoNLL columns without an index, and True if the file has an index.

    The first column can only be an index if there are more columns than `columns_read`. If
    `columns_read` is `None`, the first column is never taken for an index.
    """
    sample, layout_line = _first_lines(lines)
    if layout_line is None:
        return iter(()), False
    line_number, line = layout_line
    tabs = "\t" in line
    width = len(_split(line, tabs))
    has_index = False
    if columns_read is not None:
        columns = [_columns(line, tabs, width) for _, line in sample]
        words = [fields for fields in columns if fields]
        _check_conll(path, line_number, words)
        if width > columns_read:
            has_index = _has_index(columns)
            if not has_index:
                _check_words(path, [fields[0] for fields in words])
    rows = _checked_rows(path, itertools.chain(sample, lines), tabs, width, line_number)
    if has_index:
        rows = _without_index(path, rows)
    return rows, has_index


def _first_lines(lines):
    """Return the first lines, and the one that fixes the separator and the number of columns.

    That line is the first word that cannot be a comment, else the first word.
    """
    sample = []
    words = []
    for line_number, line in lines:
        sample.append((line_number, line))
        if _is_row(line):
            words.append((line_number, line))
        if len(sample) >= _SAMPLE_LINES and words:
            break
    for line_number, line in words:
        if not line.startswith("#"):
            return sample, (line_number, line)
    return sample, words[0] if words else None


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


def _checked_rows(path, lines, tabs, width, layout_line_number):
    """Yield the rows. Check that each has `width` columns, as the line `layout_line_number` has."""
    for line_number, line in lines:
        fields = _columns(line, tabs, width)
        if fields is None:
            yield line_number, None
        elif fields and len(fields) != width:
            separator = "tabs" if tabs else "spaces"
            raise ValueError(
                f"{path}, line {line_number}: must have {width} columns separated by {separator}, "
                f"as line {layout_line_number} has; received {len(fields)}"
            )
        elif fields:
            yield line_number, fields


def _is_row(line):
    """Return True if a line is a word or a comment, False if it ends a sentence."""
    return bool(line.strip()) and not line.startswith("-DOCSTART-")


def _split(line, tabs):
    # Words may hold other white space, and between tabs a word may be a space.
    return line.split("\t") if tabs else [field for field in line.split(" ") if field]


def _check_conll(path, line_number, rows):
    """Raise an error if the first rows, lists of columns, show another format."""
    if not rows:
        return
    first = rows[0]
    if first[0].startswith(("{", '["', "[{")) or first == ["["]:
        raise ValueError(
            f"{path}, line {line_number} is JSON. JSON Lines, one sentence a line, have the format "
            '"jsonl" (--format jsonl)'
        )
    if re.fullmatch(r"1(-[0-9]+)?|0\.1", first[0]) and len(first) == _CONLLU_COLUMNS:
        raise ValueError(
            f"{path}, line {line_number} looks like CoNLL-U, whose first column is an index; give "
            'the format "conllu" (--format conllu), or the column of the word (--word)'
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

    `columns` is a list with the result of `_columns` for each of the first lines.
    """
    has_words = False
    allowed = {0, 1}
    last = 0
    for fields in columns:
        if fields is None:
            allowed = {0, 1, last + 1}
        if not fields or _is_beside_index(fields[0]):
            continue
        if not _INDEX.fullmatch(fields[0]) or int(fields[0]) not in allowed:
            return False
        last = int(fields[0])
        # Without empty lines, a sentence ends where the index is 0 or 1 again.
        allowed = {last + 1} if last < 2 else {0, 1, last + 1}
        if not _NUMBER.fullmatch(fields[1]):
            has_words = True
    return has_words


def _is_beside_index(first):
    """Return True if the first column of a row shows no word: a comment, a range, an empty node."""
    return first.startswith("#") or _OTHER_INDEX.fullmatch(first) is not None


def _without_index(path, rows):
    """Yield rows without their first column, and also `None` where it starts again."""
    last = -1
    for line_number, fields in rows:
        if fields is None:
            yield line_number, None
        elif _INDEX.fullmatch(fields[0]):
            index = int(fields[0])
            starts_sentence = index < 2 and index <= last
            if starts_sentence:
                yield line_number, None
            last = index
            yield line_number, fields[1:]
        elif not _is_beside_index(fields[0]):
            raise ValueError(
                f"{path}, line {line_number}: the first column must number the words, as in the "
                f"first rows; received {fields[0]!r:.80}. Or give the column of the word (--word)"
            )


def conllu_rows(path, lines) -> Iterator[Row]:
    """Yield the rows of CoNLL-U without ranges of words and empty nodes."""
    for line_number, line in lines:
        if not line.strip():
            yield line_number, None
            continue
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != _CONLLU_COLUMNS:
            raise ValueError(
                f"{path}, line {line_number}: must have {_CONLLU_COLUMNS} columns separated by "
                f"tabs; received {len(fields)}"
            )
        if _INDEX.fullmatch(fields[0]):
            yield line_number, fields
        elif not _OTHER_INDEX.fullmatch(fields[0]):
            raise ValueError(
                f"{path}, line {line_number}: must start with an index such as 3, 3-4 or 5.1; "
                f"received {fields[0]!r:.80}"
            )
