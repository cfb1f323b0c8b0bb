"""Tests of LiteRT folders. `tests/properties/test_engines.py` compares their answers."""

import json
import re
import warnings
import zipfile

import keras
import pytest

import keras_bert
from keras_bert import heads
from tests import contract, tiny
from tests.exporting.programs import run_program
from tests.parameters import fast

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the converter is that of TensorFlow"
)
HEADS = {
    **{name: build for name, build in contract.HEADS.items() if name != "features"},
    "encoder": lambda encoder: encoder,
    "max": lambda encoder: heads.embedder(encoder, pooling="max"),
    "sparse": heads.sparse_embedder,
    "lasttoken": lambda encoder: heads.embedder(encoder, pooling="lasttoken"),
}


def test_the_program_of_the_readme(tmp_path, monkeypatch):
    pytest.importorskip("ai_edge_litert")
    model = heads.classifier(tiny.encoder(initializer_range=0.3), labels=["bad", "good"])
    folder = keras_bert.export(model, tmp_path / "a", format="litert")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["id2label"] == {"0": "bad", "1": "good"}
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert "| input | `attention_mask` | int32 | (any, any) |" in page
    answers = run_program(folder, monkeypatch)
    expected = keras_bert.pipeline(model)(["your text", "another text"], top_k=None)
    for row, ranked in zip(answers, expected, strict=True):
        score_of = {answer["label"]: answer["score"] for answer in ranked}
        assert row == pytest.approx([score_of["bad"], score_of["good"]], abs=1e-5)
    with pytest.raises(ValueError, match=r"is an export.* with LiteRT"):
        keras_bert.load(folder)


@pytest.mark.parametrize(
    "head",
    fast(HEADS, "masked_tokens", "multiple_choice"),
)
def test_the_program_of_each_readme_runs(head, tmp_path, monkeypatch):
    """The export itself has compared the graph with the model."""
    pytest.importorskip("ai_edge_litert")
    folder = keras_bert.export(HEADS[head](tiny.encoder()), tmp_path / "a", format="litert")
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert len(run_program(folder, monkeypatch)) == (1 if head == "multiple_choice" else 2)
    assert "keras_bert.pipeline" not in page


def test_the_metadata_of_mediapipe(tmp_path):
    """MediaPipe has a Python package, but too large a one for the environments of the tests."""
    pytest.importorskip("ai_edge_litert")
    model = heads.classifier(tiny.encoder(), labels=["나쁨", "good"])
    folder = keras_bert.export(model, tmp_path / "a", format="litert")
    with zipfile.ZipFile(folder / "litert/model.tflite") as archive:
        assert archive.read("labels.txt").decode() == "나쁨\ngood\n"
        vocabulary = archive.read("vocab.txt").decode().split()
    assert vocabulary == tiny.PIECES
    content = (folder / "litert/model.tflite").read_bytes()
    for word in (b"TFLITE_METADATA", b"M001", b"segment_ids", b"probability"):
        assert word in content
    cased = tiny.encoder()
    cased.preprocessor = cased.preprocessor.with_options(lowercase=False)
    for other in (heads.classifier(cased, 2), heads.classifier(tiny.encoder(), 2, pairs=True)):
        folder = keras_bert.export(other, tmp_path / other.name / str(id(other)), format="litert")
        assert not zipfile.is_zipfile(folder / "litert/model.tflite")


def test_int8_is_compared_with_float32(tmp_path):
    pytest.importorskip("ai_edge_litert")
    model = heads.masked_lm(tiny.encoder())
    dev = keras_bert.Examples(["so [MASK]", "[MASK] film [MASK]"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the examples: ")  # int8 may change an answer
        folder = keras_bert.export(model, tmp_path, format="litert", quantize="int8", dev=dev)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert re.search(r"float32 \| on \d examples, .* of the time of float32", card)
