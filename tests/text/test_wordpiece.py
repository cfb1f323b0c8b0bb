"""WordPiece on the characters of words, without the steps before it."""

import tensorflow as tf

from keras_bert.text import tables, wordpiece


def test_a_word_becomes_two_tokens():
    arrays = tables.lookup_tables({"[UNK]": 0, "a": 1, "##a": 2}, True, True, True)
    constants = {name: tf.constant(array) for name, array in arrays.items()}
    letter = int(arrays["alphabet_size"]) - 1  # the letters are sorted: "a" is the last one
    words = {"index": [0, 0], "offset": [0, 1], "start": [0], "length": [2]}
    words = {name: tf.constant(value) for name, value in words.items()}
    tokens = wordpiece.tokenize_words(constants, tf.constant([letter, letter]), words, 0)
    assert {name: value.numpy().tolist() for name, value in tokens.items()} == {
        "id": [1, 2],
        "word": [0, 0],
        "first": [0, 1],
        "length": [1, 1],
        "splits": [0, 2],
    }
