"""Tests of masked language models: positions, tokens, probabilities and errors."""

import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.tasks import masked_lm
from tests import tiny


@pytest.fixture(scope="module")
def model():
    return heads.masked_lm(tiny.encoder(num_hidden_layers=1, initializer_range=0.5))


def test_ids_and_positions(model):
    tokenizer = heads.find_encoder(model).preprocessor.tokenizer
    ids, positions = masked_lm._encode(tokenizer, "so[MASK] bads [MASK][MASK]", 32)
    tokens = [tiny.PIECES[id_] for id_ in ids[0]]
    assert tokens == ["[CLS]", "so", "[MASK]", "bad", "##s", "[MASK]", "[MASK]", "[SEP]"]
    assert positions.tolist() == [[2, 5, 6]]


def test_fill_matches_the_model(model):
    [[first, second], [other]] = masked_lm.fill(model, ["so [MASK] film [MASK]", "[MASK]"], top=18)
    ids = np.array([[2, 14, 4, 7, 4, 3]])
    inputs = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    logits = model({**inputs, "masked_lm_positions": np.array([[2, 4]])}).numpy()[0]
    for found, row in ((first, logits[0]), (second, logits[1])):
        expected = np.exp(row) / np.exp(row).sum()
        assert [token for token, _ in found] == [tiny.PIECES[i] for i in np.argsort(-row)]
        probabilities = [probability for _, probability in found]
        np.testing.assert_allclose(probabilities, np.sort(expected)[::-1], atol=1e-5)
    assert len(other) == 18
    assert len(masked_lm.fill(model, ["[MASK]"], top=3)[0][0]) == 3
    assert masked_lm.fill(model, []) == []


def test_rows_beyond_the_vocabulary_are_ignored():
    """Embedding tables may have more rows than the vocabulary."""
    model = heads.masked_lm(tiny.encoder(num_hidden_layers=1, vocab_size=40))
    [[found]] = masked_lm.fill(model, ["so [MASK]"], top=99)
    assert sorted(token for token, _ in found) == sorted(tiny.PIECES)
    assert sum(probability for _, probability in found) == pytest.approx(1.0, abs=1e-5)


def test_pretraining_model_fills_like_its_masked_lm():
    whole = heads.pretraining(tiny.encoder(num_hidden_layers=1))
    half = heads.masked_lm(heads.find_encoder(whole))
    half.get_layer("masked_lm").set_weights(whole.get_layer("masked_lm").get_weights())
    assert masked_lm.fill(whole, ["so [MASK]"]) == masked_lm.fill(half, ["so [MASK]"])


def test_fill_rejects_bad_texts_and_models(model):
    encoder = heads.find_encoder(model)
    with pytest.raises(ValueError, match=r"at least one \[MASK\]; received 'so good'"):
        masked_lm.fill(model, ["so [MASK]", "so good"])
    with pytest.raises(ValueError, match="at most 32 tokens; received 43"):
        masked_lm.fill(model, ["so " * 40 + "[MASK]"])
    with pytest.raises(ValueError, match="must be a model of keras_bert.heads.masked_lm"):
        masked_lm.fill(heads.regressor(encoder), ["[MASK]"])
    with pytest.raises(ValueError, match="must be a model of keras_bert.heads.masked_lm"):
        masked_lm.fill(encoder, ["[MASK]"])
    other = tiny.encoder(num_hidden_layers=1)
    other.preprocessor = keras_bert.Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    with pytest.raises(ValueError, match=r"the vocabulary of 4 tokens has no \[MASK\]"):
        masked_lm.fill(heads.masked_lm(other), ["[MASK]"])
    other.preprocessor = None
    with pytest.raises(ValueError, match="has no preprocessor"):
        masked_lm.fill(heads.masked_lm(other), ["[MASK]"])
