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
POOLINGS = ["cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


def test_vectors_of_both_formats(tmp_path):
    model = tiny.embedder(
        POOLINGS, [(4, "gelu"), (3, None)], normalize=False, prompts=PROMPTS, default_prompt="query"
    )
    embed = keras_bert.pipeline(model)
    expected = {name: embed.encode(TEXTS, prompt=name) for name in ("query", "document", "")}
    assert not np.allclose(expected["query"], expected[""])

    loaded = tf.saved_model.load(str(keras_bert.export(model, tmp_path / "served")))
    served = loaded.signatures["serving_default"](text=tf.constant(TEXTS))["embedding"]
    np.testing.assert_allclose(served, expected["query"], atol=1e-5)
    np.testing.assert_array_equal(loaded(TEXTS), served)  # as hub.load does
    with_prompt = loaded.signatures["with_prompt"]
    names = ["query", "document", "", "query", "document"]
    vectors = with_prompt(text=tf.constant(TEXTS), prompt_name=tf.constant(names))["embedding"]
    of_names = [expected[name][row] for row, name in enumerate(names)]
    np.testing.assert_allclose(vectors, of_names, atol=1e-5)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="of query, document, or empty; received.*other"
    ):
        with_prompt(text=tf.constant(["a"]), prompt_name=tf.constant(["other"]))

    keras_bert.export(model, tmp_path / "onnx", format="onnx")
    onnx = keras_bert.pipeline(tmp_path / "onnx")
    for name, vectors in expected.items():
        np.testing.assert_allclose(onnx(TEXTS, prompt=name), vectors, atol=1e-5)
