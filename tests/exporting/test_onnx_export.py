"""Tests of ONNX folders on ONNX Runtime and OpenVINO. The references are the Keras models."""

import collections
import json
import pathlib
import re
import tempfile
import warnings

import keras
import numpy as np
import onnx
import onnxruntime
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.exporting import onnx_graph
from keras_bert.exporting.graph_folder import INPUTS, graph_inputs
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.untrusted import onnx_graph_check
from tests import contract, tiny
from tests.exporting.programs import inputs_for, run_program


def softmax(logits):
    return keras.ops.convert_to_numpy(keras.ops.softmax(logits))


def scores(activation):
    return lambda y: {"logits": y, "score": np.array(activation(y))}


# Of each head: its builder, and the outputs for those of the Keras model.
HEADS = {
    "classification": (lambda e: heads.classifier(e, 3), lambda y: {"logits": y}),
    "mean": (lambda e: heads.classifier(e, 3, pooling="mean"), lambda y: {"logits": y}),
    "unit mean": (
        lambda e: heads.classifier(e, 3, pooling="mean", normalize=True),
        lambda y: {"logits": y},
    ),
    "next_sentence": (heads.next_sentence, lambda y: {"logits": y}),
    "regression": (heads.regressor, scores(np.array)),
    "reranking": (
        lambda e: heads.reranker(e, activation="tanh"),
        lambda y: {"logits": np.arctanh(y), "score": y},
    ),
    "sparse_embedding": (heads.sparse_embedder, lambda y: {"sentence_embedding": y}),
    "embedding": (heads.embedder, lambda y: {"sentence_embedding": y}),
    "tagging": (lambda e: heads.tagger(e, 3), lambda y: {"logits": y}),
    "question_answering": (heads.span_selector, dict),
    "multiple_choice": (heads.multiple_choice, lambda y: {"logits": y}),
    "masked_tokens": (heads.masked_lm, lambda y: {"logits": y}),
    "pretraining": (
        heads.pretraining,
        lambda y: {
            "prediction_logits": y["masked_lm"], "seq_relationship_logits": y["next_sentence"]
        },
    ),
    "encoder": (
        lambda e: e,
        lambda y: {
            "last_hidden_state": y["sequence_output"], "pooler_output": y["pooled_output"]
        },
    ),
}  # fmt: skip


def run(proto, inputs):
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def check(head, hidden_act="gelu"):
    build, outputs = HEADS[head]
    model = build(tiny.encoder(initializer_range=0.3, hidden_act=hidden_act))
    proto = onnx_graph.build_model_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "model.onnx")
        onnx.save(proto, file)
        onnx_graph_check.check(file)  # a pipeline reads only graphs that pass
    inputs = inputs_for(model)
    found = run(proto, graph_inputs(inputs, INPUTS.values()))
    if "sentence_embedding" in found and "last_hidden_state" in found:
        vectors = keras.ops.convert_to_numpy(heads.find_encoder(model)(inputs)["sequence_output"])
        np.testing.assert_allclose(found.pop("last_hidden_state"), vectors, atol=1e-5)
    expected = outputs(
        keras.tree.map_structure(keras.ops.convert_to_numpy, model(inputs, training=False))
    )
    assert found.keys() == expected.keys()
    is_token = inputs["input_mask"] != 0
    for name, value in expected.items():
        one, other = found[name], np.array(value)
        if one.shape[:2] == is_token.shape and head != "multiple_choice":
            one, other = one[is_token], other[is_token]
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_outputs_equal_those_of_keras(head):
    check(head)


def test_every_head_is_tested():
    assert set(contract.OF_TASKS) <= set(HEADS)


@pytest.mark.parametrize("hidden_act", ["gelu_new", "relu", "silu"])
def test_activations(hidden_act):
    check("masked_tokens", hidden_act)


@pytest.mark.parametrize("head", ["classification", "multiple_choice"])
def test_onnx_runtime_fuses_attention_layer_norm_and_gelu(head, tmp_path):
    model = HEADS[head][0](tiny.encoder(num_hidden_layers=3))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(onnx_graph.build_model_proto(model).SerializeToString(), options)
    ops = collections.Counter(
        node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node
    )
    assert (ops["Attention"], ops["SkipLayerNormalization"], ops["BiasGelu"]) == (3, 6, 3)
    assert ops["Erf"] == ops["ReduceMean"] == 0


def test_different_sizes_have_different_names():
    """ONNX Runtime may share memory between tensors whose shapes have the same names."""
    proto = onnx_graph.build_model_proto(heads.multiple_choice(tiny.encoder()))
    (shape,) = [item.type.tensor_type.shape for item in proto.graph.value_info]
    assert shape.dim[0].dim_param == "batch_choices"


FILES = [
    "README.md", "config.json", "keras_bert.json", "special_tokens_map.json", "tokenizer.json",
    "tokenizer_config.json", "vocab.txt",
]  # fmt: skip


def files_in(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_a_folder(tmp_path, monkeypatch):
    model = heads.classifier(tiny.encoder(initializer_range=0.3), labels=["bad", "good", "좋음"])
    folder = keras_bert.export(model, tmp_path / "new" / "reviews", format="onnx")
    assert files_in(folder) == sorted([*FILES, "onnx/model.onnx"])
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "bad", "1": "good", "2": "좋음"}
    assert config["problem_type"] == "single_label_classification"
    expected = softmax(
        model(
            heads.find_encoder(model).preprocessor.with_options(sequence_length=None)(
                ["your text", "another text"]
            )
        )
    )
    np.testing.assert_allclose(run_program(folder, monkeypatch), expected, atol=1e-5)
    with pytest.raises(FileExistsError, match="must be an empty folder"):
        keras_bert.export(model, folder, format="onnx")


# The files that text-embeddings-inference looks for, as of its version 1.9.
INFERENCE_SERVER = {
    "config.json", "tokenizer.json", "tokenizer_config.json", "onnx/model.onnx", "modules.json",
    "1_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json",
}  # fmt: skip


def test_the_folder_of_an_embedder(tmp_path):
    folder = keras_bert.export(tiny.embedder("mean", []), tmp_path / "a", format="onnx")
    assert {*files_in(folder)} >= INFERENCE_SERVER
    with pytest.raises(ValueError, match=r"is an export, .* keras_bert.pipeline"):
        keras_bert.load(folder)


def test_special_tokens_in_the_tokenizer(tmp_path):
    import tokenizers

    preprocessor = keras_bert.Preprocessor([*tiny.PIECES, "[MASK]"])
    model = heads.masked_lm(tiny.encoder(preprocessor=preprocessor, vocab_size=20))
    folder = keras_bert.export(model, tmp_path / "a", format="onnx")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode("a [MASK] a").tokens[2] == "[MASK]"


@pytest.mark.parametrize("head", ["masked_tokens", "multiple_choice"])
def test_the_program_of_a_readme_runs(head, tmp_path, monkeypatch):
    model = HEADS[head][0](tiny.encoder())
    folder = keras_bert.export(model, tmp_path / "a", format="onnx")
    page = (folder / "README.md").read_text(encoding="utf-8")
    choices = "num_choices, " if head == "multiple_choice" else ""
    axes = f"batch_size, {choices}sequence_length"
    assert f"| input | `attention_mask` | int64 | ({axes}) |" in page
    assert len(run_program(folder, monkeypatch)) == (1 if choices else 2)


def test_the_program_of_a_tagger(tmp_path, monkeypatch):
    encoder = tiny.encoder(initializer_range=0.5)
    model = heads.tagger(encoder, labels=["O", "B-work", "B-mood"])
    folder = keras_bert.export(model, tmp_path / "a", format="onnx")
    texts = ["this film is goodly, so goods!", "bad"]
    results = keras_bert.pipeline(model)(texts, grouped=False)
    expected = [[(word["text"], word["tag"]) for word in words] for words in results]
    assert run_program(folder, monkeypatch, texts) == expected


def test_the_program_of_question_answering(tmp_path, monkeypatch):
    model = heads.span_selector(tiny.encoder(initializer_range=0.5))
    folder = keras_bert.export(model, tmp_path / "a", format="onnx")
    questions = [("so good?", "this film is a good film!"), ("bad", "so bad a film, 한국어")]
    expected = [result["answer"] for result in keras_bert.pipeline(model)(questions)]
    assert run_program(folder, monkeypatch, questions) == expected


@pytest.mark.parametrize(
    "task", ["classification", pytest.param("regression", marks=pytest.mark.slow)]
)
def test_the_program_of_the_readme_reads_long_texts_in_windows(task, tmp_path, monkeypatch):
    encoder = tiny.encoder(initializer_range=0.5, max_position_embeddings=24)
    encoder.preprocessor = encoder.preprocessor.with_options(max_sequence_length=24)
    options = {"labels": ["a", "b", "c"]} if task == "classification" else {}
    model = contract.OF_TASKS[task](encoder, **options)
    heads.find_output(model).long_texts = "window"
    folder = keras_bert.export(model, tmp_path / "a", format="onnx")
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert "longer texts are read in overlapping windows" in page
    words = np.random.default_rng(0).choice(["good", "bad", "film", "so", "is"], (12, 80))
    texts = [" ".join(row[: 1 + 7 * number]) for number, row in enumerate(words)]
    expected = KerasPredictor(model).answers(keras_bert.Examples(texts))
    answers = np.reshape(run_program(folder, monkeypatch, texts), np.shape(expected))
    np.testing.assert_allclose(answers, expected, atol=1e-5)
    if task == "classification":  # int8 is compared on windows, too
        labels = [answer["label"] for answer in keras_bert.pipeline(model)(texts)]
        dev = keras_bert.Examples(texts, labels=labels)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model of random weights is inaccurate in int8
            other = keras_bert.export(
                model, tmp_path / "b", format="onnx", quantize="int8", dev=dev
            )
        assert "(float32: 1.0000)" in (other / "README.md").read_text(encoding="utf-8")


def test_a_folder_without_a_tokenizer(tmp_path):
    folder = keras_bert.export(tiny.encoder(preprocessor=None), tmp_path / "a", format="onnx")
    assert files_in(folder) == ["README.md", "config.json", "keras_bert.json", "onnx/model.onnx"]
    assert "tokenizer.json" not in (folder / "README.md").read_text(encoding="utf-8")


def test_int8(tmp_path, caplog):
    encoder = tiny.encoder(initializer_range=0.3, hidden_size=64, intermediate_size=128)
    model = heads.classifier(encoder, labels=["bad", "good"])
    dev = keras_bert.Examples(["this film is good", "so bad"] * 20)
    sizes = []
    for quantize in (None, "int8"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model of random weights is inaccurate in int8
            options = {"quantize": quantize, "dev": dev} if quantize else {}
            folder = keras_bert.export(model, tmp_path / str(quantize), format="onnx", **options)
        file = folder / ("onnx/model_quantized.onnx" if quantize else "onnx/model.onnx")
        onnx_graph_check.check(file)
        sizes.append(file.stat().st_size)
    assert sizes[1] < 0.5 * sizes[0]
    assert caplog.messages == []  # no advice of ONNX Runtime
    card = (folder / "README.md").read_text("utf-8")
    assert re.search(
        r"float32 \| on 40 examples, .*, it takes \d+\.\d\d of the time of float32", card
    )


def test_ids_of_the_tokenizer(tmp_path):
    """Hugging Face's tokenizer gives the ids of ours for common text."""
    import tokenizers

    model = tiny.encoder()
    folder = pathlib.Path(keras_bert.export(model, tmp_path / "a", format="onnx"))
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = ["This film, is GOOD!", "한국어 film", "", "good " * 100, "\x00good\u200b"]
    ours = model.preprocessor.with_options(sequence_length=None)
    for text in texts:
        expected = ours([text])["input_word_ids"][0]
        assert theirs.encode(text).ids == np.array(expected).tolist()
