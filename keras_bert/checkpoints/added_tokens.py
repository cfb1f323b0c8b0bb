"""Tokens that a tokenizer matches whole in a text, before it splits the text into words.

Source: huggingface/tokenizers, `added_vocabulary.rs`; huggingface/transformers,
`tokenization_utils_base.py`.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import folder
from keras_bert.untrusted.errors import invalid

# Where a text contains these strings, they are ordinary text.
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_MAX_LENGTH = 200  # characters
_MAX_DIGITS = 9  # of an id


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is matched whole in a text.

    Attributes:
        content: The token.
        lstrip: The white space before the token belongs to it.
        rstrip: The white space after the token belongs to it.
        single_word: The token is only matched if no letter, digit or `_` is beside it.
        normalized: The token is matched in the normalized text, for example in lower case.
    """

    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.content, str) or not 0 < len(self.content) <= _MAX_LENGTH:
            rule = f"an added token must be a string of 1 to {_MAX_LENGTH} characters"
            raise ValueError(f"{rule}, received {self.content!r:.80}")
        for field in _FLAGS:
            value = getattr(self, field)
            if not isinstance(value, bool):
                rule = f"{field} of the added token {self.content!r:.80} must be true or false"
                raise ValueError(f"{rule}, received {value!r:.80}")


_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")


def as_added_token(value: "str | Mapping[str, Any] | AddedToken") -> AddedToken:
    """Return the `AddedToken` of a string, which is matched exactly, or of a dict of its fields."""
    if isinstance(value, AddedToken):
        return value
    if isinstance(value, str):
        return AddedToken(value)
    known = {"content", *_FLAGS}
    if not isinstance(value, Mapping) or not set(value) <= known or "content" not in value:
        names = ", ".join(sorted(known))
        raise ValueError(
            f"an added token must be a string or a dict of {names}, received {value!r:.80}"
        )
    return AddedToken(**value)


def word_pieces(vocabulary: Sequence[str], added: Iterable[AddedToken]) -> Sequence[str]:
    """Return a vocabulary without the added tokens at its end.

    Tokens that were added to a vocabulary later are only matched whole. WordPiece does not use
    them to spell words.
    """
    names = {token.content for token in added}
    size = len(vocabulary)
    while size > 0 and vocabulary[size - 1] in names:
        size -= 1
    return vocabulary[:size]


def read(path: Path) -> dict[str, tuple[int | None, AddedToken]]:
    """Read {token: (id, `AddedToken`)} from the tokenizer files in a folder.

    The id is `None` if the files do not state it. If several files declare a token, the flags of
    the first declaration and the first id count.
    """
    tokens: dict[str, tuple[int | None, AddedToken]] = {}
    for file, id_, value, normalized in _declared(path):
        fields = {"content": value} if isinstance(value, str) else value
        if not isinstance(fields, Mapping):
            raise invalid(file, "an added token must be a string or an object", value)
        flags: dict[str, Any] = {name: fields[name] for name in _FLAGS if name in fields}
        flags.setdefault("normalized", normalized)
        try:
            token = AddedToken(fields.get("content", ""), **flags)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        if id_ is not None:
            folder.check_id(file, token.content, id_)
        first_id, first_token = tokens.get(token.content, (None, token))
        tokens[token.content] = (id_ if first_id is None else first_id, first_token)
    return tokens


def _declared(path: Path) -> Iterator[tuple[Path, int | None, Any, bool]]:
    """Yield each token that a folder declares: file, id, token, default of `normalized`."""
    config_file = path / "tokenizer_config.json"
    config = folder.read_optional_json(config_file)
    decoder = config.get("added_tokens_decoder") or {}
    if not isinstance(decoder, dict):
        raise invalid(config_file, "added_tokens_decoder must be an object", decoder)
    for key, value in decoder.items():
        if len(key) > _MAX_DIGITS:  # Python converts at most 4300 digits
            raise invalid(config_file, f"an id must have at most {_MAX_DIGITS} digits", key)
        id_ = int(key) if key.isdecimal() else None
        yield config_file, id_, value, _is_normalized(value)
    file = path / "tokenizer.json"
    for value in _list(file, folder.read_optional_json(file), "added_tokens"):
        id_ = value.get("id") if isinstance(value, dict) else None
        yield file, _int_or_none(id_), value, _is_normalized(value)
    map_file = path / "special_tokens_map.json"
    for file, content in ((config_file, config), (map_file, folder.read_optional_json(map_file))):
        for value in _special_tokens(file, content):
            yield file, None, value, False
    file = path / "added_tokens.json"
    for token, id_ in folder.read_optional_json(file).items():
        yield file, _int_or_none(id_), token, True


def _list(file: Path, content: Mapping[str, Any], key: str) -> Iterable[Any]:
    """Return the list, or the values of the object, under a key that may be missing."""
    value = content.get(key) or ()
    if isinstance(value, dict):
        return value.values()
    if not isinstance(value, (list, tuple)):
        raise invalid(file, f"{key} must be a list", value)
    return value


def _int_or_none(value: Any) -> int | None:
    return value if type(value) is int else None


def _is_normalized(value: Any) -> bool:
    """Return the default of `normalized`: True for objects that are not special tokens."""
    return isinstance(value, dict) and not value.get("special", False)


def _special_tokens(file: Path, content: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the special tokens of tokenizer_config.json or special_tokens_map.json."""
    for key, value in content.items():
        if key in ("additional_special_tokens", "extra_special_tokens"):
            yield from _list(file, content, key)
        elif key.endswith("_token") and isinstance(value, (str, dict)):
            yield value
