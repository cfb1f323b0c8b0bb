"""Readers of the corpus formats: plain text, JSON Lines, WikiExtractor and MediaWiki XML."""

import dataclasses
import html
import json
import re
from xml.parsers import expat

from keras_bert.pretraining import mediawiki, text_files
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.reading import json_value

_BLANK_LINES = re.compile(r"\n\s*\n")
_DOC_TAG = re.compile(r"\n(?:<doc( [^\n]*)?>|</doc>)[^\S\n]*(?=\n)")
_TITLE = re.compile(r'\btitle="([^"\n]*)"')
_MAX_DEPTH = 100  # a dump has 6
_REDIRECT = re.compile(r"\s*#\s?\w+\s*:?\s*\[\[")


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A document of a corpus, before any processing.

    `source` names its file and line or page, such as `"books.txt.xz: line 512"`. `text` consists of
    paragraphs separated by line ends, or of wikitext; `markup` is `"plain"` or `"wikitext"`. `part`
    numbers the parts of a document longer than `text_files.LONGEST`.
    """

    source: str
    text: str
    markup: str = "plain"
    part: int = 1

    def paragraphs(self):
        """Return the paragraphs, a list of non-empty strings without line ends.

        Wikitext needs mwparserfromhell, and takes much longer to parse than to read.
        """
        if self.markup == "wikitext":
            return mediawiki.paragraphs(self.text)
        return [line for line in map(str.strip, self.text.split("\n")) if line]


def reader(path, head):
    """Return the function for a file's format, from (path, chunks, counts) to `Document`s.

    `head` is the first bytes of the decompressed content. The suffix of `path` matters only for
    JSON Lines.
    """
    names = {suffix.lower() for suffix in path.suffixes}
    if names & {".jsonl", ".ndjson"} or re.match(rb'\{\s*"', head):
        return _read_json_lines
    if re.match(rb'\[\s*\{\s*"', head):
        raise ValueError(f"{path} is a JSON array; convert it to JSON Lines, one object per line")
    if re.match(rb"<doc [^\n]*>\s*?\n", head):
        return _read_extracted
    if re.match(rb"<(?:\?xml\b|!DOCTYPE\b|mediawiki\b)", head):
        return _read_xml
    return _read_plain


def _parts(source, text, markup="plain"):
    """Yield a document, or parts of a long one, cut at a line end or a space if possible."""
    part, begin = 1, 0
    while begin < len(text):
        end = len(text)
        if end - begin > text_files.LONGEST:
            end = begin + text_files.LONGEST
            end = text.rfind("\n", begin, end) + 1 or text.rfind(" ", begin + 1, end) + 1 or end
        is_whole = part == 1 and end == len(text)
        if not text[begin:end].isspace():
            name = source if part == 1 else f"{source}, part {part}"
            yield Document(name, text if is_whole else text[begin:end], markup, part)
            part += 1
        begin = end


def _blank_lines(text):
    """Return the number of blank lines at the beginning of a text."""
    return text.count("\n", 0, len(text) - len(text.lstrip()))


class _DocumentBuilder:
    """Joins the text of a document from several blocks; yields long documents in parts."""

    def __init__(self, path):
        self.path = path
        self.reset()

    def reset(self):
        self.held, self.size, self.part, self.line = [], 0, 1, None

    def add(self, text, line):
        """Add text, and yield a part if the text is long enough."""
        if self.line is None:
            if not text or text.isspace():
                return
            self.line = line + _blank_lines(text)
        self.held.append(text)
        self.size += len(text)
        if self.size >= text_files.LONGEST:
            yield from self._document()
            self.held, self.size = [], 0

    def end(self):
        """Yield the document or its last part, and begin a new one."""
        yield from self._document()
        self.reset()

    def _document(self):
        text = "".join(self.held).strip()
        if text:
            source = f"{self.path}: line {self.line}"
            name = source if self.part == 1 else f"{source}, part {self.part}"
            yield Document(name, text, part=self.part)
            self.part += 1


def _read_plain(path, chunks, counts):
    builder, name = _DocumentBuilder(path), str(path)
    for line, text in text_files.blocks(path, chunks, counts):
        # Line ends at both sides, so that one expression finds blank lines at any place.
        text, begin = f"\n{text}" if text.endswith("\n") else f"\n{text}\n", 1
        for match in _BLANK_LINES.finditer(text):
            end = match.start()
            if (
                builder.line is None and end - begin < text_files.LONGEST
            ):  # the common case: a document within a block
                body = text[begin:end].strip()
                if body:
                    yield Document(f"{name}: line {line}", body)
            else:
                yield from builder.add(text[begin:end], line)
                yield from builder.end()
            line += text.count("\n", begin, match.end())
            begin = match.end()
        yield from builder.add(text[begin:], line)
    yield from builder.end()


def _read_json_lines(path, chunks, counts):
    for first, text in text_files.blocks(path, chunks, counts, "refuse"):
        for number, line in enumerate(text.split("\n"), first):
            if not line or line.isspace():
                continue
            where = f"{path}, line {number}"
            try:
                value = json_value(line)
            except ValueError as error:
                raise ValueError(f"{where} is not JSON ({error})") from error
            if isinstance(value, dict):
                if "text" not in value:
                    keys = printable(", ".join(list(value)[:10]), 200)
                    raise ValueError(f"{where} has no key 'text'; its keys are {keys}")
                body = value["text"]
            else:
                body = value
            if isinstance(body, list) and all(isinstance(item, str) for item in body):
                body = "\n".join(item.replace("\n", " ") for item in body)
            if not isinstance(body, str) or isinstance(value, str):
                raise ValueError(
                    f"{where}: must be a text or a list of paragraphs; received "
                    f"{json.dumps(body)[:80]}"
                )
            if "\\u" in line:  # escapes of surrogates and NUL, which are not text
                body = body.encode("utf-8", "replace").decode("utf-8").replace("\0", "")
            if "\r" in body:
                body = body.replace("\r\n", "\n").replace("\r", "\n")
            yield from _parts(f"{path}: line {number}", body)


def _without_title(text, title):
    """Remove the title, the first line of WikiExtractor's texts."""
    first, end, rest = text.lstrip("\n").partition("\n")
    return rest if end and first.strip() == title.strip() else text


def _read_extracted(path, chunks, counts):
    inside: int | None = None
    title, builder = "", _DocumentBuilder(path)

    def add(text, line):
        nonlocal title
        if inside is None:
            if text and not text.isspace():
                raise ValueError(
                    f"{path}, line {line + _blank_lines(text)}: text must be between <doc ...> "
                    f"and </doc>; received {text.strip()[:40]!r:.80}"
                )
            return
        if "&" in text:
            text = html.unescape(text)
        if title and text.strip():
            before, text, title = text, _without_title(text, title), ""
            line += before.count("\n") - text.count("\n")
        yield from builder.add(text, line)

    for line, text in text_files.blocks(path, chunks, counts):
        text, begin = f"\n{text}" if text.endswith("\n") else f"\n{text}\n", 1
        for match in _DOC_TAG.finditer(text):
            yield from add(text[begin : match.start()] + "\n", line)
            line += text.count("\n", begin, match.end())
            begin = match.end()
            opens = not match.group().startswith("\n</")
            if opens == (inside is not None):
                wrong = "<doc> before the </doc> of line" if opens else "</doc> without a <doc>"
                raise ValueError(f"{path}, line {line}: {wrong} {inside or ''}".rstrip())
            if opens:
                inside, found = line, _TITLE.search(match.group())
                title = html.unescape(found[1]) if found else ""
            else:
                yield from builder.end()
                inside = None
        yield from add(text[begin:], line)
    if inside is not None:
        raise ValueError(f"{path}: ends inside the <doc> of line {inside}; the file is truncated")


def _read_xml(path, chunks, counts):
    """Yield the articles of a MediaWiki dump, keeping only one page in memory."""
    dump = _Dump(path, counts)
    # The text is UTF-8 by now, regardless of the XML declaration.
    parser = expat.ParserCreate("utf-8", namespace_separator=" ")
    parser.buffer_text = True
    parser.buffer_size = text_files.BLOCK
    parser.StartElementHandler = dump.start
    parser.EndElementHandler = dump.end
    parser.CharacterDataHandler = dump.data
    parser.StartDoctypeDeclHandler = dump.doctype
    try:
        for _, text in text_files.blocks(path, chunks, counts, "split"):
            parser.Parse(text, False)
            for page, wikitext in dump.take():
                yield from _parts(f"{path}: page {page}", wikitext, "wikitext")
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise ValueError(
            f"{path}, line {error.lineno}, page {dump.page}: broken or truncated XML ({reason})"
        ) from error


class _Dump:
    """Collects articles from the XML events of a MediaWiki dump."""

    _KEPT = frozenset(("title", "ns", "text", "model", "namespace"))

    def __init__(self, path, counts):
        self.path = path
        self._counts = counts  # of what is left out
        self.page = 0
        self._depth = 0
        self.is_dump = False
        self._other_namespaces = set()
        self._key = None
        self._found = []
        self._open: list[str] | None = None  # text of the current element, if it is needed
        self._begin()

    def _begin(self):
        self._values, self._is_redirect, self._size = {}, False, 0

    def take(self):
        found, self._found = self._found, []
        return found

    def doctype(self, *_):
        raise ValueError(
            f"{self.path}: XML with a DTD is not supported; MediaWiki dumps have no DTD"
        )

    def start(self, name, attributes):
        name = name.rpartition(" ")[2]
        self._depth += 1
        if self._depth > _MAX_DEPTH:  # expat keeps 100 bytes for each open element
            raise ValueError(
                f"{self.path}, page {self.page}: XML must have at most {_MAX_DEPTH} nested elements"
            )
        if not self.is_dump:
            self.is_dump = name == "mediawiki"
            if not self.is_dump:
                raise ValueError(
                    f"{self.path}: XML must be a MediaWiki dump; its root is "
                    f"<{printable(name, 80)}>"
                )
        if name == "page":
            self.page += 1
            self._begin()
        elif name == "redirect":
            self._is_redirect = True
        elif name in self._KEPT:
            self._open, self._size, self._key = [], 0, attributes.get("key")

    def data(self, text):
        if self._open is None:
            return
        self._open.append(text)
        self._size += len(text)
        if self._size > text_files.LONGEST_RECORD:
            raise ValueError(
                f"{self.path}, page {self.page}: must be shorter than "
                f"{text_files.LONGEST_RECORD} characters; split it"
            )

    def end(self, name):
        self._depth -= 1
        name = name.rpartition(" ")[2]
        if name == "page":
            self._end_page()
        elif name in self._KEPT and self._open is not None:
            text, self._open = "".join(self._open), None
            if name == "namespace":
                if self._key != "0" and text:
                    self._other_namespaces.add(text)
            else:
                if name == "text" and name in self._values:
                    self._count("older_revisions")
                self._values[name] = text  # the last revision wins

    def _end_page(self):
        values = self._values
        text = values.get("text", "")
        space = values.get("ns")
        if space is None:  # old dumps: the namespace is only in the title
            prefix, colon, _ = values.get("title", "").partition(":")
            space = "1" if colon and prefix in self._other_namespaces else "0"
        if space.strip() != "0":
            self._count("other_namespaces")
        elif self._is_redirect or _REDIRECT.match(text):
            self._count("redirects")
        elif values.get("model", "wikitext") != "wikitext":
            self._count("other_models")
        elif not text or text.isspace():
            self._count("empty_pages")
        else:
            self._found.append((self.page, text))
        self._begin()

    def _count(self, kind):
        """Count something that is left out, and keep the place of the first one."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._counts.setdefault(f"{kind}_at", f"{self.path}: page {self.page}")
