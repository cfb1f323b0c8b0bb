"""One `fit` that begins within an epoch."""

import keras
import numpy as np
import pytest

from keras_bert.training import engine


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.data is of TensorFlow")
def test_the_data_has_no_tuning_thread():
    # An iterator with such a thread can take as long to end as it has lived.
    data = engine.FitData(lambda: iter([np.ones(2)]), np.ones(2), lambda array: array.shape)
    assert data.batches.options().autotune.enabled is False


def small_model():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_a_callback_stops_after_the_last_batch_of_a_resumed_epoch():
    def batches():
        return ((np.ones((1, 1), "float32"), np.ones((1, 1))) for _ in range(5))

    def stop(batch, logs):
        seen.append(batch)
        model.stop_training = True

    seen = []
    model = small_model()
    data = engine.FitData(batches, next(batches()), lambda array: array.shape)
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=stop)
    engine.fit(model, data, [callback], shape=(1, 8), steps=4, epochs=3, start=(1, 3))
    assert seen == [0]


class BrokenData(Exception):
    """An error of the data."""


def test_an_error_of_the_data_keeps_its_type():
    def batches():
        yield np.ones((1, 1), "float32"), np.ones((1, 1))
        raise BrokenData("row 2")

    data = engine.FitData(batches, next(batches()), lambda array: array.shape)
    with pytest.raises(BrokenData, match="row 2"):
        engine.fit(small_model(), data, [], shape=(1, 8), steps=9)
