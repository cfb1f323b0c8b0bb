"""Students that imitate the vectors of a teacher."""

import itertools

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import EmbeddingExamples, heads
from tests.tasks.embedding.test_embedding import encoder, rows

TEXTS = [row[1] for row in rows(48)]


@pytest.fixture(scope="module")
def teacher():
    return keras_bert.pipeline(encoder(num_hidden_layers=2))


def student_of(bert, teacher):
    return keras_bert.finetune(
        bert, teacher.as_teacher(TEXTS), dev=teacher.as_teacher(TEXTS[:20]), epochs=6,
        batch_size=8, learning_rate=1e-2, show_progress=False,
    )  # fmt: skip


def test_a_student_of_some_layers_imitates_its_teacher(teacher):
    bert = heads.find_encoder(teacher.model)
    before = keras_bert.evaluate(heads.embedder(bert.keep_layers([1])), teacher.as_teacher(TEXTS))
    student, found = student_of(bert.keep_layers([1]), teacher)
    assert found["metric"] == "cosine"
    assert found["cosine"] > before["cosine"] and found["cosine"] > 0.9
    assert heads.find_encoder(student).bert_config["num_hidden_layers"] == 1


def test_keep_layers_copies_weights(teacher):
    bert = heads.find_encoder(teacher.model)
    inputs = bert.preprocessor(TEXTS[:3])
    whole = bert.keep_layers([0, 1])
    expected = bert(inputs)
    part = bert.keep_layers([0])
    for copy, output in (
        (whole, expected["sequence_output"]),
        (part, expected["encoder_outputs"][0]),
    ):
        tensors = (copy(inputs)["sequence_output"], output)
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, tensors))
    assert part.pooling == bert.pooling and part.preprocessor is bert.preprocessor


def test_a_student_of_another_width_needs_a_dense_layer(teacher):
    bert = encoder(hidden_size=4, num_attention_heads=2)
    with pytest.raises(ValueError, match=r"layers=\[keras.layers.Dense\(8\)\]"):
        student_of(bert, teacher)


def test_a_student_of_another_width_learns_the_scores_of_its_teacher(teacher):
    pairs = list(itertools.combinations(TEXTS[:12], 2))
    data = teacher.as_teacher(pairs, target="scores")
    first, second = (teacher.encode(column) for column in zip(*pairs, strict=True))
    np.testing.assert_allclose(data.scores, np.sum(first * second, axis=1), atol=1e-5)
    assert data.texts == pairs and data.vectors is None
    bert = encoder(hidden_size=4, num_attention_heads=2)
    before = keras_bert.evaluate(heads.embedder(bert), data)
    student, found = keras_bert.finetune(
        bert, data, data, epochs=4, batch_size=16, learning_rate=1e-2, show_progress=False
    )
    assert student.output_shape == (None, 4)
    assert found["spearman"] > max(0.6, before["spearman"])
    again = teacher.as_teacher(EmbeddingExamples(pairs, source="x"), target="scores")
    assert again.scores == data.scores and again.source == "x"


def test_teachers_read_texts_and_pairs(teacher):
    found = teacher.as_teacher(EmbeddingExamples([("a", "so"), ("so", "b")], source="x"))
    assert found.texts == [("a",), ("so",), ("b",)] and found.source == "x"
    np.testing.assert_allclose(found.vectors, teacher.encode(["a", "so", "b"]), atol=1e-6)
    # The similarity of equal texts is at most 1.
    pairs = [(text, text) for text in dict.fromkeys(TEXTS)]
    scores = teacher.as_teacher([*pairs, ("a", "b")], target="scores").scores
    assert max(scores) <= 1 and scores[:-1] == pytest.approx([1] * len(pairs), abs=1e-6)
    with pytest.raises(ValueError, match="one of vectors, scores; received 'logits'"):
        teacher.as_teacher(TEXTS, target="logits")
    for texts in (TEXTS, [("a", "a")], EmbeddingExamples([("a", "b", "c")])):
        with pytest.raises(ValueError, match="scores need pairs of different texts"):
            teacher.as_teacher(texts, target="scores")


def test_keep_layers_before_lora(teacher):
    bert = heads.find_encoder(teacher.model).keep_layers([0])
    bert.enable_lora(2)
    with pytest.raises(ValueError, match="call it before enable_lora"):
        bert.keep_layers([0])
    with pytest.raises(ValueError, match="LoRA is already enabled"):
        bert.enable_lora(4)


@pytest.mark.parametrize("layers", [[], [1, 0], [2], ["0"]])
def test_wrong_layers(teacher, layers):
    with pytest.raises(ValueError, match="layers must be increasing numbers from 0 to 1"):
        heads.find_encoder(teacher.model).keep_layers(layers)
