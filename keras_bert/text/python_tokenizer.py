"""Google's BERT tokenizer in Python, without TensorFlow.

A text is split at white space into chunks, a chunk into words, and a word into tokens. The ids of
each chunk are cached, so most chunks of a text cost one dictionary lookup. The Unicode tables are
those of the graph in `text.tokenizer`, so the ids are the same.
"""

import functools
import itertools
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from keras_bert.text import added_token_search, tables, unicode_tables
from keras_bert.text.base_tokenizer import BaseTokenizer

_SIGMA = chr(unicode_tables.CAPITAL_SIGMA)
_SMALL_SIGMA = "σ"  # noqa: RUF001
_FINAL_SIGMA = chr(unicode_tables.FINAL_SIGMA)
_SURROGATES = range(0xD800, 0xE000)  # code points that UTF-8 cannot encode; they are removed
_MAX_CACHED = 2**27  # bytes per cache, of which a tokenizer has three
# Estimates of the bytes in a cache.
_BYTES_PER_ENTRY = 200
_BYTES_PER_ID = 8
_BYTES_PER_OFFSETS = 90  # of an id, and two integers in lists
_SPACE_LIMIT = 0x3001  # the code points of all white space are below this
_NEVER = "(?!)"  # matches nothing


class Tokens(NamedTuple):
    """The tokens of one text, as lists with a value per token.

    Attributes:
        ids: Index in the vocabulary.
        words: Index of the word in the text.
        starts: Index of the first character in the text.
        limits: Index after the last character. Stripped accents after a character belong to it.
    """

    ids: list[int]
    words: list[int]
    starts: list[int]
    limits: list[int]

    def next_word(self) -> int:
        """Return the index of the next word."""
        return self.words[-1] + 1 if self.words else 0

    def add(self, ids: list[int], word: int, starts: list[int], limits: list[int]) -> None:
        """Add the tokens of one word."""
        self.ids.extend(ids)
        self.words.extend([word] * len(ids))
        self.starts.extend(starts)
        self.limits.extend(limits)


class _Characters(NamedTuple):
    """The normalized characters of a text.

    Attributes:
        text: The characters.
        sources: For each character, the index in the text of the character it was made from.
        word_starts: Index of the first character of each word.
    """

    text: str
    sources: list[int]
    word_starts: list[int]


class PythonTokenizer(BaseTokenizer):
    """Tokenizes Python strings into the same ids as Google's tokenizer.

    The arguments and errors are those of `BaseTokenizer`.

    Example:

    >>> tokenizer = PythonTokenizer(["[PAD]", "[UNK]", "play", "##ing", "chess", "!"])
    >>> tokenizer.tokenize(["Playing chess!", "go"])
    [[2, 3, 4, 5], [1]]
    >>> tokenizer.tokenize_with_offsets("Playing chess!").starts
    [0, 4, 8, 13]
    """

    def __init__(self, vocabulary: Iterable[str], **options: Any) -> None:
        super().__init__(vocabulary, **options)
        self._id_of_piece = {token: self.token_id(token) for token in self.word_pieces}
        self._id_of_suffix = {
            token.removeprefix(tables.SUFFIX): token_id
            for token, token_id in self._id_of_piece.items()
            if token.startswith(tables.SUFFIX)
        }
        self._longest_piece = max(map(len, self.word_pieces))
        self._patterns = _patterns(self.lowercase, self.strip_accents, self.split_cjk)
        self._replacements = _replacements(self.lowercase, self.strip_accents)
        self._ids_of_chunk = _Cache(self._tokenize_chunk, _BYTES_PER_ID)
        self._ids_of_word = _Cache(self._tokenize_word, _BYTES_PER_ID)
        self._tokens_of_word = _Cache(self._tokenize_word_with_offsets, _BYTES_PER_OFFSETS)
        self._exact_search = added_token_search.Search(self._exact_tokens)
        self._normalized_search = added_token_search.Search(self._normalized_tokens, self.split_cjk)

    def tokenize(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the ids of each text, without [CLS] and [SEP]."""
        if self.added_tokens:
            return [self.tokenize_with_offsets(text).ids for text in texts]
        return [self._tokenize_text(text) for text in texts]

    def tokenize_with_offsets(self, text: str) -> Tokens:
        """Return the `Tokens` of a text: ids, words, and offsets in characters."""
        tokens = Tokens([], [], [], [])
        end = 0
        for match in self._exact_search.find(text, text) if self._exact_tokens else ():
            self._add_part(tokens, text[end : match.start], end)
            ids = [self.token_id(match.token.content)]
            limit = self._patterns.end_of_marks(text, match.limit)
            tokens.add(ids, tokens.next_word(), [match.start], [limit])
            end = match.limit
        self._add_part(tokens, text[end:], end)
        return tokens

    def tokenize_characters_with_offsets(self, text: str) -> Tokens:
        """Return the `Tokens` of a text in which each character is a word.

        For taggers that label characters, such as the entities of KLUE. `words` has the index of
        the character. Characters without a token, such as spaces, are left out.
        """
        tokens = Tokens([], [], [], [])
        for index, character in enumerate(text):
            ids = self.tokenize_with_offsets(character).ids
            tokens.add(ids, index, [index] * len(ids), [index + 1] * len(ids))
        return tokens

    def _add_part(self, tokens: Tokens, part: str, shift: int) -> None:
        """Add the tokens of a part of a text that begins at the character `shift`."""
        part = self._lower_sigmas(part)
        if self._normalized_tokens:
            characters = self._normalize_part(part)
            source = "".join(part[index] for index in characters.sources)
            matches = self._normalized_search.find(characters.text, source)
            if matches:
                self._add_matches(tokens, part, characters, matches, shift)
                return
        for word in self._patterns.word.finditer(part):
            ids, starts, limits = self._tokens_of_word[word[0]]
            first = shift + word.start()
            starts = [first + start for start in starts]
            tokens.add(ids, tokens.next_word(), starts, [first + limit for limit in limits])

    def _add_matches(
        self,
        tokens: Tokens,
        part: str,
        characters: "_Characters",
        matches: list[added_token_search.Match],
        shift: int,
    ) -> None:
        """Add the tokens of a part of a text with matches in its normalized characters.

        For the part "A [E1]b" with the token "[e1]":

            characters.text         "a [e1]b"
            characters.word_starts  0 2 3 5 6    (punctuation is a word)
            matches                 2 to 6
            edges                   0 2 6 7      (pieces "a ", "[e1]" and "b")
        """
        match_at = {match.start: match for match in matches}
        edges = set(characters.word_starts) | {0, len(characters.text)}
        for match in matches:
            edges -= set(range(match.start, match.limit))
            edges |= {match.start, match.limit}
        for start, limit in itertools.pairwise(sorted(edges)):
            if start in match_at:
                ids = [self.token_id(match_at[start].token.content)]
                limits = [limit - start]
            else:
                ids, limits = self._split_with_limits(characters.text[start:limit].rstrip(" "))
            firsts = [characters.sources[start + first] for first in [0, *limits][: len(ids)]]
            ends = [characters.sources[start + end - 1] + 1 for end in limits]
            ends = [self._patterns.end_of_marks(part, end) for end in ends]
            tokens.add(
                ids,
                tokens.next_word(),
                [shift + first for first in firsts],
                [shift + end for end in ends],
            )

    def _normalize_part(self, part: str) -> "_Characters":
        """Normalize a part of a text, with " " for all white space."""
        texts: list[str] = []
        sources: list[int] = []
        word_starts: list[int] = []
        end = 0
        for word in self._patterns.word.finditer(part):
            texts.append(" " * (word.start() - end))
            sources.extend(range(end, word.start()))
            word_starts.append(len(sources))
            text, indices = self._normalize(word[0])
            texts.append(text)
            sources.extend([word.start() + index for index in indices])
            end = word.end()
        texts.append(" " * (len(part) - end))
        sources.extend(range(end, len(part)))
        return _Characters("".join(texts), sources, word_starts)

    def chunks(self, text: str) -> list[str]:
        """Split a text at white space. The capital sigmas of the chunks are lower-cased."""
        if self._patterns.unusual.search(text):
            text = self._patterns.removed_space.sub("", self._lower_sigmas(text))
        return text.split()

    def words(self, chunk: str) -> list[str]:
        """Return the normalized words of a chunk."""
        words = map(self._normalized, self._patterns.word.findall(chunk))
        return [word for word in words if word]

    def _tokenize_text(self, text: str) -> list[int]:
        ids = map(self._ids_of_chunk.__getitem__, self.chunks(text))
        return list(itertools.chain.from_iterable(ids))

    def _tokenize_chunk(self, chunk: str) -> tuple[int, ...]:
        words = self._patterns.word.findall(chunk)
        if len(words) == 1:
            return self._tokenize_word(words[0])
        return tuple(itertools.chain.from_iterable(map(self._ids_of_word.__getitem__, words)))

    def _tokenize_word(self, word: str) -> tuple[int, ...]:
        """Normalize a word and split it."""
        return self._split(self._normalized(word))

    def _normalized(self, word: str) -> str:
        """Return the normalized characters of a word, without their sources."""
        if self._patterns.reordered.search(word):
            return self._normalize_in_order(word)[0]
        return word.translate(self._replacements)

    def _tokenize_word_with_offsets(self, word: str) -> tuple[list[int], list[int], list[int]]:
        """Return the ids of a word, and the first character and the limit of each token."""
        characters, sources = self._normalize(word)
        ids, limits = self._split_with_limits(characters)
        starts = [0, *limits][: len(ids)]
        source_starts = [sources[start] for start in starts]
        source_limits = [sources[limit - 1] + 1 for limit in limits]
        source_limits = [self._patterns.end_of_marks(word, limit) for limit in source_limits]
        return ids, source_starts, source_limits

    def _split(self, characters: str) -> tuple[int, ...]:
        """Split a normalized word, longest token first."""
        if len(characters) > tables.MAX_WORD_LENGTH:
            return (self.unknown_id,)
        ids: list[int] = []
        start = 0
        id_of_piece = self._id_of_piece
        while start < len(characters):
            limit = self._longest_match(characters, start, id_of_piece)
            if limit == start:
                return (self.unknown_id,)
            ids.append(id_of_piece[characters[start:limit]])
            start = limit
            id_of_piece = self._id_of_suffix
        return tuple(ids)

    def _longest_match(self, characters: str, start: int, id_of_piece: dict[str, int]) -> int:
        """Return the end of the longest token that begins at `start`; `start` if none does."""
        limit = min(len(characters), start + self._longest_piece)
        while limit > start and characters[start:limit] not in id_of_piece:
            limit -= 1
        return limit

    def _split_with_limits(self, characters: str) -> tuple[list[int], list[int]]:
        """Return the ids of a normalized word, and the index after the last character of each."""
        ids = list(self._split(characters))
        if ids in ([], [self.unknown_id]):
            return ids, [len(characters)] * len(ids)
        lengths = [len(self.vocabulary[token_id]) for token_id in ids]
        lengths[1:] = [length - len(tables.SUFFIX) for length in lengths[1:]]
        return ids, list(itertools.accumulate(lengths))

    def _normalize(self, word: str) -> tuple[str, list[int]]:
        """Return the normalized characters of a word, and the index in the word of each."""
        if self._patterns.reordered.search(word):
            return self._normalize_in_order(word)
        pieces = [self._replacements.get(ord(character), character) for character in word]
        sources = [index for index, piece in enumerate(pieces) for _ in piece]
        return "".join(pieces), sources

    def _normalize_in_order(self, word: str) -> tuple[str, list[int]]:
        """Normalize a word with combining characters, which NFD puts into canonical order.

        Accents take part in the order, so they are removed last.
        """
        unicode = unicode_tables.tables()
        codes: list[int] = []
        sources: list[int] = []
        for index, character in enumerate(word):
            code = ord(character)
            if unicode.removed[code] or code in _SURROGATES:
                continue
            decomposition = unicode.lower_and_decompose(code, self.lowercase)
            codes.extend(decomposition)
            sources.extend([index] * len(decomposition))
        # Each run of combining characters is sorted by class.
        classes = unicode.combining_class[codes]
        order = np.lexsort((classes, np.cumsum(classes == 0)))
        kept = [index for index in order if not unicode.mark[codes[index]]]
        characters = "".join(chr(codes[index]) for index in kept)
        return characters, sorted(sources[index] for index in kept)

    def _lower_sigmas(self, text: str) -> str:
        """Lower-case each capital sigma as `str.lower` does: a final sigma at the end of a word."""
        if not self.lowercase or _SIGMA not in text:
            return text
        return re.sub(_SIGMA, _lower_sigma, text)


def _lower_sigma(match: re.Match[str]) -> str:
    """Return the lower case of a capital sigma in a text."""
    text = match.string
    follows_letter = _is_cased(text, range(match.start() - 1, -1, -1))
    precedes_letter = _is_cased(text, range(match.end(), len(text)))
    return _FINAL_SIGMA if follows_letter and not precedes_letter else _SMALL_SIGMA


def _is_cased(text: str, indices: range) -> bool:
    """Return True if the first character that is not ignored has a case."""
    unicode = unicode_tables.tables()
    for index in indices:
        code = ord(text[index])
        is_ignored = unicode.case_ignorable[code] or unicode.removed[code]
        if not is_ignored and code not in _SURROGATES:
            return bool(unicode.cased[code])
    return False


class _Cache(dict[str, Any]):
    """Caches the tokens of strings, as a function returns them. A full cache is emptied.

    A string has at most as many tokens as characters.
    """

    def __init__(self, function: Callable[[str], Any], bytes_per_token: int) -> None:
        super().__init__()
        self._function = function
        self._bytes_per_token = bytes_per_token
        self._bytes = 0

    def __missing__(self, key: str) -> Any:
        value = self._function(key)
        size = _BYTES_PER_ENTRY + sys.getsizeof(key) + len(key) * self._bytes_per_token
        if size > _MAX_CACHED:
            return value
        if self._bytes + size > _MAX_CACHED:
            self.clear()
            self._bytes = 0
        self[key] = value
        self._bytes += size
        return value


class _Patterns:
    """Regular expressions that are made from the table entries of all code points.

    Attributes:
        word: Matches a word: a character that is isolated, with its accents; or all characters up
            to white space or an isolated character.
        reordered: Matches a character that the canonical order of NFD can move.
        unusual: Matches a character to replace before `str.split`: a capital sigma or
            `removed_space`.
        removed_space: Matches a control character that Google's tokenizer removes. `str.split`
            would split at it.
    """

    def __init__(self, entries: np.ndarray, lowercase: bool) -> None:
        isolated = _ranges(entries & tables.ISOLATED)
        boundaries = _ranges(entries & (tables.ISOLATED | tables.SPACE))
        marks = _ranges(entries & tables.MARK)
        self._marks = re.compile(f"[{marks}]*" if marks else "")
        self.word = re.compile(f"[{isolated}]{self._marks.pattern}|[^{boundaries}]+")
        reordered = _ranges(entries & tables.REORDER)
        self.reordered = re.compile(f"[{reordered}]" if reordered else _NEVER)
        is_space_of_python = np.array([chr(code).isspace() for code in range(_SPACE_LIMIT)])
        is_space_of_google = (entries[:_SPACE_LIMIT] & tables.SPACE) != 0
        removed_space = _ranges(is_space_of_python & ~is_space_of_google)
        self.removed_space = re.compile(f"[{removed_space}]")
        sigma = _SIGMA if lowercase else ""
        self.unusual = re.compile(f"[{removed_space}{sigma}]")

    def end_of_marks(self, word: str, start: int) -> int:
        """Return the index after the stripped accents that begin at `start`, or `start`."""
        match = self._marks.match(word, start)
        return start if match is None else match.end()


@functools.cache
def _patterns(lowercase: bool, strip_accents: bool, split_cjk: bool) -> _Patterns:
    return _Patterns(tables.code_point_entries(lowercase, strip_accents, split_cjk), lowercase)


def _ranges(flags: np.ndarray) -> str:
    r"""Return the code points with a flag, as ranges such as `\U00000300-\U0000036f`."""
    ranges = unicode_tables.ranges(flags)
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


@functools.cache
def _replacements(lowercase: bool, strip_accents: bool) -> dict[int, str]:
    """Return the table of `str.translate` that normalizes words without `reordered` characters."""
    unicode = unicode_tables.tables()
    replacements = tables.normalization(unicode, lowercase, strip_accents)
    table = {code: "".join(map(chr, codes)) for code, codes in replacements.items()}
    for code in [*np.flatnonzero(unicode.removed).tolist(), *_SURROGATES]:
        table[code] = ""
    return table
