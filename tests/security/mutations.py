"""Mutate files for the fuzzer."""

import contextlib
import re
import struct
import zipfile

from tests.security import rewriting

# Unusual values.
NUMBERS = ["-1", "0", "3", "100.7", "1e400", "NaN", "3000000", "1000000000", str(2**63), "9" * 5000]
SIZES = [0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1]
TOKENS = ["null", "[]", "{}", '""', "true", '"\\u001b[2J"', '"' + "x" * 9999 + '"', "[" * 3000]


def mutate(file, random):
    """Change a file. Checksums and sizes are sometimes updated to match."""
    content = file.read_bytes()
    kind = file.suffix
    if zipfile.is_zipfile(file) and random.random() < 0.7:
        with contextlib.suppress(Exception):  # it may be broken already
            _mutate_member(file, random)
    elif kind == ".index" and random.random() < 0.7:
        with contextlib.suppress(Exception):
            file.write_bytes(_sealed_index(content, random))
    elif kind == ".safetensors" and random.random() < 0.5:
        size = struct.unpack("<Q", content[:8])[0]
        header = _changed(content[8 : 8 + size], random, text=True)
        file.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + size :])
    else:
        file.write_bytes(_changed(content, random, kind in (".json", ".jsonl", ".yaml", ".txt")))


def _mutate_member(file, random):
    def change(members):
        name = str(random.choice(sorted(members)))
        text = name.endswith((".json", ".txt"))
        members[name] = _changed(members[name], random, text)

    compress = random.random() < 0.1
    rewriting.rewrite_zip(file, change, zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED)


def _changed(content, random, text=False):
    """Return the content with bytes changed, removed, inserted or copied, or values replaced."""
    if not content:
        return b"\x00" * int(random.integers(3))
    if text and random.random() < 0.6:
        return _changed_text(content, random)
    changed = bytearray(content)
    for _ in range(int(random.choice([1, 1, 2, 8, 64]))):
        if not changed:
            break
        place = int(random.integers(len(changed)))
        size = int(random.integers(1, 17))
        kind = int(random.integers(7))
        if kind == 0:
            changed[place] ^= 1 << int(random.integers(8))
        elif kind == 1:
            changed[place] = int(random.choice([0, 1, 0x7F, 0x80, 0xFF]))
        elif kind == 2:
            del changed[place : place + size]
        elif kind == 3:
            changed[place:place] = random.bytes(size)
        elif kind == 4:
            there = int(random.integers(len(changed)))
            changed[place : place + size] = changed[there : there + size]
        elif kind == 5 and random.random() < 0.2:
            del changed[place:]
        else:
            number = SIZES[int(random.integers(len(SIZES)))]
            changed[place : place + 8] = number.to_bytes(8, "little")
    return bytes(changed)


def _changed_text(content, random):
    text = content.decode("utf-8", "surrogateescape")
    pattern = str(random.choice([r"-?\d+(\.\d+)?", r'"[^"]*"', r"[^\s,:{}\[\]\"]+"]))
    found = list(re.finditer(pattern, text))
    if not found:
        return content
    place = found[int(random.integers(len(found)))]
    new = str(random.choice([*NUMBERS, *TOKENS, found[int(random.integers(len(found)))][0]]))
    return (text[: place.start()] + new + text[place.end() :]).encode("utf-8", "surrogateescape")


def _sealed_index(content, random):
    """Return an index with a changed block and a valid checksum."""
    place = len(content) - 48
    numbers = []
    for _ in range(4):
        value = shift = 0
        while True:
            byte = content[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        numbers.append(value)
    assert max(numbers) < len(content)
    blocks = [(numbers[0], numbers[1]), (numbers[2], numbers[3]), (0, numbers[0] - 5)]
    start, size = blocks[int(random.choice(3, p=[0.1, 0.1, 0.8]))]
    changed = bytearray(content)
    block = bytearray(_changed(bytes(content[start : start + size]), random))[:size]
    block += bytes(size - len(block))
    changed[start : start + size] = block
    sealed = crc32c(bytes(block) + bytes(changed[start + size : start + size + 1]))
    sealed = ((sealed >> 15 | sealed << 17) + 0xA282EAD8) & 0xFFFFFFFF
    changed[start + size + 1 : start + size + 5] = sealed.to_bytes(4, "little")
    return bytes(changed)


def crc32c(data, table=[]):  # noqa: B006
    """Return the checksum that TensorFlow's files use."""
    if not table:
        for value in range(256):
            for _ in range(8):
                value = value >> 1 ^ 0x82F63B78 * (value & 1)
            table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
