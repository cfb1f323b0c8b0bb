"""Unpack untrusted zip archives."""

import collections
import contextlib
import os
import pathlib
import shutil
import stat
import unicodedata
import zipfile
from typing import NamedTuple

from keras_bert.runtime import budget
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.reading import check_not_lfs_pointer
from keras_bert.untrusted import containers
from keras_bert.untrusted.errors import invalid

_IS_UTF8 = 0x800  # flags of an entry
_IS_ENCRYPTED = 1


class _Entry(NamedTuple):
    """A checked entry: the only source of its path and size."""

    member: zipfile.ZipInfo
    path: pathlib.PurePosixPath  # relative to the folder, and below it
    is_folder: bool


def unpack(archive: pathlib.Path, folder: pathlib.Path) -> None:
    """Unpack an untrusted zip archive into a new folder.

    Raise ValueError for a damaged archive, and for an unsafe one, such as a zip bomb or an archive
    with a path outside of the folder. After an error, the folder may be incomplete.
    """
    check_not_lfs_pointer(archive)
    with contextlib.ExitStack() as stack:
        try:
            stream = stack.enter_context(open(archive, "rb"))
            zipped = stack.enter_context(containers.open_zip(stream, compressed=True))
        except Exception as error:  # zipfile raises many types
            raise _damaged(archive, error) from error
        try:
            entries = _checked_entries(zipped.infolist(), os.fstat(stream.fileno()).st_size)
        except ValueError as error:
            raise ValueError(f"{archive}: {error}") from None
        try:
            folder.mkdir(parents=True)
            needed = sum(entry.member.file_size for entry in entries)
            free = shutil.disk_usage(folder).free
            if needed > free:
                raise OSError(f"it needs {needed} free bytes, and there are {free}")
            for entry in entries:
                _unpack_entry(zipped, entry, folder.resolve())
        except OSError as error:
            reason = error.strerror or error
            raise OSError(f"{archive} could not be unpacked into {folder}: {reason}") from error
        except Exception as error:  # zipfile and its decompressors raise many types
            raise _damaged(archive, error) from error


def _unpack_entry(zipped: zipfile.ZipFile, entry: _Entry, folder: pathlib.Path) -> None:
    target = folder / entry.path
    if not target.resolve().is_relative_to(folder):
        raise ValueError(f"entries must stay inside the folder; received {shown(str(entry.path))}")
    if entry.is_folder:
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipped.open(entry.member) as packed, open(target, "xb") as file:
        shutil.copyfileobj(packed, file)  # at most the declared bytes
        written = file.tell()
    declared = entry.member.file_size
    if written != declared:
        raise ValueError(f"{written} of the {declared} bytes of {shown(str(entry.path))}")


def _checked_entries(members: list[zipfile.ZipInfo], archive_bytes: int) -> list[_Entry]:
    names: collections.Counter[str] = collections.Counter()
    folders: set[str] = set()
    entries = [_checked_entry(member) for member in members]
    for entry in entries:
        # Some file systems ignore case and would merge two entries.
        path = pathlib.PurePosixPath(unicodedata.normalize("NFC", str(entry.path)).casefold())
        folders.update(map(str, path.parents))
        if entry.is_folder:
            folders.add(str(path))
        else:
            names[str(path)] += 1
    names.update(folders)
    for name, count in names.most_common(1):
        if count > 1:
            raise ValueError(f"names of entries must be unique; received {shown(name)} twice")
    budget.check(len(names), "files and folders", budget.MAX_OBJECTS)
    unpacked = sum(member.file_size for member in members)
    # Entries of a zip bomb overlap, so their packed sizes add up to more than the archive.
    packed = sum(member.compress_size for member in members)
    if packed > archive_bytes:
        raise ValueError(f"entries must not overlap; received {packed} of {archive_bytes} bytes")
    try:
        budget.check_growth(unpacked, "unpacked bytes", archive_bytes, budget.EXPANSION)
    except ValueError as error:
        advice = "If you trust it, unpack it yourself and pass the folder"
        raise ValueError(f"{error}. {advice}") from None
    return entries


def _checked_entry(member: zipfile.ZipInfo) -> _Entry:
    path = member.filename.removesuffix("/")
    kind = stat.S_IFMT(member.external_attr >> 16)
    budget.check(path.count("/"), "nested folders", budget.MAX_DEPTH)
    for is_met, rule in (
        (containers.is_below(path), "entries must stay inside the folder"),
        # Without the flag, the encoding of a name is unknown.
        (path.isascii() or member.flag_bits & _IS_UTF8, "names must be in UTF-8"),
        (kind in (0, stat.S_IFREG, stat.S_IFDIR), "entries must be files or folders, not links"),
        (not member.flag_bits & _IS_ENCRYPTED, "entries must not be encrypted"),
    ):
        if not is_met:
            raise ValueError(f"{rule}; received {shown(member.filename)}")
    return _Entry(member, pathlib.PurePosixPath(path), is_folder=path != member.filename)


def _damaged(archive: pathlib.Path, error: BaseException) -> ValueError:
    rule = "must be a complete zip archive"
    return invalid(archive, rule, error, "Download it again")
