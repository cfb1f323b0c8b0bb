"""What lies beside the weights in every format's folder: JSON files and the vocabulary."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_bert.files import whole


def read_json(file: Path) -> dict[str, Any]:
    """Reads a JSON file that holds one object.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not UTF-8, not JSON, or not an object.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "config.json")
        ...     _ = file.write_text('{"hidden_size": 8}')
        ...     read_json(file)
        {'hidden_size': 8}
    """
    try:
        value = json.loads(file.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: must be JSON in UTF-8, received {_one_line(error)}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{file}: must hold a JSON object, received {type(value).__name__}")
    return value


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
        ValueError: If the file is empty or not UTF-8.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "vocab.txt")
        ...     _ = file.write_bytes(b"[PAD]\r\n\n##s\n")
        ...     read_vocabulary(file)
        ['[PAD]', '', '##s']
    """
    data = file.read_bytes()
    if not data:
        raise ValueError(f"{file}: a vocabulary must have one piece a line, received an empty file")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{file}: a vocabulary must be UTF-8, received byte 0x{data[error.start]:02x} "
            f"in line {line}"
        ) from error
    if not lines[-1]:
        lines.pop()
    return [line.strip() for line in lines]


def write_json(file: Path, value: Any) -> None:
    """Writes a JSON file as people read it: indented, UTF-8 not escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    with whole(file) as beside:
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
    with whole(file) as beside:
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


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
