"""A text file that is written in parts, which a killed process continues after its last part."""

import contextlib
import json
import os
import pathlib

from keras_bert.runtime.files import atomic_write, lock_file, open_to_append
from keras_bert.runtime.reading import parse_json, read_bytes


class ResumableFile:
    """A text file that appears when it is complete.

    Until then its lines are in the hidden file `.NAME.partial`, and its state in
    `.NAME.partial.json`. A process with equal settings continues after the last `commit`.

    Args:
        path: The file to write.
        settings: Dict that JSON can represent, of everything that determines the lines.

    Attributes:
        state: The argument of the last `commit`, or `None` at the beginning.

    Raises:
        ValueError: If another process writes the file, or `.NAME.partial` is a link.
        OSError: If the file cannot be written.

    Example:

    >>> import tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "numbers.txt")
    >>> with ResumableFile(path, {}) as file:
    ...     file.write("1")
    ...     file.commit({"rows": 1})
    >>> path.read_text().split()
    ['1']
    """

    def __init__(self, path, settings):
        self._path = pathlib.Path(path)
        self._partial = self._path.with_name(f".{self._path.name}.partial")
        self._state_file = self._path.with_name(f"{self._partial.name}.json")
        self._settings = settings
        self.state = None

    def __enter__(self):
        message = f"another process writes {self._path}; wait until it ends or use another file"
        with contextlib.ExitStack() as stack:
            stack.enter_context(lock_file(f"{self._partial}.lock", message, keep=False))
            size = self._read_state()
            self._file = open_to_append(self._partial)
            self._file.truncate(size)
            self._file.seek(0, os.SEEK_END)  # `commit` stores the position
            self._lock = stack.pop_all()
        return self

    def write(self, line):
        """Write a line, a string without the line end."""
        self._file.write(f"{line}\n".encode())

    def commit(self, state):
        """Save that all lines so far are complete; `state` is for the process that continues."""
        self._file.flush()
        os.fsync(self._file.fileno())
        content = {"settings": self._settings, "size": self._file.tell(), "state": state}
        with atomic_write(self._state_file) as temporary:
            temporary.write_text(json.dumps(content), encoding="utf-8")

    def __exit__(self, kind, error, traceback):
        try:
            self._file.close()
            if kind is None:
                os.replace(self._partial, self._path)
            # A wrong input must be corrected, and its answers then begin anew.
            if kind is None or issubclass(kind, ValueError):
                self._partial.unlink(missing_ok=True)
                self._state_file.unlink(missing_ok=True)
        finally:
            self._lock.close()

    def _read_state(self):
        """Set the state; return the size of the lines that it covers, 0 without a valid state."""
        if self._state_file.is_symlink() or not self._state_file.is_file():
            return 0
        try:
            content = parse_json(read_bytes(self._state_file), self._state_file)
            is_valid = content["settings"] == self._settings
            size = content["size"]
            is_size = type(size) is int and 0 <= size <= self._partial.stat().st_size
            if is_valid and is_size:
                self.state = content["state"]
                return size
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return 0
