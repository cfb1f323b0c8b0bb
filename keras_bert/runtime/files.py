"""Atomic file writes, temporary folders and exclusive folder locks."""

import contextlib
import errno
import glob
import hashlib
import itertools
import os
import pathlib
import secrets
import shutil
import stat
import time

_FULL = "No space left on device"
_STALE_SECONDS = 24 * 3600  # temporary folders that are older are deleted


class FolderLockedError(ValueError):
    """Another process holds the lock of a folder or a file."""


@contextlib.contextmanager
def writing(path, temporary):
    """Make errors of the block name `path` if they name no file or only the temporary file.

    `temporary` is the file or folder that the block writes in place of `path`. If the disk is full,
    an `OSError` has no file name, and h5py, TensorFlow and safetensors raise errors of other types.
    """
    try:
        yield
    except Exception as error:
        if getattr(error, "filename", None) not in (None, str(temporary)):
            raise
        code = errno.ENOSPC if _FULL in str(error) else getattr(error, "errno", None)
        if code is None:
            raise
        raise OSError(code, os.strerror(code), str(path)) from error


@contextlib.contextmanager
def atomic_write(path, durable=False):
    """Write a file under a temporary name and rename it when the block ends without an error.

    Yields the path to write to, a unique hidden file in the same folder with the same suffix.
    Readers see either the old file or the complete new one. If `durable`, the file survives a
    power failure.
    """
    path = pathlib.Path(path)
    # Random, not the process ID: two containers that share a disk may have equal process IDs.
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        with writing(path, temporary):
            yield temporary
            if durable:
                _sync(temporary)
            os.replace(temporary, path)
        if durable:
            # Windows cannot open folders, and some network drives cannot sync them.
            with contextlib.suppress(OSError):
                _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def open_to_append(path):
    """Open a file in binary mode to append to it. A link is a `ValueError`.

    A link in a folder of somebody else may lead to a file of the user.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # Windows has no O_NOFOLLOW; only Windows has O_BINARY. O_NONBLOCK: a pipe must not block.
    for name in ("O_NOFOLLOW", "O_BINARY", "O_NONBLOCK"):
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise ValueError(f"{path} must not be a link; delete it") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise ValueError(f"{path} must be a regular file without other hard links; delete it")
    return os.fdopen(descriptor, "ab")


def check_subfolder(folder):
    """Raise a `ValueError` if a folder with a fixed name in the user's output folder is a link.

    A link in a folder of somebody else may lead to another folder of the user.
    """
    folder = pathlib.Path(folder)
    if folder.is_symlink():
        raise ValueError(f"{folder} must not be a link; delete it, or use another output folder")


@contextlib.contextmanager
def temporary_folder(parent, prefix):
    """Create a folder with a unique name, and delete it at the end unless it was renamed.

    Yields its path. Unlike those of `tempfile.mkdtemp`, its permissions follow the umask. Folders
    that killed processes left more than a day ago are deleted.
    """
    for stale in pathlib.Path(parent).glob(glob.escape(prefix) + "[0-9a-f]" * 8):
        with contextlib.suppress(OSError):  # another process may delete it
            if time.time() - stale.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(stale)
    folder = pathlib.Path(parent, prefix + secrets.token_hex(4))
    folder.mkdir()
    try:
        with writing(parent, folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale_temporaries(path):
    """Delete the temporary files that killed processes left in `atomic_write`.

    `path` is the file, or a glob pattern of files in one folder. No process may be writing
    them.
    """
    path = pathlib.Path(path)
    for stale in path.parent.glob(f".{path.stem}.{'[0-9a-f]' * 8}{path.suffix}"):
        stale.unlink()


@contextlib.contextmanager
def exclusive_lock(folder, doing, *, keep=True):
    """Lock a folder for this process. The lock ends with the block or with the process.

    Creates the folder if needed; the lock is a hidden file in it. `doing` is a word such as
    "training" for the `FolderLockedError` of another process. If not `keep`, the lock file is
    deleted at the end; two processes that start while a third one ends may then both get the
    lock. After an error, a folder that was created and is empty is deleted, too.
    """
    folder = pathlib.Path(folder)
    is_unused = not keep and not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    message = (
        f"{folder}: another process is {doing} there; wait until it ends or use another folder"
    )
    try:
        with lock_file(folder / ".lock", message, keep=keep):
            yield
    except BaseException:
        if is_unused:
            with contextlib.suppress(OSError):  # the folder has files
                folder.rmdir()
        raise


@contextlib.contextmanager
def lock_file(path, message, *, keep):
    """Lock a file for this process, see `exclusive_lock`. `message` is for the error."""
    import filelock

    lock = filelock.FileLock(path, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise FolderLockedError(message) from None
    try:
        yield
    finally:
        if not keep:
            with contextlib.suppress(OSError):  # Windows cannot delete open files
                pathlib.Path(path).unlink()
        lock.release()


def _sync(path):
    # Windows flushes only files that are open for writing. Folders can only be opened for reading.
    number = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def sha256_of(file):
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cache_folder() -> pathlib.Path:
    """Return `$KERAS_BERT_CACHE`, or `keras_bert` in the user's cache folder. It may not exist."""
    if chosen := os.environ.get("KERAS_BERT_CACHE"):
        return pathlib.Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base).absolute() / "keras_bert"


def check_cache(folder: pathlib.Path) -> None:
    """Raise an `OSError` if another user can write to a folder of the cache, or above it there.

    Whoever writes to the cache chooses what later processes read. Root may own the folders, as in
    an image of a container.

    Args:
        folder: The cache folder or a folder below it. What does not exist needs no check.
    """
    for path in _folders_of_cache(folder):
        if not os.path.lexists(path):
            return
        _check_private(path, by_root=True)


def make_cache(folder: pathlib.Path, *, by_root: bool = True) -> None:
    """Create a folder of the cache, and those above it there; check them as `check_cache` does.

    Args:
        folder: The cache folder or a folder below it.
        by_root: Whether root may own the folders. Not for programs, which this process runs.

    Raises:
        OSError: Names the folder that cannot be created, and `KERAS_BERT_CACHE`.
    """
    for path in _folders_of_cache(folder):
        try:
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable_cache(path, error) from error
        _check_private(path, by_root)


def unwritable_cache(path: pathlib.Path, error: Exception | str) -> OSError:
    """Return an error that names a folder of the cache, the reason, and the remedy."""
    reason = error
    if isinstance(error, OSError) and error.strerror:  # without the path, which is named here
        reason = error.strerror
    return OSError(f"{path} cannot be written ({reason}); set KERAS_BERT_CACHE to another folder")


def _folders_of_cache(folder):
    """Return the cache folder, and the folders below it down to `folder`."""
    root = cache_folder()
    names = folder.relative_to(root).parts
    return itertools.accumulate(names, pathlib.Path.joinpath, initial=root)


def _check_private(folder: pathlib.Path, by_root: bool) -> None:
    if os.name != "posix":
        return
    owners = {os.getuid(), 0} if by_root else {os.getuid()}
    status = folder.stat()
    is_writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_own = {status.st_uid, folder.lstat().st_uid} <= owners  # it may be a link
    if is_writable or not is_own:
        remedy = "run chmod go-w on it, or " if is_own else ""
        raise OSError(
            f"another user can write to {folder}; {remedy}set KERAS_BERT_CACHE to another folder"
        )
