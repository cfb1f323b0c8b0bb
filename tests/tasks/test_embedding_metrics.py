"""Metrics of embeddings, held to scikit-learn, SciPy and ranx."""

import numpy as np
import pytest
import scipy.stats
from sklearn import metrics as sklearn_metrics

from keras_bert.tasks import embedding_metrics

QUERIES, DOCUMENTS, DEPTH = 20, 150, 100


@pytest.fixture
def ranking():
    """Return ranked documents (queries, 100), and the grades of the relevant ones."""
    rng = np.random.default_rng(2)
    found = np.stack([rng.permutation(DOCUMENTS)[:DEPTH] for _ in range(QUERIES)])
    relevant = [
        {
            int(document): float(rng.integers(1, 4))
            for document in rng.choice(DOCUMENTS, size, False)
        }
        for size in rng.integers(1, 30, QUERIES)
    ]
    return found, relevant


def test_ndcg_equals_scikit_learn(ranking):
    found, relevant = ranking
    expected = []
    for documents, grades in zip(found, relevant, strict=True):
        truth = np.array([[grades.get(number, 0.0) for number in range(DOCUMENTS)]])
        scores = np.full((1, DOCUMENTS), -np.inf)
        scores[0, documents] = -np.arange(DEPTH)
        expected.append(sklearn_metrics.ndcg_score(truth, np.maximum(scores, -1e9), k=10))
    ours = embedding_metrics.of_ranking(found, relevant)
    assert ours["ndcg@10"] == pytest.approx(np.mean(expected))


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore:unsafe cast")  # of numba
def test_metrics_equal_ranx(ranking):
    ranx = pytest.importorskip("ranx")
    found, relevant = ranking
    qrels = ranx.Qrels(
        {
            f"q{number}": {f"d{document}": int(grade) for document, grade in grades.items()}
            for number, grades in enumerate(relevant)
        }
    )
    run = ranx.Run(
        {
            f"q{number}": {f"d{document}": float(-rank) for rank, document in enumerate(documents)}
            for number, documents in enumerate(found)
        }
    )
    names = list(embedding_metrics.RETRIEVAL)
    expected = ranx.evaluate(qrels, run, names)
    ours = embedding_metrics.of_ranking(found, relevant)
    for name in names:
        assert ours[name] == pytest.approx(expected[name], abs=1e-9), name


def test_a_perfect_and_a_missing_result():
    found = embedding_metrics.of_ranking(np.array([[4, 1], [2, 3]]), [{4: 1.0}, {9: 1.0}])
    assert set(found) == set(embedding_metrics.RETRIEVAL)
    assert set(found.values()) == {0.5}


def test_metrics_of_scores():
    vectors = np.random.default_rng(1).normal(size=(9, 2, 4)).astype("float32")
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    cosine = (unit[:, 0] * unit[:, 1]).sum(-1)
    scores = np.arange(9.0)
    found = embedding_metrics.of_scores(vectors, scores)
    assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(cosine, scores).statistic)
    assert found["pearson"] == pytest.approx(scipy.stats.pearsonr(cosine, scores).statistic)
    assert "average_precision" not in found
    labels = [0.0, 1.0] * 4 + [1.0]
    found = embedding_metrics.of_scores(vectors, labels)
    expected = sklearn_metrics.average_precision_score(labels, cosine)
    assert found["average_precision"] == pytest.approx(expected)


def test_constant_scores_have_no_correlation():
    assert embedding_metrics.of_scores(np.ones((3, 2, 4)), [1.0, 1.0, 1.0])["spearman"] == 0.0
