"""Answers do not depend on how they are batched; what a model cannot read is refused."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.finetuning import predict
from keras_bert.finetuning.data import Examples
from tests import tiny

TEXTS = ["good " * 9, "bad", "this is " * 12, "", "so good film"]


def test_answers_do_not_depend_on_their_batch():
    model = heads.classifier(tiny.encoder(initializer_range=1.0), 3)
    together = predict.answers(model, Examples(TEXTS), batch_size=2)
    alone = [predict.answers(model, Examples([text]))[0] for text in TEXTS]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert np.ptp(together, axis=0).max() > 0.01  # the texts do differ, so their order counts


@pytest.mark.parametrize("examples", [tiny.tagged(), tiny.questions(), tiny.choices()])
def test_one_answer_for_each_example_of_any_task(examples):
    from keras_bert.finetuning import tasks

    model = tasks.for_data(examples).build(tiny.encoder(), examples)
    shares = []
    answers = predict.answers(model, examples, batch_size=7, on_batch=shares.append)
    assert len(answers) == len(examples)
    assert sum(shares) == pytest.approx(1)
    scores = predict.evaluate(model, examples)
    assert all(isinstance(value, float) for value in scores.values())


def test_vectors_of_texts():
    encoder = tiny.encoder(initializer_range=1.0)
    vectors = predict.embed(encoder, TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    inputs = encoder.preprocessor(["bad"])
    output = encoder(inputs)["sequence_output"].numpy()[0, :3].mean(axis=0)
    np.testing.assert_allclose(vectors[1], output / np.linalg.norm(output), atol=1e-5)
    raw = predict.embed(heads.embedder(encoder, pooling="cls", normalize=False), ["bad"])
    np.testing.assert_allclose(raw[0], encoder(inputs)["sequence_output"][0, 0], atol=1e-5)
    with pytest.raises(ValueError, match="has the head regressor, which gives no vectors"):
        predict.embed(heads.regressor(encoder), TEXTS)


def test_labels_of_texts():
    model = heads.classifier(tiny.encoder(), labels=["no", "yes"])
    answers = predict.classify(model, ["good", "bad"])
    assert all(label in ("no", "yes") and 0.5 <= score <= 1 for label, score in answers)
    assert predict.classify(model, []) == []
    with pytest.raises(ValueError, match="reads single texts; the call has pairs"):
        predict.classify(model, ["a"], ["b"])
    with pytest.raises(ValueError, match="must be a classifier with one label"):
        predict.classify(heads.regressor(tiny.encoder()), ["a"])


def test_what_a_model_cannot_read_is_an_error():
    model = heads.classifier(tiny.encoder(), 2)
    with pytest.raises(ValueError, match="'classifier' does not read TaggedSentences"):
        predict.answers(model, tiny.tagged())
    with pytest.raises(ValueError, match="has no labels to compare with"):
        predict.evaluate(model, Examples(["a"]))
    with pytest.raises(ValueError, match="holds no examples"):
        predict.answers(model, Examples([]))
    encoder = tiny.encoder()
    encoder.preprocessor = None
    with pytest.raises(ValueError, match="has no preprocessor"):
        predict.answers(keras_bert.heads.classifier(encoder, 2), Examples(["a"]))
    plain = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="must hold one BertEncoder"):
        predict.answers(plain, Examples(["a"]))
