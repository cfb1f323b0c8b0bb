"""Offsets in a text: UTF-8 bytes, which tokenizers count, and characters, which Python counts."""

import numpy as np


def characters_of_bytes(text):
    """Return the index of the character of each UTF-8 byte of a text, int (bytes,)."""
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    sizes = 1 + np.searchsorted([0x80, 0x800, 0x10000], code_points, "right")
    # Lone surrogates, which JSON allows and UTF-8 does not, are dropped when texts are encoded.
    sizes[(code_points >= 0xD800) & (code_points < 0xE000)] = 0
    return np.repeat(np.arange(len(code_points)), sizes)
