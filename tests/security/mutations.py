"""Mutate files for the fuzzer."""

import contextlib
import copy
import json
import re
import struct
import zipfile

from tests.security import rewriting

# Unusual values.
NUMBERS = ["-1", "0", "3", "100.7", "1e400", "NaN", "3000000", "1000000000", str(2**63), "9" * 5000]
SIZES = [0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1]
TOKENS = ["null", "[]", "{}", '""', "true", '"\\u001b[2J"', '"' + "x" * 9999 + '"', "[" * 3000]
# Names that a config could use to reach more than data, and values of other types.
NAMES = """
    HubLayer keras_bert>HubLayer Preprocessor Lambda TFSMLayer TextVectorization Sequential function
    __lambda__ __numpy__ Arange Repeat relu os builtins keras keras.ops keras.src.ops.numpy
    keras.utils ../x /etc/hostname
""".split()  # noqa: SIM905
# Modules of the standard library that nothing imports unless a file names them.
MODULES = ["antigravity", "this", "idlelib.idle"]
NAMES += MODULES
VALUES = [None, True, -1, 0, 10**9, 2**70, 1e300, "", "x", "\u001b[2J", [], {}, [[]]]
VALUES += [{"class_name": "x"}]


def mutate(file, random):
    """Change a file. Checksums and sizes are sometimes updated to match."""
    content = file.read_bytes()
    kind = file.suffix
    if zipfile.is_zipfile(file) and random.random() < 0.7:
        with contextlib.suppress(Exception):  # it may be broken already
            _mutate_member(file, random)
    elif kind == ".json" and random.random() < 0.5:
        file.write_bytes(_changed_tree(content, random))
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
        texts = [name for name in members if name.endswith(".json")]
        names = texts if texts and random.random() < 0.6 else sorted(members)
        name = str(random.choice(names))
        if name.endswith(".json") and random.random() < 0.7:
            members[name] = _changed_tree(members[name], random)
        else:
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


def _changed_tree(content, random):
    """Return JSON with a few values renamed, nested, repeated, moved, removed or replaced.

    Content that is no JSON, or is nested too deep for Python, is returned as it is.
    """
    try:
        tree = json.loads(content)
        for _ in range(int(random.choice([1, 1, 2, 4]))):
            places = list(_places(tree))
            if not places:
                break
            owner, key = places[int(random.integers(len(places)))]
            change = CHANGES[int(random.integers(len(CHANGES)))]
            change(owner, key, places, random)
        return json.dumps(tree).encode()
    except (ValueError, RecursionError):
        return content


def _places(tree):
    """Yield (dict or list, key or index) of all values in a tree."""
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in list(keys):
        yield tree, key
        yield from _places(tree[key])


def _rename(owner, key, places, random):
    owner[key] = str(random.choice(NAMES))


def _retype(owner, key, places, random):
    owner[key] = copy.deepcopy(VALUES[int(random.integers(len(VALUES)))])


def _remove(owner, key, places, random):
    if isinstance(owner, dict):
        del owner[key]
    else:
        owner.pop(key)


def _move(owner, key, places, random):
    """Copy a value from another place."""
    other, other_key = places[int(random.integers(len(places)))]
    owner[key] = copy.deepcopy(other[other_key])


def _nest(owner, key, places, random):
    value = copy.deepcopy(owner[key])
    for _ in range(int(random.choice([1, 3, 30, 300]))):
        value = [value] if random.random() < 0.5 else {"config": value, "class_name": "Dense"}
    owner[key] = value


def _repeat(owner, key, places, random):
    value = owner[key]
    if isinstance(value, list) and len(value) < 1000:
        owner[key] = value * int(random.choice([2, 3, 1000]))
    elif isinstance(owner, dict):
        owner[f"{key}_"] = copy.deepcopy(value)


def _call(owner, key, places, random):
    """Put a function or an object in place of a value."""
    owner[key] = {
        "module": str(random.choice(NAMES)),
        "class_name": str(random.choice(NAMES)),
        "registered_name": str(random.choice(NAMES)),
        "config": str(random.choice(NAMES)) if random.random() < 0.5 else {"name": "x"},
    }


CHANGES = [_rename, _retype, _remove, _move, _nest, _repeat, _call]


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
