"""Search in an inverted index, held to NumPy."""

import numpy as np
import pytest
from scipy import sparse

from keras_bert.tasks.sparse_embedding import inverted_index


def random_vectors(count, seed, width=40):
    """Return sparse vectors of few different weights, so that many scores are equal."""
    generator = np.random.default_rng(seed)
    weights = generator.integers(1, 3, (count, width)) * (generator.random((count, width)) < 0.15)
    return weights.astype(np.float32)


@pytest.mark.parametrize("k", [1, 7, 300])
def test_search_finds_the_texts_of_a_full_search(k):
    queries = random_vectors(70, 0)
    corpus = random_vectors(200, 1)
    indices, scores = inverted_index.top_k(queries, sparse.csr_array(corpus).tocsc(), k)
    products = queries @ corpus.T
    for row in range(len(queries)):
        order = np.argsort(-products[row], kind="stable")[:k]
        order = order[products[row][order] > 0]
        assert indices[row][: len(order)].tolist() == order.tolist()
        np.testing.assert_array_equal(scores[row][: len(order)], products[row][order])
        assert (indices[row][len(order) :] == -1).all()
        assert not scores[row][len(order) :].any()


def test_every_form_of_the_vectors_gives_the_same_answer():
    queries = random_vectors(3, 2)
    corpus = random_vectors(9, 3)
    expected = inverted_index.top_k(queries, corpus, 4)
    forms = [sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.coo_array]
    for form in (*forms, sparse.lil_array, sparse.dok_array):
        for values, wanted in zip(
            inverted_index.top_k(form(queries), form(corpus), 4), expected, strict=True
        ):
            np.testing.assert_array_equal(values, wanted)
    indices, _ = inverted_index.top_k(queries[0], corpus, 4)
    np.testing.assert_array_equal(indices, expected[0][:1])
    indices, _ = inverted_index.top_k([[1.0, 0.0]], sparse.coo_array(np.array([2.0, 0.0])))
    assert indices.tolist() == [[0]]


def test_the_strongest_terms_stay():
    vectors = inverted_index.as_rows([[1.0, 3.0, 0.0, 1.0, 2.0], [0.0, 0.0, 0.5, 0.0, 0.0]])
    kept = inverted_index.strongest(vectors, 3)
    assert kept.toarray().tolist() == [[1, 3, 0, 0, 2], [0, 0, 0.5, 0, 0]]
    assert kept.nnz == 4
    assert vectors.nnz == 5


@pytest.mark.parametrize(
    ("queries", "corpus", "message"),
    [
        ([[1.0, 0.0]], [[1.0, 0.0, 0.0]], "same width; received 2 for the queries and 3"),
        ([[np.nan, 0.0]], [[1.0, 0.0]], "NaN or infinity"),
        ([[1.0]], sparse.csr_array(np.array([[1.0], [np.nan]])), "NaN"),
        ([[1.0, 0.0]], np.ones((1, 1, 2)), "must have the shape"),
        ([["a", "b"]], [[1.0, 0.0]], "must be an array of numbers"),
    ],
)
def test_wrong_vectors(queries, corpus, message):
    with pytest.raises(ValueError, match=message):
        inverted_index.top_k(queries, corpus)
    with pytest.raises(ValueError, match="top_k must be an integer of at least 1"):
        inverted_index.top_k([[1.0, 0.0]], [[1.0, 0.0]], 0)


def test_the_callers_vectors_stay_as_they_are():
    vectors = sparse.csr_array(
        (np.array([2.0, 0.0, 1.0], np.float32), np.array([0, 1, 2]), np.array([0, 3])), (1, 3)
    )
    inverted_index.as_rows(vectors)
    assert vectors.data.tolist() == [2.0, 0.0, 1.0]
