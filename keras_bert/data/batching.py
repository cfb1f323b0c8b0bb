"""Batches of like lengths, so that little is computed on padding.

What is batched is anything with these parts, such as `texts.EncodedTexts`:

    lengths      positions each sequence takes, int (n,)
    max_length   the most any of them takes
    batch(rows, length)  -> (inputs, targets, weights), dicts of arrays or arrays, each with one
                 entry for each of the rows; targets and weights are `None` without labels
"""

import collections
import itertools

import keras
import numpy as np
import tensorflow as tf

# With compiled steps each length costs a compilation, so there is a handful of them at most.
LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
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
        lengths: for compiled steps, which should see few shapes: a batch is padded to the next
            of these, rising, or to `max_length`, and the last batch is filled up with rows of
            weight 0. `None`: to its longest sequence.

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

    def __init__(self, encoded, batch_size, seed=None, lengths=None):
        self._encoded = encoded
        self._lengths = lengths
        sizes = encoded.lengths
        if lengths is not None and seed is not None:
            # What is padded to one length need not be sorted any finer: the more random, the
            # better. Questions on one paragraph, say, have hardly different lengths.
            sizes = np.searchsorted(lengths, sizes)
        self.rows = _plan(sizes, batch_size, seed)
        self.sizes = [len(rows) if lengths is None else batch_size for rows in self.rows]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        """Returns (inputs,), or (inputs, targets, weights) where there are labels."""
        rows = self.rows[index]
        length = self.needed(index)
        if self._lengths is not None:
            length = next((size for size in self._lengths if size >= length), length)
            length = min(length, self._encoded.max_length)
        inputs, targets, weights = self._encoded.batch(rows, length)
        missing = self.sizes[index] - len(rows)
        if targets is None:
            return (_filled_up(inputs, missing),)
        return (
            _filled_up(inputs, missing),
            _filled_up(targets, missing),
            _filled_up(weights, missing, weight=0),
        )

    def needed(self, index):
        """Positions of the longest sequence of a batch."""
        return int(self._encoded.lengths[self.rows[index]].max())

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


def worth_compiling(needed, cost, share):
    """Chooses lengths to compile steps for, if that is quicker than not to compile at all.

    Args:
        needed: of each batch of a run, positions of its longest sequence.
        cost: of compiling for one length: the positions of a batch that go by meanwhile.
        share: of an uncompiled step's time that a compiled one takes, 0 to 1.

    Returns:
        Some of `LENGTHS`, rising; `None` where nothing should be compiled.

    Example:

    >>> worth_compiling([30] * 400 + [60] * 200, cost=1000, share=0.7)
    (32, 64)
    >>> worth_compiling([30] * 50 + [60] * 20, cost=1000, share=0.7)
    """
    counts = collections.Counter(
        next((size for size in LENGTHS if size >= length), length) for length in needed
    )
    *others, longest = sorted(counts)
    best, chosen = sum(needed), None
    for number in range(len(others) + 1):
        for lengths in itertools.combinations(others, number):
            lengths = (*lengths, longest)
            padded = sum(
                count * next(size for size in lengths if size >= length)
                for length, count in counts.items()
            )
            time = share * padded + cost * len(lengths)
            if time < best:
                best, chosen = time, lengths
    return chosen


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


def _filled_up(arrays, missing, weight=1):
    """Arrays with so many more rows, copies of the first one times a weight."""
    if not missing:
        return arrays
    return keras.tree.map_structure(
        lambda array: np.concatenate([array, np.repeat(array[:1] * weight, missing, axis=0)]),
        arrays,
    )


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
