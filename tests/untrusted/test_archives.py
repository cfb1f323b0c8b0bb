"""Unpacking of untrusted zip archives."""

import os
import random
import re
import shutil
import stat
import struct
import types
import zipfile
import zlib

import pytest

from keras_bert.untrusted import archives


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def make_zip(path, entries, method=zipfile.ZIP_DEFLATED):
    """Write a zip archive of {name or ZipInfo: bytes}."""
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def refused(path, match):
    """Check that an archive is refused with a message of one line, and writes nothing outside."""
    target = path.parent / "unpacked"
    with pytest.raises(ValueError, match=match) as caught:
        archives.unpack(path, target)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert set(names(path.parent)) <= {path.name, target.name}


def test_files_and_folders_are_unpacked(tmp_path):
    entries = {"inner/": b"", "inner/vocab.txt": b"[PAD]\n", "inner/é.txt": b"", "a": b"\0" * 9}
    archives.unpack(make_zip(tmp_path / "a.zip", entries), tmp_path / "a")
    found = {p.relative_to(tmp_path / "a").as_posix(): p for p in (tmp_path / "a").rglob("*")}
    assert set(found) == {"inner", "inner/vocab.txt", "inner/é.txt", "a"}
    assert found["inner/vocab.txt"].read_bytes() == b"[PAD]\n"
    assert not found["a"].stat().st_mode & (stat.S_IXUSR | stat.S_IWOTH)


NAMES = [
    "../a", "inner/../../a", "/dev/null/a", "//dev/null/a", "C:/a", "C:a", "..\\a", "a\\b",
    "a/./b", "a//b", ".", "..", "a.", "a /b", "a:stream", "a\nb", "a\x7f", "a*", "../", "n" * 2000,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_outside_of_the_folder_are_refused(tmp_path, name):
    refused(make_zip(tmp_path / "a.zip", {"good": b"", name: b"x"}), "must stay inside the folder")
    assert names(tmp_path) == ["a.zip"]


def patched(path, old, new, times):
    """Change some bytes of an archive."""
    content = path.read_bytes()
    assert content.count(old) == times
    path.write_bytes(content.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("vocab.txt!exe", b"txt!", b"txt\0", "second name, 'vocab.txt'"),
        ("abc", b"abc", b"a\xe9c", "names must be in UTF-8"),
        ("é", "é".encode(), b"\xff\xff", "must be a complete zip archive"),
    ],
)
def test_broken_names_are_refused(tmp_path, name, old, new, message):
    refused(patched(make_zip(tmp_path / "a.zip", {name: b"x"}), old, new, 2), message)


def second_name(name):
    """Return an entry `vocab.txt` with a "Unicode path" field, which Python 3.12 and later use."""
    entry = zipfile.ZipInfo("vocab.txt")
    field = struct.pack("<BL", 1, zlib.crc32(b"vocab.txt")) + name.encode()
    entry.extra = struct.pack("<HH", 0x7075, len(field)) + field
    return entry


@pytest.mark.parametrize("name", ["../a", "../../a", "/dev/shm/a", "b/../../a", "C:\\a", "a"])
def test_a_second_name_of_an_entry_has_no_effect(tmp_path, name):
    """Run this file also on Python 3.12 and later, where `zipfile` uses the second name."""
    path = make_zip(tmp_path / "inner" / "a.zip", {second_name(name): b"x"})
    try:
        archives.unpack(path, tmp_path / "inner" / "unpacked")
    except ValueError as error:
        assert re.search("'vocab.txt' has a second name", str(error))
    files = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert files <= {"inner/a.zip", "inner/unpacked/vocab.txt"}
    assert not os.path.exists("/dev/shm/a")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_links_and_devices_are_refused(tmp_path, kind):
    entry = zipfile.ZipInfo("vocab.txt")
    entry.external_attr = (kind | 0o777) << 16
    refused(make_zip(tmp_path / "a.zip", {entry: b"/etc/passwd"}), "must be files or folders")


@pytest.mark.parametrize(
    "pair", [("a", "a"), ("a", "A"), ("é", "e\u0301"), ("a", "a/b"), ("A/b", "a"), ("a/", "a")]
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_with_one_name_are_refused(tmp_path, pair):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in pair:
            archive.writestr(name, b"")
    refused(tmp_path / "a.zip", "must be unique")


def test_overlapping_entries_are_refused(tmp_path):
    """Some zip bombs store their data once and list it in many entries."""
    path = make_zip(tmp_path / "a.zip", {"a": os.urandom(9999), "b": b""}, zipfile.ZIP_STORED)
    content = bytearray(path.read_bytes())
    second = content.rindex(b"PK\1\2")
    struct.pack_into("<LL", content, second + 20, 9999, 9999)  # packed and unpacked size
    struct.pack_into("<L", content, second + 42, 0)  # offset of the first entry
    path.write_bytes(content)
    refused(path, "entries must not overlap")


@pytest.mark.parametrize("size", [10, 2000])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_wrong_sizes_are_refused(tmp_path, size, method):
    """Both copies of the size are wrong: in the directory and before the entry."""
    path = make_zip(tmp_path / "a.zip", {"a": b"abcdefghij" * 100}, method)
    content = bytearray(path.read_bytes())
    struct.pack_into("<L", content, content.rindex(b"PK\1\2") + 24, size)
    struct.pack_into("<L", content, 22, size)
    path.write_bytes(content)
    refused(path, "must (be a complete zip archive|have 2000 bytes.*received 1000)")


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
@pytest.mark.parametrize("seed", range(5))
def test_damaged_entries_are_refused(tmp_path, method, seed):
    path = make_zip(tmp_path / "a.zip", {"a": b"abcdefghij" * 100}, method)
    content = bytearray(path.read_bytes())
    start = 31 + 4 * (method == zipfile.ZIP_LZMA)  # the header of LZMA says how long it is
    content[start + 10 : start + 30] = random.Random(seed).randbytes(20)
    path.write_bytes(content)
    with pytest.raises((ValueError, OSError), match="a.zip"):
        archives.unpack(path, tmp_path / "unpacked")


def test_damaged_archives_are_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"a": os.urandom(5000), "b": b"x"})
    content = path.read_bytes()
    directory = content.index(b"PK\1\2")
    flipped, method, offset = bytearray(content), bytearray(content), bytearray(content)
    flipped[1000] ^= 1
    struct.pack_into("<H", method, directory + 10, 99)
    struct.pack_into("<H", method, 8, 99)
    struct.pack_into("<L", offset, directory + 42, 2**31)
    for damaged in (b"", content[:2500], b"<html>log in</html>", flipped, method, offset):
        path.write_bytes(damaged)
        refused(path, "must be a complete zip archive")
        shutil.rmtree(tmp_path / "unpacked", ignore_errors=True)


def test_encrypted_entries_are_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"a": b"x"})
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\1\2") + 8] |= 1
    path.write_bytes(content)
    refused(path, "must not be encrypted")


def test_too_little_disk_space_is_an_error(tmp_path, monkeypatch):
    path = make_zip(tmp_path / "a.zip", {"a": bytes(5000)})
    free = types.SimpleNamespace(free=1000)
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda folder: free)
    with pytest.raises(OSError, match=r"could not be unpacked .*: it needs 5000 free bytes"):
        archives.unpack(path, tmp_path / "a")
    assert names(tmp_path / "a") == []


def test_existing_folder_is_not_overwritten(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"a": b"x"})
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="could not be unpacked into .*: File exists"):
        archives.unpack(path, tmp_path / "a")
    assert names(tmp_path / "a") == []
