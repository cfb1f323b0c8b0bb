"""Runs with equal seeds give equal models, on every backend, also if they were killed."""

import random

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import EmbeddingExamples, Examples
from tests import tiny
from tests.tasks.embedding import test_embedding

EXAMPLES = Examples(["good", "so bad", "very good", "bad"] * 2, labels=["yes", "no"] * 4)


@pytest.fixture(autouse=True)
def quick(eager):
    pass


class Killed(Exception):
    """Ends a run before it deletes its state."""


class Kill(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise Killed


def encoder(**options):
    return tiny.encoder(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3, **options)


def finetune(model, examples=EXAMPLES, **options):
    options = {"epochs": 2, "batch_size": 4, "learning_rate": 0.01, **options}
    return keras_bert.finetune(model, examples, show_progress=False, **options)


def check_equal(model, other):
    for one, two in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_a_trained_model_is_trained_further_with_the_seed():
    trained, _ = finetune(encoder())
    weights = trained.get_weights()
    first = [np.copy(weight) for weight in finetune(trained)[0].get_weights()]
    trained.set_weights(weights)
    keras.utils.set_random_seed(99)  # earlier random numbers do not matter
    again, _ = finetune(trained)
    for one, two in zip(first, again.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)
    trained.set_weights(weights)
    other, _ = finetune(trained, seed=1)
    assert any((one != two).any() for one, two in zip(first, other.get_weights(), strict=True))


@pytest.mark.parametrize(
    ("pooling", "examples", "options"),
    [
        (None, EXAMPLES, {}),
        ("mean", EXAMPLES, {"batch_size": 32}),  # contrastive
        (
            "mean",
            EmbeddingExamples(test_embedding.rows(8)),
            {"gradient_caching": True, "gradient_accumulation_steps": 2},
        ),
    ],
)
def test_a_killed_run_resumes_with_its_best_weights(pooling, examples, options, tmp_path):
    bert = encoder(pooling=pooling)
    expected, _ = finetune(bert, examples, dev=examples, **options)
    with pytest.raises(Killed):
        finetune(bert, examples, dev=examples, folder=tmp_path, callbacks=[Kill()], **options)
    resumed, _ = finetune(bert, examples, dev=examples, folder=tmp_path, **options)
    check_equal(resumed, expected)


def test_the_random_numbers_of_the_program_do_not_change():
    def draw():
        drawn = [random.random(), np.random.random(), float(keras.random.uniform(()))]
        if keras.backend.backend() == "torch":
            import torch

            drawn.append(float(torch.rand(())))
        return drawn

    bert = encoder()
    keras.utils.set_random_seed(7)
    expected = draw()
    keras.utils.set_random_seed(7)
    finetune(bert)
    assert draw() == expected
