"""Losses of embedders, held to independent computations with NumPy."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import EmbeddingExamples, heads, losses
from keras_bert.tasks.keras_predictor import KerasPredictor
from tests import tiny

PAIRS = [("good film", "so good"), ("bad film", "so bad"), ("a film", "this film"), ("is", "this")]


def random_vectors(rows, texts, width=4):
    return np.random.default_rng(5).normal(size=(rows, texts, width)).astype("float32")


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


SCORES = np.array([1.0, 0.0, 0.5, 0.2], "float32")
IDS = np.arange(12).reshape(4, 3)
RELEVANCE = np.array([[1.0, 0.0, np.nan]] * 4, "float32")
TARGETS = {  # of the losses that do not rank documents; shapes of the outputs
    losses.MultipleNegativesRanking: (IDS, 3), losses.Triplet: (SCORES, 3),
    losses.CosineSimilarity: (SCORES, 2), losses.CoSENT: (SCORES, 2),
    losses.Contrastive: (SCORES, 2), losses.Distillation: (random_vectors(4, 1)[:, 0], 1),
    losses.Matryoshka: (SCORES, 2), losses.Splade: (np.column_stack([IDS, SCORES]), 3),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [kind for kind in vars(losses).values() if getattr(kind, "get_config", None) is not None
     and issubclass(kind, keras.losses.Loss) and not kind.__name__.startswith("_")],
)  # fmt: skip
def test_weights_are_amounts(kind):
    options = [losses.CosineSimilarity(), [2]] if kind is losses.Matryoshka else []
    targets, texts = TARGETS.get(kind, (RELEVANCE, None))
    outputs = random_vectors(4, 3)[:, :, 0] if texts is None else random_vectors(4, texts)
    loss = kind(*options)
    rows = keras.ops.convert_to_numpy(loss.call(targets, outputs))
    weights = np.array([2.0, 0.0, 5.0, 1.0], "float32")
    for scale in (1, 3):
        value = float(loss(targets, outputs, scale * weights))
        assert value == pytest.approx(scale * np.mean(rows * weights), rel=1e-5)


@pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
def test_triplet_with_another_distance(distance):
    vectors = random_vectors(6, 3)
    order = {"euclidean": 2, "manhattan": 1}[distance]
    near = np.linalg.norm(vectors[:, 0] - vectors[:, 1], order, axis=1)
    far = np.linalg.norm(vectors[:, 0] - vectors[:, 2], order, axis=1)
    loss = losses.Triplet(margin=5.0, distance=distance, reduction=None)
    expected = np.maximum(near - far + 5, 0)
    np.testing.assert_allclose(loss(np.zeros(6), vectors), expected, rtol=1e-5)
    again = losses.Triplet.from_config(loss.get_config())
    np.testing.assert_allclose(again(np.zeros(6), vectors), expected, rtol=1e-5)


def test_euclidean_distance_of_equal_vectors_has_a_gradient():
    import tensorflow as tf

    vectors = tf.Variable(np.ones((1, 3, 4), "float32"))
    with tf.GradientTape() as tape:
        value = losses.Triplet(distance="euclidean")(np.zeros(1), vectors)
    assert np.isfinite(tape.gradient(value, vectors)).all()


def test_unknown_distance():
    with pytest.raises(ValueError, match="distance must be one of cosine, euclidean, manhattan"):
        losses.Triplet(distance="dot")


def test_widths_of_matryoshka(eager):
    for dims in ([4, -1], [2.5], [True]):
        with pytest.raises(ValueError, match="dims must be an integer of at least 1"):
            losses.Matryoshka(losses.CosineSimilarity(), dims)
    with pytest.raises(ValueError, match="dims must be at most 4.*received"):
        losses.Matryoshka(losses.CosineSimilarity(), [5, 2])(np.ones(3), random_vectors(3, 2))
    model = heads.siamese(tiny.embedder("mean"))
    model.compile(loss=losses.Matryoshka(losses.CosineSimilarity(), [9]))
    inputs = {name: np.ones((2, 2, 3), "int32") for name in model.input}
    with pytest.raises(ValueError, match="dims must be at most 8"):
        model.fit(inputs, np.ones(2), verbose=0)


def test_contrastive_warns_of_other_scores():
    data = EmbeddingExamples(PAIRS, [0, 0.25, 1, 1])
    with pytest.warns(UserWarning, match="scores 0 and 1; 1 of 4 scores .* 0.25"):
        KerasPredictor(tiny.embedder("mean")).encode(data, loss="contrastive")
    data = EmbeddingExamples(PAIRS, [0, 1, 1, 1])
    KerasPredictor(tiny.embedder("mean")).encode(data, loss="contrastive")  # warnings fail tests


def test_symmetric_ranking_with_classes():
    # Row 3 has the query of row 0, a class of its own, and row 4 the class of row 0.
    ids = np.array([[0, 1, 7], [2, 3, 8], [4, 1, 9], [0, 5, 6], [6, 2, 7]])
    classes = ids[:, 2]
    vectors = unit(random_vectors(5, 2))
    vectors[2, 1] = vectors[0, 1]  # equal texts
    vectors[3, 0] = vectors[0, 0]
    vectors[4, 1] = vectors[1, 0]
    scores = 20 * vectors[:, 0] @ vectors[:, 1].T

    def direction(scores, candidates):
        found = []
        for row in range(len(ids)):
            of_class = set(candidates[classes == classes[row]])
            negatives = {
                text: scores[row, other]
                for other, text in enumerate(candidates)
                if text not in of_class
            }
            values = np.array([scores[row, row], *negatives.values()])
            found.append(np.log(np.exp(values).sum()) - scores[row, row])
        return np.array(found)

    expected = (direction(scores, ids[:, 1]) + direction(scores.T, ids[:, 0])) / 2
    loss = losses.MultipleNegativesRanking(symmetric=True, reduction=None)
    np.testing.assert_allclose(loss(ids, vectors), expected, rtol=1e-4, atol=1e-5)


# "mean" is trained on packed rows.
@pytest.mark.parametrize("pooling", ["mean", pytest.param("cls", marks=pytest.mark.slow)])
def test_embeddings_of_width_1(pooling):
    model = tiny.embedder(pooling, [(1, "linear")], normalize=False)
    assert heads.siamese(model).output_shape == (None, None, 1)
    data = EmbeddingExamples(PAIRS, [0, 1, 0, 1])
    options = {"epochs": 1, "batch_size": 2, "show_progress": False, "learning_rate": 1e-9}
    with tiny.eagerly():
        model, metrics = keras_bert.finetune(model, data, data, loss="cosine_similarity", **options)
    embed = keras_bert.pipeline(model)
    vectors = np.array([embed.encode(list(row)) for row in PAIRS])
    assert vectors.shape == (4, 2, 1)
    cosine = np.sign(vectors[:, 0, 0] * vectors[:, 1, 0])
    expected = np.mean((cosine - np.array(data.scores)) ** 2)
    assert metrics["dev_loss"] == pytest.approx(expected, abs=1e-4)


def test_vectors_of_zeros_in_float16():
    loss = losses.CosineSimilarity(dtype="float16")
    vectors = np.float16([[[0.0, 0.0], [3.0, 4.0]], [[300.0, 400.0], [300.0, 400.0]]])
    assert float(loss(np.float16([0.5, 1.0]), vectors)) == 0.125
