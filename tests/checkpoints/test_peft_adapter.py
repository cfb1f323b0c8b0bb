"""A LoRA adapter of PEFT is merged with its base, here or elsewhere; others are refused."""

import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_bert
from keras_bert import checkpoints, heads
from keras_bert.hub import download, hub_source
from tests.checkpoints.huggingface_files import (
    INPUTS,
    SIZES,
    VOCABULARY,
    H,
    assert_weights,
    edit_json,
    encoder_tensors,
    expected_weights,
    fill,
    make_folder,
    write_json,
)

QUERY = "bert.encoder.layer.0.attention.self.query"
OUTPUT = "bert.encoder.layer.1.output.dense"
I = SIZES["intermediate_size"]  # noqa: E741
FACTORS = fill({
    f"{QUERY}.lora_A": (2, H), f"{QUERY}.lora_B": (H, 2),
    f"{OUTPUT}.lora_A": (3, I), f"{OUTPUT}.lora_B": (H, 3),
})  # fmt: skip
CLASSIFIER = fill({"classifier.weight": (3, H), "classifier.bias": (3,)})
CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "task_type": "SEQ_CLS"}


MERGED = ("IA3", "LOHA", "LOKR", "ADALORA", "OFT", "BOFT", "VERA", "LN_TUNING", "HRA")
PROMPTS = ("PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "MULTITASK_PROMPT_TUNING")


def write(path, tensors, saved, ending=".weight", **config):
    make_folder(path, tensors, VOCABULARY, architectures=["BertModel"])
    write_json(path / "adapter_config.json", CONFIG | config)
    factors = {f"base_model.model.{name}{ending}": array for name, array in FACTORS.items()}
    others = {f"base_model.model.{name}": array for name, array in saved.items()}
    save_file(factors | others, path / "adapter_model.safetensors")


@pytest.mark.parametrize(
    ("config", "scales"),
    [
        ({}, (2, 4 / 3)),
        ({"use_rslora": True}, (4 / 2**0.5, 4 / 3**0.5)),
        ({"alpha_pattern": {"output.dense": 9}}, (2, 3)),
    ],
)
def test_an_adapter_is_merged(tmp_path, config, scales):
    tensors = encoder_tensors()
    saved = {name.replace(".", ".modules_to_save.", 1): CLASSIFIER[name] for name in CLASSIFIER}
    write(tmp_path, tensors, saved, **config)
    merged = tensors | CLASSIFIER
    for name, scale in zip((QUERY, OUTPUT), scales, strict=True):
        product = FACTORS[f"{name}.lora_B"] @ FACTORS[f"{name}.lora_A"]
        merged[f"{name}.weight"] = tensors[f"{name}.weight"] + np.float32(scale) * product
    checkpoint = checkpoints.read(tmp_path)
    assert checkpoint.spec.head.task == "classification"
    found = {name: np.round(array, 4) for name, array in checkpoint.weights.items()}
    assert_weights(
        found, {name: np.round(array, 4) for name, array in expected_weights(merged).items()}
    )
    assert heads.find_task(keras_bert.load(tmp_path, task="auto")) == "classification"


def test_names_of_older_and_bare_models(tmp_path):
    bare = {name.removeprefix("bert."): array for name, array in encoder_tensors().items()}
    write(tmp_path / "bare", bare, {}, ".default.weight", task_type=None)
    write(tmp_path / "bert", encoder_tensors(), {}, task_type="FEATURE_EXTRACTION")
    weights = [checkpoints.read(tmp_path / name).weights for name in ("bare", "bert")]
    assert_weights(weights[0], dict(weights[1]))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        *(({"peft_type": kind}, "peft_type must be 'LORA'.*merge_and_unload") for kind in MERGED),
        *(({"peft_type": kind}, "peft_type must be 'LORA'.*use it with PEFT") for kind in PROMPTS),
        ({"peft_type": None, "config": {}}, "must be of an adapter of PEFT.*library adapters"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights must be"),
        ({"use_dora": True}, "use_dora must be false"),
        ({"bias": "lora_only"}, "bias must be 'none'.*merge_and_unload"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices.*merge_and_unload"),
        ({"layer_replication": [[0, 1]]}, "layer_replication"),
        ({"lora_alpha": "4"}, "lora_alpha must be a number"),
        ({"an_option_of_tomorrow": 1}, "must have keys of a LoRA .*an_option.*merge_and_unload"),
        ({"alpha_pattern": {".*": 4}}, "must have names of modules.*merge_and_unload"),
        ({"alpha_pattern": ["query"]}, "alpha_pattern must be an object"),
        ({"alpha_pattern": dict.fromkeys(map(str, range(300)), 4)}, "300 patterns, at most 100"),
    ],
)
def test_other_adapters_are_refused(tmp_path, config, message):
    write(tmp_path, encoder_tensors(), {}, **config)
    with pytest.raises(ValueError, match=f"{message}"):
        keras_bert.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("bert.embeddings.word_embeddings.lora_embedding_A", np.ones((2, H), np.float32)),
        (f"{QUERY}.lora_magnitude_vector.weight", np.ones(H, np.float32)),
        (f"{QUERY}.lora_A.default.weight", np.ones((2, H), np.float32)),
        (f"{QUERY}.weight", np.ones((H, H), np.float32)),
        ("encoder.other.lora_A.weight", np.ones((2, H), np.float32)),
    ],
)
def test_other_tensors_are_refused(tmp_path, name, array):
    write(tmp_path, encoder_tensors(), {name: array})
    with pytest.raises(ValueError, match="(model.safetensors|target_modules).*merge_and_unload"):
        keras_bert.load(tmp_path)


def test_an_adapter_for_another_base(tmp_path):
    write(tmp_path, {n: a for n, a in encoder_tensors().items() if "pooler" not in n}, {})
    file = tmp_path / "adapter_model.safetensors"
    factors = {x: FACTORS[f"{QUERY}.lora_{x}"] for x in "AB"}
    for name, A in ((f"{QUERY}9", factors["A"]), (QUERY, np.ones((2, 9), np.float32))):
        save_file({f"{name}.lora_A.weight": A, f"{name}.lora_B.weight": factors["B"]}, file)
        with pytest.raises(ValueError, match="adapter_config.json: the base must have .*Correct"):
            keras_bert.load(tmp_path)
    file.unlink()
    with pytest.raises(ValueError, match="adapter_model.safetensors.*is missing"):
        keras_bert.load(tmp_path)


def write_alone(path, **config):
    """Write a base with an adapter to `path / "base"`, and the adapter to `path / "alone"`."""
    write(path / "base", encoder_tensors(), CLASSIFIER)
    (path / "alone/1").mkdir(parents=True)
    for file in (path / "base").glob("adapter_*"):
        shutil.copy(file, path / "alone")
    edit_json(path / "alone/adapter_config.json", **config)
    return keras_bert.load(path / "base", task="auto")


def assert_equal(found, expected):
    np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (found, expected)))


@pytest.mark.parametrize("name", ["base", "{path}/base", "org/base"])
def test_an_adapter_alone_loads_its_base(tmp_path, monkeypatch, name):
    name = name.format(path=tmp_path)
    beside = write_alone(tmp_path, base_model_name_or_path=name, revision="v1")
    (tmp_path / "base/adapter_config.json").unlink()
    repositories = {("org/base", "v1"): tmp_path / "base"}
    monkeypatch.setattr(
        hub_source, "snapshot", lambda name, revision, _: repositories[name, revision]
    )
    monkeypatch.chdir(tmp_path)
    model = keras_bert.load(tmp_path / "alone", task="auto")
    assert_equal(model(INPUTS), beside(INPUTS))
    # A folder of sentence-transformers whose first module is an adapter.
    types = {
        "": "sentence_transformers.models.Transformer",
        "1": "sentence_transformers.models.Pooling",
    }
    write_json(tmp_path / "alone/modules.json", [{"path": p, "type": types[p]} for p in types])
    write_json(tmp_path / "alone/1/config.json", {"pooling_mode": "cls"})
    vectors = keras_bert.load(tmp_path / "alone", task="embedding")(INPUTS)
    expected = heads.find_encoder(beside)(INPUTS)["sequence_output"][:, 0]
    assert_equal(vectors, expected)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "must have the name of the base model.*Copy the adapter into the folder"),
        ("", "must have the name of the base model"),
        ("/no/such/base", "must be a folder, or a repository of the Hugging Face Hub"),
        ("https://x.y/z.zip", "must be a folder, or a repository of the Hugging Face Hub"),
        ("base", "the base must have no adapter of its own"),
        ("absent", "there is no folder 'absent'. Could not download.*Copy the adapter"),
    ],
)
def test_bases_that_are_refused(tmp_path, monkeypatch, name, message):
    write_alone(tmp_path, base_model_name_or_path=name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(download, "is_offline", lambda: True)
    with pytest.raises((ValueError, OSError), match=f"adapter_config.json.*{message}"):
        keras_bert.load("alone")
