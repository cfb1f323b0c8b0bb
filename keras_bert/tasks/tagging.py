"""The tagging task: one label for each word of a sentence.

A word's label is learned and read at its first piece; its other pieces, [CLS], [SEP] and
padding weigh nothing (section 5.3 of the paper). Sentences that do not fit are cut into windows
that overlap, and each word is answered for by the window that shows the most around it.
"""

import collections
import dataclasses
import itertools
import pathlib
import re
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_bert import heads
from keras_bert.data.tabular import check_limit, not_utf8, numbered_lines
from keras_bert.tasks.classification import softmax
from keras_bert.text.fast_tokenizer import tokenize_function

HEADS = ("tagger",)
MAX_LENGTH = 128

FORMATS = ("conll", "conllu")
_CONLLU_COLUMNS = 10
_FORM, _UPOS = 2, 4
_CHUNK = 65_536  # words, or 4,096 texts of 16 words, tokenized at once
_OUTSIDE = "O"


@dataclasses.dataclass(frozen=True)
class TaggedSentences:
    """Sentences as words, with a tag for each word where there are any.

    Attributes:
        words: the words of each sentence.
        tags: as many tags for each sentence, or `None`; whatever they are, they are kept as
            strings.
        source: where they come from, for messages.
        first: number of the first sentence there, if these are a part.

    Raises:
        ValueError: words and tags differ in number, a word is no string, or a sentence with
            tags has no words. Without tags it may be empty: its answer is empty, too.

    Example:

    >>> TaggedSentences([["Ann", "left"]], [["B-PER", "O"]]).label_names()
    ['O', 'B-PER', 'I-PER']
    """

    words: list[list[str]]
    tags: list[list[str]] | None = None
    source: str = "the sentences"
    first: int = 1

    def __post_init__(self):
        words = [self._strings("words", n, row) for n, row in enumerate(self.words, self.first)]
        object.__setattr__(self, "words", words)
        if self.tags is None:
            return
        if len(self.tags) != len(words):
            raise ValueError(
                f"{self.source}: tags must be for as many sentences as the words, {len(words)}; "
                f"received {len(self.tags)}"
            )
        tags = []
        rows = zip(words, self.tags, strict=True)
        for number, (sentence, row) in enumerate(rows, self.first):
            if not sentence:
                raise ValueError(f"{self.source}, sentence {number}: has no words")
            row = self._strings("tags", number, row)
            if len(row) != len(sentence):
                raise ValueError(
                    f"{self.source}, sentence {number}: must have a tag for each of its "
                    f"{len(sentence)} words; received {len(row)} tags"
                )
            tags.append(row)
        object.__setattr__(self, "tags", tags)

    def _strings(self, name, number, row):
        if isinstance(row, str):
            raise ValueError(
                f"{self.source}, sentence {number}: its {name} must be a list of strings; "
                "received one string"
            )
        row = list(row)
        if name == "tags":
            missing = [item for item in row if item is None or item != item]  # None, NaN
            if missing:
                raise ValueError(
                    f"{self.source}, sentence {number}: its tags must be there; received "
                    f"{missing[0]!r}"
                )
            row = [str(item) for item in row]
        wrong = [item for item in row if not isinstance(item, str)]
        if wrong:
            raise ValueError(
                f"{self.source}, sentence {number}: its {name} must be strings; "
                f"received {wrong[0]!r:.80}"
            )
        return row

    def __len__(self):
        return len(self.words)

    def label_names(self):
        """Returns the distinct tags, sorted, "O" first.

        Each "B-x" brings "I-x" along and the other way round: a type that is rare here may
        well have its other half in the next file.
        """
        names = {tag for row in self.tags or () for tag in row}
        for name in sorted(names):
            if _is_bio(name):
                names |= {"B-" + name[2:], "I-" + name[2:]}
        return sorted(names, key=lambda name: (name != _OUTSIDE, name))

    def majority_share(self):
        """Returns the share of the most frequent tag, 0 to 1: what guessing it would score."""
        counts = collections.Counter(tag for row in self.tags or () for tag in row)
        return max(counts.values()) / counts.total()


def read(path, **options):
    r"""Reads sentences from CoNLL columns or from CoNLL-U.

    CoNLL columns have one word a line and an empty line after each sentence. They are
    separated by tabs if the first row holds one, else by spaces, and are equally many in each
    row. Rows that begin with `-DOCSTART-` are skipped. So are lines that begin with "# " or
    "## " and cannot be a row: their first column holds more than the "#", or they have another
    number of columns. Of CoNLL-U, ranges such as 3-4 and empty nodes such as 5.1 are skipped.
    Files are UTF-8.

    Source: the shared task of CoNLL-2003; https://universaldependencies.org/format.html.

    Args:
        path: the file.
        word: column of the word: a number from 1, or from -1 at the end.
        tag: column of the tag; `None` if tags are not wanted. In CoNLL-U, where column 1 is
            an index and the last one for remarks, the defaults stand for FORM (column 2) and
            UPOS (column 4).
        format: `"conll"` or `"conllu"`; default: `"conllu"` for files that end in .conllu.
        limit: read no more than so many sentences.

    Returns:
        The `TaggedSentences`.

    Raises:
        ValueError: the format is not known, a row has not the columns it should have, a word
            or a tag is empty, the file is not UTF-8 or holds no sentences; the message names
            file and line.
        OSError: the file cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "names.tsv")
    ...     _ = file.write_text("Ann\tB-PER\nleft\tO\n\nGo\tO\n")
    ...     sentences = read(file)
    >>> sentences.words, sentences.tags
    ([['Ann', 'left'], ['Go']], [['B-PER', 'O'], ['O']])
    """
    parts = list(read_in_parts(path, size=sys.maxsize, **options))
    return parts[0]


def read_in_parts(path, *, word=1, tag=-1, format=None, limit=None, size=10_000):
    r"""Reads sentences from a file of any size, a part at a time.

    Args: as for `read`, and
        size: sentences a part.

    Yields:
        `TaggedSentences`; at least one.

    Raises:
        ValueError, OSError: as for `read`.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "names.tsv")
    ...     _ = file.write_text("Ann\tB-PER\n\nGo\tO\n\nnow\tO\n")
    ...     [part.words for part in read_in_parts(file, size=2)]
    [[['Ann'], ['Go']], [['now']]]
    """
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
                f"{path}: the column of the {name} must be a number from 1, or from -1 at the "
                f"end; received {column!r}"
            )
    if format == "conllu":
        word = _FORM if word == 1 else word
        tag = _UPOS if tag == -1 else tag
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            sentences = itertools.islice(_sentences(path, file, word, tag, format), limit)
            first = 1
            while part := list(itertools.islice(sentences, size)):
                words, tags = map(list, zip(*part, strict=True))
                yield TaggedSentences(words, None if tag is None else tags, str(path), first)
                first += len(part)
    except UnicodeDecodeError as error:
        raise not_utf8(path) from error
    if first == 1:
        raise ValueError(f"{path}: holds no sentences")


def _sentences(path, file, word, tag, format):
    """Yields the words and tags of each sentence; the tags are "" where none are wanted."""
    empty = {""}
    if format == "conllu" and tag == _UPOS:
        empty.add("_")  # other columns may say that there is no value; a word has its part
    rows = (_conllu_rows if format == "conllu" else _conll_rows)(path, numbered_lines(path, file))
    row_words: list[str] = []
    row_tags: list[str] = []
    places = None
    for number, fields in itertools.chain(rows, [(0, None)]):  # the last end may be missing
        if fields is not None:
            # All rows are alike, so what is where is found once.
            if places is None and format == "conll" and fields[0].startswith(('{"', "[{", '["')):
                raise ValueError(
                    f"{path}, line {number}: is JSON; tags are read from CoNLL columns"
                )
            if places is None and format == "conll" and word == 1 and _is_conllu(fields):
                raise ValueError(
                    f"{path}, line {number}: looks like CoNLL-U, whose first column is a number; "
                    'name the format, "conllu" (--format conllu), or the column of the word '
                    "(--word)"
                )
            places = places or _places(path, number, len(fields), word, tag)
            row_words.append(fields[places[0]])
            row_tags.append("" if tag is None else fields[places[1]].strip())
            if not row_words[-1]:
                raise ValueError(f"{path}, line {number}: the word is empty")
            if tag is not None and row_tags[-1] in empty:
                raise ValueError(f"{path}, line {number}: the tag is empty")
        elif row_words:
            yield row_words, row_tags
            row_words, row_tags = [], []


def _conll_rows(path, lines):
    """Yields line number and columns of each row; `None` for columns where a sentence ends."""
    # The first row that is surely none but a row tells how the rows of this file look.
    begun, rows = [], []
    for number, line in lines:
        begun.append((number, line))
        if _is_row(line):
            rows.append((number, line))
            if not line.startswith("#"):
                break
    if not rows:
        return
    first, sample = rows[0] if rows[-1][1].startswith("#") else rows[-1]
    tabs = "\t" in sample
    width = len(_split(sample, tabs))
    for number, line in itertools.chain(begun, lines):
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
    """Whether a line of CoNLL columns is a word or a comment, and ends no sentence."""
    return bool(line.strip()) and not line.startswith("-DOCSTART-")


def _split(line, tabs):
    # A word may hold any other white space, or be a space if tabs separate.
    return line.split("\t") if tabs else [field for field in line.split(" ") if field]


def _is_conllu(fields):
    return (
        len(fields) == _CONLLU_COLUMNS and re.fullmatch(r"1(-[0-9]+)?|0\.1", fields[0]) is not None
    )


def _conllu_rows(path, lines):
    """Yields line number and columns of each word; `None` for columns where a sentence ends."""
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
                f"{path}, line {number}: must begin with an index such as 3, 3-4 or 5.1; "
                f"received {fields[0]!r:.80}"
            )


def _places(path, number, width, word, tag):
    """Where in a row the word and, if it is wanted, the tag stand."""
    columns = [column for column in (word, tag) if column is not None]
    places = [column - 1 if column > 0 else width + column for column in columns]
    if min(places) < 0 or max(places) >= width or len(set(places)) < len(places):
        wanted = f"column {word} for the word"
        wanted += "" if tag is None else f" and another, {tag}, for the tag"
        raise ValueError(f"{path}, line {number}: must have {wanted}; received {width} columns")
    return places


def build(encoder, train):
    """A model for the tags of some sentences.

    Where their words are characters, the model splits texts into those.

    Args:
        encoder: a `BertEncoder`.
        train: `TaggedSentences` with tags.

    Returns:
        The `keras.Model` of `heads.tagger`.

    Raises:
        ValueError: there are fewer than two tags.

    Example:

    >>> import keras_bert
    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                                  num_attention_heads=2, intermediate_size=8)
    >>> build(encoder, TaggedSentences([["Ann", "left"]], [["B-PER", "O"]])).output_shape
    (None, None, 3)
    """
    labels = train.label_names()
    if len(labels) < 2:
        received = f"only {labels[0]!r}" if labels else "none"
        raise ValueError(
            f"{train.source}: needs at least two tags to tell apart; received {received}"
        )
    return heads.tagger(encoder, labels=labels, characters=are_characters(train.words))


# A few words of more characters are the remarks and mistakes that any file has.
_CHARACTERS = 0.99


def are_characters(sentences):
    """Whether the words are characters, as those of KLUE's entities are.

    Example:

    >>> are_characters([["서", "울"], [" ", "!"]]), are_characters([["서울", "!"]])
    (True, False)
    """
    sizes = np.array([len(word) for sentence in sentences for word in sentence])
    return bool((sizes == 1).sum() > _CHARACTERS * len(sizes))


def compile_options(model):
    """What `model.compile` needs to know about the task.

    The loss is a sum, as the weights of `EncodedSentences.batch` want it.

    Args:
        model: from `build`.

    Returns:
        A dict of `loss` and `weighted_metrics`, for weights (batch, seq).

    Example:

    >>> sorted(compile_options(None))
    ['loss', 'weighted_metrics']
    """
    return {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"),
        "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy("accuracy")],
    }


class EncodedSentences:
    """Sentences as ids, in windows that fit the model; `encode` makes them.

    A sentence without a single piece has no window.

    Args:
        ids: all pieces of all sentences, int32 (pieces,).
        targets: for each piece the label of its word, int32 (pieces,); `None` without tags.
        counts: pieces of each word, int (words,).
        windows: int (windows, 4): first piece and the one after the last; then the same for
            the pieces whose words are learned and answered in this window.
        special_ids: of [CLS], [SEP] and [PAD].
        max_length: positions of the longest window there may be.
        cut_words: see below.

    Attributes:
        lengths: positions each window takes, specials included; int (windows,).
        max_length: as given.
        pad_id: the id where no piece is.
        has_pieces: which words became a piece, bool (words,).
        words_without_pieces: how many words became none, as white space or what is invisible
            does; they are not learned.
        cut_words: how many words do not fit into a window by themselves and were cut.
    """

    def __init__(self, ids, targets, counts, windows, special_ids, max_length, cut_words=0):
        self._ids, self._targets, self._windows = ids, targets, windows
        self._special_ids = special_ids
        self.pad_id = special_ids[-1]
        self._is_first = np.zeros(len(ids), bool)
        self._is_first[(np.cumsum(counts) - counts)[counts > 0]] = True
        self.lengths = windows[:, 1] - windows[:, 0] + 2
        self.max_length = max_length
        learned = np.concatenate([[0], np.cumsum(self._is_first)])
        in_windows = learned[windows[:, 3]] - learned[windows[:, 2]]
        self._words_in_window = in_windows.sum() / max(len(windows), 1)
        self.has_pieces = counts > 0
        self.words_without_pieces = int((counts == 0).sum())
        self.cut_words = cut_words

    def __len__(self):
        return len(self._windows)

    def batch(self, rows, length):
        """The windows of one batch.

        Args:
            rows: which windows, int (batch,).
            length: positions of the result, no fewer than the longest of the windows takes.

        Returns:
            `(inputs, targets, weights)`: a dict of three int32 arrays (batch, length); int32
            (batch, length); float32 (batch, length), where a word is learned, the same for each
            word: those of an average batch add up to 1. The last two are `None` without tags.

        Raises:
            ValueError: a window is longer than `length`.
        """
        rows = np.asarray(rows, np.int64)
        lengths = self.lengths[rows][:, None]
        if (lengths > length).any():
            raise ValueError(f"the windows take {lengths.max()} positions; received {length}")
        start, limit, first, last = self._windows[rows].T[:, :, None]  # each (batch, 1)
        position = np.arange(length)
        piece = start + position - 1  # [CLS] stands first
        inside = (piece >= start) & (piece < limit)  # (batch, length)
        piece = np.where(inside, piece, 0)
        cls_id, sep_id, pad_id = self._special_ids
        ids = np.where(inside, self._ids[piece], np.int32(pad_id))
        ids[:, 0] = cls_id
        ids[position == lengths - 1] = sep_id
        inputs = {
            "input_word_ids": ids,
            "input_mask": (position < lengths).astype(np.int32),
            "input_type_ids": np.zeros_like(ids),
        }
        if self._targets is None:
            return inputs, None, None
        learned = inside & self._is_first[piece] & (piece >= first) & (piece < last)
        targets = np.where(learned, self._targets[piece], np.int32(0))
        # Not the mean over the words of this batch: where its sentences are of like lengths, a word
        # of a short one would count for many times one of a long one.
        weight = 1 / (self._words_in_window * len(rows))
        return inputs, targets, np.where(learned, np.float32(weight), np.float32(0))

    def positions(self, row):
        """Returns where in a window the words stand that it answers for, int (words,)."""
        start, _, first, last = self._windows[row]
        return np.flatnonzero(self._is_first[first:last]) + first - start + 1


def encode(model, examples, max_length, *, stride=None):
    """Turns sentences into ids and targets.

    Sentences with more pieces than fit are cut between words into windows that overlap. Of a
    word that does not fit by itself the first pieces are kept.

    Args:
        model: from `heads.tagger`, its encoder with a preprocessor.
        examples: `TaggedSentences`.
        max_length: positions of the longest window, [CLS] and [SEP] included.
        stride: pieces from the start of one window to the start of the next, as nearly as the
            words allow; default: three quarters of the room, so that a quarter overlaps.

    Returns:
        The `EncodedSentences`.

    Raises:
        ValueError: a tag that is none of the model's labels, `max_length` below 3, or a stride
            that is not between 1 and the room.

    Example:

    >>> import keras_bert
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "Ann", "left", "##e"]
    >>> encoder = keras_bert.BertEncoder(
    ...     vocab_size=7, hidden_size=4, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=8, preprocessor=keras_bert.Preprocessor(pieces, lowercase=False))
    >>> sentences = TaggedSentences([["Anne", "left"]], [["B-PER", "O"]])
    >>> encoded = encode(build(encoder, sentences), sentences, max_length=16)
    >>> inputs, targets, weights = encoded.batch([0], length=6)
    >>> inputs["input_word_ids"].tolist(), targets.tolist(), weights.tolist()
    ([[2, 4, 6, 5, 3, 0]], [[0, 1, 0, 0, 0, 0]], [[0.0, 0.5, 0.0, 0.5, 0.0, 0.0]])
    """
    if max_length < 3:
        raise ValueError(f"max_length must be at least 3; received {max_length}")
    room = max_length - 2
    stride = room - room // 4 if stride is None else stride
    if not 1 <= stride <= room:
        raise ValueError(f"stride must be from 1 to max_length - 2, {room}; received {stride}")
    tokenizer = heads.find_encoder(model).preprocessor.tokenizer
    ids, counts = _tokenize(tokenizer, examples.words)
    of_word = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
    cut_words = int((counts > room).sum())
    ids, counts = ids[of_word < room], np.minimum(counts, room)
    targets = None
    if examples.tags is not None:
        targets = np.repeat(_targets(examples, heads.find_output(model).labels), counts)
    edges = np.concatenate([[0], np.cumsum(counts)])  # pieces before each word
    windows, end = [], 0
    for sentence in examples.words:
        begin, end = end, end + len(sentence)
        windows += _windows(edges[begin : end + 1], room, stride)
    return EncodedSentences(
        ids,
        targets,
        counts,
        np.array(windows, np.int64).reshape(-1, 4),
        [tokenizer.token_id(piece) for piece in ("[CLS]", "[SEP]", "[PAD]")],
        max_length,
        cut_words,
    )


def _tokenize(tokenizer, sentences):
    """All pieces, int32 (pieces,), and how many each word has, int64 (words,)."""
    # Alone a word gives the pieces it gives in its sentence.
    words = [word.encode("utf-8", "ignore") for sentence in sentences for word in sentence]
    tokenize = tokenize_function(tokenizer)
    ids, counts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for start in range(0, len(words), _CHUNK):
        pieces = tokenize(tf.constant(words[start : start + _CHUNK], tf.string))
        ids.append(pieces.flat_values.numpy())
        counts.append(pieces.row_lengths().numpy())
    return np.concatenate(ids), np.concatenate(counts)


def _targets(examples, labels):
    """The index of each word's tag among the labels, int32 (words,)."""
    index = {label: number for number, label in enumerate(labels)}
    for number, row in enumerate(examples.tags, 1):
        unknown = next((tag for tag in row if tag not in index), None)
        if unknown is not None:
            raise ValueError(
                f"{examples.source}, sentence {number}: has the tag {unknown!r}, which is none "
                f"of the model's: {', '.join(labels[:20])}"
            )
    return np.array([index[tag] for row in examples.tags for tag in row], np.int32)


def _windows(edges, room, stride):
    """Cuts one sentence between words.

    Args:
        edges: index of the piece at which each word starts, and the end; int (words + 1,).
        room: pieces that fit; no word has more.
        stride: pieces from one start to the next, at most.

    Returns:
        A list of rows as `EncodedSentences` takes them: the windows, and the parts that they
        own. Those share the sentence between them.
    """
    begin, end = int(edges[0]), int(edges[-1])
    if begin == end:
        return []
    if end - begin <= room:
        return [(begin, end, begin, end)]
    rows: list[tuple[int, int, int, int]] = []
    owned = begin
    while True:
        limit = int(edges[np.searchsorted(edges, begin + room, side="right") - 1])
        if limit == end:
            return [*rows, (begin, limit, owned, end)]
        # The next window starts a stride later; or more, if that is what its first new word
        # needs in order to fit.
        needed = edges[np.searchsorted(edges, limit, side="right")] - room
        following = max(
            int(edges[np.searchsorted(edges, begin + stride, side="right") - 1]),
            int(edges[np.searchsorted(edges, needed)]),
        )
        # The middle of a word tells where it has more around it: of the two windows the left
        # one lacks what is right of the overlap, the right one what is left of it.
        middles = edges[:-1] + edges[1:]
        border = int(edges[np.searchsorted(middles, limit + following, side="right")])
        rows.append((begin, limit, owned, border))
        begin, owned = following, border


def decode(model, examples, encoded, outputs):
    """Reads the answers off the logits.

    Args:
        model: from `heads.tagger`.
        examples: the `TaggedSentences`.
        encoded: what `encode` made of them.
        outputs: for each window its logits, a list of float (positions, labels); positions
            after the window do not matter.

    Returns:
        For each sentence a list of (tag, score) for its words, the score a probability. A
        word without pieces gets "I-x" if an entity of the type x goes on after it, else "O",
        or the first label if there is no "O"; its score is 0.

    Example:

    >>> import keras_bert
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "Ann", "left"]
    >>> encoder = keras_bert.BertEncoder(
    ...     vocab_size=6, hidden_size=4, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=8, preprocessor=keras_bert.Preprocessor(pieces, lowercase=False))
    >>> model = heads.tagger(encoder, labels=["O", "B-PER"])
    >>> sentences = TaggedSentences([["Ann", "left"]])
    >>> encoded = encode(model, sentences, max_length=16)
    >>> decode(model, sentences, encoded, [np.array([[0, 0], [0, 99], [99, 0], [0, 0]])])
    [[('B-PER', 1.0), ('O', 1.0)]]
    """
    labels = heads.find_output(model).labels
    default = _OUTSIDE if _OUTSIDE in labels else labels[0]
    logits = [
        np.asarray(output, np.float32)[encoded.positions(row)] for row, output in enumerate(outputs)
    ]
    # Windows stand in the order of the sentences and own words in order; so do these.
    probabilities = softmax(np.concatenate([np.zeros((0, len(labels)), np.float32), *logits]))
    scores = np.zeros(len(encoded.has_pieces))
    scores[encoded.has_pieces] = probabilities.max(axis=-1)
    found = iter(probabilities.argmax(axis=-1).tolist())
    tags = (labels[next(found)] if has else None for has in encoded.has_pieces)
    scored = iter(scores.tolist())
    answers = []
    for sentence in examples.words:
        row = _fill_gaps(list(itertools.islice(tags, len(sentence))), default)
        answers.append(list(zip(row, itertools.islice(scored, len(row)), strict=True)))
    return answers


def _fill_gaps(tags, default):
    """Puts tags in place of `None`: what is invisible, as the space in a name, ends no entity."""
    following = default
    for place in reversed(range(len(tags))):
        if tags[place] is None and following.startswith("I-"):
            before = next((tag for tag in reversed(tags[:place]) if tag is not None), default)
            goes_on = before in (following, "B-" + following[2:])
            tags[place] = following if goes_on else default
        following = tags[place] = tags[place] or default
    return tags


def score(model, examples, answers):
    """Scores answers against the tags.

    For BIO tags (a label that starts with "B-" or "I-") entities count: one is right if its type,
    its first and its last word are. As in CoNLL's script, an "I-" after another type or "O"
    starts an entity; "S-" and "E-" are understood, and "U-" and "L-" mean the same.

    Source: https://www.clips.uantwerpen.be/conll2003/ner/bin/conlleval; seqeval's default mode
    gives the same.

    Args:
        model: the tagger that gave the answers; `None` for those of another program, of which the
            tags of the examples say whether they are BIO.
        examples: `TaggedSentences` with tags.
        answers: from `decode`.

    Returns:
        A dict, the main score first: for BIO tags `f1`, `precision` and `recall` over all
        entities; `accuracy`, the share of right tags; `majority`, the accuracy of always
        guessing the most frequent tag. All 0 to 1.

    Raises:
        ValueError: the examples have no tags.

    Example:

    >>> import keras_bert
    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                                  num_attention_heads=2, intermediate_size=8)
    >>> sentences = TaggedSentences([["Ann", "Lee", "left"]], [["B-PER", "I-PER", "O"]])
    >>> model = build(encoder, sentences)
    >>> score(model, sentences, [[("B-PER", 0.9), ("O", 0.8), ("O", 0.9)]])["f1"]
    0.0
    """
    if examples.tags is None:
        raise ValueError(f"{examples.source}: has no tags to score against")
    given = [[tag for tag, _ in answer] for answer in answers]
    pairs = list(zip(examples.tags, given, strict=True))
    metrics = {}
    if _has_entities(model, examples):
        entities = [(_entities(gold), _entities(row)) for gold, row in pairs]
        right = sum(len(gold & found) for gold, found in entities)
        found = sum(len(found) for _, found in entities)
        there = sum(len(gold) for gold, _ in entities)
        metrics = {
            "f1": 2 * right / max(found + there, 1),
            "precision": right / max(found, 1),
            "recall": right / max(there, 1),
        }
    same = [a == b for gold, row in pairs for a, b in zip(gold, row, strict=True)]
    return {**metrics, "accuracy": float(np.mean(same)), "majority": examples.majority_share()}


def metric_names(model, examples):
    """The names that `score` will give, but for `majority`, the first the one that counts.

    Args:
        model: a tagger.
        examples: `TaggedSentences`; they do not matter here.

    Returns:
        A tuple of strings.
    """
    return (*(("f1", "precision", "recall") if _has_entities(model, examples) else ()), "accuracy")


def _has_entities(model, examples):
    # By the labels: a file may hold no entity, and answers to it none either, but the next epoch's.
    labels = examples.label_names() if model is None else heads.find_output(model).labels
    return any(map(_is_bio, labels))


def _is_bio(tag):
    return tag.startswith(("B-", "I-"))


# A scheme's letters for the last word of an entity and the only one, in those of the other.
_BILOU = {"L": "E", "U": "S"}


def _entities(tags):
    """The entities of one sentence, a set of (type, first word, word after the last)."""
    found = set()
    start, last_prefix, last_type = 0, _OUTSIDE, ""
    for place, tag in enumerate([*tags, _OUTSIDE]):
        prefix, _, type = tag.partition("-")
        prefix = _BILOU.get(prefix, prefix)
        if prefix not in ("I", "E") or last_prefix not in ("B", "I") or type != last_type:
            if last_prefix != _OUTSIDE:
                found.add((last_type, start, place))
            start = place
        last_prefix, last_type = prefix, type
    return found


def header(model):
    """`None`: the file that `lines` makes, CoNLL columns, has no header."""


def lines(model, examples, answers):
    r"""The lines of a file of answers.

    Args:
        model: what gave the answers; it does not matter here.
        examples: `TaggedSentences`; their tags do not matter.
        answers: from `decode`.

    Returns:
        An iterator of lines: word, tag and score separated by tabs, and an empty line after
        each sentence.

    Example:

    >>> list(lines(None, TaggedSentences([["Ann", "left"]]), [[("B-PER", 0.9), ("O", 1.0)]]))
    ['Ann\tB-PER\t0.9000', 'left\tO\t1.0000', '']
    """
    for words, answer in zip(examples.words, answers, strict=True):
        for word, (tag, value) in zip(words, answer, strict=True):
            yield f"{word}\t{tag}\t{value:.4f}"
        yield ""


def records(model, examples, answers):
    """The answers by name, for other files than CoNLL's.

    Args:
        model, examples, answers: as for `lines`.

    Yields:
        A dict for each word: `sentence`, a number from 1, `word`, `tag`, `score`.

    Example:

    >>> list(records(None, TaggedSentences([["Ann"]]), [[("B-PER", 0.9)]]))
    [{'sentence': 1, 'word': 'Ann', 'tag': 'B-PER', 'score': 0.9}]
    """
    rows = zip(examples.words, answers, strict=True)
    for number, (words, answer) in enumerate(rows, examples.first):
        for word, (tag, value) in zip(words, answer, strict=True):
            yield {"sentence": number, "word": word, "tag": tag, "score": float(value)}


def sentences_of(texts, tokenizer, characters=False):
    """Splits texts into words as the tokenizer does, at white space and punctuation.

    Args:
        texts: list of strings.
        tokenizer: a `WordPieceTokenizer`.
        characters: split them into characters in place of words.

    Returns:
        `(words, spans)`: for each text its words, as they stand there, and for each word the
        first byte in the text's UTF-8 and the byte after the last. What the tokenizer drops
        is no word, so a text may have none.

    Raises:
        ValueError: not a list of strings.

    Example:

    >>> from keras_bert.text.tokenizer import WordPieceTokenizer
    >>> sentences_of(["Zoë left!"], WordPieceTokenizer(["[UNK]", "zoe"]))
    ([['Zoë', 'left', '!']], [[(0, 4), (5, 9), (9, 10)]])
    """
    wrong = [texts] if isinstance(texts, str) else [t for t in texts if not isinstance(t, str)]
    if wrong:
        raise ValueError(f"texts must be a list of strings; received {wrong[0]!r:.80}")
    tokenize = tokenizer.tokenize_with_offsets
    if characters:
        tokenize = tokenizer.tokenize_characters_with_offsets
    raw = [text.encode("utf-8", "ignore") for text in texts]
    words: list[list[str]] = []
    spans: list[list[tuple[int, int]]] = []
    for start in range(0, len(raw), _CHUNK // 16):
        chunk = raw[start : start + _CHUNK // 16]
        _, index, starts, limits = tokenize(tf.constant(chunk, tf.string))
        splits = index.row_splits.numpy()
        values = index.flat_values.numpy()
        is_first = np.diff(values, prepend=-1) != 0
        is_first[splits[splits < len(values)]] = True  # each text begins at word 0 again
        first = np.flatnonzero(is_first)
        last = np.append(first[1:], len(values)) - 1 if len(first) else first
        starts = starts.flat_values.numpy()[first].tolist()
        limits = limits.flat_values.numpy()[last].tolist()
        pairs = list(zip(starts, limits, strict=True))
        for text, (begin, end) in zip(
            chunk, itertools.pairwise(np.searchsorted(first, splits)), strict=True
        ):
            spans.append(pairs[begin:end])
            words.append([text[a:b].decode("utf-8") for a, b in pairs[begin:end]])
    return words, spans
