"""Find added tokens, which are matched whole, in a string.

The order is that of Hugging Face's tokenizers. First, tokens with `normalized=False` are matched in
the text itself. Then, the other tokens are matched in the normalized text between these matches.
Each time the leftmost match counts, and the longest of several at the same position. Normalization
of added tokens, and what is a letter beside them, follow the Unicode version of the running Python.
"""

import functools
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_bert.checkpoints.added_tokens import AddedToken
from keras_bert.text import unicode_tables

# Characters that Hugging Face's tokenizers match with `\w`, although their category is not one of
# `_WORD_CATEGORIES`: joiners, and symbols with Unicode's property Alphabetic.
_OTHER_WORD_RANGES = (
    (0x200C, 0x200D), (0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189),
)  # fmt: skip
_WORD_CATEGORIES = ("L", "M", "N", "Pc")


class Match(NamedTuple):
    """A token in a text: its first character, and the index after its last one."""

    token: AddedToken
    start: int
    limit: int


class Search:
    """Finds tokens in strings.

    Args:
        token_of_text: the token for each text to search for, for example in lower case.
        separates_cjk: `True` if CJK ideographs are words of their own, so that `single_word` does
            not count them as letters beside a token.
    """

    def __init__(self, token_of_text: dict[str, AddedToken], separates_cjk: bool = False) -> None:
        self._token_of_text = token_of_text
        longest_first = sorted(token_of_text, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        self._separates_cjk = separates_cjk

    def find(self, text: str, source: str) -> list[Match]:
        """Return the matches in a text, in order.

        Args:
            text: the text to search.
            source: the character from which each character of `text` was made; decides if a token
                with `single_word` is beside a letter.
        """
        matches: list[Match] = []
        for match in self._pattern.finditer(text):
            token = self._token_of_text[match[0]]
            start, limit = match.span()
            if token.single_word and self._is_joined(source, start, limit):
                continue
            if token.rstrip:
                limit = _edge_of_spaces(text, limit, len(text), 1)
            if token.lstrip:
                # The spaces between two matches belong to the first one if it has `rstrip`.
                previous_limit = matches[-1].limit if matches else 0
                start = _edge_of_spaces(text, start - 1, previous_limit - 1, -1) + 1
            matches.append(Match(token, start, limit))
        return matches

    def _is_joined(self, source: str, start: int, limit: int) -> bool:
        """Return True if a letter, digit or `_` is beside a match."""
        beside = source[max(start - 1, 0) : start] + source[limit : limit + 1]
        is_word = word_characters(self._separates_cjk)
        return any(is_word[ord(character)] for character in beside)


def _edge_of_spaces(text: str, index: int, end: int, step: int) -> int:
    """Return the first of the indices `range(index, end, step)` that is not of white space.

    Without such an index, return `end`. The text is not copied, because it can have many matches.
    """
    space = unicode_tables.tables().space
    while index != end and space[ord(text[index])]:
        index += step
    return index


def normalize(text: str, lowercase: bool, strip_accents: bool) -> str:
    """Normalize a token as the tokenizers normalize texts, with " " for all white space."""
    unicode = unicode_tables.tables()
    chars = [" " if unicode.space[ord(char)] else char for char in text]
    text = "".join(char for char in chars if not unicode.removed[ord(char)])
    if lowercase:
        text = text.lower()
    if strip_accents:
        decomposed = unicodedata.normalize("NFD", text)
        text = "".join(char for char in decomposed if not unicode.mark[ord(char)])
    return text


def normalized_texts(
    tokens: Sequence[AddedToken], lowercase: bool, strip_accents: bool
) -> dict[str, AddedToken]:
    """Return the tokens with `normalized`, by their normalized text. The first of equals counts."""
    token_of_text: dict[str, AddedToken] = {}
    for token in tokens:
        text = normalize(token.content, lowercase, strip_accents)
        if token.normalized and text:
            token_of_text.setdefault(text, token)
    return token_of_text


@functools.cache
def word_characters(separates_cjk: bool) -> np.ndarray:
    """Return True for letters, marks, digits and `_`; bool (0x110000,)."""
    is_word = np.zeros(unicode_tables.CODE_POINTS, bool)
    for code in range(unicode_tables.CODE_POINTS):
        category = unicodedata.category(chr(code))
        is_word[code] = category.startswith(_WORD_CATEGORIES) and category != "No"
    for first, last in _OTHER_WORD_RANGES:
        is_word[first : last + 1] = True
    for first, last in unicode_tables.CJK_RANGES if separates_cjk else ():
        is_word[first : last + 1] = False
    return is_word
