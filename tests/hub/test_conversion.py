"""Conversion of models to checkpoints of each format and back."""

import json

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import checkpoints, heads
from keras_bert.hub import conversion
from tests import tiny
from tests.properties import subjects

GOOGLE = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12}
TRANSFORMERS = {
    "classification": "BertForSequenceClassification",
    "multi_label": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "tagging": "BertForTokenClassification",
    "question_answering": "BertForQuestionAnswering",
    "multiple_choice": "BertForMultipleChoice",
    "masked_tokens": "BertForMaskedLM",
    "next_sentence": "BertForNextSentencePrediction",
    "pretraining": "BertForPreTraining",
    "embedding": "BertModel",
}
ODD = {
    "hidden_act": "relu",
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.3,
    "type_vocab_size": 16,
    "initializer_range": 0.05,
    "layer_norm_eps": 1e-5,
    "num_attention_heads": 4,
}


def scrambled(model, seed=0):
    """Set every weight of a model to random values, so that no two are equal."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape))
    return model


def make(name, **options):
    """Return a model of a task or variant, or an encoder, with random weights."""
    if name == "encoder":
        return scrambled(tiny.encoder(**options))
    if name == "question_answering":  # without no_answer=True, which the formats do not keep
        return scrambled(heads.span_selector(tiny.encoder(**options)))
    return scrambled(subjects.model(name, **options))


def assert_same_weights(model, other):
    ours = {w.path: keras.ops.convert_to_numpy(w) for w in model.weights}
    theirs = {w.path: keras.ops.convert_to_numpy(w) for w in other.weights}
    assert ours.keys() == theirs.keys()
    for path, array in ours.items():
        np.testing.assert_array_equal(array, theirs[path], err_msg=path)


@pytest.mark.parametrize(
    "options",
    [
        {"lowercase": False},
        {"lowercase": False, "split_cjk": False},
        {"lowercase": True, "strip_accents": False, "max_sequence_length": 17},
    ],
)
@pytest.mark.parametrize("format", ["google", "huggingface"])
def test_tokenizer_options_are_kept(options, format, tmp_path):
    encoder = tiny.encoder(**GOOGLE)
    encoder.preprocessor = keras_bert.Preprocessor(tiny.PIECES, **{
        "max_sequence_length": 32, **options
    })  # fmt: skip
    keras_bert.save(encoder, tmp_path / "uncased_there", format=format)
    again = keras_bert.load(tmp_path / "uncased_there").preprocessor
    for key in ("lowercase", "strip_accents", "split_cjk", "max_sequence_length", "vocabulary"):
        assert getattr(again, key) == getattr(encoder.preprocessor, key), key


@pytest.mark.parametrize(
    ("format", "options", "message"),
    [
        ("google", {"hidden_act": "gelu"}, "hidden_act must be gelu_new, .* received 'gelu'"),
        ("google", {**GOOGLE, "layer_norm_eps": 1e-5}, "layer_norm_eps must be 1e-12"),
        ("keras_hub", {"hidden_act": "relu"}, "hidden_act must be gelu_new, received 'relu'"),
        ("keras_hub", {**GOOGLE, "layer_norm_eps": 1e-5}, "layer_norm_eps must be 1e-12"),
        ("tf2", {}, "format must be one of keras, .*; received 'tf2'"),
    ],
)
def test_unsupported_options_are_errors(format, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        keras_bert.save(tiny.encoder(**options), tmp_path / "there", format=format)
    assert list(tmp_path.iterdir()) == []


def test_other_models_are_refused():
    encoder = tiny.encoder()
    own = keras.Model(encoder.input, keras.layers.Dense(2)(encoder(encoder.input)["pooled_output"]))
    with pytest.raises(ValueError, match="must be an encoder or end in a head"):
        conversion.to_checkpoint(own)
    with pytest.raises(ValueError, match="must hold one BertEncoder"):
        conversion.to_checkpoint(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    quantized = tiny.encoder()
    quantized.get_layer("layer_0").intermediate.quantize("int8")
    with pytest.raises(ValueError, match="of BERT, and not quantized.*unknown"):
        conversion.to_checkpoint(quantized)


@pytest.mark.parametrize("alpha", [2, 8])
def test_lora_weights_are_merged(alpha, tmp_path):
    encoder = tiny.encoder()
    encoder.get_layer("layer_0").intermediate.enable_lora(2, lora_alpha=alpha)
    encoder.get_layer("pooler").dense.enable_lora(2, lora_alpha=alpha)
    encoder.get_layer("embeddings").word_embeddings.enable_lora(2, lora_alpha=alpha)
    generator = np.random.default_rng(0)
    for variable in encoder.variables:
        if variable.name.startswith("lora_"):
            variable.assign(generator.normal(size=variable.shape))
    keras_bert.save(encoder, tmp_path / "merged", format="huggingface")
    inputs = encoder.preprocessor(["so good", "bad film"])
    expected = encoder(inputs)
    found = keras_bert.load(tmp_path / "merged")
    assert not any("lora" in variable.path for variable in found.variables)
    outputs = found(inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[name], value, atol=1e-5)


def test_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="must be an empty folder"):
        keras_bert.save(tiny.encoder(), tmp_path, format="huggingface")
    (tmp_path / "empty").mkdir()
    keras_bert.save(tiny.encoder(), tmp_path / "empty", format="huggingface")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "mine.txt"]


def test_ids_without_a_token_get_a_name(tmp_path):
    encoder = tiny.encoder(vocab_size=24)
    keras_bert.save(encoder, tmp_path / "there", format="huggingface")
    again = keras_bert.load(tmp_path / "there", sequence_length=8)
    assert again.preprocessor.vocabulary[18:] == tuple(f"[unused{i}]" for i in range(18, 24))
    texts = ["this [unused18] is good", "[unused23]"]
    for key, array in encoder.preprocessor(texts).items():
        np.testing.assert_array_equal(again.preprocessor(texts)[key], array)


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16", "float16"])
def test_round_trip_in_each_dtype(dtype, tmp_path):
    keras_bert.save(scrambled(tiny.encoder()), tmp_path / "a", format="huggingface")
    first = keras_bert.load(tmp_path / "a", dtype=dtype)
    assert first.dtype_policy.name == dtype
    keras_bert.save(first, tmp_path / "b", format="huggingface")
    assert_same_weights(first, keras_bert.load(tmp_path / "b", dtype=dtype))


def test_file_that_changes_while_it_is_read_is_an_error(tmp_path):
    keras_bert.save(make("encoder"), tmp_path / "there", format="huggingface")
    checkpoint = checkpoints.read(tmp_path / "there")
    file = tmp_path / "there" / "model.safetensors"
    file.write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match="model.safetensors: changed while"):
        conversion.from_checkpoint(checkpoint)


def test_links_current_folder_and_home_as_targets(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    encoder = tiny.encoder(num_hidden_layers=1)
    keras_bert.save(encoder, tmp_path / "link", format="huggingface")
    assert (tmp_path / "real" / "config.json").is_file()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    keras_bert.save(encoder, ".", format="huggingface")
    assert (tmp_path / "here" / "config.json").is_file()
    monkeypatch.setenv("HOME", str(tmp_path))
    keras_bert.save(encoder, "~/mine")
    keras_bert.save(encoder, "~/theirs", format="huggingface")
    for name in ("mine", "theirs"):
        assert keras_bert.load(f"~/{name}").count_params() == encoder.count_params()


# --- The transformers library reads the files


@pytest.mark.peers
@pytest.mark.parametrize("name", ["encoder", *TRANSFORMERS])
def test_transformers_uses_all_weights(name, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = make(name, **ODD)
    keras_bert.save(model, tmp_path / "there", format="huggingface")
    config = json.loads((tmp_path / "there" / "config.json").read_text())
    kind = TRANSFORMERS.get(name, "BertModel")
    assert config["architectures"] == [kind]
    theirs, report = getattr(transformers, kind).from_pretrained(
        tmp_path / "there", output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not report[kind], (kind, report[kind])
    shape = (2, 3, 6) if name == "multiple_choice" else (2, 6)
    ids = np.random.default_rng(0).integers(0, len(tiny.PIECES), shape)
    ones = np.ones_like(ids)
    inputs = {"input_word_ids": ids, "input_mask": ones, "input_type_ids": ones * 0}
    if "masked_lm_positions" in model.input:
        inputs["masked_lm_positions"] = np.tile(np.arange(6), (2, 1))
    with torch.no_grad():
        given = theirs.eval()(
            input_ids=torch.tensor(ids),
            attention_mask=torch.tensor(ones),
            token_type_ids=torch.tensor(ones * 0),
        )
    if name == "embedding":
        model = heads.find_encoder(model)
    found = model(inputs)
    if name in ("encoder", "embedding"):
        pairs = [(found["sequence_output"], given[0]), (found["pooled_output"], given[1])]
    elif name == "question_answering":
        pairs = [(found[key], given[key]) for key in ("start_logits", "end_logits")]
    elif name == "pretraining":
        pairs = [(found["masked_lm"], given[0]), (found["next_sentence"], given[1])]
    else:
        pairs = [(found, given.logits)]
    for ours, expected in pairs:
        # Weights of variance 1 make logits of some hundreds.
        np.testing.assert_allclose(np.array(ours), expected.numpy(), rtol=1e-4, atol=1e-4)
    if name in ("classification", "tagging"):
        labels = [theirs.config.id2label[i] for i in range(len(theirs.config.id2label))]
        assert labels == heads.find_output(model).labels


@pytest.mark.peers
@pytest.mark.parametrize("options", [{}, {"lowercase": False}, {"strip_accents": False}])
def test_transformers_makes_the_same_ids(options, tmp_path):
    transformers = pytest.importorskip("transformers")
    encoder = tiny.encoder(vocab_size=len(tiny.PIECES) + 2)
    encoder.preprocessor = keras_bert.Preprocessor(
        [*tiny.PIECES, "Good", "gööd"], sequence_length=12, **options
    )
    keras_bert.save(encoder, tmp_path / "there", format="huggingface")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "there")
    texts = ["Good filmly!", "gööd 한국 국어", "GOOD", ""]
    expected = tokenizer(texts, padding="max_length", max_length=12)["input_ids"]
    np.testing.assert_array_equal(encoder.preprocessor(texts)["input_word_ids"], expected)


# --- Several formats


def test_part_that_a_format_cannot_hold_is_an_error(tmp_path):
    checkpoint = conversion.to_checkpoint(make("pretraining", **GOOGLE)).without({"masked_lm"})
    with pytest.raises(ValueError, match="received next_sentence; drop next_sentence"):
        checkpoints.write(checkpoint, tmp_path / "there", "keras_hub")
    with pytest.raises(ValueError, match="has only next_sentence, pooler, received 'tagging'"):
        checkpoint.without({"tagging"})
