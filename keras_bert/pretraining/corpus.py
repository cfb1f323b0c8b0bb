r"""Files of any size and several formats as a stream of documents.

    bytes of a file, unpacked                                 `_unpacked`
      -> blocks of whole lines, valid UTF-8, "\n" as line end  `_blocks`
      -> documents, by what the first block looks like        `documents`

A block is about a megabyte and goes through each step at once; Python looks at documents, not
at lines. Nothing longer than `LONGEST` characters stays in one piece, so the memory is bounded.
"""

import bz2
import codecs
import collections
import dataclasses
import fnmatch
import glob
import gzip
import html
import itertools
import json
import lzma
import os
import pathlib
import re
import zlib
from typing import Any
from xml.parsers import expat

from keras_bert.pretraining import mediawiki

BLOCK = 1 << 20  # bytes read at once
LONGEST = 4 << 20  # characters of a line or, give or take a block, of a document
LONGEST_RECORD = 64 << 20  # characters of a line of JSON and of a wiki page, which are read whole

_HEAD = 4096  # bytes that tell what a file is

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x50\x2a\x4d\x18": "zstd",  # a frame to skip, with which pzstd begins
}
_ENCODINGS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le"}
_ENCODINGS |= {codecs.BOM_UTF16_BE: "utf-16-be"}
_REPLACED = "\ufffd"
# What cannot be read as UTF-8 is mended, unless there is so much that it is something else.
_MANY_REPLACED, _REPLACED_SHARE = 50, 0.1

_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
_DOC_TAG = re.compile(r"\n(?:<doc( [^\n]*)?>|</doc>)[^\S\n]*(?=\n)")
_TITLE = re.compile(r'\btitle="([^"\n]*)"')
_REDIRECT = re.compile(r"\s*#\s?\w+\s*:?\s*\[\[")


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    r"""A document of a corpus as it stands in its file.

    Attributes:
        source: where it comes from, such as `"books.txt.xz: line 512"`.
        text: paragraphs with line ends between them, or wikitext.
        markup: `"plain"` or `"wikitext"`.
        part: which part of its document it is, where that was longer than `LONGEST`.

    Example:

    >>> Document("a.txt: line 1", "One paragraph.\n\n  Another. \n").paragraphs()
    ['One paragraph.', 'Another.']
    """

    source: str
    text: str
    markup: str = "plain"
    part: int = 1

    def paragraphs(self):
        """Returns the paragraphs, a list of strings; none is empty or holds a line end.

        Here wikitext is parsed, which takes far longer than to read it.

        Raises:
            ValueError: wikitext, and mwparserfromhell is not installed.
        """
        if self.markup == "wikitext":
            return mediawiki.paragraphs(self.text)
        return [line for line in map(str.strip, self.text.split("\n")) if line]


def files(paths):
    """Finds the files of a corpus.

    Args:
        paths: a path or a list of them: files, folders (with all that is below them, but for
            what is hidden) and patterns such as `"wiki/**/*.bz2"`.

    Returns:
        The files, a sorted list of `pathlib.Path`, each once, by whatever paths it is found.

    Raises:
        ValueError: a path or pattern matches nothing, or something that is no file: a corpus is
            read more than once, which a pipe cannot be.
        OSError: a folder cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("b.txt", "a.txt", ".hidden"):
    ...         _ = pathlib.Path(folder, name).write_text("text")
    ...     [file.name for file in files(folder)]
    ['a.txt', 'b.txt']
    """
    found: dict[str, pathlib.Path] = {}
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        path = os.fspath(path)
        matches = [path] if os.path.exists(path) else glob.glob(path, recursive=True)
        here = [file for match in matches for file in _below(pathlib.Path(match))]
        for file in here:
            found.setdefault(os.path.realpath(file), file)
            if not file.is_file():
                what = "is no regular file" if file.exists() else "is a link to nothing"
                raise ValueError(f"{file}: {what}; a corpus is read more than once")
            if not _is_unicode(file):
                raise ValueError(f"{os.fsencode(file)!r}: a file's name must be UTF-8")
        if not here:
            what = "holds no files" if os.path.isdir(path) else "no such file, folder or pattern"
            raise ValueError(f"{path}: {what}")
    return sorted(found.values())


def _is_unicode(path):
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def check_outside(folder, paths):
    """Raises a ValueError if what is written to a folder would become part of the corpus.

    Args:
        folder: where to write.
        paths: as for `files`.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_outside(folder + "/records", [folder])
    Traceback (most recent call last):
    ValueError: ...records: must not lie within the corpus, ...
    """
    target = pathlib.Path(folder).resolve()
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        path = os.fspath(path)
        if os.path.exists(path):
            inside = os.path.isdir(path) and target.is_relative_to(pathlib.Path(path).resolve())
        else:
            inside = _matches(os.path.abspath(path), target)
        if inside:
            raise ValueError(f"{folder}: must not lie within the corpus, {path}")


def _matches(pattern, folder):
    """Whether a pattern finds a folder, one that it lies in, or what may come to lie in it."""
    # "*" goes over "/" here, as a folder that is found is read with all that lies below it.
    if fnmatch.fnmatch(str(folder), pattern):
        return True
    return "**" in pattern and any(
        fnmatch.fnmatch(str(folder / name), pattern) for name in ("a.json", "a.tfrecord", "a.txt")
    )


def _below(path):
    if not path.is_dir():
        yield path
        return

    def fail(error):  # `os.walk` passes over what it cannot read
        raise error

    seen = set()  # a link may lead back to a folder that it lies in
    for folder, names, leaves in os.walk(path, onerror=fail, followlinks=True):
        seen.add(os.path.realpath(folder))
        names[:] = [
            name
            for name in names
            if not name.startswith(".") and os.path.realpath(os.path.join(folder, name)) not in seen
        ]
        for leaf in leaves:
            if not leaf.startswith("."):
                yield pathlib.Path(folder, leaf)


def documents(paths, *, counts=None):
    r"""Reads the documents of a corpus, one after the other.

    What a file is, its first bytes say: plain text (a paragraph a line, blank lines between
    documents), JSON Lines (`"text"` is a string or a list of paragraphs), the output of
    WikiExtractor (either form) or a MediaWiki XML dump (articles alone, no redirects; the last
    revision). Each may be packed by gzip, bzip2, xz or zstd, and be UTF-16 with a mark. A
    document longer than `LONGEST` comes in parts, cut between paragraphs if it has any.

    Args:
        paths: as for `files`.
        counts: a `collections.Counter` to fill: `"files"`, `"documents"`, and what was mended:
            `"invalid_utf8"`, lines in which bytes were replaced by U+FFFD, `"long_lines"`,
            lines that were cut, and `"long_documents"`, those that come in parts.
            `"invalid_utf8_at"` and so on say where the first one is.

    Yields:
        `Document`s; none if the files are empty.

    Raises:
        ValueError: a path matches nothing, a file is damaged, cut short, or no text; the
            message names the file, and the line or page.
        OSError: a file cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "a.txt")
    ...     _ = file.write_text("One.\nTwo.\n\nThree.\n")
    ...     [document.paragraphs() for document in documents(file)]
    [['One.', 'Two.'], ['Three.']]
    """
    counts = collections.Counter() if counts is None else counts
    found = files(paths)
    return itertools.chain.from_iterable(_documents_of(file, counts) for file in found)


def _documents_of(path, counts):
    for key in ("files", "documents", "invalid_utf8", "long_lines", "long_documents"):
        counts.setdefault(key, 0)
    counts["files"] += 1
    chunks = _decoded(path, _unpacked(path))
    first: list[bytes] = []
    while sum(map(len, first)) < _HEAD and (chunk := next(chunks, b"")):
        first.append(chunk)
    read = _format(path, b"".join(first)[:_HEAD].lstrip())
    chunks = itertools.chain(first, chunks)
    for document in read(path, chunks, counts):
        counts["documents"] += 1
        if document.part == 2:
            counts["long_documents"] += 1
            counts.setdefault("long_documents_at", document.source.removesuffix(", part 2"))
        yield document


def _format(path, head):
    """The reader for a file, by its first bytes; for JSON Lines the name counts as well."""
    names = {suffix.lower() for suffix in path.suffixes}
    if names & {".jsonl", ".ndjson"} or re.match(rb'\{\s*"', head):
        return _read_json
    if re.match(rb'\[\s*\{\s*"', head):
        raise ValueError(f"{path}: is one array of JSON; JSON Lines have an object in each line")
    if re.match(rb"<doc [^\n]*>\s*?\n", head):
        return _read_extracted
    if re.match(rb"<(?:\?xml\b|!DOCTYPE\b|mediawiki\b)", head):
        return _read_xml
    return _read_plain


# --- Bytes ---------------------------------------------------------------------------------


def _unpacked(path):
    """The bytes of a file in chunks of `BLOCK`, the last one shorter."""
    with open(path, "rb") as file:
        magic = file.read(6)
    kind = next(
        (
            kind
            for start, kind in _MAGIC.items()
            # A file may be cut within its first bytes; those in ASCII may be text.
            if magic.startswith(start) or (not magic.isascii() and start.startswith(magic))
        ),
        None,
    )
    if kind is None:
        with open(path, "rb") as file:
            while chunk := file.read(BLOCK):
                yield chunk
        return
    damaged: tuple = (EOFError, zlib.error, lzma.LZMAError, OSError)
    unpackers: dict[str, Any] = {"bzip2": bz2.BZ2Decompressor, "xz": lzma.LZMADecompressor}
    if kind == "zstd":
        zstandard = _zstandard(path)
        damaged += (zstandard.ZstdError,)
        unpackers["zstd"] = lambda: zstandard.ZstdDecompressor().decompressobj()
    try:
        if kind == "gzip":
            with gzip.open(path) as file:
                while chunk := file.read(BLOCK):
                    yield chunk
        else:
            yield from _of_one_size(_streams(path, unpackers[kind]))
    except damaged as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: this {kind} file is damaged or cut short ({reason})") from error


def _zstandard(path):
    try:
        import zstandard
    except ImportError as error:
        raise ValueError(
            f"{path}: zstd files need zstandard; install it: pip install zstandard"
        ) from error
    return zstandard


def _streams(path, unpacker_of):
    """Unpacks a file's streams, of which there may be many, as in Wikipedia's dumps.

    `bz2.open` and `lzma.open` take what is no stream for the end, whatever comes behind it.
    """
    unpacker = None
    with open(path, "rb") as file:
        # Small steps, since each may unpack to a thousand times its size.
        while packed := file.read(4096):
            while packed:
                if unpacker is None:
                    packed = packed.lstrip(b"\0")  # padding
                    if not packed:
                        break
                    unpacker = unpacker_of()
                yield unpacker.decompress(packed)
                packed = b""
                if unpacker.eof:
                    packed, unpacker = unpacker.unused_data, None
    if unpacker is not None:
        raise EOFError("the file ends before the data")


def _of_one_size(chunks):
    held, size = [], 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= BLOCK:
            joined = b"".join(held)
            whole = size - size % BLOCK
            for at in range(0, whole, BLOCK):
                yield joined[at : at + BLOCK]
            held, size = [joined[whole:]], size - whole
    if size:
        yield b"".join(held)


def _decoded(path, chunks):
    """Takes away the byte order mark; UTF-16 becomes UTF-8."""
    first = next(chunks, b"")
    mark, encoding = next(
        (item for item in _ENCODINGS.items() if first.startswith(item[0])), (b"", "utf-8")
    )
    chunks = itertools.chain([first[len(mark) :]], chunks)
    if encoding != "utf-8":
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        chunks = (decoder.decode(chunk).encode("utf-8", "replace") for chunk in chunks)
    for chunk in chunks:
        if b"\0" in chunk:
            raise ValueError(f"{path}: is no text: it holds NUL bytes")
        yield chunk


def _blocks(path, chunks, counts, long_lines="cut"):
    r"""Strings of whole lines, with "\n" as their end, and the number of the first line.

    A line of more than `LONGEST` bytes is cut, at white space if it has any; with
    `long_lines="split"` anywhere and at once, since it means nothing; with `"refuse"` it is an
    error, if it exceeds `LONGEST_RECORD`. Only there and at the end a block may lack a line end.
    """
    longest = {"cut": LONGEST, "split": 0, "refuse": LONGEST_RECORD}[long_lines]
    held, line, in_long_line = b"", 1, False
    for chunk in itertools.chain(chunks, [b""]):
        at = len(held)
        held += chunk
        # A "\r" may be the first half of a line end, so at the very end it says nothing yet.
        end = held.rfind(b"\n", at) + 1 or held.rfind(b"\r", max(0, at - 1), -1) + 1
        if not chunk:
            end = len(held)
        elif not end and len(held) > longest:
            if long_lines == "refuse":
                raise ValueError(
                    f"{path}, line {line}: a line must be shorter than {longest} bytes"
                )
            end = _whole_characters(held)
            if long_lines == "cut":
                if not in_long_line:
                    _count(counts, "long_lines", path, line)
                end = held.rfind(b" ", 1) + 1 or end
            in_long_line = True
        elif end:
            in_long_line = False
        if not end:
            continue
        text = _mended(path, line, held[:end], counts)
        held = held[end:]
        yield line, text
        line += text.count("\n")


def _whole_characters(data):
    """How many bytes there are before a character of UTF-8 that may lack its end."""
    start = len(data) - 1
    while start > len(data) - 4 and data[start] & 0xC0 == 0x80:
        start -= 1
    return start if data[start] >= 0xC0 else len(data)


def _count(counts, key, path, line):
    counts[key] += 1
    counts.setdefault(f"{key}_at", f"{path.name}, line {line}")


def _mended(path, first, data, counts):
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    lines, replaced = data.split(b"\n"), 0
    for index, line in enumerate(lines):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            mended = line.decode("utf-8", "replace")
            replaced += mended.count(_REPLACED)
            lines[index] = mended.encode("utf-8")
            _count(counts, "invalid_utf8", path, first + index)
            invalid, where = error.object[error.start], first + index
    text = b"\n".join(lines).decode("utf-8")
    if replaced >= _MANY_REPLACED and replaced > len(text) * _REPLACED_SHARE:
        raise ValueError(
            f"{path}: must be text in UTF-8; received {replaced} invalid bytes, "
            f"such as 0x{invalid:02x} in line {where}, among {len(text)} characters"
        )
    return text


# --- Formats -------------------------------------------------------------------------------


def _parts(source, text, markup="plain"):
    """A document, or several where it is long: cut after a line end, or white space, if it can."""
    part, begin = 1, 0
    while begin < len(text):
        end = len(text)
        if end - begin > LONGEST:
            end = begin + LONGEST
            end = text.rfind("\n", begin, end) + 1 or text.rfind(" ", begin + 1, end) + 1 or end
        whole = part == 1 and end == len(text)
        if not text[begin:end].isspace():
            name = source if part == 1 else f"{source}, part {part}"
            yield Document(name, text if whole else text[begin:end], markup, part)
            part += 1
        begin = end


def _blank_lines(text):
    """How many lines end before the first letter."""
    return text.count("\n", 0, len(text) - len(text.lstrip()))


class _Gatherer:
    """Joins the text of a document that goes over several blocks, and lets go of what is long."""

    def __init__(self, path):
        self.path = path
        self.reset()

    def reset(self):
        self.held, self.size, self.part, self.line = [], 0, 1, None

    def add(self, text, line):
        """Yields a part, once there is enough for one."""
        if self.line is None:
            if not text or text.isspace():
                return
            self.line = line + _blank_lines(text)
        self.held.append(text)
        self.size += len(text)
        if self.size >= LONGEST:
            yield from self._document()
            self.held, self.size = [], 0

    def end(self):
        """Yields the document, or what is left of it."""
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
    gatherer, name = _Gatherer(path), str(path)
    for line, text in _blocks(path, chunks, counts):
        # With a line end on either side blank lines look alike wherever they stand.
        text, begin = f"\n{text}" if text.endswith("\n") else f"\n{text}\n", 1
        for match in _BLANK_LINES.finditer(text):
            end = match.start()
            if gatherer.line is None and end - begin < LONGEST:  # most are whole in a block
                body = text[begin:end].strip()
                if body:
                    yield Document(f"{name}: line {line}", body)
            else:
                yield from gatherer.add(text[begin:end], line)
                yield from gatherer.end()
            line += text.count("\n", begin, match.end())
            begin = match.end()
        yield from gatherer.add(text[begin:], line)
    yield from gatherer.end()


def _read_json(path, chunks, counts):
    for first, text in _blocks(path, chunks, counts, "refuse"):
        for number, line in enumerate(text.split("\n"), first):
            if not line or line.isspace():
                continue
            where = f"{path}, line {number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{where}: is not JSON ({error})") from error
            if isinstance(value, dict):
                if "text" not in value:
                    keys = ", ".join(list(value)[:10])
                    raise ValueError(f"{where}: has no key 'text'; its keys are {keys:.200}")
                body = value["text"]
            else:
                body = value
            if isinstance(body, list) and all(isinstance(item, str) for item in body):
                body = "\n".join(item.replace("\n", " ") for item in body)
            if not isinstance(body, str) or isinstance(value, str):
                raise ValueError(
                    f"{where}: must hold a text or a list of paragraphs; received "
                    f"{json.dumps(body)[:80]}"
                )
            if "\\u" in line:  # halves of characters and NULs, which no file could hold
                body = body.encode("utf-8", "replace").decode("utf-8").replace("\0", "")
            if "\r" in body:
                body = body.replace("\r\n", "\n").replace("\r", "\n")
            if isinstance(value, dict) and {"id", "url", "title"} <= set(value):
                body = _without_title(html.unescape(body), str(value["title"]))
            yield from _parts(f"{path}: line {number}", body)


def _without_title(text, title):
    """WikiExtractor's text; its first line may be the title, which is no sentence."""
    first, end, rest = text.lstrip("\n").partition("\n")
    return rest if end and first.strip() == title.strip() else text


def _read_extracted(path, chunks, counts):
    inside: int | None = None
    title, gatherer = "", _Gatherer(path)

    def add(text, line):
        nonlocal title
        if inside is None:
            if text and not text.isspace():
                raise ValueError(
                    f"{path}, line {line + _blank_lines(text)}: between </doc> and <doc ...> there "
                    f"must be no text; received {text.strip()[:40]!r}"
                )
            return
        if "&" in text:
            text = html.unescape(text)
        if title and text.strip():
            before, text, title = text, _without_title(text, title), ""
            line += before.count("\n") - text.count("\n")
        yield from gatherer.add(text, line)

    for line, text in _blocks(path, chunks, counts):
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
                yield from gatherer.end()
                inside = None
        yield from add(text[begin:], line)
    if inside is not None:
        raise ValueError(f"{path}: ends inside the <doc> of line {inside}; it was cut short")


def _read_xml(path, chunks, counts):
    """Articles of a dump: an event parser that keeps one page at a time."""
    dump = _Dump(path)
    # The encoding is settled already, whatever the declaration says.
    parser = expat.ParserCreate("utf-8", namespace_separator=" ")
    parser.buffer_text = True
    parser.buffer_size = BLOCK
    parser.StartElementHandler = dump.start
    parser.EndElementHandler = dump.end
    parser.CharacterDataHandler = dump.data
    parser.StartDoctypeDeclHandler = dump.doctype
    try:
        for _, text in _blocks(path, chunks, counts, "split"):
            parser.Parse(text, False)
            for page, wikitext in dump.take():
                yield from _parts(f"{path}: page {page}", wikitext, "wikitext")
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise ValueError(
            f"{path}, line {error.lineno}, page {dump.page}: broken or cut short XML ({reason})"
        ) from error


class _Dump:
    """What the events of a MediaWiki dump add up to."""

    _KEPT = frozenset(("title", "ns", "text", "model", "namespace"))

    def __init__(self, path):
        self.path = path
        self.page = 0
        self.is_dump = False
        self._other_namespaces = set()
        self._key = None
        self._found = []
        self._open: list[str] | None = (
            None  # the strings of the element that is open, if its text is wanted
        )
        self._begin()

    def _begin(self):
        self._values, self._is_redirect, self._size = {}, False, 0

    def take(self):
        found, self._found = self._found, []
        return found

    def doctype(self, *_):
        raise ValueError(f"{self.path}: XML with a DTD is refused; dumps have none")

    def start(self, name, attributes):
        name = name.rpartition(" ")[2]
        if not self.is_dump:
            self.is_dump = name == "mediawiki"
            if not self.is_dump:
                raise ValueError(f"{self.path}: XML must be a MediaWiki dump; its root is <{name}>")
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
        if self._size > LONGEST_RECORD:
            raise ValueError(
                f"{self.path}, page {self.page}: must be shorter than {LONGEST_RECORD} characters"
            )

    def end(self, name):
        name = name.rpartition(" ")[2]
        if name == "page":
            self._end_page()
        elif name in self._KEPT and self._open is not None:
            text, self._open = "".join(self._open), None
            if name == "namespace":
                if self._key != "0" and text:
                    self._other_namespaces.add(text)
            else:
                self._values[name] = text  # of several revisions the last one stays

    def _end_page(self):
        values = self._values
        text = values.get("text", "")
        space = values.get("ns")
        if space is None:  # dumps of old: the title alone tells
            prefix, colon, _ = values.get("title", "").partition(":")
            space = "1" if colon and prefix in self._other_namespaces else "0"
        is_article = (
            space.strip() == "0"
            and not self._is_redirect
            and values.get("model", "wikitext") == "wikitext"
            and not _REDIRECT.match(text)
        )
        if is_article and text and not text.isspace():
            self._found.append((self.page, text))
        self._begin()
