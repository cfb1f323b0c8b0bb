"""The MiniLM weights give the outputs of Hugging Face transformers on each backend.

The weights are downloaded on the first run. Without a network the tests are skipped.
"""

import os
import pathlib
import subprocess
import sys

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
# Padding after a text is not compared: there, rounding errors of float32 exceed the tolerance in
# transformers too (see benchmarks/RESULTS.md). Rows that are all padding are compared.
compared = (mask == 1) | (mask.sum(axis=1, keepdims=True) == 0)
for name, where in (("sequence_output", compared), ("pooled_output", ...)):
    found = keras.ops.convert_to_numpy(outputs[name])
    print(keras.backend.backend(), name, np.abs(found - golden[name])[where].max())
"""


@pytest.fixture(scope="module")
def minilm():
    """Folder of the weights."""
    try:
        return keras_bert.hub.resolve.find("minilm")
    except OSError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["tensorflow", "jax", pytest.param("torch", marks=pytest.mark.peers)]
)
def test_outputs_match_the_golden_file(minilm, backend):
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
