"""The batches of a fine-tuning run: their order, their layout, and whether steps are compiled."""

import functools
import math

import keras
import numpy as np

from keras_bert import heads, packed_heads
from keras_bert.data import packing
from keras_bert.data.batching import (
    Batches,
    as_sums,
    choose_compiled_lengths,
    choose_lengths,
    plan_of_sets,
)
from keras_bert.runtime import distribution
from keras_bert.tasks import registry
from keras_bert.training import engine, flops
from keras_bert.training.gradient_caching import CachedModel, GradientCache

_PROGRAMS_PER_RUN = 3  # to train, to score, and to fit the head
_TRAINING_PROGRAMS = 2  # for batches that are not packed, without a program for the head
# With TensorFlow on a CPU: the number of operations that take as long as the compilation of one
# layer for one length, and the time of a compiled step relative to an uncompiled one. Measured with
# MiniLM on two cores.
_OPERATIONS_PER_COMPILATION = 1.7e11
_COMPILED_SHARE = 0.65
# The same for `mixed_training`, which compiles functions that all layers share.
_OPERATIONS_PER_MIXED_COMPILATION = 4e11
_PLANNED_EPOCHS = 10  # epochs that determine the shape of packed batches; later epochs may widen it


class BatchPlan:
    """The batches of all epochs of a run.

    Texts, pairs and tagged sentences are packed, several sequences per row, on one device or with
    JAX. All other batches hold sequences of similar lengths. With `fixed_length`, all sequences are
    padded to `encoded.max_length`.

    Attributes:
        encoded: The encoded data.
        batches: Batches per epoch.
        rows: Sequences or rows of texts per epoch.
        steps: Total number of optimizer steps.
        missing: Batches of an additional pass that complete the last optimizer step.
        trained: The model that takes the batches, and shares the weights of `model`.
        losses: Losses to compile `trained` with. They are sums, since the weights of the batches
            hold the divisor of the mean.
        shape: Shape of packed batches, see `packing.packed_shape`. `None`: not packed.
        compiled: True if XLA should compile the steps as a whole.
        cache: The `GradientCache`, or `None`.
        epoch: Function that returns the batches of an epoch, counted from 0.

    `losses` are those of the outputs of `model`. `can_be_mixed` is False if `mixed_training` does
    not work with the optimizer. `saved_rows` is the number of rows of packed batches in a run that
    resumes, perhaps on other devices; 0 if its batches are not packed, and `None` for a new run.
    `fits_head` is True if the head may be fitted to the encoder's vectors, which needs a program of
    its own.

    Raises:
        ValueError: If gradient caching is asked for on several devices.
    """

    def __init__(
        self,
        model,
        encoded,
        batch_size,
        seed,
        epochs,
        *,
        losses,
        gradient_accumulation_steps=1,
        fixed_length=False,
        can_be_mixed=True,
        saved_rows=None,
        fits_head=False,
    ):
        self.encoded = encoded
        self._seed = seed
        self._devices = distribution.replicas()
        self._accumulated = gradient_accumulation_steps
        self.losses = as_sums(losses)
        # Examples for embedders are rows of several texts.
        self._texts_per_row = encoded.texts_per_row
        self._sequences = encoded if self._texts_per_row is None else encoded.texts
        self.epochs = epochs
        self.batch_size = batch_size
        first_epoch = Batches(encoded, batch_size, (seed, 0)).rows
        self.batches = len(first_epoch)
        self.rows = sum(map(len, first_epoch))
        batches_of_run = epochs * self.batches
        self.steps = math.ceil(batches_of_run / gradient_accumulation_steps)
        self.missing = self.steps * gradient_accumulation_steps - batches_of_run
        self.compiled = False
        self.cache: GradientCache | None = None
        task = registry.for_model(model)
        self._of_positions = task.positions_have_targets
        self._programs_for_head = 1 if fits_head else 0
        self._plans: list = []  # of the first epochs, if batches are packed
        self.epoch = functools.lru_cache(2)(self._make_epoch)
        encoder = heads.find_encoder(model)
        is_packable = not fixed_length and packed_heads.can_be_packed(model) and _can_pack_here()
        is_packed = is_packable and saved_rows != 0
        self.shape = self._packed_shape(encoder, saved_rows) if is_packed else None
        self.trained = self._model_of_batches(model, task)
        is_mixed = can_be_mixed and _can_be_mixed(self.trained)
        if distribution.is_tensorflow_on_cpu():
            self._choose_compilation(_cost_of_compiling(encoder, is_mixed), fixed_length)
        else:
            self._choose_few_lengths(fixed_length)
        if is_mixed and self.compiled:
            from keras_bert import mixed_training

            self.compiled = False
            self.trained = mixed_training.TrainedModel(self.trained)
        if encoded.gradient_caching:
            self._cache_gradients(model.output_shape[-1])

    def _packed_shape(self, encoder, saved_rows):
        """Return the shape of packed batches, or `None` if they are too small to pack."""
        # One more epoch if some of its batches complete the last step.
        count = min(self.epochs + (self.missing > 0), _PLANNED_EPOCHS)
        self._plans = [self._plan(self.encoded, epoch) for epoch in range(count)]
        return packing.packed_shape(
            self._sequences.lengths,
            [self._packed_sequences(plan) for plan in self._plans],
            encoder.bert_config["hidden_size"],
            distribution.replicas(),
            saved_rows,
        )

    def _model_of_batches(self, model, task):
        """Return a model that takes the batches and shares the weights of `model`."""
        if self.shape is None:
            return task.model_of_batches(model)
        if self._texts_per_row is None:
            return packed_heads.packed(model)
        return packed_heads.packed_rows(model)

    def _cache_gradients(self, width):
        """Set `cache`, and the `trained` model that it belongs to."""
        if distribution.replicas() > 1:
            raise ValueError(
                "gradient_caching works on one device; received "
                f"{distribution.replicas()}. Use keras_bert.distribution.scope('one-device')"
            )
        if self._accumulated < 2:
            raise ValueError(
                "gradient_caching compares the rows of several batches; set "
                "gradient_accumulation_steps to at least 2"
            )
        shape = (self.batch_size, self._texts_per_row, width)
        self.trained = CachedModel(self.trained, self._accumulated, shape)
        self.cache = GradientCache(self.trained, self.losses, self._seed, self.batch)

    def _choose_few_lengths(self, fixed_length):
        """Set `compiled`, and few lengths that batches are padded to if each needs a program."""
        self.compiled = distribution.supports_jit_compile()
        self._lengths: tuple[int, ...] | None = (self.encoded.max_length,)
        if fixed_length or self.shape is not None:
            return
        self._lengths = None
        if self.compiled or distribution.compiles_each_shape():
            cost = distribution.positions_per_compilation() / self.batch_size
            most = _TRAINING_PROGRAMS - self._programs_for_head
            self._lengths = choose_lengths(self._longest_per_batch(), cost, most)

    def _choose_compilation(self, cost, fixed_length):
        """Set `compiled` and the lengths, for TensorFlow on a CPU: compile if that saves time."""
        self._lengths = (self.encoded.max_length,)
        if fixed_length or self.shape is not None:
            if self.shape is None:
                positions_per_batch = self.batch_size * self.encoded.max_length
            else:
                positions_per_batch = self.shape[0] * self.shape[1]
            positions = positions_per_batch * self.epochs * self.batches
            self.compiled = cost < (1 - _COMPILED_SHARE) * positions
            return
        self._lengths = choose_compiled_lengths(
            self._longest_per_batch(), cost / self.batch_size, _COMPILED_SHARE
        )
        self.compiled = self._lengths is not None

    @property
    def programs_for_scoring(self):
        """Number of programs that are left for scoring."""
        for_training = 1 if self.shape is not None or self._lengths is None else len(self._lengths)
        return _PROGRAMS_PER_RUN - for_training - self._programs_for_head

    def _longest_per_batch(self):
        """Return the length of the longest sequence of each batch of the run."""
        first = Batches(self.encoded, self.batch_size, (self._seed, 0))
        return [first.longest(index) for index in range(self.batches)] * self.epochs

    def batch(self, batch_index):
        """Return a batch by its index over all epochs and the additional pass."""
        batches, index = self._batches_and_index(batch_index)
        batch = self.encoded.at_step(batches[index], batch_index, self.epochs * self.batches)
        inputs, targets, weights = batch
        divisor = np.float32(self.divisor(batch_index))
        return inputs, targets, keras.tree.map_structure(lambda array: array / divisor, weights)

    def divisor(self, batch_index):
        """Return what divides the weights of a batch.

        The optimizer averages the gradients of the batches of a step. With these weights, the
        average is the gradient of the mean over all sequences of the step that count.
        """
        first = batch_index - batch_index % self._accumulated
        step = range(first, first + self._accumulated)
        return max(sum(map(self.counted_sequences, step)), 1) / self._accumulated

    def counted_sequences(self, batch_index):
        """Return how many sequences of a batch count in the mean of the loss."""
        batches, index = self._batches_and_index(batch_index)
        return self.encoded.counted_sequences(batches.rows[index])

    def _batches_and_index(self, batch_index):
        """Return the batches of the epoch of a batch, and its index in them."""
        epoch = min(batch_index // self.batches, self.epochs)
        return self.epoch(epoch), (batch_index - epoch * self.batches) % self.batches

    def data_for_fit(self, epoch, batch):
        """Return all batches from one on, as the data of `engine.fit`."""

        def batches():
            for index in range(epoch * self.batches + batch, self.epochs * self.batches):
                yield self.batch(index)

        example = self.batch(epoch * self.batches + batch)
        return engine.FitData(batches, example, lambda array: [None] * array.ndim)

    def rows_of(self, encoded):
        """Return the indices of the rows of each batch that data would have in the first epoch.

        A loss that compares the rows of a batch can only be compared for such batches.
        """
        if self.shape is None:
            return Batches(encoded, self.batch_size, (self._seed, 0), self._lengths).rows
        return self._plan(encoded, 0)

    def _make_epoch(self, epoch):
        """Return the batches of an epoch, counted from 0: `Batches` or `PackedBatches`."""
        seed = (self._seed, epoch)
        if self.shape is None:
            return Batches(self.encoded, self.batch_size, seed, self._lengths, self._devices)
        shape = self.shape
        if epoch < len(self._plans):
            plan = self._plans[epoch]
        else:
            plan = self._plan(self.encoded, epoch)
            sequences = self._packed_sequences(plan)
            shape = packing.widen_shape(shape, self._sequences.lengths, sequences)
        kind = packing.PackedBatches if self._texts_per_row is None else packing.PackedRows
        return kind(
            self.encoded, plan, shape, of_positions=self._of_positions, devices=self._devices
        )

    def _plan(self, encoded, epoch):
        """Return the indices of the examples of each batch, see `packing.plan_batches`."""
        sequences = encoded if encoded.texts_per_row is None else encoded.texts
        lengths = sequences.lengths.reshape(len(encoded.lengths), -1).sum(axis=1)
        return plan_of_sets(
            encoded,
            (self._seed, epoch),
            lambda rows, seed: packing.plan_batches(lengths[rows], self.batch_size, seed),
        )

    def _packed_sequences(self, plan):
        """Return the indices of the sequences of each batch."""
        if self._texts_per_row is None:
            return plan
        return [packing.texts_of_rows(rows, self._texts_per_row) for rows in plan]


def _can_pack_here():
    """Return True if packing leaves the gradient of a batch unchanged on these devices."""
    # A replica of TensorFlow, or a process of JAX, has only its own rows of a packed batch.
    if keras.backend.backend() == "jax":
        return distribution.worker()[1] == 1
    return distribution.replicas() == 1


def _can_be_mixed(model):
    """Return True if `mixed_training` trains the model faster."""
    if not distribution.is_faster_in_bfloat16():
        return False
    from keras_bert import mixed_training  # it imports TensorFlow

    return mixed_training.can_train(model)


def _cost_of_compiling(encoder, is_mixed):
    """Return how many positions TensorFlow on a CPU computes during one compilation."""
    if not distribution.supports_jit_compile():
        return math.inf
    if encoder.rematerialize:  # on a CPU XLA undoes half of the memory savings
        return math.inf
    config = encoder.bert_config
    flops_per_position = flops.of_encoder(config, 32) / 32
    if is_mixed:
        return _OPERATIONS_PER_MIXED_COMPILATION / flops_per_position
    return _OPERATIONS_PER_COMPILATION * config["num_hidden_layers"] / flops_per_position
