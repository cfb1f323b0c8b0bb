"""Tests of the export for OpenVINO Model Server, in OpenVINO without the server."""

import json

import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from tests import tiny

openvino = pytest.importorskip("openvino")
pytest.importorskip("openvino_tokenizers")

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries
TEXTS = ["This film is GOOD!", "so 한국 bad", "", "a film " * 40, "good" + "ly" * 90]
LABELS = ["a", "b"]
HEADS = {
    "classes": lambda encoder: heads.classifier(encoder, labels=LABELS),
    "label sets": lambda encoder: heads.classifier(encoder, labels=LABELS, multi_label=True),
    "pairs": lambda encoder: heads.classifier(encoder, labels=LABELS, pairs=True),
    "number": lambda encoder: heads.regressor(encoder, activation="sigmoid"),
    "vectors": heads.embedder,
    "terms": heads.sparse_embedder,
}


def answers(folder, *columns):
    model = openvino.Core().compile_model(
        folder / "1/model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    outputs = model(dict(zip(("text", "text_pair"), columns, strict=False)))
    return {name: values for output, values in outputs.items() for name in output.names}


@pytest.mark.parametrize("head", HEADS)
def test_answers_equal_those_of_the_keras_model(head, tmp_path):
    model = HEADS[head](tiny.encoder(initializer_range=0.5))
    folder = keras_bert.export(model, tmp_path / "mine", format="openvino_server")
    columns = (TEXTS, TEXTS[::-1]) if head == "pairs" else (TEXTS,)
    inputs = list(zip(*columns, strict=True)) if head == "pairs" else TEXTS
    expected = keras_bert.pipeline(model)
    found = answers(folder, *columns)
    if head == "number":
        assert found["score"] == pytest.approx([row["score"] for row in expected(inputs)], abs=1e-5)
    elif head == "terms":
        np.testing.assert_allclose(found["embedding"], expected(inputs).toarray(), atol=1e-5)
    elif head == "vectors":
        np.testing.assert_allclose(found["embedding"], expected.encode(inputs), atol=1e-5)
    else:
        probabilities = []
        for ranked in expected(inputs, top_k=None):
            score_of = {row["label"]: row["score"] for row in ranked}
            probabilities.append([score_of[label] for label in LABELS])
        np.testing.assert_allclose(found["probabilities"], probabilities, atol=1e-5)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["model_config_list"][0]["config"]["name"] == "mine"
    assert "| input | `text` | string | (batch) |" in (folder / "README.md").read_text("utf-8")


def windows(encoder):
    model = heads.classifier(encoder, labels=LABELS)
    heads.find_output(model).long_texts = "window"
    return model


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (heads.span_selector, {}, "one answer per text; received the task question_answering"),
        (lambda encoder: encoder, {}, "one answer per text; received an encoder"),
        (windows, {}, "cannot hold long_texts='window'"),
        (
            lambda encoder: heads.embedder(encoder, prompts={"q": "a "}, default_prompt="q"), {},
            "cannot hold a default prompt",
        ),
        (HEADS["classes"], {"quantize": "int8"}, "do not apply to 'openvino_server'"),
    ],
)  # fmt: skip
def test_what_the_format_cannot_hold(build, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        keras_bert.export(
            build(tiny.encoder()), tmp_path / "a", format="openvino_server", **options
        )
    assert list(tmp_path.iterdir()) == []
