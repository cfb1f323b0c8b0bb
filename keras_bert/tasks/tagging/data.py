"""Tagged sentences from files: CoNLL columns, CoNLL-U, JSON Lines and CSV."""

import copy
import csv
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterable, Iterator

from keras_bert.data import text_files
from keras_bert.data.examples import (
    TaskData,
    check_count,
    check_labels,
    check_normalization,
    check_strings,
    summary,
)
from keras_bert.data.label_columns import clean, is_missing
from keras_bert.data.tables import class_names, column_names, named, read_columns
from keras_bert.data.text_files import check_limit, json_rows, numbered_lines, open_utf8
from keras_bert.runtime.arguments import as_list, check_one_of
from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.label_types import name_of_type, typed, typed_texts
from keras_bert.tasks.tagging import conll_rows
from keras_bert.tasks.tagging.tag_schemes import OUTSIDE_TAGS, unknown_tags

FORMATS = ("conll", "conllu", "jsonl", "csv")
_FORMAT_OF_SUFFIX = {**text_files.FORMATS, ".conllu": "conllu", ".tsv": "conll", ".txt": "conll"}

_SAMPLE_LINES = 200  # lines that show the layout of CoNLL columns

# The defaults of `word` and `tag` are numbers of columns. In other formats, they stand for these.
_CONLLU_COLUMNS = {1: 2, -1: 4}  # FORM and UPOS
_KEYS = {1: "words", -1: "tags"}  # of JSON, and columns of tables with a sentence per row
_COLUMNS = {1: "word", -1: "tag"}  # of CSV, and of tables with a word per row


class _Tags(list):
    """The tags of a sentence with `None` for unknown ones. In other lists, "-" may be unknown."""


@dataclasses.dataclass(frozen=True, repr=False)
class TaggedSentences(TaskData):
    """Sentences, each a list of words, optionally with a tag per word.

    Attributes:
        words: The words of each sentence.
        tags: The tags of each sentence, or `None`. Tags of one type, such as integers, keep it, as
            in the results of a model. Tags of several types become strings. A tag that is not
            known is `None`: -100, and "-" unless it is the tag outside of entities. Its word is
            neither trained on nor scored.
        source: Where the sentences come from, for messages.
        first: Number of the first sentence, from 1, if these sentences are a part of a file.
        label_type: The type of all tags: `"str"`, `"int"`, `"float"` or `"bool"`.

    Raises:
        ValueError: If words and tags differ in number, a word is not a string, or a tag is
            missing.

    Example:

    >>> TaggedSentences([["Ann", "left"]], [["B-PER", "O"]]).label_names()
    ['O', 'B-PER']
    """

    words: list[list[str]]
    tags: list[list] | None = None
    source: str = "the sentences"
    first: int = 1
    label_type: str = dataclasses.field(init=False, default="str")
    row_fields = ("words", "tags")

    def __post_init__(self):
        words = []
        sentences = as_list(f"{self.source}: words", self.words)
        for number, sentence in enumerate(sentences, self.first):
            words.append(check_strings(self._location(number), "words", sentence))
        object.__setattr__(self, "words", words)
        if self.tags is None:
            return
        tags_per_sentence = as_list(f"{self.source}: tags", self.tags)
        if len(tags_per_sentence) != len(words):
            raise ValueError(
                f"{self.source}: there are {len(words)} sentences, but {len(tags_per_sentence)} "
                "lists of tags"
            )
        if not all(isinstance(row, _Tags) for row in tags_per_sentence):
            tags_per_sentence = self._checked_tags(tags_per_sentence)
        rows = zip(words, tags_per_sentence, strict=True)
        for number, (sentence, sentence_tags) in enumerate(rows, self.first):
            check_count(self._location(number), "tags", sentence_tags, "words", len(sentence))
        known = (tag for row in tags_per_sentence for tag in row if tag is not None)
        label_type = name_of_type(known)
        typed_tags = [_of_one_type(row, label_type) for row in tags_per_sentence]
        object.__setattr__(self, "tags", typed_tags)
        object.__setattr__(self, "label_type", label_type)
        check_normalization(self.source, "tags", map(str, self.label_names()))

    def _checked_tags(self, tags_per_sentence):
        """Return the tags of each sentence, with `None` for unknown ones."""
        tags = []
        for number, sentence_tags in enumerate(tags_per_sentence, self.first):
            location = self._location(number)
            cleaned = [clean(tag) for tag in as_list(f"{location}: tags", sentence_tags)]
            check_labels("tags", cleaned, functools.partial(_location_of_word, location))
            tags.append(cleaned)
        return _without_unknown(tags)

    def counts(self):
        unknown = sum(row.count(None) for row in self.tags or ())
        return {"words_without_tag": unknown} if unknown else {}

    def __repr__(self):
        return summary(self, len(self), [] if self.tags is None else ["tags"])

    def _location(self, number):
        return f"{self.source}, sentence {number}"

    def __getitem__(self, rows):
        part = copy.copy(self)  # `dataclasses.replace` would check all words again
        for name, values in self._parts(rows).items():
            object.__setattr__(part, name, values)
        start, _, step = rows.indices(len(self))
        object.__setattr__(part, "first", self.first + start if step == 1 else 1)
        return part

    def sample_of_texts(self, count):
        return [" ".join(words) for words in self.words[:count]]

    def __len__(self):
        return len(self.words)

    def label_names(self):
        """Return the distinct tags, sorted, with "O" or "-" first."""
        names = sorted({tag for row in self.tags or () for tag in row if tag is not None})
        outside = [name for name in OUTSIDE_TAGS if name in names]
        return [*outside, *(name for name in names if name not in outside)]


def _location_of_word(sentence, index):
    """Return where a word is, for messages, given its index in the sentence."""
    return f"{sentence}, word {index + 1}"


def _of_one_type(tags, label_type):
    """Return the tags of a sentence as values of a type; `None` stays."""
    return _Tags(None if tag is None else typed(str(tag), label_type) for tag in tags)


def _without_unknown(tags):
    """Return the tags of all sentences with `None` for unknown tags."""
    unknown = unknown_tags({str(tag) for row in tags for tag in row})
    if not unknown:
        return tags
    return [[None if str(tag) in unknown else tag for tag in row] for row in tags]


def read(path, *, word=1, tag=-1, format=None, limit=None):
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
    path = pathlib.Path(path)
    format = _format_of(path, format)
    words, tags = _columns_of(_sentences_of_file(path, word, tag, format, limit))
    if tag is None:
        return TaggedSentences(words, source=str(path))
    if format != "jsonl":
        tags = _typed(tags)
    return TaggedSentences(words, tags, str(path))


def read_in_parts(path, *, word=1, format=None, size=10_000):
    """Yield `TaggedSentences` without tags, of at most `size` sentences; options as in `read`."""
    path = pathlib.Path(path)
    sentences = _sentences_of_file(path, word, None, _format_of(path, format), None)
    first = 1
    while part := list(itertools.islice(sentences, size)):
        words, _ = _columns_of(part)
        yield TaggedSentences(words, source=str(path), first=first)
        first += len(part)


def read_table(table, *, word=1, tag=-1, limit=None):
    """Read `TaggedSentences` from a table; `word` and `tag` name its columns.

    A row is a sentence with lists of words and tags, or a word as in CSV files.
    """
    columns = column_names(table)
    check_limit(limit)
    if _has_word_per_row(table, columns, word):
        sentences = _joined(_split_at_sentences(_table_rows(table, columns, word, tag)))
        words, tags = _columns_of(itertools.islice(sentences, limit))
        return TaggedSentences(words, None if tag is None else tags, source="the table")
    word = _KEYS.get(word, word)
    tag = _KEYS.get(tag, tag)
    names = [name for name in (word, tag) if name is not None]
    advice = "Give their names as word= and tag="
    values = read_columns(table, names, (), limit, "TaggedSentences", advice)
    words = values[word]
    if tag is None:
        return TaggedSentences(words, source="the table")
    _, classes = class_names(table, tag)
    tags = values[tag]
    if classes:
        tags = [
            named(row, classes, itertools.repeat(number), missing=-100, mark="-100")
            for number, row in enumerate(tags, 1)
        ]
    return TaggedSentences(words, tags, source="the table")


def _has_word_per_row(table, columns, word):
    """Return True if a row of a table is a word, False if it is a sentence with a list of words."""
    if not any(map(_is_sentence_column, columns)):
        return False
    for name in (_KEYS.get(word, word), _COLUMNS.get(word, word)):
        if name in columns:
            first_words = read_columns(table, [name], (), 1, "TaggedSentences")[name]
            return all(isinstance(row, str) or not isinstance(row, Iterable) for row in first_words)
    return True


def _format_of(path, format):
    """Return the format of a file, by default from its extension, checked."""
    format = format or _FORMAT_OF_SUFFIX.get(path.suffix.lower(), "conll")
    check_one_of(f"{path}: the format", format, FORMATS)
    return format


def _sentences_of_file(path, word, tag, format, limit):
    """Yield the words and the tags of each sentence, at least one and at most `limit`."""
    check_limit(limit)
    with open_utf8(path, newline="" if format == "csv" else "\n") as file:
        sentences = itertools.islice(_sentences(path, file, word, tag, format), limit)
        first = next(sentences, None)
        if first is None:
            raise ValueError(f"{path} contains no sentences")
        yield first
        yield from sentences


def _columns_of(sentences):
    """Return the words of all sentences, and the tags of all sentences."""
    sentences = list(sentences)
    return [words for words, _ in sentences], [tags for _, tags in sentences]


def _typed(tags):
    """Return the tags of a file without types in the type that all of them show."""
    typed_tags = iter(typed_texts([tag for row in tags for tag in row]))
    return [list(itertools.islice(typed_tags, len(row))) for row in tags]


def _json_sentences(path, file, word, tag):
    """Yield the words and the tags of each row; `word` and `tag` name the keys of its lists."""
    keys = [_KEYS.get(name, name) for name in (word, tag) if name is not None]
    for line, row in json_rows(path, file):
        for key in keys:
            if not isinstance(row.get(key), list):
                raise ValueError(
                    f"{path}, {line}: must have a list as {shown(key)}; its keys are "
                    f"{printable(', '.join(row), 200)}. Give word and tag (--word, --tag). "
                    "Entities as characters of a text must become tags of words; see "
                    "docs/reference/data-files.md"
                )
        yield row[keys[0]], [] if tag is None else row[keys[1]]


def _sentences(path, file, word, tag, format):
    """Yield the words and the tags of each sentence; without tags to read, no tags."""
    if format == "jsonl":
        return _json_sentences(path, file, word, tag)
    if format == "csv":
        return _joined(_split_at_sentences(_csv_rows(path, file, word, tag)))
    lines = numbered_lines(path, file)
    if format == "conllu":
        word = _CONLLU_COLUMNS.get(word, word)
        tag = _CONLLU_COLUMNS.get(tag, tag)
        return _joined(_conll_rows(path, lines, conll_rows.CONLLU, word, tag))
    first_lines = list(itertools.islice(lines, _SAMPLE_LINES))
    columns_read = 1 if tag is None else 2
    layout = conll_rows.find_layout(path, first_lines, columns_read if word == 1 else None)
    if layout is None:
        return iter(())
    word = 2 if layout.has_index else word
    return _joined(_conll_rows(path, itertools.chain(first_lines, lines), layout, word, tag))


def _joined(rows) -> Iterator[tuple[list, list]]:
    """Yield the words and the tags of each sentence.

    A row is the location of a word, and a list with the word and, if tags are read, its tag. In
    place of the list, `None` ends a sentence.
    """
    for is_end, sentence in itertools.groupby(rows, lambda row: row[1] is None):
        if is_end:
            continue
        words = []
        tags = []
        for location, values in sentence:
            if "" in values:
                raise ValueError(f"{location}: the word or the tag is empty")
            words.append(values[0])
            tags += values[1:]
        yield words, tags


def _conll_rows(path, lines, layout, word, tag):
    """Yield the rows of `_joined` from CoNLL columns or CoNLL-U."""
    indices = _column_indices(path, layout.width, word, tag)
    # "_" is a missing value, which is an error only in the column UPOS.
    reads_upos = layout == conll_rows.CONLLU and tag == _CONLLU_COLUMNS[-1]
    for line_number, fields in conll_rows.rows(path, lines, layout):
        values = None
        if fields is not None:
            values = [fields[indices[0]], *(fields[index].strip() for index in indices[1:])]
            if reads_upos and values[1] == "_":
                values[1] = ""
        yield f"{path}, line {line_number}", values


def _column_indices(path, width, word, tag):
    """Return the indices of the word and, unless `tag` is `None`, of the tag in a row."""
    columns = [word] if tag is None else [word, tag]
    indices = {number: number - 1 for number in range(1, width + 1)}
    indices |= {-number: width - number for number in range(1, width + 1)}
    chosen = [indices.get(column) for column in columns]
    if None in chosen or len(set(chosen)) < len(chosen):
        raise ValueError(
            f"{path}: word and tag (--word, --tag) must be different numbers of columns, from "
            f"1 to {width}, or from -1 for the last one; received {shown(word)} and {shown(tag)}"
        )
    return chosen


def _csv_rows(path, file, word, tag):
    """Yield the location of each row, and its sentence, word and, if tags are read, tag."""
    text_files.allow_long_csv_fields()
    rows = csv.DictReader(file, strict=True)
    try:
        columns = rows.fieldnames or []
        names = _columns_of_words(path, columns, word, tag)
        for row in rows:
            location = f"{path}, line {rows.line_num}"
            if None in row or None in row.values():
                raise ValueError(
                    f"{location}: must have {len(columns)} fields, as the first line has"
                )
            yield location, [row[name] for name in names]
    except csv.Error as error:
        raise ValueError(f"{path}, after line {rows.line_num}: {error}") from error


def _table_rows(table, columns, word, tag):
    """Yield the same as `_csv_rows` from a table with a word per row."""
    names = _columns_of_words("the table", columns, word, tag)
    values = read_columns(table, names, (), None, "TaggedSentences")
    for number, row in enumerate(zip(*values.values(), strict=True), 1):
        yield f"the table, row {number}", ["" if is_missing(value) else value for value in row]


def _split_at_sentences(rows):
    """Yield the rows of `_joined` from rows whose first value names the sentence.

    An empty value is the same sentence, since some files name a sentence only in its first row.
    """
    last = None
    for location, (sentence, *values) in rows:
        if sentence not in ("", last):
            yield location, None
            last = sentence
        yield location, values


def _columns_of_words(path, columns, word, tag):
    """Return the names of the columns of the sentence, the word and, unless `None`, the tag."""
    names = [_COLUMNS.get(name, name) for name in (word, tag) if name is not None]
    sentence = next(filter(_is_sentence_column, columns), "sentence")
    missing = [name for name in (sentence, *names) if name not in columns]
    if missing:
        raise ValueError(
            f"{path} has no column {shown(missing[0])}; its columns are "
            f"{printable(', '.join(map(str, columns)), 200)}. Add it, or give the names of the "
            "word and the tag (--word, --tag)"
        )
    return [sentence, *names]


def _is_sentence_column(name):
    return str(name).lower().startswith("sentence")
