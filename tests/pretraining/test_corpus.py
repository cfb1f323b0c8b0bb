"""Reading a corpus: files, compression, formats and errors."""

import bz2
import collections
import gzip
import json
import lzma
import os
import pathlib
import sys
import tracemalloc

import pytest
import zstandard

from keras_bert.pretraining import corpus, decompression

PACK = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
PLAIN = "One.\nTwo.\n\nThree.\n"
DUMP = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-{version}/" xml:lang="en">
  <siteinfo><namespaces><namespace key="0" /><namespace key="1">Talk</namespace></namespaces>
  </siteinfo>
{pages}</mediawiki>
"""


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path, **options):
    return [document.paragraphs() for document in corpus.documents(path, **options)]


def page(text, title="A", ns="<ns>0</ns>", more="", model="<model>wikitext</model>"):
    revision = f"<revision>{model}<text>{text}</text></revision>"
    return f"<page><title>{title}</title>{ns}{more}{revision}</page>\n"


def dump(*pages, version="0.11"):
    return DUMP.format(version=version, pages="".join(pages))


# --- Files ---


def test_files_are_sorted_and_unique(tmp_path):
    names = ["b.txt", "a/z.txt", "a/b/c.txt.gz", ".hidden", "a/.git/x", "a/.y.txt"]
    for name in names:
        write(tmp_path / name, "text")
    every = [tmp_path / name for name in ("a/b/c.txt.gz", "a/z.txt", "b.txt")]
    assert corpus.files(tmp_path) == every
    assert corpus.files([tmp_path / "b.txt", str(tmp_path), tmp_path / "a"]) == every
    assert corpus.files(f"{tmp_path}/**/*.txt") == every[1:]
    assert corpus.files(f"{tmp_path}/[a]") == every[:2]
    hidden = tmp_path / ".hidden"  # named explicitly
    assert corpus.files(hidden) == [hidden]
    like_a_pattern = write(tmp_path / "a[1].txt", "text")
    assert corpus.files(like_a_pattern) == [like_a_pattern]


def test_file_with_several_paths_is_found_once(tmp_path, monkeypatch):
    file = write(tmp_path / "a.txt", "text")
    (tmp_path / "b.txt").symlink_to(file)
    monkeypatch.chdir(tmp_path)
    assert len(corpus.files(["a.txt", file, "./a.txt"])) == 1
    assert len(corpus.files(tmp_path)) == 1


def test_linked_folders_are_read_and_cycles_end(tmp_path):
    write(tmp_path / "corpus" / ".parts" / "a.txt", "text")
    (tmp_path / "corpus" / "linked").symlink_to(tmp_path / "corpus" / ".parts")
    (tmp_path / "corpus" / ".parts" / "back").symlink_to(tmp_path / "corpus")
    assert [file.name for file in corpus.files(tmp_path / "corpus")] == ["a.txt"]
    (tmp_path / "link").symlink_to(tmp_path / "corpus")  # the user chose it
    assert [file.name for file in corpus.files(tmp_path / "link")] == ["a.txt"]


def test_unreadable_folder_raises(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "secret" / "b.txt", "text")
    scan = os.scandir

    def refuse(path):
        if os.fspath(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError, match="secret"):
        corpus.files(tmp_path)


def test_paths_without_files_raise(tmp_path):
    (tmp_path / "empty").mkdir()
    for path, message in (
        (tmp_path / "missing.txt", "missing.txt: no such file, folder or pattern"),
        (tmp_path / "*.nothing", ".nothing: no such file, folder or pattern"),
        (tmp_path / "empty", "contains no files"),
    ):
        with pytest.raises(ValueError, match=message):
            corpus.documents(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_pipe_raises(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is not a regular file"):
        corpus.files(tmp_path / "pipe")


def test_broken_link_raises(tmp_path):
    (tmp_path / "z.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(ValueError, match=r"z\.txt: a link must lead to a file"):
        corpus.files(tmp_path)
    (tmp_path / "z.txt").unlink()
    (tmp_path / "z.txt").symlink_to(tmp_path / "z.txt")
    with pytest.raises(ValueError, match=r"z\.txt is a broken link"):
        corpus.files(tmp_path)


def test_file_name_that_is_not_utf8_raises(tmp_path):
    try:
        pathlib.Path(os.fsdecode(bytes(tmp_path) + b"/\xff.txt")).write_text("One.")
    except OSError:
        pytest.skip("this file system has no such names")
    with pytest.raises(ValueError, match=r"\\xff\.txt': the file name must be UTF-8"):
        corpus.files(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "folder", "inside"),
    [
        ("*", "records", True), ("t*", "texts/below/records", True), ("*.txt", "texts", False),
        ("texts/*", "texts/records", True), ("texts/*.txt", "texts/records", False),
        ("**/*.txt", "texts/records", True), ("**/*.bz2", "texts/records", False),
        ("texts", "texts/records", True), ("texts", "records", False),
    ],
)  # fmt: skip
def test_output_folder_inside_the_corpus_raises(tmp_path, monkeypatch, pattern, folder, inside):
    (tmp_path / "texts").mkdir()
    monkeypatch.chdir(tmp_path)
    for path in (pattern, str(tmp_path / pattern)):
        if inside:
            with pytest.raises(ValueError, match="must not be inside the corpus, "):
                corpus.check_outside(folder, [path])
        else:
            corpus.check_outside(folder, path)


# --- Documents ---


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_plain_text(tmp_path, ending, encoding):
    text = "\n  \nOne 가.\nTwo.\n\n \t\nThree.\n\n\n\nFour.\nFive."
    file = write(tmp_path / "a.txt", text.replace("\n", ending).encode(encoding))
    documents = list(corpus.documents(file))
    assert [document.paragraphs() for document in documents] == [
        ["One 가.", "Two."],
        ["Three."],
        ["Four.", "Five."],
    ]
    sources = [document.source for document in documents]
    assert sources == [f"{file}: line {line}" for line in (3, 7, 11)]


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("keep", [0.3, 0.95, 1.0])
def test_truncated_or_damaged_compressed_file_raises(tmp_path, kind, keep):
    pack = zstandard.ZstdCompressor(write_checksum=True).compress if kind == "zst" else PACK[kind]
    packed = bytearray(pack(bytes(i * i % 89 + 33 for i in range(20_000)) + b"\n"))
    if keep == 1.0:
        packed[len(packed) // 2] ^= 0x55
    file = write(tmp_path / "corpus", bytes(packed[: int(len(packed) * keep)]))
    with pytest.raises(ValueError, match=r"corpus: this \w+ file is damaged or truncated"):
        read(file)


@pytest.mark.parametrize("kind", PACK)
def test_damaged_later_stream_raises(tmp_path, kind):
    """Wikipedia's dumps and pbzip2's files consist of many streams."""
    one, two = PACK[kind](b"One.\n\n"), bytearray(PACK[kind](b"Two.\n"))
    two[0] ^= 0x55
    for rest in (bytes(two), b"so much for that", two[:3]):
        with pytest.raises(ValueError, match=r"corpus: this \w+ file is damaged or truncated"):
            read(write(tmp_path / "corpus", one + rest))
    two[0] ^= 0x55
    padded = write(tmp_path / "corpus", one + bytes(8192) + bytes(two) + bytes(4))
    assert read(padded) == [["One."], ["Two."]]


def test_missing_zstandard_raises(tmp_path, monkeypatch):
    file = write(tmp_path / "a.zst", PACK["zst"](b"text"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"a\.zst needs zstandard; run: pip install"):
        read(file)


@pytest.mark.parametrize("content", [b"", b"\n \n\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_file_without_text_has_no_documents(tmp_path, content):
    counts = collections.Counter()
    assert read(write(tmp_path / "a.txt", content), counts=counts) == []
    assert counts["documents"] == 0 and counts["files"] == 1


def test_invalid_bytes_are_replaced_and_counted_by_line(tmp_path):
    file = write(tmp_path / "a.txt", b"One \xff\xfe.\nTwo.\n\nThr\xc3\n\xed\x95\x9c\n")
    counts = collections.Counter()
    assert read(file, counts=counts) == [["One \ufffd\ufffd.", "Two."], ["Thr\ufffd", "한"]]
    assert counts == {"files": 1, "documents": 2, "invalid_utf8": 2, "long_lines": 0,
                      "long_documents": 0, "invalid_utf8_at": "a.txt, line 1"}  # fmt: skip


# --- Long documents, lines and records ---


def test_long_document_is_split_between_paragraphs(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "LONGEST", 256)
    lines = [f"Line number {n} of it." for n in range(100)]
    file = write(tmp_path / "a.txt", "\n".join(lines) + "\n\nShort.\n")
    counts = collections.Counter()
    *parts, last = corpus.documents(file, counts=counts)
    assert len(parts) > 3
    assert all(len(part.text) < 256 + 128 for part in parts)
    assert [line for part in parts for line in part.paragraphs()] == lines
    assert [part.source for part in parts[:2]] == [f"{file}: line 1", f"{file}: line 1, part 2"]
    assert (last.source, last.text) == (f"{file}: line 102", "Short.")
    assert [document.part for document in (*parts[:3], last)] == [1, 2, 3, 1]
    assert (counts["long_documents"], counts["long_documents_at"]) == (1, f"{file}: line 1")
    of_json = write(tmp_path / "a.jsonl", json.dumps({"text": [*lines, "x" * 600]}))
    *of_lines, cut, _, rest = corpus.documents(of_json)
    assert [line for part in of_lines for line in part.paragraphs()] == lines
    assert len(cut.text) == 256 and len(rest.text) == 600 - 2 * 256
    assert of_lines[1].source == f"{of_json}: line 1, part 2"


@pytest.mark.parametrize("unit", ["word ", "가", "\u00e9", "😀"])
def test_long_line_is_cut_and_counted_once(tmp_path, monkeypatch, unit):
    monkeypatch.setattr(corpus, "LONGEST", 200)
    line = unit * 1000
    file = write(tmp_path / "a.txt", f"Before.\n\n{line}\n\nAfter.\n")
    counts = collections.Counter()
    first, *parts, last = read(file, counts=counts)
    assert (first, last) == (["Before."], ["After."])
    found = "".join(text for part in parts for text in part)
    assert found.replace(" ", "") == line.replace(" ", "")
    assert counts["long_lines"] == 1 and counts["invalid_utf8"] == 0


@pytest.mark.parametrize("unit", [b"word and ", "가나".encode(), b"a line\n"])
def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch, unit):
    monkeypatch.setattr(decompression, "BLOCK", 1 << 14)
    monkeypatch.setattr(corpus, "LONGEST", 1 << 16)
    file = write(tmp_path / "a.txt", unit * (3_000_000 // len(unit)))
    tracemalloc.start()
    try:
        size = sum(len(document.text.encode()) for document in corpus.documents(file))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 2_900_000
    assert peak < 1_500_000  # measured: 0.6 million; the file has 3 million bytes


def test_too_long_record_raises(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "BLOCK", 100)
    monkeypatch.setattr(corpus, "LONGEST_RECORD", 1000)
    file = write(tmp_path / "a.jsonl", '{"text": "a"}\n' + json.dumps({"text": "x" * 2000}))
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: a line must be shorter than 1000"):
        read(file)
    file = write(tmp_path / "a.xml", dump(page("a"), page("x" * 2000)))
    with pytest.raises(ValueError, match=r"a\.xml, page 2: must be shorter than 1000"):
        read(file)


# --- JSON Lines ---


def test_json_lines(tmp_path):
    rows = [{"id": 1, "text": "One.\nTwo."}, {"text": ["Three.", "Fo\nur."]}, {"text": ""}]
    text = "\n\n".join(json.dumps(row) for row in rows)
    expected = [["One.", "Two."], ["Three.", "Fo ur."]]
    for file in (
        write(tmp_path / "told by content", text),
        write(tmp_path / "a.jsonl.gz", gzip.compress(text.encode())),
    ):
        assert read(file) == expected
        assert [d.source for d in corpus.documents(file)] == [f"{file}: line {n}" for n in (1, 3)]


# Content of a file -> its documents.
READ = {
    "a skippable frame of zstd": (
        b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size" + PACK["zst"](b"One."),
        [["One."]],
    ),
    "invalid escapes in JSON": (
        '{"text": "a\\ud83d b\\u0000c \\ud83d\\ude00\\r\\nd"}',
        [["a? bc 😀", "d"]],
    ),
    # The Wikipedia of Hugging Face has these keys. Its texts are not escaped.
    "other keys in JSON": (
        json.dumps({"id": "12", "title": "R&B", "text": "R&B\n\nOne &lt;b&gt;.\nTwo."}),
        [["R&B", "One &lt;b&gt;.", "Two."]],
    ),
    "line ends in paragraphs of JSON": (
        json.dumps({"text": ["One\r\ntwo.", "Three\rfour."]}),
        [["One two.", "Three four."]],
    ),
    "a byte order mark before JSON": ('\ufeff{"text": "One."}\n', [["One."]]),
    "a byte order mark before XML": ("\ufeff" + dump(page("One.")), [["One."]]),
}


@pytest.mark.parametrize("name", READ)
def test_unusual_files(tmp_path, name):
    content, expected = READ[name]
    assert read(write(tmp_path / "corpus", content)) == expected


def after_one(line):
    return f'{{"text": "a"}}\n{line}\n'


DOCTYPES = [
    '<!DOCTYPE mediawiki [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>',
    '<!DOCTYPE mediawiki [<!ENTITY a SYSTEM "file:///etc/hostname">]>',
    '<!DOCTYPE mediawiki SYSTEM "http://localhost/a.dtd">',
]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PNG\0\0\1 text", ": contains NUL bytes"),
        ("UTF-16".encode("utf-16"), ": contains NUL bytes"),
        (("한국어 문장입니다. " * 50).encode("euc-kr"), r": must be text in UTF-8; .* \d+ invalid"),
        ('[\n  {"text": "One."},\n  {"text": "Two."}]\n', " is a JSON array; convert"),
        (after_one('{"text": "cut'), ", line 2 is not JSON"),
        (after_one("[" * 100_000), ", line 2 is not JSON"),
        (after_one('{"body": "a"}'), ', line 2: must have a text .* received {"body": "a"}'),
        (after_one('{"text": ["a", 3]}'), ", line 2: must have a text or a list of paragraphs"),
        (after_one('["a", "b"]'), ", line 2: must have a text or a list of paragraphs"),
        (dump(page("Text.", ns="")), ", page 1: has no <ns>"),
        (dump(page("One."), page("Two.")).split("Two")[0], r", line \d+, page 2: .*truncated XML"),
        *((doctype + dump(page("&a;")), ": XML with a DTD is not") for doctype in DOCTYPES),
        ('<?xml version="1.0"?><rss>a</rss>', ": XML must be a MediaWiki dump; its root is <rss"),
    ],
)
def test_unreadable_files_raise(tmp_path, content, message):
    with pytest.raises(ValueError, match=r"corpus\.any" + message):
        read(write(tmp_path / "corpus.any", content))


# --- MediaWiki ---


@pytest.mark.parametrize("version", ["0.10", "0.11"])
@pytest.mark.parametrize("block", [decompression.BLOCK, 10])
def test_dump_yields_articles(tmp_path, monkeypatch, version, block):
    monkeypatch.setattr(corpus, "BLOCK", block)
    content = dump(
        page("Plain '''text'''."),
        page("Talk.", "Talk:A", "<ns>1</ns>"),
        page("It moved.", "B", more='<redirect title="A" />'),
        page("#пренасочване [[A]]", "C"),
        page("{}", "D", model="<model>json</model>"),
        page("[[fr:X|Word]] &lt;!-- c --&gt; 한국어.\n* item\n\nNext.", "E"),
        page(""),
        version=version,
    )
    file = write(tmp_path / "dump", '<?xml version="1.0" encoding="utf-8"?>\n' + content)
    counts = collections.Counter()
    documents = list(corpus.documents(file, counts=counts))
    kinds = ("other_namespaces", "redirects", "other_models", "empty_pages")
    assert [counts[kind] for kind in kinds] == [1, 2, 1, 1]
    assert counts["redirects_at"] == f"{file}: page 3"
    assert [document.markup for document in documents] == ["wikitext"] * 2
    assert [document.source for document in documents] == [f"{file}: page 1", f"{file}: page 6"]
    paragraphs = [document.paragraphs() for document in documents]
    assert paragraphs == [["Plain text."], ["Word 한국어.", "Next."]]


def test_last_revision_is_used(tmp_path):
    old = "<revision><text>Old.</text></revision>"
    counts = collections.Counter()
    file = write(tmp_path / "dump", dump(page("New.", more=old)))
    assert read(file, counts=counts) == [["New."]]
    assert counts["older_revisions"] == 1


def test_real_dumps(shared):
    counts = collections.Counter()
    found = list(corpus.documents(shared / "data/mediawiki/enwiki*.bz2", counts=counts))
    assert counts["documents"] == len(found) == 111
    assert counts["invalid_utf8"] == 0
