"""Exact search of the nearest vectors, with NumPy."""

from collections.abc import Sequence

import numpy as np

from keras_bert.runtime.arguments import SIMILARITIES, as_integer, check_one_of, is_dataframe
from keras_bert.runtime.arrays import as_numbers
from keras_bert.tasks.embedding.precision import QuantizedVectors, calibrate, is_binary, quantize

__all__ = [
    "QuantizedVectors",
    "calibrate",
    "quantize",
    "similarity",
    "similarity_of_pairs",
    "top_k",
]

_BLOCK = 2**22  # numbers in a block of similarities; sorting it takes 110 MB
_QUERIES = 2**11  # queries in a block; a block of similarities then has 2**11 vectors, too
_CACHED = 2**18  # numbers of a corpus that stay in the cache of a core
_SMALLEST = 1e-20  # squares of lengths that float32 holds well
_LARGEST = 1e20


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


def top_k(queries, corpus, k=5, kind="cosine", *, rescore_multiplier=4, originals=None):
    """Find the vectors of a corpus that are most similar to each query.

    The search compares each query with each vector, in blocks of queries and of vectors, so that
    its memory does not grow with the corpus. For `QuantizedVectors`, it finds
    `k * rescore_multiplier` candidates, and then scores these again:

    - int8 and uint8: the float32 query is compared with the decoded vectors. These scores are
      final, unless there are `originals`.
    - binary and ubinary: the candidates have the most signs in common with the query (Hamming
      distance). Then the float32 query is compared with their signs, 1 and -1.
    - all precisions, with `originals`: the float32 query is compared with the originals of the
      candidates.

    Args:
        queries: Floats (n, width) or (width,), such as from `keras_bert.pipeline(model).encode`.
        corpus: Floats (m, width), or `QuantizedVectors` of this width. An array of
            `np.load(file, mmap_mode="r")` stays on disk.
        k: Number of vectors to find for each query, at most m are found.
        kind: See `similarity`; `"cosine"` or `"dot"` for `QuantizedVectors`.
        rescore_multiplier: Candidates for each result. 0 scores nothing again: the scores are those
            of the candidates.
        originals: For `QuantizedVectors`, the floats (m, width) that were quantized. They can stay
            on disk: only candidates are read.

    Returns:
        A tuple of arrays (n, k): the indices in the corpus, int64, the most similar one first, and
        the similarities, float32. The order of equal vectors is undefined.

    Raises:
        ValueError: If the widths differ, a vector holds NaN, `k` is below 1, the kind is unknown,
            or an array is quantized, but is not in `QuantizedVectors`.

    Example:

    >>> indices, scores = top_k([1.0, 0.0], [[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]], k=2)
    >>> indices.tolist(), scores.round(2).tolist()
    ([[1, 2]], [[1.0, 0.7099999785423279]])
    """
    k = as_integer("k", k, 1)
    multiplier = as_integer("rescore_multiplier", rescore_multiplier, 0)
    queries = _vectors("queries", queries)
    if not isinstance(corpus, QuantizedVectors):
        if originals is not None:
            raise ValueError("originals applies to QuantizedVectors, and the corpus has floats")
        # An array of two axes stays on disk. SciPy's sparse arrays have two, too.
        if getattr(corpus, "ndim", None) != 2 or hasattr(corpus, "tocsr"):
            corpus = _vectors("corpus", corpus)
        _check_width(queries.shape[1], corpus.shape[1])
        return _best_of(corpus, queries, k, _scores_of_floats, kind)
    if isinstance(originals, Sequence) or is_dataframe(originals):
        originals = as_numbers("originals", originals)
    _check_quantized(queries, corpus, kind, originals)
    scores = _scores_of_bits if is_binary(corpus.precision) else _scores_of_steps
    rescores = multiplier > 0 and (originals is not None or is_binary(corpus.precision))
    count = k * multiplier if rescores else k
    best = _best_of(corpus, queries, count, scores, kind)
    return _rescored(queries, corpus, originals, best, k, kind) if rescores else best


def _best_of(corpus, queries, k, scores, kind):
    """Return the indices and the scores of the k best of a corpus, (queries, k) each.

    `scores` is a function from queries, the corpus and the kind to the function of
    `_best_of_block`.
    """
    indices = []
    best = []
    for start in range(0, max(1, len(queries)), _QUERIES):
        block = queries[start : start + _QUERIES]
        indices_of_block, best_of_block = _best_of_block(
            corpus, len(block), k, scores(block, corpus, kind)
        )
        indices.append(indices_of_block)
        best.append(best_of_block)
    return np.concatenate(indices), np.concatenate(best)


def _best_of_block(corpus, queries, k, scores_of):
    """Return the indices and the scores of the k best for a number of queries.

    `scores_of` returns the scores of a slice of the corpus, (queries, rows).
    """
    numbers = max(1, _numbers(corpus))
    step = max(1, _CACHED // numbers)
    rows = max(1, _BLOCK // max(queries, numbers))
    best = np.zeros((queries, 0), np.float32)
    indices = np.zeros((queries, 0), np.int64)
    for start in range(0, len(corpus), rows):
        stop = min(start + rows, len(corpus))
        parts = [slice(row, min(row + step, stop)) for row in range(start, stop, step)]
        scores = np.concatenate([scores_of(part) for part in parts], axis=1)
        chosen = _largest(scores, k)
        # The best ones of earlier blocks compete with those of this block.
        best = np.concatenate([best, np.take_along_axis(scores, chosen, axis=1)], axis=1)
        indices = np.concatenate([indices, chosen + start], axis=1)
        order = np.argsort(-best, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(best, order, axis=1)
        indices = np.take_along_axis(indices, order, axis=1)
    return indices, best


def _numbers(corpus):
    """Return how many float32 numbers take the memory that a vector needs in a search."""
    if isinstance(corpus, QuantizedVectors):
        return corpus.values.shape[1] // 4 if is_binary(corpus.precision) else corpus.width
    return corpus.shape[1]


def _largest(scores, k):
    """Return the indices of the k largest scores of each row, in the order of the indices."""
    if k >= scores.shape[1]:
        return np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    return np.sort(np.argpartition(scores, -k, axis=1)[:, -k:], axis=1)


def _check_quantized(queries, corpus, kind, originals):
    """Raise an error for a search whose scores would mean nothing."""
    check_one_of("kind of quantized vectors", kind, ("cosine", "dot"))
    width = queries.shape[1]
    _check_width(width, corpus.width)
    if originals is not None and np.shape(originals) != (len(corpus), width):
        raise ValueError(
            f"originals must be the array {(len(corpus), width)} that was quantized; received "
            f"{np.shape(originals)}"
        )


def _check_width(first, second):
    if first != second:
        raise ValueError(
            f"the vectors must have the same width; received {first} and {second}. Encode both "
            "with the same model and truncate_dim"
        )


def _scores_of_floats(queries, corpus, kind):
    """Return a function from a slice of float vectors to their scores (queries, rows)."""
    unit = unit_length(queries) if kind == "cosine" else queries

    def scores_of(rows):
        block = np.asarray(corpus[rows])
        if kind in ("cosine", "dot") and block.dtype == np.float32:
            with np.errstate(all="ignore"):
                scores = unit @ block.T
                if kind == "dot" and np.isfinite(scores).all():
                    return scores
                squares = np.einsum("ij,ij->i", block, block)
                if kind == "cosine" and ((squares > _SMALLEST) & (squares < _LARGEST)).all():
                    return scores / np.sqrt(squares)
        # Vectors with NaN, and those whose squares overflow or vanish.
        return similarity(queries, _vectors("corpus", block), kind)

    return scores_of


def _scores_of_steps(queries, corpus, kind):
    """Return a function from a slice of int8 or uint8 vectors to their scores (queries, rows).

    A vector is values * scale + offset. So its dot product with a query is that of the values with
    query * scale, plus that of the query with the offset.
    """
    if kind == "cosine":
        queries = unit_length(queries)
    scale, offset = corpus.scale_and_offset
    scaled = queries * scale
    constant = (queries @ offset)[:, None]

    def scores_of(block):
        scores = scaled @ corpus.values[block].astype(np.float32).T + constant
        if kind == "dot":
            return scores
        lengths = corpus.lengths[block]
        return scores / np.where(lengths == 0, 1, lengths)

    return scores_of


def _scores_of_bits(queries, corpus, kind):
    """Return a function from a slice of binary vectors to their scores (queries, rows).

    A score is the dot product of the signs of a query and of a vector, or for the cosine a number
    between -1 and 1.

    For a query 10110000 and a vector 10100000 of 8 numbers, one sign differs:

        differing = 1
        dot product of the signs = 8 - 2 * 1 = 6
        cosine = 6 / 8
    """
    # The offset of signed bytes changes the same bit on both sides.
    query_words = _words(quantize(queries, corpus.precision))
    unit = 1 if kind == "dot" else corpus.width

    def scores_of(block):
        words = _words(corpus.values[block])
        scores = np.empty((len(queries), len(words)), np.float32)
        for row, query in enumerate(query_words):
            differing = np.zeros(len(words), np.uint16)
            for column, word in enumerate(query):
                differing += np.bitwise_count(words[:, column] ^ word)
            scores[row] = (corpus.width - 2 * differing.astype(np.float32)) / unit
        return scores

    return scores_of


def _words(packed):
    """Return bytes (n, width / 8) as the fewest integers of 64 bits, (n, width / 64)."""
    if packed.shape[1] % 8:
        packed = np.pad(packed, [(0, 0), (0, -packed.shape[1] % 8)])
    return np.ascontiguousarray(packed).view(np.uint64)


def _rescored(queries, corpus, originals, candidates, k, kind):
    """Return the k best candidates of each query by the float32 query, with their scores."""
    indices, _ = candidates
    count = min(k, indices.shape[1])
    best = np.zeros((len(queries), count), np.float32)
    chosen = np.zeros((len(queries), count), np.int64)
    for row, query in enumerate(queries):
        rows = np.sort(indices[row])  # neighboring rows of a file together
        vectors = corpus.decode(rows) if originals is None else originals[rows]
        scores = similarity(query, vectors, kind)[0]
        order = np.argsort(-scores, kind="stable")[:k]
        best[row] = scores[order]
        chosen[row] = rows[order]
    return chosen, best


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
    from scipy import sparse

    if sparse.issparse(values):
        raise ValueError(f"{name} must not be sparse; use search of keras_bert.pipeline(model)")
    array = None if isinstance(values, QuantizedVectors) else as_numbers(name, values)
    if array is None or array.dtype in (np.int8, np.uint8):
        raise ValueError(
            f"{name} must be float32 embeddings, and these are quantized. Only the corpus of top_k "
            "can be quantized, as search.QuantizedVectors"
        )
    vectors = np.atleast_2d(array.astype(np.float32, copy=False))
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
    _check_width(first.shape[1], second.shape[1])
    if kind == "cosine":
        return unit_length(first), unit_length(second)
    return first, second
