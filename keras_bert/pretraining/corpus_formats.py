"""Readers of the formats of a corpus: plain text, JSON Lines and MediaWiki dumps."""

import dataclasses
import io
import json
import re

from keras_bert.pretraining import wikitext
from keras_bert.pretraining.decompression import open_decompressed
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.reading import json_value

LONGEST = 4 << 20  # maximum characters of a line, and approximately of a document
LONGEST_RECORD = 64 << 20  # maximum characters of a JSON line or a wiki page
# A text with this many invalid bytes, and above this share of its characters, is not UTF-8.
_MANY_INVALID = 50
_INVALID_SHARE = 0.1
_REPLACEMENT = "\ufffd"
_INVALID_BYTE = re.compile("[\udc80-\udcff]")  # how Python decodes invalid bytes
_JSON_SUFFIXES = (".jsonl", ".ndjson")


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


def is_json_lines(path, head):
    """Return True for JSON Lines. `head` is the first bytes of the decompressed content."""
    if re.match(rb'\[\s*\{\s*"', head):
        raise ValueError(f"{path} is a JSON array; convert it to JSON Lines, one object per line")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return any(suffix in _JSON_SUFFIXES for suffix in suffixes) or re.match(rb'\{\s*"', head)


def read_plain(path, counts):
    """Yield the documents of a plain text: a paragraph per line, blank lines between documents."""
    texts: list[str] = []
    size = 0
    first_line = 1
    part = 1
    for number, text in lines(path, counts, LONGEST):
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


def read_json_lines(path, counts):
    """Yield the documents of JSON Lines: objects with the key "text", or lists of paragraphs."""
    for number, line in lines(path, counts, LONGEST_RECORD):
        if len(line) >= LONGEST_RECORD:
            raise ValueError(
                f"{path}, line {number}: a line must be shorter than {LONGEST_RECORD} characters; "
                "split it"
            )
        if not line.isspace():
            text = _text_of_json(f"{path}, line {number}", line)
            yield from split_document(path, f"line {number}", text)


def _text_of_json(where, line):
    """Return the text of a line of JSON."""
    try:
        value = json_value(line)
    except ValueError as error:
        raise ValueError(f"{where} is not JSON ({error})") from error
    text = value
    if isinstance(value, dict):
        if "text" not in value:
            keys = printable(", ".join(list(value)[:10]), 200)
            raise ValueError(f"{where} has no key 'text'; its keys are {keys}")
        text = value["text"]
    if isinstance(text, list) and all(isinstance(paragraph, str) for paragraph in text):
        text = "\n".join(paragraph.replace("\n", " ") for paragraph in text)
    if not isinstance(text, str):
        raise ValueError(
            f"{where}: must be a text or a list of paragraphs; received {json.dumps(text)[:80]}"
        )
    if "\\u" in line:  # escapes of surrogates and NUL, which are not text
        text = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def split_document(path, where, text, markup="plain"):
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


def lines(path, counts, longest):
    r"""Yield (number, text) for the lines of a file in UTF-8, with invalid bytes replaced.

    A text ends with `"\n"`, except at the end of the file. A line of more than `longest` characters
    is yielded in parts. `counts` is a `collections.Counter` for repairs, see `corpus.documents`.
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
                count(counts, "long_lines", f"{path.name}, line {number}")
            is_new_line = ends
            if "\0" in text:
                raise ValueError(
                    f"{path}: contains NUL bytes; a corpus must consist of text files in UTF-8"
                )
            characters += len(text)
            if not text.isascii() and _INVALID_BYTE.search(text):
                count(counts, "invalid_utf8", f"{path.name}, line {number}")
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


def count(counts, kind, where):
    """Count a repair or an omission, and keep the place of the first one."""
    counts[kind] += 1
    counts.setdefault(f"{kind}_at", where)
