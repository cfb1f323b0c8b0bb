"""Write torch pickles instruction by instruction, without torch."""

import pickle
import struct
import zipfile


def instruction(value):
    """Return the instructions of pickle protocol 2 that build a value."""
    match value:
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            return b"J" + struct.pack("<i", value)
        case str():
            return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        case tuple():
            return b"(" + b"".join(map(instruction, value)) + b"t"
        case bytes():
            return value  # already instructions


def global_name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


ORDERED_DICT = global_name("collections", "OrderedDict") + b")R"


def storage(key, count, kind="FloatStorage", module="torch", last=()):
    return instruction(("storage", global_name(module, kind), key, "cpu", count, *last)) + b"Q"


def tensor(stored, offset, shape, strides):
    arguments = instruction((stored, offset, shape, strides, False, ORDERED_DICT))
    return global_name("torch._utils", "_rebuild_tensor_v2") + arguments + b"R"


def state(**tensors):
    items = b"".join(instruction(key) + value for key, value in tensors.items())
    return b"\x80\x02" + ORDERED_DICT + b"(" + items + b"u."


def write_archive(file, program, records, order="little", compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("archive/data.pkl", program)
        if order:
            archive.writestr("archive/byteorder", order)
        for key, data in records.items():
            archive.writestr(f"archive/data/{key}", data)


def write_legacy(file, program, records, magic=0x1950A86A20F9469CFC6C, length=None):
    itemsize = 4
    parts = [pickle.dumps(v, 2) for v in (magic, 1001, {"little_endian": True})]
    parts += [program, pickle.dumps(sorted(records), 2)]
    for key in sorted(records):
        count = len(records[key]) // itemsize if length is None else length
        parts += [struct.pack("<q", count), records[key]]
    file.write_bytes(b"".join(parts))
