"""Batches of like lengths, so that little is computed on padding.

What is batched is anything with these parts, such as `texts.EncodedTexts`:

    lengths      positions each sequence takes, int (n,)
    max_length   the most any of them takes
    batch(rows, length)  -> (inputs, targets, weights), dicts of arrays or arrays, each with one
                 entry for each of the rows; targets and weights are `None` without labels
"""

import keras
import numpy as np
import tensorflow as tf

# With compiled steps each length costs a compilation, so there is a handful of them.
LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
# How a loss is averaged: over what has a weight. Keras' default also counts padding and the rows
# that fill up a batch, so a word would count for less in a batch of unequal lengths.
REDUCTION = "mean_with_sample_weight"
_POOL = 50  # batches that are sorted by length together: enough to save padding, still random


class Batches:
    """One epoch of batches, each as long as its longest sequence.

    Args:
        encoded: the sequences, see above.
        batch_size: sequences a batch.
        seed: of the order; `None`: longest first, for prediction. A pair such as
            (seed, epoch) gives each epoch an order of its own.
        fixed_lengths: whether a batch is padded to one of `LENGTHS` and the last batch filled
            up with rows of weight 0, so that a compiled step sees few shapes. `"one"`: to
            `max_length` always, for TPUs.

    Attributes:
        rows: for each batch which sequences it holds, a list of int arrays.
        sizes: rows of each batch, those that fill it up included.

    Example:

    >>> class Rows:
    ...     lengths, max_length = np.array([3, 5, 4]), 8
    ...     def batch(self, rows, length):
    ...         return {"ids": np.zeros((len(rows), length), int)}, None, None
    >>> batches = Batches(Rows(), batch_size=2)
    >>> [batches[index][0]["ids"].shape for index in range(len(batches))]
    [(2, 5), (1, 3)]
    """

    def __init__(self, encoded, batch_size, seed=None, fixed_lengths=False):
        self._encoded = encoded
        self._fixed_lengths = fixed_lengths
        self.rows = _plan(encoded.lengths, batch_size, seed)
        self.sizes = [batch_size if fixed_lengths else len(rows) for rows in self.rows]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        """Returns (inputs,), or (inputs, targets, weights) where there are labels."""
        rows = self.rows[index]
        length = int(self._encoded.lengths[rows].max())
        missing = 0
        if self._fixed_lengths:
            length = next((size for size in LENGTHS if size >= length), length)
            length = min(length, self._encoded.max_length)
            if self._fixed_lengths == "one":
                length = self._encoded.max_length
            missing = self.sizes[index] - len(rows)
            rows = np.concatenate([rows, np.repeat(rows[:1], missing)])
        inputs, targets, weights = self._encoded.batch(rows, length)
        if targets is None:
            return (inputs,)
        if missing:
            for array in keras.tree.flatten(weights):
                array[len(rows) - missing :] = 0
        return inputs, targets, weights

    def dataset(self, start=0):
        """The batches as a `tf.data.Dataset`, prepared while the model computes.

        Args:
            start: the first batch; those before it were seen before an interruption.

        Returns:
            The dataset.
        """
        # Keras would take the shapes from the first batches, and lengths differ.
        signature = keras.tree.map_structure(
            lambda array: tf.TensorSpec([None] * array.ndim, array.dtype), self[start]
        )
        dataset = tf.data.Dataset.from_generator(
            lambda: (self[index] for index in range(start, len(self))), output_signature=signature
        )
        size = tf.data.experimental.assert_cardinality(len(self) - start)
        return dataset.apply(size).prefetch(2)


def pad(sequences, length, value=0):
    """Sequences of different lengths as one array.

    Args:
        sequences: list of int arrays, each at most `length` long.
        length: columns of the result.
        value: what stands behind the end of a sequence.

    Returns:
        int32 (len(sequences), length).

    Example:

    >>> pad([np.array([1, 2, 3]), np.array([4])], 4).tolist()
    [[1, 2, 3, 0], [4, 0, 0, 0]]
    """
    result = np.full((len(sequences), length), value, np.int32)
    for row, sequence in zip(result, sequences, strict=True):
        row[: len(sequence)] = sequence
    return result


def _plan(lengths, batch_size, seed):
    """Which rows make up each batch: a list of int arrays."""
    if seed is None:
        order = np.argsort(-lengths, kind="stable")
        return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), _POOL * batch_size):
        pool = order[start : start + _POOL * batch_size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[first : first + batch_size] for first in range(0, len(pool), batch_size)]
    return [batches[index] for index in generator.permutation(len(batches))]
