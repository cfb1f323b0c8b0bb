"""The model card and the index, read as a reader of Markdown and of Python reads them."""

import re

import keras
import markdown_it
import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from keras_bert import heads
from keras_bert.exporting import model_card, signatures
from tests import served, tiny
from tests.conftest import ROOT

TEXT = tf.TensorSpec([None], tf.string, name="text")
SCORE = tf.TensorSpec([None], tf.float32, name="score")
PLAIN = {"serving_default": ([TEXT], [SCORE])}
LABELS = [
    "좋음",
    "a|b",
    "`c`",
    "<script>alert(1)</script>",
    "[x](y)",
    "*_~~",
    "\\",
    "&amp;",
    "$1$ #",
]


def cells(page, title):
    """The rows of the table under a title, as text that a reader sees."""
    tokens = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(page)
    rows, here = [], False
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            here = tokens[index + 1].content.replace("`", "") == title
        if here and token.type == "tr_open":
            rows.append([])
        if here and token.type == "inline" and tokens[index - 1].type in ("td_open", "th_open"):
            kinds = {child.type for child in token.children}
            assert kinds <= {"text", "code_inline", "link_open", "link_close", "text_special"}
            rows[-1].append("".join(child.content for child in token.children))
    return rows[1:]


def render(name="stars", about=None, found=PLAIN):
    return model_card.render(name, 1, about or model_card.About("regressor"), found, 10**6)


def test_labels_stand_in_the_table_as_they_are():
    page = render(about=model_card.About("classifier", labels=LABELS))
    assert cells(page, "Labels") == [[str(i), label] for i, label in enumerate(LABELS)]


def test_labels_that_no_table_can_show():
    labels = ["", "  ", "a\nb", "a\u2028b", "\u202egood", "x" * 5000, "\x00", "\ud800"]
    page = render(about=model_card.About("classifier", labels=labels))
    shown = [label for _, label in cells(page, "Labels")]
    assert shown[:5] == ["(empty)", "(spaces)", "a\\nb", "a\\u2028b", "\\u202egood"]
    assert shown[5] == "x" * 100 + "…" and shown[6:] == ["\\x00", "\\ud800"]
    assert page.encode()


def test_thousands_of_labels_are_counted():
    page = render(about=model_card.About("classifier", labels=[str(n) for n in range(20_000)]))
    assert len(page) < 5000
    assert len(cells(page, "Labels")) == 60 and "and 19,940 more" in page


def test_metrics_are_numbers_and_names_without_paths():
    metrics = {
        "model": "/home/me/secret/bert", "train": "C:\\me\\train.tsv", "dev": "hf:some/data",
        "accuracy": 0.912345, "f1": float("nan"), "best_epoch": 2, "history": [{"loss": 1}],
        "train_seconds": 3.0, "a|b": "x|y",
    }  # fmt: skip
    assert cells(render(about=model_card.About("classifier", metrics=metrics)), "Metrics") == [
        ["started from", "bert"], ["trained on", "train.tsv"], ["scored on", "hf:some/data"],
        ["accuracy", "0.9123"], ["f1", "nan"], ["best_epoch", "2"], ["a|b", "x|y"],
    ]  # fmt: skip
    assert "None are known" in render()


def test_metrics_may_be_numbers_of_numpy():
    metrics = {"f1": np.float32(0.912345), "steps": np.int64(7)}
    page = render(about=model_card.About("classifier", metrics=metrics))
    assert cells(page, "Metrics") == [["f1", "0.9123"], ["steps", "7"]]


def test_names_that_python_cannot_write_as_arguments(tmp_path, monkeypatch):
    specs = [tf.TensorSpec([None], tf.string, name=name) for name in ("text-1", "2.b")]
    serve = tf.function(
        lambda *values: {"both": tf.strings.join(values)}, input_signature=specs, autograph=False
    )
    served.save(tf.Module(), tmp_path / "1", serve)
    found = model_card.signatures(tmp_path / "1")
    [code] = re.findall(
        r"```python\n(.*?)```", model_card.render("m", 1, model_card.About(), found, 0), re.S
    )
    monkeypatch.chdir(tmp_path)
    values: dict = {}
    exec(code.replace("\nserved(", "\nanswer = served("), values)
    assert values["answer"]["both"].numpy().tolist() == [b"your textyour text"]


def test_licences():
    known = model_card.About("classifier", license="Apache-2.0", metrics={"model": "minilm"})
    assert "started from (minilm): Apache-2.0." in render(about=known)
    assert "started from: not known" in render()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an index, in which models were exported."""
    folder = tmp_path_factory.mktemp("models")
    page = f"# Mine\n\n{model_card.INDEX_BEGIN}\nold\n{model_card.INDEX_END}\n\nThe end.\n"
    (folder / "README.md").write_text(page)
    encoder = tiny.encoder(num_hidden_layers=1)
    keras_bert.export(served.HEADS["tagger"](encoder), folder / "tagger")
    labels = ["좋음", "a|b"]
    classifier = heads.classifier(encoder, labels=labels, pairs=True)
    keras_bert.export(
        classifier, folder / "한국 {}", metrics={"accuracy": 0.5}, license="Apache-2.0"
    )
    keras_bert.export(encoder, folder / "pair", license="MIT")
    text = keras.Input(shape=(), dtype="string", name="text")
    stars = keras.Input(shape=(3,), name="stars")
    logits = keras.layers.Dense(2, name="answer")(stars)
    keras_bert.export(keras.Model([text, stars], logits), folder / "own")
    return folder


def read(folder):
    return (folder / model_card.CARD_FILE).read_text(encoding="utf-8")


MODELS = ["tagger", "한국 {}", "pair/preprocess", "pair/encoder", "own"]


@pytest.mark.parametrize("name", MODELS)
def test_the_card_of_an_export_says_what_the_savedmodel_has(folder, name, monkeypatch):
    monkeypatch.chdir(folder / name)
    page = read(folder / name)
    assert page.startswith(f"# {name.split('/')[-1]}\n")
    # Its lines of Python run in its folder.
    [code] = re.findall(r"```python\n(.*?)```", page, re.S)
    values: dict = {}
    exec(code.replace("\nserved(", "\nanswer = served("), values)
    assert all(value.shape[0] == 1 for value in values["answer"].values())
    served_as = values["served"].structured_input_signature[1] | values["answer"]
    rows = cells(page, "Signature serving_default")
    assert {row[1]: row[2] for row in rows} == {k: v.dtype.name for k, v in served_as.items()}
    for row in [*rows, *cells(page, "Signature ids")]:
        # A blank meaning is a name that somebody forgot in the table of meanings.
        assert len(row) == (4 if name == "own" else 5) and all(row)


@pytest.mark.parametrize("task", [*signatures.HEADS, "label_sets"])
def test_every_head_has_its_sentence_and_its_score_a_meaning(task):
    page = render(about=model_card.About(task))
    assert model_card._TASKS[task] in page
    assert all(row[-1] for row in cells(page, "Signature serving_default"))


def test_what_a_card_knows_of_the_model(folder):
    page = read(folder / "한국 {}")
    rows = dict(cells(page, "Model"))
    assert rows["layers"] == "1" and rows["width"] == "8" and rows["vocabulary"] == "18 pieces"
    assert rows["longest input"].startswith("32 pieces") and rows["lower case"] == "yes"
    assert cells(page, "Labels") == [["0", "좋음"], ["1", "a|b"]]
    assert cells(page, "Metrics") == [["accuracy", "0.5"]]
    assert "in windows" in read(folder / "tagger")
    assert "MIT" in read(folder / "pair" / "encoder")
    assert "## Metrics" not in read(folder / "pair" / "preprocess")


def test_the_index_lists_all_models(folder):
    page = read(folder)
    assert page.startswith("# Mine\n\n") and page.endswith("\n\nThe end.\n") and "old" not in page
    rows = {row[0]: row[1:] for row in cells(page, "Mine")}
    assert sorted(rows) == sorted(MODELS)
    assert rows["tagger"][:3] == ["1", "text", "token, tag, score, start, end, count"]
    assert "](%ED%95%9C%EA%B5%AD%20%7B%7D/README.md)" in page
    assert all(re.fullmatch(r"\d+\.\d", row[3]) for row in rows.values())


def test_an_index_of_nothing_and_of_what_cannot_be_read(tmp_path):
    page = tmp_path / "README.md"
    assert not model_card.index(tmp_path)
    page.write_text("no place")
    assert not model_card.index(tmp_path)
    assert page.read_text() == "no place"
    page.write_bytes(
        f"\xff\r\n{model_card.INDEX_BEGIN}{model_card.INDEX_END}\r\n".encode("latin-1")
    )
    assert model_card.index(tmp_path)
    assert b"none yet" in page.read_bytes() and page.read_bytes().startswith(b"\xff\r\n")
    (tmp_path / "broken" / "12").mkdir(parents=True)
    (tmp_path / "broken" / "12" / "saved_model.pb").write_bytes(b"\xff" * 9)
    (tmp_path / "other" / "1").mkdir(parents=True)
    assert model_card.index(tmp_path)
    assert b"| broken | 12 | cannot be read |" in page.read_bytes()
    assert b"other" not in page.read_bytes()


def test_a_card_of_ours_follows_the_versions_and_a_changed_one_stays(tmp_path):
    def save(version):
        served.times(tmp_path / "model" / version, 2.0)
        return model_card.write(tmp_path / "model" / version, model_card.About())

    assert save("1") and "version 1." in read(tmp_path / "model")
    assert save("2") and "version 2." in read(tmp_path / "model")
    file = tmp_path / "model" / model_card.CARD_FILE
    # A tool that changes the ends of lines is nobody's opinion.
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert save("3") and "version 3." in read(tmp_path / "model")
    mine = read(tmp_path / "model").replace("version 3", "my version")
    file.write_text(mine)
    assert not save("4")
    assert read(tmp_path / "model") == mine
    file.write_bytes(b"\xff mine")
    assert not save("5")
    file.unlink()
    file.mkdir()
    assert not save("6")
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []


def test_an_index_that_cannot_be_written_is_no_reason_to_fail(tmp_path, monkeypatch):
    def fail(folder):
        raise PermissionError("not yours")

    monkeypatch.setattr(model_card, "index", fail)
    model = heads.classifier(tiny.encoder(num_hidden_layers=1), 2)
    assert keras_bert.export(model, tmp_path / "model").is_dir()


def test_the_index_of_saved_models_has_a_place_for_its_table():
    page = (ROOT / "saved_models" / "README.md").read_text(encoding="utf-8")
    assert page.index(model_card.INDEX_BEGIN) < page.index(model_card.INDEX_END)
