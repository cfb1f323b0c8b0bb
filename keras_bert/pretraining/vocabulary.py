"""Learn a WordPiece vocabulary from a corpus, and measure how well a vocabulary fits a corpus.

`PythonTokenizer` splits the words that are counted. The trainer of Hugging Face's `tokenizers` then
learns tokens from the counts alone, so its own normalization and word splitting are not used.
"""

import collections
import errno
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from keras_bert.checkpoints import folder, tokenizer_config
from keras_bert.checkpoints.added_tokens import word_pieces
from keras_bert.checkpoints.tokenizer_config import VOCABULARY_FILE
from keras_bert.pretraining.corpus import Document, batched
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.packages import import_extra
from keras_bert.text import vocabulary_fit
from keras_bert.text.base_tokenizer import UNKNOWN
from keras_bert.text.preprocessor import Preprocessor
from keras_bert.text.python_tokenizer import PythonTokenizer

Documents: TypeAlias = Iterable[Document | str]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# As in Google's files: [PAD] at 0, 99 unused tokens, then the other special tokens at 100 to 103.
GOOGLE_FIRST_TOKENS = ("[PAD]", *(f"[unused{index}]" for index in range(1, 100)), *SPECIAL[1:])
MIN_GOOGLE_SIZE = 1000  # tokens; a smaller vocabulary has no room for 99 unused tokens

_CHUNK = 8 << 20  # characters per pass of `count_words`
_MAX_WORDS = 5_000_000  # distinct words kept in memory
_MAX_OCCURRENCES = 20_000_000  # words given to the trainer; larger counts are scaled down
# Maximum number of tokens of one character: a share of the vocabulary, but at least 200.
_ALPHABET_SHARE = 0.4
_SMALL_ALPHABET = 200


def train(
    documents: Documents,
    size: int,
    *,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    split_cjk: bool = True,
    min_frequency: int = 2,
    max_bytes: int | None = None,
) -> list[str]:
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
        ValueError: If the corpus has no words or gives too few tokens, or `size` has no room for
            the special tokens.
        ImportError: If `tokenizers` is not installed.

    Example:

    >>> tokens = train(["low lower lowest", "new newer newest"] * 9, 30)
    >>> len(tokens), tokens[:6], "low" in tokens
    (30, ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'e'], True)
    """
    as_integer("size", size, len(SPECIAL) + 1)
    as_integer("min_frequency", min_frequency, 1)
    if max_bytes is not None:
        as_integer("max_bytes", max_bytes, 1)
    # Raise an error before the corpus is counted.
    import_extra("tokenizers", "pretraining", "training a vocabulary")
    if max_bytes is not None:
        documents = _sample(documents, max_bytes)
    tokenizer = PythonTokenizer(
        [UNKNOWN], lowercase=lowercase, strip_accents=strip_accents, split_cjk=split_cjk
    )
    counts = count_words(documents, tokenizer)
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


def count_words(documents: Documents, tokenizer: PythonTokenizer) -> collections.Counter[str]:
    """Count words as the tokenizer splits them: a `collections.Counter`.

    `documents` are `corpus.Document`s or strings. Above 5 million distinct words, the rarest words
    are dropped.
    """
    counts: collections.Counter[str] = collections.Counter()
    for texts in batched(_texts(documents), _CHUNK):
        counts += vocabulary_fit.count_words(texts, tokenizer)
        max_dropped = 1
        while len(counts) > _MAX_WORDS:
            counts = collections.Counter({w: c for w, c in counts.items() if c > max_dropped})
            max_dropped += 1
    return counts


def coverage(documents: Documents, preprocessor: Preprocessor) -> dict[str, float]:
    """Measure how well a vocabulary fits documents; use documents that it was not learned from.

    `preprocessor` is a `Preprocessor`. Returns a dict: `words`, their number; `unknown`, the share
    of words that are [UNK]; `tokens_per_word`, the mean number of tokens of the other words;
    `whole`, the share of words that are one token.
    """
    tokenizer = preprocessor.python_tokenizer
    counts = count_words(documents, tokenizer)
    if not counts:
        raise ValueError("The corpus has no words; check the documents.")
    return vocabulary_fit.coverage(counts, tokenizer)


def write(
    path: str | os.PathLike,
    vocabulary: Sequence[str],
    *,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    split_cjk: bool = True,
    added_tokens: Any = (),
) -> None:
    """Write a vocabulary and its options to a folder, in the files of a checkpoint.

    A token that contains a line end, or has white space around it, is a `ValueError`.
    """
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {
        "lowercase": lowercase,
        "strip_accents": lowercase if strip_accents is None else strip_accents,
        "split_cjk": split_cjk,
        "sequence_length": None,
    }
    if added_tokens:
        options["added_tokens"] = list(added_tokens)
    text = folder.vocabulary_text(path / VOCABULARY_FILE, word_pieces(vocabulary, added_tokens))
    # vocab.txt is written to a temporary file first and appears last. If the disk is full, the
    # folder therefore never has new options beside an old vocabulary.
    with atomic_write(path / VOCABULARY_FILE) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")
        tokenizer_config.write(path, options, vocabulary)


def read(path: str | os.PathLike) -> tuple[list[str], dict[str, Any]]:
    """Read (tokens, dict of `Preprocessor` options) from a folder of `write` or a checkpoint."""
    path = pathlib.Path(path)
    tokenizer = tokenizer_config.read(path)
    if tokenizer.vocabulary is None:
        missing = str(path / VOCABULARY_FILE)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), missing)
    options = dict(tokenizer.options)
    del options["sequence_length"]
    return tokenizer.vocabulary, options


def _texts(documents):
    for document in documents:
        if isinstance(document, str):
            yield document
        else:
            yield from document.paragraphs()


def _sample(documents, max_bytes):
    """Keep every n-th document; double n whenever the kept documents exceed `max_bytes`."""
    kept: list[tuple] = []  # (document, its bytes)
    size = 0
    step = 1
    for index, document in enumerate(documents):
        if index % step:
            continue
        text = document if isinstance(document, str) else document.text
        length = len(text.encode("utf-8"))
        kept.append((document, length))
        size += length
        while size > max_bytes and len(kept) > 1:
            kept = kept[::2]
            step *= 2
            size = sum(length for _, length in kept)
    return [document for document, _ in kept]


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
    kept: set[str] = set()
    tokens: list[str] = []
    limit = max(int(room * _ALPHABET_SHARE), min(room, _SMALL_ALPHABET))
    for char, count in sorted((first + inside).items(), key=lambda item: (-item[1], item[0])):
        # Inside words the token has the prefix ##; the trainer needs the plain one as well.
        needed = [char, f"##{char}"] if char in inside else [char]
        if count < min_frequency or len(tokens) + len(needed) > limit:
            break
        kept.add(char)
        tokens += needed
    spelled = {word: count for word, count in counts.items() if kept.issuperset(word)}
    return spelled, sorted(tokens, key=lambda token: (token.startswith("##"), token))


def _learn(counts, alphabet, room, min_frequency):
    """Return the tokens: the alphabet, then the others in the order of the trainer."""
    import tokenizers

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
