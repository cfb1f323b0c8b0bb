"""`keras_bert.read`: files and tables, and arguments that do not apply."""

import types

import numpy as np
import pytest

import keras_bert


def test_a_row_may_lack_a_text():
    rows = [{"text": "so good", "label": 5}, {"text": "bad", "label": 1, "extra": "x"}]
    assert keras_bert.read(rows, text="extra").texts == ["", "x"]


def test_limit_reads_only_the_first_values_of_a_column():
    class Column:
        """A column that is read on demand, as those of Hugging Face datasets."""

        def __init__(self, value):
            self.value = value

        def __iter__(self):
            for index in range(10):
                assert index < 3, "a value after the limit was read"
                yield f"{self.value} {index}"

    table = {"text": Column("so"), "label": Column("class")}
    found = keras_bert.read(table, text="text", label="label", limit=3)
    assert found.texts == ["so 0", "so 1", "so 2"]
    assert found.labels == ["class 0", "class 1", "class 2"]


def test_hugging_face_dataset():
    """Its class labels are numbers with names."""

    class Dataset(dict):
        column_names = ("text", "label")
        features = {"label": types.SimpleNamespace(names=["neg", "pos"]), "text": None}  # noqa: RUF012

    assert keras_bert.read(Dataset(text=["a", "b"], label=[1, 0])).labels == ["pos", "neg"]
    for wrong in (None, 2, 1.0, "other"):
        with pytest.raises(ValueError, match="the table, row 2: has no label; received"):
            keras_bert.read(Dataset(text=["a", "b"], label=[1, wrong]))
    assert keras_bert.read(Dataset(text=["a"], label=["pos"])).labels == ["pos"]
    with pytest.raises(ValueError, match="holds classes, and scores are needed"):
        keras_bert.read(Dataset(text=["a"], label=[1]), "regression")
    sets = types.SimpleNamespace(feature=Dataset.features["label"])
    Dataset.features = {"label": sets}
    found = keras_bert.read(Dataset(text=["a", "b"], label=[[1, 0], []]), "multi_label")
    assert found.label_sets == [("pos", "neg"), ()]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ({"text": ["a"]}, {}, "has no column 'label'; it has text. Give their names as text=,"),
        ({"text": ["a"], "label": [float("nan")]}, {}, "no row has a label"),
        ({"text": ["a", 3], "label": [1, 2]}, {}, "row 2: texts must be strings; received 3"),
        ({"w": [["a"]]}, {"task": "tagging"}, "no column 'words'; .* names as word= and"),
        ({"text": ["a"]}, {"task": "multiple_choice"}, "no column 'choices'; .* Rename"),
        (3, {}, "must be a file, a DataFrame, a Dataset or a dict of columns; received int"),
        ([("a", "b")], {}, r"received list. For lists, use Examples\(texts, labels"),
        ({"text": ["a"]}, {"format": "csv"}, "format is for files; received 'csv' with a table"),
        ({}, {"task": "tagging", "format": "csv"}, "format is for files"),
        ({}, {"task": "multiple_choice", "format": "csv"}, "format is for files"),
        ("a.conll", {}, "for tagged words, give task='tagging'"),
        ("a.tsv", {"tag": 2}, "tag does not apply to the task 'classification'; remove it"),
        ("a.conll", {"task": "tagging", "text": "x"}, "text does not apply to the task 'tagging'"),
        ("a.tsv", {"negatives": np.array(["a", "b"])}, "negatives does not apply to the task"),
        ("a.tsv", {"task": "nonsense"}, "task must be one of classification, pair"),
        ("a.tsv", {"task": "pair"}, r"needs text_pair \(--text-pair\), the column"),
    ],
)
def test_wrong_arguments_are_named(data, options, message):
    with pytest.raises(ValueError, match=message):
        keras_bert.read(data, **options)


def test_tagged_sentences_of_a_table():
    class Dataset(dict):
        column_names = ("tokens", "ner_tags")
        features = {  # noqa: RUF012
            "ner_tags": types.SimpleNamespace(feature=types.SimpleNamespace(names=["O", "B-PER"]))
        }

    table = Dataset(tokens=[["Ann", "left"]], ner_tags=[[1, 0]])
    options = {"task": "tagging", "word": "tokens", "tag": "ner_tags"}
    sentences = keras_bert.read(table, **options)
    assert (sentences.words, sentences.tags) == ([["Ann", "left"]], [["B-PER", "O"]])
    assert keras_bert.read({"words": [["a"]], "tags": [["X"]]}, "tagging").tags == [["X"]]
    with pytest.raises(ValueError, match="has no label; received -1"):
        keras_bert.read(Dataset(tokens=[["a"]], ner_tags=[[-1]]), **options)


def test_words_in_lists_beside_a_column_of_sentences():
    table = {"sentence": ["한국 만세"], "tokens": [["한", "국"]], "ner_tags": [["B-X", "I-X"]]}
    sentences = keras_bert.read(table, "tagging", word="tokens", tag="ner_tags")
    assert (sentences.words, sentences.tags) == ([["한", "국"]], [["B-X", "I-X"]])
    table = {"Sentence #": [1, None, 2], "word": ["Ann", "left", "Go"], "tag": ["X", "O", "O"]}
    assert keras_bert.read(table, "tagging").words == [["Ann", "left"], ["Go"]]
