"""The loss of contrastive training of classifiers."""

from keras import ops

from keras_bert.layers.pooling import unit_length
from keras_bert.losses import MultipleNegativesRanking


class ClassContrast(MultipleNegativesRanking):
    """Trains texts of a class to have equal vectors, and texts of two classes orthogonal ones.

    The loss is the mean of (1 - cosine similarity) ** 2 over every two texts of a class, plus the
    mean of cosine similarity ** 2 over every two texts of different classes, plus `RANKING_WEIGHT`
    times the ranking loss of the base class. In benchmarks/RESULTS.md, squares alone were worse on
    support messages, and the ranking loss alone on tweets.
    """

    RANKING_WEIGHT = 0.3

    def __init__(self, scale=20.0, name="class_contrast"):
        super().__init__(scale, name=name)

    def _loss_per_row(self, y_true, y_pred):
        """Return the loss of each row of two texts, (batch,).

        `y_true` has the ids of the two texts and of their class, int (batch, 3).
        """
        ranking_loss = super()._loss_per_row(y_true, y_pred)
        text_ids = ops.concatenate([y_true[:, 0], y_true[:, 1]], axis=0)  # (2 * batch,)
        class_ids = ops.concatenate([y_true[:, 2], y_true[:, 2]], axis=0)
        vectors = unit_length(ops.concatenate([y_pred[:, 0], y_pred[:, 1]], axis=0))
        cosine = ops.matmul(vectors, ops.transpose(vectors))  # (2 * batch, 2 * batch)
        same_text = ops.cast(ops.equal(text_ids[:, None], text_ids), cosine.dtype)
        same_class = ops.cast(ops.equal(class_ids[:, None], class_ids), cosine.dtype)
        # A text that occurs several times counts as one.
        weight = 1 / ops.sum(same_text, axis=1)
        # A text is not compared with itself.
        weight_of_pair = weight[:, None] * weight * (1 - same_text)
        same_class_loss = _mean(ops.square(1 - cosine), weight_of_pair * same_class)
        other_class_loss = _mean(ops.square(cosine), weight_of_pair * (1 - same_class))
        return same_class_loss + other_class_loss + self.RANKING_WEIGHT * ranking_loss


def _mean(values, weights):
    """Return the weighted mean, or 0 if all weights are 0."""
    return ops.sum(weights * values) / ops.maximum(ops.sum(weights), 1e-9)
