"""Optimizers for BERT: AdamW and LAMB, with gradient clipping; the learning-rate schedules.

Source: google-research/bert `optimization.py`, and section A.2 of the paper. Unlike that code, the
optimizers apply Adam's bias correction, as in Adam's paper.
"""

import math

import keras
from keras import ops

from keras_bert.keras_private import BertOptimizerMixin, LossScaleOptimizer
from keras_bert.runtime.arguments import as_integer, check_one_of

__all__ = [
    "AdamW",
    "Lamb",
    "WarmupConstant",
    "WarmupCosineDecay",
    "WarmupLinearDecay",
    "adamw",
    "lamb",
]


class _Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Base class of the schedules with a linear warm-up from 0 to the peak."""

    def __init__(self, peak, total_steps, warmup_steps=0, batches_per_step=1):
        super().__init__()
        peak = float(peak)
        if not 0 <= peak < float("inf"):
            raise ValueError(f"the learning rate must be finite and at least 0; received {peak}")
        warmup_steps = as_integer("warmup_steps", warmup_steps, 0)
        if total_steps < 1 or not 0 <= warmup_steps <= total_steps:
            raise ValueError(
                "total_steps must be at least 1, and warmup_steps between 0 and total_steps; "
                f"received total_steps={total_steps}, warmup_steps={warmup_steps}"
            )
        self.peak = peak
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.batches_per_step = batches_per_step

    def __call__(self, batch):
        """Return the rate at a batch, counted from 0."""
        step = ops.cast(ops.floor_divide(batch, self.batches_per_step), "float32")
        rise = step / max(self.warmup_steps, 1)
        rest = (self.total_steps - step) / max(self.total_steps - self.warmup_steps, 1)
        fall = self.decay(ops.maximum(rest, 0.0))
        return self.peak * ops.where(step < self.warmup_steps, rise, fall)

    def decay(self, rest):
        """Return the share of the peak after the warm-up; `rest` falls linearly from 1 to 0."""
        raise NotImplementedError

    def get_config(self):
        return {
            "peak": self.peak,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            "batches_per_step": self.batches_per_step,
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class WarmupLinearDecay(_Warmup):
    """Learning rate schedule: linear warm-up from 0, then linear decay to 0.

    The decay starts from the peak, after the warm-up. Google's code starts the decay at step 0, so
    its rate drops by `warmup_steps / total_steps` of the peak when the warm-up ends.

    Args:
        peak: The highest rate, reached at step `warmup_steps`.
        total_steps: The step at which the rate reaches 0. It stays 0 after that.
        warmup_steps: Number of warm-up steps.
        batches_per_step: Number of batches per optimizer step, for gradient accumulation. Keras
            calls a schedule with the number of batches.

    Raises:
        ValueError: If `total_steps` is below 1, `warmup_steps` is not between 0 and
            `total_steps`, or the rate is negative or not finite.

    Example:

    >>> schedule = WarmupLinearDecay(1.0, total_steps=10, warmup_steps=2)
    >>> [round(float(schedule(step)), 3) for step in (0, 1, 2, 6, 10, 11)]
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]
    """

    def decay(self, rest):
        return rest


@keras.saving.register_keras_serializable(package="keras_bert")
class WarmupCosineDecay(_Warmup):
    """Learning rate schedule: linear warm-up from 0, then decay to 0 along half a cosine wave.

    Source: Loshchilov and Hutter (2017), SGDR, equation 5, without restarts.

    Args: See `WarmupLinearDecay`.

    Raises:
        ValueError: See `WarmupLinearDecay`.

    Example:

    >>> schedule = WarmupCosineDecay(1.0, total_steps=10, warmup_steps=2)
    >>> [round(float(schedule(step)), 3) for step in (0, 1, 2, 4, 6, 10)]
    [0.0, 0.5, 1.0, 0.854, 0.5, 0.0]
    """

    def decay(self, rest):
        return (1 - ops.cos(math.pi * rest)) / 2


@keras.saving.register_keras_serializable(package="keras_bert")
class WarmupConstant(_Warmup):
    """Learning rate schedule: linear warm-up from 0, then the peak.

    Args: See `WarmupLinearDecay`.

    Raises:
        ValueError: See `WarmupLinearDecay`.

    Example:

    >>> schedule = WarmupConstant(1.0, total_steps=10, warmup_steps=2)
    >>> [float(schedule(step)) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 1.0, 1.0]
    """

    def decay(self, rest):
        return ops.ones_like(rest)


SCHEDULES = {
    "linear": WarmupLinearDecay,
    "cosine": WarmupCosineDecay,
    "constant": WarmupConstant,
}


@keras.saving.register_keras_serializable(package="keras_bert")
class AdamW(BertOptimizerMixin, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` without weight decay on biases and LayerNorm.

    A variable is excluded if it is a vector or is named "bias". Patterns of variable paths are
    not used, because paths differ between backends. Use `exclude_from_weight_decay` to exclude
    more variables.

    Epsilon is added after the bias correction, as in algorithm 1 of Adam's paper and in PyTorch.
    Keras adds it before, which makes it 32 times as large at the first step and 2 times as large
    at step 300.

    Args: See `keras.optimizers.AdamW`.

    Example:

    >>> layer = keras.layers.Dense(2)
    >>> layer.build((None, 3))
    >>> optimizer = AdamW(learning_rate=0.1, weight_decay=0.5)
    >>> optimizer.build(layer.trainable_variables)
    >>> optimizer.apply([keras.ops.zeros_like(v) for v in layer.trainable_variables])
    """

    def step_scalars(self, learning_rate):
        """Return the rate, the rate with bias correction, and epsilon with bias correction."""
        first_correction, second_correction = self.bias_corrections()
        root = ops.sqrt(second_correction)
        return learning_rate, learning_rate * root / first_correction, self.epsilon * root

    def update_step(self, gradient, variable, scalars):
        rate, corrected_rate, epsilon = (ops.cast(each, variable.dtype) for each in scalars)
        if self.weight_decay and self.has_decay(variable):
            self.assign_sub(variable, rate * self.weight_decay * variable)
        if self.amsgrad:
            super().update_step(gradient, variable, rate)
            return
        first, second = self.update_moments(gradient, variable)
        self.assign_sub(variable, corrected_rate * first / (ops.sqrt(second) + epsilon))


def adamw(
    learning_rate: float,
    *,
    total_steps: int,
    warmup_steps: int = 0,
    schedule: str = "linear",
    weight_decay: float = 0.01,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    global_clipnorm: float | None = 1.0,
    gradient_accumulation_steps: int | None = None,
) -> AdamW:
    """Return the optimizer for pretraining and fine-tuning BERT.

    Args:
        learning_rate: The peak: 1e-4 for pretraining, 2e-5 to 5e-5 for fine-tuning.
        total_steps: Number of optimizer steps of the run.
        warmup_steps: Number of linear warm-up steps. The paper uses 10,000 for pretraining, and
            Google's scripts use 10% of the steps for fine-tuning.
        schedule: What follows the warm-up: `"linear"` or `"cosine"` decay to 0, or `"constant"`.
        weight_decay: Decoupled weight decay, relative to the rate.
        beta_1, beta_2, epsilon: Adam's constants.
        global_clipnorm: Maximum global norm of the gradients, or `None` to disable clipping.
        gradient_accumulation_steps: Number of batches whose gradients are averaged for one step.

    Returns:
        An `AdamW`.

    Raises:
        ValueError: If the schedule is unknown, and see `WarmupLinearDecay`.

    Example:

    >>> adamw(2e-5, total_steps=1000, warmup_steps=100).name
    'adamw'
    """
    check_one_of("schedule", schedule, SCHEDULES)
    batches_per_step = gradient_accumulation_steps or 1
    return AdamW(
        SCHEDULES[schedule](learning_rate, total_steps, warmup_steps, batches_per_step),
        weight_decay=weight_decay,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
        global_clipnorm=global_clipnorm,
        gradient_accumulation_steps=gradient_accumulation_steps,
        name="adamw",
    )


@keras.saving.register_keras_serializable(package="keras_bert")
class Lamb(BertOptimizerMixin, keras.optimizers.Lamb):
    """`keras.optimizers.Lamb` as it is used for BERT.

    The trust ratio scales the weight decay together with the update. Biases and LayerNorm have
    neither decay nor trust ratio: a bias starts at 0, and the ratio would keep it there.

    Args: See `keras.optimizers.Lamb`.

    Example:

    >>> optimizer = Lamb(learning_rate=0.1, weight_decay=0.5)
    >>> optimizer.build([keras.Variable([1.0])])
    """

    def step_scalars(self, learning_rate):
        """Return the rate and the two bias corrections."""
        return learning_rate, *self.bias_corrections()

    def update_step(self, gradient, variable, scalars):
        rate, *corrections = (ops.cast(each, variable.dtype) for each in scalars)
        first, second = self.update_moments(gradient, variable)
        update = first / corrections[0] / (ops.sqrt(second / corrections[1]) + self.epsilon)
        if self.has_decay(variable):
            update = update + (self.weight_decay or 0.0) * variable
            weight_norm, update_norm = (
                ops.sqrt(ops.sum(ops.square(values))) for values in (variable, update)
            )
            has_ratio = ops.logical_and(weight_norm > 0, update_norm > 0)
            rate = rate * ops.where(has_ratio, weight_norm / update_norm, 1.0)
        self.assign_sub(variable, rate * update)


def lamb(
    learning_rate: float,
    *,
    total_steps: int,
    warmup_steps: int = 0,
    weight_decay: float = 0.01,
    global_clipnorm: float | None = 1.0,
    gradient_accumulation_steps: int | None = None,
) -> Lamb:
    """Return LAMB, an optimizer for pretraining with very large batches.

    Source: You et al. (2020), Large batch optimization for deep learning, algorithm 2.

    Args: See `adamw`.

    Returns:
        A `Lamb`.

    Raises:
        ValueError: See `WarmupLinearDecay`.

    Example:

    >>> lamb(2e-3, total_steps=1000, warmup_steps=100).name
    'lamb'
    """
    batches_per_step = gradient_accumulation_steps or 1
    return Lamb(
        WarmupLinearDecay(learning_rate, total_steps, warmup_steps, batches_per_step),
        weight_decay=weight_decay,
        epsilon=1e-6,
        global_clipnorm=global_clipnorm,
        gradient_accumulation_steps=gradient_accumulation_steps,
        name="lamb",
    )


def with_loss_scale(optimizer, dtype_policy):
    """Add loss scaling if the encoder computes in float16, where small gradients become 0.

    Keras adds loss scaling by the dtype policy of the compiled model, which is not the policy of
    the encoder inside it.

    Args:
        optimizer: A Keras optimizer.
        dtype_policy: The `keras.DTypePolicy` of the encoder.

    Returns:
        A `keras.optimizers.LossScaleOptimizer` around the optimizer if the policy is
        "mixed_float16", else the optimizer itself.

    Example:

    >>> inner = adamw(1e-4, total_steps=10)
    >>> with_loss_scale(inner, keras.dtype_policies.get("mixed_bfloat16")) is inner
    True
    """
    if dtype_policy.name != "mixed_float16":
        return optimizer
    return LossScaleOptimizer(optimizer, name="loss_scale")
