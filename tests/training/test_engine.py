"""One `fit` that begins within an epoch."""

import keras
import numpy as np
import pytest

from keras_bert.training import engine


class Recorder(keras.callbacks.Callback):
    """Keeps the epoch and the number of each batch; stops the training after a batch."""

    def __init__(self, stop_after_batch=None):
        super().__init__()
        self.batches = []
        self._stop_after_batch = stop_after_batch

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append((self._epoch, batch))
        if self._stop_after_batch == (self._epoch, batch):
            self.model.stop_training = True


def fit(recorder, start, is_shared):
    """Train on batches of the numbers 0 to 11; return the sum of what was trained on."""
    inputs = keras.Input((1,))
    trained = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="zeros")(inputs))
    trained.compile(keras.optimizers.SGD(1.0), lambda _, outputs: keras.ops.sum(outputs))
    model = keras.Model(trained.inputs, trained.outputs) if is_shared else trained
    first = start[0] * 4 + start[1]

    def batches():
        return ((np.full((1, 1), i, "float32"), np.zeros((1, 1))) for i in range(first, 12))

    data = engine.FitData(batches, next(batches()), lambda array: array.shape)
    engine.fit(trained, data, [recorder], shape=(2, 8), steps=4, model=model, epochs=3, start=start)
    assert recorder.model is model
    return -trained.layers[-1].kernel.numpy().item()


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.data is of TensorFlow")
def test_the_data_has_no_tuning_thread():
    # An iterator with such a thread can take as long to end as it has lived.
    data = engine.FitData(lambda: iter([np.ones(2)]), np.ones(2), lambda array: array.shape)
    assert data.batches.options().autotune.enabled is False


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_resumed_fit_ends_its_first_epoch_early(is_shared):
    recorder = Recorder()
    assert fit(recorder, (1, 3), is_shared) == sum(range(7, 12))
    assert recorder.batches == [(1, 0), (2, 0), (2, 1), (2, 2), (2, 3)]


def test_a_callback_stops_after_the_last_batch_of_a_resumed_epoch():
    recorder = Recorder(stop_after_batch=(1, 0))
    fit(recorder, (1, 3), is_shared=False)
    assert recorder.batches == [(1, 0)]


class BrokenData(Exception):
    """An error of the data."""


def test_an_error_of_the_data_keeps_its_type():
    def batches():
        yield np.ones((1, 1), "float32"), np.ones((1, 1))
        raise BrokenData("row 2")

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = engine.FitData(batches, next(batches()), lambda array: array.shape)
    with pytest.raises(BrokenData, match="row 2"):
        engine.fit(model, data, [], shape=(1, 8), steps=9)
