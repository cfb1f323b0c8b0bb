"""The plan of a run: packed batches, accumulated batches and the choice of compilation."""

import keras
import numpy as np
import pytest

from keras_bert import BertEncoder, heads, packed_heads
from keras_bert.data import packing
from keras_bert.data.batching import LENGTHS
from keras_bert.data.packing import PackedBatches
from keras_bert.text.encoded_texts import Encoded
from keras_bert.training import batch_plan
from keras_bert.training.batch_plan import BatchPlan


class Sequences(Encoded):
    """Sequences of 3 to 30 tokens; the target is the row index."""

    max_length, pad_id = 32, 0

    def __init__(self, count=100):
        self.lengths = np.random.default_rng(0).integers(3, 31, count)

    def batch(self, rows, length):
        ids = np.where(np.arange(length) < self.lengths[rows][:, None], 7, 0).astype(np.int32)
        return {"input_word_ids": ids, "input_type_ids": 0 * ids}, rows, np.ones(len(rows))


def classifier(**config):
    config = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, **config}
    return heads.classifier(BertEncoder(vocab_size=9, hidden_size=4, **config), 2)


def plan_of(model=None, batch_size=16, epochs=2, **options):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = model or classifier()
    return BatchPlan(model, Sequences(), batch_size, 0, epochs=epochs, losses=loss, **options)


def shapes(plan, epoch=0):
    batches = plan.epoch(epoch)
    return {batches[index][0]["input_word_ids"].shape for index in range(len(batches))}


def test_texts_are_packed():
    plan = plan_of()
    assert plan.trained.name == "packed"
    assert plan.batches == 7
    assert shapes(plan, 0) == shapes(plan, 1) == {plan.shape[:2]}
    for epoch in (0, 1):
        batches = plan.epoch(epoch)
        assert isinstance(batches, PackedBatches)
        assert sorted(np.concatenate(batches.rows)) == list(range(100))


def test_fixed_length_is_one_shape_without_packing():
    plan = plan_of(fixed_length=True)
    assert plan.shape is None
    assert shapes(plan) == {(16, 32)}


def test_unpackable_batches_have_similar_lengths(monkeypatch):
    monkeypatch.setattr(packed_heads, "can_be_packed", lambda model: False)
    model = classifier()
    plan = plan_of(model)
    assert plan.trained.trainable_variables == model.trainable_variables
    assert {rows for rows, _ in shapes(plan)} == {16, 4}
    assert len(shapes(plan)) > 2


def test_small_batches_are_not_packed():
    plan = plan_of(batch_size=1)
    assert plan.shape is None
    assert shapes(plan) == {(1, length) for length in set(Sequences().lengths)}


@pytest.mark.parametrize(("accumulate", "steps", "missing"), [(1, 14, 0), (2, 7, 0), (4, 4, 2)])
@pytest.mark.parametrize("batch_size", [16, 15])
def test_last_step_is_completed(accumulate, steps, missing, batch_size):
    plan = plan_of(batch_size=batch_size, gradient_accumulation_steps=accumulate)
    assert (plan.steps, plan.missing) == (steps, missing)
    if missing:
        assert len(plan.epoch(2)) == 7


@pytest.mark.parametrize("packable", [True, False])
def test_steps_are_compiled_if_that_saves_time(packable, monkeypatch):
    monkeypatch.setattr(packed_heads, "can_be_packed", lambda model: packable)
    few = plan_of()
    monkeypatch.setattr(batch_plan, "_OPERATIONS_PER_COMPILATION", 1.0)
    many = plan_of()
    assert (few.compiled, many.compiled) == (False, True)
    if not packable:
        # A few lengths, and the last batch is padded with rows.
        assert {length for _, length in shapes(many)} <= {*LENGTHS, Sequences.max_length}
        assert {rows for rows, _ in shapes(many)} == {16}


@pytest.mark.parametrize("fixed_length", [False, True])
def test_many_epochs_are_compiled(fixed_length):
    assert not plan_of(epochs=1, fixed_length=fixed_length).compiled
    assert plan_of(epochs=10**9, fixed_length=fixed_length).compiled
    # On a CPU, XLA would undo the rematerialization.
    model = classifier(rematerialize=True)
    assert not plan_of(model, epochs=10**9, fixed_length=fixed_length).compiled


def test_late_epochs_fit_the_planned_shape(monkeypatch):
    monkeypatch.setattr(batch_plan, "_PLANNED_EPOCHS", 1)
    monkeypatch.setattr(packing, "_MULTIPLE", 1)  # no spare positions
    plan = plan_of(batch_size=6, epochs=100)
    widths = []
    for number in range(50):
        ((rows, positions),) = shapes(plan, number)
        assert rows == plan.shape[0]
        widths.append(positions)
    assert widths[0] == min(widths) < max(widths) <= widths[0] + 16
