"""Tests of masked language models: positions, tokens, probabilities and errors."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.data.examples import Examples
from keras_bert.tasks.keras_predictor import KerasPredictor
from tests import tiny


@pytest.fixture(scope="module")
def model():
    return heads.masked_lm(tiny.encoder(num_hidden_layers=1, initializer_range=0.5))


def fill(model, texts, top=5):
    encoded = KerasPredictor(model).encode(Examples(texts))
    outputs = KerasPredictor(model).outputs(encoded, batch_size=2)
    return KerasPredictor(model).decode(Examples(texts), encoded, outputs, top_k=top)


def test_ids_and_positions(model):
    encoded = KerasPredictor(model).encode(Examples(["so[MASK] bads [MASK][MASK]", "[MASK]"]))
    inputs, targets, weights = encoded.batch([0, 1], 8)
    tokens = [tiny.PIECES[id_] for id_ in inputs["input_word_ids"][0]]
    assert tokens == ["[CLS]", "so", "[MASK]", "bad", "##s", "[MASK]", "[MASK]", "[SEP]"]
    assert inputs["masked_lm_positions"].tolist() == [[2, 5, 6], [1, 0, 0]]
    assert inputs["input_mask"][1].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert targets is weights is None


def test_fill_matches_the_model(model):
    [[first, second], [other]] = fill(model, ["so [MASK] film [MASK]", "[MASK]"], top=18)
    ids = np.array([[2, 14, 4, 7, 4, 3]])
    inputs = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    logits = model({**inputs, "masked_lm_positions": np.array([[2, 4]])})
    logits = keras.ops.convert_to_numpy(logits)[0]
    for found, row in ((first, logits[0]), (second, logits[1])):
        expected = np.exp(row) / np.exp(row).sum()
        assert [token for token, _ in found] == [tiny.PIECES[i] for i in np.argsort(-row)]
        probabilities = [probability for _, probability in found]
        np.testing.assert_allclose(probabilities, np.sort(expected)[::-1], atol=1e-5)
    assert len(other) == 18
    assert len(fill(model, ["[MASK]"], top=3)[0][0]) == 3


def test_rows_beyond_the_vocabulary_are_ignored():
    """Embedding tables may have more rows than the vocabulary."""
    model = heads.masked_lm(tiny.encoder(num_hidden_layers=1, vocab_size=40))
    [[found]] = fill(model, ["so [MASK]"], top=99)
    assert sorted(token for token, _ in found) == sorted(tiny.PIECES)
    assert sum(probability for _, probability in found) == pytest.approx(1.0, abs=1e-5)


def test_pretraining_model_fills_like_its_masked_lm():
    whole = heads.pretraining(tiny.encoder(num_hidden_layers=1))
    half = heads.masked_lm(heads.find_encoder(whole))
    half.get_layer("masked_lm").set_weights(whole.get_layer("masked_lm").get_weights())
    assert fill(whole, ["so [MASK]"]) == fill(half, ["so [MASK]"])


def test_fill_rejects_bad_texts_and_models(model):
    with pytest.raises(ValueError, match=r"at least one \[MASK\]; received 'so good'"):
        fill(model, ["so [MASK]", "so good"])
    with pytest.raises(ValueError, match="at most 32 tokens; received 43"):
        fill(model, ["so " * 40 + "[MASK]"])
    other = tiny.encoder(num_hidden_layers=1)
    other.preprocessor = keras_bert.Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    with pytest.raises(ValueError, match=r"the vocabulary of 'masked_lm' has no \[MASK\]"):
        fill(heads.masked_lm(other), ["[MASK]"])
    other.preprocessor = None
    with pytest.raises(ValueError, match="has no preprocessor"):
        fill(heads.masked_lm(other), ["[MASK]"])
