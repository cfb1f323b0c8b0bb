"""The cache of downloaded models: complete, checked folders."""

import contextlib
import json
import os
import shutil

from keras_bert.hub.download import check_sha256
from keras_bert.runtime.files import (
    atomic_write,
    cache_folder,
    check_cache,
    make_cache,
    sha256_of,
    temporary_folder,
    unwritable_cache,
)
from keras_bert.runtime.terminal import waiting

_STAMP_FILE = "checked.txt"  # in a cached folder: sizes and times of its files at the last check
_RECORD_SUFFIX = ".first.json"  # next to a cached folder: the hashes of its first download
_INCOMPLETE_PREFIX = ".new-"  # of folders that are being filled
_WEIGHTS = (".safetensors", ".bin", ".data-00000-of-00001")


@contextlib.contextmanager
def locked(name):
    """Hold the lock of a part of the cache, such as a model name. Other processes wait.

    The system releases the lock when the process ends. The lock file is kept: if it were deleted,
    two processes could hold the lock.
    """
    import filelock

    path = cache_folder() / ".locks" / f"{name}.lock"
    check_cache(path.parent)
    make_cache(path.parent)
    lock = filelock.FileLock(path)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        with waiting(f"Waiting for another process that holds {path}"):
            lock.acquire()
    except (OSError, NotImplementedError) as error:
        raise unwritable_cache(path.parent, error) from error
    try:
        yield
    finally:
        lock.release()


def get(look_up, lock, install):
    """Return `look_up()`, a folder of the cache. If it is `None`, return `install()`.

    `install` runs under the lock with the name `lock`.
    """
    folder = look_up()
    if folder is None:
        with locked(lock):
            folder = look_up() or install()  # another process may have filled it
    return folder


def has_weights(sha256):
    """Return True if {file: hash} includes a file of weights."""
    return any(file.endswith(_WEIGHTS) for file in sha256)


def cached(folder, sha256):
    """Return a folder of the cache, or `None` if it does not exist.

    If the size or time of a file changed since the last check, the files must match `sha256`,
    {file: hash}, and the hashes of the first download. A mismatch is a ValueError.
    """
    if not folder.is_dir():
        return None
    check_cache(folder)
    if not _is_unchanged(folder):
        expected = {**first_download(folder).get("sha256", {}), **sha256}
        _check_hashes(folder, expected, folder, f"delete {folder} to download it again")
        _write_stamp(folder)
    return folder


def first_download(folder):
    """Return the record of the first download of a folder, or {} if there is none.

    The record is a dict with `"sha256"`, {file: hash}, and `"revision"` (the commit on the Hub) or
    `"archive"` (the hash of the archive).
    """
    check_cache(folder.parent)
    file = _record_file(folder)
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{file} must be JSON with hashes; delete it to start anew") from error


def install(fill, folder, shown, sha256, *, remedy="try again", record=True, **facts):
    """Create a folder of the cache. The caller must hold its lock, see `locked`.

    `fill` writes the files to an empty folder and returns the folder that holds them. The files
    must match `sha256`, {file: hash}, and the hashes of the first download. With `record`, the
    first download records its hashes and `facts`. `shown` names the source in errors, and `remedy`
    says what to do about a file that does not match.
    """
    make_cache(folder.parent)
    for stale in folder.parent.glob(_INCOMPLETE_PREFIX + "*"):  # left by killed processes
        shutil.rmtree(stale, ignore_errors=True)
    with temporary_folder(folder.parent, _INCOMPLETE_PREFIX) as incomplete:
        filled = fill(incomplete)
        first = first_download(folder)
        recorded = first.get("sha256", {})
        _check_hashes(filled, sha256, shown, remedy)
        others = {file: recorded[file] for file in recorded.keys() - sha256.keys()}
        accept = f"to accept the new file, delete {_record_file(folder)}"
        _check_hashes(filled, others, shown, accept)
        if record and not first:
            hashes = {file: sha256_of(filled / file) for file in _files(filled)}
            with atomic_write(_record_file(folder)) as file:
                content = json.dumps({"sha256": hashes, **facts}, indent=1, sort_keys=True)
                file.write_text(content, encoding="utf-8")
        _write_stamp(filled)
        _make_private(filled)
        try:
            os.rename(filled, folder)
        except OSError:
            if not folder.is_dir():  # another process may have created the same folder
                raise
    return folder


def _make_private(folder):
    """Take from other users the right to write, which some umasks give to the group."""
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(OSError):  # a hard link to a file of another user
            path.chmod(path.stat().st_mode & ~0o022)


def _record_file(folder):
    return folder.with_name(folder.name + _RECORD_SUFFIX)


def _check_hashes(folder, sha256, shown, remedy):
    for file, expected in sorted(sha256.items()):
        try:
            check_sha256(folder / file, expected, f"{shown}/{file}", remedy)
        except FileNotFoundError as error:
            raise OSError(f"{shown}/{file} is missing; {remedy}") from error


def _files(folder):
    """Return the relative paths of all files in a folder except the stamp."""
    names = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return sorted(name for name in names if name != _STAMP_FILE)


def _sizes_and_times(folder):
    stats = ((file, (folder / file).stat()) for file in _files(folder))
    return "".join(f"{file} {stat.st_size} {stat.st_mtime_ns}\n" for file, stat in stats)


def _write_stamp(folder):
    with contextlib.suppress(OSError):  # a read-only cache is checked at each call
        (folder / _STAMP_FILE).write_text(_sizes_and_times(folder), encoding="utf-8")


def _is_unchanged(folder):
    try:
        stamp = (folder / _STAMP_FILE).read_bytes()
    except OSError:
        return False
    return stamp == _sizes_and_times(folder).encode()
