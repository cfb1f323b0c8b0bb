"""Errors of libraries that are written in Rust."""

import contextlib
from collections.abc import Iterator

from keras_bert.runtime.reading import one_line


@contextlib.contextmanager
def as_value_error(file: object) -> Iterator[None]:
    """Raise ValueError for a panic of tokenizers or safetensors while `file` is read.

    A panic is not an `Exception`, so that `except Exception` does not catch it. Other exceptions,
    such as KeyboardInterrupt, are not changed.
    """
    try:
        yield
    except BaseException as error:
        # PyO3 does not export the class.
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{file}: broken, received {one_line(error)}") from error
