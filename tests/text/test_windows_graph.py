"""Tests of functions that split long texts and run the model on a few rows at a time."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.tasks.tagging import windows as tag_windows
from keras_bert.text import windows_graph as windows


def encoded_windows(counts, size):
    """Return the tokens of each window, and the window and position of each word, as lists."""
    flat = np.array([*itertools.chain(*counts)], np.int64)
    ids = np.arange(flat.sum())
    # Negative ids for [CLS], [SEP] and [PAD].
    encoded = tag_windows.EncodedSentences(ids, flat, counts, (-1, -2, -3), size + 2)
    inputs, _, _ = encoded.batch(range(len(encoded)), size + 2)
    tokens = [row[row >= 0].tolist() for row in inputs["input_word_ids"]]
    positions = [encoded.positions(row).tolist() for row in range(len(encoded))]
    words = [(row, position - 1) for row, each in enumerate(positions) for position in each]
    return tokens, words


def split_between_words(counts, size):
    """Return the windows of the signature in the format of `encoded_windows`."""
    counts = tf.RaggedTensor.from_row_lengths(
        tf.constant([*itertools.chain(*counts)], tf.int64), [len(row) for row in counts]
    )
    lengths = tf.reduce_sum(counts, axis=1)
    tokens = tf.RaggedTensor.from_row_lengths(tf.range(tf.reduce_sum(lengths)), lengths)
    split = windows.split_between_words(tokens, counts, size)
    words = [*zip(split.window.numpy().tolist(), split.position.numpy().tolist(), strict=True)]
    return split.tokens.to_list(), words


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 30])
def test_windows_between_words_are_those_of_the_tagging_task(size):
    rng = np.random.default_rng(size)
    for _ in range(30):
        longest = rng.choice([1, 3, size, size + 3])  # some words are longer than a window
        rows = rng.choice([0, 1, 2, 5, 60], rng.integers(1, 6))
        counts = [rng.integers(1, longest + 1, words).tolist() for words in rows]
        assert split_between_words(counts, size) == encoded_windows(counts, size)


def test_rows_without_words_have_no_windows():
    assert split_between_words([], 4) == ([], [])
    assert split_between_words([[], []], 4) == ([], [])
