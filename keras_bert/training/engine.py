"""One call of Keras' `fit` per run, which can begin within an epoch."""

import concurrent.futures
import contextlib
import functools
import types
import warnings

import keras

from keras_bert import keras_private
from keras_bert.data import tf_dataset
from keras_bert.runtime import compilation_cache, seeds
from keras_bert.runtime.memory import explain_out_of_memory
from keras_bert.training.device_memory import advice_for_training


def fit(
    trained,
    data,
    callbacks,
    *,
    shape,
    steps,
    seed=0,
    batches_before=0,
    batch_size=None,
    accumulated=1,
    model=None,
    epochs=1,
    start=(0, 0),
):
    """Train a model on a stream of batches.

    Args:
        trained: The compiled `keras.Model` that takes the batches.
        data: All batches from `start` on, as `FitData`.
        callbacks: A list of Keras callbacks. They see `model`.
        shape: Shape of the token ids of a batch. `shape`, `batch_size` and `accumulated` are for
            the error of a device without enough memory.
        steps: Batches per epoch.
        seed: Seed of dropout on torch. Elsewhere, variables of the model hold it.
        batches_before: Number of batches of the run before these.
        batch_size: Number of sequences in a batch, by default `shape[0]`.
        accumulated: Number of batches per optimizer step.
        model: The user's model, whose variables `trained` shares. Default: `trained`.
        epochs: The number of epochs.
        start: The epoch and the batch to begin with, counted from 0.
    """
    model = trained if model is None else model
    epoch, batch = start
    ends = _EpochEnds(model, trained, steps - batch)
    trained.history = keras.callbacks.History()
    callbacks = keras.callbacks.CallbackList(
        [
            keras.callbacks.LambdaCallback(on_epoch_end=ends.before_callbacks),
            _TorchSeeds(seed, batches_before),
            *callbacks,
            trained.history,
            keras.callbacks.LambdaCallback(
                on_train_batch_end=ends.after_batch, on_epoch_end=ends.after_callbacks
            ),
        ],
        model=model,
        epochs=epochs,
        steps=steps,
        verbose=0,
    )
    model.stop_training = False
    compilation_cache.enable()
    advice = functools.partial(
        advice_for_training, model, shape, batch_size or shape[0], accumulated
    )
    with (
        explain_out_of_memory(advice),
        _synchronized(model, trained),
        keras_private.restore_variables_on_error(trained, trains=True),
        warnings.catch_warnings(),
    ):
        # Heads that do not read the pooler leave it as it is.
        warnings.filterwarnings("ignore", message=keras_private.UNUSED_POOLER)
        try:
            trained.fit(
                data.batches,
                epochs=epochs,
                initial_epoch=epoch,
                steps_per_epoch=steps,
                shuffle=False,
                verbose=0,
                callbacks=callbacks,
            )
        except Exception:
            if data.error is not None:
                raise data.error from None
            raise
        finally:
            data.close()


class FitData:
    """The data of `fit`.

    Args:
        batches: Function that returns an iterator of batches: tuples of arrays or dicts of arrays.
        example: A batch.
        shape: Function from an array of the example to the shape of such arrays in all batches,
            with `None` for dimensions that vary.

    Attributes:
        batches: A `tf.data.Dataset` on TensorFlow, else a generator.
        error: The error of the function that makes the batches, or `None`. TensorFlow replaces it
            by an error of its own.
    """

    def __init__(self, batches, example, shape):
        self._make_batches = batches
        self.error = None
        if keras.backend.backend() != "tensorflow":
            self.batches = _one_ahead(batches())
            return
        import tensorflow as tf

        signature = keras.tree.map_structure(
            lambda array: tf.TensorSpec(shape(array), array.dtype), example
        )
        self.batches = tf_dataset.from_generator(self._keep_error, signature)

    def _keep_error(self):
        try:
            yield from self._make_batches()
        except Exception as error:
            self.error = error
            raise

    def close(self):
        """End the thread that makes the batches."""
        if isinstance(self.batches, types.GeneratorType):
            self.batches.close()


def _one_ahead(batches):
    """Yield the batches of an iterator; a thread makes the next one while a batch is computed."""
    thread = concurrent.futures.ThreadPoolExecutor(1)
    try:
        upcoming = thread.submit(next, batches, None)
        while (batch := upcoming.result()) is not None:
            upcoming = thread.submit(next, batches, None)
            yield batch
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


class _TorchSeeds(keras.callbacks.Callback):
    """Makes dropout on torch a function of a seed and the index of the batch."""

    def __init__(self, seed, next_batch):
        super().__init__()
        self._seed = seed
        self._next_batch = next_batch

    def on_train_batch_begin(self, batch, logs=None):
        seeds.seed_torch(self._seed, self._next_batch)
        self._next_batch += 1


class _EpochEnds:
    """Ends the first epoch of a resumed `fit` early, and passes `stop_training` on.

    Keras has no epochs of different lengths, so `stop_training` of the trained model ends the first
    epoch. `stop_training` of the user's model, which may be the same model, ends the training.
    """

    def __init__(self, model, trained, batches):
        self._model, self._trained = model, trained
        self._batches = batches  # of this epoch
        self._is_stopped = False  # by a callback, after a batch

    def after_batch(self, batch, logs):
        self._is_stopped = self._model.stop_training
        if self._is_stopped or batch + 1 == self._batches:
            self._trained.stop_training = True

    def before_callbacks(self, epoch, logs):
        self._model.stop_training = self._is_stopped

    def after_callbacks(self, epoch, logs):
        self._trained.stop_training = self._model.stop_training
        self._batches = None


@contextlib.contextmanager
def _synchronized(model, trained):
    """Let `model.jax_state_sync()` update the variables that both models share.

    `keras.callbacks.Callback.model` calls it: on JAX, variables are outdated within an epoch.
    """
    if model is trained or keras.backend.backend() != "jax":
        yield
        return
    # `predict` of `model` calls it too, for the state of `model` itself.
    both = (trained.jax_state_sync, model.jax_state_sync)
    model.jax_state_sync = lambda: [synchronize() for synchronize in both]
    try:
        yield
    finally:
        del model.jax_state_sync
