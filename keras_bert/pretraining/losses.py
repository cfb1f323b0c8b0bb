"""Loss and accuracy over a vocabulary: its logits are the largest tensor of a training step."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_bert")
class PieceCrossentropy(keras.losses.Loss):
    """Cross-entropy of logits over a vocabulary, the mean over what has a weight.

    The numbers are those of `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`, in
    fewer passes over memory: of the logits' size there are only their powers and the gradient.

    Args:
        reduction, name: as for `keras.losses.Loss`; the default does not count empty slots.

    Example:

    >>> loss = PieceCrossentropy()
    >>> round(float(loss(ops.array([[1]]), ops.array([[[0.0, 0.0]]]))), 4)
    0.6931
    """

    def __init__(self, reduction="mean_with_sample_weight", name="piece_crossentropy", dtype=None):
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, labels, logits):
        """Labels, integers (batch, n), and logits (batch, n, vocab) to losses (batch, n)."""
        labels = ops.cast(labels, "int32")

        @ops.custom_gradient
        def crossentropy(logits):
            most = ops.max(logits, axis=-1)  # (batch, n)
            powers = ops.exp(logits - most[..., None])
            total = ops.sum(powers, axis=-1)

            def gradient(*args, upstream=None):
                upstream = args[0] if upstream is None else upstream
                is_label = labels[..., None] == ops.arange(logits.shape[-1], dtype="int32")
                at_label = ops.where(is_label, upstream[..., None], 0.0)
                return powers * (upstream / total)[..., None] - at_label

            return ops.log(total) + most - _at_label(labels, logits), gradient

        return crossentropy(logits)

    def get_config(self):
        return {"reduction": self.reduction, "name": self.name, "dtype": self.dtype}


def accuracy():
    """A metric: the share of labels, integers (batch, n), above whose logit none other is.

    As `keras.metrics.SparseCategoricalAccuracy`, without an `argmax` over the vocabulary: of ties
    each counts.

    Returns:
        A `keras.metrics.Metric`.

    Example:

    >>> metric = accuracy()
    >>> metric.update_state(ops.array([[1, 0]]), ops.array([[[0.0, 2.0], [0.0, 2.0]]]))
    >>> float(metric.result())
    0.5
    """
    return keras.metrics.MeanMetricWrapper(_is_right, name="accuracy")


def _is_right(labels, logits):
    of_label = _at_label(ops.cast(labels, "int32"), logits)
    return ops.cast(of_label >= ops.max(logits, axis=-1), "float32")


def _at_label(labels, logits):
    return ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
