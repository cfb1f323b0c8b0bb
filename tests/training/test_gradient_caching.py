"""Dropout and resumed runs with gradient caching.

tests/properties/test_training.py compares its steps with those of a large batch.
"""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import EmbeddingExamples, heads
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.training import callbacks, gradient_caching
from keras_bert.training.batch_plan import BatchPlan
from tests.tasks.embedding.test_embedding import encoder, rows


def weights_after(batch_size, steps, examples, bert=None, **options):
    model, found = keras_bert.finetune(
        bert or encoder(), examples, epochs=1, batch_size=batch_size, warmup=0.0,
        gradient_accumulation_steps=steps, show_progress=False, **options,
    )  # fmt: skip
    return model.get_weights(), found["train_loss"]


def test_gradient_caching_repeats_dropout():
    """The embeddings of the second pass are those of the first."""
    bert = encoder(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3)
    model = heads.siamese(heads.embedder(bert))
    encoded = KerasPredictor(model).encode(EmbeddingExamples(rows()), 32, gradient_caching=True)
    plan = BatchPlan(
        model, encoded, 8, seed=0, epochs=2, losses=encoded.loss, gradient_accumulation_steps=2
    )
    plan.cache.compile(False)
    seen = []
    forward = plan.cache._forward
    predict = forward.predict_on_batch
    forward.predict_on_batch = lambda inputs: seen.append(predict(inputs)) or seen[-1]
    plan.trained.compile("sgd")
    plan.cache.set_gradients(1)  # of the second batch of the first step
    inputs, _, _ = plan.batch(1)
    again, other = (
        keras.ops.convert_to_numpy(plan.trained(inputs, training=True)) for _ in range(2)
    )
    np.testing.assert_allclose(again, seen[1], atol=1e-6)
    assert abs(other - seen[1]).max() > 1e-3


def test_dropout_is_seeded_whatever_the_name_of_its_state():
    dropout = keras.layers.Dropout(0.5)
    state = dropout.seed_generator.state
    dropout.seed_generator.state = keras.Variable(
        [0, 0], dtype=state.dtype, trainable=False, name="renamed"
    )
    dense = keras.layers.Dense(4)
    model = keras.Sequential([keras.Input((64,)), dense, keras.Sequential([dropout])])
    model.compile("sgd", "mse", metrics=["mse"])
    model.evaluate(np.ones((2, 64)), np.ones((2, 4)), verbose=0)  # makes variables of metrics
    weights = model.get_weights()
    outputs = []
    for seed in ([1], [1], [1, 2]):
        gradient_caching.seed_dropout(model, *seed)
        outputs.append(keras.ops.convert_to_numpy(model(np.ones((1, 64)), training=True)))
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert (outputs[1] != outputs[2]).any()
    for before, after in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.slow
def test_gradient_caching_resumes_within_a_step(tmp_path, monkeypatch):
    examples = EmbeddingExamples(rows(32, negatives=1))
    bert = encoder(hidden_dropout_prob=0.3)
    options = {"gradient_caching": True, "bert": bert}
    expected, _ = weights_after(8, 3, examples, **options)

    class Kill(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:  # the state of two batches of the first step, of three batches, is saved
                raise RuntimeError("killed")

    monkeypatch.setattr(callbacks, "_SAVE_SECONDS", 0)
    with pytest.raises(RuntimeError, match="killed"):
        weights_after(8, 3, examples, folder=tmp_path, callbacks=[Kill()], **options)
    found, _ = weights_after(8, 3, examples, folder=tmp_path, **options)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_gradient_caching_needs_several_batches_per_step():
    with pytest.raises(ValueError, match="gradient_accumulation_steps to at least 2"):
        weights_after(8, 1, EmbeddingExamples(rows()), gradient_caching=True)
