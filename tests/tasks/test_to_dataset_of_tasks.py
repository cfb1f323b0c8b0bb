"""`to_dataset` of the data classes, for Keras' own training loop."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.tasks import inference
from tests import tiny
from tests.parameters import fast, needs_tensorflow

SCORED = keras_bert.EmbeddingExamples(
    [("good film", "so good"), ("bad", "so bad"), ("a film", "is this")], [1, 0, 0.5]
)
TASKS = {  # data, and a function from an encoder to a model
    "tagging": (
        tiny.tagged,
        lambda encoder: heads.tagger(encoder, labels=["O", "B-work", "B-mood", "I-mood"]),
    ),
    "questions": (tiny.questions, lambda encoder: heads.span_selector(encoder, no_answer=True)),
    "choices": (tiny.choices, heads.multiple_choice),
    "embeddings": (
        lambda: SCORED, lambda encoder: heads.siamese(heads.embedder(encoder, pooling="mean"))
    ),
}  # fmt: skip


@needs_tensorflow
@pytest.mark.parametrize("task", fast(TASKS, "tagging", "questions", "embeddings"))
def test_batches_in_the_order_of_the_data(task):
    make, build = TASKS[task]
    data, model = make(), build(tiny.encoder(num_hidden_layers=1))
    dataset = data.to_dataset(model, 5)
    encoded = inference.encode(model, data)
    parts = list(dataset)
    assert len(parts) == dataset.cardinality() == -(-len(encoded) // 5)
    start = 0
    for inputs, targets, weights in parts:  # in the order of the data
        size = len(inputs["input_mask"])
        rows = np.arange(start, start + size)
        expected = encoded.batch(rows, inputs["input_mask"].shape[-1])
        if task == "tagging":  # Keras' losses divide by the number of all positions
            expected = (*expected[:2], expected[2] * expected[2].shape[1])
        keras.tree.map_structure(
            np.testing.assert_array_equal, (inputs, targets, weights), expected
        )
        start += size
    assert start == len(encoded)


@needs_tensorflow
def test_order_and_length():
    data, model = tiny.choices(), heads.multiple_choice(tiny.encoder())
    dataset = data.to_dataset(model, 6, shuffle=True, seed=1, pad=16)
    first, second = ([batch[1].numpy().tolist() for batch in dataset] for _ in range(2))
    assert first != second and sorted(sum(first, [])) == sorted(sum(second, []))
    assert {tuple(inputs["input_mask"].shape) for inputs, _, _ in dataset} == {(6, 2, 16)}
    with pytest.warns(UserWarning, match="48 texts were truncated to 5 tokens"):
        data.to_dataset(model, pad=5)
    with pytest.raises(ValueError, match="must be at most 32, the maximum of the model"):
        data.to_dataset(model, pad=33)


@needs_tensorflow
def test_data_without_labels_and_of_another_task():
    questions = keras_bert.Questions(["is this"], ["a good film"])
    model = heads.span_selector(tiny.encoder(num_hidden_layers=1))
    model.compile(run_eagerly=True)
    [(inputs,)] = questions.to_dataset(model)
    assert set(model.predict(questions.to_dataset(model), verbose=0)) == {
        "start_logits", "end_logits"
    }  # fmt: skip
    assert inputs["input_word_ids"].shape[0] == 1
    with pytest.raises(ValueError, match="received Questions"):
        questions.to_dataset(heads.multiple_choice(tiny.encoder()))
