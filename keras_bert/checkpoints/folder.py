"""Read and write the files that every format's folder has besides weights: JSON and vocabulary."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_bert.runtime import budget, reading
from keras_bert.runtime.files import atomic_write
from keras_bert.untrusted.errors import invalid

# What to do with a checkpoint of another tokenizer; the end of an error.
OTHER_TOKENIZER = (
    "Its ids would be wrong. To use the encoder with ids that you compute with its own tokenizer, "
    "load a copy of the folder without vocab.txt and tokenizer.json"
)


def has_file(file: Path) -> bool:
    """Return True for a file, and False if there is nothing. Anything else is a `ValueError`."""
    is_file = file.is_file()
    if not is_file and os.path.lexists(file):
        kind = "a folder" if file.is_dir() else "a broken link"
        raise ValueError(f"{file} must be a file, received {kind}; delete or replace it")
    return is_file


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON file in UTF-8 that holds one object without repeated keys."""
    return reading.parse_json(reading.read_bytes(file), file)


def read_optional_json(file: Path) -> dict[str, Any]:
    """Read a JSON file as `read_json` does, or return an empty dict if there is none."""
    return read_json(file) if has_file(file) else {}


def read_json_list(file: Path) -> list[Any]:
    """Read a JSON file in UTF-8 that holds one list."""
    return reading.parse_json_list(reading.read_bytes(file), file)


def write_json(file: Path, value: Any) -> None:
    """Write a JSON file: indented, non-ASCII characters as they are."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    with atomic_write(file) as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8", newline="\n")


def read_vocabulary(file: Path) -> list[str]:
    """Read a vocabulary with one token per line, as Google's `load_vocab` does.

    Only a line feed ends a line, because a token may contain other line separators. White space
    around a token and a byte order mark are stripped. Empty lines before the last token, and
    repeated tokens, are kept, so that the ids of the following tokens stay the same.
    """
    text = read_vocabulary_text(file).removeprefix("\ufeff").rstrip()
    return [line.strip() for line in text.split("\n")]


def read_vocabulary_text(file: Path) -> str:
    """Return the text of a vocabulary file with 1 to `budget.MAX_TOKENS` lines."""
    text = reading.read_text(file)
    if not text:
        raise invalid(file, "must have one token per line", text)
    budget.check(text.count("\n"), "lines", budget.MAX_TOKENS, file)
    return text


def read_optional_vocabulary(file: Path, vocab_size: int) -> list[str] | None:
    """Read a vocabulary, or return `None` if the file does not exist."""
    if not has_file(file):
        return None
    vocabulary = read_vocabulary(file)
    check_vocabulary_size(file, vocabulary, vocab_size)
    return vocabulary


def default_tokenizer(lowercase: bool) -> dict[str, Any]:
    """Return the options of `ModelSpec.tokenizer` if only the casing is known."""
    return {
        "lowercase": lowercase,
        "strip_accents": lowercase,
        "split_cjk": True,
        "sequence_length": None,
    }


def write_vocabulary(file: Path, vocabulary: Sequence[str]) -> None:
    """Write a vocabulary with one token per line, as `read_vocabulary` reads it."""
    text = vocabulary_text(file, vocabulary)
    with atomic_write(file) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def vocabulary_text(file: Path, vocabulary: Sequence[str]) -> str:
    """Return the text of a vocabulary file, one line per token.

    A token with a line break, or with white space around it, is a `ValueError`: it would be read
    back differently.
    """
    for token in vocabulary:
        if token != token.strip() or "\n" in token:
            raise invalid(file, "a token must be a line without white space around it", token)
    return "".join(f"{token}\n" for token in vocabulary)


def check_vocabulary_size(file: Path, vocabulary: Sequence[str], vocab_size: int) -> None:
    """Check that each token of a vocabulary has a row of the word embeddings.

    Embeddings can have more rows, because their number is often a multiple of 8. No text has the
    ids of these rows.
    """
    if len(vocabulary) > vocab_size:
        rule = f"must have at most one token for each of the vocab_size {vocab_size} ids"
        raise invalid(file, rule, len(vocabulary))


def check_id(file: Path, token: str, id_: object) -> None:
    """Raise a `ValueError` if an id in a file cannot be that of a token."""
    if type(id_) is not int or not 0 <= id_ < budget.MAX_TOKENS:
        raise invalid(file, f"ids must be 0 to {budget.MAX_TOKENS - 1}", {token: id_})


def check_tokens(source: object, vocabulary: Sequence[str]) -> None:
    """Raise a `ValueError` for a vocabulary from which no tokenizer can be made in seconds."""
    lengths = [len(token) for token in vocabulary]
    longest = max(lengths, default=0)
    budget.check(len(lengths), "tokens", budget.MAX_TOKENS, source)
    budget.check(longest, "characters in a token", budget.MAX_NAME, source)
    budget.check(sum(lengths), "characters in all tokens", budget.MAX_TEXT, source)


def refuse_sentencepiece(source: object, vocabulary: Sequence[str]) -> None:
    """Raise a `ValueError` for a vocabulary of SentencePiece, whose words begin with U+2581."""
    words = sum(token.startswith("\u2581") and len(token) > 1 for token in vocabulary)
    if words > sum(token.startswith("##") for token in vocabulary):
        raise ValueError(
            f"{source}: must be a WordPiece vocabulary, received one of SentencePiece, whose words "
            f"begin with \u2581. {OTHER_TOKENIZER}"
        )


def is_lowercase(vocabulary: Sequence[str] | None) -> bool:
    """Return True if lowercasing changes no word of the vocabulary, or if there is no vocabulary.

    Subwords ("##") and special tokens such as [CLS] are skipped.
    """
    return vocabulary is None or not any(
        token.lower() != token
        for token in vocabulary
        if not token.startswith("##") and not (token.startswith("[") and token.endswith("]"))
    )
