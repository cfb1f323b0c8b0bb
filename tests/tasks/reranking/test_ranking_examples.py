"""The data of reranking: checks, files, and the documents of a first search."""

import numpy as np
import pytest

import keras_bert
from keras_bert import EmbeddingExamples, Examples, RankingExamples, RetrievalData
from keras_bert.tasks.reranking.task import Reranking
from tests import tiny


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a"], []), "documents must have the same length as queries, 1; received 0"),
        ((["a"], [[]]), "row 1: the query has no documents"),
        ((["a"], ["bc"]), "documents of row 1 must be a list of strings; received one string"),
        ((["a"], [["b", 2]]), "documents of row 1 must be strings; received 2 in row 2"),
        (([3], [["b"]]), "queries must be strings; received 3"),
        ((["a"], [["b"]], [[1, 0]]), "must have a score for each of the 1 documents; received 2"),
        ((["a"], [["b"]], [["x"]]), "row 1: scores must be numbers; received 'x'"),
        ((["a"], [["b"]], [[float("nan")]]), "row 1: scores must be numbers; received nan"),
        ((["a"], [["b"]], [1]), "row 1: scores must be a list"),
    ],
)
def test_wrong_data(arguments, message):
    with pytest.raises(ValueError, match=message):
        RankingExamples(*arguments)


def test_pairs_are_grouped_by_query():
    pairs = Examples(["a", "b", "a"], text_pairs=["x", "y", "z"], scores=[1, 0.5, 0])
    data = RankingExamples.of_pairs(pairs)
    assert (data.queries, data.documents) == (["a", "b"], [["x", "z"], ["y"]])
    assert data.scores == [[1, 0], [0.5]]
    assert data.pairs() == [["a", "a", "b"], ["x", "z", "y"]]
    assert repr(data) == "<RankingExamples: 2 items with scores, from the examples>"
    with pytest.raises(ValueError, match="must have pairs of query and document"):
        RankingExamples.of_pairs(Examples(["a"], labels=["b"]))
    with pytest.raises(ValueError, match="row 1: scores must be numbers; received 'yes'"):
        RankingExamples.of_pairs(Examples(["a"], text_pairs=["b"], labels=["yes"]))


def test_rows_of_embeddings():
    data = RankingExamples.of_rows(EmbeddingExamples([("a", "x", "y"), ("b", "z", "x")]))
    assert data.documents == [["x", "y"], ["z", "x"]]
    assert data.scores == [[1, 0], [1, 0]]
    empty = RankingExamples.of_rows(EmbeddingExamples([("a", "x", "", "x"), ("b", "y", "z", " ")]))
    assert empty.documents == [["x"], ["y", "z"]]
    scored = RankingExamples.of_rows(EmbeddingExamples([("a", "x"), ("a", "y")], [0.5, 0]))
    assert (scored.documents, scored.scores) == ([["x", "y"]], [[0.5, 0]])
    with pytest.raises(ValueError, match="must be rows of query, positive and negatives"):
        RankingExamples.of_rows(EmbeddingExamples([("a", "b")], classes=["c"]))


def test_read_scores_and_negatives():
    rows = [
        {"query": "영화", "document": "좋은 영화", "score": 1, "worse": "나쁜 영화"},
        {"query": "영화", "document": "소리", "score": 0, "worse": "책"},
    ]
    columns = {"text": "query", "text_pair": "document"}
    scored = keras_bert.read(rows, "reranking", **columns, label="score")
    assert (scored.documents, scored.scores) == ([["좋은 영화", "소리"]], [[1, 0]])
    with_negatives = keras_bert.read(rows, "reranking", **columns, negatives="worse")
    assert with_negatives.documents == [["좋은 영화", "나쁜 영화"], ["소리", "책"]]
    assert with_negatives.scores == [[1, 0], [1, 0]]
    assert keras_bert.read(rows, "reranking", **columns).scores == [[1], [1]]
    with pytest.raises(ValueError, match="reranking needs text_pair"):
        keras_bert.read(rows, "reranking", text="query")


RETRIEVAL = RetrievalData(
    {"q1": "good films", "q2": "bad", "q3": "this"},
    {"d1": "this film is good", "d2": "a bad film", "d3": "so bad!", "d4": "is a"},
    {"q1": {"d1": 2, "d4": 1}, "q2": {"d2": 1}},
)


def test_documents_of_bm25():
    pytest.importorskip("bm25s")
    data = RankingExamples.of_retrieval(RETRIEVAL, "bm25", top_k=2)
    assert data.queries == ["good films", "bad"]  # the third one has no relevant document
    assert data.documents[0] == ["this film is good"]  # no other document has a word of the query
    assert set(data.documents[1]) == {"a bad film", "so bad!"}
    assert data.scores[0] == [2]
    assert sorted(data.scores[1]) == [0, 1]
    assert data.missed == [[1], []]


def test_bm25_finds_asian_texts_and_may_find_nothing():
    pytest.importorskip("bm25s")
    corpus = {"a": "한국어는 재미있다", "b": "深度学习很有用", "c": "영화를 봤다"}
    queries = {"1": "한국어를 배운다", "2": "深度学习", "3": "weather"}
    relevant = {"1": {"a"}, "2": {"b"}, "3": {"c"}}
    data = RankingExamples.of_retrieval(RetrievalData(queries, corpus, relevant), "bm25")
    assert data.documents == [["한국어는 재미있다"], ["深度学习很有用"], []]
    assert data.missed == [[], [], [1]]
    metrics = Reranking().metrics(None, data, [np.array([0.5]), np.array([0.2]), np.array([])])
    assert metrics["mrr@10"] == pytest.approx(2 / 3)


def test_bm25_of_texts_without_words():
    pytest.importorskip("bm25s")
    data = RetrievalData({"q": "!!"}, {"d": "", "f": "?"}, {"q": {"d": 1}})
    with pytest.raises(ValueError, match="no text of the corpus has a word"):
        RankingExamples.of_retrieval(data, "bm25")


def test_relevant_documents_for_training():
    embed = keras_bert.pipeline(tiny.embedder("mean"))
    data = RankingExamples.of_retrieval(RETRIEVAL, embed, top_k=1, add_relevant=True)
    assert data.missed is None
    assert [sorted(scores)[-1] for scores in data.scores] == [2, 1]
    for documents, scores in zip(data.documents, data.scores, strict=True):
        assert len(documents) == len(scores) == len(set(documents))


def test_documents_of_embeddings():
    embed = keras_bert.pipeline(tiny.embedder("mean"))
    data = RankingExamples.of_retrieval(RETRIEVAL, embed, top_k=10)
    assert list(map(len, data.documents)) == [4, 4]
    assert data.missed == [[], []]
    similarity = embed.encode("bad") @ embed.encode(data.documents[1]).T
    assert np.all(np.diff(similarity) <= 1e-6)
    with pytest.raises(ValueError, match='retriever must be "bm25" or the keras_bert.pipeline'):
        RankingExamples.of_retrieval(RETRIEVAL, "BM-25")
    with pytest.raises(ValueError, match="top_k must be an integer of at least 1"):
        RankingExamples.of_retrieval(RETRIEVAL, embed, top_k=0)
