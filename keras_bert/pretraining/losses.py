"""Loss and accuracy over a vocabulary, and the compilation of a pretraining model."""

from collections.abc import Sequence

import keras
from keras import ops

from keras_bert import heads, optimizers
from keras_bert.runtime import distribution


@keras.saving.register_keras_serializable(package="keras_bert")
class PieceCrossentropy(keras.losses.Loss):
    """Cross-entropy of logits over a vocabulary.

    By default, the mean over the positions with a weight; `pretrain` uses the sum.
    Equals `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`, with less memory traffic.
    The logits are the largest tensor of a training step. This loss creates only two more tensors of
    that size: their exponentials and their gradient.
    """

    def __init__(self, reduction="mean_with_sample_weight", name="piece_crossentropy", dtype=None):
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, labels, logits):
        """Map labels, int (batch, n), and logits (batch, n, vocab) to losses (batch, n)."""
        labels = ops.cast(labels, "int32")

        @ops.custom_gradient
        def crossentropy(logits):
            maximum = ops.max(logits, axis=-1)  # (batch, n)
            exponentials = ops.exp(logits - maximum[..., None])
            total = ops.sum(exponentials, axis=-1)

            def gradient(*args, upstream=None):
                upstream = args[0] if upstream is None else upstream
                is_label = labels[..., None] == ops.arange(logits.shape[-1], dtype="int32")
                at_label = ops.where(is_label, upstream[..., None], 0.0)
                return exponentials * (upstream / total)[..., None] - at_label

            return ops.log(total) + maximum - _at_label(labels, logits), gradient

        return crossentropy(logits)

    def get_config(self):
        return {"reduction": self.reduction, "name": self.name, "dtype": self.dtype}


def accuracy():
    """Return a metric: the share of labels, int (batch, n), whose logit is the maximum.

    Equals `keras.metrics.SparseCategoricalAccuracy`, without an `argmax` over the vocabulary. If
    several logits are the maximum, each of them counts as correct.
    """
    return keras.metrics.MeanMetricWrapper(_is_correct, name="accuracy")


def compile_model(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    reduction: str = "mean_with_sample_weight",
) -> None:
    """Compile a model of `heads.pretraining`, `masked_lm` or `packed_pretraining`.

    The loss is the mean over masked positions plus the mean over pairs, each with an accuracy.
    `train.pretrain` calls this function; call it yourself before your own `fit`.

    Args:
        model: The model.
        optimizer: A Keras optimizer, such as `optimizers.adamw`.
        reduction: `"sum"` for batches of `with_divisors`.
    """
    # Objects, not names: Keras creates named losses in the first step, which is then traced twice.
    loss = PieceCrossentropy(reduction)
    metrics = [accuracy()]
    if isinstance(model.output, dict):
        loss = {task: PieceCrossentropy(reduction) for task in model.output}
        metrics = {task: [accuracy()] for task in model.output}
    encoder = heads.find_encoder(model)
    model.compile(
        optimizers.with_loss_scale(optimizer, encoder.dtype_policy),
        loss=loss,
        weighted_metrics=metrics,
        jit_compile=distribution.supports_jit_compile(),
    )
    model.optimizer.build(model.trainable_variables)


def with_divisors(batches: Sequence[tuple], workers: int = 1) -> list[tuple]:
    """Return the batches of an optimizer step with weights that hold the divisor of the mean.

    The mean of their losses, which are sums, is the mean over all masked positions of the step,
    plus the mean over all its pairs. Several processes do not know each other's batches, so
    each averages over its own.

    Args:
        batches: Tuples (inputs, targets, weights) of a `stream.Stream`. The weights are 0 or 1.
        workers: Number of processes that share the step.

    Returns:
        A list of such tuples.

    Example:

    >>> import numpy as np
    >>> batches = [({}, {}, {"masked_lm": np.ones(2)}), ({}, {}, {"masked_lm": np.ones(6)})]
    >>> [weights["masked_lm"][0].item() for _, _, weights in with_divisors(batches)]
    [0.25, 0.25]
    """
    weights_per_batch = [weights for _, _, weights in batches]
    divisors = {}
    for task in weights_per_batch[0]:
        total = sum(float(weights[task].sum()) for weights in weights_per_batch)
        divisors[task] = max(total, 1.0) * workers / len(batches)
    return [
        (inputs, targets, {task: weights[task] / divisors[task] for task in weights})
        for inputs, targets, weights in batches
    ]


def _is_correct(labels, logits):
    at_label = _at_label(ops.cast(labels, "int32"), logits)
    return ops.cast(at_label >= ops.max(logits, axis=-1), "float32")


def _at_label(labels, logits):
    return ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
