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
def test_labels_of_data_and_results_are_equal(labels):
    examples = keras_bert.Examples(["good", "bad", "so good"], labels=np.array(labels, object))
    assert known(examples.labels) == known(labels)
    pipe = keras_bert.pipeline(heads.classifier(tiny.encoder(), labels=examples.label_names()))
    assert set(known(scored["label"] for scored in pipe("good", top_k=2))) == set(known(labels))
    assert pipe.evaluate(examples)["majority"] == 2 / 3
    assert report.plot_confusion(pipe.model, examples).axes[0].get_title()


def test_label_sets_of_data_and_results_are_equal():
    examples = keras_bert.Examples(["good", "bad"], label_sets=[[2, 10], np.array([10])])
    assert examples.label_sets == [(2, 10), (10,)] and examples.label_names() == [2, 10]
    model = heads.classifier(tiny.encoder(), labels=examples.label_names(), multi_label=True)
    [results] = keras_bert.pipeline(model)(["good"], top_k=2)
    assert {scored["label"] for scored in results} == {2, 10}
    assert keras_bert.pipeline(model).errors(examples)


def test_tags_of_data_and_results_are_equal():
    tags = [[2, 10], [2]]
    sentences = TaggedSentences([["good", "bad"], ["so"]], np.array(tags, object))
    assert sentences.tags == tags and sentences.label_names() == [2, 10]
    pipe = keras_bert.pipeline(heads.tagger(tiny.encoder(), labels=sentences.label_names()))
    assert pipe("good")[0]["tag"] in (2, 10)
    for error in pipe.errors(sentences):
        assert type(error["expected"]) is type(error["tag"]) is int
    assert pipe.evaluate(sentences)["majority"] == 2 / 3
    assert report.plot_confusion(pipe.model, sentences).axes[0].get_title()


def test_training_goes_on_with_the_type_of_the_data():
    model = heads.classifier(tiny.learner(), labels=[0, 1])
    texts = ["good", "bad"] * 2
    for labels in (["0", "1"] * 2, [0, 1] * 2):
        examples = keras_bert.Examples(texts, labels=labels)
        with tiny.eagerly():
            keras_bert.finetune(model, examples, epochs=1, show_progress=False)
        assert keras_bert.pipeline(model)("good")["label"] in labels
