"""Mistakes of users: each is an error that names the mistake and the next step."""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import keras_bert
from keras_bert import (
    Choices,
    EmbeddingExamples,
    Examples,
    RankingExamples,
    RetrievalData,
    TaggedSentences,
    heads,
)
from tests import tiny


@pytest.fixture(scope="module")
def encoder():
    return tiny.encoder(num_hidden_layers=1)


@pytest.fixture(scope="module")
def model(encoder):
    return heads.classifier(encoder, labels=["no", "yes"])


@pytest.fixture(scope="module")
def pairs(encoder):
    return heads.classifier(encoder, labels=["no", "yes"], pairs=True)


TWO = ["a", "b"]
SCORED = Examples(["a"], text_pairs=["b"], scores=[1])
REPEATED = pd.DataFrame([["good", "x", "y"]], columns=["text", "label", "label"])
DATA = {
    "one-hot sets": (lambda: Examples(TWO, label_sets=np.eye(2), known_labels=["x"]), "2 numbers"),
    "lists as labels": (lambda: Examples(TWO, labels=[["x"], ["y"]]), "give label_sets"),
    "missing": (lambda: Examples(["a"], labels=[pd.NA]), "row 1: labels must not be missing"),
    "number as labels": (lambda: Examples(["a"], labels=5), "labels must be a list; received 5"),
    "score": (lambda: Examples(TWO, scores=[1, np.nan]), "row 2: scores .*received nan"),
    "frame": (lambda: Examples(pd.DataFrame({"text": TWO})), "with keras_bert.read"),
    "dict": (lambda: Examples({"text": TWO}), "with keras_bert.read"),
    "none": (lambda: Examples(None), "texts must be a list"),
    "limit": (lambda: keras_bert.read({"text": TWO, "label": TWO}, limit=-1), "limit"),
    "label of another type": (lambda: Examples(TWO, labels=[1, object()]), "row 2: labels must"),
    "dict as label set": (lambda: Examples(["a"], label_sets=[{"x": 0}]), "lists of labels"),
    "set of texts": (lambda: Examples(set(TWO), labels=TWO), "texts must be a list.* no order"),
    "set of documents": (lambda: RankingExamples(["q"], [set(TWO)], [[1, 0]]), "no order"),
    "set in a table": (lambda: keras_bert.read({"text": set(TWO), "label": TWO}), "no order"),
    "dict as row": (lambda: EmbeddingExamples([{"query": "a", "pos": "b"}]), "row 1 must be a li"),
    "vectors of two lengths": (
        lambda: EmbeddingExamples([("a",), ("b",)], vectors=[[1], [1, 2]]), "the same length"
    ),
    "no pairs": (lambda: EmbeddingExamples.of_pairs(Examples(["a"])), "give text_pairs"),
    "empty range": (lambda: EmbeddingExamples.of_pairs(SCORED, score_range=(1, 1)), "score_range"),
    "list of pairs": (lambda: EmbeddingExamples.of_pairs([("a", "b")]), "must be Examples"),
    "retrieval": (lambda: RetrievalData(["q"], ["d"], {}), "queries must be a dict"),
    "no path": (lambda: keras_bert.read(""), "data must be the path .*; received ''"),
    "no columns": (lambda: keras_bert.read(pd.DataFrame()), "it has no columns"),
    "two columns": (lambda: keras_bert.read(REPEATED), "two columns 'label'"),
    "short column": (lambda: keras_bert.read({"text": TWO, "label": ["x"]}), "the 2 rows of"),
    "string as column": (lambda: keras_bert.read({"text": "ab", "label": "xy"}), "one string"),
    "string as words": (
        lambda: keras_bert.read({"words": ["ab"], "tags": ["xy"]}, "tagging"), "must be a list"
    ),
    "tagging": (lambda: keras_bert.read({"text": TWO}, "tagging"), "keras_bert.TaggedSentences"),
}  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_data(name):
    make, message = DATA[name]
    with pytest.raises(ValueError, match=message):
        make()


class ArrowArray(list):
    """Has the method of PyArrow's arrays."""

    def to_pylist(self):
        return [None if value == "null" else value for value in self]


def test_null_of_an_arrow_array_is_no_label():
    with pytest.raises(ValueError, match="row 2: labels must not be missing"):
        Examples(TWO, labels=ArrowArray(["x", "null"]))


def test_data_that_is_accepted():
    examples = Examples(iter(TWO), labels=tf.constant([0, 1]))
    assert (examples.texts, examples.labels) == (TWO, [0, 1])
    assert repr(examples) == "<Examples: 2 items with labels, from the examples>"
    ranking = RankingExamples(iter("q"), iter([iter(TWO)]), iter([iter([1, 0])]))
    assert (ranking.documents, ranking.scores) == ([TWO], [[1.0, 0.0]])
    choices = Choices(iter("a"), iter([iter(TWO)]), iter([1]))
    assert (choices.choices, choices.labels) == ([TWO], [1])
    tagged = TaggedSentences(iter([iter(TWO)]), iter([iter("OX")]))
    assert (tagged.words, tagged.tags) == ([TWO], [["O", "X"]])


def test_column_of_pairs_that_is_not_read():
    columns = {"text": TWO, "text_pair": TWO, "label": TWO}
    with pytest.warns(UserWarning, match="text_pair is not read. For pairs of texts, give"):
        keras_bert.read(columns)
    keras_bert.read(columns, "pair", text_pair="text_pair")  # warnings fail tests


CALLS = {
    "evaluate a table": (
        lambda m, p: keras_bert.pipeline(m).evaluate(pd.DataFrame({"text": TWO})),
        "takes Examples; received DataFrame. Read files and tables with keras_bert.read",
    ),
    "finetune a table": (
        lambda m, p: keras_bert.finetune(m, {"text": TWO}), "keras_bert.read"
    ),
    "evaluate a name": (
        lambda m, p: keras_bert.evaluate("minilm", Examples(["a"], labels=["yes"])),
        "Load a name or a path with keras_bert.load",
    ),
    "save a pipeline": (
        lambda m, p: keras_bert.save(keras_bert.pipeline(m), "x"), "takes a keras.Model"
    ),
    "save to h5": (lambda m, p: keras_bert.save(m, "x.h5"), "a folder or a .keras file"),
    "export a name": (lambda m, p: keras_bert.export("minilm", "x"), "export takes a keras.Model"),
    "head of a name": (lambda m, p: heads.classifier("minilm", 2), "Load one with keras_bert.load"),
    "learning rate": (
        lambda m, p: keras_bert.finetune(m, Examples(TWO, labels=["no", "yes"]), lr=1),
        "did you mean learning_rate",
    ),
    "errors": (
        lambda m, p: keras_bert.pipeline(m).errors(Examples(["a"], labels=["yes"]), -1), "n must be"
    ),
    "pairs for embeddings": (
        lambda m, p: keras_bert.pipeline(heads.find_encoder(m))(Examples(["a"], text_pairs=["b"])),
        "reads single texts; the examples has pairs of texts",
    ),
    "single texts for pairs": (lambda m, p: Examples(["a"]).to_dataset(p), "reads pairs of texts"),
    "pairs for single texts": (
        lambda m, p: Examples(["a"], text_pairs=["b"]).to_dataset(m), "reads single texts"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name, model, pairs):
    call, message = CALLS[name]
    with pytest.raises(ValueError, match=message):
        call(model, pairs)


def test_model_inside_of_another(model):
    with pytest.raises(ValueError, match="Pass that inner model"):
        keras_bert.finetune(heads.with_text(model), Examples(TWO, labels=["no", "yes"]))


def test_folders_that_are_not_checkpoints(tmp_path):
    for file in ("pair/encoder/1/saved_model.pb", "pair/preprocess/1/saved_model.pb"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    for path in ("pair", "pair/encoder", "pair/encoder/1", "pair/preprocess/1"):
        with pytest.raises(ValueError, match="is an export.*HubLayer"):
            keras_bert.load(tmp_path / path)


def test_long_questions_are_counted(encoder):
    ask = keras_bert.pipeline(heads.span_selector(encoder))
    with pytest.warns(UserWarning, match="1 of 1 texts were truncated"):
        ask(question="so good " * 100, context="bad film")
