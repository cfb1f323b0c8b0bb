"""Models that this machine wrote, which need no trust."""

import re
import shutil
import warnings

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.exporting.hub_layer import HubLayer
from keras_bert.hub import own_files
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
        assert own_files.is_own(folder)
    # Another machine or user has another cache.
    shutil.rmtree(tmp_path / "cache" / "own")
    with pytest.raises(ValueError, match=re.escape(f"{version}: a SavedModel is a program")):
        models.load(version, 1)


def test_files_that_tensorflow_does_not_load_may_change(tmp_path):
    version = keras_bert.export(classifier(), tmp_path / "head")
    (version / "assets.extra" / "tf_serving_warmup_requests").unlink()
    assert own_files.is_own(version)
    (version / "assets" / "labels.txt").rename(version / "assets" / "names.txt")
    assert not own_files.is_own(version)


@keras.saving.register_keras_serializable(package="tests")
class Doubled(keras.layers.Layer):
    """A layer that is not listed."""

    def call(self, x):
        return 2 * x


def test_a_layer_of_ones_own_needs_trust(tmp_path):
    x = keras.Input((2,))
    file = tmp_path / "model.keras"
    line = re.escape(f"keras_bert.load({str(file)!r}, trusted=True)")
    with pytest.warns(UserWarning, match=f"contains .*Doubled.*{line}"):
        keras_bert.save(keras.Model(x, Doubled()(x)), file)
    with pytest.raises(ValueError, match=r"contains .*Doubled.*trusted=True"):
        keras_bert.load(file)
    assert keras_bert.load(file, trusted=True)(np.ones((1, 2)))[0, 0] == 2


def test_export_without_a_cache(tmp_path, cache):
    cache.write_text("a file")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        version = keras_bert.export(classifier(), tmp_path / "head")
    [message] = [str(item.message) for item in caught if item.category is UserWarning]
    assert re.fullmatch(r".* need trusted=True .* cannot be written .*", message)
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
        own_files.record(tmp_path)
    assert not own_files.is_own(tmp_path)
