"""The real MiniLM weights: the same numbers as Hugging Face transformers, on each backend.

The weights are downloaded on the first run; without a network the tests skip.
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import keras_bert.hub.resolve

GOLDEN = pathlib.Path(__file__).with_name("golden") / "minilm.npz"
TOLERANCE = 2e-5
COMPARE = """
import sys
import numpy as np
import keras
import keras_bert

golden = np.load(sys.argv[1])
bert = keras_bert.load("minilm")
inputs = {k: golden[k] for k in ("input_word_ids", "input_mask", "input_type_ids")}
outputs = bert(inputs, training=False)
mask = golden["input_mask"]
# What stands at padding beside a text means nothing, and there float32 itself, in transformers
# too, is off by more than the tolerance (see benchmarks/RESULTS.md). A row all of padding counts.
counts = (mask == 1) | (mask.sum(axis=1, keepdims=True) == 0)
for name, where in (("sequence_output", counts), ("pooled_output", ...)):
    found = keras.ops.convert_to_numpy(outputs[name])
    print(keras.backend.backend(), name, np.abs(found - golden[name])[where].max())
"""


@pytest.fixture(scope="module")
def minilm():
    """The folder of the weights."""
    try:
        return keras_bert.hub.resolve.find("minilm")
    except OSError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_outputs_equal_those_of_transformers(minilm, backend):
    if backend == "torch":
        pytest.importorskip("torch")
    result = subprocess.run(
        [sys.executable, "-c", COMPARE, GOLDEN],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[:2] for line in lines] == [
        [backend, "sequence_output"],
        [backend, "pooled_output"],
    ]
    for line in lines:
        assert float(line[2]) < TOLERANCE


def test_a_padded_text_gives_the_numbers_of_the_unpadded_one(minilm):
    bert = keras_bert.load("minilm")
    text = ["어떤 길이로 채워도 같은 값", "short"]
    short = bert(bert.preprocessor(text), training=False)
    bert.preprocessor.sequence_length = None
    exact = bert(bert.preprocessor(text), training=False)
    np.testing.assert_allclose(short["pooled_output"], exact["pooled_output"], atol=TOLERANCE)


def test_live_comparison_with_transformers(minilm):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    bert = keras_bert.load("minilm", sequence_length=None)
    texts = ["The quick brown fox.", "", "naïve café, Ørsted 한국어 日本語 " * 9]
    inputs = {key: np.array(value) for key, value in bert.preprocessor(texts).items()}
    ours = bert(inputs, training=False)["sequence_output"]
    theirs = transformers.AutoModel.from_pretrained(minilm).eval()
    with torch.no_grad():
        expected = theirs(
            torch.tensor(inputs["input_word_ids"]),
            attention_mask=torch.tensor(inputs["input_mask"]),
            token_type_ids=torch.tensor(inputs["input_type_ids"]),
        )
    real = inputs["input_mask"] == 1
    difference = np.abs(ours - expected.last_hidden_state.numpy())
    assert difference[real].max() < TOLERANCE
    assert difference.max() < 25 * TOLERANCE  # padding beside a text, see above
