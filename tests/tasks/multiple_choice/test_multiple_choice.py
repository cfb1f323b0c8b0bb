"""Tests of the multiple-choice task."""

import numpy as np
import pytest

from keras_bert import heads
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.tasks.multiple_choice.data import Choices
from keras_bert.tasks.multiple_choice.task import MultipleChoice
from tests import tiny

multiple_choice = MultipleChoice()


def test_each_choice_is_encoded_as_a_pair():
    model = heads.multiple_choice(tiny.encoder(num_hidden_layers=1))
    examples = Choices(["good", "so"], [["bad", "a film"], ["is", "a a a a a a"]], [1, 0])
    encoded = KerasPredictor(model).encode(examples, 8)
    assert encoded.lengths.tolist() == [6, 8]
    assert (encoded.truncated, encoded.without_tokens) == (1, 0)
    inputs, targets, weights = encoded.batch([1, 0], 8)
    assert inputs["input_word_ids"].tolist() == [
        [[2, 14, 3, 13, 3, 0, 0, 0], [2, 14, 3, 8, 8, 8, 8, 3]],
        [[2, 5, 3, 6, 3, 0, 0, 0], [2, 5, 3, 8, 7, 3, 0, 0]],
    ]
    assert (targets.tolist(), weights.tolist()) == ([0, 1], [1, 1])
    unlabeled = Choices(examples.texts, examples.choices)
    assert KerasPredictor(model).encode(unlabeled, 8).batch([0], 8)[1:] == (None, None)
    with pytest.raises(ValueError, match="found no labels in the choices"):
        multiple_choice.build(tiny.encoder(num_hidden_layers=1), unlabeled)


def test_texts_without_tokens_are_counted():
    model = heads.multiple_choice(tiny.encoder(num_hidden_layers=1))
    examples = Choices(["", "so"], [["bad", "good"], ["\u200b", "good"]])
    assert KerasPredictor(model).encode(examples, 8).without_tokens == 2


def test_probabilities_and_scores():
    examples = Choices(["a", "b", "c"], [["d", "e"]] * 3, [1, 0, 0])
    answers = multiple_choice.activate(None, [[0, 2], [0, 2], [4, 2]])
    np.testing.assert_allclose(answers[2], [0.8808, 0.1192], atol=1e-4)
    assert multiple_choice.score(None, examples, answers) == {"accuracy": 2 / 3, "majority": 2 / 3}
