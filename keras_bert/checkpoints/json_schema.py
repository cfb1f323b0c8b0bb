"""Check the values in JSON files of other libraries against a schema."""

import json
from collections.abc import Mapping
from typing import Any

from keras_bert.runtime.escaping import shown
from keras_bert.untrusted.errors import invalid

FLAG = bool


def check(
    file: object,
    content: Mapping[str, Any],
    schema: Mapping[str, Any],
    *,
    of: str = "",
    advice: str = "",
) -> None:
    """Raise a `ValueError` for a value that would change what a model computes.

    Args:
        file: The file, for the error.
        content: An object of the file.
        schema: Key -> the value that is supported, a tuple of such values, or `FLAG` for true and
            false. A missing key or null passes. Other keys are not checked.
        of: End of the rule in the error, such as "for a BERT encoder".
        advice: End of the error.

    Example:

    >>> check("config.json", {"model_type": "t5"}, {"model_type": "bert"})
    Traceback (most recent call last):
        ...
    ValueError: config.json: model_type must be 'bert', received 't5'
    """
    for key, supported in schema.items():
        received = content.get(key)
        if isinstance(received, dict) and isinstance(received.get("content"), str):
            received = received["content"]  # a token with its flags
        if received is None:
            continue
        if supported is FLAG:
            is_right = isinstance(received, bool)
        elif isinstance(supported, tuple):
            is_right = received in supported
        else:
            is_right = received == supported
        if not is_right:
            rule = " ".join(filter(None, [f"{key} must be {_words_of(supported)}", of]))
            raise invalid(file, rule, received, advice)


def renamed(file: object, content: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return an object of a file with other keys: `names` maps keys of the file to new ones.

    Raise a `ValueError` if two keys become one and have different values.
    """
    result: dict[str, Any] = {}
    for key, value in content.items():
        name = names.get(key, key)
        if result.setdefault(name, value) != value:
            rule = f"the keys that stand for {name} must have one value"
            raise invalid(file, rule, [result[name], value])
    return result


def _words_of(supported: Any) -> str:
    """Return the values of a schema for an error."""
    if supported is FLAG:
        return "true or false"
    if isinstance(supported, tuple):
        return f"one of {', '.join(map(str, supported))}"
    if supported is None or isinstance(supported, bool):
        return json.dumps(supported)
    return shown(supported)
