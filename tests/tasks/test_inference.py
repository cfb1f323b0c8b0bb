"""Tests of inference: answers, metrics and embeddings."""

import gc

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.data import tabular
from keras_bert.tasks import inference
from keras_bert.tasks.embedding.head import as_embedder
from keras_bert.tasks.forward_pass import ForwardPass, forward_pass
from keras_bert.tasks.multiple_choice import data as swag
from keras_bert.tasks.question_answering import data as squad
from keras_bert.tasks.tagging import data as conll
from tests import contract, tiny

TEXTS = ["good " * 9, "bad", "this is " * 12, "", "so good film"]


def encoder(**options):
    return tiny.encoder(**{"num_hidden_layers": 1, "initializer_range": 1.0, **options})


DATA = {
    "classification": tabular.Examples(TEXTS),
    "regression": tabular.Examples(TEXTS),
    "tagging": conll.TaggedSentences([text.split() for text in TEXTS]),
    "question_answering": squad.Questions(["good", "is", "a", "so", "this"], TEXTS),
    "multiple_choice": swag.Choices(TEXTS, [["good", text] for text in TEXTS]),
}


def flat(answers):
    return np.array([x for x in keras.tree.flatten(list(answers)) if not isinstance(x, str)])


@pytest.mark.parametrize("case", DATA)
def test_answers_do_not_depend_on_their_batch(case):
    model, examples = contract.HEADS[case](encoder()), DATA[case]
    shares = []
    together = inference.answers(model, examples, batch_size=2, on_batch=shares.append)
    assert sum(shares) == pytest.approx(1.0)
    assert len(together) == 5
    alone = [inference.answers(model, examples[row : row + 1])[0] for row in range(5)]
    np.testing.assert_allclose(flat(together), flat(alone), atol=1e-5)
    others = [
        keras.tree.flatten(list(together[row])) if case == "tagging" else [] for row in (0, 2)
    ]
    assert others[0] != others[1] or case != "tagging"
    if case not in ("tagging", "question_answering"):  # answers differ, so their order is tested
        assert np.ptp(np.array(together), axis=0).max() > 0.01


def test_max_length_truncates():
    model, examples = heads.classifier(encoder(), 3), DATA["classification"]
    cut = inference.answers(model, examples, max_length=3)
    np.testing.assert_allclose(
        cut[0], inference.answers(model, tabular.Examples(["good"]))[0], atol=1e-5
    )
    heads.find_encoder(model).preprocessor.max_sequence_length = 3
    np.testing.assert_allclose(inference.answers(model, examples), cut, atol=1e-6)


def test_evaluate_scores_the_answers():
    model = heads.classifier(encoder(), labels=["bad", "good"])
    rows = inference.answers(model, tabular.Examples(TEXTS))
    given = [["bad", "good"][row.argmax()] for row in rows]
    assert inference.evaluate(model, tabular.Examples(TEXTS, labels=given))["accuracy"] == 1.0
    with pytest.raises(ValueError, match="has no labels to score against"):
        inference.evaluate(model, tabular.Examples(TEXTS))


def test_the_forward_pass_equals_the_model():
    for case in ("tagging", "question_answering"):
        model, examples = contract.HEADS[case](encoder()), DATA[case]
        for size in (1, 3):
            given = inference.answers(model, examples, batch_size=size)
            plain = inference.answers(model, examples, batch_size=size, predict=ForwardPass(model))
            np.testing.assert_allclose(flat(given), flat(plain), atol=1e-5)


def test_outputs_do_not_depend_on_what_is_trainable():
    model = heads.classifier(encoder(num_hidden_layers=2), 2)
    expected = inference.answers(model, tabular.Examples(TEXTS))
    for frozen in ("layer_0", "layer_1"):  # JAX's programs get the weights in lists
        for name in ("layer_0", "layer_1"):
            heads.find_encoder(model).get_layer(name).trainable = name != frozen
        answers = inference.answers(model, tabular.Examples(TEXTS))
        np.testing.assert_allclose(answers, expected, atol=1e-6)


def test_a_forward_pass_keeps_its_model():
    predict = forward_pass(heads.classifier(encoder(), 2))
    gc.collect()
    ids = np.ones((1, 8), np.int32)
    inputs = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}
    assert predict(inputs).shape == (1, 2)


def test_a_tagger_of_nothing():
    assert keras_bert.pipeline(heads.tagger(encoder(), labels=["O", "B-x"]))(["", "\u200b"]) == [
        [],
        [],
    ]


def test_heads_without_a_vector_become_embedders():
    base = encoder()
    embedder = as_embedder(heads.masked_lm(base))
    assert heads.find_task(embedder) == "embedding" and heads.find_encoder(embedder) is base
    with pytest.raises(ValueError, match="has a custom output"):
        as_embedder(heads.features(base, -1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: inference.answers(encoder(), tabular.Examples(["a"])), "fine-tune it first"),
        (
            lambda: inference.answers(heads.tagger(encoder(), 2), tabular.Examples(["a"])),
            "'tagger' takes TaggedSentences; received Examples",
        ),
        (
            lambda: inference.answers(heads.classifier(encoder(), 2), tabular.Examples([])),
            "no examples",
        ),
        (
            lambda: inference.answers(
                keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)]),
                tabular.Examples(["a"]),
            ),
            "must hold one BertEncoder",
        ),
    ],
)
def test_other_models_are_rejected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_encoder_without_a_preprocessor_is_rejected():
    base = encoder()
    base.preprocessor = None
    with pytest.raises(ValueError, match="has no preprocessor"):
        inference.describe(base)
    with pytest.raises(ValueError, match="has no preprocessor"):
        inference.answers(heads.classifier(base, 2), tabular.Examples(["a"]))
