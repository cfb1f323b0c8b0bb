"""Tests of reading text files: limits, encoding, lines, long CSV fields."""

import csv

import pytest

from keras_bert.data import text_files
from tests.tiny import write_file


def test_limit_must_be_positive():
    text_files.check_limit(None)
    text_files.check_limit(1)
    with pytest.raises(
        ValueError, match=r"limit \(--limit\) must be an integer of at least 1; received 0"
    ):
        text_files.check_limit(0)


def test_byte_order_mark_is_skipped(tmp_path):
    file = write_file(tmp_path / "a.tsv", "\ufefftext\n")
    with text_files.open_utf8(file) as lines:
        assert list(lines) == ["text\n"]


def test_lines_are_numbered():
    lines = text_files.numbered_lines("a.tsv", ["a\tb\r\n", "c"])
    assert list(lines) == [(1, "a\tb"), (2, "c")]


def test_json_lines():
    lines = text_files.json_lines("a.jsonl", ['{"text": "a"}', "\n", '{"text": "b"}'])
    assert list(lines) == [(1, {"text": "a"}), (3, {"text": "b"})]
    with pytest.raises(ValueError, match=r"a\.jsonl, line 1 is not JSON \(NaN"):
        list(text_files.json_lines("a.jsonl", ['{"score": NaN}']))


def test_csv_fields_may_be_long():
    text_files.allow_long_csv_fields()
    assert csv.field_size_limit() > 128 * 2**10
