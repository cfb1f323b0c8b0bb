"""Choices: JSON Lines and SWAG's CSV, pairs of text and continuation, answers."""

import csv
import json

import numpy as np
import pytest

from keras_bert import heads
from keras_bert.tasks import multiple_choice
from keras_bert.tasks.multiple_choice import Choices
from tests import tiny


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_formats_agree(tmp_path):
    rows = [("She sat", ["She sang.", "She, too, ran."], 1), ("He", ["He a", "He b"], 0)]
    keys = ("text", "choices", "label")
    jsonl = write(
        tmp_path / "a.jsonl",
        "\n".join(json.dumps(dict(zip(keys, row, strict=True))) for row in rows) + "\n\n",
    )
    swag = write(
        tmp_path / "a.csv",
        ",video-id,sent1,sent2,gold-source,ending0,ending1,label\r\n"
        '0,v,She sat,She,gold,sang.,", too, ran.",1\r\n'
        "1,v,He,He,gold,a,b,0\r\n".replace('", too', '"too'),
    )
    found = multiple_choice.read(jsonl)
    assert (found.texts, found.labels) == (["She sat", "He"], [1, 0])
    assert found.choices == [row[1] for row in rows]
    other = multiple_choice.read(swag)
    assert other.choices == [["She sang.", "She too, ran."], ["He a", "He b"]]
    assert (other.texts, other.labels, other.source) == (found.texts, [1, 0], str(swag))
    assert len(multiple_choice.read(jsonl, limit=1)) == 1
    assert multiple_choice.read(jsonl, labelled=False).labels is None


GOOD = {"text": "a", "choices": ["b", "c"], "label": 0}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "{", r"a\.jsonl, line 1: is not JSON"),
        ("a.jsonl", '{"text": "a"}', "line 1: must be a JSON object with a list `choices`"),
        ("a.jsonl", "", "holds no rows"),
        ("a.jsonl", b'{"text": "\xff"}', "line 1: must be UTF-8; received the byte 0xff"),
        (
            "a.jsonl",
            json.dumps(GOOD | {"label": 2}),
            "line 1: the label must be a number from 0 to 1",
        ),
        ("a.jsonl", "\n\n" + json.dumps(GOOD | {"label": 2}), "line 3: the label must be a number"),
        (
            "a.jsonl",
            json.dumps(GOOD) + "\n" + json.dumps(GOOD | {"choices": ["b", "c", "d"]}),
            "line 2: must have 2 choices, as the first; received 3",
        ),
        ("a.jsonl", json.dumps(GOOD | {"label": "x"}), "line 1: the label .* received 'x'"),
        ("a.jsonl", json.dumps(GOOD | {"label": None}), "line 1: the label .* received None"),
        ("a.jsonl", json.dumps(GOOD | {"choices": ["b"]}), "must have 2 choices, .* received 1"),
        ("a.jsonl", json.dumps(GOOD | {"choices": ["b", 3]}), "must be strings; received 3"),
        ("a.jsonl", json.dumps(GOOD | {"text": None}), "must be strings; received None"),
        (
            "a.csv",
            "sent1,sent2,label\na,b,0\n",
            r"a\.csv: must have the columns sent1, sent2,",
        ),
        ("a.csv", "sent1,sent2,ending0,ending1,label\na,b,c\n", r"line 2: must have 5 fields, as"),
        ("a.csv", "sent1,sent2,ending0,ending1,label\na,b,c,d,\n", r"line 2: the label .* ''"),
        ("a.csv", "sent1,sent2,ending0,ending1,label\n", "holds no rows"),
        ("a.csv", 'sent1,sent2,ending0\n"a,b', r"a\.csv, after line 1: unexpected end"),
        ("a.csv", "sent1,sent2,ending0,ending2,label\na,b,c,d,0\n", "ending1, ... without a gap"),
        ("a.csv", "sent1,sent2,ending0,ending0,label\na,b,c,d,0\n", "has two columns 'ending0'"),
        (
            "a.csv",
            'sent1,sent2,ending0,ending1,label\n\n"a\nb",b,c,d,0\na,b,c,d,e,0\n',
            "line 5: must have 5 fields, as the first row has",
        ),
        (
            "a.tsv",
            "text\tchoices\n",
            r"a\.tsv: the format must be csv or jsonl .* 'tsv'",
        ),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        multiple_choice.read(write(tmp_path / name, content))
    assert str(tmp_path / name) in str(caught.value)


def test_endings_stand_where_their_numbers_say(tmp_path):
    numbers = {f"ending{number}": str(number) for number in range(11)}
    row = {"label": "1", "sent1": "a", "sent2": "b", **numbers}
    names = sorted(row, reverse=True)  # ending9, ..., ending10, ending1, ending0
    file = write(tmp_path / "a.csv", ",".join(names) + "\n" + ",".join(row[n] for n in names))
    found = multiple_choice.read(file)
    assert found.choices == [[f"b {number}" for number in range(11)]]
    assert (found.texts, found.labels) == (["a"], [1])


def test_the_format_may_be_given(tmp_path):
    jsonl = write(tmp_path / "a", json.dumps(GOOD))
    swag = write(tmp_path / "a.txt", "sent1,sent2,ending0,ending1,label\na,b,c,d,1\n")
    assert multiple_choice.read(jsonl).choices == [["b", "c"]]
    assert multiple_choice.read(swag, format="csv").choices == [["b c", "b d"]]
    with pytest.raises(ValueError, match="limit .* must be at least 1; received 0"):
        multiple_choice.read(jsonl, limit=0)


def test_long_fields(tmp_path):
    limit = csv.field_size_limit(131_072)  # what it is in a fresh process
    try:
        row = f"sent1,sent2,ending0,ending1,label\n{'a' * 200_000},b,c,d,1\n"
        assert len(multiple_choice.read(write(tmp_path / "a.csv", row)).texts[0]) == 200_000
    finally:
        csv.field_size_limit(limit)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((["a"], []), "choices must be as many as the texts, 1; received 0"),
        ((["a"], [["b", "c"]], [0, 1]), "labels must be as many as the texts, 1; received 2"),
        ((["a", "b"], [["c", "d"], ["e"]]), "item 2: must have 2 choices, as the first"),
        ((["a"], [["b", "c"]], [-1]), "the label must be a number from 0 to 1; received -1"),
        ((["a"], [["b", "c"]], ["0"]), "the label must be a number from 0 to 1; received '0'"),
        ((["a"], ["bc"]), "item 1: the choices must be a list; received 'bc'"),
    ],
)
def test_bad_columns_are_an_error(columns, message):
    with pytest.raises(ValueError, match=message):
        Choices(*columns)


def test_labels_may_be_an_array():
    examples = Choices(["a", "b"], [["c", "d"]] * 2, np.array([1, 0]))
    assert list(examples.labels) == [1, 0]


def test_each_choice_is_a_pair():
    model = heads.multiple_choice(tiny.encoder(num_hidden_layers=1))
    examples = Choices(["good", "so"], [["bad", "a film"], ["is", "a a a a a a"]], [1, 0])
    encoded = multiple_choice.encode(model, examples, 8)
    assert encoded.lengths.tolist() == [6, 8]
    assert (encoded.truncated, encoded.without_pieces) == (1, 0)
    inputs, targets, weights = encoded.batch([1, 0], 8)
    assert inputs["input_word_ids"].tolist() == [
        [[2, 14, 3, 13, 3, 0, 0, 0], [2, 14, 3, 8, 8, 8, 8, 3]],
        [[2, 5, 3, 6, 3, 0, 0, 0], [2, 5, 3, 8, 7, 3, 0, 0]],
    ]
    assert (targets.tolist(), weights.tolist()) == ([0, 1], [1, 1])
    unlabelled = Choices(examples.texts, examples.choices)
    assert multiple_choice.encode(model, unlabelled, 8).batch([0], 8)[1:] == (None, None)
    with pytest.raises(ValueError, match="has no labels to learn from"):
        multiple_choice.build(tiny.encoder(num_hidden_layers=1), unlabelled)


def test_empty_texts_and_continuations_are_counted():
    model = heads.multiple_choice(tiny.encoder(num_hidden_layers=1))
    examples = Choices(["", "so"], [["bad", "good"], ["\u200b", "good"]])
    assert multiple_choice.encode(model, examples, 8).without_pieces == 2


def test_answers():
    examples = Choices(["a", "b", "c"], [["d", "e"]] * 3, [1, 0, 0])
    answers = multiple_choice.decode(None, examples, None, [[0, 2], [0, 2], [4, 2]])
    assert multiple_choice.score(None, examples, answers) == {"accuracy": 2 / 3, "majority": 2 / 3}
    assert multiple_choice.header(None) == "choice\tscore"
    assert list(multiple_choice.lines(None, examples, answers)) == ["1\t0.8808"] * 2 + ["0\t0.8808"]
