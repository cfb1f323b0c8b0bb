"""Sparse vectors, and search in an inverted index, with SciPy.

A sparse vector is a row of a `scipy.sparse` array (texts, vocab) in the format CSR. The same array
in the format CSC is an inverted index: it lists the texts of each term.
"""

import numpy as np
from scipy import sparse

from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.arrays import as_numbers

_BLOCK = 64  # queries whose scores are in memory at once


def as_rows(vectors):
    """Return vectors as a CSR array (texts, vocab), float32, with sorted terms and without zeros.

    `vectors` are a sparse array or matrix, or floats (vocab,) or (texts, vocab).
    """
    if not sparse.issparse(vectors):
        vectors = np.atleast_2d(as_numbers("the vectors", vectors))
    elif vectors.ndim == 1:
        vectors = vectors.reshape(1, -1)
    if vectors.ndim != 2:
        raise ValueError(
            f"the vectors must have the shape (texts, vocab); received {vectors.shape}"
        )
    rows = sparse.csr_array(vectors, dtype=np.float32, copy=True)
    if not np.isfinite(rows.data).all():
        raise ValueError("the vectors must not hold NaN or infinity")
    rows.sum_duplicates()  # also sorts
    rows.eliminate_zeros()
    return rows


def stack(rows, width):
    """Return the vectors of a list of CSR arrays as one, (texts, width)."""
    if not rows:
        return sparse.csr_array((0, width), dtype=np.float32)
    return sparse.vstack(rows, format="csr")


def strongest(vectors, count):
    """Return the vectors with only the `count` largest weights of each.

    If weights are equal, the terms with the lower ids are kept.
    """
    count = as_integer("max_terms", count, 1)
    keeps = np.zeros(len(vectors.data), bool)
    for start, end in zip(vectors.indptr[:-1], vectors.indptr[1:], strict=True):
        order = np.argsort(-vectors.data[start:end], kind="stable")
        keeps[start + order[:count]] = True
    data = np.where(keeps, vectors.data, np.float32(0))
    pruned = sparse.csr_array((data, vectors.indices, vectors.indptr), vectors.shape, copy=True)
    pruned.eliminate_zeros()
    return pruned


def top_k(queries, corpus, k=10):
    """Find the vectors of a corpus with the largest dot products with each query.

    Only texts that share a term with the query are found. The cost of a query is the number of
    entries of its terms in the index.

    Args:
        queries: Sparse vectors (n, vocab).
        corpus: Sparse vectors (m, vocab). For many calls, give `corpus.tocsc()`.
        k: Number of texts to find for each query.

    Returns:
        A tuple of arrays (n, k): the indices in the corpus, int64, the best one first, and the
        scores, float32. Equal scores are in the order of the corpus. If fewer texts are found, the
        row ends in the index -1 and the score 0.

    Raises:
        ValueError: If the widths differ, a vector holds NaN, or `k` is below 1.

    Example:

    >>> corpus = sparse.csr_array([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [3.0, 0.0, 0.0]])
    >>> indices, scores = top_k([[1.0, 0.0, 0.0]], corpus.tocsc())
    >>> indices.tolist(), scores.tolist()
    ([[2, 0, -1]], [[3.0, 1.0, 0.0]])
    """
    k = as_integer("top_k", k, 1)
    queries = as_rows(queries)
    if not sparse.issparse(corpus) or corpus.ndim != 2:
        corpus = as_rows(corpus)
    corpus = corpus.tocsc()
    if not np.isfinite(corpus.data).all():
        raise ValueError("the corpus must not hold NaN or infinity")
    if queries.shape[1] != corpus.shape[1]:
        raise ValueError(
            f"the vectors must have the same width; received {queries.shape[1]} for the queries "
            f"and {corpus.shape[1]} for the corpus"
        )
    # The transpose of a CSC array is a CSR array of the same numbers, with a row for each term.
    texts_of_term = sparse.csr_array(corpus.T)
    k = min(k, corpus.shape[0])
    indices = np.full((queries.shape[0], k), -1, np.int64)
    scores = np.zeros((queries.shape[0], k), np.float32)
    for start in range(0, queries.shape[0], _BLOCK):
        products = queries[start : start + _BLOCK] @ texts_of_term  # (block, texts)
        for row, (first, last) in enumerate(
            zip(products.indptr, products.indptr[1:], strict=False)
        ):
            best, values = _largest(products.indices[first:last], products.data[first:last], k)
            indices[start + row, : len(best)] = best
            scores[start + row, : len(best)] = values
    return indices, scores


def _largest(texts, scores, k):
    """Return the `k` texts with the largest scores above 0, and their scores."""
    threshold = 0.0
    if len(scores) > k:
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
    is_candidate = (scores >= threshold) & (scores > 0)
    texts = texts[is_candidate]
    scores = scores[is_candidate]
    order = np.lexsort((texts, -scores))[:k]
    return texts[order], scores[order]
