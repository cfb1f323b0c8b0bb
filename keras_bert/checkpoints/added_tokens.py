"""Tokens that a tokenizer matches whole in a text, before it splits the text into words.

Source: huggingface/tokenizers, `added_vocabulary.rs`; huggingface/transformers,
`tokenization_utils_base.py`.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import folder
from keras_bert.runtime import budget
from keras_bert.runtime.escaping import shown

# Where a text contains these strings, they are ordinary text.
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


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
        is_text = isinstance(self.content, str) and 0 < len(self.content) <= budget.MAX_NAME
        if not is_text or not all(isinstance(getattr(self, flag), bool) for flag in _FLAGS):
            raise ValueError(
                f"an added token must have 1 to {budget.MAX_NAME} characters, and flags that are "
                f"true or false, received {shown(self)}"
            )


_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")


def as_added_tokens(
    values: "Iterable[str | Mapping[str, Any] | AddedToken]",
) -> tuple[AddedToken, ...]:
    """Return the `AddedToken`s of strings, which are matched exactly, or of dicts of its fields."""
    tokens = tuple(map(_as_added_token, values))
    characters = sum(len(token.content) for token in tokens)
    budget.check(characters, "characters in all added tokens", budget.MAX_TOKENS)
    return tokens


def _as_added_token(value: "str | Mapping[str, Any] | AddedToken") -> AddedToken:
    if isinstance(value, AddedToken):
        return value
    return AddedToken(value) if isinstance(value, str) else AddedToken(**value)


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


def read(
    path: Path, config: Mapping[str, Any], tokenizer: Mapping[str, Any]
) -> dict[str, tuple[int | None, AddedToken]]:
    """Read {token: (id, `AddedToken`)} from the tokenizer files in a folder.

    `config` is the content of tokenizer_config.json, and `tokenizer` is that of tokenizer.json. The
    id is `None` if the files do not state it. If several files declare a token, the flags of the
    first declaration and the first id count.
    """
    tokens: dict[str, tuple[int | None, AddedToken]] = {}
    for file, id_, fields in _declared(path, config, tokenizer):
        known = {name: fields[name] for name in ("content", *_FLAGS) if name in fields}
        try:
            token = AddedToken(**known)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        if id_ is not None:
            folder.check_id(file, token.content, id_)
        first_id, first_token = tokens.get(token.content, (None, token))
        tokens[token.content] = (id_ if first_id is None else first_id, first_token)
    try:
        as_added_tokens(token for _, token in tokens.values())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return tokens


def _declared(
    path: Path, config: Mapping[str, Any], tokenizer: Mapping[str, Any]
) -> Iterator[tuple[Path, Any, dict[str, Any]]]:
    """Yield each token that a folder declares: file, id, and fields with those of `AddedToken`."""
    config_file = path / "tokenizer_config.json"
    for key, fields in (config.get("added_tokens_decoder") or {}).items():
        id_ = int(key) if len(key) < 10 else key  # Python converts at most 4300 digits
        yield config_file, id_, {"normalized": not fields.get("special", False), **fields}
    for fields in tokenizer.get("added_tokens") or ():
        normalized = not fields.get("special", False)
        yield path / "tokenizer.json", fields.get("id"), {"normalized": normalized, **fields}
    map_file = path / "special_tokens_map.json"
    for file, content in ((config_file, config), (map_file, folder.read_optional_json(map_file))):
        for value in _special_tokens(content):
            yield file, None, {"content": value} if isinstance(value, str) else value
    file = path / "added_tokens.json"
    for token, id_ in folder.read_optional_json(file).items():
        yield file, id_, {"content": token, "normalized": True}


def _special_tokens(content: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the special tokens of tokenizer_config.json or special_tokens_map.json."""
    for key, value in content.items():
        if key in ("additional_special_tokens", "extra_special_tokens"):
            if isinstance(value, str):
                raise ValueError(f"{key} must be a list; received {shown(value)}")
            yield from value.values() if isinstance(value, dict) else value or ()
        elif key.endswith("_token") and isinstance(value, (str, dict)):
            yield value
