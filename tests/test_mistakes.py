"""Mistakes of users: each is an error that names the mistake and the next step."""

import warnings

import numpy as np
import pandas as pd
import pytest

import keras_bert
from keras_bert import (
    Choices,
    EmbeddingExamples,
    Examples,
    Questions,
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
    "one-hot sets": (
        lambda: Examples(TWO, label_sets=np.eye(2)),
        "names of the labels; received an array",
    ),
    "missing": (lambda: Examples(["a"], labels=[pd.NA]), "must not be missing.* in row 1"),
    "score": (lambda: Examples(TWO, scores=[1, np.nan]), "received nan in row 2"),
    "frame": (lambda: Examples(pd.DataFrame({"text": TWO})), "with keras_bert.read"),
    "label of another type": (lambda: Examples(TWO, labels=[1, object()]), "numbers; .*in row 2"),
    "set of texts": (lambda: Examples(set(TWO), labels=TWO), "texts must be a list.* no order"),
    "set in a table": (lambda: keras_bert.read({"text": set(TWO), "label": TWO}), "no order"),
    "dict as row": (lambda: EmbeddingExamples([{"query": "a", "pos": "b"}]), "row 1 must be a li"),
    "vectors of two lengths": (
        lambda: EmbeddingExamples([("a",), ("b",)], vectors=[[1], [1, 2]]),
        "vectors must be an array of numbers, with rows of the same length",
    ),
    "empty range": (
        lambda: EmbeddingExamples.of_pairs(SCORED, score_range=(1, 1)),
        "score_range must be the lowest and the highest",
    ),
    "retrieval": (lambda: RetrievalData(["q"], ["d"], {}), "queries must be a dict"),
    "no path": (lambda: keras_bert.read(""), "data must be the path .*; received ''"),
    "two columns": (lambda: keras_bert.read(REPEATED), "two columns 'label'"),
    "short column": (lambda: keras_bert.read({"text": TWO, "label": ["x"]}), "the 2 rows of"),
    "string as column": (lambda: keras_bert.read({"text": "ab", "label": "xy"}), "one string"),
    "string as words": (
        lambda: keras_bert.read({"words": ["ab"], "tags": ["xy"]}, "tagging"),
        "words must be a list",
    ),
}


@pytest.mark.parametrize("name", DATA)
def test_data(name):
    make, message = DATA[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_generators_are_lists():
    def once(*values):
        return iter(values)

    ranking = RankingExamples(once("q"), once(once("a", "b")), once(once(1, 0)))
    assert (ranking.documents, ranking.scores) == ([["a", "b"]], [[1.0, 0.0]])
    choices = Choices(once("a"), once(once("b", "c")), once(1))
    assert (choices.choices, choices.labels) == ([["b", "c"]], [1])
    tagged = TaggedSentences(once(once("a", "b")), once(once("O", "X")))
    assert (tagged.words, tagged.tags) == ([["a", "b"]], [["O", "X"]])
    pairs = EmbeddingExamples(once(once("a", "b")), classes=once("x"))
    assert (pairs.texts, pairs.classes) == ([("a", "b")], ["x"])


def test_column_of_pairs_that_is_not_read(tmp_path):
    columns = {"text": TWO, "text_pair": TWO, "label": TWO}
    with pytest.warns(UserWarning, match="text_pair is not read. For pairs of texts, give"):
        keras_bert.read(columns)
    (file := tmp_path / "a.tsv").write_text("text\ttext_pair\tlabel\na\tb\tc\n")
    with pytest.warns(UserWarning, match="text_pair is not read"):
        keras_bert.read(file)
    (lines := tmp_path / "a.jsonl").write_text('{"text": "a", "text_pair": "b"}\n' * 2)
    with pytest.warns(UserWarning, match="text_pair is not read"):
        keras_bert.read(lines, "embedding")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keras_bert.read(file, "pair", text_pair="text_pair")


CALLS = {
    "evaluate a table": (
        lambda m, p: keras_bert.pipeline(m).evaluate(pd.DataFrame({"text": TWO})),
        "become such data with keras_bert.read",
    ),
    "evaluate a name": (
        lambda m, p: keras_bert.evaluate("minilm", Examples(["a"], labels=["yes"])),
        "Load a name or a path with keras_bert.load",
    ),
    "save a pipeline": (
        lambda m, p: keras_bert.save(keras_bert.pipeline(m), "x"), "save takes a keras.Model"
    ),
    "save to h5": (lambda m, p: keras_bert.save(m, "x.h5"), "a folder or a .keras file"),
    "no classes": (lambda m, p: heads.classifier(heads.find_encoder(m)), "Give labels"),
    "learning rate": (
        lambda m, p: keras_bert.finetune(m, Examples(TWO, labels=["no", "yes"]), lr=1),
        "did you mean learning_rate",
    ),
    "option of the pipeline": (
        lambda m, p: keras_bert.pipeline(m)("a", long_texts="window"), "is not an option"
    ),
    "precision": (lambda m, p: keras_bert.pipeline(m, precision="fp16"), "must be one of"),
    "pairs for embeddings": (
        lambda m, p: keras_bert.pipeline(heads.find_encoder(m))(Examples(["a"], text_pairs=["b"])),
        "reads single texts; the examples has pairs of texts",
    ),
    "single texts for pairs": (lambda m, p: Examples(["a"]).to_dataset(p), "reads pairs of texts"),
    "no examples": (lambda m, p: Examples([]).to_dataset(m), "contains no examples"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name, model, pairs):
    call, message = CALLS[name]
    with pytest.raises(ValueError, match=message):
        call(model, pairs)


def test_export_is_not_a_model(model, tmp_path):
    version = keras_bert.export(model, tmp_path / "served")
    for path in (version, version.parent):
        with pytest.raises(ValueError, match="is an export, which cannot be loaded"):
            keras_bert.pipeline(path)


def test_folders_that_are_not_checkpoints(encoder, model, tmp_path):
    keras_bert.export(encoder, tmp_path / "pair")
    for path in ("pair", "pair/encoder", "pair/encoder/1", "pair/preprocess/1"):
        with pytest.raises(ValueError, match="is an export.*HubLayer"):
            keras_bert.load(tmp_path / path)
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx/model.onnx").touch()
    with pytest.raises(ValueError, match="is an export.*keras_bert.pipeline"):
        keras_bert.load(tmp_path / "onnx")


def test_answers_that_are_lost(encoder):
    questions = Questions(["Who?"] * 2, ["so good", "so bad"], [[("zz", 0)], [("bad", 3)]])
    _, metrics = keras_bert.finetune(encoder, questions, epochs=1, show_progress=False)
    assert metrics["lost_answers"] == 1


def test_long_questions_are_counted(encoder):
    ask = keras_bert.pipeline(heads.span_selector(encoder))
    with pytest.warns(UserWarning, match="1 of 1 texts were truncated"):
        ask(question="so good " * 100, context="bad film")
