"""Labels have one type in data and in results, so that users can compare them."""

import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.tasks.tagging.data import TaggedSentences
from keras_bert.training import report
from tests import tiny


def known(values):
    """Return a list with the type of each value, since 1 == True == 1.0."""
    return [(type(value), value) for value in values]


@pytest.mark.parametrize(
    "labels", [[2, 10, 2], [True, False, True], [4.0, 2.0, 4.0], ["2", "x", "2"]]
)
def test_labels_of_data_and_results_are_equal(tmp_path, labels):
    texts = ["good", "bad", "so good"]
    rows = "".join(f"{text},{label}\n" for text, label in zip(texts, labels, strict=True))
    file = tiny.write_file(tmp_path / "a.csv", "text,label\n" + rows)
    sources = [keras_bert.Examples(texts, labels=labels), keras_bert.read(file)]
    sources.append(keras_bert.read({"text": texts, "label": np.array(labels, object)}))
    for examples in sources:
        assert known(examples.labels) == known(labels)
        model = heads.classifier(tiny.learner(), labels=examples.label_names())
        ranked = keras_bert.pipeline(model)(texts[0], top_k=2)
        assert set(known(scored["label"] for scored in ranked)) == set(known(labels))
        assert keras_bert.pipeline(model).evaluate(examples)["majority"] == 2 / 3
    assert report.plot_confusion(model, examples).axes[0].get_title()


def test_label_sets_of_data_and_results_are_equal():
    examples = keras_bert.Examples(["good", "bad"], label_sets=[[2, 10], np.array([10])])
    assert examples.label_sets == [(2, 10), (10,)] and examples.label_names() == [2, 10]
    model = heads.classifier(tiny.encoder(), labels=examples.label_names(), multi_label=True)
    [results] = keras_bert.pipeline(model)(["good"], top_k=2)
    assert {scored["label"] for scored in results} == {2, 10}
    assert keras_bert.pipeline(model).errors(examples)


@pytest.mark.parametrize("source", ["lists", "table", "conll", "csv", "jsonl"])
def test_tags_of_data_and_results_are_equal(tmp_path, source):
    words = [["good", "bad"], ["so"]]
    tags = [[2, 10], [2]]
    conll = "good\t2\nbad\t10\n\nso\t2\n"
    table = "sentence,word,tag\n1,good,2\n1,bad,10\n2,so,2\n"
    lines = '{"words": ["good", "bad"], "tags": [2, 10]}\n{"words": ["so"], "tags": [2]}\n'
    contents = {"conll": conll, "csv": table, "jsonl": lines}
    if source == "lists":
        sentences = TaggedSentences(words, np.array(tags, object))
    elif source == "table":
        sentences = keras_bert.read({"words": words, "tags": tags}, "tagging")
    else:
        file = tiny.write_file(tmp_path / f"a.{source}", contents[source])
        sentences = keras_bert.read(file, "tagging")
    assert sentences.tags == tags and sentences.label_names() == [2, 10]
    model = heads.tagger(tiny.encoder(), labels=sentences.label_names())
    tag = keras_bert.pipeline(model)("good")[0]["tag"]
    pipe = keras_bert.pipeline(model)
    assert tag in (2, 10)
    assert all(
        type(error["expected"]) is type(error["tag"]) is int for error in pipe.errors(sentences)
    )
    assert pipe.evaluate(sentences)["majority"] == 2 / 3
    assert report.plot_confusion(model, sentences).axes[0].get_title()


def test_training_goes_on_with_the_type_of_the_data():
    model = heads.classifier(tiny.learner(), labels=[0, 1])
    texts = ["good", "bad"] * 2
    for labels in (["0", "1"] * 2, [0, 1] * 2):
        examples = keras_bert.Examples(texts, labels=labels)
        with tiny.eagerly():
            keras_bert.finetune(model, examples, epochs=1, show_progress=False)
        assert keras_bert.pipeline(model)("good")["label"] in labels
