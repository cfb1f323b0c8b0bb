"""Metrics of embeddings, held to scikit-learn, SciPy and ranx."""

import numpy as np
import pytest
import scipy.stats
from sklearn import metrics as sklearn_metrics

import keras_bert
from keras_bert.tasks.embedding import metrics as embedding_metrics
from keras_bert.tasks.embedding.task import Embedding
from tests import tiny
from tests.parameters import fast

embedding = Embedding()

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


def test_relevant_documents_are_the_last_ones_of_equal_scores():
    scores = [np.array([0.5, 0.5, 0.5, 0.1])]
    found = embedding_metrics.of_ranking([np.arange(4)], [{0: 1.0}], scores)
    assert found["mrr@10"] == pytest.approx(1 / 3)
    same = dict.fromkeys(range(200), np.array([1.0, 0.0]))
    found = embedding_metrics.of_retrieval({0: np.array([1.0, 0.0])}, same, {0: {0: 1.0}})
    assert found["mrr@10"] == 0


def test_a_perfect_and_a_missing_result():
    found = embedding_metrics.of_ranking(np.array([[4, 1], [2, 3]]), [{4: 1.0}, {9: 1.0}])
    assert set(found) == set(embedding_metrics.RETRIEVAL)
    assert set(found.values()) == {0.5}


def test_constant_scores_have_no_correlation():
    assert embedding_metrics.of_scores(np.ones((3, 2, 4)), [1.0, 1.0, 1.0])["spearman"] == 0.0


def similarity(vectors, kind):
    """Return the similarity of each pair of vectors, (pairs, 2, width)."""
    first, second = vectors.astype(float).transpose(1, 0, 2)
    if kind == "euclidean":
        return -np.sqrt(((first - second) ** 2).sum(axis=1))
    if kind == "manhattan":
        return -np.abs(first - second).sum(axis=1)
    dot = (first * second).sum(axis=1)
    if kind == "dot":
        return dot
    return dot / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)


KINDS = ("cosine", "dot", "euclidean", "manhattan")


@pytest.fixture(scope="module")
def scored():
    """Return pairs of texts of different lengths, and labels 0 and 1."""
    texts = ["good", "bad film", "so so good", "film", "a film is this", "bad", "this", "is good"]
    pairs = [(first, second) for first in texts for second in texts if first < second]
    labels = np.random.default_rng(3).integers(0, 2, len(pairs)).tolist()
    return keras_bert.EmbeddingExamples(pairs, labels)


@pytest.mark.parametrize("kind", fast(KINDS, "dot"))
def test_scored_pairs_are_compared_as_the_model_says(scored, kind):
    model = tiny.embedder("mean", [(3, "linear")], normalize=False, similarity=kind)
    embed = keras_bert.pipeline(model)
    vectors = np.array(embed.encode([text for row in scored.texts for text in row]))
    vectors = vectors.reshape(-1, 2, vectors.shape[-1])
    expected = similarity(vectors, kind)
    found = embed.evaluate(scored)
    labels = scored.scores
    assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(expected, labels).statistic)
    assert found["pearson"] == pytest.approx(scipy.stats.pearsonr(expected, labels).statistic)
    expected_precision = sklearn_metrics.average_precision_score(labels, expected)
    assert found["average_precision"] == pytest.approx(expected_precision)
    accepted = expected > found["accuracy_threshold"]
    assert found["accuracy"] == pytest.approx(np.mean(accepted == np.array(labels)))


@pytest.mark.parametrize("decimals", [6, 1])  # with one decimal, similarities are equal
def test_best_thresholds_of_labels(decimals):
    rng = np.random.default_rng(decimals)
    scores = rng.normal(size=40).round(decimals)
    labels = rng.integers(0, 2, 40)
    found = embedding_metrics.of_labels(scores, labels)
    distinct = np.unique(scores)
    middles = (distinct[1:] + distinct[:-1]) / 2
    thresholds = [*middles, distinct[-1] + 1, distinct[0] - 1]
    of_accuracy = {t: np.mean((scores > t) == labels) for t in thresholds}
    of_f1 = {t: sklearn_metrics.f1_score(labels, scores > t) for t in thresholds}
    assert found["accuracy"] == pytest.approx(max(of_accuracy.values()))
    assert of_accuracy[found["accuracy_threshold"]] == pytest.approx(found["accuracy"])
    assert found["f1"] == pytest.approx(max(of_f1.values()))
    accepted = scores > found["f1_threshold"]
    assert of_f1[found["f1_threshold"]] == pytest.approx(found["f1"])
    assert found["precision"] == pytest.approx(sklearn_metrics.precision_score(labels, accepted))
    assert found["recall"] == pytest.approx(sklearn_metrics.recall_score(labels, accepted))


@pytest.mark.parametrize("kind", fast(KINDS, "euclidean"))
def test_triplet_accuracy(kind):
    model = tiny.embedder("mean", [(3, "linear")], normalize=False, similarity=kind)
    rows = [("good", "so good", "bad film", "a"), ("bad", "is bad", "film", "so"),
            ("film", "a film", "is", "good")]  # fmt: skip
    embed = keras_bert.pipeline(model)
    is_right = []
    for row in rows:
        vectors = embed.encode(list(row))
        positive, *negatives = similarity(np.array([(vectors[0], v) for v in vectors[1:]]), kind)
        is_right += [positive > negative for negative in negatives]
    data = keras_bert.EmbeddingExamples(rows)
    assert embed.evaluate(data)["triplet_accuracy"] == pytest.approx(np.mean(is_right))
    assert "triplet_accuracy" not in embed.evaluate(
        keras_bert.EmbeddingExamples([row[:2] for row in rows])
    )


def test_thresholds_do_not_select_the_best_epoch(scored):
    output = tiny.embedder("mean").get_layer("output")
    found = embedding.score(output, scored, np.random.default_rng(1).normal(size=(28, 2, 4)))
    left_out = set(found) - set(embedding.metric_names(output, scored))
    assert left_out == {"accuracy_threshold", "f1_threshold"}
    rows = keras_bert.EmbeddingExamples([("good", "so good", "bad"), ("bad", "so bad", "good")])
    assert "triplet_accuracy" in embedding.metric_names(output, rows)


def test_a_threshold_may_accept_all_pairs_or_none():
    similarity = np.array([0.9, 0.7, 0.5])
    mostly_different = embedding_metrics.of_labels(similarity, [0, 0, 1])
    assert mostly_different["accuracy"] == pytest.approx(2 / 3)
    assert mostly_different["accuracy_threshold"] > 0.9
    assert (mostly_different["f1"], mostly_different["recall"]) == (0.5, 1.0)
    assert mostly_different["f1_threshold"] < 0.5
