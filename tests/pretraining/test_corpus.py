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
    assert corpus.files(tmp_path / ".hidden") == [
        tmp_path / ".hidden"
    ]  # a hidden file that is named explicitly


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


def test_json_array_raises(tmp_path):
    file = write(tmp_path / "a.json", '[\n  {"text": "One."},\n  {"text": "Two."}]\n')
    with pytest.raises(ValueError, match=r"a\.json is a JSON array; convert"):
        read(file)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_pipe_raises(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is not a regular file"):
        corpus.files(tmp_path / "pipe")


def test_split_documents_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "LONGEST", 40)
    write(tmp_path / "a.txt", "Short.\n\n" + "One two three.\n" * 12 + "\nShort.\n")
    write(tmp_path / "b.jsonl", json.dumps({"text": "One two three.\n" * 12}))
    counts = collections.Counter()
    parts = [document.part for document in corpus.documents(tmp_path, counts=counts)]
    assert parts[:3] == [1, 1, 2] and parts.count(1) == 4
    assert counts["long_documents"] == 2
    assert counts["long_documents_at"] == f"{tmp_path / 'a.txt'}: line 3"


def test_file_name_that_looks_like_a_pattern(tmp_path):
    file = write(tmp_path / "a[1].txt", "text")
    assert corpus.files(file) == [file]


@pytest.mark.parametrize("name", ["missing.txt", "*.nothing"])
def test_path_without_match_raises(tmp_path, name):
    there = write(tmp_path / "a.txt", "text")
    with pytest.raises(ValueError, match=rf"{name[1:]}: no such file, folder or pattern"):
        corpus.documents([there, tmp_path / name])


def test_empty_folder_raises(tmp_path):
    with pytest.raises(ValueError, match=r"contains no files"):
        corpus.files(tmp_path)


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
def test_compression_is_detected_by_content(tmp_path, kind):
    file = write(tmp_path / "corpus", PACK[kind](PLAIN.encode()))
    assert read(file) == [["One.", "Two."], ["Three."]]


@pytest.mark.parametrize("kind", PACK)
def test_compressed_files_of_several_streams(tmp_path, kind):
    file = write(tmp_path / "corpus", PACK[kind](b"One.\nTw") + PACK[kind](b"o.\n\nThree.\n"))
    assert read(file) == [["One.", "Two."], ["Three."]]


def test_zstd_with_a_skippable_frame(tmp_path):
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"
    assert read(write(tmp_path / "corpus", skipped + PACK["zst"](b"One."))) == [["One."]]


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


@pytest.mark.parametrize("content", [b"PNG\0\0\1 text", "UTF-16".encode("utf-16")])
def test_nul_bytes_raise(tmp_path, content):
    with pytest.raises(ValueError, match=r"a\.png: contains NUL bytes"):
        read(write(tmp_path / "a.png", content))


def test_other_encoding_raises(tmp_path):
    file = write(tmp_path / "a.txt", ("한국어 문장입니다. " * 50).encode("euc-kr"))
    with pytest.raises(ValueError, match=r"a\.txt: must be text in UTF-8; received \d+ invalid"):
        read(file)


# --- Long documents, lines and records ---


def test_long_document_is_split_between_paragraphs(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "LONGEST", 256)
    lines = [f"Line number {n} of it." for n in range(100)]
    file = write(tmp_path / "a.txt", "\n".join(lines) + "\n\nShort.\n")
    *parts, last = corpus.documents(file)
    assert len(parts) > 3
    assert all(len(part.text) < 256 + 128 for part in parts)
    assert [line for part in parts for line in part.paragraphs()] == lines
    assert [part.source for part in parts[:2]] == [f"{file}: line 1", f"{file}: line 1, part 2"]
    assert (last.source, last.text) == (f"{file}: line 102", "Short.")


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


def test_long_json_text_is_split(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "LONGEST", 100)
    paragraphs = [f"Paragraph number {n}." for n in range(30)] + ["x" * 250]
    file = write(tmp_path / "a.jsonl", json.dumps({"text": paragraphs}))
    documents = list(corpus.documents(file))
    assert max(len(document.text) for document in documents) <= 100
    found = [text for document in documents for text in document.paragraphs()]
    assert found[:30] == paragraphs[:30] and "".join(found[30:]) == "x" * 250
    assert documents[1].source == f"{file}: line 1, part 2"


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


def test_invalid_json_escapes_are_repaired(tmp_path):
    file = write(tmp_path / "a.jsonl", '{"text": "a\\ud83d b\\u0000c \\ud83d\\ude00\\r\\nd"}')
    assert read(file) == [["a? bc 😀", "d"]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "cut', r" is not JSON"),
        ("[" * 100_000, r" is not JSON"),
        ('{"body": "a"}', r": must have a text .* received {\"body\": \"a\"}"),
        ('{"text": ["a", 3]}', r": must have a text or a list of paragraphs"),
        ('["a", "b"]', r": must have a text or a list of paragraphs"),
    ],
)
def test_invalid_json_raises(tmp_path, line, message):
    file = write(tmp_path / "a.jsonl", f'{{"text": "a"}}\n{line}\n')
    with pytest.raises(ValueError, match=rf"a\.jsonl, line 2{message}"):
        read(file)


def test_json_lines_are_not_changed(tmp_path):
    # The Wikipedia of Hugging Face has these keys. Its texts are not escaped.
    row = {"id": "12", "url": "u", "title": "R&B", "text": "R&B\n\nOne &lt;b&gt;.\nTwo."}
    assert read(write(tmp_path / "wiki_00", json.dumps(row))) == [["R&B", "One &lt;b&gt;.", "Two."]]


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


def test_dump_without_namespaces_raises(tmp_path):
    file = write(tmp_path / "dump", dump(page("Text.", ns="")))
    with pytest.raises(ValueError, match=r"page 1: has no <ns>"):
        read(file)


def test_last_revision_is_used(tmp_path):
    old = "<revision><text>Old.</text></revision>"
    counts = collections.Counter()
    file = write(tmp_path / "dump", dump(page("New.", more=old)))
    assert read(file, counts=counts) == [["New."]]
    assert counts["older_revisions"] == 1


def test_truncated_dump_raises(tmp_path):
    text = dump(page("One."), page("Two."))
    file = write(tmp_path / "dump.xml", text[: text.index("Two")])
    with pytest.raises(ValueError, match=r"dump\.xml, line \d+, page 2: .*truncated XML \("):
        read(file)


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE mediawiki [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>',
        '<!DOCTYPE mediawiki [<!ENTITY a SYSTEM "file:///etc/hostname">]>',
        '<!DOCTYPE mediawiki SYSTEM "http://localhost/a.dtd">',
    ],
)
def test_dtd_raises(tmp_path, doctype):
    file = write(tmp_path / "dump.xml", doctype + dump(page("&a;")))
    with pytest.raises(ValueError, match=r"dump\.xml: XML with a DTD is not supported"):
        read(file)


def test_other_xml_raises(tmp_path):
    file = write(tmp_path / "a.xml", '<?xml version="1.0"?><rss><page>a</page></rss>')
    with pytest.raises(ValueError, match=r"a\.xml: XML must be a MediaWiki dump; its root is <rss"):
        read(file)


def test_real_dumps(shared):
    counts = collections.Counter()
    found = list(corpus.documents(shared / "data/mediawiki/enwiki*.bz2", counts=counts))
    assert counts["documents"] == len(found) == 111
    assert counts["invalid_utf8"] == 0


@pytest.mark.parametrize("text", ['{"text": "One."}\n', dump(page("One."))])
def test_byte_order_mark_before_json_and_xml(tmp_path, text):
    assert read(write(tmp_path / "a", text.encode("utf-8-sig"))) == [["One."]]


def test_carriage_returns_do_not_split_a_paragraph_of_a_list(tmp_path):
    row = {"text": ["One\r\ntwo.", "Three\rfour."]}
    assert read(write(tmp_path / "a.jsonl", json.dumps(row))) == [["One two.", "Three four."]]
