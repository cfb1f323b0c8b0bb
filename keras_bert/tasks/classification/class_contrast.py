"""The loss of contrastive training of classifiers."""

from keras import ops

from keras_bert.layers.pooling import unit_length
from keras_bert.losses import MultipleNegativesRanking


class ClassContrast(MultipleNegativesRanking):
    """Makes the vectors of a class equal, and those of other classes orthogonal.

    The loss is the mean square of (1 - cosine similarity) of every two texts of a class, plus the
    mean square of the cosine similarity of every two texts of other classes, plus `RANKING_WEIGHT`
    times the ranking loss of the base class. With squares alone, a batch of many classes teaches
    less; with ranks alone, texts that are hard to tell apart (see benchmarks/RESULTS.md).
    """

    RANKING_WEIGHT = 0.3

    def of_all_replicas(self, y_true, y_pred):
        """Return the loss of each row of two texts, (batch,).

        `y_true` has the ids of the two texts and of their class, int (batch, 3).
        """
        ranking = super().of_all_replicas(y_true, y_pred)
        texts = ops.concatenate([y_true[:, 0], y_true[:, 1]], axis=0)
        classes = ops.concatenate([y_true[:, 2], y_true[:, 2]], axis=0)
        vectors = unit_length(ops.concatenate([y_pred[:, 0], y_pred[:, 1]], axis=0))
        cosine = ops.matmul(vectors, ops.transpose(vectors))  # (2 * batch, 2 * batch)
        is_same_text = ops.cast(ops.equal(texts[:, None], texts), cosine.dtype)
        is_same_class = ops.cast(ops.equal(classes[:, None], classes), cosine.dtype)
        # A text that occurs several times counts as one, and is not compared with itself.
        weight = 1 / ops.sum(is_same_text, axis=1)
        weights = weight[:, None] * weight * (1 - is_same_text)
        near = _mean(ops.square(1 - cosine), weights * is_same_class)
        far = _mean(ops.square(cosine), weights * (1 - is_same_class))
        return near + far + self.RANKING_WEIGHT * ranking


def _mean(values, weights):
    """Return the weighted mean, or 0 if all weights are 0."""
    return ops.sum(weights * values) / ops.maximum(ops.sum(weights), 1e-9)
