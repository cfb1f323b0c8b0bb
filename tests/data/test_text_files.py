"""Tests of reading text files: limits, encoding, lines, long CSV fields."""

import gzip

import pytest

import keras_bert
from keras_bert.data import text_files
from tests.tiny import write_file


def test_byte_order_mark_is_skipped(tmp_path):
    file = write_file(tmp_path / "a.tsv", "\ufefftext\n")
    with text_files.open_utf8(file) as lines:
        assert list(lines) == ["text\n"]


def test_lines_are_numbered():
    lines = text_files.numbered_lines("a.tsv", ["a\tb\r\n", "c"])
    assert list(lines) == [(1, "a\tb"), (2, "c")]


def rows_of(*lines):
    return list(text_files.json_rows("a.json", iter(lines)))


def test_json_rows():
    rows = [{"text": "a"}, {"text": "b"}]
    lines = rows_of('{"text": "a"}', "\n", '{"text": "b"}')
    assert lines == [("line 1", rows[0]), ("line 3", rows[1])]
    items = rows_of("\n", ' [{"text": "a"},\n', '{"text":\n', '"b"}]\n')
    assert items == [("item 1", rows[0]), ("item 2", rows[1])]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"score": NaN}'], r"a\.json, line 1 is not JSON \(NaN"),
        (['{"text": "a", "text": "b"}'], "line 1 is not JSON .*the key 'text' twice"),
        (["[1]"], "item 1: must be a JSON object"),
        (["{\n", '"a": 1\n', "}"], "line 1 is not JSON .*Write an object a line"),
    ],
)
def test_json_rows_that_are_not_valid(lines, message):
    with pytest.raises(ValueError, match=message):
        rows_of(*lines)


@pytest.mark.parametrize(
    ("encoding", "text", "advice"),
    [
        ("utf-16", "text\tlabel\nGo\ta\n", "iconv -f UTF-16 .*encoding='utf-16'"),
        ("cp949", "text\n정말 좋은 영화였다\n", "line 2: .*iconv -f CP949.*encoding='cp949'"),
    ],
)
def test_files_in_other_encodings_name_the_conversion(tmp_path, encoding, text, advice):
    file = write_file(tmp_path / "a.tsv", text.encode(encoding))
    with pytest.raises(ValueError, match=advice), text_files.open_utf8(file) as lines:
        list(lines)


@pytest.mark.parametrize(
    ("name", "content", "function"),
    [
        ("a.csv.gz", gzip.compress(b"text,label\na,x\n", mtime=0), "read_csv"),
        ("a.parquet", b"PAR1\x00\x00PAR1", "read_parquet"),
        ("a.xlsx", b"PK\x03\x04rest", "read_excel"),
        ("a.csv", b"PK\x03\x04rest", "read_excel"),
    ],
)
@pytest.mark.parametrize("task", ["classification", "tagging", "question_answering"])
def test_files_without_text_name_the_function_of_pandas(tmp_path, name, content, function, task):
    file = write_file(tmp_path / name, content)
    with pytest.raises(ValueError, match=rf"pandas\.{function}\(path\)"):
        keras_bert.read(file, task)
