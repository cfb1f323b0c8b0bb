"""Slices of the data of every task."""

import dataclasses

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
    Examples(["a", "b", "c"], label_sets=[[0.7, 0.3], [1.0, 0.0], [0.0, 1.0]]),
    Examples(["a", "b", "c"], scores=[1, 2, 3], rows=[{"n": 1}, {"n": 2}, {"n": 3}]),
    TaggedSentences([["a"], ["b", "c"], ["d"]], [["O"], ["O", "B-x"], ["O"]]),
    TaggedSentences([["a"], ["b", "c"], ["d"]], [["-"], ["-", "B"], ["N"]]),
    Questions(["q", "r", "s"], ["a b"] * 3, [[("a", 0)], [], [("b", 2)]], ids=["1", "2", "3"]),
    Choices(["a", "b", "c"], [["d", "e"]] * 3, [0, 1, 0]),
    EmbeddingExamples([("a", "b"), ("c", "d"), ("e", "f")], scores=[1, 0, 1]),
    EmbeddingExamples([("a", "b"), ("c", "d"), ("e", "f")], classes=["x", "y", "x"]),
    EmbeddingExamples([("a", "b", "c")] * 3, document_scores=[[1, 0], [2, 1], [3, 2]]),
    RankingExamples(["q", "r", "s"], [["a"], ["b", "c"], ["d"]], [[1], [0, 1], [1]]),
    RankingExamples(["q", "r"], [["a"], []], [[1], []], missed=[[], [2]]),
]  # fmt: skip


@pytest.mark.parametrize("data", DATA, ids=lambda data: type(data).__name__)
@pytest.mark.parametrize("rows", [slice(1, None), slice(1), slice(None, None, -1)], ids=str)
def test_slices(data, rows):
    part = data[rows]
    assert type(part) is type(data)
    assert len(part) == len(range(len(data))[rows])
    assert part.source == data.source
    for name in data.row_fields:
        value = getattr(data, name)
        expected = None if value is None else value[rows]
        assert np.asarray(getattr(part, name) == expected).all()
    same = dataclasses.replace(part, source="others")
    for field in dataclasses.fields(data):
        value = getattr(same, field.name)
        expected = "others" if field.name == "source" else getattr(part, field.name)
        assert np.asarray(value == expected).all()


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
    with pytest.raises(TypeError, match="RetrievalData cannot be sliced"):
        data[:1]
    pairs = EmbeddingExamples([("a", "b"), ("c", "d")])
    with pytest.raises(ValueError, match="several data sets cannot be sliced. Slice each"):
        EmbeddingExamples.of_sets([pairs, pairs])[::-1]
    with pytest.raises(TypeError, match="not iterable"):
        iter(DATA[0])


def test_locations_of_a_slice():
    assert TaggedSentences([["a"], ["b"]])[1:].first == 2
    rows = [{"n": 1}]
    data = RankingExamples(["q"], [["a"]], rows=rows)
    assert data[:1].rows is None
