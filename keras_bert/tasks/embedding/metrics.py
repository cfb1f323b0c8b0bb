"""Metrics of embeddings: rank correlation of scored pairs, retrieval, and pair classification."""

import collections.abc

import numpy as np

from keras_bert.tasks.embedding import nearest as search

DEPTH = 100  # results per query that the metrics take into account
_TOP = 10  # results per query of the metrics "@10"
# Metrics of `of_labels` that can select an epoch, so without the thresholds.
OF_LABELS = ("average_precision", "accuracy", "f1", "precision", "recall")
RETRIEVAL = ("mrr@10", "ndcg@10", "map@100", "recall@1", "recall@10", "recall@100")


class OtherTexts(collections.abc.Mapping):
    """The texts of a class without one of them, with the grade 1.

    A dict for each text of a class would take the square of the size of the class.
    """

    def __init__(self, texts, own):
        self._texts = texts
        self._own = own

    def __getitem__(self, text):
        if text == self._own:
            raise KeyError(text)
        return self._texts[text]

    def __iter__(self):
        return (text for text in self._texts if text != self._own)

    def __len__(self):
        return len(self._texts) - (self._own in self._texts)


def of_scores(vectors, scores, kind="cosine"):
    """Return the metrics of scored pairs.

    Args:
        vectors: Embeddings of the pairs, floats (pairs, 2, width).
        scores: Scores of the pairs, floats (pairs,).
        kind: How to compare the embeddings, see `nearest.similarity`.

    Returns:
        A dict: the correlations `spearman` and `pearson` of the similarities and the scores. If all
        scores are 0 or 1, also `average_precision` of the pairs with the score 1, and the metrics
        of `of_labels`.

    Example:

    >>> values = of_scores(np.eye(2)[[[0, 0], [0, 1]]], [1.0, 0.0])
    >>> {name: round(values[name], 3) for name in ("spearman", "pearson", "average_precision")}
    {'spearman': 1.0, 'pearson': 1.0, 'average_precision': 1.0}
    """
    from scipy import stats

    similarity = search.similarity_of_pairs(vectors[:, 0], vectors[:, 1], kind)
    values = {
        "spearman": _correlation(stats.spearmanr, similarity, scores),
        "pearson": _correlation(stats.pearsonr, similarity, scores),
    }
    if are_labels(scores):
        values |= of_scored_labels(similarity, scores)
    return values


def of_scored_labels(similarity, labels):
    """Return `average_precision` of the pairs with the label 1, and the metrics of `of_labels`."""
    from sklearn import metrics

    average_precision = float(metrics.average_precision_score(labels, similarity))
    return {"average_precision": average_precision, **of_labels(similarity, labels)}


def are_labels(scores):
    """Return True if all scores are 0 or 1, and both occur."""
    return set(scores) == {0.0, 1.0}


def of_labels(similarity, labels):
    """Return the metrics of pairs that are accepted if their similarity exceeds a threshold.

    Each threshold is the middle between two neighboring values of the sorted similarities. One more
    is above all similarities, and one below.

    Args:
        similarity: Similarity of each pair, floats (pairs,).
        labels: 1 for the pairs to accept and 0 for the others, (pairs,).

    Returns:
        A dict: the best `accuracy`, and its `accuracy_threshold`; the best `f1` of the pairs with
        the label 1, with its `precision`, its `recall` and its `f1_threshold`.

    Example:

    >>> values = of_labels(np.array([0.9, 0.7, 0.5]), [1, 0, 0])
    >>> values["accuracy"], round(values["accuracy_threshold"], 3), values["f1"]
    (1.0, 0.8, 1.0)
    """
    # For the similarities 0.9, 0.7, 0.5 with the labels 1, 0, 0:
    #     thresholds  0.8  0.6   1.9   -0.5
    #     accepted    1    2     0     3     (pairs above the threshold)
    #     hits        1    1     0     1     (accepted pairs with the label 1)
    #     accuracy    1.0  0.67  0.67  0.33
    # Of equal values, `argmax` finds the first one, so the outer thresholds come last.
    order = np.argsort(-similarity, kind="stable")
    ranked = np.asarray(similarity, float)[order]
    is_positive = np.asarray(labels)[order] == 1
    positives = is_positive.sum()
    # A threshold accepts all pairs of equal similarity or none of them.
    inner = np.flatnonzero(np.diff(ranked)) + 1
    middles = (ranked[inner - 1] + ranked[inner]) / 2
    thresholds = np.append(middles, [ranked[0] + 1, ranked[-1] - 1])
    accepted = np.append(inner, [0, len(ranked)])
    hits = np.append(0, np.cumsum(is_positive))[accepted]
    rejected_negatives = (~is_positive).sum() - (accepted - hits)
    accuracy = (hits + rejected_negatives) / len(ranked)
    precision = hits / np.maximum(accepted, 1)
    recall = hits / positives
    f1 = 2 * hits / (accepted + positives)
    best_accuracy = accuracy.argmax()
    best_f1 = f1.argmax()
    values = {
        "accuracy": accuracy[best_accuracy],
        "accuracy_threshold": thresholds[best_accuracy],
        "f1": f1[best_f1],
        "precision": precision[best_f1],
        "recall": recall[best_f1],
        "f1_threshold": thresholds[best_f1],
    }
    return {name: float(value) for name, value in values.items()}


def of_triplets(rows, kind="cosine"):
    """Return the share of negatives that are less similar to the first text than the positive.

    Args:
        rows: Embeddings of a text, its positive and its negatives, a list of floats (texts, width).
        kind: See `nearest.similarity`.

    Example:

    >>> of_triplets([np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])])
    {'triplet_accuracy': 1.0}
    """
    is_right = []
    for first, *others in rows:
        similarities = search.similarity(first, others, kind)[0]
        positive, *negatives = similarities
        is_right += [positive > negative for negative in negatives]
    return {"triplet_accuracy": float(np.mean(is_right))}


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


def of_retrieval(queries, corpus, relevant, kind="cosine"):
    """Search a corpus for each query, and return the metrics of `of_ranking`.

    Args:
        queries: Embeddings of the queries, a dict of floats (width,).
        corpus: Embeddings of the documents, a dict of floats (width,).
        relevant: For each query, a dict {key of a relevant document: grade}. Queries without
            relevant documents are not scored. A query does not find the document with its own key
            unless that is relevant, as in BEIR.
        kind: See `nearest.similarity`.
    """

    def find(scored):
        vectors = np.array([queries[query] for query in scored])
        return search.top_k(vectors, np.array(list(corpus.values())), DEPTH + 1, kind)

    return of_search(queries, corpus, relevant, find)


def of_search(queries, corpus, relevant, find):
    """Return the metrics of `of_ranking` for a search.

    Args:
        queries, corpus: Keys of the queries and of the documents.
        relevant: See `of_retrieval`.
        find: Function of keys of queries that returns the indices of the best `DEPTH` + 1 documents
            for each, int (queries, documents), and their scores, float (queries, documents).
    """
    keys = list(corpus)
    index_of = {key: index for index, key in enumerate(keys)}
    scored = [query for query in queries if relevant.get(query)]
    if not scored:
        raise ValueError("no text has a relevant text other than itself; there is nothing to score")
    ranking = []
    scores = []
    for query, documents, similarities in zip(scored, *find(scored), strict=True):
        is_kept = np.ones(len(documents), bool)
        if query not in relevant[query]:
            is_kept = documents != index_of.get(query)
        ranking.append([keys[index] for index in documents[is_kept]])
        scores.append(similarities[is_kept])
    return of_ranking(ranking, [relevant[query] for query in scored], scores)


def of_ranking(ranking, relevant, scores=None):
    """Return the metrics of ranked documents, means over the queries.

    Args:
        ranking: For each query, the keys of the documents found, best first.
        relevant: For each query, a dict {key of a relevant document: grade}, or `OtherTexts`.
        scores: For each query, the scores of the documents found, a float array. Among documents
            with the same score, the relevant ones count as last, so that equal scores for all
            documents are not a success.

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
    # Queries of a class can share their grades.
    distinct = {id(grades): grades for grades in relevant}
    ideals = {key: _ideal_gains(grades) for key, grades in distinct.items()}
    rows = []
    for query, (documents, grades) in enumerate(zip(ranking, relevant, strict=True)):
        gains = np.array([grades.get(document, 0.0) for document in documents])
        if scores is not None:
            gains = gains[np.lexsort((gains, -scores[query]))]
        gains = gains[:DEPTH]
        hits = gains > 0
        ideal = ideals[id(grades)]
        precision = np.cumsum(hits) / (np.arange(len(hits)) + 1)
        top = hits[:_TOP]
        reciprocal_rank = 1 / (top.argmax() + 1) if top.any() else 0.0
        discounted_gain = (discount[: len(top)] * gains[:_TOP]).sum()
        ideal_gain = (discount[: len(ideal)] * ideal).sum()
        average_precision = (precision * hits).sum() / len(grades)
        recalls = [hits[:count].sum() / len(grades) for count in (1, _TOP, DEPTH)]
        rows.append((reciprocal_rank, discounted_gain / ideal_gain, average_precision, *recalls))
    return dict(zip(RETRIEVAL, np.mean(rows, axis=0).tolist(), strict=True))


def _ideal_gains(grades):
    """Return the gains of the first documents of a perfect ranking."""
    if isinstance(grades, OtherTexts):
        return np.ones(min(len(grades), _TOP))
    return np.sort(list(grades.values()))[::-1][:_TOP]
