"""The columns that a saved model remembers."""

import argparse

import pytest

from keras_bert import provenance
from keras_bert.cli import reading

WRONG = [
    ("text", {"a": 1}), ("text", None), ("text_pair", 3.0), ("label", 1.5), ("separator", 5),
    ("header", "no"), ("word", None), ("negatives", "a"), ("skip_ragged", 1), ("characters", {}),
]  # fmt: skip


def remembered(folder, columns):
    """Return the columns of a command without options for columns."""
    provenance.write_metrics(folder, {"columns": columns})
    return reading.columns_of(argparse.Namespace(), folder)


def test_the_columns_of_the_training_are_returned(tmp_path):
    columns = {
        **reading.COLUMNS, "text": "3", "header": False, "word": 2, "tag": "b",
        "negatives": ["c"], "score_range": [0, 5.0],
    }  # fmt: skip
    assert remembered(tmp_path, columns) == columns
    defaults = {**reading.COLUMNS, "negatives": []}
    assert remembered(tmp_path, {**reading.COLUMNS, "a later option": 1}) == defaults
    assert remembered(tmp_path, None) == reading.COLUMNS


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_wrong_columns_are_one_clear_error(tmp_path, name, value):
    with pytest.raises(ValueError, match="metrics have wrong columns: .* --text and") as caught:
        remembered(tmp_path, {name: value})
    assert str(caught.value).isprintable()
    options = argparse.Namespace(text="words")
    assert reading.columns_of(options, tmp_path)["text"] == "words"


def test_columns_that_are_no_object(tmp_path):
    for columns in (["a"], "text", 5):
        with pytest.raises(ValueError, match="metrics have wrong columns"):
            remembered(tmp_path, columns)


def test_a_list_of_label_columns_is_remembered(tmp_path):
    data = tmp_path / "a.csv"
    data.write_text("text,toxic,rude\na,1,1\n")
    label = ["toxic", "rude"]
    provenance.write_metrics(tmp_path, {"columns": {"text": "text", "label": label}})
    columns = reading.columns_of(argparse.Namespace(), tmp_path)
    assert reading.read(data, "multi-label", columns, None).label_sets == [("toxic", "rude")]
