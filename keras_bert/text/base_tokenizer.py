"""What the tokenizers in Python and in TensorFlow share: vocabulary, options and their checks."""

import re
import unicodedata
import warnings
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from keras_bert.checkpoints.added_tokens import AddedToken, as_added_tokens, word_pieces
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.warn import level_of_caller
from keras_bert.text import added_token_search

UNKNOWN = "[UNK]"
_MIN_MISMATCHES = 100  # tokens that must mismatch the options before a warning


class BaseTokenizer:
    """The vocabulary and the options of a tokenizer.

    Args:
        vocabulary: list of tokens; the index of a token is its id. If a token occurs twice, its
            last index counts, as in Google's `load_vocab`.
        lowercase: lower-case as `str.lower` does.
        strip_accents: decompose (NFD) and drop combining marks. Defaults to `lowercase`.
        split_cjk: make each CJK ideograph a word.
        added_tokens: tokens that are matched whole in texts, as for `Preprocessor`.

    Attributes:
        unknown_id: Id of [UNK].
        word_pieces: The tokens that words are split into: all but the added tokens at the end.

    Raises:
        ValueError: if the vocabulary lacks [UNK] or an added token.

    Warns:
        UserWarning: if many tokens of the vocabulary can never match with these options.
    """

    def __init__(
        self,
        vocabulary: Iterable[str],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_cjk: bool = True,
        added_tokens: Iterable[Any] = (),
    ) -> None:
        self.vocabulary = list(vocabulary)
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.split_cjk = split_cjk
        self.added_tokens = as_added_tokens(added_tokens)
        self._ids = {token: index for index, token in enumerate(self.vocabulary)}
        check_tokens(self.vocabulary, (UNKNOWN,), self.added_tokens)
        self.unknown_id = self._ids[UNKNOWN]
        self.word_pieces = word_pieces(self.vocabulary, self.added_tokens)
        self._exact_tokens = {
            token.content: token for token in self.added_tokens if not token.normalized
        }
        self._normalized_tokens = added_token_search.normalized_texts(
            self.added_tokens, lowercase, self.strip_accents
        )
        _warn_of_mismatch(dict.fromkeys(self.word_pieces), lowercase, self.strip_accents)

    def token_id(self, token: str) -> int:
        """Return the id of a token. Raises `KeyError` if the vocabulary lacks it."""
        return self._ids[token]

    @property
    def special_ids(self) -> "SpecialIds":
        """The ids of [CLS], [SEP] and [PAD]. Raises `KeyError` if the vocabulary lacks one."""
        return SpecialIds(*map(self.token_id, ("[CLS]", "[SEP]", "[PAD]")))


def check_tokens(
    vocabulary: Collection[str], needed: Iterable[str], added_tokens: Iterable[AddedToken]
) -> None:
    """Raise a `ValueError` if a vocabulary lacks a needed token or an added token."""
    tokens = set(vocabulary)
    needed = [*needed, *(added.content for added in added_tokens)]
    missing = [token for token in needed if token not in tokens]
    if missing:
        raise ValueError(
            f"The vocabulary ({len(vocabulary)} tokens) has no {', '.join(missing)}. Add it (also "
            "one of the added_tokens), or write it in place of a token such as [unused1]."
        )


class SpecialIds(NamedTuple):
    """Ids of the tokens that are added to texts: [CLS], [SEP] and [PAD]."""

    cls: int
    sep: int
    pad: int


def _warn_of_mismatch(tokens: Iterable[str], lowercase: bool, strip_accents: bool) -> None:
    """Warn if many tokens can never match, or if no token matches upper case."""
    tokens = [token for token in tokens if not (token.startswith("[") and token.endswith("]"))]
    never_match = [
        token
        for token in tokens
        if (lowercase and token != token.lower())
        or (strip_accents and not unicodedata.is_normalized("NFD", token))
    ]
    lower = [token for token in tokens if re.search("[a-z]", token)]
    has_upper = any(re.search("[A-Z]", token) for token in tokens)
    if len(never_match) >= max(_MIN_MISMATCHES, len(tokens) / 20):
        reason = (
            f"{len(never_match)} of its {len(tokens)} tokens, such as {shown(never_match[0])}, "
            "never match a text"
        )
    elif not lowercase and len(lower) >= _MIN_MISMATCHES and not has_upper:
        reason = f"no token has a letter A-Z, so words in upper case become {UNKNOWN}"
    else:
        return
    warnings.warn(
        f"lowercase={lowercase}, strip_accents={strip_accents} does not fit this vocabulary: "
        f"{reason}. Set the options with which the vocabulary was made.",
        stacklevel=level_of_caller(),
    )
