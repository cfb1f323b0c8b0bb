"""Slices of the data of every task."""

import numpy as np
import pytest

from keras_bert import (
    Choices,
    EmbeddingExamples,
    Examples,
    Questions,
    RankingExamples,
    RetrievalData,
    TaggedSentences,
)

DATA = [
    Examples(list("abc"), text_pairs=list("def"), labels=[1, 0, 1], locations=list("xyz")),
    Examples(["a", "b", "c"], label_sets=[(), ("k",), ()], known_labels=["k", "l", "m"]),
    Examples(["a", "b", "c"], scores=[1, 2, 3], rows=[{"n": 1}, {"n": 2}, {"n": 3}]),
    TaggedSentences([["a"], ["b", "c"], ["d"]], [["O"], ["O", "B-x"], ["O"]]),
    Questions(["q", "r", "s"], ["a b"] * 3, [[("a", 0)], [], [("b", 2)]], ids=["1", "2", "3"]),
    Choices(["a", "b", "c"], [["d", "e"]] * 3, [0, 1, 0]),
    EmbeddingExamples([("a", "b"), ("c", "d"), ("e", "f")], scores=[1, 0, 1]),
    EmbeddingExamples([("a",), ("b",), ("c",)], vectors=np.eye(3)),
    RankingExamples(["q", "r", "s"], [["a"], ["b", "c"], ["d"]], [[1], [0, 1], [1]]),
]  # fmt: skip


@pytest.mark.parametrize("data", DATA, ids=lambda data: type(data).__name__)
def test_slices(data):
    part = data[1:]
    assert type(part) is type(data)
    assert len(part) == 2
    assert part.source == data.source
    for name in data.row_fields:
        value = getattr(data, name)
        expected = None if value is None else value[1:]
        assert np.asarray(getattr(part, name) == expected).all()


def test_every_class_of_data_is_tested():
    from keras_bert.tasks import registry

    kinds = {kind for task in registry.TASKS for kind in task.data} - {RetrievalData}
    assert {type(data) for data in DATA} >= kinds


def test_known_labels_are_kept():
    assert DATA[1][:2].known_labels == ["k", "l", "m"]


def test_other_indices():
    with pytest.raises(TypeError, match=r"Examples takes slices, such as data\[:100\]; received 0"):
        DATA[0][0]
    data = RetrievalData({"q": "a"}, {"d": "b"}, {"q": {"d"}})
    with pytest.raises(TypeError, match="RetrievalData has no rows"):
        data[:1]
