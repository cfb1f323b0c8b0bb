"""Google's checkpoints: weights, configs and casing."""

import json
import re

import numpy as np
import pytest

from keras_bert import checkpoints
from keras_bert.checkpoints import canonical, google
from tests.checkpoints.huggingface_files import CASED, FF, SIZES, VOCABULARY, H, V, fill

tf = pytest.importorskip("tensorflow")


def encoder_tensors():
    shapes = {
        "bert/embeddings/word_embeddings": (V, H),
        "bert/embeddings/position_embeddings": (8, H),
        "bert/embeddings/token_type_embeddings": (3, H),
        "bert/embeddings/LayerNorm/gamma": (H,),
        "bert/embeddings/LayerNorm/beta": (H,),
        "bert/pooler/dense/kernel": (H, H),
        "bert/pooler/dense/bias": (H,),
    }
    for i in range(2):
        for name, shape in {
            "attention/self/query": (H, H),
            "attention/self/key": (H, H),
            "attention/self/value": (H, H),
            "attention/output/dense": (H, H),
            "intermediate/dense": (H, FF),
            "output/dense": (FF, H),
        }.items():
            shapes[f"bert/encoder/layer_{i}/{name}/kernel"] = shape
            shapes[f"bert/encoder/layer_{i}/{name}/bias"] = shape[1:]
        for name in ("attention/output", "output"):
            shapes[f"bert/encoder/layer_{i}/{name}/LayerNorm/gamma"] = (H,)
            shapes[f"bert/encoder/layer_{i}/{name}/LayerNorm/beta"] = (H,)
    return fill(shapes)


def pretraining_tensors():
    return fill(
        {
            "cls/predictions/transform/dense/kernel": (H, H),
            "cls/predictions/transform/dense/bias": (H,),
            "cls/predictions/transform/LayerNorm/gamma": (H,),
            "cls/predictions/transform/LayerNorm/beta": (H,),
            "cls/predictions/output_bias": (V,),
            "cls/seq_relationship/output_weights": (2, H),
            "cls/seq_relationship/output_bias": (2,),
        }
    )


def save(path, tensors, name="bert_model.ckpt"):
    tf.raw_ops.SaveV2(
        prefix=str(path / name),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )


def make_folder(path, tensors, vocabulary=None, **config):
    path.mkdir(exist_ok=True)
    # Google's configs have no layer_norm_eps.
    config = {**SIZES, "hidden_act": "gelu", "hidden_dropout_prob": 0.2, **config}
    (path / "bert_config.json").write_text(json.dumps(config))
    save(path, tensors)
    if vocabulary is not None:
        (path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return path


def test_read(tmp_path):
    tensors = {**encoder_tensors(), **pretraining_tensors()}
    make_folder(tmp_path, tensors, VOCABULARY)
    checkpoint = checkpoints.read(tmp_path)
    assert checkpoint.format == "google"
    assert checkpoint.path == str(tmp_path)
    assert checkpoint.vocabulary == VOCABULARY
    assert checkpoint.labels is None
    assert checkpoint.config == {
        **SIZES,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.2,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
    }
    expected = {
        "embeddings/word_embeddings/embeddings": tensors["bert/embeddings/word_embeddings"],
        "embeddings/position_embeddings/embeddings": tensors["bert/embeddings/position_embeddings"],
        "embeddings/token_type_embeddings/embeddings": tensors[
            "bert/embeddings/token_type_embeddings"
        ],
        "embeddings/layer_norm/gamma": tensors["bert/embeddings/LayerNorm/gamma"],
        "embeddings/layer_norm/beta": tensors["bert/embeddings/LayerNorm/beta"],
        "pooler/dense/kernel": tensors["bert/pooler/dense/kernel"],
        "pooler/dense/bias": tensors["bert/pooler/dense/bias"],
        "masked_lm/transform/kernel": tensors["cls/predictions/transform/dense/kernel"],
        "masked_lm/transform/bias": tensors["cls/predictions/transform/dense/bias"],
        "masked_lm/layer_norm/gamma": tensors["cls/predictions/transform/LayerNorm/gamma"],
        "masked_lm/layer_norm/beta": tensors["cls/predictions/transform/LayerNorm/beta"],
        "masked_lm/output_bias": tensors["cls/predictions/output_bias"],
        "next_sentence/kernel": tensors["cls/seq_relationship/output_weights"].T,
        "next_sentence/bias": tensors["cls/seq_relationship/output_bias"],
    }
    for i in range(2):
        source = f"bert/encoder/layer_{i}"
        for part in ("kernel", "bias"):
            expected[f"layer_{i}/attention/qkv/{part}"] = np.concatenate(
                [tensors[f"{source}/attention/self/{x}/{part}"] for x in ("query", "key", "value")],
                axis=-1,
            )
            for ours, theirs in {
                "attention/output": "attention/output/dense",
                "intermediate": "intermediate/dense",
                "output": "output/dense",
            }.items():
                expected[f"layer_{i}/{ours}/{part}"] = tensors[f"{source}/{theirs}/{part}"]
        for part in ("gamma", "beta"):
            for ours, theirs in {
                "attention_layer_norm": "attention/output/LayerNorm",
                "output_layer_norm": "output/LayerNorm",
            }.items():
                expected[f"layer_{i}/{ours}/{part}"] = tensors[f"{source}/{theirs}/{part}"]
    assert checkpoint.weights.keys() == expected.keys()
    for name, array in checkpoint.weights.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.mark.parametrize(
    ("head", "sources", "classes"),
    [
        ("classifier", ("output_weights", "output_bias"), 3),
        ("span_selector", ("cls/squad/output_weights", "cls/squad/output_bias"), 2),
    ],
)
def test_fine_tuned_heads(tmp_path, head, sources, classes):
    heads = fill({sources[0]: (classes, H), sources[1]: (classes,)})
    make_folder(tmp_path, encoder_tensors() | heads)
    weights = checkpoints.read(tmp_path).weights
    np.testing.assert_array_equal(weights[f"{head}/kernel"], heads[sources[0]].T)
    np.testing.assert_array_equal(weights[f"{head}/bias"], heads[sources[1]])


def test_optimizer_state_is_ignored_by_name(tmp_path):
    tensors = {**encoder_tensors(), **pretraining_tensors()}
    slots = {f"{name}/{slot}": array for name, array in tensors.items() for slot in google._SLOTS}
    counters = {name: np.int64(3) for name in google._COUNTERS}
    for name in ("global_step", "beta1_power", "beta2_power", "good_steps", "loss_scale"):
        assert name in counters
    for slot in ("adam_m", "adam_v", "lamb_m", "lamb_v", "AdamWeightDecayOptimizer", "Adam_1"):
        assert f"bert/pooler/dense/bias/{slot}" in slots
    make_folder(tmp_path / "a", tensors | slots | counters)
    make_folder(tmp_path / "b", tensors)
    assert checkpoints.read(tmp_path / "a").weights.keys() == (
        checkpoints.read(tmp_path / "b").weights.keys()
    )


@pytest.mark.parametrize(
    "name",
    [
        "bert/encoder/layer_2/output/dense/kernel",  # one layer more than in the config
        "bert/pooler/dense/bias/momentum",  # unknown slot
        "bert/pooler/dense/scale/adam_m",  # slot of an unknown tensor
        "scope/global_step",
        "output_weights_2",
    ],
)
def test_unknown_tensors_are_errors(tmp_path, name):
    make_folder(tmp_path, encoder_tensors() | fill({name: (H,)}))
    with pytest.raises(ValueError, match=rf"bert_model.ckpt: .*unknown \(1\): {name}$"):
        checkpoints.read(tmp_path)


def test_a_head_or_pooler_must_be_complete_or_missing(tmp_path):
    tensors = encoder_tensors()
    del tensors["bert/pooler/dense/kernel"]
    make_folder(tmp_path, tensors)
    with pytest.raises(ValueError, match=r"missing \(1\): bert/pooler/dense/kernel$"):
        checkpoints.read(tmp_path)
    del tensors["bert/pooler/dense/bias"]
    make_folder(tmp_path, tensors)
    assert not any(name.startswith("pooler") for name in checkpoints.read(tmp_path).weights)


def test_integer_tensors_are_errors(tmp_path):
    tensors = encoder_tensors()
    tensors["bert/pooler/dense/bias"] = np.zeros(H, "int32")
    make_folder(tmp_path, tensors)
    with pytest.raises(ValueError, match="pooler/dense/bias must hold floats, received int32"):
        checkpoints.read(tmp_path)


def test_bfloat16_becomes_float32(tmp_path):
    tensors = encoder_tensors()
    tensors["bert/pooler/dense/bias"] = tf.constant([1.5, -2, 0, 4], tf.bfloat16)
    make_folder(tmp_path, tensors)
    bias = checkpoints.read(tmp_path).weights["pooler/dense/bias"]
    assert bias.dtype == np.float32
    np.testing.assert_array_equal(bias, [1.5, -2, 0, 4])


def test_choice_among_several_checkpoints(tmp_path):
    make_folder(tmp_path, encoder_tensors())
    save(tmp_path, {"other": np.zeros(1, "float32")}, "model.ckpt-10")
    checkpoints.read(tmp_path)  # bert_model.ckpt
    for file in tmp_path.glob("bert_model.ckpt*"):
        file.rename(tmp_path / file.name.replace("bert_model.ckpt", "model.ckpt-20"))
    with pytest.raises(ValueError, match="received model.ckpt-10, model.ckpt-20$"):
        checkpoints.read(tmp_path)
    for file in tmp_path.glob("model.ckpt-10*"):
        file.unlink()
    checkpoints.read(tmp_path)  # the only one


def test_damaged_files(tmp_path):
    make_folder(tmp_path, encoder_tensors())
    index = tmp_path / "bert_model.ckpt.index"
    data = tmp_path / "bert_model.ckpt.data-00000-of-00001"
    content = data.read_bytes()
    rule = re.escape(f"{tmp_path / 'bert_model.ckpt'}: must be a complete TensorFlow checkpoint")
    data.write_bytes(content[:-100])
    with pytest.raises(ValueError, match=rule):
        checkpoints.read(tmp_path)
    data.write_bytes(content[:99] + bytes([content[99] ^ 1]) + content[100:])
    with pytest.raises(ValueError, match=rule):
        checkpoints.read(tmp_path)
    data.unlink()
    with pytest.raises(FileNotFoundError, match="bert_model.ckpt.data-00000-of-00001: missing"):
        checkpoints.read(tmp_path)
    data.write_bytes(content)
    for size in (0, 10, index.stat().st_size - 5):
        index.write_bytes(index.read_bytes()[:size])
        with pytest.raises(ValueError, match=rule) as error:
            checkpoints.read(tmp_path)
        assert "\n" not in str(error.value)
    index.unlink()
    with pytest.raises(FileNotFoundError, match="looked for bert_model.ckpt.index"):
        google.read(tmp_path)


def test_object_based_checkpoints_are_rejected(tmp_path):
    make_folder(tmp_path, encoder_tensors())
    tf.train.Checkpoint(v=tf.Variable([1.0])).write(str(tmp_path / "bert_model.ckpt"))
    with pytest.raises(ValueError, match="must be a name-based checkpoint"):
        google.read(tmp_path)
    assert not google.matches(tmp_path)


@pytest.mark.parametrize(
    ("found", "expected"), [("gelu", "gelu_new"), ("gelu_new", "gelu_new"), ("relu", "relu")]
)
def test_activations(tmp_path, found, expected):
    config = {**SIZES, "hidden_act": found}
    (tmp_path / "bert_config.json").write_text(json.dumps(config))
    assert google.read_config(tmp_path)["hidden_act"] == expected


def test_config_keys(tmp_path):
    file = tmp_path / "bert_config.json"
    with pytest.raises(FileNotFoundError, match="bert_config.json"):
        google.read_config(tmp_path)
    known = "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers"
    known += " pooler_size_per_head pooler_type attention_window"
    file.write_text(json.dumps({**SIZES, **dict.fromkeys(known.split(), 1)}))
    assert tuple(google.read_config(tmp_path)) == canonical.CONFIG_KEYS
    file.write_text(json.dumps({**SIZES, "embedding_size": 128}))
    with pytest.raises(ValueError, match="bert_config.json: embedding_size must be equal"):
        google.read_config(tmp_path)
    file.write_text("{")
    with pytest.raises(ValueError, match="bert_config.json cannot be read as JSON"):
        google.read_config(tmp_path)


@pytest.mark.parametrize(
    ("name", "vocabulary", "lowercase"),
    [
        ("uncased_L-12_H-768_A-12", VOCABULARY, True),
        ("cased_L-12_H-768_A-12", VOCABULARY, False),
        ("multi_cased_L-12_H-768_A-12", VOCABULARY, False),
        ("chinese_L-12_H-768_A-12", CASED, True),
        ("multilingual_L-12_H-768_A-12", CASED, True),
        ("wwm_Uncased_L-24_H-1024_A-16", CASED, True),
        ("mine", VOCABULARY, True),
        ("mine", CASED, False),
        ("mine", None, True),
    ],
)
def test_casing_from_folder_name_or_vocabulary(tmp_path, name, vocabulary, lowercase):
    make_folder(tmp_path / name, encoder_tensors(), vocabulary)
    checkpoint = checkpoints.read(tmp_path / name)
    assert checkpoint.vocabulary == vocabulary
    assert checkpoint.tokenizer == {
        "lowercase": lowercase,
        "strip_accents": lowercase,
        "split_cjk": True,
        "sequence_length": None,
    }


def test_a_vocabulary_must_not_be_longer_than_the_embeddings(tmp_path):
    make_folder(tmp_path, encoder_tensors(), [*VOCABULARY, "x"])
    with pytest.raises(ValueError, match="vocab.txt: .*vocab_size 11 ids, received 12$"):
        checkpoints.read(tmp_path)


def test_a_vocabulary_can_be_shorter_than_the_embeddings(tmp_path):
    make_folder(tmp_path, encoder_tensors(), VOCABULARY[:-1])
    assert checkpoints.read(tmp_path).vocabulary == VOCABULARY[:-1]
