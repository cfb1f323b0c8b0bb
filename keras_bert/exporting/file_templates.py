"""The texts of the files beside an exported model: templates with values, in `templates/`."""

import importlib.resources
import re
import string

_TEMPLATES = importlib.resources.files(__package__) / "templates"
_LINE_OF_ONE_VALUE = re.compile(r"^@(\w+)\n", re.MULTILINE)


class _Template(string.Template):
    delimiter = "@"


def fill(file: str, /, **values: object) -> str:
    """Return the text of a template, with `@key` replaced by the values.

    A line that consists of an empty value is left out.
    """
    text = (_TEMPLATES / file).read_text(encoding="utf-8")
    text = _LINE_OF_ONE_VALUE.sub(lambda line: line[0] if values[line[1]] != "" else "", text)
    return _Template(text).substitute(values)
