"""The rows of files in CoNLL columns and in CoNLL-U, with errors that name the line."""

import dataclasses
import re
from collections.abc import Iterator

from keras_bert.runtime.escaping import shown

_INDEX = re.compile(r"[0-9]{1,9}")
_OTHER_INDEX = re.compile(r"[0-9]+[-.][0-9]+")  # a range of words or an empty node in CoNLL-U
_NUMBER = re.compile(r"[-+]?[0-9.]+")
_COMMENT = re.compile(r"#+\s|#(begin|end) document\b")
_METADATA = re.compile(r"#+ +(.*\S +=( |$)|new(doc|par)( |$))")  # such as "# sent_id = 1"
# Signs of a text in a column: a space between words; a period at the end of a word.
_SPACE = re.compile(r"\S \S")
_PERIOD = re.compile(r"\w[.!?。][\"')\]”’]*$")
_OTHER_FORMAT = re.compile(
    r'(?P<jsonl>\{|\[["{]|\[$)|(?P<conllu>(?:1|1-[0-9]+|0\.1)\t(?:[^\t]*\t){8}[^\t]*$)'
)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Separator and number of columns; `has_index` if the first one numbers the words."""

    has_tabs: bool
    width: int
    has_index: bool


CONLLU = Layout(has_tabs=True, width=10, has_index=True)


def find_layout(path, lines, columns_read) -> Layout | None:
    """Return the layout that the first lines show, or `None` if they have no words.

    `lines` are pairs of a number and a line. The first column can only be an index if there are
    more columns than `columns_read`, and never if `columns_read` is `None`.
    """
    words = [line for line in lines if _is_row(line[1])]
    if not words:
        return None
    # The first word that cannot be a comment shows the separator and the number of columns.
    number, line = next((word for word in words if word[1][0] != "#"), words[0])
    has_tabs = "\t" in line
    layout = Layout(has_tabs, len(_split(line, has_tabs)), has_index=False)
    if columns_read is None:
        return layout
    other = _OTHER_FORMAT.match(line)
    if other:  # its fields would be read as words
        raise ValueError(
            f"{path}, line {number} looks like the format {other.lastgroup!r}. Give that format "
            f"(--format {other.lastgroup}), or the column of the word (--word)"
        )
    columns = [_columns(line, layout) for _, line in lines]
    if layout.width > columns_read and _has_index(columns):
        return dataclasses.replace(layout, has_index=True)
    if _hold_texts(columns, layout, columns_read):
        raise ValueError(
            f"{path} looks like a file of texts. Tagging needs a word per line, and an empty line "
            "after each sentence. Labels of whole texts are for the task 'classification' (--task "
            "classification)"
        )
    if layout.width <= columns_read:
        return layout
    first_column = [fields[0] for fields in columns if fields]
    if len(first_column) > 4 and len(set(first_column)) == 1:
        raise ValueError(
            f"{path}: the first column is {shown(first_column[0])} in each row; give the column of "
            "the word (--word)"
        )
    return layout


def _hold_texts(columns, layout, columns_read):
    """Return True if most of the first lines hold a text in place of a word and its tag.

    `columns` is a list with the result of `_columns` for each line.
    """
    rows = [fields for fields in columns if fields]
    if layout.has_tabs:
        fields_read = [row[:1] if columns_read == 1 else [row[0], row[-1]] for row in rows]
        texts = [fields for fields in fields_read if any(map(_SPACE.search, fields))]
    elif layout.width > columns_read and None not in columns:
        return True  # no line ends a sentence, and some words of each line would not be read
    else:
        texts = [row for row in rows if _PERIOD.search(row[-1])]
    return len(texts) > len(rows) / 2


def rows(path, lines, layout) -> Iterator[tuple[int, list[str] | None]]:
    """Yield the number of each line, and the columns of a word or `None` where a sentence ends."""
    last_index = -1
    for number, line in lines:
        fields = _columns(line, layout)
        if fields is None:
            yield number, None
            continue
        if not fields:
            continue
        if len(fields) != layout.width:
            separator = "tabs" if layout.has_tabs else "spaces"
            raise ValueError(
                f"{path}, line {number}: must have {layout.width} columns separated by "
                f"{separator}; received {len(fields)}. Write one word per line"
            )
        if layout.has_index:
            if _OTHER_INDEX.fullmatch(fields[0]):
                continue
            if not _INDEX.fullmatch(fields[0]):
                raise ValueError(
                    f"{path}, line {number}: the first column must be an index such as 3, 3-4 or "
                    f"5.1; received {shown(fields[0])}. Or give the column of the word (--word)"
                )
            index = int(fields[0])
            if index < 2 and index <= last_index:
                yield number, None
            last_index = index
        yield number, fields


def _columns(line, layout):
    """Return the columns of a line; `None` where a sentence ends, and [] for a comment."""
    if not _is_row(line):
        return None
    if _METADATA.match(line) or layout.has_index and line.startswith("#"):
        return []
    fields = _split(line, layout.has_tabs)
    # "# NN", with as many columns as the other rows, is the word "#" and not a comment.
    looks_like_comment = _COMMENT.match(fields[0]) or len(fields) != layout.width
    return [] if looks_like_comment and _COMMENT.match(line) else fields


def _is_row(line):
    """Return True if a line is a word or a comment, False if it ends a sentence."""
    return bool(line.strip()) and not line.startswith("-DOCSTART-")


def _split(line, has_tabs):
    # Words may hold other white space, and between tabs a word may be a space.
    return line.split("\t") if has_tabs else [field for field in line.split(" ") if field]


def _has_index(columns):
    """Return True if the first column numbers the words of each sentence, from 0 or 1.

    `columns` is a list with the result of `_columns` for each of the first lines.
    """
    has_words = False
    expected = {0, 1}
    for fields in columns:
        if fields is None:
            expected |= {0, 1}
        if not fields or fields[0].startswith("#") or _OTHER_INDEX.fullmatch(fields[0]):
            continue
        index = int(fields[0]) if _INDEX.fullmatch(fields[0]) else None
        if index not in expected or len(fields) < 2:
            return False
        # Without empty lines, a sentence ends where the index is 0 or 1 again.
        expected = {index + 1, 0, 1} if index > 1 else {index + 1}
        if not _NUMBER.fullmatch(fields[1]):
            has_words = True
    return has_words
