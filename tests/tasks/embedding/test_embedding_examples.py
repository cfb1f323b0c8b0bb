"""Data of embedding training."""

import numpy as np
import pytest

import keras_bert
from keras_bert import EmbeddingExamples, Examples
from keras_bert.data import packing
from keras_bert.data.batching import Batches
from keras_bert.training.batch_plan import BatchPlan
from tests.tasks.embedding.test_embedding import encoder, rows


@pytest.mark.filterwarnings("ignore:.*texts were left out")
def test_classes_give_pairs_of_one_class():
    texts, labels = list("abcdefg"), ["x", "y", "x", "y", "x", "z", "y"]
    with pytest.warns(UserWarning, match="the data: 1 of 7 texts were left out, because no other"):
        examples = EmbeddingExamples.of_classes(Examples(texts, labels=labels, source="the data"))
    label_of = dict(zip(texts, labels, strict=True))
    assert sorted(row[0] for row in examples.texts) == list("abcdeg")  # "f" is alone
    for (first, second), label in zip(examples.texts, examples.classes, strict=True):
        assert first != second and label_of[first] == label_of[second] == label
    again = EmbeddingExamples.of_classes(Examples(texts, labels=labels))
    assert again.texts == examples.texts


def set_plan(sampling, batch_size=8):
    from keras_bert import heads
    from keras_bert.tasks.keras_predictor import KerasPredictor

    sets = [EmbeddingExamples(rows(24)), EmbeddingExamples(rows(60, seed=1), source="b")]
    examples = EmbeddingExamples.of_sets(sets)
    assert examples.set_sizes == (24, 60) and examples.source == "the pairs, b"
    model = heads.embedder(encoder())
    encoded = KerasPredictor(model).encode(examples, 32, sampling=sampling)
    return encoded, BatchPlan(model, encoded, batch_size, seed=0, epochs=2, losses=encoded.loss)


@pytest.mark.parametrize("packed", [True, False])
def test_batches_of_sets_are_proportional(packed):
    encoded, plan = set_plan("proportional")
    batches = plan.epoch(1) if packed else Batches(encoded, 8, (0, 1))
    assert isinstance(batches, packing.PackedRows) == packed
    numbers = [{int(row >= 24) for row in chosen} for chosen in batches.rows]
    assert all(len(each) == 1 for each in numbers), "a batch is of one set"
    assert sorted(np.concatenate(batches.rows)) == list(range(84))
    assert len(batches.rows) == plan.batches == 3 + 8
    assert plan.rows == 84


def test_batches_of_sets_take_turns():
    _, plan = set_plan("round_robin")
    numbers = [int(chosen[0] >= 24) for chosen in plan.epoch(0).rows]
    assert numbers == [0, 1, 0, 1, 0, 1]
    assert plan.batches == 6


def test_a_query_of_classes_does_not_find_itself():
    """All texts of a class have one vector: each of the others is a right answer."""
    from keras_bert.tasks.embedding.task import Embedding

    labels = ["x"] * 4 + ["y"] * 4
    examples = EmbeddingExamples.of_classes(Examples(list("abcdefgh"), labels=labels))
    vectors = np.eye(2)[[int(label == "y") for label in examples.classes]]
    found = Embedding().score(None, examples, [np.stack([row, row]) for row in vectors])
    assert found["mrr@10"] == found["map@100"] == found["recall@10"] == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EmbeddingExamples.of_sets([]), "the sets must all have"),
        (lambda: EmbeddingExamples.of_classes(Examples(["a"])), "must have single texts with lab"),
        (lambda: EmbeddingExamples([("a", "b")], vectors=[[1.0]]), "vectors need rows of 1 text"),
        (lambda: EmbeddingExamples([("a",)], vectors=[[np.nan]]), "vectors must be finite numbers"),
        (lambda: EmbeddingExamples([("a", "b")], classes=["x", "y"]), "same length"),
    ],
)
def test_wrong_data(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_scores_of_a_range_are_scaled(tmp_path):
    table = {"text": ["a", "b", "c"], "other": ["d", "e", "f"], "label": [0, 5, "2.5"]}
    options = {"text_pair": "other", "label": "label"}
    found = keras_bert.read(table, "embedding", **options, score_range=(0, 5))
    assert found.scores == [0.0, 1.0, 0.5]
    assert keras_bert.read(table, "embedding", **options).scores == [0.0, 5.0, 2.5]
    with pytest.raises(ValueError, match="the score 5 is not from 0 to 4, the score_range"):
        keras_bert.read(table, "embedding", **options, score_range=(0, 4))
    with pytest.raises(ValueError, match="score_range needs scores; name their column with label"):
        keras_bert.read(table, "embedding", text_pair="other", score_range=(0, 5))
    with pytest.raises(ValueError, match="apply only to pairs; give text_pair"):
        keras_bert.read(table, "embedding", score_range=(0, 5))
    with pytest.raises(ValueError, match="score_range does not apply to the task 'regression'"):
        keras_bert.read(table, "regression", score_range=(0, 5))


def test_empty_negatives_are_an_error():
    triplets = EmbeddingExamples([("a", "b", "c"), ("d", "e", "")])
    with pytest.raises(ValueError, match="row 2 is empty"):
        keras_bert.finetune(encoder(), triplets, show_progress=False)
