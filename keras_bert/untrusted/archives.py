"""Unpack untrusted zip archives."""

import os
import pathlib
import re
import shutil
import stat
import unicodedata
import zipfile
import zlib

from keras_bert.runtime.reading import check_not_lfs_pointer, one_line
from keras_bert.untrusted import containers

_BLOCK_BYTES = 2**20
_MAX_ENTRIES = 10_000  # files and folders
_MAX_DEPTH = 16  # folders in a name
_MAX_EXPANSION = 100  # unpacked size / archive size; weights compress little
_ALWAYS_ALLOWED_BYTES = 2**20  # unpacked size that any archive may have
_DEVICE = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9]) *(\..*)?", re.IGNORECASE)
# Exceptions of zipfile for a damaged archive or an unknown compression method.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError)


def unpack(archive: pathlib.Path, folder: pathlib.Path) -> None:
    """Unpack an untrusted zip archive into a new folder.

    Raise ValueError for a damaged archive, and for an unsafe one, such as a zip bomb or an archive
    with a path outside of the folder. After an error, the folder may be incomplete.
    """
    check_not_lfs_pointer(archive)
    with _open(archive) as zipped:
        entries = zipped.infolist()
        try:
            _check_entries(entries, archive.stat().st_size)
        except ValueError as error:
            raise ValueError(f"{archive}: {error}") from None
        try:
            folder.mkdir(parents=True)
            needed = sum(entry.file_size for entry in entries)
            free = shutil.disk_usage(folder).free
            if needed > free:
                raise OSError(f"it needs {needed} free bytes, and there are {free}")
            for entry in entries:
                _unpack_entry(archive, zipped, entry, folder / entry.filename)
        except OSError as error:
            reason = error.strerror or error
            raise OSError(f"{archive} could not be unpacked into {folder}: {reason}") from error


def _open(archive: pathlib.Path) -> zipfile.ZipFile:
    with open(archive, "rb") as stream:
        try:
            containers.list_members(stream)
            return zipfile.ZipFile(archive)
        except (*_ZIP_ERRORS, OSError) as error:  # OSError: an offset outside of the archive
            raise _damaged(archive, error) from error


def _unpack_entry(
    archive: pathlib.Path, zipped: zipfile.ZipFile, entry: zipfile.ZipInfo, target: pathlib.Path
) -> None:
    if entry.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with open(target, "xb") as file:
        try:
            with zipped.open(entry) as packed:
                while block := packed.read(_BLOCK_BYTES):
                    written += len(block)
                    if written > entry.file_size:
                        break
                    file.write(block)
        except _ZIP_ERRORS as error:
            raise _damaged(archive, error) from error
    if written != entry.file_size:
        received = "more" if written > entry.file_size else written
        rule = f"{entry.filename!r:.80} must have {entry.file_size} bytes, as the archive declares"
        raise ValueError(f"{archive}: {rule}; received {received}")


def _check_entries(entries: list[zipfile.ZipInfo], archive_bytes: int) -> None:
    files: set[str] = set()
    folders: set[str] = set()
    for entry in entries:
        _check_entry(entry)
        # Some file systems ignore case and would merge two entries.
        name = unicodedata.normalize("NFC", entry.filename).casefold()
        parts = name.rstrip("/").split("/")
        folders |= {"/".join(parts[:end]) for end in range(1, len(parts) + entry.is_dir())}
        if name in files:
            raise ValueError(f"names of entries must be unique; received {name!r:.80} twice")
        if not entry.is_dir():
            files.add(name)
        if len(files) + len(folders) > _MAX_ENTRIES:
            raise ValueError(f"an archive must have at most {_MAX_ENTRIES} files and folders")
    if both := files & folders:
        raise ValueError(
            f"names of entries must be unique; {min(both)!r:.80} is a file and a folder"
        )
    unpacked = sum(entry.file_size for entry in entries)
    # Entries of a zip bomb overlap, so their packed sizes add up to more than the archive.
    packed = sum(entry.compress_size for entry in entries)
    limit = max(_MAX_EXPANSION * archive_bytes, _ALWAYS_ALLOWED_BYTES)
    if packed > archive_bytes:
        raise ValueError(f"entries must not overlap; received {packed} of {archive_bytes} bytes")
    if unpacked > limit:
        raise ValueError(
            f"an archive must unpack to at most {limit} bytes; received {unpacked}. If you trust "
            "it, unpack it yourself and pass the folder"
        )


def _check_entry(entry: zipfile.ZipInfo) -> None:
    # `filename` ends at the first zero byte; `orig_filename` is the name in the archive.
    name = entry.orig_filename
    if not (_stays_inside(entry.filename) and _stays_inside(name)):
        raise ValueError(f"entries must stay inside the folder; received {name!r:.80}")
    if name.removesuffix("/").count("/") >= _MAX_DEPTH:
        raise ValueError(f"a name must have at most {_MAX_DEPTH} parts; received {name!r:.200}")
    # Without flag bit 11 the encoding of a name is unknown.
    if not entry.filename.isascii() and not entry.flag_bits & 0x800:
        raise ValueError(f"names must be in UTF-8; received {name!r:.80}")
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ValueError(f"entries must be files or folders; received the link {name!r:.80}")
    if entry.flag_bits & 1:
        raise ValueError(f"entries must not be encrypted; received {name!r:.80}")


def _stays_inside(name: str) -> bool:
    # On Windows, backslash and ":" are separators, "a." and "a " are other names of "a", and names
    # such as "nul" and "con.txt" are devices.
    parts = name.removesuffix("/").split("/")
    return (
        not re.search(r'[\x00-\x1f\x7f\\:*?"<>|]', name)
        and all(part and part == part.rstrip(". ") for part in parts)
        and not any(_DEVICE.fullmatch(part) for part in parts)
        and len(os.fsencode(name)) < 1024
    )


def _damaged(archive: pathlib.Path, error: BaseException) -> ValueError:
    return ValueError(
        f"{archive} must be a complete zip archive: {one_line(error)}. Download it again"
    )
