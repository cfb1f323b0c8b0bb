"""Training steps in bfloat16 on CPUs, compared with those of the layers."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads, mixed_training, optimizers, packed_heads
from keras_bert.data.examples import Examples
from keras_bert.runtime import distribution, processor
from tests import tiny

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="a graph of TensorFlow"
)


def batch(kind, rows=3, seq=12, seed=0):
    """Return inputs of a model: padded, packed, or packed for pretraining."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, len(tiny.PIECES), (rows, seq)).astype("int32")
    types = (np.arange(seq) > seq // 2).astype("int32") * np.ones_like(ids)
    if kind == "padded":
        mask = (np.arange(seq) < [[seq], [5], [1]]).astype("int32")
        return {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
    text_ids = np.array([[1] * 5 + [2] * 7, [1] * 4 + [2] * 4 + [0] * 4, [0] * 12], "int32")
    return {
        "input_word_ids": ids,
        "input_type_ids": types,
        "position_ids": np.arange(seq, dtype="int32") * np.ones_like(ids),
        "text_ids": text_ids,
        "cls_positions": np.array([[0, 5], [0, 4], [0, 0]], "int32"),
    }


def models(kind, dtype, **options):
    encoder = tiny.encoder(initializer_range=0.3, dtype=dtype, **options)
    if kind == "padded":
        model = heads.classifier(encoder, 2)
        return model, model
    if kind == "packed":
        model = heads.classifier(encoder, 2)
        return model, packed_heads.packed(model)
    model = heads.pretraining(encoder)
    return model, packed_heads.packed_pretraining(model)


def seeded(model):
    """Set the seeds of dropout to the same numbers each time."""
    for variable in model.variables:
        if variable.path.endswith("seed_generator_state"):
            variable.assign(np.array([7, 0], variable.dtype))


def inputs_of(kind):
    inputs = batch("padded" if kind == "padded" else "packed")
    if kind == "pretraining":
        inputs["masked_lm_positions"] = np.array([[1, 6], [2, 5], [0, 0]], "int32")
    return inputs


def outputs_and_gradients(model, inputs):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        outputs = keras.tree.flatten(model(inputs, training=True))
        loss = sum(tf.reduce_sum(tf.sin(tf.cast(each, tf.float32))) for each in outputs)
    variables = [variable.value for variable in model.trainable_variables]
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    return outputs, [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]


@pytest.mark.parametrize(
    "kind", ["padded", "packed", pytest.param("pretraining", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("dropout", [pytest.param(0.0, marks=pytest.mark.slow), 0.4])
def test_outputs_and_gradients_are_those_of_the_layers(kind, dropout):
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    _, model = models(kind, "float32", **rates)
    fast, inputs = mixed_training.TrainedModel(model), inputs_of(kind)
    assert [v.path for v in fast.variables] == [v.path for v in model.variables]
    results = []
    for each in (model, fast, model):
        seeded(model)
        results.append(outputs_and_gradients(each, inputs))
    for one, other in ((0, 1), (0, 2)):
        for a, b in zip(results[one][0], results[other][0], strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)
        for a, b in zip(results[one][1], results[other][1], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-4)


def test_bfloat16_is_near_float32():
    model, _ = models("padded", "mixed_bfloat16", hidden_dropout_prob=0.0)
    encoder = heads.find_encoder(model).with_options(
        dtype="float32", attention_probs_dropout_prob=0.0
    )
    exact = heads.classifier(encoder, 2)
    exact.get_layer("logits").set_weights(model.get_layer("logits").get_weights())
    expected = exact(batch("padded"), training=False)
    got = mixed_training.TrainedModel(model)(batch("padded"), training=False)
    np.testing.assert_allclose(got, expected, atol=0.05)
    assert mixed_training.can_train(model) and not mixed_training.can_train(exact)


def test_lora_and_frozen_layers():
    _, model = models("padded", "float32", hidden_dropout_prob=0.0)
    encoder = heads.find_encoder(model)
    block = encoder.get_layer("layer_0")
    block.attention.qkv.enable_lora(2)
    block.attention.qkv.lora_kernel_b.assign(block.attention.qkv.lora_kernel_b + 0.5)
    encoder.get_layer("embeddings").trainable = False
    results = []
    for each in (model, mixed_training.TrainedModel(model)):
        seeded(model)
        results.append(outputs_and_gradients(each, batch("padded")))
    assert len(results[0][1]) == len(model.trainable_variables)
    for a, b in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("accumulated", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_steps_are_those_of_the_layers(accumulated):
    options = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    _, model = models("padded", "float32", **options)
    start = model.get_weights()
    targets = np.array([0, 1, 1], "int32")
    trained = []
    for each in (model, mixed_training.TrainedModel(model)):
        model.set_weights(start)
        each.compile(
            optimizers.adamw(1e-3, total_steps=10, gradient_accumulation_steps=accumulated),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=["accuracy"],
        )
        history = [each.train_on_batch(batch("padded"), targets) for _ in range(4)]
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
def test_finetune_uses_it_and_resumes(with_bfloat16, monkeypatch, tmp_path):
    compiled = []
    original = mixed_training.TrainedModel.compile

    def compile(self, *args, **options):
        compiled.append(self)
        original(self, *args, **options)

    class Killed(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                raise RuntimeError

    monkeypatch.setattr(mixed_training.TrainedModel, "compile", compile)
    encoder = tiny.encoder(dtype="mixed_bfloat16")
    options = {"epochs": 4, "batch_size": 4, "learning_rate": 1e-2, "show_progress": False}
    expected, _ = keras_bert.finetune(encoder, TEXTS, dev=TEXTS, **options)
    options |= {"dev": TEXTS, "folder": tmp_path}
    with pytest.raises(RuntimeError):
        keras_bert.finetune(encoder, TEXTS, callbacks=[Killed()], **options)
    model, metrics = keras_bert.finetune(encoder, TEXTS, **options)
    assert len(compiled) == 3 and np.isfinite(metrics["train_loss"])
    for a, b in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_dtype_of_other_processors(monkeypatch):
    monkeypatch.setattr(processor, "has_bfloat16", lambda: False)
    assert not distribution.is_faster_in_bfloat16()
