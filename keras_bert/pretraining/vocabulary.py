"""A WordPiece vocabulary from a corpus, and how well one fits a corpus.

Words are counted as our tokenizer splits them, then the trainer of Hugging Face's `tokenizers`
learns pieces from the counts alone: its own idea of cleaning and of words has no part in it.
"""

import collections
import functools
import itertools
import pathlib
import re

import numpy as np

from keras_bert.checkpoints import folder, tokenizer_config
from keras_bert.runtime.files import atomic_write
from keras_bert.text import unicode_tables

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Google's places: [PAD] at 0, then room for pieces of one's own, the others at 100 to 103.
GOOGLE_PLACES = ("[PAD]", *(f"[unused{index}]" for index in range(1, 100)), *SPECIAL[1:])
SMALL = 1000  # pieces; in a smaller vocabulary such room would cost too much
VOCABULARY_FILE = "vocab.txt"

_LARGEST = 2**31 - 1  # pieces, as ids are int32
_LONGEST_WORD = 200  # characters; the tokenizer makes [UNK] of what is longer
_CHUNK = 8 << 20  # characters counted at once
_MANY_WORDS = 5_000_000  # distinct ones that are kept in memory
_MANY_OCCURRENCES = 20_000_000  # that the trainer sees; frequencies are scaled to it
# Of the vocabulary, for single characters: at most this share, but so many pieces in any case.
_ALPHABET_SHARE, _SMALL_ALPHABET = 0.4, 200

# Removed by cleaning, yet `str.split` would split there.
_REMOVED_SPACE = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_ASCII_WORD = re.compile("[a-zA-Z0-9]+|[!-~]")


def train(
    documents,
    size,
    *,
    lowercase=True,
    strip_accents=None,
    split_cjk=True,
    min_frequency=2,
    max_bytes=None,
):
    """Learns a WordPiece vocabulary.

    The same documents give the same pieces, in any process. Every piece is one that the
    tokenizer with these options can find in a text.

    Args:
        documents: `corpus.Document`s or strings, an iterable.
        size: of the vocabulary, exactly. From `SMALL` on [UNK], [CLS], [SEP] and [MASK] are at
            Google's places, 100 to 103, with unused pieces before them; below it they follow
            [PAD].
        lowercase, strip_accents, split_cjk: as for `Preprocessor`.
        min_frequency: how often characters and pairs of pieces must occur.
        max_bytes: of text to learn from: every n-th document, with n as small as can be, and
            kept in memory. Default: all of it, which is counted as it comes.

    Returns:
        The pieces, a list of strings; the index of a piece is its id.

    Raises:
        ValueError: the corpus is empty, or gives too few pieces; `size`, `min_frequency` or
            `max_bytes` is no whole number or too small; `tokenizers` is not installed.

    Example:

    >>> pieces = train(["low lower lowest", "new newer newest"] * 9, 30)
    >>> len(pieces), pieces[:6], "low" in pieces
    (30, ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'e'], True)
    """
    least = {"size": len(SPECIAL) + 1, "min_frequency": 1, "max_bytes": 1}
    for name, value in (("size", size), ("min_frequency", min_frequency), ("max_bytes", max_bytes)):
        if name == "max_bytes" and value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least[name]:
            raise ValueError(
                f"{name} must be a whole number of at least {least[name]}; received {value!r}"
            )
    if size > _LARGEST:
        raise ValueError(f"size must be at most {_LARGEST}; received {size}")
    _trainer_library()  # missing, it should not cost the counting of the corpus
    if max_bytes is not None:
        documents = _sample(documents, max_bytes)
    counts = count_words(
        documents, lowercase=lowercase, strip_accents=strip_accents, split_cjk=split_cjk
    )
    if not counts:
        raise ValueError("the corpus holds no words")
    first = GOOGLE_PLACES if size >= SMALL else SPECIAL
    counts, alphabet = _alphabet(counts, size - len(first), min_frequency)
    learned = _learn(counts, alphabet, size - len(first), min_frequency)
    if len(learned) < size - len(first):
        possible = len(first) + len(learned)
        raise ValueError(
            f"size must be at most {possible}, which is what this corpus gives with "
            f"min_frequency={min_frequency}; received {size}"
        )
    return [*first, *learned]


def count_words(documents, *, lowercase=True, strip_accents=None, split_cjk=True):
    """Counts words as `text.tokenizer` splits them.

    Args:
        documents: `corpus.Document`s or strings, an iterable.
        lowercase, strip_accents, split_cjk: as for `Preprocessor`.

    Returns:
        A `collections.Counter`. Of a corpus with millions of distinct words it lacks the rarest.

    Example:

    >>> sorted(count_words(["Crème brûlée, crème fraîche"]).items())
    [(',', 1), ('brulee', 1), ('creme', 2), ('fraiche', 1)]
    """
    strip_accents = lowercase if strip_accents is None else strip_accents
    split = functools.partial(
        _split, mapped=_Mapping(lowercase, strip_accents), split_cjk=split_cjk
    )
    counts: collections.Counter[str] = collections.Counter()
    for chunk in _chunks(documents):
        # Most words come many times, so what is slow is done once for each.
        for token, count in collections.Counter(_REMOVED_SPACE.sub("", chunk).split()).items():
            if token.isascii():
                token = token.lower() if lowercase else token
                words = (token,) if token.isalnum() else _ASCII_WORD.findall(token)
            else:
                words = split(token)
            for word in words:
                if len(word) <= _LONGEST_WORD:
                    counts[word] += count
        least = 1
        while len(counts) > _MANY_WORDS:
            counts = collections.Counter({w: c for w, c in counts.items() if c > least})
            least += 1
    return counts


def coverage(documents, tokenizer):
    """Measures how a vocabulary fits texts, best ones that it was not learned from.

    Args:
        documents: `corpus.Document`s or strings, an iterable.
        tokenizer: a `Preprocessor` or its tokenizer.

    Returns:
        A dict: `words`, their number; `unknown`, the share of them that is [UNK];
        `pieces_per_word`, of the others; `whole`, the share of words that are one piece.

    Raises:
        ValueError: the texts hold no words.

    Example:

    >>> from keras_bert import Preprocessor
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "chess"]
    >>> coverage(["Playing chess, playing go"], Preprocessor(pieces))
    {'words': 5, 'unknown': 0.4, 'pieces_per_word': 1.6666666666666667, 'whole': 0.2}
    """
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    counts = count_words(
        documents,
        lowercase=tokenizer.lowercase,
        strip_accents=tokenizer.strip_accents,
        split_cjk=tokenizer.split_cjk,
    )
    if not counts:
        raise ValueError("the corpus holds no words")
    unknown = pieces = whole = 0
    for batch in _batches(counts, 50_000):
        words, times = zip(*batch, strict=True)
        times = np.array(times)
        ids = tokenizer.tokenize(list(words))
        lengths = ids.row_lengths().numpy()
        is_unknown = ids.values.numpy()[ids.row_starts().numpy()] == tokenizer.unknown_id
        unknown += int(times[is_unknown].sum())
        pieces += int((times * lengths)[~is_unknown].sum())
        whole += int(times[(lengths == 1) & ~is_unknown].sum())
    total = counts.total()
    return {
        "words": total,
        "unknown": unknown / total,
        "pieces_per_word": pieces / max(1, total - unknown),
        "whole": whole / total,
    }


def write(path, vocabulary, *, lowercase=True, strip_accents=None, split_cjk=True):
    """Writes a vocabulary and its options into a folder, as the formats of checkpoints have them.

    Args:
        path: the folder; made if need be.
        vocabulary: the pieces.
        lowercase, strip_accents, split_cjk: as for `Preprocessor`.

    Raises:
        ValueError: a piece would come back as another one.
        OSError: the folder cannot be written to.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     write(path, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"], lowercase=False)
    ...     read(path)[1]
    {'lowercase': False, 'strip_accents': False, 'split_cjk': True}
    """
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    options = {
        "lowercase": lowercase,
        "strip_accents": lowercase if strip_accents is None else strip_accents,
        "split_cjk": split_cjk,
    }
    text = folder.vocabulary_text(path / VOCABULARY_FILE, vocabulary)
    # The large one first, as the disk may be full: the pieces of one vocabulary with the options
    # of another would be a third one. Seen is it last, so where it is, its options are.
    with atomic_write(path / VOCABULARY_FILE) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")
        tokenizer_config.write(path, {**options, "sequence_length": None})


def read(path):
    """Reads what `write` wrote, or what lies in the folder of a checkpoint.

    Args:
        path: the folder.

    Returns:
        The pieces, a list of strings, and the options for `Preprocessor`, a dict.

    Raises:
        ValueError: a file is broken.
        OSError: there is no vocabulary in the folder.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     write(path, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"])
    ...     read(path)[0][-1]
    'a'
    """
    path = pathlib.Path(path)
    vocabulary = folder.read_vocabulary(path / VOCABULARY_FILE)
    limit = {"max_position_embeddings": 512}
    options = dict(tokenizer_config.read(path, vocabulary, limit))
    del options["sequence_length"]
    return vocabulary, options


# --- Words ---------------------------------------------------------------------------------


def _texts(documents):
    for document in documents:
        if isinstance(document, str):
            yield document
        else:
            yield from document.paragraphs()


def _chunks(documents):
    held, size = [], 0
    for text in _texts(documents):
        held.append(text)
        size += len(text)
        if size >= _CHUNK:
            yield "\n".join(held)
            held, size = [], 0
    yield "\n".join(held)


def _sample(documents, max_bytes):
    """Every n-th document, n a power of two; the last to go is what makes it too much."""
    kept, size, step = [], 0, 1
    for index, document in enumerate(documents):
        if index % step:
            continue
        text = document if isinstance(document, str) else document.text
        length = len(text.encode("utf-8"))
        kept.append((document, length))
        size += length
        while size > max_bytes and len(kept) > 1:
            kept, step = kept[::2], step * 2
            size = sum(length for _, length in kept)
    return [document for document, _ in kept]


class _Mapping(dict):
    """What a character becomes by lower-casing and stripping accents: a string; made on demand."""

    def __init__(self, lowercase, strip_accents):
        super().__init__()
        self.lowercase, self.strip_accents = lowercase, strip_accents

    def __missing__(self, char):
        tables, codes = unicode_tables.tables(), (ord(char),)
        if self.lowercase:
            codes = tables.lower.get(codes[0], codes)
        if self.strip_accents:
            codes = [d for code in codes for d in tables.decomposition.get(code, (code,))]
        self[char] = "".join(map(chr, codes))
        return self[char]


def _split(token, mapped, split_cjk):
    """The words of a token that white space surrounds; `token` is the slow case, not ASCII."""
    tables = unicode_tables.tables()
    words = []
    for run in _runs(token, tables, split_cjk):
        text = "".join(map(mapped.__getitem__, run))
        if mapped.lowercase and chr(unicode_tables.CAPITAL_SIGMA) in run:
            text = _with_final_sigmas(run, mapped, tables)
        if mapped.strip_accents:
            text = _without_marks(text, tables)
        begin = 0
        for index, char in enumerate(text):
            if tables.punctuation[ord(char)]:
                words += [text[begin:index], char]
                begin = index + 1
        words.append(text[begin:])
    return [word for word in words if word]


def _runs(token, tables, split_cjk):
    """The token without what is removed, cut around each ideograph."""
    run: list[str] = []
    for char in token:
        code = ord(char)
        if tables.removed[code]:
            continue
        if (
            split_cjk
            and code >= 0x3400
            and any(a <= code <= b for a, b in unicode_tables.CJK_RANGES)
        ):
            yield "".join(run)
            yield char
            run = []
        else:
            run.append(char)
    yield "".join(run)


def _with_final_sigmas(run, mapped, tables):
    out = []
    for index, char in enumerate(run):
        if ord(char) == unicode_tables.CAPITAL_SIGMA:
            around = (reversed(run[:index]), run[index + 1 :])
            before, after = (
                next((tables.cased[ord(c)] for c in side if not _ignorable(c, tables)), False)
                for side in around
            )
            out.append(chr(unicode_tables.FINAL_SIGMA) if before and not after else mapped[char])
        else:
            out.append(mapped[char])
    return "".join(out)


def _ignorable(char, tables):
    return tables.case_ignorable[ord(char)]


def _without_marks(text, tables):
    """Ends NFD with the canonical order, then drops the marks."""
    codes = list(map(ord, text))
    classes = tables.combining_class[codes]
    if classes.any():
        run = np.cumsum(classes == 0)  # a starter and what follows it
        codes = [codes[index] for index in np.lexsort((classes, run))]
        return "".join(chr(code) for code in codes if not tables.mark[code])
    return "".join(char for char in text if not tables.mark[ord(char)])


# --- Pieces --------------------------------------------------------------------------------


def _alphabet(counts, room, min_frequency):
    """The words that can be spelled with the most frequent characters, and those characters.

    Returns:
        The counts of those words, and the pieces of one character, sorted.
    """
    inside: collections.Counter[str] = collections.Counter()
    first: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        first[word[0]] += count
        for char in word[1:]:
            inside[char] += count
    total = first + inside
    kept: set[str] = set()
    pieces: list[str] = []
    limit = max(int(room * _ALPHABET_SHARE), min(room, _SMALL_ALPHABET))
    for char, count in sorted(total.items(), key=lambda item: (-item[1], item[0])):
        # Within words it is another piece; the trainer wants the plain one in any case.
        needed = [char, f"##{char}"] if char in inside else [char]
        if count < min_frequency or len(pieces) + len(needed) > limit:
            break
        kept.add(char)
        pieces += needed
    spelled = {word: count for word, count in counts.items() if kept.issuperset(word)}
    plain, suffixes = (
        sorted(piece for piece in pieces if (len(piece) > 1) == suffix) for suffix in (False, True)
    )
    return spelled, [*plain, *suffixes]


def _trainer_library():
    try:
        import tokenizers
    except ImportError as error:
        raise ValueError(
            "a vocabulary is trained with tokenizers; install it: pip install tokenizers"
        ) from error
    return tokenizers


def _learn(counts, alphabet, room, min_frequency):
    """Pieces learned from counted words, the alphabet first, then as the trainer found them."""
    tokenizers = _trainer_library()
    scale = min(1.0, _MANY_OCCURRENCES / max(1, sum(counts.values())))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=SPECIAL[1]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=max(room, 0),
        min_frequency=max(1, round(min_frequency * scale)),
        # Given in order, so that ties between pairs do not hang on the order of a hash table.
        special_tokens=alphabet,
        limit_alphabet=0,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_repeated(counts, scale), trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def _repeated(counts, scale, most=1000):
    """Each word as often as it was counted, the only form in which the trainer takes counts."""
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        count = max(1, round(count * scale))
        for at in range(0, count, most):
            yield f"{word} " * min(most, count - at)


def _batches(counts, size):
    items = iter(counts.items())
    while batch := list(itertools.islice(items, size)):
        yield batch
