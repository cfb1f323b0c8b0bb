"""Choices: their files, their batches, and what is refused."""

import numpy as np
import pytest

from keras_bert import heads
from keras_bert.finetuning import choices
from keras_bert.finetuning.choices import Choices
from tests import tiny

SWAG = "id,sent1,sent2,ending0,ending1,label\n1,A film.,It is,good,bad,0\n2,This,so,bad,good,1\n"


def test_swag_and_json_lines(tmp_path):
    (tmp_path / "a.csv").write_text(SWAG)
    found = choices.read(tmp_path / "a.csv")
    assert found.texts == ["A film.", "This"]
    assert found.choices == [["It is good", "It is bad"], ["so bad", "so good"]]
    assert found.labels == [0, 1]
    (tmp_path / "a.jsonl").write_text('{"text": "a", "choices": ["b", "c"], "label": 1}\n\n')
    assert choices.read(tmp_path / "a.jsonl").labels == [1]
    assert choices.read(tmp_path / "a.jsonl", labelled=False).labels is None
    assert len(choices.read(tmp_path / "a.csv", limit=1)) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "{", r"a\.jsonl, line 1: is not JSON"),
        ("a.jsonl", "[1]", "line 1: must be a JSON object with a list `choices`"),
        ("a.jsonl", '{"text": "a", "choices": ["b", "c"]}', "label must be a number .* None"),
        ("a.jsonl", '{"text": "a", "choices": ["b"], "label": 0}', "must have 2 choices"),
        ("a.jsonl", '{"text": "a", "choices": ["b", "c"], "label": 2}', "from 0 to 1; received 2"),
        (
            "a.jsonl",
            '{"text": 1, "choices": ["b", "c"], "label": 0}',
            "must be strings; received 1",
        ),
        ("a.csv", "sent1,label\na,0\n", r"a\.csv, row 2: must have the columns sent1, sent2"),
        ("a.csv", SWAG + "3,a\n", r"a\.csv, row 4: must have the columns"),
        ("a.csv", "", "holds no rows"),
        ("a.csv", b"\xff", "must be UTF-8; received the byte 0xff"),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        choices.read(tmp_path / name)


def test_each_choice_is_a_pair_with_the_text():
    model = heads.multiple_choice(tiny.encoder())
    examples = Choices(["good", "so"], [["bad", "film"], ["a a a", "is"]], [1, 0])
    encoded = choices.encode(model, examples, 16)
    assert encoded.lengths.tolist() == [5, 7]
    inputs, targets, weights = encoded.batch([1], 7)
    assert inputs["input_word_ids"].tolist() == [[[2, 14, 3, 8, 8, 8, 3], [2, 14, 3, 13, 3, 0, 0]]]
    assert inputs["input_type_ids"].tolist() == [[[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0]]]
    assert (targets.tolist(), weights.tolist()) == ([0], [1.0])


def test_answers_and_their_score():
    model = heads.multiple_choice(tiny.encoder())
    examples = Choices(["a", "a", "a"], [["b", "c"]] * 3, [1, 1, 0])
    answers = choices.decode(model, examples, None, [np.array([0.0, 1.0])] * 3)
    assert choices.score(model, examples, answers) == {"accuracy": 2 / 3, "majority": 2 / 3}
    assert list(choices.lines(model, examples, answers))[0] == "1\t0.7311"
    assert choices.header(model).count("\t") == 1
