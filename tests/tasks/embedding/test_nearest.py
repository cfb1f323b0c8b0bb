"""Exact search, compared with a full sort."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from keras_bert.tasks.embedding import nearest as search


def expected(queries, corpus, k):
    cosine = search.similarity(queries, corpus)
    order = np.argsort(-cosine, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(cosine, order, axis=1)


@pytest.mark.parametrize("block", [2**24, 64])
def test_top_k(monkeypatch, block):
    monkeypatch.setattr(search, "_BLOCK", block)
    if block == 64:
        monkeypatch.setattr(search, "_QUERIES", 3)
    rng = np.random.default_rng(0)
    queries, corpus = rng.normal(size=(7, 5)), rng.normal(size=(203, 5)).astype("float32")
    corpus[17] = corpus[5] * 2  # equal cosines stay in order
    indices, scores = search.top_k(queries, corpus, 10)
    order, cosine = expected(queries, corpus, 10)
    np.testing.assert_allclose(scores, cosine, atol=1e-6)
    assert np.mean(indices == order) > 0.99


def test_the_memory_does_not_grow_with_the_corpus():
    queries, corpus = np.ones((2000, 8), "float32"), np.ones((40_000, 8), "float32")
    tracemalloc.start()
    try:
        search.top_k(queries, corpus, 5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 32e6 < peak < 200e6  # all similarities would take 320 MB


def test_small_corpora_and_one_query():
    indices, scores = search.top_k([1.0, 0.0], [[0.0, 0.0], [1.0, 1.0]], 5)
    assert (indices.tolist(), scores.shape) == ([[1, 0]], (1, 2))
    indices, scores = search.top_k([[1.0, 0.0]], np.zeros((0, 2)), 5)
    assert indices.shape == scores.shape == (1, 0)


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_squares_that_overflow(size):
    np.testing.assert_allclose(search.similarity([[size, size]], [[size, 0]]), 0.5**0.5, rtol=1e-6)
    corpus = np.float32([[size, 0.0], [size, size], [0.0, 0.0]])
    indices, scores = search.top_k([1.0, 1.0], corpus, 3)
    assert indices.tolist() == [[1, 0, 2]]
    np.testing.assert_allclose(scores, [[1, 0.5**0.5, 0]], atol=1e-6)


@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "manhattan"])
def test_no_vectors(kind):
    assert search.similarity(np.zeros((0, 3)), np.ones((2, 3)), kind).shape == (0, 2)


def test_corpus_on_disk(tmp_path):
    corpus = np.eye(4, dtype="float32")
    np.save(tmp_path / "vectors.npy", corpus)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    assert search.top_k(corpus, mapped, 1)[0].ravel().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarity(kind):
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))
    for i, j in np.ndindex(3, 5):
        a, b = first[i], second[j]
        wanted = {
            "cosine": a @ b / np.linalg.norm(a) / np.linalg.norm(b),
            "dot": a @ b,
            "euclidean": -np.linalg.norm(a - b),
            "manhattan": -np.abs(a - b).sum(),
        }[kind]
        found = search.similarity(first, second, kind)[i, j]
        np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: search.top_k([[1.0]], [[1.0, 2.0]]), "same width; received 1 and 2"),
        (lambda: search.top_k([[1.0]], [[np.inf]]), "corpus must not hold NaN"),
        (lambda: search.top_k([[1.0]], [[np.nan]], kind="dot"), "corpus must not hold NaN"),
        (lambda: search.top_k([[1.0]], [[np.nan]], kind="euclidean"), "corpus must not hold NaN"),
        (lambda: search.top_k([[1.0]], sparse.csr_array([[1.0]])), "corpus must not be sparse"),
        (lambda: search.top_k([["a"]], [[1.0]]), "queries must be an array of numbers"),
        (lambda: search.calibrate([[1, 2], [1]]), "vectors must be an array of numbers"),
        (lambda: search.top_k([[1.0]], [[1.0]], k=0), "k must be an integer"),
        (lambda: search.similarity([[1.0]], [[1.0]], "x"), "kind must be one of"),
        (lambda: search.similarity(np.zeros((1, 1, 1)), [[1.0]]), "must have the shape"),
    ],
)
def test_wrong_inputs(call, message):
    with pytest.raises(ValueError, match=message):
        call()
