"""Which batches a run sees, how they are laid out, and whether its steps are compiled."""

import math

import keras

from keras_bert import heads
from keras_bert.data import packing
from keras_bert.data.batching import LENGTHS, Batches, worth_compiling
from keras_bert.runtime import distribution
from keras_bert.training import flops

# On a CPU: the arithmetic that could be done while a layer is compiled for one length, and the
# share of a step's time that it takes when compiled. Measured with MiniLM on two cores.
_COMPILING = 1.7e11
_COMPILED_SHARE = 0.65
_PLANNED = 10  # epochs that the shape of packed batches is chosen for; later ones fit, or widen it


class Schedule:
    """The batches of all epochs of a run.

    Texts, pairs and tagged sentences share rows on one device, and on several with JAX, where the
    gradient is that of the whole batch whoever has computed its rows. Other batches are of like
    lengths.

    Args:
        model: what is to be trained.
        encoded: the sequences, see `batches`.
        batch_size: sequences a batch.
        seed: of the order.
        epochs: passes over the sequences.
        accumulate: batches for one step of the optimizer.
        fixed_length: whether each sequence has a row of its own, of `encoded.max_length`.

    Attributes:
        epochs, batch_size: as given.
        batches: in an epoch.
        steps: of the optimizer, in all.
        missing: batches of another pass that fill up the last step.
        trained: the model that takes the batches: `model`, or one that shares its weights.
        shape: of packed batches, see `packing.shape`; `None` where they are not packed.
        compiled: whether steps are to be compiled by XLA.

    Example:

    >>> import numpy as np
    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> class Texts:
    ...     lengths, max_length = np.array([3, 5, 4, 4]), 8
    >>> schedule = Schedule(heads.classifier(encoder, 2), Texts(), 4, 0, epochs=3)
    >>> schedule.shape, schedule.steps, schedule.compiled
    ((2, 8, 2), 3, False)
    """

    def __init__(
        self, model, encoded, batch_size, seed, epochs, *, accumulate=1, fixed_length=False
    ):
        self._encoded, self._seed = encoded, seed
        self.epochs, self.batch_size = epochs, batch_size
        self.batches = -(-len(encoded.lengths) // batch_size)
        self.steps = -(-epochs * self.batches // accumulate)
        self.missing = -epochs * self.batches % accumulate
        self.trained, self.shape = model, None
        self._of_positions = heads.find_task(model) == "tagger"
        encoder = heads.find_encoder(model)
        if not fixed_length and heads.can_be_packed(model) and _may_share_rows():
            # Those of one more pass may have to fill up the last step.
            self._plans = [
                packing.plan_batches(encoded.lengths, batch_size, (seed, epoch))
                for epoch in range(min(epochs + (self.missing > 0), _PLANNED))
            ]
            width = encoder.bert_config["hidden_size"]
            replicas = distribution.replicas()
            self.shape = packing.packed_shape(encoded.lengths, self._plans, width, replicas)
        cost = _cost_of_compiling(encoder)
        if self.shape is not None:
            self.trained = heads.packed(model)
            positions = self.shape[0] * self.shape[1] * epochs * self.batches
            self.compiled = cost < (1 - _COMPILED_SHARE) * positions
            return
        self._lengths: tuple[int, ...] | None = (encoded.max_length,)
        if fixed_length:
            positions = batch_size * encoded.max_length * epochs * self.batches
            self.compiled = cost < (1 - _COMPILED_SHARE) * positions
            return
        self._lengths = LENGTHS
        if cost:
            first = Batches(encoded, batch_size, (seed, 0))
            needed = [first.longest(index) for index in range(self.batches)] * epochs
            self._lengths = worth_compiling(needed, cost / batch_size, _COMPILED_SHARE)
        self.compiled = self._lengths is not None

    def epoch(self, number):
        """The batches of an epoch, counted from 0: a `Batches`."""
        seed = self._seed, number
        if self.shape is None:
            return Batches(self._encoded, self.batch_size, seed, self._lengths)
        shape, lengths = self.shape, self._encoded.lengths
        if number < len(self._plans):
            plan = self._plans[number]
        else:
            plan = packing.plan_batches(lengths, self.batch_size, seed)
            shape = packing.widen_shape(shape, lengths, plan)
        return packing.PackedBatches(self._encoded, plan, shape, of_positions=self._of_positions)


def _may_share_rows():
    """Whether several sequences in a row leave a batch's gradient what it is.

    TensorFlow averages over the replicas, however many sequences each of them has.
    """
    if keras.backend.backend() == "jax":
        return distribution.worker()[1] == 1
    return distribution.replicas() == 1


def _cost_of_compiling(encoder):
    """Of one compilation: the positions that go through the encoder meanwhile.

    Returns:
        0 where Keras compiles anyway, infinity where it cannot or XLA would undo half of what
        rematerialization saves, as it does on a CPU.
    """
    if not distribution.supports_jit_compile():
        return math.inf
    if not _is_tensorflow_on_cpu():
        return 0.0
    if encoder.rematerialize:
        return math.inf
    config = encoder.bert_config
    arithmetic = flops.of_encoder(config, 32) / 32  # of a position
    return _COMPILING * config["num_hidden_layers"] / arithmetic


def _is_tensorflow_on_cpu():
    """Whether TensorFlow computes, and on CPUs alone."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not any(tf.config.list_logical_devices(kind) for kind in ("GPU", "TPU"))
