"""The score of a model before its training."""

import pytest

import keras_bert
from keras_bert import EmbeddingExamples, RankingExamples
from tests import tiny

pytestmark = pytest.mark.usefixtures("eager")
PAIRS = EmbeddingExamples([("good film", "so good"), ("bad film", "so bad"), ("is", "this")] * 4)
QUICK = {"epochs": 1, "batch_size": 4}
# The first search ranks each relevant document first.
FOUND = RankingExamples(
    ["good film", "bad film"], [["so good", "is"], ["so bad", "this"]], [[1, 0], [1, 0]],
    missed=[[], []],
)  # fmt: skip


def test_embedders_are_scored_before_the_training(capsys):
    encoder = tiny.encoder(pooling="mean")
    before = keras_bert.pipeline(encoder).evaluate(PAIRS)["mrr@10"]
    _, metrics = keras_bert.finetune(encoder, PAIRS, PAIRS, learning_rate=1e-9, **QUICK)
    assert metrics["mrr@10_before_training"] == pytest.approx(before, abs=1e-6)
    note = capsys.readouterr().err
    assert f"mrr@10 of the dev data: {before:.3f} before the training, {before:.3f} after" in note
    assert "The training did not improve it" in note


def test_a_model_that_is_trained_further():
    data = tiny.examples()
    model, metrics = keras_bert.finetune(tiny.learner(), data, data, show_progress=False, **QUICK)
    assert "accuracy_before_training" not in metrics  # its head was new
    first = metrics["accuracy"]
    _, metrics = keras_bert.finetune(model, data, data, show_progress=False, **QUICK)
    assert metrics["accuracy_before_training"] == first


def test_a_resumed_run_keeps_the_score(tmp_path):
    class Stop(Exception):
        """Ends the first run before it deletes its state."""

    def fail(model, metrics):
        raise Stop

    encoder = tiny.encoder(pooling="mean")
    options = {"folder": tmp_path, "show_progress": False, **QUICK}
    with pytest.raises(Stop):
        keras_bert.finetune(encoder, PAIRS, PAIRS, on_end=fail, **options)
    _, metrics = keras_bert.finetune(encoder, PAIRS, PAIRS, **options)
    assert metrics["mrr@10_before_training"] > 0


@pytest.mark.parametrize("task", ["classification", "reranking"])
def test_a_model_that_is_of_no_use(task, capsys):
    data = tiny.examples() if task == "classification" else FOUND
    _, metrics = keras_bert.finetune(tiny.encoder(), data, data, learning_rate=1e-9, **QUICK)
    metric = metrics["metric"]
    baseline = {"accuracy": "majority", "mrr@10": "first_search_mrr@10"}[metric]
    assert metrics[metric] <= metrics[baseline]
    assert f"is not above {baseline}" in capsys.readouterr().err


def test_a_useful_model_gets_no_such_note(capsys):
    data = tiny.examples()
    options = {"epochs": 8, "batch_size": 8, "learning_rate": 0.01}
    _, metrics = keras_bert.finetune(tiny.learner(), data, data, **options)
    assert metrics["accuracy"] > metrics["majority"]
    assert "is not above" not in capsys.readouterr().err
