"""Weights and configs in Hugging Face folders."""

import contextlib
import json
import re
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_bert
from keras_bert import checkpoints
from keras_bert.checkpoints import canonical, huggingface
from tests.checkpoints.huggingface_files import (
    SIZES,
    VOCABULARY,
    H,
    V,
    assert_weights,
    encoder_tensors,
    expected_weights,
    fill,
    make_folder,
    pretraining_tensors,
    write_json,
)

# Weights


def test_read(tmp_path):
    tensors = {**encoder_tensors(), **pretraining_tensors()}
    make_folder(tmp_path, tensors, VOCABULARY, hidden_act="gelu", layer_norm_eps=1e-6)
    checkpoint = checkpoints.read(tmp_path)
    assert checkpoint.format == "huggingface"
    assert checkpoint.path == str(tmp_path)
    assert checkpoint.spec.vocabulary == VOCABULARY
    assert checkpoint.spec.head.labels is None
    assert checkpoint.spec.encoder == SIZES | canonical.DEFAULTS | {"layer_norm_eps": 1e-6}
    assert_weights(checkpoint.weights, expected_weights(tensors))


def without_prefix(tensors):
    return {name.removeprefix("bert."): array for name, array in tensors.items()}


def with_old_names(tensors):
    return {
        re.sub(r"(LayerNorm\.)(weight|bias)$", lambda m: m[1] + OLD[m[2]], name): array
        for name, array in tensors.items()
    }


OLD = {"weight": "gamma", "bias": "beta"}


def with_wrappers(tensors):
    """Add the names of torch's wrappers, of the model and of modules in it, also nested ones."""
    inner = "layer.1._checkpoint_wrapped_module.module."
    return {
        f"module._orig_mod.{name.replace('layer.1.', inner)}": array
        for name, array in tensors.items()
    }


@pytest.mark.parametrize("spell", [without_prefix, with_old_names, with_wrappers])
def test_alternative_names(tmp_path, spell):
    tensors = {**encoder_tensors(), **pretraining_tensors()}
    assert spell(tensors).keys() != tensors.keys()
    make_folder(tmp_path, spell(tensors))
    assert_weights(checkpoints.read(tmp_path).weights, expected_weights(tensors))


@pytest.mark.parametrize(
    "prefix", ["model.", "bert.", "encoder.", "0.auto_model.", "base_model.model."]
)
def test_the_prefix_of_an_outer_module_is_removed(tmp_path, prefix):
    tensors = {**encoder_tensors(), **pretraining_tensors()}
    expected = expected_weights(tensors)
    make_folder(tmp_path, {f"{prefix}{name}": array for name, array in tensors.items()})
    assert_weights(checkpoints.read(tmp_path).weights, expected)
    # The prefix of the encoder alone, beside the heads.
    bare = {f"{prefix}{name}": array for name, array in without_prefix(encoder_tensors()).items()}
    make_folder(tmp_path, bare | pretraining_tensors())
    assert_weights(checkpoints.read(tmp_path).weights, expected)


def test_two_encoders_are_an_error(tmp_path):
    towers = {f"{side}.{k}": v for side in ("query", "text") for k, v in encoder_tensors().items()}
    make_folder(tmp_path, towers)
    with pytest.raises(ValueError, match="unknown .*query.bert"):
        checkpoints.read(tmp_path)


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_buffers_are_ignored_by_name(tmp_path, prefix):
    tensors = encoder_tensors()
    ids = {f"{prefix}embeddings.position_ids": np.arange(8)[None]}
    ids[f"{prefix}embeddings.token_type_ids"] = np.zeros((1, 8), "int64")
    make_folder(tmp_path, (tensors if prefix else without_prefix(tensors)) | ids)
    assert_weights(checkpoints.read(tmp_path).weights, expected_weights(tensors))


def test_a_tensor_under_two_names(tmp_path):
    tensors = encoder_tensors()
    tensors["pooler.dense.bias"] = tensors["bert.pooler.dense.bias"]
    make_folder(tmp_path, tensors)
    with pytest.raises(ValueError, match=r"model.safetensors: .*twice \(1\): pooler.dense.bias$"):
        checkpoints.read(tmp_path)


def test_copies_of_tied_tensors_must_be_equal(tmp_path):
    tensors = {**encoder_tensors(), **pretraining_tensors()}
    expected = expected_weights(tensors)
    tied = dict(tensors)
    tied["cls.predictions.decoder.weight"] = tensors[
        "bert.embeddings.word_embeddings.weight"
    ].copy()
    tied["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].copy()
    make_folder(tmp_path, tied)
    assert_weights(checkpoints.read(tmp_path).weights, expected)
    # Some writers keep only the copy.
    make_folder(tmp_path, {k: v for k, v in tied.items() if k != "cls.predictions.bias"})
    assert_weights(checkpoints.read(tmp_path).weights, expected)
    for name in ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"):
        other = tied[name].copy()
        other.flat[3] = np.nextafter(other.flat[3], np.float32(9))
        make_folder(tmp_path, {**tied, name: other})
        with pytest.raises(ValueError, match=rf"unequal \(1\): {name} \(differs from ") as caught:
            checkpoints.read(tmp_path)
        assert f"ignore=['{name}']" in str(caught.value)
        assert_weights(checkpoints.read(tmp_path, ignore=[name]).weights, expected)
    make_folder(tmp_path, {**tied, name: tied[name][:-1]})
    with pytest.raises(ValueError, match=rf"unequal \(1\): {name}"):
        checkpoints.read(tmp_path)


@pytest.mark.parametrize(("head", "source", "n"), [("classifier", "classifier", 5), ("span_selector", "qa_outputs", 2)])  # fmt: skip # noqa: E501
def test_fine_tuned_heads_without_a_pooler(tmp_path, head, source, n):
    tensors = encoder_tensors(pooler=False)
    tensors |= fill({f"{source}.weight": (n, H), f"{source}.bias": (n,)})
    make_folder(tmp_path, tensors)
    weights = checkpoints.read(tmp_path).weights
    assert_weights(weights, expected_weights(tensors))
    assert f"{head}/kernel" in weights
    assert "pooler/dense/kernel" not in weights


def test_all_problems_are_listed_at_once(tmp_path):
    tensors = encoder_tensors() | fill({"bert.a": (1,)})
    del tensors["bert.encoder.layer.1.attention.self.key.bias"]
    tensors["bert.encoder.layer.0.attention.self.value.weight"] = np.ones((H, 3 * H), "float32")
    make_folder(tmp_path, tensors)
    message = (
        r"model.safetensors: .*; missing \(1\): .*layer.1.attention.self.key.bias; "
        r"unknown \(1\): bert.a; wrong shape \(1\): .*self.value.weight \(expected \(4, 4\), found "
        r"\(4, 12\)\)$"
    )
    with pytest.raises(ValueError, match=message):
        checkpoints.read(tmp_path)
    tensors = encoder_tensors() | fill({"a": (1,), "classifier.weight": (3, H + 1)})
    tensors |= fill({"classifier.bias": (3,), "cls.predictions.bias": (V,)})
    make_folder(tmp_path, tensors)
    message = (
        r"model.safetensors: .*ignore=\['a'\].*; missing \(4\): cls.*; unknown \(1\): a; "
        r"wrong shape \(1\): classifier.weight \(expected \(3, 4\), found \(3, 5\)\)"
    )
    with pytest.raises(ValueError, match=message):
        checkpoints.read(tmp_path)


def test_pooling_of_sentence_transformers(tmp_path):
    make_folder(tmp_path, encoder_tensors())
    assert checkpoints.read(tmp_path).spec.pooling is None
    (tmp_path / "1_Pooling").mkdir()
    file = tmp_path / "1_Pooling" / "config.json"
    mean, cls = "pooling_mode_mean_tokens", "pooling_mode_cls_token"
    for found, expected in (({mean: True, cls: False}, "mean"), ({cls: True}, "cls")):
        file.write_text(json.dumps(found))
        assert checkpoints.read(tmp_path).spec.pooling == expected
    file.write_text(json.dumps({mean: True}))
    bert = keras_bert.load(tmp_path)
    assert bert.pooling == "mean"
    keras_bert.save(bert, tmp_path / "again", format="huggingface")
    assert keras_bert.load(tmp_path / "again").pooling == "mean"


def test_the_config_has_the_name_of_google_in_files_of_2018(tmp_path):
    make_folder(tmp_path, encoder_tensors())
    expected = checkpoints.read(tmp_path)
    (tmp_path / "config.json").rename(tmp_path / "bert_config.json")
    found = checkpoints.read(tmp_path)
    assert found.spec.encoder == expected.spec.encoder
    assert_weights(found.weights, dict(expected.weights))


def test_modules_without_modules_json_are_an_error(tmp_path):
    make_folder(tmp_path, encoder_tensors())
    for name in ("2_Normalize", "3_epochs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    checkpoints.read(tmp_path)
    (tmp_path / "2_Dense").mkdir()
    (tmp_path / "2_Dense" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"modules.json is missing, .*2_Dense"):
        checkpoints.read(tmp_path)


def test_ignored_tensors_are_left_out(tmp_path):
    extra = {f"cls.chain.{i}.weight": (3, 2) for i in range(5)} | {"step": (1,)}
    tensors = encoder_tensors() | fill(extra)
    tensors["step"] = tensors["step"].astype("int64")  # not even floats
    make_folder(tmp_path, tensors)
    found = checkpoints.read(tmp_path, ignore=["cls.chain.*", "step"])
    make_folder(tmp_path / "plain", encoder_tensors())
    expected = checkpoints.read(tmp_path / "plain").weights
    assert list(found.weights) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found.weights[name], array)
    with pytest.raises(ValueError, match=r"leave out unknown ones with .*ignore=.*cls.chain.0"):
        checkpoints.read(tmp_path, ignore=["step"])
    with pytest.raises(ValueError, match="each pattern of ignore must .*'cls.chian'"):
        checkpoints.read(tmp_path, ignore=["cls.chian", "step"])
    with pytest.raises(ValueError, match=r"missing \(2\): bert.embeddings.LayerNorm"):
        checkpoints.read(tmp_path, ignore=["*.embeddings.LayerNorm.*", "cls.*", "step"])


def test_float16_becomes_float32(tmp_path):
    tensors = {name: array.astype("float16") for name, array in encoder_tensors().items()}
    make_folder(tmp_path, tensors)
    found = checkpoints.read(tmp_path).weights
    assert_weights(found, expected_weights({n: a.astype("float32") for n, a in tensors.items()}))


def write_safetensors(file, tensors):
    """Write name -> (dtype, shape, bytes); the library needs torch for bfloat16."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += content
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    file.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)


def to_bfloat16(array):
    return (array.view(np.uint32) >> 16).astype("<u2")


def rounded_to_bfloat16(array):
    return (array.view(np.uint32) & 0xFFFF0000).view(np.float32)


def test_bfloat16_becomes_float32(tmp_path):
    tensors = encoder_tensors()
    make_folder(tmp_path)
    stored = {n: ("BF16", a.shape, to_bfloat16(a).tobytes()) for n, a in tensors.items()}
    stored["bert.embeddings.position_ids"] = ("I64", (1, 8), np.arange(8).tobytes())
    bias = tensors["bert.pooler.dense.bias"]
    stored["bert.pooler.dense.bias"] = ("F32", (H,), bias.tobytes())  # mixed types
    write_safetensors(tmp_path / "model.safetensors", stored)
    expected = {name: rounded_to_bfloat16(array) for name, array in tensors.items()}
    expected["bert.pooler.dense.bias"] = bias
    assert_weights(checkpoints.read(tmp_path).weights, expected_weights(expected))


def test_other_dtypes_are_errors(tmp_path):
    tensors = encoder_tensors()
    tensors["bert.pooler.dense.bias"] = np.zeros(H, "int8")
    make_folder(tmp_path, tensors)
    with pytest.raises(ValueError, match="bert.pooler.dense.bias must hold floats"):
        dict(checkpoints.read(tmp_path).weights)
    stored = {name: ("F8_E4M3", array.shape, b"a" * array.size) for name, array in tensors.items()}
    write_safetensors(tmp_path / "model.safetensors", stored)
    with pytest.raises(ValueError, match="model.safetensors: .*must hold floats, received .*F8"):
        dict(checkpoints.read(tmp_path).weights)


@pytest.mark.parametrize("size", [0, 300])
def test_truncated_safetensors(tmp_path, size):
    make_folder(tmp_path, encoder_tensors())
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ValueError, match="model.safetensors: must be a complete safetensors file"):
        checkpoints.read(tmp_path)


def make_shards(path, tensors, count=3):
    names = sorted(tensors)
    weight_map = {}
    for i in range(count):
        shard = f"model-{i + 1:05d}-of-{count:05d}.safetensors"
        save_file({name: tensors[name] for name in names[i::count]}, path / shard)
        weight_map |= dict.fromkeys(names[i::count], shard)
    write_json(path / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    return weight_map


def test_shards(tmp_path):
    tensors = encoder_tensors()
    make_folder(tmp_path)
    make_shards(tmp_path, tensors)
    assert_weights(checkpoints.read(tmp_path).weights, expected_weights(tensors))


def test_shards_must_match_their_index(tmp_path):
    make_folder(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    weight_map = make_shards(tmp_path, encoder_tensors())
    shard = weight_map.pop("bert.pooler.dense.bias")
    write_json(index, {"weight_map": weight_map})
    with pytest.raises(ValueError, match=rf"{shard}: .*unknown \(1\): bert.pooler.dense.bias"):
        checkpoints.read(tmp_path)
    write_json(index, {"weight_map": {**weight_map, "bert.pooler.dense.bias": shard, "x": shard}})
    with pytest.raises(ValueError, match=rf"{shard}: .*missing \(1\): x"):
        checkpoints.read(tmp_path)
    (tmp_path / shard).unlink()
    with pytest.raises(FileNotFoundError, match=f"{shard}: missing; it is listed in {index.name}"):
        checkpoints.read(tmp_path)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "pytorch_model.bin", 1])
def test_index_with_files_outside_the_folder(tmp_path, name):
    make_folder(tmp_path)
    write_json(tmp_path / "model.safetensors.index.json", {"weight_map": {"a": name}})
    with pytest.raises(ValueError, match="index.json: weight_map must name a .safetensors file"):
        checkpoints.read(tmp_path)


@pytest.mark.peers
@pytest.mark.parametrize("zipped", [True, False])
def test_read_pytorch_model_bin(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    tensors = {**encoder_tensors(), **pretraining_tensors()}
    stored = {key: torch.from_numpy(array) for key, array in tensors.items()}
    stored["bert.embeddings.position_ids"] = torch.arange(8).expand((1, -1))
    # torch stores tied tensors once, under two names.
    stored["cls.predictions.decoder.weight"] = stored["bert.embeddings.word_embeddings.weight"]
    make_folder(tmp_path)
    file = tmp_path / "pytorch_model.bin"
    torch.save(stored, file, _use_new_zipfile_serialization=zipped)
    assert_weights(checkpoints.read(tmp_path).weights, expected_weights(tensors))
    file.rename(tmp_path / "pytorch_model-00001-of-00001.bin")
    weight_map = dict.fromkeys(stored, "pytorch_model-00001-of-00001.bin")
    write_json(tmp_path / "pytorch_model.bin.index.json", {"weight_map": weight_map})
    assert_weights(checkpoints.read(tmp_path).weights, expected_weights(tensors))


# Config


@pytest.mark.parametrize(
    ("found", "expected"), [("gelu", "gelu"), ("gelu_fast", "gelu_new"), ("swish", "silu")]
)
def test_activations(tmp_path, found, expected):
    make_folder(tmp_path, encoder_tensors(), hidden_act=found)
    assert checkpoints.read(tmp_path).spec.encoder["hidden_act"] == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "cat"),
        ("is_decoder", True),
        ("position_embedding_type", "relative_key"),
        ("pruned_heads", {"0": [1]}),
        ("quantization_config", {"bits": 4}),
        ("quantization_config", "awq"),
        ("rotary", True),
        ("rope_theta", 10000.0),
        ("use_alibi", True),
        ("prenorm", True),
        ("relative_attention", True),
        ("moe_layers", [1]),
    ],
)
def test_other_models_are_rejected(tmp_path, key, value):
    make_folder(tmp_path, encoder_tensors(), **{key: value})
    with pytest.raises(
        ValueError, match=re.escape(f"config.json: {key} must be ") + ".*" + re.escape(repr(value))
    ):
        checkpoints.read(tmp_path)


def test_config_keys(tmp_path):
    make_folder(tmp_path, encoder_tensors(), model_type=None)  # as in 2018
    assert tuple(checkpoints.read(tmp_path).spec.encoder) == canonical.CONFIG_KEYS
    make_folder(tmp_path, encoder_tensors(), **dict.fromkeys(huggingface.SILENT_KEYS))
    assert tuple(checkpoints.read(tmp_path).spec.encoder) == canonical.CONFIG_KEYS
    others = {"emb_size": 3, "cell": {}, "adapters": {"a": 1}, "max_relative_positions": -1}
    make_folder(tmp_path, encoder_tensors(), **others, rotary=False, use_alibi=None, property="x")
    names = "adapters, cell, emb_size, max_relative_positions, property, rotary, use_alibi"
    with pytest.warns(UserWarning, match=f"ignored .*: {names}$"):
        assert tuple(checkpoints.read(tmp_path).spec.encoder) == canonical.CONFIG_KEYS


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json"):
        huggingface.read(tmp_path)
    make_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match="no weights, looked for model.safetensors"):
        huggingface.read(tmp_path)


CLASSIFIER = {"classifier.weight": (3, H), "classifier.bias": (3,)}


@pytest.mark.parametrize(
    ("names", "labels", "fits"),
    [
        ({"0": "bad", "2": "good", "1": "so-so"}, ["bad", "so-so", "good"], True),
        ({"0": "LABEL_0", "1": "LABEL_1"}, ["0", "1", "2"], True),  # of a multiple-choice config
        ({"0": 0, "1": 1.5, "2": True}, ["0", "1.5", "True"], True),
        (["a", 7, "c"], ["a", "7", "c"], True),
        ({"0": "a", "2": "c"}, ["a", "1", "c"], False),
        ({"0": "a", "1": None, "2": "c"}, ["a", "1", "c"], False),
        ({"0": "a", "1": "b", "3": "c"}, ["0", "1", "2"], False),  # of another classifier
        ({"0": "a", "1": "b", "2": "c", "3": "d"}, ["0", "1", "2"], False),
        ("abc", ["0", "1", "2"], True),
    ],
)
def test_labels_of_any_form_are_strings(tmp_path, names, labels, fits):
    make_folder(tmp_path, encoder_tensors() | fill(CLASSIFIER), VOCABULARY, id2label=names)
    warns = pytest.warns(UserWarning, match="id2label must name .* 3 classes.*labels=")
    with contextlib.nullcontext() if fits else warns:
        model = keras_bert.load(tmp_path, task="classification")
    assert keras_bert.heads.find_output(model).labels == labels


def test_labels_with_control_characters(tmp_path):
    names = {"0": "good", "1": "\x1b[2Jbad", "2": "so-so"}
    make_folder(tmp_path, encoder_tensors() | fill(CLASSIFIER), id2label=names)
    keras_bert.load(tmp_path)
    with pytest.raises(ValueError, match=r"a label .*\\x1b.* Rename it"):
        keras_bert.load(tmp_path, task="classification")


# Folders written by transformers


@pytest.mark.peers
@pytest.mark.parametrize(
    "model",
    [
        "BertModel",
        "BertForPreTraining",
        "BertForMaskedLM",
        "BertForNextSentencePrediction",
        "BertForSequenceClassification",
        "BertForTokenClassification",
        "BertForQuestionAnswering",
        "BertForMultipleChoice",
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_models_saved_by_transformers(tmp_path, model, dtype):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    labels = {0: "bad", 1: "good", 2: "so-so"}
    config = transformers.BertConfig(**SIZES, id2label=labels if "Classif" in model else None)
    original = getattr(transformers, model)(config).to(getattr(torch, dtype))
    original.save_pretrained(tmp_path)
    checkpoint = checkpoints.read(tmp_path)
    tensors = {
        key if model != "BertModel" else f"bert.{key}": value.float().numpy()
        for key, value in original.state_dict().items()
        if "decoder" not in key
    }
    assert_weights(checkpoint.weights, expected_weights(tensors))
    assert checkpoint.spec.head.labels == (list(labels.values()) if "Classif" in model else None)
    assert checkpoint.spec.encoder == SIZES | canonical.DEFAULTS
