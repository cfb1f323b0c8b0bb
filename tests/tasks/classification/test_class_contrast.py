"""The loss of contrastive training of classifiers."""

import numpy as np
from keras import ops

from keras_bert.losses import MultipleNegativesRanking
from keras_bert.tasks.classification.class_contrast import ClassContrast

TARGETS = np.array([[0, 1, 0], [2, 3, 0], [4, 5, 1], [5, 6, 1]], np.int32)  # texts and classes
VECTORS = np.random.default_rng(0).normal(size=(4, 2, 5)).astype("float32")
VECTORS[3, 0] = VECTORS[2, 1]  # text 5


def loss_of(targets, vectors, loss=None):
    """Return the loss of each row."""
    loss = loss or ClassContrast()
    targets, vectors = map(ops.convert_to_tensor, (targets, vectors))
    return ops.convert_to_numpy(loss.call(targets, vectors))


def test_every_two_texts_of_a_batch_are_compared_once():
    vectors = {}
    classes = {}
    for (first, second, label), (a, b) in zip(TARGETS, VECTORS, strict=True):
        vectors |= {first: a / np.linalg.norm(a), second: b / np.linalg.norm(b)}
        classes |= {first: label, second: label}
    near = []
    far = []
    for text in vectors:
        for other in range(text):
            cosine = vectors[text] @ vectors[other]
            if classes[text] == classes[other]:
                near.append((1 - cosine) ** 2)
            else:
                far.append(cosine**2)
    assert len(near) + len(far) == 21
    ranking = loss_of(TARGETS, VECTORS, MultipleNegativesRanking())
    expected = np.mean(near) + np.mean(far) + 0.3 * ranking
    np.testing.assert_allclose(loss_of(TARGETS, VECTORS), expected, rtol=1e-5)


def test_rows_that_fill_a_batch_change_nothing():
    """Such rows are copies of the first row."""
    targets = np.concatenate([TARGETS, TARGETS[:1]])
    vectors = np.concatenate([VECTORS, VECTORS[:1]])
    expected = loss_of(TARGETS, VECTORS)
    np.testing.assert_allclose(loss_of(targets, vectors)[:4], expected, rtol=1e-5)


def test_a_text_of_two_classes_is_not_compared_with_itself():
    """Its cosine similarity with itself is 1 and could not fall."""
    targets = np.array([[0, 1, 0], [0, 2, 1]], np.int32)
    vectors = VECTORS[:2].copy()
    vectors[1, 0] = vectors[0, 0]
    texts = [vectors[0, 0], vectors[0, 1], vectors[1, 1]]
    a, b, c = (text / np.linalg.norm(text) for text in texts)
    near = ((1 - a @ b) ** 2 + (1 - a @ c) ** 2) / 2
    far = ((a @ b) ** 2 / 2 + (a @ c) ** 2 / 2 + (b @ c) ** 2) / 2
    ranking = loss_of(targets, vectors, MultipleNegativesRanking())
    np.testing.assert_allclose(loss_of(targets, vectors), near + far + 0.3 * ranking, rtol=1e-5)


def test_a_batch_of_one_class():
    targets = np.array([[0, 1, 0], [2, 3, 0]], np.int32)
    assert np.isfinite(loss_of(targets, VECTORS[:2])).all()
