"""Show text of an untrusted model or file: in a terminal, in HTML and in Markdown."""

import html as html_module
import re
import unicodedata

_CONTROL_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")  # controls, surrogates, U+2028, U+2029
# Characters that reorder the text around them, such as U+202E.
_BIDI_CONTROLS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
_MAX_SHOWN = 80  # characters of a value in an error
# Punctuation that is markup inside a line of Markdown. GitHub reads "$" as a formula.
_MARKUP = re.compile(r"([\\`*_\[\]<>|~$&#])")


def printable(text: str, limit: int | None = None) -> str:
    r"""Escape control characters, so that a text from an untrusted file is safe in a terminal.

    A text of more than `limit` characters is cut and ends in `"..."`.

    Example:

    >>> print(printable("한국어 \x1b[2J"))
    한국어 \x1b[2J
    """
    if limit is not None and len(text) > limit:
        text = f"{text[:limit]}..."
    return "".join(ascii(char)[1:-1] if _is_control(char) else char for char in text)


def shown(value: object, limit: int = _MAX_SHOWN) -> str:
    r"""Return the `repr` of a value for an error: short, printable, and on one line.

    Example:

    >>> print(shown("\x1b[2J"))
    '\x1b[2J'
    """
    lines = repr(value).split("\n")
    return printable(" ".join(line.strip() for line in lines), limit)


def printable_lines(text: str) -> str:
    """Escape control characters except tabs and line breaks."""
    parts = re.split(r"([\t\n])", text)
    return "".join(part if part in ("\t", "\n") else printable(part) for part in parts)


def html(text: str) -> str:
    """Escape a text for HTML. Tabs and line breaks stay, other control characters are escaped.

    Example:

    >>> html("<b>")
    '&lt;b&gt;'
    """
    return html_module.escape(printable_lines(text))


def markdown(text: str, limit: int | None = None) -> str:
    r"""Escape a text for one line of Markdown, such as a cell of a table.

    Example:

    >>> print(markdown("a|b"))
    a\|b
    """
    return _MARKUP.sub(r"\\\1", printable(text, limit))


def check_name(name: object, what: str) -> None:
    """Check that a name, such as a label, can be shown and can be a line of a file.

    Args:
        name: The name.
        what: The subject of the error, such as "a label".

    Raises:
        ValueError: If it is not a string, is empty, or has control characters.

    Example:

    >>> check_name("B-PER", "a label")
    """
    if not isinstance(name, str) or not name or printable(name) != name:
        raise ValueError(
            f"{what} must be a string without tabs, line breaks and other control characters, and "
            f"not empty; received {shown(name)}. Rename it"
        )


def _is_control(char: str) -> bool:
    if unicodedata.category(char) in _CONTROL_CATEGORIES:
        return True
    return unicodedata.bidirectional(char) in _BIDI_CONTROLS
