"""CRC-32C, the checksum in TensorFlow's checkpoints, computed by NumPy at gigabytes per second.

The checksum is the remainder of a division, in which data are one long number. A long number can
be shortened before it is divided. Decimal example: since 100 = 99 + 1, the remainder by 99 stays
the same if the leading two digits are removed and added to the next two.

    123456  ->  3456 + 1200 = 4656  ->  56 + 46 = 102, and 123456 % 99 = 102 % 99 = 3

In the division of CRC-32C, bits are added by XOR, and "digits" are words of 64 bits. A leading word
can be removed if it is added to five later words, which `_DISTANCES` lists.

Source: RFC 3720, appendix B.4 (CRC-32C), tensorflow/core/lib/hash/crc32c.h (the mask).
"""

from typing import Any

import numpy as np

_POLYNOMIAL = 0x82F63B78  # the divisor, lowest bit first
# With y = 2**64 for one word, 1 is the sum of y**-distance, modulo the divisor. Squaring keeps this
# true, and without carries the square of a sum is the sum of the squares. So all distances can also
# be multiplied by 2, 4, 8, ...
_DISTANCES = (123, 145, 178, 195, 266)
_SCALE = 64  # of the distances in long data: more words at once
_WORDS_AT_ONCE = 2**16  # they stay in the processor's cache
_START = 0x641F645400000000  # a word before the data; its remainder is 0xFFFFFFFF


def crc32c(data: Any) -> int:
    """Return the checksum of bytes, or of an array of bytes."""
    octets = np.frombuffer(data, np.uint8)
    end = len(octets) // 8 * 8
    words = octets[:end].view("<u8")
    shortened = np.array([_START], "<u8")
    for start in range(0, len(words), _WORDS_AT_ONCE):
        following = words[start : start + _WORDS_AT_ONCE]
        shortened = _shorten(np.concatenate([shortened, following]), _SCALE)
    scale = _SCALE
    while scale > 1:
        scale //= 2
        shortened = _shorten(shortened, scale)
    remainder = 0
    for octet in shortened.tobytes() + octets[end:].tobytes():
        remainder = _TABLE[(remainder ^ octet) & 0xFF] ^ remainder >> 8
    return remainder ^ 0xFFFFFFFF


def masked_crc32c(data: Any) -> int:
    """Return the checksum as TensorFlow stores it: rotated, and with an added constant."""
    checksum = crc32c(data)
    rotated = checksum >> 15 | checksum << 17
    return (rotated + 0xA282EAD8) & 0xFFFFFFFF


def _shorten(words: np.ndarray, scale: int) -> np.ndarray:
    """Return fewer words with the same remainder, by a change of `words` in place."""
    distances = [scale * distance for distance in _DISTANCES]
    end = max(len(words) - distances[-1], 0)
    for start in range(0, end, distances[0]):
        leading = words[start : min(start + distances[0], end)]
        for distance in distances:
            words[start + distance : start + distance + len(leading)] ^= leading
    return words[end:]


def _remainder(octet: int) -> int:
    for _ in range(8):
        is_odd = octet & 1
        octet >>= 1
        if is_odd:
            octet ^= _POLYNOMIAL
    return octet


_TABLE = [_remainder(octet) for octet in range(256)]
