"""Blanks: where they stand, what is around them, and the model's own probabilities."""

import numpy as np
import pytest

from keras_bert import Preprocessor, heads
from keras_bert.finetuning.fill import fill
from tests import tiny


def test_candidates_are_the_models():
    model = heads.masked_lm(tiny.encoder(initializer_range=1.0))
    [[first, second]] = fill(model, ["this [MASK] is[MASK]!"], top=18)
    ids = np.array([[2, 12, 4, 13, 4, 11, 3]])
    inputs = {
        "input_word_ids": ids,
        "input_mask": np.ones_like(ids),
        "input_type_ids": np.zeros_like(ids),
        "masked_lm_positions": np.array([[2, 4]]),
    }
    logits = model(inputs).numpy()[0]
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for candidates, row in zip((first, second), expected, strict=True):
        found = {piece: score for piece, score in candidates}
        np.testing.assert_allclose([found[piece] for piece in tiny.PIECES], row, atol=1e-6)
        assert candidates[0][0] == tiny.PIECES[row.argmax()]


def test_what_cannot_be_filled_is_an_error():
    model = heads.masked_lm(tiny.encoder())
    with pytest.raises(ValueError, match=r"must hold at least one \[MASK\]; received 'good'"):
        fill(model, ["good"])
    with pytest.raises(ValueError, match="at most 32 positions; received 43"):
        fill(model, ["good " * 40 + "[MASK]"])
    with pytest.raises(ValueError, match="must be a model of keras_bert.heads.masked_lm"):
        fill(heads.regressor(tiny.encoder()), ["[MASK]"])
    encoder = tiny.encoder()
    encoder.preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    with pytest.raises(ValueError, match=r"has no \[MASK\] piece"):
        fill(heads.masked_lm(encoder), ["[MASK]"])
