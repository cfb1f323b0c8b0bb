"""Tests of the predictor: answers, metrics and embeddings."""

import gc

import keras
import numpy as np
import pytest

from keras_bert import heads
from keras_bert.data import tabular
from keras_bert.tasks.embedding.head import as_embedder
from keras_bert.tasks.forward_pass import forward_pass
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.tasks.multiple_choice import data as swag
from keras_bert.tasks.tagging import data as conll
from tests import contract, tiny

TEXTS = ["good " * 9, "bad", "this is " * 12, "", "so good film"]


def encoder(**options):
    return tiny.encoder(**{"num_hidden_layers": 1, "initializer_range": 1.0, **options})


DATA = {
    "classification": tabular.Examples(TEXTS),
    "tagging": conll.TaggedSentences([text.split() for text in TEXTS]),
    "multiple_choice": swag.Choices(TEXTS, [["good", text] for text in TEXTS]),
}


def flat(answers):
    return np.array([x for x in keras.tree.flatten(list(answers)) if not isinstance(x, str)])


@pytest.mark.parametrize("case", DATA)
def test_answers_do_not_depend_on_their_batch(case):
    model, examples = contract.HEADS[case](encoder()), DATA[case]
    shares = []
    together = KerasPredictor(model).answers(examples, batch_size=2, on_batch=shares.append)
    assert sum(shares) == pytest.approx(1.0)
    alone = [KerasPredictor(model).answers(examples[row : row + 1])[0] for row in range(5)]
    assert np.ptp(flat(alone)) > 0.01  # answers differ, so their order is tested
    np.testing.assert_allclose(flat(together), flat(alone), atol=1e-5)


def test_max_length_truncates():
    model, examples = heads.classifier(encoder(), 3), DATA["classification"]
    cut = KerasPredictor(model).answers(examples, max_length=3)
    np.testing.assert_allclose(
        cut[0], KerasPredictor(model).answers(tabular.Examples(["good"]))[0], atol=1e-5
    )
    with pytest.raises(ValueError, match="max_length must be at most 32, the maximum of the enc"):
        KerasPredictor(model).answers(examples, max_length=33)
    heads.find_encoder(model).preprocessor.max_sequence_length = 3
    np.testing.assert_allclose(KerasPredictor(model).answers(examples), cut, atol=1e-6)


def test_outputs_do_not_depend_on_what_is_trainable():
    model = heads.classifier(encoder(num_hidden_layers=2), 2)
    expected = KerasPredictor(model).answers(tabular.Examples(TEXTS))
    for frozen in ("layer_0", "layer_1"):  # JAX's programs get the weights in lists
        for name in ("layer_0", "layer_1"):
            heads.find_encoder(model).get_layer(name).trainable = name != frozen
        answers = KerasPredictor(model).answers(tabular.Examples(TEXTS))
        np.testing.assert_allclose(answers, expected, atol=1e-6)


def test_a_forward_pass_keeps_its_model():
    predict = forward_pass(heads.classifier(encoder(), 2))
    gc.collect()
    ids = np.ones((1, 8), np.int32)
    inputs = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}
    assert predict(inputs).shape == (1, 2)


def test_heads_without_a_vector_become_embedders():
    base = encoder()
    embedder = as_embedder(heads.masked_lm(base))
    assert heads.find_task(embedder) == "embedding" and heads.find_encoder(embedder) is base
    with pytest.raises(ValueError, match="has a custom output"):
        as_embedder(heads.features(base, -1))


@pytest.mark.parametrize(
    ("build", "examples", "message"),
    [
        (encoder, ["a"], "fine-tune it first"),
        (lambda: heads.tagger(encoder(), 2), ["a"], "takes TaggedSentences; received Examples"),
        (lambda: heads.classifier(encoder(), 2), [], "no examples"),
        (lambda: heads.classifier(encoder(preprocessor=None), 2), ["a"], "has no preprocessor"),
        (lambda: keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)]), ["a"],
         "must hold one BertEncoder"),
    ],
)  # fmt: skip
def test_other_models_are_rejected(build, examples, message):
    with pytest.raises(ValueError, match=message):
        KerasPredictor(build()).answers(tabular.Examples(examples))
