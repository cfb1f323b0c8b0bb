"""What is left of a run: files that can be opened, whatever the labels are."""

import json

import numpy as np
import pytest

from keras_bert import heads
from keras_bert.finetuning import predict, report, tasks
from keras_bert.finetuning.data import Examples
from tests import tiny


def is_png(file):
    return file.read_bytes().startswith(b"\x89PNG") and file.stat().st_size > 1000


def test_curves(tmp_path):
    history = [
        {"epoch": 1, "loss": 0.7, "f1": 0.1, "majority": 0.5},
        {"epoch": 2, "loss": 0.5, "f1": 0.4, "majority": 0.5},
    ]
    report.draw_curves(tmp_path, history)
    assert is_png(tmp_path / report.CURVES_FILE)
    report.draw_curves(tmp_path, [{"epoch": 1, "loss": 0.7}])  # without a dev set


@pytest.mark.parametrize("labels", [["bad", "good"], ["나쁨", "좋음"]])
def test_a_confusion_matrix(tmp_path, labels):
    """In Hangul too: on a machine without such a font numbers stand in, and nothing warns."""
    model = heads.classifier(tiny.encoder(), labels=labels)
    examples = Examples(["a", "b", "c"], labels=[labels[0], labels[1], labels[1]])
    assert report.draw_confusion(tmp_path, model, examples, np.eye(2)[[0, 0, 1]])
    assert is_png(tmp_path / report.CONFUSION_FILE)


def test_a_confusion_matrix_of_tags(tmp_path):
    examples = tiny.tagged()
    model = tasks.for_data(examples).build(tiny.encoder(), examples)
    assert report.draw_confusion(tmp_path, model, examples, predict.answers(model, examples))


def test_no_picture_where_there_is_none(tmp_path):
    model = heads.regressor(tiny.encoder())
    assert not report.draw_confusion(tmp_path, model, Examples(["a"], scores=[1]), np.ones(1))
    many = heads.classifier(tiny.encoder(), 61)
    assert not report.draw_confusion(tmp_path, many, None, None)
    assert list(tmp_path.iterdir()) == []


def test_metrics_are_json_with_any_text(tmp_path):
    metrics = {"dev": "한국어.tsv", "accuracy": 0.5, "history": [{"epoch": 1}]}
    report.write_metrics(tmp_path, metrics)
    text = (tmp_path / report.METRICS_FILE).read_text(encoding="utf-8")
    assert json.loads(text) == metrics and "한국어" in text
    assert [file.name for file in tmp_path.iterdir()] == [report.METRICS_FILE]


def test_a_table_shows_what_can_be_read():
    text = report.table({"accuracy": 0.5, "examples": 3, "history": [1], "stopped": False})
    assert text.splitlines() == ["accuracy  0.500", "examples  3"]
