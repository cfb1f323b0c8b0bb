"""Tagged sentences from files in CoNLL columns and in CoNLL-U."""

import collections
import dataclasses
import itertools
import pathlib
import re
import sys

from keras_bert.data.examples import TaskData, check_count, check_list, check_strings, summary
from keras_bert.data.text_files import check_limit, numbered_lines, open_utf8

FORMATS = ("conll", "conllu")
OUTSIDE = "O"  # the tag of words outside of all entities

_CONLLU_COLUMNS = 10
_FORM, _UPOS = 2, 4  # numbers of columns of CoNLL-U, from 1


@dataclasses.dataclass(frozen=True, repr=False)
class TaggedSentences(TaskData):
    """Sentences, each a list of words, optionally with a tag per word.

    Attributes:
        words: The words of each sentence.
        tags: The tags of each sentence, or `None`. Tags are converted to strings.
        source: Where the sentences come from, for messages.
        first: Number of the first sentence, from 1, if these sentences are a part of a file.

    Raises:
        ValueError: If words and tags differ in number, a word is not a string, or a sentence with
            tags has no words. Sentences without tags may be empty.

    Example:

    >>> TaggedSentences([["Ann", "left"]], [["B-PER", "O"]]).label_names()
    ['O', 'B-PER', 'I-PER']
    """

    words: list[list[str]]
    tags: list[list[str]] | None = None
    source: str = "the sentences"
    first: int = 1

    def __post_init__(self):
        check_list(f"{self.source}: words", self.words)
        words = [
            check_strings(self._location(number), "words", row)
            for number, row in enumerate(self.words, self.first)
        ]
        object.__setattr__(self, "words", words)
        if self.tags is None:
            return
        check_count(self.source, "tags", self.tags, "words", len(words))
        tags = []
        rows = zip(words, self.tags, strict=True)
        for number, (sentence, row) in enumerate(rows, self.first):
            location = self._location(number)
            if not sentence:
                raise ValueError(f"{location} has no words")
            check_list(f"{location}: tags", row)
            row = list(row)
            for tag in row:
                if tag is None or tag != tag:  # NaN
                    raise ValueError(f"{location}: tags must not be missing; received {tag!r}")
            check_count(location, "tags", row, "words", len(sentence))
            tags.append([str(tag) for tag in row])
        object.__setattr__(self, "tags", tags)

    def __repr__(self):
        return summary(self, len(self), [] if self.tags is None else ["tags"])

    def _location(self, number):
        return f"{self.source}, sentence {number}"

    def __len__(self):
        return len(self.words)

    def label_names(self):
        """Return the distinct tags, sorted, with "O" first.

        If "B-x" or "I-x" occurs, both are included, because another file may contain both.
        """
        names = {tag for row in self.tags or () for tag in row}
        for name in sorted(names):
            if is_bio(name):
                names |= {"B-" + name[2:], "I-" + name[2:]}
        return sorted(names, key=lambda name: (name != OUTSIDE, name))

    def majority_share(self):
        """Return the accuracy of always guessing the most frequent tag, 0 to 1."""
        counts = collections.Counter(tag for row in self.tags or () for tag in row)
        return max(counts.values()) / counts.total()


def is_bio(tag):
    """Return True if a tag marks a word of an entity: it starts with "B-" or "I-"."""
    return tag.startswith(("B-", "I-"))


def read(path, **options):
    r"""Read sentences from a file in CoNLL columns or in CoNLL-U.

    A file in CoNLL columns has one word per line, and an empty line after each sentence. Columns
    are separated by tabs if the first row holds a tab, else by spaces. All rows have the same
    number of columns. Rows that start with `-DOCSTART-` are skipped. A line that starts with "# "
    or "## " is a comment, unless its first column is only "#" or "##" and it has as many columns
    as the other rows.

    In CoNLL-U, ranges such as 3-4 and empty nodes such as 5.1 are skipped. Files are UTF-8.

    Source: the shared task of CoNLL-2003; https://universaldependencies.org/format.html.

    Args:
        path: The file.
        word: Column of the word: a number from 1, or from -1 for the last column. In CoNLL-U, the
            default is FORM (column 2).
        tag: Column of the tag; `None` reads no tags. In CoNLL-U, the default is UPOS (column 4).
        format: `"conll"` or `"conllu"`; by default `"conllu"` for files that end in .conllu.
        limit: Maximum number of sentences to read.

    Returns:
        The `TaggedSentences`.

    Raises:
        ValueError: If the format is unknown, a row has the wrong number of columns, a word or a
            tag is empty, the file is not UTF-8, or it holds no sentences. The message names the
            file and the line.
        OSError: If the file cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "names.tsv")
    ...     _ = file.write_text("Ann\tB-PER\nleft\tO\n\nGo\tO\n")
    ...     sentences = read(file)
    >>> sentences.words, sentences.tags
    ([['Ann', 'left'], ['Go']], [['B-PER', 'O'], ['O']])
    """
    return next(read_in_parts(path, size=sys.maxsize, **options))


def read_in_parts(path, *, word=1, tag=-1, format=None, limit=None, size=10_000):
    """Yield `TaggedSentences` of at most `size` sentences; options as in `read`."""
    path = pathlib.Path(path)
    check_limit(limit)
    format = format or ("conllu" if path.suffix.lower() == ".conllu" else "conll")
    if format not in FORMATS:
        raise ValueError(
            f"{path}: the format must be one of {', '.join(FORMATS)}; received {format!r}"
        )
    for name, column in (("word", word), ("tag", tag)):
        if column is None and name == "tag":
            continue
        if not isinstance(column, int) or isinstance(column, bool) or column == 0:
            raise ValueError(
                f"{path}: the column of the {name} must be a number from 1, or from -1 for the "
                f"last column; received {column!r}"
            )
    if format == "conllu":
        word = _FORM if word == 1 else word
        tag = _UPOS if tag == -1 else tag
    first = 1
    with open_utf8(path) as file:
        sentences = itertools.islice(_sentences(path, file, word, tag, format), limit)
        while part := list(itertools.islice(sentences, size)):
            words, tags = map(list, zip(*part, strict=True))
            yield TaggedSentences(words, None if tag is None else tags, str(path), first)
            first += len(part)
    if first == 1:
        raise ValueError(f"{path} contains no sentences")


def _sentences(path, file, word, tag, format):
    """Yield the words and the tags of each sentence; the tags are "" if `tag` is `None`."""
    # In CoNLL-U, "_" is a missing value, which is an error only in the column UPOS.
    empty = {"", "_"} if format == "conllu" and tag == _UPOS else {""}
    rows = (_conllu_rows if format == "conllu" else _conll_rows)(path, numbered_lines(path, file))
    words: list[str] = []
    tags: list[str] = []
    indices = None
    for number, fields in itertools.chain(rows, [(0, None)]):  # the last empty line may be missing
        if fields is not None:
            if indices is None:  # the first row decides, because all rows have the same columns
                if format == "conll":
                    _check_conll(path, number, fields, word)
                indices = _column_indices(path, number, len(fields), word, tag)
            words.append(fields[indices[0]])
            tags.append("" if tag is None else fields[indices[1]].strip())
            if not words[-1]:
                raise ValueError(f"{path}, line {number}: the word is empty")
            if tag is not None and tags[-1] in empty:
                raise ValueError(f"{path}, line {number}: the tag is empty")
        elif words:
            yield words, tags
            words, tags = [], []


def _check_conll(path, number, fields, word):
    """Raise an error if the first row of a file in CoNLL columns shows another format."""
    if fields[0].startswith(('{"', "[{", '["')):
        raise ValueError(f"{path}, line {number} is JSON; tags are read from CoNLL columns")
    has_index = re.fullmatch(r"1(-[0-9]+)?|0\.1", fields[0])
    if word == 1 and has_index and len(fields) == _CONLLU_COLUMNS:
        raise ValueError(
            f"{path}, line {number} looks like CoNLL-U, whose first column is an index; give the "
            'format "conllu" (--format conllu), or the column of the word (--word)'
        )


def _conll_rows(path, lines):
    """Yield the line number and the columns of each row; `None` where a sentence ends."""
    # The first row that cannot be a comment fixes the separator and the number of columns.
    read, rows = [], []
    for number, line in lines:
        read.append((number, line))
        if _is_row(line):
            rows.append((number, line))
            if not line.startswith("#"):
                break
    if not rows:
        return
    first, sample = rows[0] if rows[-1][1].startswith("#") else rows[-1]
    tabs = "\t" in sample
    width = len(_split(sample, tabs))
    for number, line in itertools.chain(read, lines):
        if not _is_row(line):
            yield number, None
            continue
        fields = _split(line, tabs)
        if re.match(r"#+\s", line) and (re.match(r"#+\s", fields[0]) or len(fields) != width):
            continue
        if len(fields) != width:
            raise ValueError(
                f"{path}, line {number}: must have {width} columns separated by "
                f"{'tabs' if tabs else 'spaces'}, as line {first} has; received {len(fields)}"
            )
        yield number, fields


def _is_row(line):
    """Return True if a line is a word or a comment, False if it ends a sentence."""
    return bool(line.strip()) and not line.startswith("-DOCSTART-")


def _split(line, tabs):
    # Words may hold other white space, and between tabs a word may be a space.
    return line.split("\t") if tabs else [field for field in line.split(" ") if field]


def _conllu_rows(path, lines):
    """Yield the line number and the columns of each word; `None` where a sentence ends."""
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
        if re.fullmatch(r"[0-9]+", fields[0]):
            yield number, fields
        elif not re.fullmatch(r"[0-9]+[-.][0-9]+", fields[0]):
            raise ValueError(
                f"{path}, line {number}: must start with an index such as 3, 3-4 or 5.1; "
                f"received {fields[0]!r:.80}"
            )


def _column_indices(path, number, width, word, tag):
    """Return the indices of the word and, unless `tag` is `None`, of the tag in a row."""
    columns = [column for column in (word, tag) if column is not None]
    indices = [column - 1 if column > 0 else width + column for column in columns]
    if min(indices) < 0 or max(indices) >= width or len(set(indices)) < len(indices):
        wanted = f"column {word} for the word"
        wanted += "" if tag is None else f" and a different column, {tag}, for the tag"
        received = "1 column" if width == 1 else f"{width} columns"
        raise ValueError(f"{path}, line {number}: must have {wanted}; received {received}")
    return indices
