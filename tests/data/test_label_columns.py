"""Tests of labels in files and tables: their types, missing ones, and label sets."""

import json
import types
import unicodedata
import warnings

import numpy as np
import pytest

import keras_bert
from keras_bert.tasks.tagging.data import TaggedSentences
from tests import tiny
from tests.tiny import write_file


def tsv(folder, *labels):
    text = "text\tlabel\n" + "".join(f"a\t{label}\n" for label in labels)
    return write_file(folder / "a.tsv", text)


def jsonl(folder, *labels, name="a.jsonl"):
    rows = [{"text": "a", "label": label} for label in labels]
    return write_file(folder / name, "".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["1", "0"], [1, 0]),
        (["-1", "10"], [-1, 10]),
        (["4.0", "3.0"], [4.0, 3.0]),
        (["True", "False"], [True, False]),
        (["TRUE", "FALSE"], [True, False]),
        (["01", "1"], ["01", "1"]),
        (["1", "x"], ["1", "x"]),
        (["nan", "inf"], ["nan", "inf"]),
    ],
)
def test_labels_of_a_file_without_types(tmp_path, labels, expected):
    assert keras_bert.read(tsv(tmp_path, *labels)).labels == expected


@pytest.mark.parametrize("labels", [[1, 0], [True, False], ["1", "0"], [5.0, 1.0], ["x", "y"]])
def test_labels_keep_the_type_of_the_data(tmp_path, labels):
    assert keras_bert.read(jsonl(tmp_path, *labels)).labels == labels
    assert keras_bert.read({"text": ["a", "a"], "label": np.array(labels)}).labels == labels


def test_rows_of_snli_without_a_label_are_left_out(tmp_path):
    with pytest.warns(UserWarning, match="1 of 3 rows were left out, .* it is '-'"):
        examples = keras_bert.read(tsv(tmp_path, "neutral", "-", "entailment"))
    assert examples.labels == ["neutral", "entailment"]
    assert examples.location(1) == f"{tmp_path}/a.tsv, row 4"
    with pytest.warns(UserWarning, match="2 of 5 rows were left out, .* it is '-1'"):
        assert keras_bert.read(tsv(tmp_path, 0, -1, 2, 1, -1)).labels == [0, 2, 1]
    with pytest.raises(ValueError, match="no row has a label; all are '-'"):
        keras_bert.read(tsv(tmp_path, "-", "-"))


def test_missing_labels_of_a_table_are_left_out():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", "b", "c"], "label": ["x", pandas.NA, "y"]})
    with pytest.warns(UserWarning, match="1 of 3 rows were left out, .* it is missing"):
        examples = keras_bert.read(frame)
    assert (examples.texts, examples.labels) == (["a", "c"], ["x", "y"])
    # pandas stores these integers as floats.
    frame = pandas.DataFrame({"text": ["a", "b", "c"], "label": [2, None, 0]})
    with pytest.warns(UserWarning, match="1 of 3 rows"):
        examples = keras_bert.read(frame)
    assert (list(map(str, examples.labels)), examples.label_type) == (["2", "0"], "int")
    assert keras_bert.read(frame.dropna()).label_type == "float"
    table = {"text": ["a"] * 5, "label": [0.0, 1.0, 2.0, -1.0, float("nan")]}
    with pytest.warns(UserWarning, match="2 of 5 rows were left out, .* it is '-1' or missing"):
        assert keras_bert.read(table).labels == [0, 1, 2]


def test_rows_without_flags_are_left_out(tmp_path):
    file = write_file(tmp_path / "a.csv", "text,toxic,rude\na,-1,-1\nb,1,0\nc,-1,-1\n")
    with pytest.warns(UserWarning, match="2 of 3 rows were left out"):
        examples = keras_bert.read(file, "multi_label", label=["toxic", "rude"])
    assert (examples.texts, examples.label_sets) == (["b"], [("toxic",)])


@pytest.mark.parametrize("labels", [["+", "-"], [-1, 0, 1], [-1, 1], [-2, -1, 0, 1, 2]])
def test_labels_of_a_sentiment_are_kept(tmp_path, labels):
    assert len(keras_bert.read(tsv(tmp_path, *labels))) == len(labels)


def test_unlabeled_rows_of_hugging_face_are_left_out():
    class Dataset(dict):
        column_names = ("text", "label")
        features = {"label": types.SimpleNamespace(names=["neg", "pos"])}  # noqa: RUF012

    with pytest.warns(UserWarning, match="1 of 3 rows were left out"):
        assert keras_bert.read(Dataset(text=["a"] * 3, label=[1, -1, 0])).labels == ["pos", "neg"]


@pytest.mark.parametrize(
    "rows", ["a,0,1\nb,1,1\nc,0,0\n", "a,False,True\nb,True,True\nc,False,False\n"]
)
def test_columns_of_0_and_1_are_label_sets(tmp_path, rows):
    file = write_file(tmp_path / "a.csv", "text,toxic,rude\n" + rows)
    examples = keras_bert.read(file, "multi_label", label=["toxic", "rude"])
    assert examples.label_sets == [("rude",), ("toxic", "rude"), ()]


def test_errors_of_columns_of_0_and_1(tmp_path):
    file = write_file(tmp_path / "a.csv", "text,toxic,rude\na,0,-1\n")
    for label, options, message in (
        (["toxic", "rude"], {"task": "multi_label"}, "row 2: the column 'rude' .*received '-1'"),
        (["toxic", "mild"], {"task": "multi_label"}, r"no column 'mild'; .*--label"),
        (["toxic", "rude"], {}, "only for the task multi_label"),
    ):
        with pytest.raises(ValueError, match=message):
            keras_bert.read(file, label=label, **options)
    with pytest.warns(UserWarning, match=r"only 0 and 1.*label=\['toxic', \.\.\.\]"):
        keras_bert.read(file, "multi_label", label="toxic")


@pytest.mark.parametrize("mark", [";", "|", "/"])
def test_wrong_separator_is_noticed(tmp_path, mark):
    labels = [f"rude{mark}short", "short"]
    with pytest.warns(UserWarning, match=rf"give separator='\{mark}'"):
        keras_bert.read(tsv(tmp_path, *labels), "multi_label")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keras_bert.read(tsv(tmp_path, *labels), "multi_label", separator=mark)
        keras_bert.read(tsv(tmp_path, *labels, "rude,short"), "multi_label")


def test_label_may_be_a_key_within_an_object(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "labels": {"label": 3.7, "binary-label": 1}}]
    file = write_file(tmp_path / "a.json", json.dumps(rows))
    options = {"text": "sentence1", "text_pair": "sentence2"}
    assert keras_bert.read(file, "regression", label="labels.label", **options).scores == [3.7]
    assert keras_bert.read(file, "pair", label="labels.binary-label", **options).labels == [1]
    with pytest.raises(ValueError, match=r"item 1 has no key 'labels\.x'; its keys are sentence1"):
        keras_bert.read(file, "pair", label="labels.x", **options)


@pytest.mark.parametrize("score", ["1_0", "nan", "-Infinity", "１０", "", "0x10", True])
def test_scores_are_plain_numbers(score):
    for make in (
        lambda: keras_bert.read({"text": ["a"], "label": [score]}, "regression"),
        lambda: keras_bert.EmbeddingExamples([("a", "b")], [score]),
    ):
        with pytest.raises(ValueError, match="scores must be numbers; received"):
            make()


def test_scores_may_have_signs_and_exponents():
    scores = ["1", "-1.5", "+.5", "2.", "1e-3", " 4 ", 2, np.float32(0.5)]
    examples = keras_bert.Examples(["a"] * len(scores), scores=scores)
    assert examples.scores == [1, -1.5, 0.5, 2, 0.001, 4, 2, 0.5]


COMPOSED = "긍정"
DECOMPOSED = unicodedata.normalize("NFD", COMPOSED)


def test_labels_that_differ_in_their_normalization_are_said():
    for make in (
        lambda: keras_bert.Examples(["a"], label_sets=[(COMPOSED, DECOMPOSED)]),
        lambda: TaggedSentences([["a", "b"]], [[COMPOSED, DECOMPOSED]]),
    ):
        with pytest.raises(ValueError, match="Unicode normalization.*NFC"):
            make()


def test_unknown_label_that_differs_in_its_normalization_is_said():
    train = keras_bert.Examples(["good", "bad"], labels=[COMPOSED, "x"])
    dev = keras_bert.Examples(["good"], labels=[DECOMPOSED])
    with pytest.raises(ValueError, match="differs .* Unicode normalization.*NFC"):
        keras_bert.finetune(tiny.encoder(), train, dev, epochs=1, show_progress=False)


def test_a_named_column_without_positives_is_a_label(tmp_path):
    file = write_file(tmp_path / "a.csv", "text,toxic,threat\ngood,1,0\nbad,0,0\n")
    examples = keras_bert.read(file, "multi_label", label=["toxic", "threat"])
    assert examples.label_names() == ["threat", "toxic"]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["['x', 'y']", "[]", '["it\'s"]'], [("x", "y"), (), ("it's",)]),
        (["[np.str_('x'), np.str_('y z')]", "[np.str_('x')]"], [("x", "y z"), ("x",)]),
        (['["x", "\\u00e9"]', ""], [("x", "é"), ()]),
        (["('x', 'y')", "('x',)"], [("x", "y"), ("x",)]),
        (["[1, 2]", "[2]"], [(1, 2), (2,)]),
        (["x,y", "['x']"], [("x", "y"), ("['x']",)]),  # not all are lists
        (["3.1,4.2", "1.1,2.2,3.3"], [("3.1", "4.2"), ("1.1", "2.2", "3.3")]),  # of sections
    ],
)
def test_lists_as_pandas_writes_them_are_label_sets(tmp_path, cells, expected):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a"] * len(cells), "label": cells})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    for source in (tmp_path / "a.csv", tmp_path / "a.jsonl", frame):
        assert keras_bert.read(source, "multi_label").label_sets == expected
