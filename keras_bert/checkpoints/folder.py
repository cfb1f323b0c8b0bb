"""What lies beside the weights in every format's folder: JSON files and the vocabulary."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.terminal import printable

MAX_PIECES = 2**22  # The largest vocabulary of a published BERT has half a million.
_MAX_VOCABULARY = 2**28  # bytes
_MAX_JSON = 2**26  # bytes; a tokenizer.json of half a million pieces has 2**25


def read_json(file: Path) -> dict[str, Any]:
    """Reads a JSON file that holds one object.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not UTF-8, not JSON, not an object, or has a key twice.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "config.json")
        ...     _ = file.write_text('{"hidden_size": 8}')
        ...     read_json(file)
        {'hidden_size': 8}
    """
    return parse_json(read_bytes(file, _MAX_JSON), file)


def parse_json(data: bytes, file: object) -> dict[str, Any]:
    """Parse a JSON file that holds one object.

    Args:
        data: Content of the file.
        file: Named in errors.

    Raises:
        ValueError: If it is not UTF-8, not JSON, not an object, or has a key twice.

    Example:
        >>> parse_json(b'{"hidden_size": 8, "hidden_size": 9}', "config.json")
        Traceback (most recent call last):
        ...
        ValueError: config.json: must be JSON in UTF-8, received the key 'hidden_size' twice
    """
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: must be JSON in UTF-8, received {one_line(error)}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{file}: must hold a JSON object, received {type(value).__name__}")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r:.80} twice")
    return found


def read_bytes(file: Path, limit: int) -> bytes:
    """Read a file, or raise a ValueError if it has more than `limit` bytes."""
    with open(file, "rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{file}: must have at most {limit} bytes, received more")
    return data


def read_vocabulary(file: Path) -> list[str]:
    r"""Reads a vocabulary of one piece a line, as Google's `load_vocab` does.

    A line ends at "\n" and nowhere else: pieces such as "\u2028" are no ends of lines. White space
    around a piece is dropped, and a line left empty by that keeps its id. A repeated piece stays in
    the list, because dropping it would move the ids after it.

    Source: google-research/bert tokenization.py, `load_vocab`.

    Args:
        file: Path of vocab.txt.

    Returns:
        The pieces; the place in the list is the id.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is empty, not UTF-8, or has over `MAX_PIECES` lines.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "vocab.txt")
        ...     _ = file.write_bytes(b"[PAD]\r\n\n##s\n")
        ...     read_vocabulary(file)
        ['[PAD]', '', '##s']
    """
    lines = read_text(file).split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.strip() for line in lines]


def read_text(file: Path) -> str:
    """Read the text of a vocabulary's file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is empty, not UTF-8, or has over `MAX_PIECES` lines.
    """
    data = read_bytes(file, _MAX_VOCABULARY)
    count = data.count(b"\n")
    if count > MAX_PIECES:
        raise ValueError(
            f"{file}: a vocabulary must have at most {MAX_PIECES} pieces, received {count} lines"
        )
    if not data:
        raise ValueError(f"{file}: a vocabulary must have one piece a line, received an empty file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{file}: a vocabulary must be UTF-8, received byte 0x{data[error.start]:02x} "
            f"in line {line}"
        ) from error


def write_json(file: Path, value: Any) -> None:
    """Writes a JSON file as people read it: indented, UTF-8 not escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    with atomic_write(file) as beside:
        beside.write_text(f"{text}\n", encoding="utf-8", newline="\n")


def write_vocabulary(file: Path, vocabulary: Sequence[str]) -> None:
    r"""Writes a vocabulary of one piece a line; the way back from `read_vocabulary`.

    Raises:
        ValueError: If a piece would come back as another one.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "vocab.txt")
        ...     write_vocabulary(file, ["[PAD]", "", "a\u2028b"])
        ...     file.read_bytes()
        b'[PAD]\n\na\xe2\x80\xa8b\n'
    """
    text = vocabulary_text(file, vocabulary)
    with atomic_write(file) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")


def vocabulary_text(file: Path, vocabulary: Sequence[str]) -> str:
    r"""What a vocabulary's file holds.

    Args:
        file: for the error.
        vocabulary: the pieces.

    Raises:
        ValueError: If a piece would come back as another one.

    Example:
        >>> vocabulary_text(Path("vocab.txt"), ["[PAD]", "a b", "c "])
        Traceback (most recent call last):
        ValueError: vocab.txt: a piece is a line without white space around, got 'c '
    """
    for piece in vocabulary:
        if piece != piece.strip() or "\n" in piece:
            raise ValueError(f"{file}: a piece is a line without white space around, got {piece!r}")
    return "".join(f"{piece}\n" for piece in vocabulary)


def check_vocabulary_size(file: Path, vocabulary: Sequence[str], vocab_size: int) -> None:
    """Raises ValueError unless there is one piece for each row of the word embeddings.

    Example:
        >>> check_vocabulary_size(Path("vocab.txt"), ["[PAD]", "a"], 3)
        Traceback (most recent call last):
        ...
        ValueError: vocab.txt: must have one piece for each of the vocab_size 3 ids, received 2
    """
    if len(vocabulary) != vocab_size:
        raise ValueError(
            f"{file}: must have one piece for each of the vocab_size {vocab_size} ids, "
            f"received {len(vocabulary)}"
        )


def is_cased(vocabulary: Sequence[str]) -> bool:
    """Whether a vocabulary tells upper case from lower case.

    Judged by its whole words, "##" pieces and bracketed ones such as [CLS] aside. Letters that
    `str.lower` does not change (mathematical capitals) survive lower-casing, so they prove nothing.

    Example:
        >>> is_cased(["[CLS]", "paris", "##A"]), is_cased(["[CLS]", "Paris"])
        (False, True)
    """
    return any(
        piece.lower() != piece
        for piece in vocabulary
        if not piece.startswith("##") and not (piece.startswith("[") and piece.endswith("]"))
    )


def one_line(error: BaseException) -> str:
    r"""The message of an error, in one line that is safe to print.

    Example:
        >>> one_line(ValueError("no\nsuch key"))
        'no such key'
    """
    return printable(" ".join(str(error).split()) or type(error).__name__, 500)
