"""Load and save by name or path."""

import json
import pathlib
import shutil
import zipfile

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.hub import loading
from tests import contract, tiny
from tests.security import rewriting


@pytest.mark.parametrize("name", ["../nothing", "~/nothing", "a/b/c", "my.keras", "a\\b", "a/"])
def test_a_path_that_does_not_exist(name):
    with pytest.raises(FileNotFoundError, match="No such file or directory; the current folder is"):
        keras_bert.load(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf", "is neither a folder nor a known model name"),
        ("MiniLM", "did you mean 'minilm'"),
        ("bert-bas", "the names are"),
        ("basee", "did you mean 'base'"),
        ("bert-base-uncased", "mean 'base' or 'hf:google-bert/bert-base-uncased'"),
        ("google-bert/bert-base-uncased", "mean 'base' or 'hf:google-bert/bert-base-uncased'"),
        ("klue/bert-base", "did you mean 'hf:klue/bert-base' on the Hugging Face Hub"),
        ("klue/bert-base@main", "did you mean 'hf:klue/bert-base@main'"),
        (None, "must be a string or a path"),
        (b"base", "must be a string or a path"),
        ("", "must be a string or a path"),
        ("hf:", "is hf:org/name or"),
        ("hf:a/b/c", "is hf:org/name or"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(ValueError, match=message):
        keras_bert.load(name)


def test_pooling_of_a_checkpoint(tmp_path):
    keras_bert.save(tiny.encoder(num_hidden_layers=1), tmp_path / "hf", format="huggingface")
    keras_bert.save(tiny.encoder(num_hidden_layers=1), tmp_path / "mine.keras")
    for name in ("hf", "mine.keras"):
        assert keras_bert.load(tmp_path / name, pooling="cls").pooling == "cls"
    model = keras_bert.load(tmp_path / "hf", task="embedding", pooling="cls")
    assert model.get_layer("pooling").mode == "cls"


def test_ignore_is_refused_for_saved_models(tmp_path):
    loading.save(tiny.encoder(), tmp_path)
    with pytest.raises(ValueError, match="ignore is for checkpoints"):
        keras_bert.load(tmp_path, ignore=["a"])
    with pytest.raises(ValueError, match="ignore must be a list of patterns"):
        keras_bert.load(tmp_path, ignore="cls.*")


def test_other_files_are_errors(tmp_path):
    file = tmp_path / "weights.txt"
    file.touch()
    with pytest.raises(ValueError, match=r"must be a folder or a \.keras file"):
        keras_bert.load(file)
    broken = tmp_path / "broken.keras"
    broken.write_bytes(b"PK nonsense")
    with pytest.raises(ValueError, match="must be a complete archive; download or copy") as caught:
        keras_bert.load(broken)
    assert "\n" not in str(caught.value)


def test_save_and_load(tmp_path, eager):
    model = keras_bert.heads.classifier(tiny.encoder(), labels=["no", "yes"])
    model.compile(keras_bert.optimizers.adamw(1e-3, total_steps=2), "mse")
    encoder = keras_bert.heads.find_encoder(model)
    inputs = encoder.preprocessor(["this film is good!"])
    model.fit(inputs, np.zeros((1, 2)), verbose=0)
    for path in (tmp_path / "folder", tmp_path / "file.keras"):
        keras_bert.save(model, path)
        np.testing.assert_allclose(keras_bert.load(path)(inputs), model(inputs), atol=1e-6)
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["model.keras"]
    with zipfile.ZipFile(tmp_path / "file.keras") as archive:
        assert [name for name in archive.namelist() if name.endswith("vocab.txt")]
        assert not json.loads(archive.read("config.json"))["compile_config"]
        with archive.open("model.weights.h5") as weights:
            assert b"optimizer" not in weights.read()
    # Saving keeps the optimizer of the model.
    model.fit(inputs, np.zeros((1, 2)), verbose=0)


@pytest.mark.filterwarnings("ignore:.*it contains keras.Sequential")
@pytest.mark.parametrize("kind", ["sequential", "functional"])
def test_a_model_can_be_saved_while_it_is_trained(tmp_path, monkeypatch, kind):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    if kind == "functional":
        model = keras.Model(model.inputs[0], model.outputs[0])
    optimizer = keras.optimizers.Adam()
    model.compile(optimizer, "mse")
    model.fit(np.ones((1, 2)), np.ones((1, 1)), verbose=0)
    save, seen = keras.layers.Dense.save_own_variables, []

    def watch(layer, store):
        seen.append((model.optimizer, model.compiled))
        save(layer, store)

    monkeypatch.setattr(keras.layers.Dense, "save_own_variables", watch)
    keras_bert.save(model, tmp_path / "a.keras")
    assert seen == [(optimizer, True)]
    again = keras_bert.load(tmp_path / "a.keras", trusted=kind == "sequential")
    np.testing.assert_array_equal(again(np.ones((1, 2))), model(np.ones((1, 2))))
    assert type(again) is type(model) and not again.compiled


def test_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    path = tmp_path / "model.keras"
    keras_bert.save(model, path)
    before = path.read_bytes()

    def fail(self, target):
        pathlib.Path(target).write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(type(model), "save", fail)
    with pytest.raises(OSError, match="No space left"):
        keras_bert.save(model, path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.keras"]


def test_vocabulary_longer_than_vocab_size_is_refused(tmp_path):
    def add_tokens(members):
        [name] = [name for name in members if name.endswith("vocab.txt")]
        members[name] += b"one\ntwo\n"

    keras_bert.save(tiny.encoder(), tmp_path / "a.keras")
    rewriting.rewrite_zip(tmp_path / "a.keras", add_tokens)
    with pytest.raises(ValueError, match="a.keras .*at most vocab_size=18 tokens; received 20"):
        keras_bert.load(tmp_path / "a.keras")


@pytest.mark.parametrize("task", ["classification", "tagging", "masked_tokens", "pretraining"])
def test_fresh_head_is_random_and_the_encoder_is_loaded(tmp_path, task):
    keras_bert.save(tiny.encoder(), tmp_path, format="huggingface")
    options = {"labels": ["a", "b"]} if task in ("classification", "tagging") else {}
    model = keras_bert.load(tmp_path, task=task, fresh_head=True, **options)
    weights = {weight.path: keras.ops.convert_to_numpy(weight) for weight in model.weights}
    for weight in keras_bert.load(tmp_path).weights:
        np.testing.assert_array_equal(weights.pop(weight.path), keras.ops.convert_to_numpy(weight))
    for path, array in weights.items():
        if path.endswith("kernel"):
            assert 0.005 < array.std() < 0.04, path
        else:
            assert set(array.flat) == {1.0 if path.endswith("gamma") else 0.0}, path


# --- load(task=...) of checkpoints that transformers saved

CONFIG = {
    "vocab_size": 37,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "hidden_act": "gelu_new",
    "max_position_embeddings": 19,
    "type_vocab_size": 3,
    "layer_norm_eps": 1e-5,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A function from the name of a transformers class to (model, folder of the checkpoint)."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    found = {}

    def save(kind, **options):
        key = (kind, str(options))
        if key not in found:
            torch.manual_seed(len(found))
            model = getattr(transformers, kind)(transformers.BertConfig(**CONFIG, **options))
            for name, weight in model.named_parameters():
                mean = 1.0 if name.endswith("LayerNorm.weight") else 0.0
                torch.nn.init.normal_(weight, mean, 0.3)
            folder = tmp_path_factory.mktemp("saved")
            model.eval().save_pretrained(folder)
            found[key] = model, folder
        return found[key]

    return save


LABELS = {0: "bad", 1: "good", 2: "so-so"}


@pytest.mark.peers
@pytest.mark.parametrize(
    ("task", "kind", "options", "outputs"),
    [
        ("classification", "BertForSequenceClassification", {"id2label": LABELS}, ["logits"]),
        ("regression", "BertForSequenceClassification", {"num_labels": 1}, ["logits"]),
        ("tagging", "BertForTokenClassification", {"id2label": LABELS}, ["logits"]),
        ("question_answering", "BertForQuestionAnswering", {}, ["end_logits", "start_logits"]),
        ("multiple_choice", "BertForMultipleChoice", {}, ["logits"]),
        ("masked_tokens", "BertForMaskedLM", {}, ["logits"]),
        ("next_sentence", "BertForNextSentencePrediction", {}, ["logits"]),
        ("pretraining", "BertForPreTraining", {}, ["prediction_logits", "seq_relationship_logits"]),
    ],
)
def test_heads_agree_with_transformers(saved, task, kind, options, outputs):
    import torch

    original, folder = saved(kind, **options)
    model = keras_bert.load(folder, task=task)
    rng = np.random.default_rng(0)
    shape = (4, 2, 11) if task == "multiple_choice" else (4, 11)
    ids, types = (rng.integers(0, CONFIG[key], shape) for key in ("vocab_size", "type_vocab_size"))
    real = np.array([11, 7, 1, 0]).reshape(
        4, *[1] * (len(shape) - 1)
    )  # the last row is all padding
    mask = np.broadcast_to(np.arange(11) < real, shape).astype(int, order="C")
    inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
    if "masked_lm_positions" in model.input:
        inputs["masked_lm_positions"] = np.tile(np.arange(11), (4, 1))
    with torch.no_grad():
        named = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        given = original(**{key: torch.tensor(value) for key, value in named.items()})
    found = keras.tree.flatten(model(inputs))
    for name, array in zip(outputs, found, strict=True):
        expected = given[name].numpy()
        finite = np.isfinite(expected)
        assert finite[:3].all()
        assert np.ptp(expected[finite]) > 0.5
        np.testing.assert_allclose(np.array(array)[finite], expected[finite], atol=1e-4)
    labels = keras_bert.heads.find_output(model).labels
    assert labels == (list(LABELS.values()) if "id2label" in options else labels)


@pytest.mark.peers
@pytest.mark.parametrize(
    ("task", "kind", "tensors"),
    [
        ("masked_tokens", "BertForSequenceClassification", ["masked_lm/transform/kernel"]),
        ("classification", "BertForMaskedLM", ["classifier/kernel", "classifier/bias", "pooler/"]),
        ("question_answering", "BertForPreTraining", ["span_selector/kernel"]),
        ("next_sentence", "BertForMaskedLM", ["next_sentence/kernel", "pooler/dense/kernel"]),
        ("pretraining", "BertForMaskedLM", ["next_sentence/bias"]),
        ("tagging", "BertModel", ["classifier/kernel"]),
    ],
)
def test_missing_weights_of_a_head_are_named(saved, task, kind, tensors):
    _, folder = saved(kind)
    with pytest.raises(ValueError, match=rf"{folder}: .* missing \(\d+\)") as caught:
        keras_bert.load(folder, task=task)
    assert all(tensor in str(caught.value) for tensor in tensors)


@pytest.mark.peers
def test_weights_of_another_head_are_an_error(saved):
    _, folder = saved("BertForSequenceClassification", id2label=LABELS)
    for task in ("regression", "tagging", "multiple_choice"):  # their weights have the same names
        with pytest.raises(ValueError, match=f"of the head {task}; it has the head classification"):
            keras_bert.load(folder, task=task)
    _, folder = saved("BertForSequenceClassification", num_labels=1)
    with pytest.raises(ValueError, match="a classifier needs at least 2 classes; received 1"):
        keras_bert.load(folder, task="classification")


@pytest.mark.peers
def test_embedder_keeps_the_pooler_of_pretraining(saved):
    _, folder = saved("BertForPreTraining")
    model = keras_bert.load(folder, task="embedding")
    encoder = keras_bert.load(folder)
    pooler = keras_bert.heads.find_encoder(model).get_layer("pooler").dense
    np.testing.assert_array_equal(pooler.kernel, encoder.get_layer("pooler").dense.kernel)


@pytest.mark.parametrize("options", [{"fresh_head": True}, {"labels": ["a", "b"]}])
def test_options_of_a_head_need_a_task(tmp_path, options):
    keras_bert.save(tiny.encoder(num_hidden_layers=1), tmp_path, format="huggingface")
    with pytest.raises(ValueError, match=f"{next(iter(options))} needs a task"):
        keras_bert.load(tmp_path, **options)


def test_task_must_match_a_saved_model(tmp_path):
    with pytest.raises(ValueError, match="task must be one of .*; received 'chess'"):
        keras_bert.load("nowhere", task="chess")
    encoder = tiny.encoder(num_hidden_layers=1)
    keras_bert.save(keras_bert.heads.regressor(encoder), tmp_path / "a")
    assert keras_bert.load(tmp_path / "a", task="regression").name == "regressor"
    with pytest.raises(ValueError, match="has the head regression, not tagging"):
        keras_bert.load(tmp_path / "a", task="tagging")
    keras_bert.save(encoder, tmp_path / "b")
    with pytest.raises(ValueError, match="has no head, not tagging"):
        keras_bert.load(tmp_path / "b", task="tagging")


@pytest.mark.parametrize("task", [None, "pretraining", "masked_tokens", "next_sentence"])
def test_options_replace_those_of_a_saved_encoder(task, tmp_path):
    model = tiny.encoder()
    if task:
        model = contract.OF_TASKS[task](model)
    keras_bert.save(model, tmp_path)
    options = {"dtype": "mixed_bfloat16", "rematerialize": True, "hidden_act": "relu"}
    again = keras_bert.load(tmp_path, task=task, sequence_length=16, **options)
    encoder = keras_bert.heads.find_encoder(again)
    assert encoder.dtype_policy.name == "mixed_bfloat16"
    assert encoder.rematerialize
    assert encoder.bert_config["hidden_act"] == "relu"
    assert encoder.preprocessor.sequence_length == 16
    for mine, theirs in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    # Other options keep their saved values.
    keras_bert.save(again, tmp_path)
    again = keras_bert.heads.find_encoder(keras_bert.load(tmp_path))
    assert again.dtype_policy.name == "mixed_bfloat16"
    assert again.rematerialize
    assert again.preprocessor.sequence_length == 16


def test_fresh_head_on_a_saved_model(tmp_path):
    model = keras_bert.heads.classifier(tiny.encoder(), labels=["no", "yes"])
    keras_bert.save(model, tmp_path)
    again = keras_bert.load(
        tmp_path, task="classification", fresh_head=True, num_classes=3, dtype="mixed_bfloat16"
    )
    assert again.output_shape == (None, 3)
    encoders = [keras_bert.heads.find_encoder(one) for one in (model, again)]
    assert encoders[1].dtype_policy.name == "mixed_bfloat16"
    for mine, theirs in zip(*(encoder.get_weights() for encoder in encoders), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "mixed_bfloat16"}, "whose options are fixed; remove dtype"),
        ({"rematerialize": True}, "options are fixed; remove rematerialize"),
        ({"num_classes": 3}, "num_classes is no argument of load, or needs fresh_head"),
        ({"fresh_head": True}, "fresh_head needs a task"),
        ({"task": "tagging"}, "has the head classification, not tagging; pass fresh_head=True"),
        ({"sequence_length": 2}, "sequence_length must be .*at least 3; received 2"),
    ],
)
def test_options_that_do_not_apply_to_a_saved_model_are_errors(options, message, tmp_path):
    keras_bert.save(keras_bert.heads.classifier(tiny.encoder(), labels=["no", "yes"]), tmp_path)
    with pytest.raises(ValueError, match=message):
        keras_bert.load(tmp_path, **options)


@pytest.mark.filterwarnings("ignore:Layer \\w+ does not have a `quantize`")
@pytest.mark.filterwarnings("ignore:`model.quantize")
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_quantized_model_loads(mode, tmp_path):
    model = keras_bert.heads.classifier(tiny.encoder(), labels=["bad", "good"])
    model.quantize(mode)
    keras_bert.save(model, tmp_path / "model.keras")
    loaded = keras_bert.load(tmp_path / "model.keras")
    assert loaded.get_layer("logits").quantization_mode == mode
    inputs = keras_bert.heads.find_encoder(model).preprocessor(["good and bad"])
    np.testing.assert_array_equal(np.asarray(model(inputs)), np.asarray(loaded(inputs)))


LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with the same encoder in several formats."""
    folder = tmp_path_factory.mktemp("written")
    encoder = tiny.encoder(hidden_act="gelu_new")
    for format in ("huggingface", "google", "keras_hub"):
        keras_bert.save(encoder, folder / format, format=format)
    keras_bert.save(encoder, folder / "keras")
    return folder


@pytest.mark.parametrize(
    "file",
    [
        "huggingface/config.json",
        "huggingface/vocab.txt",
        "huggingface/tokenizer_config.json",
        "huggingface/model.safetensors",
        "huggingface/pytorch_model.bin",
        "huggingface/tf_model.h5",
        "google/bert_model.ckpt.index",
        "google/bert_model.ckpt.data-00000-of-00001",
        "keras_hub/model.weights.h5",
        "keras/model.keras",
        "archive.zip",
    ],
)
def test_pointers_of_git_lfs_are_named(tmp_path, written, file):
    format = pathlib.PurePath(file).parts[0]
    if file != "archive.zip":
        shutil.copytree(written / format, tmp_path / format)
    if file.startswith(("huggingface/pytorch", "huggingface/tf")):
        (tmp_path / "huggingface/model.safetensors").unlink()
    (tmp_path / file).write_text(LFS_POINTER)
    with pytest.raises(ValueError, match=f"{pathlib.PurePath(file).name}.*git-lfs.*git lfs pull"):
        keras_bert.load(tmp_path / format)


def test_the_automatic_dtype_of_a_model_with_a_head(tmp_path, monkeypatch):
    model = keras_bert.heads.classifier(tiny.encoder(dtype="mixed_bfloat16"), labels=["a", "b"])
    keras_bert.save(model, tmp_path / "head")
    loaded = keras_bert.load(tmp_path / "head", dtype="auto")
    assert loaded.get_layer("bert_encoder").dtype_policy.name == "mixed_bfloat16"
    with pytest.raises(ValueError, match=r"remove dtype.*pipeline\(model, precision"):
        keras_bert.load(tmp_path / "head", dtype="float32")
    keras_bert.save(tiny.encoder(), tmp_path / "encoder")
    monkeypatch.setattr(keras_bert.runtime.distribution, "fastest_dtype", lambda: "mixed_bfloat16")
    encoder = keras_bert.load(tmp_path / "encoder", dtype="auto")
    assert encoder.dtype_policy.name == "mixed_bfloat16"


@pytest.mark.parametrize("dtype", ["float17", "", 16])
def test_an_unknown_dtype_is_named(tmp_path, dtype):
    with pytest.raises(ValueError, match="dtype must be a dtype policy"):
        keras_bert.load(tmp_path / "nothing", dtype=dtype)


def test_a_folder_with_several_formats(tmp_path):
    for name in ("huggingface", "google", "keras"):
        model = tiny.encoder(hidden_act="gelu_new")
        keras_bert.save(model, tmp_path / name, format=name)
        shutil.copytree(tmp_path / name, tmp_path / "all", dirs_exist_ok=True)
        loaded = keras_bert.load(tmp_path / "all", format=name)
        np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])
    (tmp_path / "all/model.keras").unlink()
    for name in (None, "keras_hub", "keras"):
        with pytest.raises(ValueError, match="Pass format='google' or format='huggingface'"):
            keras_bert.load(tmp_path / "all", format=name)
