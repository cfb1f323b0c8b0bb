"""Google's checkpoints: weights, configs and casing."""

import json

import numpy as np
import pytest

from keras_bert import checkpoints
from keras_bert.checkpoints import canonical, google
from tests.checkpoints import huggingface_files, tensorflow_files
from tests.checkpoints.huggingface_files import (
    CASED,
    SIZES,
    VOCABULARY,
    H,
    assert_weights,
    expected_weights,
    fill,
)

pytest.importorskip("tensorflow")

KINDS = {"weight": "kernel", "bias": "bias"}


def to_google(tensors):
    """Return tensors of Hugging Face with Google's names and layout."""
    renamed = {}
    for name, array in tensors.items():
        module, _, kind = name.replace("layer.", "layer_").replace(".", "/").rpartition("/")
        if "seq_relationship" in module:
            renamed[f"{module}/output_{'weights' if kind == 'weight' else 'bias'}"] = array
        elif module == "cls/predictions":
            renamed[f"{module}/output_bias"] = array
        elif "LayerNorm" in module:
            renamed[f"{module}/{'gamma' if kind == 'weight' else 'beta'}"] = array
        elif module.endswith("_embeddings"):
            renamed[module] = array
        else:
            renamed[f"{module}/{KINDS[kind]}"] = array.T
    return renamed


def encoder_tensors():
    return to_google(huggingface_files.encoder_tensors())


def pretraining_tensors():
    return to_google(huggingface_files.pretraining_tensors())


def make_folder(path, tensors, vocabulary=None, **config):
    path.mkdir(exist_ok=True)
    # Google's configs have no layer_norm_eps.
    config = {**SIZES, "hidden_act": "gelu", "hidden_dropout_prob": 0.2, **config}
    (path / "bert_config.json").write_text(json.dumps(config))
    tensorflow_files.save(path / "bert_model.ckpt", **tensors)
    if vocabulary is not None:
        (path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return path


def test_read(tmp_path):
    tensors = {**encoder_tensors(), **pretraining_tensors()}
    make_folder(tmp_path, tensors, VOCABULARY)
    checkpoint = checkpoints.read(tmp_path)
    assert checkpoint.format == "google"
    assert checkpoint.path == str(tmp_path)
    assert checkpoint.spec.vocabulary == VOCABULARY
    assert checkpoint.spec.head.labels is None
    stated = {"hidden_act": "gelu_new", "hidden_dropout_prob": 0.2}
    assert checkpoint.spec.encoder == SIZES | canonical.DEFAULTS | stated
    theirs = huggingface_files.encoder_tensors() | huggingface_files.pretraining_tensors()
    assert_weights(checkpoint.weights, expected_weights(theirs))


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
    names = "adam_m adam_v lamb_m lamb_v Adam Adam_1 AdamWeightDecayOptimizer LAMBOptimizer_1"
    slots = {f"{name}/{slot}": array for name, array in tensors.items() for slot in names.split()}
    names = "global_step beta1_power beta2_power loss_scale current_loss_scale good_steps"
    counters = {name: np.int64(3) for name in names.split()}
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
    with pytest.raises(ValueError, match=rf"bert_model.ckpt: .*unknown \(1\): {name}"):
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


def test_missing_files(tmp_path):
    make_folder(tmp_path, encoder_tensors())
    (tmp_path / "bert_model.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(FileNotFoundError, match="bert_model.ckpt.data-00000-of-00001: missing"):
        checkpoints.read(tmp_path)
    (tmp_path / "bert_model.ckpt.index").unlink()
    with pytest.raises(FileNotFoundError, match="looked for bert_model.ckpt.index"):
        google.read(tmp_path)


def test_config_keys(tmp_path):
    file = tmp_path / "bert_config.json"
    with pytest.raises(FileNotFoundError, match="bert_config.json"):
        google.read_config(tmp_path)
    file.write_text(json.dumps({**SIZES, "hidden_act": "gelu", "pooler_type": "x"}))
    config = google.read_config(tmp_path)
    assert tuple(config) == canonical.CONFIG_KEYS
    assert config["hidden_act"] == "gelu_new"
    file.write_text("{")
    with pytest.raises(ValueError, match="bert_config.json cannot be read as JSON"):
        google.read_config(tmp_path)


@pytest.mark.parametrize(
    ("name", "vocabulary", "lowercase"),
    [
        ("uncased_L-12_H-768_A-12", VOCABULARY, True),
        ("cased_L-12_H-768_A-12", VOCABULARY, False),
        ("chinese_L-12_H-768_A-12", CASED, True),
        ("wwm_Uncased_L-24_H-1024_A-16", CASED, True),
        ("mine", VOCABULARY, True),
        ("mine", CASED, False),
        ("mine", None, True),
    ],
)
def test_casing_from_folder_name_or_vocabulary(tmp_path, name, vocabulary, lowercase):
    make_folder(tmp_path / name, encoder_tensors(), vocabulary)
    checkpoint = checkpoints.read(tmp_path / name)
    assert checkpoint.spec.vocabulary == vocabulary
    assert checkpoint.spec.tokenizer == {
        "lowercase": lowercase,
        "strip_accents": lowercase,
        "split_cjk": True,
        "sequence_length": None,
    }
