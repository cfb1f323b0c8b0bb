"""Tests of functions that are applied to a few rows at a time."""

import tensorflow as tf

from keras_bert.exporting import windows


def test_results_of_chunks_are_concatenated():
    results = windows.map_in_chunks(
        lambda inputs: {"y": 2 * inputs["x"]},
        {"x": tf.range(5)},
        {"y": tf.TensorSpec([None], tf.int32)},
        chunk=2,
    )
    assert results["y"].numpy().tolist() == [0, 2, 4, 6, 8]
