"""Makes unicode_tables.npz: the properties of all code points, from Python 3.11.

python3.11 -m tests.golden.make_unicode_tables
"""

import sys
import unicodedata

import numpy as np

from keras_bert.text.unicode_tables import (
    CODE_POINTS,
    FILE,
    FLAGS,
    HANGUL,
    UNICODE_VERSION,
    UnicodeTables,
)


def derive() -> UnicodeTables:
    """Derive the tables from the running Python; takes about three seconds."""
    flags = {name: np.zeros(CODE_POINTS, bool) for name in FLAGS}
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


def _flatten(mapping, name):
    keys = sorted(mapping)
    return {
        f"{name}_at": np.array(keys, np.int32),
        f"{name}_length": np.array([len(mapping[key]) for key in keys], np.uint8),
        f"{name}_values": np.array([v for key in keys for v in mapping[key]], np.int32),
    }


def write(path=FILE) -> None:
    """Derive the tables and write the frozen file. Needs the Python of `UNICODE_VERSION`."""
    if unicodedata.unidata_version != UNICODE_VERSION:
        raise ValueError(
            f"The tables are frozen at Unicode {UNICODE_VERSION}; Python "
            f"{sys.version.split()[0]} has {unicodedata.unidata_version}. Run Python 3.11."
        )
    derived = derive()
    at = np.flatnonzero(derived.combining_class)
    np.savez_compressed(
        path,
        allow_pickle=False,
        **{name: np.packbits(getattr(derived, name)) for name in FLAGS},
        combining_at=at.astype(np.int32),
        combining_class=derived.combining_class[at],
        **_flatten(derived.lower, "lower"),
        **_flatten(
            {k: v for k, v in derived.decomposition.items() if k not in HANGUL},
            "decomposition",
        ),
    )


if __name__ == "__main__":
    write()
