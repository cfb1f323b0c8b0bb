"""Tests of multiple-choice data and of its files: JSON Lines and SWAG's CSV."""

import csv
import json

import pytest

from keras_bert.tasks.multiple_choice import data as swag
from keras_bert.tasks.multiple_choice.data import Choices
from tests.tiny import write_file


def test_options_of_read(tmp_path):
    jsonl = write_file(tmp_path / "a", f"{json.dumps(GOOD)}\n\n{json.dumps(GOOD)}\n\n")
    csv_file = write_file(tmp_path / "a.txt", ",sent1,sent2,ending0,ending1,label\r\n0,a,b,c,d,1")
    assert swag.read(jsonl).choices == [["b", "c"]] * 2
    assert len(swag.read(jsonl, limit=1)) == 1
    assert swag.read(jsonl, labeled=False).labels is None
    assert swag.read(csv_file, format="csv").choices == [["b c", "b d"]]
    with pytest.raises(ValueError, match="limit .* at least 1; received 0"):
        swag.read(jsonl, limit=0)


GOOD = {"text": "a", "choices": ["b", "c"], "label": 0}
HEADER = "sent1,sent2,ending0,ending1,label\n"


def changed(**values):
    return json.dumps(GOOD | values)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "{", r"a\.jsonl, line 1 is not JSON"),
        ("a.jsonl", '{"text": "a"}', "line 1: the choices must be a list; received None"),
        ("a.jsonl", "", "contains no rows"),
        ("a.jsonl", "\n\n" + changed(label=2), "line 3: the label must be 0 to 1"),
        ("a.jsonl", changed() + "\n" + changed(choices=["b", "c", "d"]), "line 2: the choices"),
        ("a.jsonl", changed(label="x"), "line 1: the label .* received 'x'"),
        ("a.jsonl", changed(choices={"text": ["b"]}), "must be a list, such as .*'text'"),
        ("a.jsonl", changed(choices=["b", 3]), "must be strings; received 3"),
        ("a.csv", "sent1,sent2,label\na,b,0\n", r"a\.csv: must have the columns sent1, sent2,"),
        ("a.csv", HEADER + "a,b,c\n", "line 2: must have 5 fields"),
        ("a.csv", HEADER + "a,b,c,d,\n", r"line 2: the label .* ''"),
        ("a.csv", HEADER, "contains no rows"),
        ("a.csv", HEADER + '"a,b', r"a\.csv, after line 1: unexpected end"),
        ("a.csv", HEADER.replace("1,l", "2,l") + "a,b,c,d,0\n", "ending1, ... without a gap"),
        ("a.csv", HEADER + '\n"a\nb",b,c,d,0\na,b,c,d,e,0\n', "line 5: must have 5 fields"),
        ("a.tsv", "text\tchoices\n", r"a\.tsv: format .* csv or jsonl; received 'tsv'"),
    ],
)
def test_errors_name_file_and_line(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        swag.read(write_file(tmp_path / name, content))
    assert str(tmp_path / name) in str(caught.value)


def test_endings_are_sorted_by_number(tmp_path):
    numbers = {f"ending{number}": str(number) for number in range(11)}
    row = {"label": "1", "sent1": "a", "sent2": "b", **numbers}
    names = sorted(row, reverse=True)  # ending9, ..., ending10, ending1, ending0
    file = write_file(tmp_path / "a.csv", ",".join(names) + "\n" + ",".join(row[n] for n in names))
    found = swag.read(file)
    assert found.choices == [[f"b {number}" for number in range(11)]]
    assert (found.texts, found.labels) == (["a"], [1])


def test_long_csv_fields(tmp_path):
    limit = csv.field_size_limit(131_072)  # the default of a new process
    try:
        row = f"sent1,sent2,ending0,ending1,label\n{'a' * 200_000},b,c,d,1\n"
        assert len(swag.read(write_file(tmp_path / "a.csv", row)).texts[0]) == 200_000
    finally:
        csv.field_size_limit(limit)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((["a"], []), "choices must have the same length as texts, 1; received 0"),
        ((["a"], [["b", "c"]], [0, 1]), "labels must have the same length as texts, 1; received 2"),
        ((["a", "b"], [["c", "d"], ["e"]]), "item 2: the choices must be a list"),
        ((["a"], [["b", "c"]], [-1]), "the label must be 0 to 1; received -1"),
        ((["a"], ["bc"]), "item 1: the choices must be a list .*; received one string"),
        ((["a"], [{"b", "c"}]), "item 1: the choices must be a list, because a set has no order"),
    ],
)
def test_malformed_columns_are_rejected(columns, message):
    with pytest.raises(ValueError, match=message):
        Choices(*columns)


def test_file_is_read_in_parts(tmp_path):
    file = write_file(tmp_path / "a.jsonl", (json.dumps(GOOD) + "\n") * 3)
    parts = list(swag.read_in_parts(file, size=2))
    assert [part.locations for part in parts] == [["line 1", "line 2"], ["line 3"]]
