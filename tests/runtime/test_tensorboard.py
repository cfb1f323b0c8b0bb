"""TensorBoard logs."""

import tensorflow as tf

from keras_bert.runtime import tensorboard


def test_scalars_are_written(tmp_path):
    write = tensorboard.writer(tmp_path / "logs")
    write(1, {"loss": 0.5, "accuracy": 1})
    write(20, {"loss": 0.25})
    (file,) = (tmp_path / "logs").iterdir()
    found = {
        (value.tag, event.step): float(tf.make_ndarray(value.tensor))
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
    }
    assert found == {("loss", 1): 0.5, ("accuracy", 1): 1.0, ("loss", 20): 0.25}
