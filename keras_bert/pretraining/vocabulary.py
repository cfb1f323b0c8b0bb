"""Learn a WordPiece vocabulary from a corpus, and measure how well a vocabulary fits a corpus.

Words are counted as `text.tokenizer` splits them. The trainer of Hugging Face's `tokenizers` then
learns tokens from the counts alone, so its own normalization and word splitting are not used.
"""

import collections
import errno
import functools
import itertools
import os
import pathlib
import re

import numpy as np

from keras_bert.checkpoints import folder, tokenizer_config
from keras_bert.checkpoints.added_tokens import word_pieces
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.files import atomic_write
from keras_bert.text import unicode_tables
from keras_bert.text.python_tokenizer import PythonTokenizer
from keras_bert.text.tables import MAX_WORD_LENGTH

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# As in Google's files: [PAD] at 0, 99 unused tokens, then the other special tokens at 100 to 103.
GOOGLE_FIRST_TOKENS = ("[PAD]", *(f"[unused{index}]" for index in range(1, 100)), *SPECIAL[1:])
MIN_GOOGLE_SIZE = 1000  # tokens; a smaller vocabulary has no room for 99 unused tokens
VOCABULARY_FILE = "vocab.txt"

_MAX_SIZE = 2**31 - 1  # tokens; ids are int32
_CHUNK = 8 << 20  # characters per pass of `count_words`
_MAX_WORDS = 5_000_000  # distinct words kept in memory
_MAX_OCCURRENCES = 20_000_000  # words given to the trainer; larger counts are scaled down
# Maximum number of tokens of one character: a share of the vocabulary, but at least 200.
_ALPHABET_SHARE, _SMALL_ALPHABET = 0.4, 200

# `str.split` splits at these control characters, but the tokenizer removes them.
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
    """Learn a WordPiece vocabulary.

    The same documents give the same tokens in any process. The tokenizer with these options can
    produce every token.

    Args:
        documents: Iterable of `corpus.Document`s or strings.
        size: Exact number of tokens. From `MIN_GOOGLE_SIZE` on, [UNK], [CLS], [SEP] and [MASK]
            have Google's ids, 100 to 103, after unused tokens. In smaller vocabularies they
            follow [PAD].
        lowercase, strip_accents, split_cjk: As for `Preprocessor`.
        min_frequency: Minimum count of a character or of a pair of tokens.
        max_bytes: Maximum bytes of text to learn from. The function keeps every n-th document in
            memory; n is the smallest sufficient power of two. Default: all documents, streamed.

    Returns:
        The tokens, a list of strings; the index of a token is its id.

    Raises:
        ValueError: If the corpus has no words or gives too few tokens, an argument is out of
            range, or `tokenizers` is not installed.

    Example:

    >>> tokens = train(["low lower lowest", "new newer newest"] * 9, 30)
    >>> len(tokens), tokens[:6], "low" in tokens
    (30, ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'e'], True)
    """
    _check_numbers(size, min_frequency, max_bytes)
    _trainer_library()  # fail before the corpus is counted
    if max_bytes is not None:
        documents = _sample(documents, max_bytes)
    counts = count_words(
        documents, lowercase=lowercase, strip_accents=strip_accents, split_cjk=split_cjk
    )
    if not counts:
        raise ValueError("The corpus has no words; check the documents.")
    tokens = _tokens(counts, size, min_frequency)
    if len(tokens) < size:
        possible = len(tokens)
        # A smaller vocabulary also keeps fewer characters, so it can have fewer tokens still.
        while len(smaller := _tokens(counts, possible, min_frequency)) < possible:
            possible = len(smaller)
        raise ValueError(
            f"size must be at most {possible}, the number of tokens in this corpus with "
            f"min_frequency={min_frequency}; received {size}. Use a smaller size or more text."
        )
    return tokens


def _tokens(counts, size, min_frequency):
    """Return a vocabulary of at most `size` tokens."""
    first = GOOGLE_FIRST_TOKENS if size >= MIN_GOOGLE_SIZE else SPECIAL
    room = size - len(first)
    counts, alphabet = _alphabet(counts, room, min_frequency)
    return [*first, *_learn(counts, alphabet, room, min_frequency)]


def _check_numbers(size, min_frequency, max_bytes):
    for name, value, minimum in (
        ("size", size, len(SPECIAL) + 1),
        ("min_frequency", min_frequency, 1),
        ("max_bytes", 1 if max_bytes is None else max_bytes, 1),
    ):
        as_integer(name, value, minimum)
    if size > _MAX_SIZE:
        raise ValueError(f"size must be at most {_MAX_SIZE}; received {size}")


def count_words(documents, *, lowercase=True, strip_accents=None, split_cjk=True):
    """Count words as `text.tokenizer` splits them: a `collections.Counter`.

    `documents` are `corpus.Document`s or strings. The options are those of `Preprocessor`. Above 5
    million distinct words, the rarest words are dropped.
    """
    strip_accents = lowercase if strip_accents is None else strip_accents
    split = functools.partial(
        _split, mapped=_Mapping(lowercase, strip_accents), split_cjk=split_cjk
    )
    counts: collections.Counter[str] = collections.Counter()
    for chunk in _chunks(documents):
        # Most tokens repeat, so split each distinct token once.
        for token, count in collections.Counter(_REMOVED_SPACE.sub("", chunk).split()).items():
            if token.isascii():
                token = token.lower() if lowercase else token
                words = (token,) if token.isalnum() else _ASCII_WORD.findall(token)
            else:
                words = split(token)
            for word in words:
                if len(word) <= MAX_WORD_LENGTH:
                    counts[word] += count
        max_dropped = 1
        while len(counts) > _MAX_WORDS:
            counts = collections.Counter({w: c for w, c in counts.items() if c > max_dropped})
            max_dropped += 1
    return counts


def coverage(documents, tokenizer):
    """Measure how well a vocabulary fits documents; use documents that it was not learned from.

    `tokenizer` is a `Preprocessor` or a tokenizer. Returns a dict: `words`, their
    number; `unknown`, the share of words that are [UNK]; `tokens_per_word`, the mean number of
    tokens of the other words; `whole`, the share of words that are one token.
    """
    tokenizer = PythonTokenizer(
        tokenizer.vocabulary,
        lowercase=tokenizer.lowercase,
        strip_accents=tokenizer.strip_accents,
        split_cjk=tokenizer.split_cjk,
        added_tokens=tokenizer.added_tokens,
    )
    counts = count_words(
        documents,
        lowercase=tokenizer.lowercase,
        strip_accents=tokenizer.strip_accents,
        split_cjk=tokenizer.split_cjk,
    )
    if not counts:
        raise ValueError("The corpus has no words; check the documents.")
    unknown = tokens = whole = 0
    for batch in _batches(counts, 50_000):
        words, times = zip(*batch, strict=True)
        times = np.array(times)
        ids = tokenizer.tokenize(words)
        lengths = np.array([len(tokens) for tokens in ids])
        is_unknown = np.array([tokens[0] == tokenizer.unknown_id for tokens in ids])
        unknown += int(times[is_unknown].sum())
        tokens += int((times * lengths)[~is_unknown].sum())
        whole += int(times[(lengths == 1) & ~is_unknown].sum())
    total = counts.total()
    return {
        "words": total,
        "unknown": unknown / total,
        "tokens_per_word": tokens / max(1, total - unknown),
        "whole": whole / total,
    }


def write(path, vocabulary, *, lowercase=True, strip_accents=None, split_cjk=True, added_tokens=()):
    """Write a vocabulary and its options to a folder, in the files of a checkpoint.

    A token that contains a line end, or has white space around it, is a `ValueError`.
    """
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    options = {
        "lowercase": lowercase,
        "strip_accents": lowercase if strip_accents is None else strip_accents,
        "split_cjk": split_cjk,
    }
    if added_tokens:
        options["added_tokens"] = list(added_tokens)
    pieces = word_pieces(vocabulary, added_tokens)
    text = folder.vocabulary_text(path / VOCABULARY_FILE, pieces)
    # vocab.txt is written to a temporary file first and appears last. If the disk is full, the
    # folder therefore never has new options beside an old vocabulary.
    with atomic_write(path / VOCABULARY_FILE) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")
        tokenizer_config.write(path, {**options, "sequence_length": None}, vocabulary)


def read(path):
    """Read (tokens, dict of `Preprocessor` options) from a folder of `write` or a checkpoint."""
    path = pathlib.Path(path)
    vocabulary = tokenizer_config.read_vocabulary(path, folder.MAX_TOKENS)
    if vocabulary is None:
        missing = str(path / VOCABULARY_FILE)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), missing)
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
    """Keep every n-th document; double n whenever the kept documents exceed `max_bytes`."""
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
    """`{character: string}`: lower-cased and decomposed; computed on first use."""

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
    """Split a token with non-ASCII characters and without white space into words."""
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
    """Yield the token in runs, without removed characters; each ideograph is a run."""
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
    """Map a run, with the final sigmas of `str.lower`."""
    out = []
    for index, char in enumerate(run):
        if ord(char) == unicode_tables.CAPITAL_SIGMA:
            around = (reversed(run[:index]), run[index + 1 :])
            before, after = (
                next(
                    (tables.cased[ord(c)] for c in side if not tables.case_ignorable[ord(c)]), False
                )
                for side in around
            )
            out.append(chr(unicode_tables.FINAL_SIGMA) if before and not after else mapped[char])
        else:
            out.append(mapped[char])
    return "".join(out)


def _without_marks(text, tables):
    """Sort combining marks into canonical order (the last step of NFD), then drop Mn."""
    codes = list(map(ord, text))
    classes = tables.combining_class[codes]
    if classes.any():
        run = np.cumsum(classes == 0)  # a starter and the marks after it
        codes = [codes[index] for index in np.lexsort((classes, run))]
        return "".join(chr(code) for code in codes if not tables.mark[code])
    return "".join(char for char in text if not tables.mark[ord(char)])


# --- Tokens --------------------------------------------------------------------------------


def _alphabet(counts, room, min_frequency):
    """Select the most frequent characters.

    Returns the counts of the words that consist of these characters, and the sorted tokens of one
    character.
    """
    inside: collections.Counter[str] = collections.Counter()
    first: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        first[word[0]] += count
        for char in word[1:]:
            inside[char] += count
    total = first + inside
    kept: set[str] = set()
    tokens: list[str] = []
    limit = max(int(room * _ALPHABET_SHARE), min(room, _SMALL_ALPHABET))
    for char, count in sorted(total.items(), key=lambda item: (-item[1], item[0])):
        # Inside words the token has the prefix ##; the trainer needs the plain one as well.
        needed = [char, f"##{char}"] if char in inside else [char]
        if count < min_frequency or len(tokens) + len(needed) > limit:
            break
        kept.add(char)
        tokens += needed
    spelled = {word: count for word, count in counts.items() if kept.issuperset(word)}
    plain, suffixes = (
        sorted(token for token in tokens if (len(token) > 1) == suffix) for suffix in (False, True)
    )
    return spelled, [*plain, *suffixes]


def _trainer_library():
    try:
        import tokenizers
    except ImportError as error:
        raise ValueError(
            "Training a vocabulary needs tokenizers; run: pip install 'keras3-bert[pretraining]'"
        ) from error
    return tokenizers


def _learn(counts, alphabet, room, min_frequency):
    """Return the tokens: the alphabet, then the others in the order of the trainer."""
    tokenizers = _trainer_library()
    scale = min(1.0, _MAX_OCCURRENCES / max(1, sum(counts.values())))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=SPECIAL[1]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=max(room, 0),
        min_frequency=max(1, round(min_frequency * scale)),
        # In a fixed order: otherwise a hash seed decides which of two equally frequent pairs
        # is merged first.
        special_tokens=alphabet,
        limit_alphabet=0,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_repeated(counts, scale), trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def _repeated(counts, scale, max_repeats=1000):
    """Yield each word as often as it was counted; the trainer accepts no counts."""
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        count = max(1, round(count * scale))
        for at in range(0, count, max_repeats):
            yield f"{word} " * min(max_repeats, count - at)


def _batches(counts, size):
    items = iter(counts.items())
    while batch := list(itertools.islice(items, size)):
        yield batch
