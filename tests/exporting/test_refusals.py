"""What `export` refuses: nothing is written."""

import warnings

import keras
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.layers import SentencePooling
from tests import tiny

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="some formats need TensorFlow"
)


def classifier(**options):
    return heads.classifier(tiny.encoder(num_hidden_layers=1, **options), 2)


def quantized():
    model = classifier()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.quantize("int8")
    return model


def own_head():
    encoder = tiny.encoder()
    x = keras.layers.Activation("relu")(encoder(encoder.input)["pooled_output"])
    return keras.Model(encoder.input, x)


def features():
    return heads.features(tiny.encoder(), -1)


def without_mask():
    vocabulary = [token for token in tiny.PIECES if token != "[MASK]"]
    return heads.masked_lm(tiny.encoder(preprocessor=keras_bert.Preprocessor(vocabulary)))


def outputs_of_one_name():
    bert = tiny.encoder(num_hidden_layers=1)
    text = keras.Input(shape=(), dtype="string", name="text")
    inner = keras.Model(bert.input, bert.output["pooled_output"], name="inner")
    tokens = bert.preprocessor(text)
    return keras.Model(text, [inner(tokens), inner(tokens)], name="twins")


ONNX = {"format": "onnx"}
REFUSED = [
    (classifier, {"format": "tflite"}, "saved_model, onnx, openvino, .*received 'tflite'"),
    (classifier, {"quantize": "int8"}, "it is for 'onnx', 'openvino', 'litert'"),
    (classifier, {**ONNX, "precision": "bfloat16"}, "does not apply to format='onnx'"),
    (classifier, {"format": "litert", "precision": "bfloat16"}, "does not apply to .*'litert'"),
    (classifier, {**ONNX, "quantize": "int4"}, "quantize must be one of None, int8"),
    (classifier, {**ONNX, "quantize": "int8", "dev": "dev.tsv"}, "dev takes .*received str"),
    (classifier, {"metrics": [1]}, "metrics must be"),
    (classifier, {"metrics": {1: 2}}, "metrics must be"),
    (classifier, {"license": 3}, "license must be"),
    (tiny.encoder, {"precision": "bfloat16"}, "does not apply to encoders and pretraining models"),
    (lambda: classifier(preprocessor=None), {}, "has no vocabulary"),
    (lambda: classifier(hidden_act="elu"), ONNX, "activation gelu, gelu_new"),
    (quantized, ONNX, "weights that are not quantized"),
    (own_head, ONNX, "an encoder or an unchanged model of keras_bert.heads"),
    (features, {}, "must end in a head"),
    (without_mask, {}, r"needs \[MASK\] in its vocabulary"),
    (outputs_of_one_name, {}, "outputs of 'twins' have the same name: inner, inner"),
]


@pytest.mark.parametrize(("make", "options", "message"), REFUSED)
def test_a_refused_export_writes_nothing(make, options, message, tmp_path, monkeypatch):
    # Errors come before the quantization, which takes long.
    monkeypatch.setattr("onnxruntime.quantization.quantize_dynamic", pytest.fail)
    with pytest.raises(ValueError, match=message):
        keras_bert.export(make(), tmp_path / "a", **options)
    assert list(tmp_path.iterdir()) == []


def dense(*args, **options):
    return keras.layers.Dense(*args, **options, name="logits")


# Models like a classifier, with a difference that the ONNX graph would lack.
CHANGED = {
    "a hidden layer": lambda e, i: dense(2)(
        keras.layers.Dense(8, activation="tanh")(e(i)["pooled_output"])
    ),
    "another layer's output": lambda e, i: dense(2)(
        SentencePooling("mean", normalize=False)(e(i)["encoder_outputs"][0], i["input_mask"])
    ),
    "other inputs": lambda e, i: dense(2)(
        e({**i, "input_type_ids": i["input_mask"]})["pooled_output"]
    ),
    "an activation": lambda e, i: dense(2, activation="tanh")(e(i)["pooled_output"]),
    "no bias": lambda e, i: dense(2, use_bias=False)(e(i)["pooled_output"]),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_changed_head_is_refused(change, tmp_path):
    encoder = tiny.encoder()
    inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in encoder.input}
    logits = CHANGED[change](encoder, inputs)
    output = heads.TaskOutput("classification", labels=["a", "b"], name="output")(logits)
    with pytest.raises(ValueError, match="or an unchanged model of keras_bert.heads"):
        keras_bert.export(keras.Model(inputs, output), tmp_path / "a", format="onnx")


@pytest.mark.parametrize("path", ["", None, 3, b"x", "e/\udcff", "loop", "loop/a"])
def test_wrong_paths(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    for format in ("saved_model", "litert"):
        with pytest.raises(ValueError, match="path must be"):
            keras_bert.export(classifier(), path, format=format)
    assert [item.name for item in tmp_path.iterdir()] == ["loop"]


def test_other_backends_write_no_saved_model(tmp_path, monkeypatch):
    model = classifier()
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="needs TensorFlow, .*this process runs jax"):
        keras_bert.export(model, tmp_path)
