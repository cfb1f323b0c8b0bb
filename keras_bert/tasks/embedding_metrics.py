"""Metrics of embeddings: rank correlation of scored pairs, retrieval, and pair classification."""

import numpy as np

from keras_bert import search

DEPTH = 100  # results of a query that are looked at
_TOP = 10
RETRIEVAL = ("mrr@10", "ndcg@10", "map@100", "recall@1", "recall@10", "recall@100")


def of_scores(vectors, scores):
    """Return the metrics of scored pairs.

    Args:
        vectors: Embeddings of the pairs, floats (pairs, 2, width).
        scores: Scores of the pairs, floats (pairs,).

    Returns:
        The correlations `spearman` and `pearson` of the cosine similarities and the scores. If all
        scores are 0 or 1, also `average_precision` of the pairs with the score 1.

    Example:

    >>> found = of_scores(np.eye(2)[[[0, 0], [0, 1]]], [1.0, 0.0])
    >>> {name: round(value, 3) for name, value in found.items()}
    {'spearman': 1.0, 'pearson': 1.0, 'average_precision': 1.0}
    """
    from scipy import stats
    from sklearn import metrics

    first, second = search.unit_length(vectors[:, 0]), search.unit_length(vectors[:, 1])
    cosine = (first * second).sum(axis=1)
    found = {
        "spearman": _correlation(stats.spearmanr, cosine, scores),
        "pearson": _correlation(stats.pearsonr, cosine, scores),
    }
    if set(scores) == {0.0, 1.0}:
        found["average_precision"] = float(metrics.average_precision_score(scores, cosine))
    return found


def _correlation(function, first, second):
    if min(np.ptp(first), np.ptp(second)) == 0:  # the correlation with a constant is not defined
        return 0.0
    return float(function(first, second).statistic)


def of_vectors(vectors, wanted):
    """Return the mean cosine similarity of embeddings and the vectors that they should imitate.

    Example:

    >>> of_vectors(np.eye(2), np.eye(2))
    {'cosine': 1.0}
    """
    cosine = (search.unit_length(vectors) * search.unit_length(wanted)).sum(axis=1)
    return {"cosine": float(cosine.mean())}


def of_retrieval(queries, corpus, relevant, excluded=None, kind="cosine"):
    """Search a corpus for each query, and return the metrics of `of_ranking`.

    Args:
        queries: Embeddings of the queries, floats (n, width).
        corpus: Embeddings of the documents, floats (m, width).
        relevant: See `of_ranking`.
        excluded: For each query, the number of a document that is not a result, or `None`.
        kind: See `search.similarity`.
    """
    found, _ = search.top_k(queries, corpus, DEPTH + 1, kind)
    if excluded is not None:
        found = [row[row != number] for row, number in zip(found, excluded, strict=True)]
    return of_ranking(found, relevant)


def of_ranking(found, relevant):
    """Return the metrics of ranked documents, means over the queries.

    Args:
        found: Numbers of the documents found for each query, the best one first, int arrays.
        relevant: For each query, a dict of the numbers of its relevant documents and their grades.

    Returns:
        A dict: `mrr@10`, the mean of 1 / rank of the first relevant document; `ndcg@10`;
        `map@100`, the mean average precision; `recall@1`, `recall@10` and `recall@100`.

    Source: Manning et al. (2008), Introduction to Information Retrieval, section 8.4; nDCG as in
    Järvelin and Kekäläinen (2002), with the grades as gains.

    Example:

    >>> of_ranking(np.array([[3, 1]]), [{1: 1.0}])["mrr@10"]
    0.5
    """
    discount = 1 / np.log2(np.arange(_TOP) + 2)
    rows = []
    for documents, grades in zip(found, relevant, strict=True):
        gains = np.array([grades.get(int(document), 0.0) for document in documents[:DEPTH]])
        hits = gains > 0
        ideal = np.sort(list(grades.values()))[::-1][:_TOP]
        precision = np.cumsum(hits) / (np.arange(len(hits)) + 1)
        top = hits[:_TOP]
        rows.append(
            (
                1 / (top.argmax() + 1) if top.any() else 0.0,
                (discount[: len(top)] * gains[:_TOP]).sum()
                / (discount[: len(ideal)] * ideal).sum(),
                (precision * hits).sum() / len(grades),
                *(hits[:count].sum() / len(grades) for count in (1, _TOP, DEPTH)),
            )
        )
    return dict(zip(RETRIEVAL, np.mean(rows, axis=0).tolist(), strict=True))
