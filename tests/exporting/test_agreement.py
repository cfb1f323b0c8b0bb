"""Tests of the comparison of two functions of strings."""

import numpy as np
import pytest

from keras_bert import heads
from keras_bert.data.examples import Examples
from keras_bert.exporting import agreement
from keras_bert.tasks import registry
from keras_bert.tasks.multiple_choice import data as swag
from keras_bert.tasks.question_answering import data as squad
from keras_bert.tasks.reranking.data import RankingExamples
from keras_bert.tasks.tagging import data as conll
from tests import contract, tiny

OUTPUT = heads.TaskOutput("classification", labels=["1", "2", "3", "4", "5"])


def lengths(texts):
    sizes = [len(text) for text in texts]
    labels = np.array([str(size).encode() for size in sizes], object)
    return {"label": labels, "score": np.array(sizes, np.float32)}


def short_lengths(texts):
    return lengths([text[:3] for text in texts])


def test_labels_and_numbers():
    examples = Examples(["a", "bb", "ccc", "dddd"] * 20)
    found = agreement.compare(lengths, short_lengths, examples, OUTPUT)
    assert (found.examples, found.equal, found.difference) == (80, 0.75, 1.0)
    assert "80 examples, 75.00% of the answers are equal" in str(found)
    assert found.metric is None and "accuracy" not in str(found)
    examples = Examples(["a", "bb", "ccc", "dddd"] * 20, labels=[1, 2, 3, 4] * 20)
    found = agreement.compare(short_lengths, lengths, examples, OUTPUT)
    assert (found.metric, found.score, found.float32_score) == ("accuracy", 0.75, 1)
    assert "the accuracy is 0.7500 (float32: 1.0000), the largest" in str(found)


def test_nan_is_a_difference():
    def broken(text):
        return {**lengths(text), "score": np.full(len(text), np.nan)}

    for functions in ((broken, lengths), (lengths, broken), (broken, broken)):
        assert agreement.compare(*functions, Examples(["a", "b"]), OUTPUT).difference != 0


def test_answers_that_are_only_numbers():
    def score(function):
        return lambda text: {"score": function(text)["score"]}

    found = agreement.compare(score(lengths), score(short_lengths), Examples(["abcde"]), OUTPUT)
    assert found.equal is None and found.difference == 2
    assert "answers are equal" not in str(found)


EXPORTED = [task.name for task in registry.TASKS if task.name != "pretraining"]
DATA = {
    "tagging": conll.TaggedSentences([["a"]]),
    "question_answering": squad.Questions(["who?"], ["me"]),
    "multiple_choice": swag.Choices(["a"], [["c", "d"]]),
    "reranking": RankingExamples(["a"], [["c", "d"]]),
}


@pytest.mark.parametrize("task", EXPORTED)
def test_data_of_each_task(task):
    model = contract.OF_TASKS[task](
        tiny.encoder(), *([2] if task in ("classification", "tagging") else [])
    )
    output = heads.find_output(model)
    of_name = registry.by_name(task)
    made = of_name.signatures(None, output, tiny.encoder().preprocessor, 8)
    assert list(of_name.inputs_of(output)) == [spec.name for spec in made.input_signature]
    if task in ("embedding", "sparse_embedding"):
        return
    default = Examples(["a"], text_pairs=["b"] if output.pairs else None)
    agreement.check_data(DATA.get(task, default), output)
    wrong = DATA["tagging"] if task != "tagging" else DATA["multiple_choice"]
    for data in ("dev.tsv", ["a"], {"text": ["a"]}, wrong):
        message = f"dev must be keras_bert.* received {type(data).__name__}. Read a file with"
        with pytest.raises(ValueError, match=message):
            agreement.check_data(data, output)


def test_labels_that_the_model_does_not_know():
    output = heads.TaskOutput("classification", labels=["bad", "good"])
    agreement.check_data(Examples(["a"], labels=["good"]), output)
    agreement.check_data(
        Examples(["a"], labels=[1]), heads.TaskOutput("classification", labels=["1"])
    )
    with pytest.raises(ValueError, match="the label '1' is not one of the model's l"):
        agreement.check_data(Examples(["a", "b"], labels=["good", "1"]), output)
    output = heads.find_output(heads.next_sentence(tiny.encoder()))
    with pytest.raises(ValueError, match="the label 'good' is not one of the model's labels: next"):
        agreement.check_data(Examples(["a"], text_pairs=["b"], labels=["good"]), output)
