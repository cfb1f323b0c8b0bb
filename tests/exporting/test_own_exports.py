"""Exports of this machine, which need no trust."""

import re
import warnings

import pytest

import keras_bert
from keras_bert.exporting import own_exports
from keras_bert.exporting.hub_layer import HubLayer
from keras_bert.server import models
from tests import tiny


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def classifier():
    return keras_bert.heads.classifier(tiny.encoder(num_hidden_layers=1), labels=["no", "yes"])


@pytest.mark.slow
def test_exports_are_own(tmp_path):
    keras_bert.export(tiny.encoder(num_hidden_layers=1), tmp_path / "pair")
    version = keras_bert.export(classifier(), tmp_path / "head")
    for folder in (tmp_path / "pair/preprocess/1", tmp_path / "pair/encoder/1", version):
        HubLayer(folder) if "pair" in folder.parts else models.load(folder, 1)
        assert own_exports.is_own(folder)
    # Another machine or user has another cache.
    for file in (tmp_path / "cache" / "exports").iterdir():
        file.unlink()
    with pytest.raises(ValueError, match=re.escape(f"{version}: a SavedModel is a program")):
        models.load(version, 1)


def test_files_that_tensorflow_does_not_load_may_change(tmp_path):
    version = keras_bert.export(classifier(), tmp_path / "head")
    (version / "assets.extra" / "tf_serving_warmup_requests").unlink()
    assert own_exports.is_own(version)
    (version / "assets" / "labels.txt").rename(version / "assets" / "names.txt")
    assert not own_exports.is_own(version)


def test_export_without_a_cache(tmp_path, cache):
    cache.write_text("a file")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        version = keras_bert.export(classifier(), tmp_path / "head")
    [message] = [str(item.message) for item in caught if item.category is UserWarning]
    assert re.fullmatch(r"the cache cannot be written \(.*\), .* need trusted=True .*", message)
    with pytest.raises(ValueError, match="a SavedModel is a program"):
        models.load(version, 1)
    assert models.load(version, 1, trusted=True).signatures


def test_a_user_without_a_home(tmp_path, monkeypatch):
    monkeypatch.delenv("KERAS_BERT_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", no_home)
    (tmp_path / "saved_model.pb").touch()
    with pytest.warns(UserWarning, match="home directory"):
        own_exports.record(tmp_path)
    assert not own_exports.is_own(tmp_path)
