"""Training steps in bfloat16 on CPUs, compared with those of the layers."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads, mixed_training, optimizers, packed_heads
from keras_bert.data.examples import Examples
from keras_bert.runtime import distribution, processor
from tests import tiny
from tests.parameters import fast

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="a graph of TensorFlow"
)


SEQ = 12
PADDED = (np.arange(SEQ) < [[SEQ], [5], [1]]).astype("int32")
TEXT_IDS = np.array([[1] * 5 + [2] * 7, [1] * 4 + [2] * 4 + [0] * 4, [0] * 12], "int32")


def inputs_of(kind):
    """Return inputs of a model: padded, packed, or packed for pretraining."""
    ids = np.random.default_rng(0).integers(5, len(tiny.PIECES), (3, SEQ)).astype("int32")
    types = (np.arange(SEQ) > SEQ // 2).astype("int32") * np.ones_like(ids)
    inputs = {"input_word_ids": ids, "input_type_ids": types}
    if kind == "padded":
        return inputs | {"input_mask": PADDED}
    inputs["position_ids"] = np.arange(SEQ, dtype="int32") * np.ones_like(ids)
    inputs["text_ids"] = TEXT_IDS
    inputs["cls_positions"] = np.array([[0, 5], [0, 4], [0, 0]], "int32")
    if kind == "pretraining":
        inputs["masked_lm_positions"] = np.array([[1, 6], [2, 5], [0, 0]], "int32")
    return inputs


def model_of(kind, dtype, **options):
    """Return a model that takes the inputs of `inputs_of`."""
    encoder = tiny.encoder(initializer_range=0.3, dtype=dtype, **options)
    if kind == "pretraining":
        return packed_heads.packed_pretraining(heads.pretraining(encoder))
    model = heads.classifier(encoder, 2)
    return model if kind == "padded" else packed_heads.packed(model)


def seeded(model):
    """Set the seeds of dropout to the same numbers each time."""
    for variable in model.variables:
        if variable.path.endswith("seed_generator_state"):
            variable.assign(np.array([7, 0], variable.dtype))


def outputs_and_gradients(model, inputs):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        outputs = keras.tree.flatten(model(inputs, training=True))
        loss = sum(tf.reduce_sum(tf.sin(tf.cast(each, tf.float32))) for each in outputs)
    variables = [variable.value for variable in model.trainable_variables]
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    return outputs, [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]


@pytest.mark.parametrize("kind", fast(["padded", "packed", "pretraining"], "packed"))
def test_outputs_and_gradients_are_those_of_the_layers(kind):
    options = {"hidden_dropout_prob": 0.4, "attention_probs_dropout_prob": 0.4}
    model = model_of(kind, "float32", embedding_size=4, **options)
    fast, inputs = mixed_training.TrainedModel(model), inputs_of(kind)
    assert [v.path for v in fast.variables] == [v.path for v in model.variables]
    results = []
    for each in (model, fast):
        seeded(model)
        results.append(outputs_and_gradients(each, inputs))
    (outputs, gradients), (expected_outputs, expected_gradients) = results
    for a, b in zip(outputs, expected_outputs, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    for a, b in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-4)


def test_bfloat16_is_near_float32():
    model = model_of("padded", "mixed_bfloat16", hidden_dropout_prob=0.0)
    encoder = heads.find_encoder(model).with_options(
        dtype="float32", attention_probs_dropout_prob=0.0
    )
    exact = heads.classifier(encoder, 2)
    exact.get_layer("logits").set_weights(model.get_layer("logits").get_weights())
    expected = exact(inputs_of("padded"), training=False)
    got = mixed_training.TrainedModel(model)(inputs_of("padded"), training=False)
    np.testing.assert_allclose(got, expected, atol=0.05)
    assert mixed_training.can_train(model) and not mixed_training.can_train(exact)


def test_lora_and_frozen_layers():
    model = model_of("padded", "float32", hidden_dropout_prob=0.0)
    encoder = heads.find_encoder(model)
    block = encoder.get_layer("layer_0")
    block.attention.qkv.enable_lora(2)
    block.attention.qkv.lora_kernel_b.assign(block.attention.qkv.lora_kernel_b + 0.5)
    encoder.get_layer("embeddings").trainable = False
    results = []
    for each in (model, mixed_training.TrainedModel(model)):
        seeded(model)
        results.append(outputs_and_gradients(each, inputs_of("padded")))
    assert len(results[0][1]) == len(model.trainable_variables)
    for a, b in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_steps_are_those_of_the_layers():
    options = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = model_of("padded", "float32", **options)
    start = model.get_weights()
    targets = np.array([0, 1, 1], "int32")
    trained = []
    for each in (model, mixed_training.TrainedModel(model)):
        model.set_weights(start)
        each.compile(
            optimizers.adamw(1e-3, total_steps=10, gradient_accumulation_steps=2),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=["accuracy"],
        )
        history = [each.train_on_batch(inputs_of("padded"), targets) for _ in range(4)]
        trained.append((history, model.get_weights()))
    np.testing.assert_allclose(trained[0][0], trained[1][0], rtol=1e-4)
    for a, b in zip(trained[0][1], trained[1][1], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_models_that_are_trained_as_they_are():
    encoder = tiny.encoder(dtype="mixed_bfloat16", rematerialize=True)
    assert not mixed_training.can_train(heads.classifier(encoder, 2))
    assert not mixed_training.can_train(tiny.encoder(dtype="mixed_bfloat16"))
    assert not mixed_training.can_train(heads.classifier(tiny.encoder(dtype="mixed_float16"), 2))


@pytest.fixture
def with_bfloat16(monkeypatch):
    """Let the processor have instructions for bfloat16, and let all runs be worth compiling."""
    from keras_bert.training import batch_plan

    monkeypatch.setattr(processor, "has_bfloat16", lambda: True)
    monkeypatch.setattr(batch_plan, "_OPERATIONS_PER_MIXED_COMPILATION", 0)


TEXTS = Examples(["so good", "so bad", "good film", "bad"] * 4, labels=["yes", "no"] * 8)


@pytest.mark.slow
def test_finetune_uses_it(with_bfloat16, monkeypatch):
    compiled = []
    original = mixed_training.TrainedModel.compile

    def compile(self, *args, **options):
        compiled.append(self)
        original(self, *args, **options)

    monkeypatch.setattr(mixed_training.TrainedModel, "compile", compile)
    encoder = tiny.encoder(dtype="mixed_bfloat16")
    options = {"epochs": 2, "batch_size": 4, "learning_rate": 1e-2, "show_progress": False}
    _, metrics = keras_bert.finetune(encoder, TEXTS, dev=TEXTS, **options)
    assert len(compiled) == 1 and np.isfinite(metrics["train_loss"])


def test_dtype_of_other_processors(monkeypatch):
    monkeypatch.setattr(processor, "has_bfloat16", lambda: False)
    assert not distribution.is_faster_in_bfloat16()
