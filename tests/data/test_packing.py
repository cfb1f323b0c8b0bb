"""Tests of packing: layouts, plans, shapes, and training on packed batches."""

import keras
import numpy as np
import pytest

from keras_bert import Preprocessor, heads, packed_heads
from keras_bert.data import packing
from keras_bert.data.packing import PackedBatches
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.tasks.tagging.task import Tagging
from keras_bert.text.encoded_texts import EncodedTexts
from keras_bert.training import finetuning
from tests import tiny
from tests.parameters import slow

tagging = Tagging()

DATA = {"one label": tiny.examples(), "tags": tiny.tagged()}


def encoded(sizes):
    """Encode texts with the given numbers of words; the target of each is its index."""
    texts = ["good " * int(size) for size in sizes]
    tokenizer = tiny.encoder().preprocessor.python_tokenizer
    return EncodedTexts(tokenizer, [texts], 32, targets=np.arange(len(sizes)))


def one_batch(rows, *, of_positions):
    """Return the shape and the contents of one packed batch of all sequences."""
    plan = packing.plan_batches(rows.lengths, len(rows.lengths), 0)
    shape = packing.packed_shape(rows.lengths, [plan], 8)
    return shape, PackedBatches(rows, plan, shape, of_positions=of_positions)[0]


def sizes_like_sentences():
    return np.minimum(np.random.default_rng(0).geometric(0.08, 500), 30)


def test_batches_of_an_epoch_have_similar_totals():
    rows = encoded(sizes_like_sentences())
    plans = [packing.plan_batches(rows.lengths, 16, (3, epoch)) for epoch in (0, 1, 0)]
    shape = packing.packed_shape(rows.lengths, plans, 8)
    plans = [PackedBatches(rows, plan, shape, of_positions=False) for plan in plans]
    for plan in plans:
        assert sorted(np.concatenate(plan.rows)) == list(range(500))
        assert {len(batch) for batch in plan.rows} == {15, 16}
        sums = [rows.lengths[batch].sum() for batch in plan.rows]
        assert np.std(sums) < 0.02 * np.mean(sums)  # random batches: 0.2
        assert len(plan) == len(plan.rows) == -(-500 // 16)
        assert set(plan.sizes) == {shape[0]}
    assert all((a == b).all() for a, b in zip(plans[0].rows, plans[2].rows, strict=True))
    assert not np.array_equal(plans[0].rows[0], plans[1].rows[0])
    assert shape[0] * shape[1] * len(plans[0]) < 1.25 * rows.lengths.sum()
    assert {plans[1][index][0]["input_word_ids"].shape for index in range(32)} == {shape[:2]}


def test_devices_get_equal_shares_of_a_batch():
    rows = encoded(sizes_like_sentences())
    plan = packing.plan_batches(rows.lengths, 64, (0, 0))
    shape = packing.packed_shape(rows.lengths, [plan], 8, 8)
    for inputs, _, weights in PackedBatches(rows, plan, shape, of_positions=False, devices=8):
        tokens = np.count_nonzero(inputs["text_ids"], axis=1).reshape(8, -1).sum(axis=1)
        texts = weights.reshape(8, -1).sum(axis=1)
        assert tokens.sum() / 8 / tokens.max() > 0.9, tokens
        assert texts.min() > 0


def test_a_resumed_run_keeps_its_rows_on_other_devices():
    rows = encoded(sizes_like_sentences()[:40])
    plan = packing.plan_batches(rows.lengths, 20, (0, 0))
    shape = packing.packed_shape(rows.lengths, [plan], 8, 8, saved_rows=6)
    assert shape[0] == 6
    inputs, targets, weights = PackedBatches(rows, plan, shape, of_positions=False)[0]
    filled = PackedBatches(rows, plan, shape, of_positions=False, devices=8)
    filled_inputs, filled_targets, filled_weights = filled[0]
    assert len(filled_weights) == 8
    for key, array in inputs.items():
        np.testing.assert_array_equal(filled_inputs[key][: len(array)], array)
    np.testing.assert_array_equal(filled_targets[: len(targets)], targets)
    np.testing.assert_array_equal(filled_weights[: len(weights)], weights)
    assert not filled_inputs["text_ids"][len(weights) :].any()
    assert not filled_weights[len(weights) :].any()


@pytest.mark.parametrize("of_positions", [False, True])
def test_padding_has_the_id_of_pad(of_positions):
    # In KoBERT's vocabulary, [PAD] is not the first token.
    encoder = tiny.encoder(preprocessor=Preprocessor([*tiny.PIECES[1:], "[PAD]"]))
    if of_positions:
        rows = KerasPredictor(tagging.build(encoder, tiny.tagged())).encode(tiny.tagged(), 16)
    else:
        tokenizer = encoder.preprocessor.python_tokenizer
        rows = EncodedTexts(tokenizer, [tiny.examples().texts], 16, targets=np.zeros(32, int))
    _, (inputs, _, _) = one_batch(rows, of_positions=of_positions)
    padding = inputs["input_word_ids"][inputs["text_ids"] == 0]
    assert set(padding) == {len(tiny.PIECES) - 1}


def finetune(examples, packed, monkeypatch, encoder=None, **options):
    with monkeypatch.context() as patch:
        if not packed:
            patch.setattr(packed_heads, "can_be_packed", lambda model: False)
        fits = []
        fit = keras.Model.fit
        patch.setattr(
            keras.Model, "fit", lambda self, *a, **k: fits.append(self) or fit(self, *a, **k)
        )
        options = {"max_length": 16, "show_progress": False, "learning_rate": 1e-2, **options}
        model, metrics = finetuning.finetune(encoder or tiny.learner(), examples, **options)
    assert {fitted.name == "packed" for fitted in fits} == {packed}
    return model, metrics


@pytest.mark.parametrize(
    ("kind", "pooling"), [("one label", None), ("tags", None), slow("one label", "mean")]
)
def test_training_matches_unpacked_training(kind, pooling, monkeypatch, eager):
    """All examples are in one batch, and there is no dropout."""
    examples = DATA[kind]
    options = {"batch_size": len(examples), "epochs": 3}
    if pooling:
        options["contrastive"] = False
        # The mean is a matmul here and a sum there. Adam's first step has the size of the rate even
        # where a gradient is nothing but the difference of their rounding errors.
        options["learning_rate"] = 1e-3
    (plain, expected), (model, metrics) = (
        finetune(examples, packed, monkeypatch, tiny.learner(pooling=pooling), **options)
        for packed in (False, True)
    )
    for record, other in zip(metrics["history"], expected["history"], strict=True):
        assert record["loss"] == pytest.approx(other["loss"], abs=2e-5)
    for a, b in zip(model.weights, plain.weights, strict=True):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(a), keras.ops.convert_to_numpy(b), atol=5e-4, err_msg=a.path
        )


def test_a_head_on_unit_vectors_is_packed(monkeypatch, eager):
    examples = DATA["one label"]
    losses = []
    for packed in (False, True):
        model = heads.classifier(
            tiny.learner(pooling="mean"), labels=examples.label_names(), normalize=True
        )
        options = {"epochs": 2, "batch_size": len(examples), "learning_rate": 1e-3}
        _, metrics = finetune(examples, packed, monkeypatch, model, **options)
        losses.append([record["loss"] for record in metrics["history"]])
    assert losses[1] == pytest.approx(losses[0], abs=2e-5)


def test_models_with_a_custom_mask_are_not_packed():
    encoder = tiny.learner()
    inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in encoder.input}
    mask = keras.Input((None, None), dtype="int32", name="attention_mask")
    given = {"a mask": {**inputs, "attention_mask": mask}}
    position = keras.ops.cumsum(keras.ops.ones_like(inputs["input_mask"]), axis=1)
    causal = keras.ops.cast(position[:, :, None] >= position[:, None, :], "int32")
    given["left to right"] = {**inputs, "attention_mask": causal}
    for what, read in given.items():
        x = keras.layers.Dropout(0.1, name="dropout")(encoder(read)["sequence_output"])
        x = keras.layers.Dense(2, name="logits")(x)
        output = heads.TaskOutput("tagging", labels=["O", "B-x"], name="output")
        taken = read if what == "a mask" else inputs
        assert not packed_heads.can_be_packed(keras.Model(taken, output(x)))


def test_only_models_on_the_last_layer_are_packed():
    encoder = tiny.learner()
    inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in encoder.input}
    outputs = encoder(inputs)
    for x, packs in (
        (outputs["sequence_output"], True),
        (outputs["encoder_outputs"][0], False),
        (outputs["encoder_outputs"][-1], False),  # the same values, but not the same tensor
    ):
        x = keras.layers.Dropout(0.1, name="dropout")(x)
        x = keras.layers.Dense(2, name="logits")(x)
        output = heads.TaskOutput("tagging", labels=["O", "B-x"], name="output")
        model = keras.Model(inputs, output(x))
        assert packed_heads.can_be_packed(model) == packs
        if packs:
            packed_heads.packed(model)
            assert packed_heads.can_be_packed(model)  # its layers are called twice now
    classes = heads.TaskOutput("classification", labels=["a", "b"], name="output")
    x = keras.layers.Dropout(0.1, name="dropout")(outputs["sequence_output"][:, 0])
    model = keras.Model(inputs, classes(keras.layers.Dense(2, name="logits")(x)))
    assert not packed_heads.can_be_packed(model)
