"""Exact search of the nearest vectors, with NumPy."""

import numpy as np

from keras_bert.runtime.arguments import SIMILARITIES, as_integer, check_one_of

_BLOCK = 2**22  # numbers in a block of similarities; sorting it takes 110 MB


def similarity(first, second, kind="cosine"):
    """Compare each vector of one array with each of another.

    Args:
        first: Floats (n, width) or (width,).
        second: Floats (m, width) or (width,).
        kind: `"cosine"`, `"dot"`, or the negative distances `"euclidean"` and `"manhattan"`.

    Returns:
        A float32 array (n, m). A higher number means more similar.

    Raises:
        ValueError: If the widths differ or the kind is unknown.

    Example:

    >>> similarity([[1.0, 0.0]], [[2.0, 0.0], [0.0, 1.0]]).tolist()
    [[1.0, 0.0]]
    """
    first, second = _comparable(first, second, kind)
    if kind in ("cosine", "dot"):
        return first @ second.T
    from scipy.spatial import distance

    metric = "euclidean" if kind == "euclidean" else "cityblock"
    return -distance.cdist(first, second, metric).astype(np.float32)


def similarity_of_pairs(first, second, kind="cosine"):
    """Compare each vector of one array with the vector in the same row of another.

    Args:
        first: Floats (n, width) or (width,).
        second: Floats of the same shape.
        kind: See `similarity`.

    Returns:
        A float32 array (n,). A higher number means more similar.

    Raises:
        ValueError: If the shapes differ or the kind is unknown.

    Example:

    >>> similarity_of_pairs([[1, 0], [3, 4]], [[1, 2], [0, 0]], "euclidean").tolist()
    [-2.0, -5.0]
    """
    first, second = _comparable(first, second, kind)
    if first.shape != second.shape:
        raise ValueError(
            f"the vectors must have the same shape; received {first.shape} and {second.shape}"
        )
    if kind in ("cosine", "dot"):
        return (first * second).sum(axis=1)
    return -np.linalg.norm(first - second, 2 if kind == "euclidean" else 1, axis=1)


def top_k(queries, corpus, k=5, kind="cosine"):
    """Find the vectors of a corpus that are most similar to each query.

    The search is exact. It computes blocks of the similarities, so that its memory does not grow
    with the corpus.

    Args:
        queries: Floats (n, width) or (width,), such as from `keras_bert.pipeline(model).encode`.
        corpus: Floats (m, width). An array of `np.load(file, mmap_mode="r")` stays on disk.
        k: Number of vectors to find for each query, at most m are found.
        kind: See `similarity`.

    Returns:
        A tuple of arrays (n, k): the indices in the corpus, int64, the most similar one first, and
        the similarities, float32. The order of equal vectors is undefined.

    Raises:
        ValueError: If the widths differ, a vector holds NaN, `k` is below 1, or the kind is
            unknown.

    Example:

    >>> indices, scores = top_k([1.0, 0.0], [[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]], k=2)
    >>> indices.tolist(), scores.round(2).tolist()
    ([[1, 2]], [[1.0, 0.7099999785423279]])
    """
    k = as_integer("k", k, 1)
    queries = _vectors("queries", queries)
    if getattr(corpus, "ndim", None) != 2:
        corpus = _vectors("corpus", corpus)
    best = np.zeros((len(queries), 0), np.float32)
    indices = np.zeros((len(queries), 0), np.int64)
    rows = max(1, _BLOCK // max(len(queries), queries.shape[1], 1))
    for start in range(0, len(corpus), rows):
        block = _vectors("corpus", corpus[start : start + rows])
        block_indices = np.broadcast_to(np.arange(len(block)) + start, (len(queries), len(block)))
        # The best ones of earlier blocks compete with those of this block.
        scores = np.concatenate([best, similarity(queries, block, kind)], axis=1)
        candidates = np.concatenate([indices, block_indices], axis=1)
        chosen = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(scores, chosen, axis=1)
        indices = np.take_along_axis(candidates, chosen, axis=1)
    return indices, best


def unit_length(vectors):
    """Scale vectors (n, width) to length 1; vectors of zeros stay.

    Example:

    >>> unit_length(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    vectors = np.asarray(vectors)
    largest = np.abs(vectors).max(axis=-1, keepdims=True, initial=0)
    scaled = vectors / np.where(largest == 0, 1, largest)  # so that no square overflows
    length = np.linalg.norm(scaled, axis=-1, keepdims=True)
    return scaled / np.where(length == 0, 1, length)


def check_finite(vectors, model):
    """Raise an error if the vectors of the model with the name `model` hold NaN or infinity."""
    if not np.isfinite(vectors).all():
        raise ValueError(
            f"{model!r} returned NaN or infinity, so its weights are damaged. Load or train the "
            "model again"
        )


def _vectors(name, values):
    """Return values as a float32 array (n, width) without NaN."""
    vectors = np.atleast_2d(np.asarray(values, np.float32))
    if vectors.ndim != 2:
        raise ValueError(f"{name} must have the shape (n, width); received {vectors.shape}")
    if not np.isfinite(vectors).all():
        raise ValueError(f"{name} must not hold NaN or infinity")
    return vectors


def _comparable(first, second, kind):
    """Return two arrays of vectors; for the cosine with length 1."""
    check_one_of("kind", kind, SIMILARITIES)
    first = _vectors("first", first)
    second = _vectors("second", second)
    if kind == "cosine":
        return unit_length(first), unit_length(second)
    return first, second
