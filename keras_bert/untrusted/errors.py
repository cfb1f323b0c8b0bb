"""Errors about a file: the rule, and the value that breaks it."""

import contextlib
from collections.abc import Iterator

from keras_bert.runtime.escaping import shown
from keras_bert.runtime.reading import one_line


def invalid(source: object, rule: str, received: object, advice: str = "") -> ValueError:
    """Return an error: a file or model must follow a rule, and the received value does not.

    `received` can be the exception of a library.

    Example:

    >>> raise invalid("config.json", "vocab_size must be positive", 0)
    Traceback (most recent call last):
        ...
    ValueError: config.json: vocab_size must be positive, received 0
    """
    value = one_line(received) if isinstance(received, Exception) else shown(received)
    end = f". {advice}" if advice else ""
    return ValueError(f"{source}: {rule}, received {value}{end}")


@contextlib.contextmanager
def panics_as_value_errors(file: object) -> Iterator[None]:
    """Raise ValueError for a panic of tokenizers or safetensors while `file` is read.

    A panic of these libraries in Rust is not an `Exception`, so that `except Exception` does not
    catch it. Other exceptions, such as KeyboardInterrupt, are not changed.
    """
    try:
        yield
    except BaseException as error:
        # PyO3 does not export the class.
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{file}: broken, received {one_line(error)}") from error
