"""Files that appear whole, or not at all."""

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
    finally:
        beside.unlink(missing_ok=True)


def _sync(path):
    # Windows syncs what is open for writing alone, and no other system opens folders that way.
    number = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)
