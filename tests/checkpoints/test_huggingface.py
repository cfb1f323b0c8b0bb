import builtins
import contextlib
import json
import os
import pickle
import re
import struct
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_bert import checkpoints
from keras_bert.checkpoints import canonical, huggingface, torch_pickle

# Every size differs from the others, so that no mix-up of two of them goes unseen.
SIZES = dict(zip(canonical.SIZES, (11, 4, 2, 2, 6, 8, 3), strict=True))
H, FF, V = 4, 6, 11
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
CASED = [*VOCABULARY[:-1], "Paris"]


def fill(shapes):
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype("float32") for name, shape in shapes.items()}


def encoder_tensors(pooler=True):
    shapes = {
        "bert.embeddings.word_embeddings.weight": (V, H),
        "bert.embeddings.position_embeddings.weight": (8, H),
        "bert.embeddings.token_type_embeddings.weight": (3, H),
        "bert.embeddings.LayerNorm.weight": (H,),
        "bert.embeddings.LayerNorm.bias": (H,),
    }
    for i in range(2):
        for name, shape in {
            "attention.self.query": (H, H),
            "attention.self.key": (H, H),
            "attention.self.value": (H, H),
            "attention.output.dense": (H, H),
            "intermediate.dense": (FF, H),
            "output.dense": (H, FF),
        }.items():
            shapes[f"bert.encoder.layer.{i}.{name}.weight"] = shape
            shapes[f"bert.encoder.layer.{i}.{name}.bias"] = shape[:1]
        for name in ("attention.output", "output"):
            shapes[f"bert.encoder.layer.{i}.{name}.LayerNorm.weight"] = (H,)
            shapes[f"bert.encoder.layer.{i}.{name}.LayerNorm.bias"] = (H,)
    if pooler:
        shapes |= {"bert.pooler.dense.weight": (H, H), "bert.pooler.dense.bias": (H,)}
    return fill(shapes)


def pretraining_tensors():
    return fill(
        {
            "cls.predictions.transform.dense.weight": (H, H),
            "cls.predictions.transform.dense.bias": (H,),
            "cls.predictions.transform.LayerNorm.weight": (H,),
            "cls.predictions.transform.LayerNorm.bias": (H,),
            "cls.predictions.bias": (V,),
            "cls.seq_relationship.weight": (2, H),
            "cls.seq_relationship.bias": (2,),
        }
    )


def expected_weights(tensors):
    """Written out, name by name, rather than made from the table that is under test."""
    renamed = {
        "embeddings/word_embeddings/embeddings": "bert.embeddings.word_embeddings.weight",
        "embeddings/position_embeddings/embeddings": "bert.embeddings.position_embeddings.weight",
        "embeddings/token_type_embeddings/embeddings": (
            "bert.embeddings.token_type_embeddings.weight"
        ),
        "embeddings/layer_norm/gamma": "bert.embeddings.LayerNorm.weight",
        "embeddings/layer_norm/beta": "bert.embeddings.LayerNorm.bias",
        "masked_lm/layer_norm/gamma": "cls.predictions.transform.LayerNorm.weight",
        "masked_lm/layer_norm/beta": "cls.predictions.transform.LayerNorm.bias",
        "masked_lm/output_bias": "cls.predictions.bias",
    }
    dense = {
        "pooler/dense": "bert.pooler.dense",
        "masked_lm/transform": "cls.predictions.transform.dense",
        "next_sentence": "cls.seq_relationship",
        "classifier": "classifier",
        "span_selector": "qa_outputs",
    }
    expected = {}
    for i in range(SIZES["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{i}"
        dense[f"layer_{i}/attention/output"] = f"{layer}.attention.output.dense"
        dense[f"layer_{i}/intermediate"] = f"{layer}.intermediate.dense"
        dense[f"layer_{i}/output"] = f"{layer}.output.dense"
        for ours, theirs in {"attention_layer_norm": "attention.output", "output_layer_norm": "output"}.items():  # fmt: skip # noqa: E501
            renamed[f"layer_{i}/{ours}/gamma"] = f"{layer}.{theirs}.LayerNorm.weight"
            renamed[f"layer_{i}/{ours}/beta"] = f"{layer}.{theirs}.LayerNorm.bias"
        parts = [f"{layer}.attention.self.{part}" for part in ("query", "key", "value")]
        expected[f"layer_{i}/attention/qkv/kernel"] = np.concatenate(
            [tensors[f"{part}.weight"].T for part in parts], axis=1
        )
        expected[f"layer_{i}/attention/qkv/bias"] = np.concatenate(
            [tensors[f"{part}.bias"] for part in parts]
        )
    expected |= {ours: tensors[theirs] for ours, theirs in renamed.items() if theirs in tensors}
    for ours, theirs in dense.items():
        if f"{theirs}.weight" in tensors:
            expected[f"{ours}/kernel"] = tensors[f"{theirs}.weight"].T
            expected[f"{ours}/bias"] = tensors[f"{theirs}.bias"]
    return expected


def assert_weights(found, expected):
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.dtype == np.float32, name
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def write_json(file, value):
    file.write_text(json.dumps(value))


def make_folder(path, tensors=None, vocabulary=None, **config):
    path.mkdir(exist_ok=True)
    write_json(path / "config.json", {**SIZES, "model_type": "bert", **config})
    if tensors is not None:
        save_file(tensors, path / "model.safetensors")
    if vocabulary is not None:
        (path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return path


# Weights


def test_read(tmp_path):
    tensors = {**encoder_tensors(), **pretraining_tensors()}
    make_folder(tmp_path, tensors, VOCABULARY, hidden_act="gelu", layer_norm_eps=1e-6)
    checkpoint = checkpoints.read(tmp_path)
    assert checkpoint.format == "huggingface"
    assert checkpoint.path == str(tmp_path)
    assert checkpoint.vocabulary == VOCABULARY
    assert checkpoint.labels is None
    assert checkpoint.config == {
        **SIZES,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-6,
    }
    assert_weights(checkpoint.weights, expected_weights(tensors))


def without_prefix(tensors):
    return {name.removeprefix("bert."): array for name, array in tensors.items()}


def with_old_names(tensors):
    return {
        re.sub(r"(LayerNorm\.)(weight|bias)$", lambda m: m[1] + OLD[m[2]], name): array
        for name, array in tensors.items()
    }


OLD = {"weight": "gamma", "bias": "beta"}


@pytest.mark.parametrize("spell", [without_prefix, with_old_names])
def test_other_spellings(tmp_path, spell):
    tensors = {**encoder_tensors(), **pretraining_tensors()}
    assert spell(tensors).keys() != tensors.keys()
    make_folder(tmp_path, spell(tensors))
    assert_weights(checkpoints.read(tmp_path).weights, expected_weights(tensors))


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_position_ids_are_ignored_by_name(tmp_path, prefix):
    tensors = encoder_tensors()
    ids = {f"{prefix}embeddings.position_ids": np.arange(8)[None]}
    make_folder(tmp_path, (tensors if prefix else without_prefix(tensors)) | ids)
    assert_weights(checkpoints.read(tmp_path).weights, expected_weights(tensors))


def test_a_tensor_under_two_spellings(tmp_path):
    tensors = encoder_tensors()
    tensors["pooler.dense.bias"] = tensors["bert.pooler.dense.bias"]
    make_folder(tmp_path, tensors)
    with pytest.raises(ValueError, match=r"model.safetensors: .*twice \(1\): pooler.dense.bias$"):
        checkpoints.read(tmp_path)


def test_tied_tensors_must_be_copies(tmp_path):
    tensors = {**encoder_tensors(), **pretraining_tensors()}
    expected = expected_weights(tensors)
    tied = dict(tensors)
    tied["cls.predictions.decoder.weight"] = tensors[
        "bert.embeddings.word_embeddings.weight"
    ].copy()
    tied["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].copy()
    make_folder(tmp_path, tied)
    assert_weights(checkpoints.read(tmp_path).weights, expected)
    # Some writers keep the copy and leave the original out.
    make_folder(tmp_path, {k: v for k, v in tied.items() if k != "cls.predictions.bias"})
    assert_weights(checkpoints.read(tmp_path).weights, expected)
    for name in ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"):
        other = tied[name].copy()
        other.flat[3] = np.nextafter(other.flat[3], np.float32(9))
        make_folder(tmp_path, {**tied, name: other})
        with pytest.raises(ValueError, match=rf"unequal \(1\): {name} \(other than "):
            checkpoints.read(tmp_path)
    make_folder(tmp_path, {**tied, name: tied[name][:-1]})
    with pytest.raises(ValueError, match=rf"unequal \(1\): {name}"):
        checkpoints.read(tmp_path)


@pytest.mark.parametrize(("head", "source", "n"), [("classifier", "classifier", 5), ("span_selector", "qa_outputs", 2)])  # fmt: skip # noqa: E501
def test_fine_tuned_heads_also_without_a_pooler(tmp_path, head, source, n):
    tensors = encoder_tensors(pooler=False)
    tensors |= fill({f"{source}.weight": (n, H), f"{source}.bias": (n,)})
    make_folder(tmp_path, tensors)
    weights = checkpoints.read(tmp_path).weights
    assert_weights(weights, expected_weights(tensors))
    assert f"{head}/kernel" in weights
    assert "pooler/dense/kernel" not in weights


def test_all_problems_are_listed_at_once(tmp_path):
    tensors = encoder_tensors() | fill({"a": (1,), "classifier.weight": (3, H + 1)})
    tensors |= fill({"classifier.bias": (3,), "cls.predictions.bias": (V,)})
    del tensors["bert.encoder.layer.1.attention.self.key.bias"]
    tensors["bert.encoder.layer.0.attention.self.value.weight"] = np.ones((H, 3 * H), "float32")
    make_folder(tmp_path, tensors)
    with pytest.raises(ValueError) as error:
        checkpoints.read(tmp_path)
    assert str(error.value) == (
        f"{tmp_path / 'model.safetensors'}: a checkpoint must hold exactly the tensors that its "
        "config calls for; missing (5): bert.encoder.layer.1.attention.self.key.bias, "
        "cls.predictions.transform.dense.weight, cls.predictions.transform.dense.bias, "
        "cls.predictions.transform.LayerNorm.weight, cls.predictions.transform.LayerNorm.bias; "
        "unknown (1): a; wrong shape (2): bert.encoder.layer.0.attention.self.value.weight "
        "(expected (4, 4), found (4, 12)), classifier.weight (expected (3, 4), found (3, 5))"
    )


@pytest.mark.parametrize("layers", [1, 3])
def test_another_number_of_layers(tmp_path, layers):
    make_folder(tmp_path, encoder_tensors(), num_hidden_layers=layers)
    with pytest.raises(ValueError, match=r"(missing|unknown) \(16\): bert.encoder.layer.[12]"):
        checkpoints.read(tmp_path)


def test_float16_becomes_float32(tmp_path):
    tensors = {name: array.astype("float16") for name, array in encoder_tensors().items()}
    make_folder(tmp_path, tensors)
    found = checkpoints.read(tmp_path).weights
    assert_weights(found, expected_weights({n: a.astype("float32") for n, a in tensors.items()}))


def write_safetensors(file, tensors):
    """By hand, because NumPy has no bfloat16: (dtype, shape, bytes) for each name."""
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
    stored["bert.pooler.dense.bias"] = ("F32", (H,), bias.tobytes())  # mixed, as some are
    write_safetensors(tmp_path / "model.safetensors", stored)
    expected = {name: rounded_to_bfloat16(array) for name, array in tensors.items()}
    expected["bert.pooler.dense.bias"] = bias
    assert_weights(checkpoints.read(tmp_path).weights, expected_weights(expected))


def test_other_number_types_are_errors(tmp_path):
    tensors = encoder_tensors()
    tensors["bert.pooler.dense.bias"] = np.zeros(H, "int8")
    make_folder(tmp_path, tensors)
    with pytest.raises(ValueError, match="bert.pooler.dense.bias must hold floats, received int8"):
        checkpoints.read(tmp_path)
    for other in ("F8_E4M3", "BF16"):
        stored = {"a": ("F8_E4M3", (2,), b"ab"), "b": (other, (1,), b"ab"[: 1 + (other == "BF16")])}
        write_safetensors(tmp_path / "model.safetensors", stored)
        with pytest.raises(ValueError, match="model.safetensors: "):
            checkpoints.read(tmp_path)


@pytest.mark.parametrize("size", [0, 4, 300, -1])
def test_truncated_safetensors(tmp_path, size):
    make_folder(tmp_path, encoder_tensors())
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ValueError, match="model.safetensors: must be a whole safetensors file"):
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


def test_shards_and_their_index_must_agree(tmp_path):
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
    with pytest.raises(FileNotFoundError, match=f"{shard}: missing, {index.name} names it"):
        checkpoints.read(tmp_path)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "pytorch_model.bin", 1])
def test_an_index_may_only_name_shards_of_its_folder(tmp_path, name):
    make_folder(tmp_path)
    write_json(tmp_path / "model.safetensors.index.json", {"weight_map": {"a": name}})
    with pytest.raises(ValueError, match="index.json: weight_map must name a .safetensors file"):
        checkpoints.read(tmp_path)


# Config


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("gelu", "gelu"),
        ("gelu_new", "gelu_new"),
        ("gelu_pytorch_tanh", "gelu_new"),
        ("gelu_fast", "gelu_new"),
        ("relu", "relu"),
    ],
)
def test_activations(tmp_path, found, expected):
    make_folder(tmp_path, hidden_act=found)
    assert huggingface.read_config(tmp_path)["hidden_act"] == expected


@pytest.mark.parametrize("name", ["gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate"])
def test_the_names_of_the_tanh_approximation_are_one_function(name):
    torch = pytest.importorskip("torch")
    activations = pytest.importorskip("transformers.activations").ACT2FN
    x = torch.linspace(-6, 6, 1001)
    torch.testing.assert_close(
        activations[name](x), torch.nn.functional.gelu(x, approximate="tanh"), rtol=0, atol=2e-6
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "roberta"),
        ("is_decoder", True),
        ("add_cross_attention", True),
        ("is_encoder_decoder", True),
        ("position_embedding_type", "relative_key"),
        ("pruned_heads", {"0": [1]}),
        ("hidden_act", "quick_gelu"),
    ],
)
def test_other_models_are_refused(tmp_path, key, value):
    make_folder(tmp_path, **{key: value})
    with pytest.raises(
        ValueError, match=re.escape(f"config.json: {key} must be ") + ".*" + re.escape(repr(value))
    ):
        huggingface.read_config(tmp_path)


def test_config_keys(tmp_path):
    write_json(tmp_path / "config.json", SIZES)  # no model_type, as in 2018
    assert tuple(huggingface.read_config(tmp_path)) == canonical.CONFIG_KEYS
    make_folder(tmp_path, **dict.fromkeys(huggingface.DROPPED_KEYS))
    assert tuple(huggingface.read_config(tmp_path)) == canonical.CONFIG_KEYS
    make_folder(tmp_path, embedding_size=3, quantization_config={})
    with pytest.raises(
        ValueError, match=r"config.json: .*unknown keys \(2\): embedding_size, quantization_config$"
    ):
        huggingface.read_config(tmp_path)


def test_keys_that_transformers_writes_are_known(tmp_path):
    transformers = pytest.importorskip("transformers")
    write_json(tmp_path / "config.json", transformers.BertConfig().to_dict())
    config = huggingface.read_config(tmp_path)
    assert config == {
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
    }


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json"):
        huggingface.read(tmp_path)
    make_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match="no weights, looked for model.safetensors"):
        huggingface.read(tmp_path)


# Tokenizer, vocabulary, labels


def read_tokenizer(path, vocabulary=VOCABULARY, **files):
    make_folder(path, encoder_tensors(), vocabulary)
    for name, content in files.items():
        write_json(path / f"{name}.json", content)
    return checkpoints.read(path).tokenizer


def options(lowercase, strip_accents, split_cjk=True, sequence_length=None):
    return {
        "lowercase": lowercase,
        "strip_accents": strip_accents,
        "split_cjk": split_cjk,
        "sequence_length": sequence_length,
    }


def normalizer(**values):
    return {"normalizer": {"type": "BertNormalizer", "clean_text": True, **values}}


NORMALIZER = normalizer(lowercase=True, strip_accents=False, handle_chinese_chars=False)


@pytest.mark.parametrize(
    ("vocabulary", "files", "expected"),
    [
        (VOCABULARY, {}, options(True, True)),
        (CASED, {}, options(False, False)),
        (None, {}, options(True, True)),
        (VOCABULARY, {"tokenizer_config": {"do_lower_case": False}}, options(False, False)),
        (CASED, {"tokenizer_config": {"do_lower_case": True}}, options(True, True)),
        (
            CASED,
            {"tokenizer_config": {"do_lower_case": True, "strip_accents": None}},
            options(True, True),
        ),
        (
            CASED,
            {"tokenizer_config": {"do_lower_case": True, "strip_accents": False}},
            options(True, False),
        ),
        (
            CASED,
            {"tokenizer_config": {"strip_accents": True, "tokenize_chinese_chars": False}},
            options(False, True, split_cjk=False),
        ),
        (CASED, {"tokenizer": NORMALIZER}, options(True, False, split_cjk=False)),
        (
            CASED,
            {"tokenizer": normalizer(lowercase=True, strip_accents=None)},
            options(True, True),
        ),
        (
            CASED,
            {"tokenizer": NORMALIZER, "tokenizer_config": {"do_lower_case": False}},
            options(False, False, split_cjk=False),
        ),
        (CASED, {"tokenizer": {"normalizer": None}}, options(False, False)),
        (CASED, {"tokenizer": {"normalizer": {"type": "Lowercase"}}}, options(False, False)),
    ],
)
def test_options_of_the_tokenizer(tmp_path, vocabulary, files, expected):
    if vocabulary is None:
        files = {}
    assert read_tokenizer(tmp_path, vocabulary, **files) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tokenizer_config": {"model_max_length": 8}}, 8),
        ({"tokenizer_config": {"max_len": 7}}, 7),
        ({"tokenizer_config": {"model_max_length": int(1e30)}}, None),
        ({"tokenizer_config": {"model_max_length": 9}}, None),  # there are 8 positions
        ({"tokenizer_config": {"model_max_length": None}}, None),
        (
            {
                "sentence_bert_config": {"max_seq_length": 5},
                "tokenizer_config": {"model_max_length": 8},
            },
            5,
        ),
        (
            {
                "sentence_bert_config": {"max_seq_length": None},
                "tokenizer_config": {"model_max_length": 8},
            },
            8,
        ),
    ],
)
def test_sequence_length(tmp_path, files, expected):
    assert read_tokenizer(tmp_path, **files)["sequence_length"] == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"do_lower_case": "yes"}, "do_lower_case must be true, false or null, received 'yes'"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "tokenizer_class must be one of BERT's"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize must be true, received false"),
    ],
)
def test_tokenizer_errors(tmp_path, config, message):
    with pytest.raises(ValueError, match=f"tokenizer_config.json: {message}"):
        read_tokenizer(tmp_path, tokenizer_config=config)


def word_piece(pieces, added=()):
    return {
        "model": {
            "type": "WordPiece",
            "vocab": {p: i for i, p in reversed(list(enumerate(pieces)))},
        },
        "added_tokens": [{"id": i, "content": piece} for i, piece in added],
    }


@pytest.mark.parametrize(
    "tokenizer",
    [
        word_piece(VOCABULARY),
        word_piece(VOCABULARY, added=[(0, "[PAD]")]),
        word_piece(VOCABULARY[:-1], added=[(0, "[PAD]"), (10, "f")]),
    ],
)
def test_vocabulary_from_tokenizer_json(tmp_path, tokenizer):
    make_folder(tmp_path, encoder_tensors())
    write_json(tmp_path / "tokenizer.json", tokenizer)
    assert checkpoints.read(tmp_path).vocabulary == VOCABULARY


def test_vocab_txt_goes_first_and_added_tokens_come_after_it(tmp_path):
    make_folder(tmp_path, encoder_tensors(), VOCABULARY[:-2])
    write_json(tmp_path / "tokenizer.json", word_piece(CASED))
    write_json(tmp_path / "added_tokens.json", {"f": 10, "e": 9, "[CLS]": 2})
    assert checkpoints.read(tmp_path).vocabulary == VOCABULARY


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (word_piece(VOCABULARY[:-1]), "vocab_size 11 ids, received 10"),
        (word_piece(VOCABULARY[:-1], added=[(11, "f")]), "received no piece for 10"),
        ({"model": {"type": "BPE", "vocab": {}}}, "model must be WordPiece, received 'BPE'"),
        ({"model": None}, "must hold a WordPiece model with its vocab"),
        ({}, "must hold a WordPiece model with its vocab"),
    ],
)
def test_vocabulary_errors_in_tokenizer_json(tmp_path, tokenizer, message):
    make_folder(tmp_path, encoder_tensors())
    write_json(tmp_path / "tokenizer.json", tokenizer)
    with pytest.raises(ValueError, match=f"tokenizer.json: .*{message}"):
        checkpoints.read(tmp_path)


@pytest.mark.parametrize("vocabulary", [VOCABULARY[:-1], [*VOCABULARY, "x"]])
def test_a_vocabulary_of_another_size(tmp_path, vocabulary):
    make_folder(tmp_path, encoder_tensors(), vocabulary)
    with pytest.raises(
        ValueError, match=rf"vocab.txt: .*vocab_size 11 ids, received {len(vocabulary)}$"
    ):
        checkpoints.read(tmp_path)


CLASSIFIER = {"classifier.weight": (3, H), "classifier.bias": (3,)}


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        ({"0": "bad", "2": "good", "1": "so-so"}, ["bad", "so-so", "good"]),
        ({"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, None),
        ({"0": "LABEL_0", "1": "LABEL_1"}, None),  # multiple choice has the default two
        (None, None),
    ],
)
def test_labels(tmp_path, names, labels):
    make_folder(tmp_path, encoder_tensors() | fill(CLASSIFIER), id2label=names)
    assert checkpoints.read(tmp_path).labels == labels


def test_labels_of_no_classifier(tmp_path):
    make_folder(tmp_path, encoder_tensors(), id2label={"0": "bad", "1": "good"})
    assert checkpoints.read(tmp_path).labels is None


@pytest.mark.parametrize("names", [{"0": "a", "1": "b"}, {"0": "a", "1": "b", "3": "c"}, ["a"]])
def test_labels_that_do_not_fit(tmp_path, names):
    make_folder(tmp_path, encoder_tensors() | fill(CLASSIFIER), id2label=names)
    with pytest.raises(ValueError, match="config.json: id2label must name the classifier's 3"):
        checkpoints.read(tmp_path)


# pytorch_model.bin


def instruction(value):
    """One Python value as pickle instructions of protocol 2, as torch writes them."""
    match value:
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            return b"J" + struct.pack("<i", value)
        case str():
            return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        case tuple():
            return b"(" + b"".join(map(instruction, value)) + b"t"
        case bytes():
            return value  # instructions already


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


ORDERED_DICT = name("collections", "OrderedDict") + b")R"


def storage(key, count, kind="FloatStorage", module="torch", last=()):
    return instruction(("storage", name(module, kind), key, "cpu", count, *last)) + b"Q"


def tensor(stored, offset, shape, strides):
    arguments = instruction((stored, offset, shape, strides, False, ORDERED_DICT))
    return name("torch._utils", "_rebuild_tensor_v2") + arguments + b"R"


def state(**tensors):
    items = b"".join(instruction(key) + value for key, value in tensors.items())
    return b"\x80\x02" + ORDERED_DICT + b"(" + items + b"u."


def write_archive(file, program, records, order="little", compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("archive/data.pkl", program)
        if order:
            archive.writestr("archive/byteorder", order)
        for key, data in records.items():
            archive.writestr(f"archive/data/{key}", data)


def write_legacy(file, program, records, magic=0x1950A86A20F9469CFC6C, length=None):
    itemsize = 4
    parts = [pickle.dumps(v, 2) for v in (magic, 1001, {"little_endian": True})]
    parts += [program, pickle.dumps(sorted(records), 2)]
    for key in sorted(records):
        count = len(records[key]) // itemsize if length is None else length
        parts += [struct.pack("<q", count), records[key]]
    file.write_bytes(b"".join(parts))


SIX = np.arange(6, dtype="<f4")


@pytest.mark.parametrize("write", [write_archive, write_legacy])
@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ((0, (2, 3), (3, 1)), SIX.reshape(2, 3)),
        ((0, (3, 2), (1, 3)), SIX.reshape(2, 3).T),
        ((1, (2, 2), (3, 1)), SIX.reshape(2, 3)[:, 1:]),
        ((5, (), ()), np.float32(5)),
        ((2, (1,), (1,)), [2]),
        ((0, (3,), (2,)), [0, 2, 4]),
        ((0, (2, 2), (1, 1)), [[0, 1], [1, 2]]),  # one number in two places
        ((6, (0, 3), (3, 1)), np.empty((0, 3))),
    ],
)
def test_layouts_of_a_pickled_tensor(tmp_path, write, layout, expected):
    file = tmp_path / "pytorch_model.bin"
    write(file, state(a=tensor(storage("0", 6), *layout)), {"0": SIX.tobytes()})
    found = torch_pickle.read(file)["a"]
    assert found.dtype == np.float32
    assert found.shape == np.shape(expected)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("order", ["little", "big", None])
def test_byte_order_of_an_archive(tmp_path, order):
    file = tmp_path / "pytorch_model.bin"
    data = SIX.astype(">f4" if order == "big" else "<f4").tobytes()
    write_archive(file, state(a=tensor(storage("0", 6), 0, (6,), (1,))), {"0": data}, order)
    np.testing.assert_array_equal(torch_pickle.read(file)["a"], SIX)


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        ("DoubleStorage", np.array([1.5, -2], "<f8")),
        ("HalfStorage", np.array([1.5, -2], "<f2")),
        ("BFloat16Storage", np.array([0x3FC0, 0xC000], "<u2")),
        ("LongStorage", np.array([1, -2], "<i8")),
        ("IntStorage", np.array([1, -2], "<i4")),
        ("ShortStorage", np.array([1, -2], "<i2")),
        ("CharStorage", np.array([1, -2], "i1")),
        ("ByteStorage", np.array([1, 2], "u1")),
        ("BoolStorage", np.array([True, False])),
    ],
)
def test_types_of_a_pickled_tensor(tmp_path, kind, array):
    file = tmp_path / "pytorch_model.bin"
    program = state(a=tensor(storage("0", 2, kind), 0, (2,), (1,)))
    write_archive(file, program, {"0": array.tobytes()})
    found = torch_pickle.read(file)["a"]
    expected = np.array([1.5, -2], "f4") if kind == "BFloat16Storage" else array
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_parameters_shared_storages_and_the_state_of_the_dict(tmp_path):
    file = tmp_path / "pytorch_model.bin"
    parameter = name("torch._utils", "_rebuild_parameter") + instruction(
        (tensor(storage("0", 6), 3, (3,), (1,)), True, ORDERED_DICT)
    )
    program = state(a=tensor(storage("0", 6), 0, (3,), (1,)), b=parameter + b"R")
    metadata = b"}" + instruction("_metadata") + ORDERED_DICT + b"sb"
    write_archive(file, program[:-1] + metadata + b".", {"0": SIX.tobytes()})
    found = torch_pickle.read(file)
    assert list(found) == ["a", "b"]
    np.testing.assert_array_equal(found["a"], [0, 1, 2])
    np.testing.assert_array_equal(found["b"], [3, 4, 5])


ONE = storage("0", 6)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (tensor(ONE, 1, (6,), (1,)), "a tensor a that reaches out of its storage"),
        (tensor(ONE, 0, (2, 3), (4, 1)), "a tensor a that reaches out of its storage"),
        (tensor(ONE, 9, (), ()), "a tensor a that reaches out of its storage"),
        (
            tensor(ONE, 0, (9999, 9999), (0, 0)),
            "tensors that are larger together than twice their storages",
        ),
        (tensor(ONE, -1, (1,), (1,)), "a size or stride that is no count"),
        (tensor(ONE, 0, (2,), (-1,)), "a size or stride that is no count"),
        (tensor(ONE, 0, (2, 2), (1,)), "a tensor of 2 dimensions and 1 strides"),
        (tensor(storage("0", 7), 0, (7,), (1,)), "6 of the 7 numbers of storage 0"),
        (tensor(storage("1", 6), 0, (6,), (1,)), "archive/data/1"),
        (tensor(storage("0", 6, "ComplexStorage"), 0, (6,), (1,)), "the name torch.ComplexStorage"),
        (tensor(storage("0", 6, last=((),)), 0, (6,), (1,)), "a storage that is none of torch's"),
        (tensor(instruction("0"), 0, (6,), (1,)), "a str for a _Storage in its pickle"),
        (instruction(3), "a int named 'a'"),
        (ORDERED_DICT, "a dict named 'a'"),
    ],
)
def test_pickles_that_hold_anything_but_whole_tensors(tmp_path, value, message):
    file = tmp_path / "pytorch_model.bin"
    write_archive(file, state(a=value), {"0": SIX.tobytes()})
    with pytest.raises(
        ValueError, match="^.*pytorch_model.bin: must be a dict of tensors"
    ) as error:
        torch_pickle.read(file)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


class Call:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


def attacks(canary):
    """Pickles that do, or in some setting would do, what their writer wants."""
    code = f"__import__('os').mkdir({str(canary)!r})"
    call = instruction((code,)) + b"R"
    evaluate = Call(builtins.eval, code)
    run = name("builtins", "eval") + call
    imported = name("builtins", "__import__") + instruction(("os",)) + b"R"
    good = tensor(ONE, 0, (6,), (1,))
    real = {
        "os.system": pickle.dumps(Call(os.system, f"mkdir {canary}"), 2),
        "eval": pickle.dumps(evaluate, 2),
        "protocol 0": pickle.dumps(evaluate, 0),
        "protocol 4": pickle.dumps(evaluate, 4),
        "protocol 5": pickle.dumps(evaluate, 5),
        "in a dict": pickle.dumps({"a": evaluate}, 2),
        "in a tuple of a list of a dict": pickle.dumps({"a": ([evaluate],)}, 2),
        "in an OrderedDict": pickle.dumps(OrderedDict(a=[evaluate]), 2),
        "by getattr": b"\x80\x02"
        + (name("builtins", "getattr") + b"(" + imported + instruction("mkdir") + b"tR")
        + (instruction((str(canary),)) + b"R."),
        "by a dotted name": b"\x80\x04"
        + (instruction("os") + instruction("path.os.mkdir") + b"\x93")
        + (instruction((str(canary),)) + b"R."),
        "by a split name": b"\x80\x04"
        + (instruction("builtins") + instruction("eval") + b"\x93" + call + b"."),
        "by INST": b"(" + instruction(code) + b"ibuiltins\neval\n.",
        "by OBJ": b"(" + name("builtins", "eval") + instruction(code) + b"o.",
        "in the state of a dict": b"\x80\x02" + ORDERED_DICT + run + b"b.",
    }
    # These need torch, or some time or memory, to do harm.
    rebuild = name("torch._utils", "_rebuild_tensor_v2")
    return real, {
        "instead of a tensor": state(a=run),
        "after a tensor": state(a=good, b=run),
        "among a tensor's arguments": state(a=tensor(run, 0, (6,), (1,))),
        "as a storage's type": state(a=tensor(storage("0", 6, "eval", "builtins"), 0, (6,), (1,))),
        "in the state of the tensors' dict": state(a=good)[:-1] + run + b"b.",
        "by NEWOBJ": b"\x80\x02"
        + name("io", "FileIO")
        + instruction((str(canary), "w"))
        + b"\x81.",
        "by an extension code": b"\x80\x02\x82\x01" + call + b".",
        "by torch's own loader": b"\x80\x02"
        + name("torch.storage", "_load_from_bytes")
        + call
        + b".",
        "by a dotted name below torch's": b"\x80\x04"
        + (instruction("torch._utils") + instruction("torch.os.mkdir") + b"\x93")
        + (instruction((str(canary),)) + b"R."),
        "a call of a storage's type": b"\x80\x02" + name("torch", "FloatStorage") + call + b".",
        "a call of a tensor": b"\x80\x02" + good + call + b".",
        "attributes of a rebuilder": b"\x80\x02"
        + (rebuild + b"}" + instruction("__defaults__") + b")sb."),
        "attributes of the dict's type": b"\x80\x02"
        + (name("collections", "OrderedDict") + b"}" + instruction("__call__") + b")sb."),
        "an enormous memo": b"\x80\x02}r\xff\xff\xff\x7fh\x00.",
        "an enormous string": b"\x80\x02X\xff\xff\xff\x7fa.",
        "a key that is hashed forever": b"\x80\x02})" + b"q\x00h\x00\x86" * 60 + b"Ns.",
        "a key of tuples": b"\x80\x02}" + instruction((1, 2)) + b"Ns.",
        "more taken than put": b"\x80\x02s.",
        "a mark that is none": b"\x80\x02t.",
        "a number that was not remembered": b"\x80\x02h\x07.",
        "no end": b"\x80\x02}",
        "nothing": b"",
        "no dict": b"\x80\x02].",
    }


def write_bare(file, program, records):
    file.write_bytes(program)


@pytest.mark.parametrize("write", [write_archive, write_legacy, write_bare])
@pytest.mark.parametrize("attack", [name for kind in attacks("") for name in kind])
def test_nothing_in_a_pickle_is_executed(tmp_path, write, attack):
    canary = tmp_path / "canary"
    file = tmp_path / "pytorch_model.bin"
    real, others = attacks(canary)
    write(file, (real | others)[attack], {"0": SIX.tobytes()})
    with pytest.raises(
        ValueError, match="^.*pytorch_model.bin: must be a dict of tensors"
    ) as error:
        torch_pickle.read(file)
    assert "\n" not in str(error.value)
    assert not canary.exists()


@pytest.mark.parametrize("attack", attacks("")[0])
def test_the_attacks_are_real(tmp_path, attack):
    canary = tmp_path / "canary"
    # The last of them succeeds and then fails over its own result.
    with contextlib.suppress(AttributeError, TypeError):
        pickle.loads(attacks(canary)[0][attack])
    assert canary.exists()


def test_the_forbidden_name_is_named(tmp_path):
    file = tmp_path / "pytorch_model.bin"
    for program, expected in (
        (pickle.dumps(Call(os.system, "true"), 2), f"the name {os.system.__module__}.system$"),
        (name("builtins", "eval") + b".", "the name builtins.eval$"),
        (b"\x80\x02\x82\x01.", "the pickle instruction EXT1$"),
        (name("torch", "FloatStorage") + b")R.", "a call of torch.FloatStorage$"),
        # Not only because a tensor must have a name: to hash it could take forever.
        (b"}" + instruction((1, 2)) + b"Ns.", "a tuple for a str in its pickle$"),
    ):
        write_archive(file, program, {})
        with pytest.raises(ValueError, match=expected):
            torch_pickle.read(file)


def test_damaged_archives(tmp_path):
    file = tmp_path / "pytorch_model.bin"
    program = state(a=tensor(ONE, 0, (6,), (1,)))
    rule = "pytorch_model.bin: must be a dict of tensors and whole"
    with pytest.raises(FileNotFoundError):
        torch_pickle.read(file)
    write_archive(file, program, {"0": SIX.tobytes()})
    content = file.read_bytes()
    assert torch_pickle.read(file)
    for size in range(0, len(content), 7):
        file.write_bytes(content[:size])
        with pytest.raises(ValueError, match=rule):
            torch_pickle.read(file)
    at = content.index(SIX.tobytes())
    file.write_bytes(content[:at] + b"\x01" + content[at + 1 :])
    with pytest.raises(ValueError, match=f"{rule}.*CRC"):
        torch_pickle.read(file)
    write_archive(file, program, {"0": SIX.tobytes()}, order="middle")
    with pytest.raises(ValueError, match=f"{rule}, received the byte order 'middle'"):
        torch_pickle.read(file)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/data.pkl", program)
        archive.writestr("b/data.pkl", program)
    with pytest.raises(ValueError, match=f"{rule}, received a zip file with 2 data.pkl"):
        torch_pickle.read(file)


def test_a_zip_bomb_is_not_unpacked(tmp_path):
    file = tmp_path / "pytorch_model.bin"
    count = 1 << 22
    program = state(a=tensor(storage("0", count), 0, (count,), (1,)))
    write_archive(file, program, {"0": bytes(4 * count)}, compression=zipfile.ZIP_DEFLATED)
    assert file.stat().st_size < 100_000
    with pytest.raises(ValueError, match="the member 'archive/data.pkl' is compressed"):
        torch_pickle.read(file)


def test_damaged_legacy_files(tmp_path):
    file = tmp_path / "pytorch_model.bin"
    program = state(a=tensor(ONE, 0, (6,), (1,)))
    rule = "pytorch_model.bin: must be a dict of tensors and whole"
    write_legacy(file, program, {"0": SIX.tobytes()})
    assert torch_pickle.read(file)
    content = file.read_bytes()
    for size in range(0, len(content), 7):
        file.write_bytes(content[:size])
        with pytest.raises(ValueError, match=rule):
            torch_pickle.read(file)
    for length in (-1, 5, 7, 2**62):
        write_legacy(file, program, {"0": SIX.tobytes()}, length=length)
        with pytest.raises(ValueError, match=rule):
            torch_pickle.read(file)
    write_legacy(file, program, {"0": SIX.tobytes()}, magic=7)
    with pytest.raises(ValueError, match=f"{rule}, received a pickle that torch did not write"):
        torch_pickle.read(file)
    endless = b"\x80\x02])" + b"q\x00h\x00\x86" * 60 + b"a."  # if its hash were computed
    file.write_bytes(content.replace(pickle.dumps(["0"], 2), endless))
    with pytest.raises(ValueError, match=f"{rule}, received a tuple for a str in its pickle"):
        torch_pickle.read(file)
    write_legacy(file, program, {"1": SIX.tobytes()})
    with pytest.raises(ValueError, match=f"{rule}, received a list of storages other than"):
        torch_pickle.read(file)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_torch_wrote(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    base = torch.arange(24.0)
    tensors = OrderedDict(
        contiguous=base.reshape(4, 6),
        transposed=base.reshape(4, 6).t(),
        sliced=base.reshape(4, 6)[1:3, 2:5],
        permuted=base.reshape(2, 3, 4).permute(2, 0, 1),
        parameter=torch.nn.Parameter(torch.randn(3, 2)),
        half=torch.randn(5).half(),
        bfloat16=torch.randn(4, 5).bfloat16().t(),
        double=torch.randn(2).double(),
        long=torch.arange(512).expand((1, -1)),
        boolean=torch.tensor([True, False]),
        scalar=torch.tensor(3.0),
        empty=torch.empty(0, 3),
    )
    file = tmp_path / "pytorch_model.bin"
    torch.save(tensors, file, _use_new_zipfile_serialization=zipped)
    found = torch_pickle.read(file)
    assert list(found) == list(tensors)
    for key, value in tensors.items():
        expected = (value.float() if key == "bfloat16" else value).detach().numpy()
        assert found[key].dtype == expected.dtype
        np.testing.assert_array_equal(found[key], expected, err_msg=key)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_any_protocol_of_torch_save(tmp_path, protocol):
    torch = pytest.importorskip("torch")
    file = tmp_path / "pytorch_model.bin"
    module = torch.nn.Linear(3, 2)
    torch.save(module.state_dict(), file, pickle_protocol=protocol)
    found = torch_pickle.read(file)
    np.testing.assert_array_equal(found["weight"], module.weight.detach().numpy())
    torch.save(module, file)
    with pytest.raises(ValueError, match="received the (name|pickle instruction) "):
        torch_pickle.read(file)


@pytest.mark.parametrize("zipped", [True, False])
def test_read_pytorch_model_bin(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    tensors = {**encoder_tensors(), **pretraining_tensors()}
    stored = {key: torch.from_numpy(array) for key, array in tensors.items()}
    stored["bert.embeddings.position_ids"] = torch.arange(8).expand((1, -1))
    # torch keeps a tied tensor once, under two names.
    stored["cls.predictions.decoder.weight"] = stored["bert.embeddings.word_embeddings.weight"]
    make_folder(tmp_path)
    file = tmp_path / "pytorch_model.bin"
    torch.save(stored, file, _use_new_zipfile_serialization=zipped)
    assert_weights(checkpoints.read(tmp_path).weights, expected_weights(tensors))
    file.rename(tmp_path / "pytorch_model-00001-of-00001.bin")
    weight_map = dict.fromkeys(stored, "pytorch_model-00001-of-00001.bin")
    write_json(tmp_path / "pytorch_model.bin.index.json", {"weight_map": weight_map})
    assert_weights(checkpoints.read(tmp_path).weights, expected_weights(tensors))


def test_safetensors_go_before_the_pickle(tmp_path):
    tensors = encoder_tensors()
    make_folder(tmp_path, tensors)
    (tmp_path / "pytorch_model.bin").write_bytes(b"not looked at")
    assert_weights(checkpoints.read(tmp_path).weights, expected_weights(tensors))


# Folders that transformers itself wrote


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
def test_what_transformers_saves(tmp_path, model, dtype):
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
    assert checkpoint.labels == (list(labels.values()) if "Classif" in model else None)
    assert checkpoint.config["hidden_act"] == "gelu"


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_tokenizer_that_transformers_saves(tmp_path, lowercase):
    transformers = pytest.importorskip("transformers")
    make_folder(tmp_path, encoder_tensors(), VOCABULARY)
    tokenizer = transformers.BertTokenizer.from_pretrained(
        tmp_path, do_lower_case=lowercase, tokenize_chinese_chars=False, model_max_length=6
    )
    (tmp_path / "vocab.txt").unlink()
    tokenizer.save_pretrained(tmp_path)
    checkpoint = checkpoints.read(tmp_path)
    assert checkpoint.vocabulary == VOCABULARY
    assert checkpoint.tokenizer == options(lowercase, lowercase, False, 6)
