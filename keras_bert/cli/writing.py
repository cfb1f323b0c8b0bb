"""Where commands write: checks of paths, standard output, and files that can be resumed."""

import contextlib
import dataclasses
import pathlib
import sys

from keras_bert.cli import reading
from keras_bert.runtime.escaping import printable_lines
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.resumable_file import ResumableFile


def check_folder(path):
    """Raise an error if an output folder cannot be created, or is a file."""
    _check_parent(path)
    if pathlib.Path(path).exists() and not pathlib.Path(path).is_dir():
        raise ValueError(f"the output must be a folder; {path} is a file")


def check_file(path, input=None):
    """Raise an error if an output file cannot be written, is a folder, or is the input."""
    _check_parent(path)
    path = pathlib.Path(path)
    if path.is_dir():
        raise ValueError(f"the output must be a file; {path} is a folder")
    if input and path.is_file() and path.samefile(input):
        raise ValueError(f"the output must not be the input; received {path} for both")


def _check_parent(path):
    if not pathlib.Path(path).absolute().parent.is_dir():
        raise ValueError(f"the folder of {path} does not exist. Create it first")


def is_stream(path):
    """Return True for a pipe or a device, such as /dev/stdout in a terminal."""
    path = pathlib.Path(path)
    return path.exists() and not path.is_file()


class Stream:
    """A stream in the place of a `ResumableFile`. It cannot be resumed."""

    state = None

    def __init__(self, file):
        self._file = file

    def write(self, line):
        if self._file.isatty():  # elsewhere, control characters are data
            line = printable_lines(line)
        print(line, file=self._file)

    def commit(self, state):
        pass


@contextlib.contextmanager
def open_predictions(args, format):
    """Yield the output of `predict`: an object with `write`, `commit` and `state`."""
    if args.output in (None, "-"):
        yield Stream(sys.stdout)
        return
    if is_stream(args.output):
        with open(args.output, "w", encoding="utf-8") as file:
            yield Stream(file)
        return
    path = pathlib.Path(args.output).resolve()  # follow links
    # JSON is one object. An input that is a pipe cannot be read again to resume.
    if format == "json" or (args.input and is_stream(args.input)):
        with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            yield Stream(file)
        return
    settings = dataclasses.asdict(args) | {"output": None}
    settings["columns"] = reading.columns_of(args, args.model)
    settings["files"] = [_version_of(file, path) for file in (args.input, args.model) if file]
    with ResumableFile(path, settings) as file:
        yield file


def _version_of(name, output):
    """Return a list that changes when a file changes, or a file in a folder.

    The output may be in the folder: it and hidden files, such as its lock, do not count.
    """
    path = pathlib.Path(name).absolute()
    files = [path]
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if not file.name.startswith(".")]
    version: list = [str(name)]
    for file in files:
        if file.is_file() and file.resolve() != output:
            status = file.stat()
            version.append([str(file), status.st_size, status.st_mtime_ns])
    return version
