"""Datasets for Keras' own `fit`, on every backend."""

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
def test_targets_of_each_kind_of_labels():
    encoder = tiny.encoder()
    model = heads.classifier(encoder, labels=["so-so", "good", "bad"])
    examples = keras_bert.Examples(TEXTS, labels=["good", "bad", "good"])
    ((_, targets),) = batches(examples.to_dataset(model))
    assert targets.tolist() == [1, 2, 1]
    given = examples.to_dataset(encoder.preprocessor, labels=["so-so", "good", "bad"])
    assert batches(given)[0][1].tolist() == [1, 2, 1]
    with pytest.raises(ValueError, match="'bad' is not one of the labels: good, x"):
        examples.to_dataset(encoder.preprocessor, labels=["good", "x"])
    with pytest.raises(ValueError, match="the labels of the model are used"):
        examples.to_dataset(model, labels=["good", "bad"])
    sets = keras_bert.Examples(TEXTS, label_sets=[["a"], [], ["b", "a"]])
    ((_, targets),) = batches(sets.to_dataset(encoder.preprocessor))
    assert targets.tolist() == [[1, 0], [0, 0], [1, 1]]
    scores = keras_bert.Examples(TEXTS, text_pairs=TEXTS, scores=[0, 1, 2.5])
    ((inputs, targets),) = batches(scores.to_dataset(heads.regressor(encoder, pairs=True)))
    assert targets.tolist() == [[0], [1], [2.5]] and np.max(inputs["input_type_ids"]) == 1
    (inputs,) = keras_bert.Examples(TEXTS).to_dataset(encoder.preprocessor)
    assert sorted(inputs[0] if isinstance(inputs, tuple) else inputs) == sorted(encoder.input)


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


PROGRAM = """
import keras, numpy as np
import keras_bert
from keras_bert import heads
from tests import tiny

encoder = tiny.learner()
train = tiny.examples()
model = heads.classifier(encoder, labels=train.label_names())
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras_bert.optimizers.adamw(1e-2, total_steps=40), loss, metrics=["accuracy"])
model.fit(train.to_dataset(model, 8, shuffle=True), epochs=10, shuffle=False, verbose=0)
assert model.evaluate(train.to_dataset(model), verbose=0)[1] > 0.9
unlabeled = keras_bert.Examples(train.texts)
assert model.predict(unlabeled.to_dataset(model), verbose=0).shape == (32, 2)
ask = keras_bert.pipeline(model)
assert [ask(text)["label"] for text in ("so good", "bad film")] == ["good", "bad"]
assert ask.evaluate(train)["accuracy"] > 0.9
if keras.backend.backend() == "tensorflow":
    strings = heads.with_text(model)
    texts = keras.ops.convert_to_tensor(["so good", "bad film"])
    assert strings.predict(texts, verbose=0).argmax(axis=1).tolist() == [1, 0]
else:
    try:
        heads.with_text(model)
    except ValueError as error:
        assert "Give `fit` the result of `Examples.to_dataset`" in str(error)
    else:
        raise AssertionError
"""


@pytest.mark.parametrize(
    "backend",
    [pytest.param("tensorflow", marks=pytest.mark.slow),
     pytest.param("jax", marks=pytest.mark.slow),
     pytest.param("torch", marks=pytest.mark.peers)],
)  # fmt: skip
def test_fit_with_strings(python, backend):
    python("-c", PROGRAM, backend=backend)
