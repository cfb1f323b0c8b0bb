"""Errors about a file: the rule, and the value that breaks it."""

from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.reading import one_line


def invalid(source: object, rule: str, received: object, advice: str = "") -> ValueError:
    """Return an error: a file or model must follow a rule, and the received value does not.

    `received` can be the exception of a library. Control characters are escaped, since `rule` and
    `advice` can have words of the file.

    Example:

    >>> raise invalid("config.json", "vocab_size must be positive", 0)
    Traceback (most recent call last):
        ...
    ValueError: config.json: vocab_size must be positive, received 0
    """
    value = one_line(received) if isinstance(received, Exception) else shown(received)
    end = f". {advice}" if advice else ""
    return ValueError(printable(f"{source}: {rule}, received {value}{end}"))
