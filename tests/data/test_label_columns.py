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
    table = {"text": ["a", "a"], "label": labels}
    assert keras_bert.read(table).labels == labels
    assert keras_bert.read({**table, "label": np.array(labels)}).labels == labels


def test_rows_of_snli_without_a_label_are_left_out(tmp_path):
    with pytest.warns(UserWarning, match="1 of 3 rows were left out, .* it is '-'"):
        examples = keras_bert.read(tsv(tmp_path, "neutral", "-", "entailment"))
    assert examples.labels == ["neutral", "entailment"]
    assert [examples.location(row) for row in (0, 1)] == [
        f"{tmp_path}/a.tsv, row 2", f"{tmp_path}/a.tsv, row 4"
    ]  # fmt: skip
    with pytest.warns(UserWarning, match="2 of 5 rows were left out, .* it is '-1'"):
        assert keras_bert.read(tsv(tmp_path, 0, -1, 2, 1, -1)).labels == [0, 2, 1]
    with pytest.warns(UserWarning, match="1 of 4 rows"):
        assert keras_bert.read({"text": ["a"] * 4, "label": [0, 1, 2, -1]}).label_type == "int"
    with pytest.raises(ValueError, match="no row has a label; all are '-'"):
        keras_bert.read(tsv(tmp_path, "-", "-"))


def test_missing_labels_of_a_table_are_left_out():
    pandas = pytest.importorskip("pandas")
    texts = ["a", "b", "c"]
    for labels in (["x", None, "y"], ["x", float("nan"), "y"], ["x", pandas.NA, "y"]):
        frame = pandas.DataFrame({"text": texts, "label": labels})
        with pytest.warns(UserWarning, match="1 of 3 rows were left out, .* it is missing"):
            examples = keras_bert.read(frame)
        assert (examples.texts, examples.labels) == (["a", "c"], ["x", "y"])
    # pandas stores these integers as floats.
    frame = pandas.DataFrame({"text": texts, "label": [2, None, 0]})
    with pytest.warns(UserWarning, match="1 of 3 rows"):
        examples = keras_bert.read(frame)
    assert (list(map(str, examples.labels)), examples.label_type) == (["2", "0"], "int")
    assert keras_bert.read(frame.dropna()).label_type == "float"
    table = {"text": ["a"] * 5, "label": [0.0, 1.0, 2.0, -1.0, float("nan")]}
    with pytest.warns(UserWarning, match="2 of 5 rows were left out, .* it is '-1' or missing"):
        assert keras_bert.read(table).labels == [0, 1, 2]


def test_rows_without_flags_are_left_out(tmp_path):
    pandas = pytest.importorskip("pandas")
    file = write_file(tmp_path / "a.csv", "text,toxic,rude\na,-1,-1\nb,1,0\nc,-1,-1\n")
    for data in (file, pandas.read_csv(file), pandas.read_csv(file, na_values=["-1"])):
        with pytest.warns(UserWarning, match="2 of 3 rows were left out"):
            examples = keras_bert.read(data, "multi_label", label=["toxic", "rude"])
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
    pandas = pytest.importorskip("pandas")
    file = write_file(tmp_path / "a.csv", "text,toxic,rude\n" + rows)
    expected = [("rude",), ("toxic", "rude"), ()]
    options = {"task": "multi_label", "label": ["toxic", "rude"]}
    assert keras_bert.read(file, **options).label_sets == expected
    assert keras_bert.read(pandas.read_csv(file), **options).label_sets == expected
    lines = pandas.read_csv(file).to_json(orient="records", lines=True)
    jsonl = write_file(tmp_path / "a.jsonl", lines)
    assert keras_bert.read(jsonl, **options).label_sets == expected


def test_errors_of_columns_of_0_and_1(tmp_path):
    file = write_file(tmp_path / "a.csv", "text,toxic,rude\na,0,-1\n")
    with pytest.raises(ValueError, match=r"row 2: the column 'rude' .* 0 or 1.*; received '-1'"):
        keras_bert.read(file, "multi_label", label=["toxic", "rude"])
    with pytest.raises(ValueError, match=r"no column 'mild'; .* `label` \(--label\)"):
        keras_bert.read(file, "multi_label", label=["toxic", "mild"])
    with pytest.raises(ValueError, match="only for the task multi_label"):
        keras_bert.read(file, label=["toxic", "rude"])
    with pytest.warns(UserWarning, match=r"only 0 and 1.*label=\['toxic', \.\.\.\]"):
        keras_bert.read(file, "multi_label", label="toxic")
    rows = {"text": ["a", "b"], "label": [[1, 0], [0.3, 0.9]]}  # no columns, so no warning
    assert keras_bert.read(rows, "multi_label").label_sets == [("0",), ("1",)]


@pytest.mark.parametrize("mark", [";", "|", "/"])
def test_wrong_separator_is_noticed(tmp_path, mark):
    labels = [f"rude{mark}short", "short"]
    with pytest.warns(UserWarning, match=rf"give separator='\{mark}'"):
        keras_bert.read(tsv(tmp_path, *labels), "multi_label")
    with pytest.warns(UserWarning, match="give separator"):
        keras_bert.read({"text": ["a", "b"], "label": labels}, "multi_label")
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


@pytest.mark.parametrize("score", ["1_0", "nan", "inf", "-Infinity", "１０", "", "0x10", True])
def test_scores_are_plain_numbers(tmp_path, score):
    for data in (jsonl(tmp_path, score), {"text": ["a"], "label": [score]}):
        with pytest.raises(ValueError, match="scores must be numbers; received"):
            keras_bert.read(data, "regression")
    with pytest.raises(ValueError, match="scores must be numbers; received"):
        keras_bert.EmbeddingExamples([("a", "b")], [score])


def test_scores_may_have_signs_and_exponents():
    scores = ["1", "-1.5", "+.5", "2.", "1e-3", " 4 ", 2, np.float32(0.5)]
    examples = keras_bert.Examples(["a"] * len(scores), scores=scores)
    assert examples.scores == [1, -1.5, 0.5, 2, 0.001, 4, 2, 0.5]


COMPOSED = "긍정"
DECOMPOSED = unicodedata.normalize("NFD", COMPOSED)


def test_labels_that_differ_in_their_normalization_are_said():
    for make in (
        lambda: keras_bert.Examples(["a", "b"], labels=[COMPOSED, DECOMPOSED]),
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
    rows = [("good", 1, 0), ("bad", 0, 0), ("so good", 1, 0), ("so bad", 0, 0)]
    lines = "".join(f"{text},{toxic},{threat}\n" for text, toxic, threat in rows)
    file = write_file(tmp_path / "a.csv", "text,toxic,threat\n" + lines)
    options = {"task": "multi_label", "label": ["toxic", "threat"]}
    texts, toxic, threat = map(list, zip(*rows, strict=True))
    table = {"text": texts, "toxic": toxic, "threat": threat}
    for examples in (keras_bert.read(file, **options), keras_bert.read(table, **options)):
        assert examples.label_names() == ["threat", "toxic"]
    with tiny.eagerly():
        model, _ = keras_bert.finetune(
            tiny.learner(pooling="mean"), examples, epochs=1, show_progress=False
        )
    assert model.output_shape == (None, 2)


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
