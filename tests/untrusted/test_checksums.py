"""CRC-32C against published values and a loop over bytes; test_bundle.py has TensorFlow's files."""

import numpy as np
import pytest

from keras_bert.untrusted import checksums
from tests.security import mutations


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"a", 0xC1D04330),
        (b"123456789", 0xE3069283),
        # RFC 3720, appendix B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_published_values(data, expected):
    assert checksums.crc32c(data) == expected


@pytest.mark.parametrize("size", [7, 8, 9, 2119, 2120, 2136, 5003, 140_000, 600_001])
def test_long_data(size):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    assert checksums.crc32c(data) == mutations.crc32c(data.tobytes())
