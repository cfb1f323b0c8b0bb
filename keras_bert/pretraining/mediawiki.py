"""Prose paragraphs from wikitext.

mwparserfromhell parses the text. This module drops templates, tables, lists, headings, references,
formulas, pictures and categories, and replaces links by their labels.
"""

import collections
import html
import re
import warnings

_INSTALL = "wikitext needs mwparserfromhell; run: pip install 'keras3-bert[pretraining]'"

# Elements that are dropped with their content, and elements whose content becomes a paragraph. The
# content of all other elements stays in its paragraph.
_DROPPED = frozenset(
    {
        "ref", "references", "gallery", "table", "math", "chem", "ce", "timeline", "score", "hiero",
        "imagemap", "pre", "source", "code", "syntaxhighlight", "graph", "mapframe", "maplink",
        "templatedata", "inputbox", "categorytree", "section", "indicator", "ul", "ol", "dl", "li",
        "dt", "dd", "tr", "td", "th", "caption", "style", "script", "includeonly", "noinclude",
        "onlyinclude",
    }
)  # fmt: skip
_BLOCKS = frozenset(
    {
        "p", "div", "center", "blockquote", "poem", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6",
    }
)  # fmt: skip
# Common elements without prose. `_cut` removes them before the parser runs, as it removes comments,
# templates and tables, because the parser would spend most of its time on them.
_RAW = re.compile(
    r"<(ref|math|gallery|timeline|score|imagemap|syntaxhighlight|source)\b"
    r"(?:[^<>/]|/(?!>))*+(?:/>|>[^<]*+(?:<(?!/?\1\b)[^<]*+)*+</\1\s*+>)",
    re.IGNORECASE,
)
_INNERMOST_TEMPLATE = re.compile(r"\{\{(?:\{[^{}]*+\}|[^{}]*+)\}\}")  # or argument, {{{x}}}
_INNERMOST_TABLE = re.compile(r"\{\|[^{}]*+(?<=\|)\}")
_BLANK_LINES = re.compile(r"\n\s*\n")
_MAX_OPEN = 20  # elements; real articles have at most 6
_BRACKET = re.compile(r"\[\[|\]\]|\[|\]")
_OPENING = {"[[": "]]", "[": "]"}
_TAG = re.compile(r"<(/?)([A-Za-z][^\s<>/]*)([^<>]*)(>?)")
_WITHOUT_END = frozenset({"br", "wbr", "hr", "meta", "link", "img"})
_HEADING = re.compile(r"^=.*", re.MULTILINE)
_EQUALS = re.compile("=+")
_DEPTH = 20  # of nested templates; the parser handles deeper ones
_PARAGRAPH = "\n\n"
_ITEM = "\0"  # marks the beginning of a list item; no text contains it
_PREFIXED = "\1"  # marks a link with a prefix, such as "fr:Anarchie" or "Category:Politics"

_FILE = re.compile(
    r"\.(?:svg|jpe?g|png|gif|tiff?|webp|xcf|og[gva]|opus|webm|flac|midi?|mp3|wav|pdf|djvu|stl)\s*$",
    re.IGNORECASE,
)
_NAMESPACE = re.compile(r"\s*[^\W\d_][\w\s-]*:\S")
_LINK_OPTIONS = re.compile(
    r"^(?:thumb|thumbnail|frame|frameless|right|left|center|\d+(?:x\d+)?px|upright(?:=.*)?)$",
    re.IGNORECASE,
)
_SWITCH = re.compile(r"__[A-Z]+__")
_LEFT_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>\n]*)?/?>")
# Invalid markup, which the parser returns as text.
_LEFT_LINK = re.compile(r"\[\[(?:[^\[\]|\n]*\|)*([^\[\]|\n]*)\]\]")
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


def paragraphs(wikitext):
    """Extract the prose of wikitext, a list of paragraphs without line ends.

    If more than `_MAX_OPEN` elements are open at once, each paragraph is parsed by itself.
    Paragraphs with that many open elements are left out, with a warning.
    """
    try:
        import mwparserfromhell
    except ImportError as error:
        raise ValueError(_INSTALL) from error
    text = _cut(wikitext)
    blocks = [text] if _is_parsable(text) else _BLANK_LINES.split(text)
    out: list[str] = []
    left_out = 0
    for block in blocks:
        if not _is_parsable(block):
            left_out += 1
            continue
        try:
            # `_tidy` removes the quotes of bold and italic text.
            _write(mwparserfromhell.parse(block, skip_style_tags=True), out)
        except (mwparserfromhell.parser.ParserError, RecursionError):
            left_out += 1
        out.append(_PARAGRAPH)
    if left_out:
        warnings.warn(
            f"{left_out} paragraphs of a wiki page are left out, because more than {_MAX_OPEN} "
            f"links, tags or templates have no end. The page starts with {wikitext.strip()!r:.80}",
            stacklevel=2,
        )
    found = (_tidy(block) for block in _BLANK_LINES.split("".join(out)))
    return [block for block in found if block]


def _is_parsable(text):
    """Return False for markup on which the parser crashes or takes quadratic time.

    The reason is elements without an end. For each open element, the parser searches the rest of
    the text for the end, and uses a part of the stack.
    """
    return (
        text.count("{{") + text.count("{|") <= _MAX_OPEN  # `_cut` has removed complete ones
        and _most_open_links(text) <= _MAX_OPEN
        and _most_open_tags(text) <= _MAX_OPEN
        and all(len(_EQUALS.findall(line)) <= _MAX_OPEN for line in _HEADING.findall(text))
        and all(word.count("://") <= _MAX_OPEN for word in text.split())
    )


def _most_open_links(text):
    """Return the largest number of links that are open at once."""
    brackets: list[str] = []
    most = 0
    for bracket in _BRACKET.findall(text):
        if bracket in _OPENING:
            brackets.append(bracket)
            most = max(most, len(brackets))
        elif brackets and _OPENING[brackets[-1]] == bracket:
            brackets.pop()
    return most


def _most_open_tags(text):
    """Return the largest number of tags that are open at once.

    A tag without ">", or with a quote that has no end, is never closed.
    """
    open_by_name: collections.Counter[str] = collections.Counter()
    most = 0
    for slash, name, attributes, end in _TAG.findall(text):
        name = name.lower()
        is_complete = end and not any(attributes.count(quote) % 2 for quote in "\"'")
        if not is_complete:
            open_by_name["<"] += 1
        elif slash:
            open_by_name[name] = max(0, open_by_name[name] - 1)
        elif name not in _WITHOUT_END and not attributes.endswith("/"):
            open_by_name[name] += 1
        most = max(most, open_by_name.total())
    return most


def _cut(text):
    """Remove comments, templates, tables and elements without prose."""
    if "<!--" in text:
        first, *others = text.split("<!--")
        text = first + "".join(other.partition("-->")[2] for other in others)
    text = _RAW.sub("", text)
    for _ in range(_DEPTH):
        text, count = _INNERMOST_TEMPLATE.subn("", text)
        if not count:
            break
    for _ in range(_DEPTH):
        text, count = _INNERMOST_TABLE.subn(_PARAGRAPH, text)
        if not count:
            break
    return text


def _write(wikicode, out):
    """Append the prose of a node list to `out`."""
    from mwparserfromhell import nodes

    for node in wikicode.nodes:
        kind = type(node)
        if kind is nodes.Text:
            out.append(node.value)
        elif kind is nodes.Wikilink:
            _write_link(node, out)
        elif kind is nodes.Tag:
            _write_tag(node, out)
        elif kind is nodes.Heading:
            out.append(_PARAGRAPH)
        elif kind is nodes.HTMLEntity:
            out.append(_character(node))
        elif kind is nodes.ExternalLink and node.title is not None:
            _write(node.title, out)


def _write_link(node, out):
    title = html.unescape(str(node.title))
    if _FILE.search(title):
        return
    if node.text is None:
        out.append(
            f"{_PREFIXED}{title}{_PREFIXED}" if _NAMESPACE.match(title) else title.lstrip(":")
        )
        return
    if ":" in title and any(
        _LINK_OPTIONS.match(option.strip()) for option in str(node.text).split("|")
    ):
        return
    if _NAMESPACE.match(title) and str(node.text).strip() in ("", "*", " "):
        return  # a category with a sort key
    written: list[str] = []
    _write(node.text, written)
    text = "".join(written)
    if _NAMESPACE.match(title):
        text = f"{_PREFIXED}{text}{_PREFIXED}"
    out.append(text)


def _write_tag(node, out):
    name = str(node.tag).strip().lower()
    if node.wiki_markup and name in ("li", "dt", "dd"):
        out.append(_ITEM)
    elif name in _DROPPED:
        out.append(_PARAGRAPH if name == "table" else "")
    elif name in _BLOCKS:
        out.append(" " if name == "br" else _PARAGRAPH)
        if node.contents is not None and not node.self_closing:
            _write(node.contents, out)
            out.append(_PARAGRAPH)
    elif node.contents is not None:
        _write(node.contents, out)


def _character(node):
    try:
        return node.normalize()
    except ValueError:  # no such character
        return ""


def _tidy(block):
    """Return a paragraph of plain text, or an empty string if it is not prose."""
    lines = []
    for line in block.split("\n"):
        if _ITEM in line:
            continue
        if _PREFIXED in line:
            if not re.sub(rf"{_PREFIXED}[^{_PREFIXED}]*{_PREFIXED}", "", line).strip():
                continue
            line = line.replace(_PREFIXED, "")
        lines.append(line)
    text = " ".join(" ".join(lines).split())
    if not text:
        return ""
    text = _LEFT_LINK.sub(r"\1", _LEFT_TAG.sub("", _SWITCH.sub("", text)))
    text = re.sub(r"'{2,5}", "", text)
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
