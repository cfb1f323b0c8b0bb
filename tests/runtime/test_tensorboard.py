"""TensorBoard logs."""

import tensorflow as tf

from keras_bert.runtime import tensorboard


def scalars(folder):
    """Return the scalars of the only log of a folder: {(name, step): value}."""
    found = {}
    (file,) = folder.iterdir()
    for event in tf.compat.v1.train.summary_iterator(str(file)):
        for value in event.summary.value:
            assert value.metadata.plugin_data.plugin_name == "scalars"
            found[value.tag, event.step] = float(tf.make_ndarray(value.tensor))
    return found


def test_scalars_are_written(tmp_path):
    write = tensorboard.writer(tmp_path / "logs")
    write(1, {"loss": 0.5, "accuracy": 1})
    write(20, {"loss": 0.25})
    assert scalars(tmp_path / "logs") == {
        ("loss", 1): 0.5, ("accuracy", 1): 1.0, ("loss", 20): 0.25,
    }  # fmt: skip
