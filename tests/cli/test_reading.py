"""The columns that a saved model remembers."""

import argparse

import pytest

import keras_bert
from keras_bert import heads, provenance
from keras_bert.cli import reading
from tests import tiny


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


@pytest.mark.parametrize("columns", [{"text": {"a": 1}}, {"text_pair": 3.0}, ["a"], "text", 5])
def test_wrong_columns_are_one_clear_error(tmp_path, columns):
    with pytest.raises(ValueError, match="metrics have wrong columns: .* --text and") as caught:
        remembered(tmp_path, columns)
    assert str(caught.value).isprintable()
    options = argparse.Namespace(text="words")
    assert reading.columns_of(options, tmp_path)["text"] == "words"


def test_columns_of_the_command_line_replace_only_themselves(tmp_path):
    provenance.write_metrics(tmp_path, {"columns": {"text": "a", "label": "b", "header": False}})
    options = argparse.Namespace(text="words", header=True)
    columns = reading.columns_of(options, tmp_path)
    assert (columns["text"], columns["label"], columns["header"]) == ("words", "b", True)


def test_a_text_file_without_columns_ignores_those_of_the_training(tmp_path):
    provenance.write_metrics(tmp_path, {"columns": {"text": "a"}})
    options = argparse.Namespace(text=None, format=None, model=tmp_path)
    for name, content, column in (
        ("lines.txt", "so good\n", "text"), ("table.txt", "a\tb\n1\t2\n", "a"),
    ):  # fmt: skip
        (tmp_path / name).write_text(content)
        assert reading.text_options(options, tmp_path / name)["text"] == column


def test_a_keras_file_has_the_columns_of_its_training(tmp_path):
    model = heads.classifier(tiny.encoder(num_hidden_layers=1), 2)
    provenance.remember_metrics(model, {"columns": {"text": "words"}})
    keras_bert.save(model, tmp_path / "model.keras")
    columns = reading.columns_of(argparse.Namespace(), tmp_path / "model.keras")
    assert columns["text"] == "words"


def test_a_list_of_label_columns_is_remembered(tmp_path):
    data = tmp_path / "a.csv"
    data.write_text("text,toxic,rude\na,1,1\n")
    label = ["toxic", "rude"]
    provenance.write_metrics(tmp_path, {"columns": {"text": "text", "label": label}})
    columns = reading.columns_of(argparse.Namespace(), tmp_path)
    assert reading.read(data, "multi_label", columns, None).label_sets == [("toxic", "rude")]
