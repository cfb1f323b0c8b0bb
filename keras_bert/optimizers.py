"""BERT's optimizer: AdamW with warm-up, linear decay and clipping.

Source: google-research/bert `optimization.py`, and section A.2 of the paper. Unlike in that code,
Adam's bias correction is on, as in the paper of Adam and in most fine-tuning since.
"""

import contextlib
import warnings

import keras
from keras import ops

# Heads on the sequence, a tagger's for instance, leave the pooler alone; that needs no warning.
_POOLER_WARNING = r"Gradients do not exist for variables \[('([^']*/)?pooler/dense/\w+'(, )?)+\]"


@keras.saving.register_keras_serializable(package="keras_bert")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly from 0, then falls linearly to 0.

    Google's code starts the fall at step 0 already, so its rate drops by `warmup_steps /
    total_steps` of the peak when the warm-up ends; here it falls from the peak, without a drop.

    Args:
        peak: the highest rate, at step `warmup_steps`.
        total_steps: the step at which the rate is 0 again, and stays so.
        warmup_steps: length of the rise; 0 for none.
        batches_per_step: Keras hands a schedule the number of batches; with accumulated
            gradients several of them are one step.

    Raises:
        ValueError: `warmup_steps` is not within 0 and `total_steps`, or the rate is negative or
            not finite.

    Example:

    >>> schedule = WarmupLinearDecay(1.0, total_steps=10, warmup_steps=2)
    >>> [round(float(schedule(step)), 3) for step in (0, 1, 2, 6, 10, 11)]
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]
    """

    def __init__(self, peak, total_steps, warmup_steps=0, batches_per_step=1):
        super().__init__()
        peak = float(peak)
        if not 0 <= peak < float("inf"):
            raise ValueError(f"the learning rate must be finite and at least 0; received {peak}")
        if total_steps < 1 or not 0 <= warmup_steps <= total_steps:
            raise ValueError(
                "total_steps must be at least 1 and warmup_steps within 0 and total_steps; "
                f"received total_steps={total_steps}, warmup_steps={warmup_steps}"
            )
        self.peak = peak
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.batches_per_step = batches_per_step

    def __call__(self, batch):
        """The rate at a batch, counted from 0."""
        step = ops.cast(ops.floor_divide(batch, self.batches_per_step), "float32")
        rise = step / max(self.warmup_steps, 1)
        fall = (self.total_steps - step) / max(self.total_steps - self.warmup_steps, 1)
        factor = ops.where(step < self.warmup_steps, rise, ops.maximum(fall, 0.0))
        return self.peak * factor

    def get_config(self):
        return {
            "peak": self.peak,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            "batches_per_step": self.batches_per_step,
        }


class _AsBertHasIt(keras.optimizers.Optimizer):
    """What both optimizers do in another way than Keras' own."""

    def apply(self, grads, trainable_variables=None):
        """As Keras' own, but silent about a pooler that the head does not use."""
        with _without_pooler_warning():
            return super().apply(grads, trainable_variables)

    def _apply_weight_decay(self, variables):
        """It is in the update, which has the rate: Keras asks the schedule for each variable."""

    def _use_weight_decay(self, variable):
        """Return False for biases, LayerNorm and variables that the user excluded."""
        if len(variable.shape) < 2 or variable.name == "bias":
            return False
        return super()._use_weight_decay(variable)

    def _decay_of(self, variable):
        """The share of a variable that the update takes off, before it is scaled by the rate."""
        return (self.weight_decay or 0.0) if self._use_weight_decay(variable) else 0.0

    def _clip_gradients(self, grads):
        # TensorFlow gives the gradient of an embedding as a list of rows in which a row can stand
        # more than once. Keras squares each of them, for the norm and for Adam; here they are
        # added up before.
        grads = [
            ops.add(grad, ops.zeros(grad.shape, grad.dtype))
            if hasattr(grad, "dense_shape")
            else grad
            for grad in grads
        ]
        # Under a strategy of TensorFlow's, Keras clips the gradients of each replica and adds them
        # up afterwards: the more replicas, the less is clipped. Here they are added up before.
        add_up = getattr(super(), "_all_reduce_sum_gradients", None)
        if add_up is not None:
            grads = [grad for grad, _ in add_up([(grad, None) for grad in grads])]
        return super()._clip_gradients(grads)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars  # they are summed already

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        # What is the same for all variables is computed once, and not traced for each of them.
        factors = self._factors(learning_rate)
        super()._backend_update_step(grads, trainable_variables, factors)

    def _factors(self, learning_rate):
        """What `update_step` is given as the rate: scalars, the first of which is the rate."""
        raise NotImplementedError

    def _shares(self):
        """Of an average, the shares that the mean of gradients and that of their squares have.

        Adam's bias correction divides by them.
        """
        step = ops.cast(self.iterations + 1, keras.config.floatx())
        return (1 - ops.power(beta, step) for beta in (self.beta_1, self.beta_2))

    def _moments(self, gradient, variable):
        """Takes a gradient into the means of it and of its square, and returns both."""
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        mean, square = self._momentums[index], self._velocities[index]
        self.assign_add(mean, (gradient - mean) * (1 - self.beta_1))
        self.assign_add(square, (ops.square(gradient) - square) * (1 - self.beta_2))
        return mean, square


@keras.saving.register_keras_serializable(package="keras_bert")
class AdamW(_AsBertHasIt, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` that spares biases and LayerNorm from weight decay.

    They are told by the variable itself (a vector, or named "bias"), not by a pattern in its
    path, which differs between backends. `exclude_from_weight_decay` spares further variables.

    Epsilon is added where algorithm 1 of Adam's paper has it, as in PyTorch; Keras adds it before
    the bias correction, which makes it 32 times as large at the first step and still 2 times at
    step 300, and steps on small gradients shorter.

    Args: as for `keras.optimizers.AdamW`.

    Example:

    >>> layer = keras.layers.Dense(2)
    >>> layer.build((None, 3))
    >>> optimizer = AdamW(learning_rate=0.1, weight_decay=0.5)
    >>> optimizer.build(layer.trainable_variables)
    >>> optimizer.apply([keras.ops.zeros_like(v) for v in layer.trainable_variables])
    """

    def _factors(self, learning_rate):
        # Corrected as scalars, and not by another pass over each of the arrays.
        mean_share, square_share = self._shares()
        root = ops.sqrt(square_share)
        return learning_rate, learning_rate * root / mean_share, self.epsilon * root

    def update_step(self, gradient, variable, factors):
        rate, corrected_rate, epsilon = (ops.cast(each, variable.dtype) for each in factors)
        if decay := self._decay_of(variable):
            self.assign_sub(variable, rate * decay * variable)
        if self.amsgrad:
            super().update_step(gradient, variable, rate)
            return
        mean, square = self._moments(gradient, variable)
        self.assign_sub(variable, corrected_rate * mean / (ops.sqrt(square) + epsilon))


def adamw(
    learning_rate,
    *,
    total_steps,
    warmup_steps=0,
    weight_decay=0.01,
    beta_1=0.9,
    beta_2=0.999,
    epsilon=1e-6,
    clipnorm=1.0,
    gradient_accumulation_steps=None,
):
    """The optimizer that BERT is pretrained and fine-tuned with.

    Args:
        learning_rate: the peak: 1e-4 for pretraining, 2e-5 to 5e-5 for fine-tuning.
        total_steps: number of optimizer steps of the whole run.
        warmup_steps: steps of linear warm-up; the paper takes 10,000 for pretraining, Google's
            scripts 10% for fine-tuning.
        weight_decay: decoupled decay of the weight matrices, relative to the rate.
        beta_1, beta_2, epsilon: Adam's constants.
        clipnorm: largest norm of all gradients together; `None`: no clipping.
        gradient_accumulation_steps: average the gradients of so many batches for one step.

    Returns:
        An `AdamW`.

    Raises:
        ValueError: `warmup_steps` is not within 0 and `total_steps`.

    Example:

    >>> adamw(2e-5, total_steps=1000, warmup_steps=100).name
    'adamw'
    """
    return AdamW(
        WarmupLinearDecay(
            learning_rate, total_steps, warmup_steps, gradient_accumulation_steps or 1
        ),
        weight_decay=weight_decay,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
        global_clipnorm=clipnorm,
        gradient_accumulation_steps=gradient_accumulation_steps,
        name="adamw",
    )


@keras.saving.register_keras_serializable(package="keras_bert")
class Lamb(_AsBertHasIt, keras.optimizers.Lamb):
    """`keras.optimizers.Lamb` as it was used on BERT.

    The decay is a part of the update that the trust ratio scales, and biases and LayerNorm have
    neither decay nor ratio: a bias starts at 0, and the ratio would hold it there.

    Args: as for `keras.optimizers.Lamb`.

    Example:

    >>> optimizer = Lamb(learning_rate=0.1, weight_decay=0.5)
    >>> optimizer.build([keras.Variable([1.0])])
    """

    def _factors(self, learning_rate):
        return learning_rate, *self._shares()

    def update_step(self, gradient, variable, factors):
        rate, mean_share, square_share = (ops.cast(each, variable.dtype) for each in factors)
        mean, square = self._moments(gradient, variable)
        update = mean / mean_share / (ops.sqrt(square / square_share) + self.epsilon)
        if self._use_weight_decay(variable):  # the same variables that have a ratio
            update = update + self._decay_of(variable) * variable
            weight_norm, update_norm = (
                ops.sqrt(ops.sum(ops.square(values))) for values in (variable, update)
            )
            has_ratio = ops.logical_and(weight_norm > 0, update_norm > 0)
            rate = rate * ops.where(has_ratio, weight_norm / update_norm, 1.0)
        self.assign_sub(variable, rate * update)


def lamb(
    learning_rate,
    *,
    total_steps,
    warmup_steps=0,
    weight_decay=0.01,
    clipnorm=1.0,
    gradient_accumulation_steps=None,
):
    """LAMB, for pretraining in very large batches.

    Source: You et al. (2020), Large batch optimization for deep learning, algorithm 2.

    Args: as for `adamw`.

    Returns:
        A `Lamb`.

    Raises:
        ValueError: `warmup_steps` is not within 0 and `total_steps`.

    Example:

    >>> lamb(2e-3, total_steps=1000, warmup_steps=100).name
    'lamb'
    """
    return Lamb(
        WarmupLinearDecay(
            learning_rate, total_steps, warmup_steps, gradient_accumulation_steps or 1
        ),
        weight_decay=weight_decay,
        epsilon=1e-6,
        global_clipnorm=clipnorm,
        gradient_accumulation_steps=gradient_accumulation_steps,
        name="lamb",
    )


def with_loss_scale(optimizer, dtype_policy):
    """Scales the loss of a model that computes in float16, whose small gradients would be 0.

    Keras does so by the policy of the model that is compiled, which is not that of the encoder
    within.

    Args:
        optimizer: a Keras optimizer.
        dtype_policy: of the encoder.

    Returns:
        A `keras.optimizers.LossScaleOptimizer` around it, or the optimizer itself for another
        policy than "mixed_float16".

    Example:

    >>> inner = adamw(1e-4, total_steps=10)
    >>> with_loss_scale(inner, keras.dtype_policies.get("mixed_bfloat16")) is inner
    True
    """
    if dtype_policy.name != "mixed_float16":
        return optimizer
    return keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale")


@contextlib.contextmanager
def _without_pooler_warning():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_POOLER_WARNING)
        yield
