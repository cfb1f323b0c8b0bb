"""Tagged sentences from files: CoNLL columns, CoNLL-U, JSON Lines and CSV."""

import collections
import dataclasses
import itertools
import pathlib
import sys

from keras_bert.data.examples import (
    TaskData,
    check_count,
    check_list,
    check_normalization,
    check_strings,
    summary,
)
from keras_bert.data.tables import class_names, column_names, named, read_columns
from keras_bert.data.text_files import check_limit, numbered_lines, open_utf8
from keras_bert.runtime.label_types import name_of_type, of_one_type, typed_texts
from keras_bert.tasks.tagging.conll_rows import conll_rows, conllu_rows
from keras_bert.tasks.tagging.tag_schemes import OUTSIDE_TAGS
from keras_bert.tasks.tagging.tagged_rows import (
    KEYS,
    csv_sentences,
    has_a_word_per_row,
    json_sentences,
    table_sentences,
)

FORMATS = ("conll", "conllu", "jsonl", "csv")
_SUFFIXES = {
    ".conllu": "conllu",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
}

_FORM, _UPOS = 2, 4  # numbers of columns of CoNLL-U, from 1


@dataclasses.dataclass(frozen=True, repr=False)
class TaggedSentences(TaskData):
    """Sentences, each a list of words, optionally with a tag per word.

    Attributes:
        words: The words of each sentence.
        tags: The tags of each sentence, or `None`. Tags of one type, such as integers, keep it, as
            in the results of a model. Tags of several types become strings.
        source: Where the sentences come from, for messages.
        first: Number of the first sentence, from 1, if these sentences are a part of a file.
        label_type: The type of all tags: `"str"`, `"int"`, `"float"` or `"bool"`.

    Raises:
        ValueError: If words and tags differ in number, a word is not a string, or a sentence with
            tags has no words. Sentences without tags may be empty.

    Example:

    >>> TaggedSentences([["Ann", "left"]], [["B-PER", "O"]]).label_names()
    ['O', 'B-PER']
    """

    words: list[list[str]]
    tags: list[list] | None = None
    source: str = "the sentences"
    first: int = 1
    label_type: str = dataclasses.field(init=False, default="str")

    def __post_init__(self):
        check_list(f"{self.source}: words", self.words)
        words = []
        for number, sentence in enumerate(self.words, self.first):
            words.append(check_strings(self._location(number), "words", sentence))
        object.__setattr__(self, "words", words)
        if self.tags is None:
            return
        check_count(self.source, "tags", self.tags, "words", len(words))
        tags = []
        sentences = zip(words, self.tags, strict=True)
        for number, (sentence, sentence_tags) in enumerate(sentences, self.first):
            location = self._location(number)
            if not sentence:
                raise ValueError(f"{location} has no words; leave it out")
            check_list(f"{location}: tags", sentence_tags)
            sentence_tags = list(sentence_tags)
            for tag in sentence_tags:
                if tag is None or tag != tag:  # NaN
                    raise ValueError(f"{location}: tags must not be missing; received {tag!r:.80}")
            check_count(location, "tags", sentence_tags, "words", len(sentence))
            tags.append(sentence_tags)
        label_type = name_of_type(itertools.chain.from_iterable(tags))
        tags = [of_one_type(row, label_type) for row in tags]
        object.__setattr__(self, "tags", tags)
        object.__setattr__(self, "label_type", label_type)
        check_normalization(self.source, "tags", map(str, self.label_names()))

    def __repr__(self):
        return summary(self, len(self), [] if self.tags is None else ["tags"])

    def _location(self, number):
        return f"{self.source}, sentence {number}"

    def sample_of_texts(self, count):
        return [" ".join(words) for words in self.words[:count]]

    def __len__(self):
        return len(self.words)

    def label_names(self):
        """Return the distinct tags, sorted, with "O" or "-" first."""
        names = sorted({tag for row in self.tags or () for tag in row})
        outside = [name for name in OUTSIDE_TAGS if name in names]
        return [*outside, *(name for name in names if name not in outside)]

    def majority_share(self):
        """Return the accuracy of always guessing the most frequent tag, 0 to 1."""
        counts = collections.Counter(tag for row in self.tags or () for tag in row)
        return max(counts.values()) / counts.total()


def read(path, **options):
    r"""Read sentences from a file in CoNLL columns, CoNLL-U, JSON Lines or CSV.

    A file in CoNLL columns has one word per line, and an empty line after each sentence. Columns
    are separated by tabs if the first row holds a tab, else by spaces. All rows have the same
    number of columns. Rows that start with `-DOCSTART-` are skipped. A line that starts with "# "
    or "## " is a comment, unless its first column is only "#" or "##" and it has as many columns
    as the other rows. Metadata such as "# sent_id = 1" is always a comment. If the first column
    numbers the words, the words are in the second, and a line that starts with "#" is a comment.

    In CoNLL-U, ranges such as 3-4 and empty nodes such as 5.1 are skipped. A line of JSON Lines
    is a sentence: `{"words": ["Ann", "left"], "tags": ["B-PER", "O"]}`. A row of a CSV file is a
    word, with the columns `sentence`, `word` and `tag`. Files are UTF-8.

    Source: the shared task of CoNLL-2003; https://universaldependencies.org/format.html.

    Args:
        path: The file.
        word: Column of the word: a number from 1, or from -1 for the last column. In CoNLL-U, the
            default is FORM (column 2). In JSON Lines and CSV, a name.
        tag: Column of the tag; `None` reads no tags. In CoNLL-U, the default is UPOS (column 4).
            In JSON Lines and CSV, a name.
        format: `"conll"`, `"conllu"`, `"jsonl"` or `"csv"`; by default from the file's extension,
            `"conll"` for others.
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


def read_table(table, *, word=1, tag=-1, limit=None):
    """Read `TaggedSentences` from a table; `word` and `tag` name its columns.

    A row is a sentence with lists of words and tags, or a word as in CSV files.
    """
    columns = column_names(table)
    if has_a_word_per_row(columns):
        check_limit(limit)
        rows = table_sentences("the table", table, columns, word, tag)
        sentences = list(itertools.islice(rows, limit))
        words = [words_of_sentence for words_of_sentence, _ in sentences]
        tags = None if tag is None else [tags_of_sentence for _, tags_of_sentence in sentences]
        return TaggedSentences(words, tags, source="the table")
    word = KEYS.get(word, word)
    tag = KEYS.get(tag, tag)
    names = [name for name in (word, tag) if name is not None]
    values = read_columns(table, names, (), limit, "TaggedSentences")
    words = [list(row) for row in values[word]]
    if tag is None:
        return TaggedSentences(words, source="the table")
    _, classes = class_names(table, tag)
    tags = values[tag]
    if classes:
        tags = [named(row, classes, itertools.repeat(number)) for number, row in enumerate(tags, 1)]
    return TaggedSentences(words, tags, source="the table")


def read_in_parts(path, *, word=1, tag=-1, format=None, limit=None, size=10_000):
    """Yield `TaggedSentences` of at most `size` sentences; options as in `read`."""
    path = pathlib.Path(path)
    check_limit(limit)
    format = format or _SUFFIXES.get(path.suffix.lower(), "conll")
    if format not in FORMATS:
        raise ValueError(
            f"{path}: the format must be one of {', '.join(FORMATS)}; received {format!r:.80}"
        )
    for name, column in (("word", word), ("tag", tag)):
        if column is not None or name == "word":
            _check_column(path, name, column, format)
    if format == "conllu":
        word = _FORM if word == 1 else word
        tag = _UPOS if tag == -1 else tag
    first = 1
    with open_utf8(path, newline="" if format == "csv" else "\n") as file:
        sentences = itertools.islice(_sentences(path, file, word, tag, format), limit)
        while part := list(itertools.islice(sentences, size)):
            words, tags = map(list, zip(*part, strict=True))
            if format != "jsonl":
                tags = _typed(tags)
            yield TaggedSentences(words, None if tag is None else tags, str(path), first)
            first += len(part)
    if first == 1:
        raise ValueError(f"{path} contains no sentences")


def _typed(tags):
    """Return the tags of a file without types in the type that all of them show."""
    typed_tags = iter(typed_texts([tag for row in tags for tag in row]))
    return [list(itertools.islice(typed_tags, len(row))) for row in tags]


def _check_column(path, name, column, format):
    """Raise an error unless a column is a number, or a name in a format with names."""
    if format in ("jsonl", "csv"):
        if not isinstance(column, str) and column not in (1, -1):
            raise ValueError(
                f"{path}: the column of the {name} must be a name in {format}; received "
                f"{column!r:.80}"
            )
    elif not isinstance(column, int) or isinstance(column, bool) or column == 0:
        raise ValueError(
            f"{path}: the column of the {name} must be a number from 1, or from -1 for the "
            f"last column; received {column!r:.80}"
        )


def _sentences(path, file, word, tag, format):
    """Yield the words and the tags of each sentence; the tags are unused if `tag` is `None`."""
    if format == "jsonl":
        return json_sentences(path, file, word, tag)
    if format == "csv":
        return csv_sentences(path, file, word, tag)
    lines = numbered_lines(path, file)
    if format == "conllu":
        # "_" is a missing value, which is an error only in the column UPOS.
        empty = {"", "_"} if tag == _UPOS else {""}
        return _sentences_of_rows(path, conllu_rows(path, lines), word, tag, empty)
    columns_read = 1 if tag is None else 2
    rows, has_index = conll_rows(path, lines, columns_read if word == 1 else None)
    if has_index and tag is not None and tag > 1:
        tag -= 1  # the rows are without their index
    return _sentences_of_rows(path, rows, word, tag, {""})


def _sentences_of_rows(path, rows, word, tag, empty):
    """Yield the words and the tags of each sentence from the rows of `conll_rows`.

    A tag in `empty` is an error. Without tags to read, all tags are "".
    """
    words: list[str] = []
    tags: list[str] = []
    indices = None
    end_of_file = (0, None)  # ends the last sentence, since the last empty line may be missing
    for line_number, fields in itertools.chain(rows, [end_of_file]):
        if fields is not None:
            location = f"{path}, line {line_number}"
            if indices is None:  # the first row decides, because all rows have the same columns
                indices = _column_indices(location, len(fields), word, tag)
            words.append(fields[indices[0]])
            tags.append("" if tag is None else fields[indices[1]].strip())
            if not words[-1]:
                raise ValueError(f"{location}: the word is empty")
            if tag is not None and tags[-1] in empty:
                raise ValueError(f"{location}: the tag is empty")
        elif words:
            yield words, tags
            words = []
            tags = []


def _column_indices(location, width, word, tag):
    """Return the indices of the word and, unless `tag` is `None`, of the tag in a row."""
    columns = [column for column in (word, tag) if column is not None]
    indices = [column - 1 if column > 0 else width + column for column in columns]
    is_outside = min(indices) < 0 or max(indices) >= width
    is_repeated = len(set(indices)) < len(indices)
    if is_outside or is_repeated:
        wanted = f"column {word} for the word"
        if tag is not None:
            wanted += f" and a different column, {tag}, for the tag"
        received = "1 column" if width == 1 else f"{width} columns"
        raise ValueError(f"{location}: must have {wanted}; received {received}")
    return indices
