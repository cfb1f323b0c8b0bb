"""Files that appear whole, or not at all; folders that one process has for itself."""

import contextlib
import os
import pathlib
import secrets


@contextlib.contextmanager
def whole(path, durable=False):
    """Lets a file be written beside its place, and puts it there when the block ends well.

    Whoever reads the file meanwhile sees the one before, and after an error it is still there.

    Args:
        path: the file.
        durable: whether to wait until the disk has it, so that it outlasts a power cut too.

    Yields:
        The path to write to: hidden, of the same ending, and of nobody else's name.

    Raises:
        OSError: it cannot be written.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "words.txt")
    ...     with whole(file) as beside:
    ...         _ = beside.write_text("one")
    ...         print(file.exists())
    ...     print(file.read_text())
    False
    one
    """
    path = pathlib.Path(path)
    # Not by the number of the process: two containers on one disk may both be number 1.
    beside = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        yield beside
        if durable:
            _sync(beside)
        os.replace(beside, path)
        if durable and os.name != "nt":  # there a folder cannot be opened
            _sync(path.parent)
    except OSError as error:
        # A full disk names no file, and nobody knows the one beside.
        if error.errno is None or error.filename not in (None, str(beside)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        beside.unlink(missing_ok=True)


def sweep(path):
    """Deletes what processes that were killed left of a file that they wrote beside its place.

    Args:
        path: the file, or a pattern of files in a folder; nobody may be writing them.

    Example:

    >>> sweep("words.txt")
    """
    path = pathlib.Path(path)
    for stale in path.parent.glob(f".{path.stem}.{'[0-9a-f]' * 8}{path.suffix}"):
        stale.unlink()


@contextlib.contextmanager
def alone(folder, doing, *, keep=True):
    """Holds a folder for this process, where a second one would spoil what the first one writes.

    Args:
        folder: is made if need be; the lock in it is a hidden file.
        doing: what the other process does there, for the error.
        keep: whether that file stays. Where it goes, two processes that come in the very moment
            in which a third one leaves may both get in.

    Raises:
        ValueError: another process holds it.
        OSError: the folder cannot be made or written.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, alone(folder, "writing"):
    ...     with alone(folder, "writing"):
    ...         pass
    Traceback (most recent call last):
    ValueError: ...: another process is writing there
    """
    import filelock

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise ValueError(f"{folder}: another process is {doing} there") from None
    try:
        yield
    finally:
        if not keep:
            with contextlib.suppress(OSError):  # Windows deletes no open file
                pathlib.Path(lock.lock_file).unlink()
        lock.release()


def _sync(path):
    # Windows syncs what is open for writing alone, and no other system opens folders that way.
    number = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)
