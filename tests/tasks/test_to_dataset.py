"""Datasets for Keras' own `fit`, on every backend."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from tests import tiny
from tests.parameters import needs_tensorflow

TEXTS = ["so good", "bad", "this film is so good!"]


def batches(dataset):
    return [(inputs, *map(np.asarray, rest)) for inputs, *rest in dataset]


@needs_tensorflow
def test_batches_have_the_inputs_of_the_preprocessor():
    encoder = tiny.encoder()
    examples = keras_bert.Examples(TEXTS, labels=["good", "bad", "good"])
    dataset = examples.to_dataset(encoder.preprocessor, 2)
    assert dataset.options().autotune.enabled is False  # see tf_dataset
    ((first, targets), (second, _)) = batches(dataset)
    expected = encoder.preprocessor.with_options(sequence_length=None)(TEXTS[:2])
    for key, value in expected.items():
        np.testing.assert_array_equal(first[key], value)
    assert targets.tolist() == [1, 0] and targets.dtype == np.int32
    assert second["input_word_ids"].shape == (1, 8)
    ((padded, _),) = batches(examples.to_dataset(encoder.preprocessor, 8, pad=9))
    assert padded["input_word_ids"].shape == (3, 9)


@needs_tensorflow
def test_inputs_are_those_of_the_pipeline():
    """The default prompt comes first, and texts end at the maximum of the model."""
    encoder = tiny.encoder(max_position_embeddings=16, pooling="mean")
    model = heads.embedder(encoder, prompts={"query": "so: bad "}, default_prompt="query")
    texts = [*TEXTS, "good " * 20]
    with pytest.warns(UserWarning, match="truncated to 16 tokens"):
        dataset = keras_bert.Examples(texts).to_dataset(model)
        expected = keras_bert.pipeline(model)(texts)
    np.testing.assert_allclose(model.predict(dataset, verbose=0), expected, atol=1e-6)


@needs_tensorflow
def test_truncated_texts_are_counted():
    examples = keras_bert.Examples([*TEXTS, "good " * 99])
    preprocessor = tiny.encoder().preprocessor
    for options, length in (({"pad": 6}, 6), ({}, preprocessor.max_sequence_length)):
        with pytest.warns(UserWarning, match=f"texts were truncated to {length}"):
            ((inputs, *_),) = batches(examples.to_dataset(preprocessor, 8, **options))
        assert inputs["input_word_ids"].shape == (4, length)


@needs_tensorflow
def test_labels_are_those_of_the_model_or_given():
    encoder = tiny.encoder()
    model = heads.classifier(encoder, labels=["so-so", "good", "bad"])
    examples = keras_bert.Examples(TEXTS, labels=["good", "bad", "good"])
    given = examples.to_dataset(encoder.preprocessor, labels=["so-so", "good", "bad"])
    for dataset in (examples.to_dataset(model), given):
        ((_, targets),) = batches(dataset)
        assert targets.tolist() == [1, 2, 1]
    with pytest.raises(ValueError, match="'bad' is not one of the labels: good, x"):
        examples.to_dataset(encoder.preprocessor, labels=["good", "x"])
    with pytest.raises(ValueError, match="the labels of the model are used"):
        examples.to_dataset(model, labels=["good", "bad"])
    sets = keras_bert.Examples(TEXTS, label_sets=[["a"], [], ["b", "a"]])
    ((_, targets),) = batches(sets.to_dataset(encoder.preprocessor))
    assert targets.tolist() == [[1, 0], [0, 0], [1, 1]]


@needs_tensorflow
def test_shuffled_epochs_differ_and_repeat_with_the_seed():
    examples = keras_bert.Examples(["good", "bad", "film", "so", "this", "is", "a"] * 3)
    preprocessor = tiny.encoder().preprocessor

    def orders():
        dataset = examples.to_dataset(preprocessor, 99, shuffle=True, seed=3)
        return [next(iter(dataset))[0]["input_word_ids"].numpy().tolist() for _ in range(2)]

    first, second = orders()
    assert first != second and sorted(first) == sorted(second)
    assert orders() == [first, second]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e, m: e.to_dataset("minilm"), "needs a model with a Preprocessor"),
        (lambda e, m: e.to_dataset(m, pad=2), "must be an integer of at least 3"),
        (lambda e, m: e.to_dataset(m, pad="longest"), 'pad must be "batch" or an integer'),
        (lambda e, m: e.to_dataset(m, pad=33), "must be at most 32, the maximum of the model"),
        (lambda e, m: e.to_dataset(heads.regressor(heads.find_encoder(m))), "takes scores"),
        (lambda e, m: e.to_dataset(m), "the label 'good' is not one of the model's labels"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    examples = keras_bert.Examples(["a"], labels=["good"])
    model = heads.classifier(tiny.encoder(), labels=["x", "y"])
    with pytest.raises(ValueError, match=message):
        call(examples, model)


@needs_tensorflow
def test_fit_and_predict(eager):
    train = tiny.examples()
    model = heads.classifier(tiny.learner(), labels=train.label_names())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras_bert.optimizers.adamw(1e-2, total_steps=40), loss, metrics=["accuracy"])
    model.fit(train.to_dataset(model, 8, shuffle=True), epochs=10, shuffle=False, verbose=0)
    assert model.evaluate(train.to_dataset(model), verbose=0)[1] > 0.9
    unlabeled = keras_bert.Examples(train.texts)
    assert model.predict(unlabeled.to_dataset(model), verbose=0).shape == (32, 2)
    if keras.backend.backend() == "tensorflow":
        texts = keras.ops.convert_to_tensor(["so good", "bad film"])
        assert heads.with_text(model).predict(texts, verbose=0).argmax(axis=1).tolist() == [1, 0]
    else:
        with pytest.raises(ValueError, match="Give `fit` the result of `Examples.to_dataset`"):
            heads.with_text(model)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", pytest.param("torch", marks=pytest.mark.peers)])
def test_fit_and_predict_on_other_backends(python, backend):
    test = f"{__file__}::test_fit_and_predict"
    python("-m", "pytest", "-q", "-p", "no:cacheprovider", test, backend=backend)


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
