"""The articles of a MediaWiki XML dump, as the Wikimedia Foundation publishes them."""

import re
from xml.parsers import expat

from keras_bert.pretraining import corpus_formats
from keras_bert.pretraining.decompression import BLOCK, open_decompressed
from keras_bert.runtime.escaping import printable

_MAX_DEPTH = 100  # a dump has 6
_REDIRECT = re.compile(r"\s*#\s?\w+\s*:?\s*\[\[")
_KEPT = frozenset(("ns", "text", "model"))


def is_xml(head):
    """Return True for XML. `head` is the first bytes of the decompressed content."""
    return re.match(rb"<(?:\?xml\b|!DOCTYPE\b|mediawiki\b)", head)


def read(path, counts):
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
                    yield from corpus_formats.split_document(path, f"page {page}", text, "wikitext")
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
        self._path, self._counts = path, counts
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
        if self._depth > _MAX_DEPTH:  # expat keeps 100 bytes for each open element
            raise self._invalid(f"XML must have at most {_MAX_DEPTH} nested elements")
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
        if self._size > corpus_formats.LONGEST_RECORD:
            limit = corpus_formats.LONGEST_RECORD
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
        corpus_formats.count(self._counts, kind, f"{self._path}: page {self.page}")
