"""The Unicode properties that Google's BasicTokenizer uses, as frozen tables.

The code in google-research/bert `tokenization.py` uses Python's `unicodedata`, so its ids depend
on the Python version. These tables are frozen at Unicode 14.0 (Python 3.11). To write
`unicode_tables.npz` again with Python 3.11: `python -m keras_bert.text.unicode_tables`
"""

import dataclasses
import functools
import itertools
import pathlib
import sys
import unicodedata

import numpy as np

UNICODE_VERSION = "14.0.0"
CODE_POINTS = 0x110000

CAPITAL_SIGMA = 0x3A3
FINAL_SIGMA = 0x3C2

# The eight blocks of ideographs that Google treats as words; without Hangul and kana.
CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)

_FILE = pathlib.Path(__file__).with_name("unicode_tables.npz")
_HANGUL_FIRST, _HANGUL_LAST = 0xAC00, 0xD7A3


@dataclasses.dataclass(frozen=True)
class UnicodeTables:
    """Properties of all code points; arrays (0x110000,), bool except for `combining_class`.

    Attributes:
        space: category Zs, tab, newline, carriage return, and U+2028 and U+2029, at which
            `str.split` splits.
        removed: U+0000, U+FFFD, categories Cc and Cf, except tab and line ends.
        punctuation: ASCII 33-47, 58-64, 91-96, 123-126 and the categories P*.
        mark: category Mn, which accent stripping removes.
        combining_class: the canonical combining class, uint8.
        cased, case_ignorable: decide the lower case of a capital sigma near the code point.
        lower: {code point: its lower case, a tuple}, where they differ.
        decomposition: {code point: its NFD, a tuple}, where they differ.
    """

    space: np.ndarray
    removed: np.ndarray
    punctuation: np.ndarray
    mark: np.ndarray
    combining_class: np.ndarray
    cased: np.ndarray
    case_ignorable: np.ndarray
    lower: dict[int, tuple[int, ...]]
    decomposition: dict[int, tuple[int, ...]]

    def lower_and_decompose(self, code: int, lowercase: bool, decompose: bool = True) -> list[int]:
        """Return the code points of the lower case of a code point, and their NFD."""
        codes = self.lower.get(code, (code,)) if lowercase else (code,)
        if not decompose:
            return list(codes)
        return [part for lower in codes for part in self.decomposition.get(lower, (lower,))]


_FLAGS = ("space", "removed", "punctuation", "mark", "cased", "case_ignorable")


def derive() -> UnicodeTables:
    """Derive the tables from the running Python; takes about three seconds."""
    flags = {name: np.zeros(CODE_POINTS, bool) for name in _FLAGS}
    combining_class = np.zeros(CODE_POINTS, np.uint8)
    lower: dict[int, tuple[int, ...]] = {}
    decomposition: dict[int, tuple[int, ...]] = {}
    for code in range(CODE_POINTS):
        char = chr(code)
        category = unicodedata.category(char)
        white = char in " \t\n\r" or category == "Zs"
        flags["space"][code] = white or char in "\u2028\u2029"
        flags["removed"][code] = code in (0, 0xFFFD) or (category in ("Cc", "Cf") and not white)
        flags["punctuation"][code] = category[0] == "P" or (
            33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
        )
        flags["mark"][code] = category == "Mn"
        combining_class[code] = unicodedata.combining(char)
        if 0xD800 <= code <= 0xDFFF:
            continue  # surrogates do not occur in UTF-8
        # `str.lower` ignores case-ignorable characters before a sigma at the end of a word. The
        # sigma is final if the character before them is cased. So two calls give both properties.
        after_char = (char + "\u03a3").lower()[-1] == "\u03c2"
        after_letter = ("a" + char + "\u03a3").lower()[-1] == "\u03c2"
        flags["cased"][code] = after_char
        flags["case_ignorable"][code] = after_letter and not after_char
        lowered = tuple(map(ord, char.lower()))
        if lowered != (code,):
            lower[code] = lowered
        decomposed = tuple(map(ord, unicodedata.normalize("NFD", char)))
        if decomposed != (code,):
            decomposition[code] = decomposed
    return UnicodeTables(
        combining_class=combining_class, lower=lower, decomposition=decomposition, **flags
    )


@functools.cache
def tables() -> UnicodeTables:
    """Read the frozen tables."""
    with np.load(_FILE) as file:
        arrays = {name: file[name] for name in file.files}
    flags = {name: np.unpackbits(arrays[name], count=CODE_POINTS).astype(bool) for name in _FLAGS}
    combining_class = np.zeros(CODE_POINTS, np.uint8)
    combining_class[arrays["combining_at"]] = arrays["combining_class"]
    decomposition = _unflatten(arrays, "decomposition")
    for code in range(_HANGUL_FIRST, _HANGUL_LAST + 1):
        decomposition[code] = _jamo(code)
    return UnicodeTables(
        combining_class=combining_class,
        lower=_unflatten(arrays, "lower"),
        decomposition=decomposition,
        **flags,
    )


def _jamo(syllable):
    """Return the NFD of a Hangul syllable (The Unicode Standard, section 3.12)."""
    index = syllable - _HANGUL_FIRST
    lead, vowel, tail = 0x1100 + index // 588, 0x1161 + index % 588 // 28, index % 28
    return (lead, vowel, 0x11A7 + tail) if tail else (lead, vowel)


def _flatten(mapping, name):
    keys = sorted(mapping)
    return {
        f"{name}_at": np.array(keys, np.int32),
        f"{name}_length": np.array([len(mapping[key]) for key in keys], np.uint8),
        f"{name}_values": np.array([v for key in keys for v in mapping[key]], np.int32),
    }


def _unflatten(arrays, name):
    values = iter(arrays[f"{name}_values"].tolist())
    return {
        key: tuple(itertools.islice(values, length))
        for key, length in zip(
            arrays[f"{name}_at"].tolist(), arrays[f"{name}_length"].tolist(), strict=True
        )
    }


def write(path: pathlib.Path = _FILE) -> None:
    """Derive the tables and write the frozen file. Needs the Python of `UNICODE_VERSION`."""
    if unicodedata.unidata_version != UNICODE_VERSION:
        raise ValueError(
            f"The tables are frozen at Unicode {UNICODE_VERSION}; Python "
            f"{sys.version.split()[0]} has {unicodedata.unidata_version}. Run Python 3.11."
        )
    derived = derive()
    syllables = range(_HANGUL_FIRST, _HANGUL_LAST + 1)
    at = np.flatnonzero(derived.combining_class)
    np.savez_compressed(
        path,
        allow_pickle=False,
        **{name: np.packbits(getattr(derived, name)) for name in _FLAGS},
        combining_at=at.astype(np.int32),
        combining_class=derived.combining_class[at],
        **_flatten(derived.lower, "lower"),
        **_flatten(
            {k: v for k, v in derived.decomposition.items() if k not in syllables},
            "decomposition",
        ),
    )


if __name__ == "__main__":
    write()
