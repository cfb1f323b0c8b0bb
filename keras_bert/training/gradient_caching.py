"""Gradient caching: in-batch negatives from all batches of an optimizer step.

The embeddings of all batches are computed without a gradient. The loss of all of them together
gives the gradient of each embedding. Then each batch is trained on with these gradients, and the
optimizer accumulates. The result is the gradient of one large batch; the memory is that of a small
one.

Source: Gao et al. (2021), Scaling deep contrastive learning batch size under memory limited setup.
"""

import keras
import numpy as np
from keras import ops

from keras_bert.runtime.gradients import value_and_gradient
from keras_bert.runtime.seeds import seed_torch


def seed_dropout(model, *seed):
    """Set the states of all random generators of a model. `seed` are integers of at least 0."""
    seed_torch(*seed)
    weights = {id(weight) for weight in model.weights}
    states = [variable for variable in model.variables if id(variable) not in weights]
    seeds = np.random.default_rng(seed).integers(0, 2**31, len(states))
    for state, state_seed in zip(states, seeds, strict=True):
        state.assign(np.array([state_seed, 0], state.dtype))


class CachedModel(keras.Model):
    """An embedder of rows of texts that is trained with given gradients of its embeddings.

    Args:
        model: Returns embeddings (rows, texts, width).
        batches: Number of batches per optimizer step.
        shape: Largest shape of the embeddings of a batch.
    """

    def __init__(self, model, batches, shape):
        super().__init__(name=model.name)
        self.model = model
        self.batches = batches
        options = {"initializer": "zeros", "trainable": False, "dtype": "float32"}
        self.gradients = self.add_weight(shape=shape, name="gradients", **options)
        self.value = self.add_weight(shape=(), name="loss_of_step", **options)

    def call(self, inputs, training=None):
        return self.model(inputs, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Return the loss of all batches of the step; its gradient is that of this batch."""
        total = ops.sum(ops.cast(y_pred, "float32") * self.gradients[: ops.shape(y_pred)[0]])
        return total + ops.stop_gradient(self.value - total)


class _WithDropout(keras.Model):
    """Applies dropout in `predict`."""

    def __init__(self, model):
        super().__init__(name=model.name)
        self.model = model

    def call(self, inputs):
        return self.model(inputs, training=True)


class GradientCache:
    """Sets the gradients of a `CachedModel` before each batch.

    Dropout is seeded by the index of the batch, so that both passes over a batch agree.

    Args:
        cached: The `CachedModel`.
        loss: The loss of the rows of several batches, a sum.
        seed: Seed of dropout.
        batch: Function from the index of a batch, counted over all epochs, to its inputs, targets
            and weights.
    """

    def __init__(self, cached, loss, seed, batch):
        self._cached = cached
        self._loss = loss
        self._seed = seed
        self._batch = batch
        self._forward = _WithDropout(cached.model)
        self._step = None
        self._values = []

    def compile(self, compiled):
        """Compile the first pass. If `compiled`, XLA does it."""
        self._forward.compile(jit_compile=compiled)

    def set_gradients(self, batch_index):
        """Set the gradients of the batch with this index, which is trained next."""
        model = self._cached
        if keras.backend.backend() == "jax":
            model.jax_state_sync()  # the variables are outdated during `fit`
        step, index = divmod(batch_index, model.batches)
        if step != self._step:
            value, self._values = self._gradients(step)
            model.value.assign(value)
            self._step = step
        values = self._values[index]
        missing = model.gradients.shape[0] - len(values)
        model.gradients.assign(np.pad(values, [(0, missing), (0, 0), (0, 0)]))
        seed_dropout(model, self._seed, batch_index)

    def _gradients(self, step):
        """Return the loss of an optimizer step, and the gradient of each batch's embeddings."""
        outputs = []
        targets = []
        weights = []
        first = step * self._cached.batches
        for batch_index in range(first, first + self._cached.batches):
            inputs, *rest = self._batch(batch_index)
            seed_dropout(self._cached, self._seed, batch_index)
            outputs.append(np.asarray(self._forward.predict_on_batch(inputs), np.float32))
            targets.append(rest[0])
            weights.append(rest[1])
        ends = np.cumsum([len(part) for part in outputs])[:-1]
        targets, weights = np.concatenate(targets), np.concatenate(weights)
        value, gradient = value_and_gradient(
            lambda embeddings: self._loss(targets, embeddings, weights), np.concatenate(outputs)
        )
        # The optimizer averages the gradients of the batches, whose weights allow for that.
        return value / self._cached.batches, np.split(gradient, ends)
