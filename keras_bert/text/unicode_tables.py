"""The Unicode properties that Google's BasicTokenizer uses, as frozen tables.

The code in google-research/bert `tokenization.py` uses Python's `unicodedata`, so its ids depend
on the Python version. These tables are frozen at Unicode 14.0 (Python 3.11). `python -m
tests.golden.make_unicode_tables` writes `unicode_tables.npz`.
"""

import dataclasses
import functools
import itertools
import pathlib
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

FILE = pathlib.Path(__file__).with_name("unicode_tables.npz")
HANGUL = range(0xAC00, 0xD7A4)  # syllables


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


FLAGS = ("space", "removed", "punctuation", "mark", "cased", "case_ignorable")


@functools.cache
def tables() -> UnicodeTables:
    """Read the frozen tables."""
    with np.load(FILE) as file:
        arrays = {name: file[name] for name in file.files}
    flags = {name: np.unpackbits(arrays[name], count=CODE_POINTS).astype(bool) for name in FLAGS}
    combining_class = np.zeros(CODE_POINTS, np.uint8)
    combining_class[arrays["combining_at"]] = arrays["combining_class"]
    decomposition = _unflatten(arrays, "decomposition")
    for code in HANGUL:  # equal in all versions of Unicode
        decomposition[code] = tuple(map(ord, unicodedata.normalize("NFD", chr(code))))
    return UnicodeTables(
        combining_class=combining_class,
        lower=_unflatten(arrays, "lower"),
        decomposition=decomposition,
        **flags,
    )


def _unflatten(arrays, name):
    values = iter(arrays[f"{name}_values"].tolist())
    return {
        key: tuple(itertools.islice(values, length))
        for key, length in zip(
            arrays[f"{name}_at"].tolist(), arrays[f"{name}_length"].tolist(), strict=True
        )
    }


def ranges(flags: np.ndarray) -> list[list[int]]:
    """Return the first and the last code point of each run of nonzero flags, (0x110000,)."""
    is_set = np.concatenate([[False], flags != 0, [False]])
    edges = np.flatnonzero(is_set[1:] != is_set[:-1])
    return [[first, limit - 1] for first, limit in edges.reshape(-1, 2).tolist()]
