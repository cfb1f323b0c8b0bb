"""The batches of a phase as the data of Keras' `fit`."""

import itertools

import keras
import numpy as np

from keras_bert.training import engine


class Feed:
    """The next batches of a `Stream`, which is at a `StreamPosition`.

    Attributes:
        stream: The stream.
        positions: The position after each batch, by its number from 0. Whoever reads one removes
            it.
        tokens: The number of tokens of each batch, without padding, likewise.
        error: The error of the stream, which TensorFlow hides, or `None`.
    """

    def __init__(self, stream, position, count):
        self.stream = stream
        self._position, self._count = position, count
        self.positions, self.tokens = {}, {}
        self.error = None

    def data(self):
        """Return the data of `engine.fit`."""
        return data_for_fit(self._batches, self.stream, self.stream.rows)

    def _batches(self):  # TensorFlow's strategies call this function more than once
        drawn = itertools.islice(self.stream.batches(self._position), self._count)
        try:
            for number, (position, batch) in enumerate(drawn):
                inputs = batch[0]
                mask = inputs.get("input_mask", inputs.get("text_ids"))
                self.positions[number] = position
                self.tokens[number] = int(np.count_nonzero(mask))
                yield batch
        except (ValueError, OSError) as error:
            self.error = error
            raise


def data_for_fit(batches, stream, rows):
    """Return batches of a stream, each of `rows` rows, as the data of Keras' `fit`.

    `batches` is a function that returns an iterator.
    """
    data = engine.data_for_fit(
        lambda: map(_with_outputs, batches()),
        _with_outputs(stream.example()),
        lambda array: (rows, *array.shape[1:]),
    )
    if keras.backend.backend() != "tensorflow":
        return data
    import tensorflow as tf

    options = tf.data.Options()
    # The stream of each worker already yields only that worker's rows.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return data.with_options(options)


def _with_outputs(batch):
    """Replace dicts of one target by the target, as Keras expects for a model of one output."""
    inputs, *rest = batch
    return inputs, *(part if len(part) > 1 else part["masked_lm"] for part in rest)
