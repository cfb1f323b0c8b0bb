"""The documents of a corpus: plain text, JSON Lines and MediaWiki dumps in files of any size."""

import codecs
import collections
import dataclasses
import fnmatch
import glob
import io
import itertools
import json
import os
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias
from xml.parsers import expat

from keras_bert.pretraining import wikitext
from keras_bert.pretraining.decompression import BLOCK, open_decompressed
from keras_bert.runtime import budget
from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.reading import json_value
from keras_bert.untrusted import links

Paths: TypeAlias = str | os.PathLike | Iterable[str | os.PathLike]

_ADVICE = ", or give the target of the link as a path of the corpus"
_HEAD = 4096  # bytes that determine the format of a file
LONGEST = 4 << 20  # maximum characters of a line, and approximately of a document
LONGEST_RECORD = 64 << 20  # maximum characters of a JSON line or a wiki page
# A text with this many invalid bytes, and above this share of its characters, is not UTF-8.
_MANY_INVALID = 50
_INVALID_SHARE = 0.1
_REPLACEMENT = "\ufffd"
_INVALID_BYTE = re.compile("[\udc80-\udcff]")  # how Python decodes invalid bytes
_JSON_SUFFIXES = (".jsonl", ".ndjson")
_REDIRECT = re.compile(r"\s*#\s?\w+\s*:?\s*\[\[")
_KEPT = frozenset(("ns", "text", "model"))


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A document of a corpus, before any processing.

    `source` names its file and line or page, such as `"books.txt.xz: line 512"`. `text` consists of
    paragraphs separated by line ends, or of wikitext; `markup` is `"plain"` or `"wikitext"`. `part`
    numbers the parts of a document longer than `LONGEST`.
    """

    source: str
    text: str
    markup: str = "plain"
    part: int = 1

    def paragraphs(self) -> list[str]:
        """Return the paragraphs, a list of non-empty strings without line ends."""
        if self.markup == "wikitext":
            return wikitext.paragraphs(self.text)
        return [line for line in map(str.strip, self.text.split("\n")) if line]


def files(paths: Paths) -> list[pathlib.Path]:
    """Return the files of a corpus, sorted `pathlib.Path`s without duplicates.

    `paths` is as for `documents`. A path that matches nothing, a broken link and a file that cannot
    be read more than once, such as a pipe, are a `ValueError`.
    """
    file_per_target: dict[str, pathlib.Path] = {}
    for path in _as_list(paths):
        files_of_path: list[pathlib.Path] = []
        for match in [path] if os.path.exists(path) else glob.glob(path, recursive=True):
            if match != path:
                links.check_link(match, _fixed_part(path), _ADVICE)
            files_of_path += _below(pathlib.Path(match))
        if not files_of_path:
            raise ValueError(f"{path}: no such file, folder or pattern, or it contains no files")
        for file in files_of_path:
            file_per_target.setdefault(os.path.realpath(file), file)
            if not file.is_file():
                problem = "not a regular file" if file.exists() else "a broken link"
                raise ValueError(f"{file} is {problem}; use files, which can be read repeatedly")
            if printable(str(file)) != str(file):
                raise ValueError(
                    f"{shown(os.fsencode(file), 1000)}: the file name must be UTF-8 without "
                    "control characters; rename it"
                )
    return sorted(file_per_target.values())


def _as_list(paths):
    """Return one path or several as a list of strings."""
    return list(map(os.fspath, [paths] if isinstance(paths, (str, os.PathLike)) else paths))


def check_outside(folder: str | os.PathLike, paths: Paths) -> None:
    """Raise a `ValueError` if an output folder is inside the corpus.

    A later call would read the output as a part of the corpus. `paths` is as for `documents`.
    """
    target = pathlib.Path(folder).resolve()
    for path in _as_list(paths):
        if os.path.exists(path):
            inside = os.path.isdir(path) and target.is_relative_to(pathlib.Path(path).resolve())
        else:
            inside = _matches(os.path.abspath(path), target)
        if inside:
            raise ValueError(f"{folder}: must not be inside the corpus, {path}; use another folder")


def _matches(pattern, folder):
    """Return True if a pattern matches a folder, a parent of it, or future files in it."""
    # In `fnmatch` "*" also matches "/". This is correct: folders are read with all subfolders.
    if fnmatch.fnmatch(str(folder), pattern):
        return True
    return "**" in pattern and any(
        fnmatch.fnmatch(str(folder / name), pattern) for name in ("a.json", "a.tfrecord", "a.txt")
    )


def _fixed_part(pattern):
    """Return the folder of a pattern, the part before the first wildcard."""
    folder = pathlib.Path(pattern)
    while glob.has_magic(str(folder)):
        folder = folder.parent
    return folder


def _below(path):
    """Yield the files in a folder and its subfolders. A link out of the folder is an error."""
    if not path.is_dir():
        yield path
        return

    def fail(error):  # by default `os.walk` ignores errors
        raise error

    seen = set()  # a link may lead back to a parent folder
    for folder, names, leaves in os.walk(path, onerror=fail, followlinks=True):
        seen.add(os.path.realpath(folder))
        names[:] = [name for name in names if not name.startswith(".")]
        leaves = [leaf for leaf in leaves if not leaf.startswith(".")]
        for name in names + leaves:
            file = os.path.join(folder, name)
            if os.path.islink(file):
                links.check_link(file, path, _ADVICE)
        names[:] = [
            name for name in names if os.path.realpath(os.path.join(folder, name)) not in seen
        ]
        for leaf in leaves:
            yield pathlib.Path(folder, leaf)


def documents(
    paths: Paths, *, counts: collections.Counter[str] | None = None
) -> Iterator[Document]:
    r"""Read the documents of a corpus.

    The content of a file determines its format: plain text (one paragraph per line, blank lines
    between documents), JSON Lines (`"text"` is a string or a list of paragraphs, and is not
    changed) or a MediaWiki XML dump (the last revision of articles, without redirects). Files may
    be compressed by gzip, bzip2, xz or zstd. The encoding is UTF-8. Documents longer than
    `LONGEST` are split into parts, between paragraphs if possible.

    Args:
        paths: A path or a list of paths: files, folders (with all subfolders, without hidden
            files) and patterns such as `"wiki/**/*.bz2"`. A link in a folder must stay inside it
            or lead to the Hugging Face Hub's cache; give other files and folders as paths.
        counts: A `collections.Counter` to fill: `"files"`, `"documents"`, and the repairs:
            `"invalid_utf8"`, the lines with bytes that were replaced by U+FFFD; `"long_lines"`, the
            lines that were cut; `"long_documents"`, the documents that were split. Of a dump also
            what is left out: `"redirects"`, `"other_namespaces"`, `"other_models"` (pages that are
            not wikitext), `"empty_pages"` and `"older_revisions"`. For each kind, a key such as
            `"invalid_utf8_at"` names the file, and the line or page of the first one.

    Yields:
        `Document`s.

    Raises:
        ValueError: If a path matches nothing, a link leads out of its folder, or a file is damaged,
            truncated or not text. The message names the file, and the line or page.
        OSError: If a file cannot be read.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "a.txt")
    ...     _ = file.write_text("One.\nTwo.\n\nThree.\n")
    ...     [document.paragraphs() for document in documents(file)]
    [['One.', 'Two.'], ['Three.']]
    """
    counts = collections.Counter() if counts is None else counts
    # `files` runs at once, so that it raises its errors before the first document is read.
    return itertools.chain.from_iterable(_documents_of(file, counts) for file in files(paths))


def _documents_of(path, counts):
    for key in ("files", "documents", "invalid_utf8", "long_lines", "long_documents"):
        counts.setdefault(key, 0)
    counts["files"] += 1
    with open_decompressed(path) as file:
        head = file.read(_HEAD).removeprefix(codecs.BOM_UTF8).lstrip()
    if _is_json_lines(path, head):
        documents = _read_json_lines(path, counts)
    elif _is_xml(head):
        documents = _read_dump(path, counts)
    else:
        documents = _read_plain(path, counts)
    for document in documents:
        counts["documents"] += 1
        if document.part == 2:
            whole = document.source.removesuffix(", part 2")
            _count(counts, "long_documents", whole)
        yield document


def _is_json_lines(path, head):
    """Return True for JSON Lines. `head` is the first bytes of the decompressed content."""
    if re.match(rb'\[\s*\{\s*"', head):
        raise ValueError(f"{path} is a JSON array; convert it to JSON Lines, one object per line")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return any(suffix in _JSON_SUFFIXES for suffix in suffixes) or re.match(rb'\{\s*"', head)


def _read_plain(path, counts):
    """Yield the documents of a plain text: a paragraph per line, blank lines between documents."""
    texts: list[str] = []
    size = 0
    first_line = 1
    part = 1
    for number, text in _lines(path, counts, LONGEST):
        is_blank = text.isspace()
        if not is_blank:
            if not texts and part == 1:
                first_line = number
            texts.append(text)
            size += len(text)
        if is_blank or size >= LONGEST:
            if texts:
                yield _document(path, f"line {first_line}", "".join(texts), part)
            texts = []
            size = 0
            part = 1 if is_blank else part + 1
    if texts:
        yield _document(path, f"line {first_line}", "".join(texts), part)


def _read_json_lines(path, counts):
    """Yield the documents of JSON Lines: objects with the key "text"."""
    for number, line in _lines(path, counts, LONGEST_RECORD):
        if len(line) >= LONGEST_RECORD:
            raise ValueError(
                f"{path}, line {number}: a line must be shorter than {LONGEST_RECORD} characters; "
                "split it"
            )
        if not line.isspace():
            text = _text_of_json(f"{path}, line {number}", line)
            yield from _split_document(path, f"line {number}", text)


def _text_of_json(where, line):
    """Return the text of a line of JSON."""
    try:
        value = json_value(line)
    except ValueError as error:
        raise ValueError(f"{where} is not JSON ({error})") from error
    text = value.get("text") if isinstance(value, dict) else None
    if isinstance(text, list) and all(isinstance(paragraph, str) for paragraph in text):
        text = "\n".join(_with_line_feeds(paragraph).replace("\n", " ") for paragraph in text)
    if not isinstance(text, str):
        raise ValueError(
            f"{where}: must have a text or a list of paragraphs with the key 'text'; received "
            f"{json.dumps(value)[:80]}"
        )
    if "\\u" in line:  # escapes of surrogates and NUL, which are not text
        text = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")
    return _with_line_feeds(text)


def _with_line_feeds(text):
    r"""Return the text with `"\n"` as the end of each line."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _split_document(path, where, text, markup="plain"):
    """Yield a document, or parts of a long one, cut at a line end or a space if possible."""
    part = 1
    begin = 0
    while begin < len(text):
        end = len(text)
        if end - begin > LONGEST:
            end = begin + LONGEST
            end = text.rfind("\n", begin, end) + 1 or text.rfind(" ", begin + 1, end) + 1 or end
        if not text[begin:end].isspace():
            yield _document(path, where, text[begin:end], part, markup)
            part += 1
        begin = end


def _document(path, where, text, part, markup="plain"):
    source = f"{path}: {where}"
    if part > 1:
        source += f", part {part}"
    return Document(source, text.strip(), markup, part)


def _lines(path, counts, longest):
    r"""Yield (number, text) for the lines of a file in UTF-8, with invalid bytes replaced.

    A text ends with `"\n"`, except at the end of the file. A line of more than `longest` characters
    is yielded in parts. `counts` is a `collections.Counter` for repairs, see `documents`.
    """
    number = 0
    invalid = 0
    characters = 0
    is_new_line = True
    with (
        open_decompressed(path) as file,
        io.TextIOWrapper(file, "utf-8-sig", "surrogateescape") as stream,
    ):
        while text := stream.readline(longest):
            if is_new_line:
                number += 1
            ends = text.endswith("\n")
            if is_new_line and not ends and len(text) == longest:
                _count(counts, "long_lines", f"{path.name}, line {number}")
            is_new_line = ends
            if "\0" in text:
                raise ValueError(
                    f"{path}: contains NUL bytes; a corpus must consist of text files in UTF-8"
                )
            characters += len(text)
            if not text.isascii() and _INVALID_BYTE.search(text):
                _count(counts, "invalid_utf8", f"{path.name}, line {number}")
                text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
                invalid += text.count(_REPLACEMENT)
                if invalid >= _MANY_INVALID and invalid > characters * _INVALID_SHARE:
                    raise ValueError(
                        f"{path}: must be text in UTF-8; received {invalid} invalid bytes among "
                        f"{characters} characters, the last ones in line {number}"
                    )
            yield number, text


def batched(texts, size):
    """Yield lists of texts of at least `size` characters each; the last list may be empty."""
    batch: list[str] = []
    count = 0
    for text in texts:
        batch.append(text)
        count += len(text)
        if count >= size:
            yield batch
            batch = []
            count = 0
    yield batch


def _count(counts, kind, where):
    """Count a repair or an omission, and keep the place of the first one."""
    counts[kind] += 1
    counts.setdefault(f"{kind}_at", where)


def _is_xml(head):
    """Return True for XML. `head` is the first bytes of the decompressed content."""
    return re.match(rb"<(?:\?xml\b|!DOCTYPE\b|mediawiki\b)", head)


def _read_dump(path, counts):
    """Yield the articles as documents of wikitext, keeping only one page in memory."""
    dump = _Dump(path, counts)
    parser = expat.ParserCreate("utf-8", namespace_separator=" ")
    parser.buffer_text = True
    parser.buffer_size = BLOCK
    parser.StartElementHandler = dump.start
    parser.EndElementHandler = dump.end
    parser.CharacterDataHandler = dump.data
    parser.StartDoctypeDeclHandler = dump.doctype
    try:
        with open_decompressed(path) as file:
            while block := file.read(BLOCK):
                parser.Parse(block, False)
                for page, text in dump.articles:
                    yield from _split_document(path, f"page {page}", text, "wikitext")
                dump.articles.clear()
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise ValueError(
            f"{path}, line {error.lineno}, page {dump.page}: broken or truncated XML ({reason})"
        ) from error


class _Dump:
    """Collects articles from the XML events of a MediaWiki dump.

    Attributes:
        page: Number of pages so far.
        articles: A list of articles: number of the page, wikitext.
    """

    def __init__(self, path, counts):
        self.page = 0
        self.articles = []
        self._path = path
        self._counts = counts
        self._depth = 0
        self._values = {}  # of the elements of the current page, by name
        self._is_redirect = False
        self._texts: list[str] | None = None  # parts of the current element, if it is kept
        self._size = 0

    def doctype(self, *_):
        raise ValueError(f"{self._path}: XML with a DTD is not supported; a dump has none")

    def start(self, name, attributes):
        name = name.rpartition(" ")[2]
        if self._depth == 0 and name != "mediawiki":
            raise ValueError(
                f"{self._path}: XML must be a MediaWiki dump; its root is <{printable(name, 80)}>"
            )
        self._depth += 1
        if self._depth > budget.MAX_DEPTH:  # expat keeps 100 bytes for each open element
            rule = f"at most {budget.MAX_DEPTH} are allowed"
            raise self._invalid(f"{self._depth} nested elements, {rule}")
        if name == "page":
            self.page += 1
            self._values = {}
            self._is_redirect = False
        elif name == "redirect":
            self._is_redirect = True
        elif name in _KEPT:
            self._texts = []
            self._size = 0

    def data(self, text):
        if self._texts is None:
            return
        self._texts.append(text)
        self._size += len(text)
        if self._size > LONGEST_RECORD:
            limit = LONGEST_RECORD
            raise self._invalid(f"must be shorter than {limit} characters; split it")

    def end(self, name):
        name = name.rpartition(" ")[2]
        self._depth -= 1
        if name == "page":
            self._end_page()
        elif name in _KEPT and self._texts is not None:
            if name == "text" and name in self._values:
                self._count("older_revisions")
            self._values[name] = "".join(self._texts)  # the last revision wins
            self._texts = None

    def _end_page(self):
        """Keep the page if it is an article, else count why it is left out."""
        if "ns" not in self._values:
            raise self._invalid("has no <ns>; use a newer dump")
        text = self._values.get("text", "")
        if self._values["ns"].strip() != "0":
            self._count("other_namespaces")
        elif self._is_redirect or _REDIRECT.match(text):
            self._count("redirects")
        elif self._values.get("model", "wikitext") != "wikitext":
            self._count("other_models")
        elif not text or text.isspace():
            self._count("empty_pages")
        else:
            self.articles.append((self.page, text))

    def _invalid(self, problem):
        return ValueError(f"{self._path}, page {self.page}: {problem}")

    def _count(self, kind):
        _count(self._counts, kind, f"{self._path}: page {self.page}")
