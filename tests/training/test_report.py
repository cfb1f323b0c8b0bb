"""The report of a run: the table, the metrics file and the plots, for any labels."""

import json
import re

import matplotlib.figure
import matplotlib.image
import numpy as np
import pytest

import keras_bert
from keras_bert import heads, provenance
from keras_bert.data.examples import Examples
from keras_bert.runtime.terminal import metrics_table
from keras_bert.training import report
from tests import tiny

HISTORY = [
    {"epoch": 1, "loss": 0.9, "accuracy": 0.5, "f1": 0.4, "majority": 0.5},
    {"epoch": 2, "loss": 0.4, "accuracy": 0.8, "f1": 0.7, "majority": 0.5},
]


def test_table():
    metrics = {"f1": 0.25, "examples": 1200, "metric": "f1", "stopped": False, "history": [1]}
    assert metrics_table(metrics) == "f1        0.250\nexamples  1200\nmetric    f1"
    assert metrics_table({}) == ""


def test_metrics_are_written_as_utf8_without_nan(tmp_path):
    metrics = {"rmse": float("inf"), "train": "한국어.tsv", "history": [{"loss": float("nan")}]}
    provenance.write_metrics(tmp_path, metrics)
    text = (tmp_path / provenance.METRICS_FILE).read_text(encoding="utf-8")
    assert json.loads(text) == {**metrics, "rmse": None, "history": [{"loss": None}]}
    assert "한국어" in text


def picture(file):
    """Return an image of more than one color as floats (height, width, 4)."""
    assert file.read_bytes().startswith(b"\x89PNG")
    image = matplotlib.image.imread(file)
    assert np.ptp(image) > 0.5
    return image


def test_curves_of_pretraining(tmp_path, monkeypatch):
    figures, plain = [], report.new_figure
    monkeypatch.setattr(
        report, "new_figure", lambda *size: figures.append(plain(*size)) or figures[0]
    )
    line = {"loss": 2.0, "masked_lm_accuracy": 0.5, "seconds": 9.0, "learning_rate": 1e-4}
    history = [
        {"step": 10, "sequence_length": 16, **line},
        {"step": 20, "sequence_length": 16, **line, "eval_loss": 1.0},
        {"step": 30, "sequence_length": 32, **line},
    ]
    report.draw_curves(tmp_path, history, x="step")
    left, right = figures[0].axes
    steps = {line.get_label(): list(line.get_xdata()) for line in left.get_lines()[:2]}
    assert steps == {"training loss": [10, 20, 30], "held-out loss": [20]}
    assert left.get_lines()[0].get_color() == left.get_lines()[1].get_color()
    assert right.get_lines()[0].get_label() == "masked_lm_accuracy"
    for axes in (left, right):  # a vertical line between the two phases
        assert list(axes.get_lines()[-1].get_xdata()) == [20, 20]
    assert len(right.get_lines()) == 2


def answer_with(monkeypatch, answers):
    monkeypatch.setattr(report.KerasPredictor, "answers", lambda *args, **options: answers)


KOREAN = ["긍정", "부정"]
STRANGE = ["naïve", "日本", "😀"]
FORMULAS = ["$x^{$", "$", "WP$"]


@pytest.mark.parametrize("labels", [FORMULAS, KOREAN, STRANGE])
@pytest.mark.parametrize("fonts", ["this machine's", "none"])
def test_confusion_of_a_classifier(tmp_path, monkeypatch, capsys, labels, fonts):
    """Characters that no font has cause no warning, which would fail the test."""
    if fonts == "none":
        monkeypatch.setattr(report, "font_families", lambda: ["DejaVu Sans"])
        monkeypatch.setattr(report, "drawable", lambda text: re.sub("[^\\x00-\\xff]", "?", text))
    model = heads.classifier(tiny.encoder(num_hidden_layers=1), labels=labels)
    examples = Examples(["a"] * 6, labels=(labels * 3)[:6])
    answer_with(monkeypatch, np.eye(len(labels))[[0] * 6])
    assert report.draw_confusion(tmp_path, model, examples, 32)
    if fonts == "none" and labels == KOREAN:
        assert "0: 긍정, 1: 부정" in capsys.readouterr().out
    image = picture(tmp_path / report.CONFUSION_FILE)
    right = np.eye(len(labels))[[labels.index(label) for label in examples.labels]]
    answer_with(monkeypatch, right)
    assert report.draw_confusion(tmp_path, model, examples, 32)
    assert not np.array_equal(picture(tmp_path / report.CONFUSION_FILE), image)


@pytest.mark.parametrize(("label", "name"), [("yes", "yes"), ("\U0010ffff", "1")])
def test_labels_of_a_confusion_matrix(tmp_path, monkeypatch, label, name):
    figure = report.new_figure(4, 4)
    monkeypatch.setattr(report, "new_figure", lambda *size: figure)
    model = heads.classifier(tiny.encoder(num_hidden_layers=1), labels=["no", label])
    answer_with(monkeypatch, np.eye(2)[:1])
    report.draw_confusion(tmp_path, model, Examples(["a"], labels=["no"]), 32)
    ticks = figure.axes[0].get_xticklabels()
    assert ticks[1].get_text() == name
    assert ticks[1].get_fontfamily() == report.font_families()  # with a font for Hangul, if any
    assert ("index of the label" in figure.axes[0].get_xlabel()) == (name != label)


def test_confusion_of_a_tagger(tmp_path, monkeypatch):
    model = heads.tagger(tiny.encoder(num_hidden_layers=1), labels=["O", "B-work", "B-mood"])
    answers = [[("O", 0.5)] * len(row) for row in tiny.tagged().tags]
    examples = tiny.tagged()
    examples.tags[:] = [["O"] * len(row) for row in examples.tags]
    answer_with(monkeypatch, answers)
    assert report.draw_confusion(tmp_path, model, examples, 32)
    picture(tmp_path / report.CONFUSION_FILE)


def test_some_models_have_no_confusion_matrix(tmp_path):
    encoder = tiny.encoder(num_hidden_layers=1)
    for model in (
        heads.regressor(encoder),
        heads.classifier(encoder, 2, multi_label=True),
        heads.span_selector(encoder),
        heads.multiple_choice(encoder),
        heads.classifier(encoder, 61),
    ):
        assert not report.draw_confusion(tmp_path, model, None, 32)
    assert list(tmp_path.iterdir()) == []


def test_pictures_from_python(tmp_path):
    metrics = {"accuracy": 0.8, "history": HISTORY}
    figure = keras_bert.plot_curves(metrics)
    assert len(figure.axes[1].lines) == 3  # accuracy, f1 and majority
    figure.savefig(tmp_path / "curves.png")
    with pytest.raises(ValueError, match="the history has no epoch"):
        keras_bert.plot_curves([])
    model = heads.classifier(tiny.encoder(), labels=["bad", "good"])
    data = tiny.examples(tiny.ROWS[:4])
    figure = keras_bert.plot_confusion(model, data)
    counts = [int(text.get_text()) for text in figure.axes[0].texts]
    chosen = [answer["label"] for answer in keras_bert.pipeline(model)(data.texts)]
    pairs = list(zip(data.labels, chosen, strict=True))
    names = ("bad", "good")
    expected = [pairs.count((right, label)) for right in names for label in names]
    assert counts == expected
    with pytest.raises(ValueError, match="needs a classifier with one label per text"):
        keras_bert.plot_confusion(heads.regressor(tiny.encoder()), data)


def test_thresholds_are_not_plotted():
    figure = report.plot_curves([{"epoch": 1, "loss": 1.0, "f1": 0.5, "f1_threshold": 80.0}])
    assert [line.get_label() for line in figure.axes[1].lines] == ["f1"]
