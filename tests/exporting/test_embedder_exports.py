"""Exports of embedders with pooling modes, dense layers and prompts."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from tests import tiny

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="SavedModels need TensorFlow"
)
TEXTS = ["so good", "bad", "", "a good film so bad", "한국 good"]
PROMPTS = {"query": "so ", "document": "film "}


@pytest.mark.parametrize(
    ("pooling", "layers", "normalize"),
    [
        ("mean", [], True),
        pytest.param("cls", [(4, "tanh")], True, marks=pytest.mark.slow),
        (["cls", "max", "mean_sqrt_len_tokens"], [(4, "gelu"), (3, None)], False),
        pytest.param("weightedmean", [None, (5, "sigmoid")], False, marks=pytest.mark.slow),
        pytest.param("lasttoken", [], False, marks=pytest.mark.slow),
    ],
)
def test_vectors_of_both_formats(pooling, layers, normalize, tmp_path):
    model = tiny.embedder(
        pooling, layers, normalize=normalize, prompts=PROMPTS, default_prompt="query"
    )
    embed = keras_bert.pipeline(model)
    expected = embed.encode(TEXTS)
    assert not np.allclose(expected, embed.encode(TEXTS, prompt=""))

    loaded = tf.saved_model.load(str(keras_bert.export(model, tmp_path / "served")))
    served = loaded.signatures["serving_default"](text=tf.constant(TEXTS))["embedding"]
    np.testing.assert_allclose(served, expected, atol=1e-5)
    with_prompt = loaded.signatures["with_prompt"]
    names = ["query", "document", "", "query", "document"]
    found = with_prompt(text=tf.constant(TEXTS), prompt_name=tf.constant(names))["embedding"]
    one_by_one = [embed.encode(t, prompt=n) for t, n in zip(TEXTS, names, strict=True)]
    np.testing.assert_allclose(found, one_by_one, atol=1e-5)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="of query, document, or empty; received.*other"
    ):
        with_prompt(text=tf.constant(["a"]), prompt_name=tf.constant(["other"]))

    keras_bert.export(model, tmp_path / "onnx", format="onnx")
    onnx = keras_bert.pipeline(tmp_path / "onnx")
    np.testing.assert_allclose(onnx(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(
        onnx(TEXTS, prompt="document"), embed.encode(TEXTS, prompt="document"), atol=1e-5
    )
    np.testing.assert_allclose(onnx(TEXTS, prompt=""), embed.encode(TEXTS, prompt=""), atol=1e-5)


def test_no_signature_without_prompts(tmp_path):
    loaded = tf.saved_model.load(str(keras_bert.export(tiny.embedder("mean"), tmp_path)))
    assert sorted(loaded.signatures) == ["ids", "serving_default"]
