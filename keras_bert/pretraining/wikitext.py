"""Prose paragraphs from wikitext.

Regular expressions remove templates, tables, lists, headings, references, formulas, pictures and
categories, and replace links by their labels. Nothing backtracks, so the time is linear.
"""

import html
import re

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
# Elements without prose. Elements of the same name are not nested.
_DROPPED_ELEMENT = re.compile(
    r"<(ref|references|gallery|table|math|chem|ce|timeline|score|hiero|imagemap|pre|source|code|"
    r"syntaxhighlight|graph|mapframe|maplink|templatedata|inputbox|categorytree|indicator|[uod]l|"
    r"style|script|includeonly|noinclude|onlyinclude)\b"
    r"(?:[^<>/]|/(?!>))*+(?:/>|>[^<]*+(?:<(?!/?\1\b)[^<]*+)*+</\1\s*+>)",
    re.IGNORECASE,
)
_INNERMOST_TEMPLATE = re.compile(r"\{\{(?:\{[^{}]*+\}|[^{}]*+)\}\}")  # or argument, {{{x}}}
_INNERMOST_TABLE = re.compile(r"\{\|[^{}]*+(?<=\|)\}")
_INNERMOST_LINK = re.compile(r"\[\[([^\[\]]*+)\]\]")
_EXTERNAL_LINK = re.compile(r"\[(?:\w+:)?//[^\s\[\]]*+ *+([^\[\]]*+)\]")
_DEPTH = 20  # of nested templates, tables and links
_BLOCK_TAG = re.compile(r"</?(?:p|div|center|blockquote|poem|hr|h[1-6])\b[^<>]*+>", re.IGNORECASE)
_BREAK_TAG = re.compile(r"<br\b[^<>]*+>", re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^<>]*+>")
_HEADING = re.compile(r"^=.*=\s*$|^----.*$", re.MULTILINE)
_LIST_ITEM = re.compile(r"^[*#:;].*\n?", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n\s*\n")
_SWITCH = re.compile(r"__[A-Z]+__")
_QUOTES = re.compile(r"'{2,5}")  # bold and italic

_FILE = re.compile(
    r"\.(?:svg|jpe?g|png|gif|tiff?|webp|xcf|og[gva]|opus|webm|flac|midi?|mp3|wav|pdf|djvu|stl)\s*$",
    re.IGNORECASE,
)
_FILE_OPTION = re.compile(
    r"\s*(?:thumb|thumbnail|frame|frameless|right|left|center|\d+(?:x\d+)?px|upright(?:=.*)?)\s*$",
    re.IGNORECASE,
)
_NAMESPACE = re.compile(r"\s*[^\W\d_][\w\s-]*:\S")  # such as "fr:Anarchie", "Category:Politics"
# Invalid markup that is left after all replacements.
_BROKEN = re.compile(
    r"\{\{|\}\}|\{\||\|\}|\[\[|\]\]|^[|!]|\|\||<[/!]?[a-z]|\w\|\w|\|\w+=", re.MULTILINE
)
_TIDY = (
    # Remains of removed templates, as in "(IPA: ..., born 1950)".
    (re.compile(r"[(（][\s,;:/–—-]*+(?:(?:or\b|IPA:?)[\s,;:/–—-]*+)?[)）]"), ""),
    (re.compile(r"([(（])(?:\s*[,;:])+\s*"), r"\1"),
    (re.compile(r"(?<![\s,;:])(?:\s*+[,;:])++\s*+([)）])"), r"\1"),
    (re.compile(r"([,;])(?:\s*[,;])+"), r"\1"),
    (re.compile(r"[^\S\n]+([,.;:!?)\]](?:\s|$))"), r"\1"),
    (re.compile(r"([(\[])[^\S\n]+"), r"\1"),
    (re.compile(r"[^\S\n]{2,}"), " "),
)
_BRACKETS = 5  # maximum depth of nested brackets that are tidied
_LETTERS = re.compile(r"\w{2}|[\u3040-\u30ff\u3400-\u9fff]")


def paragraphs(wikitext: str) -> list[str]:
    """Extract the prose of wikitext, a list of paragraphs without line ends."""
    text = _DROPPED_ELEMENT.sub("", _COMMENT.sub("", wikitext))
    text = _replace_innermost(_INNERMOST_TEMPLATE, "", text)
    text = _replace_innermost(_INNERMOST_TABLE, "\n\n", text)
    text = _replace_innermost(_INNERMOST_LINK, _label, text)
    text = _EXTERNAL_LINK.sub(r"\1", text)
    text = _BLOCK_TAG.sub("\n\n", text)
    text = _TAG.sub("", _BREAK_TAG.sub(" ", text))
    text = _LIST_ITEM.sub("", _HEADING.sub("\n", text))
    blocks = [_tidy(block) for block in _BLANK_LINES.split(text)]
    return [block for block in blocks if block]


def _replace_innermost(pattern, replacement, text):
    """Replace all matches of a pattern, from the innermost to the outermost."""
    for _ in range(_DEPTH):
        text, count = pattern.subn(replacement, text)
        if not count:
            break
    return text


def _label(match):
    """Return the label of a link, "" for files, categories and links to other languages."""
    title, *options = match[1].split("|")
    title = html.unescape(title)
    is_file = _FILE.search(title) or (":" in title and any(map(_FILE_OPTION.match, options)))
    if is_file:
        return ""
    if options:
        label = options[-1]
        # A category may have a sort key, such as "*".
        return "" if _NAMESPACE.match(title) and label.strip() in ("", "*") else label
    return "" if _NAMESPACE.match(title) else title.lstrip(":")


def _tidy(block):
    """Return a paragraph of plain text, or an empty string if it is not prose."""
    text = html.unescape(_SWITCH.sub("", _QUOTES.sub("", block)))
    text = " ".join(text.split())
    if _BROKEN.search(text):
        return ""
    for _ in range(_BRACKETS):
        before = text
        for pattern, replacement in _TIDY:
            text = pattern.sub(replacement, text)
        if text == before:
            break
    text = text.strip()
    return text if _LETTERS.search(text) else ""
