"""Model folders: versions are found, loaded, replaced and unloaded."""

import gc
import shutil
import weakref

import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from keras_bert.server import models
from tests import served, tiny

X = {"x": np.float32([3])}


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Return folders of SavedModels that multiply by 2, 5 and 7."""
    folder = tmp_path_factory.mktemp("versions")
    return {factor: served.times(folder / str(factor), factor) for factor in (2.0, 5.0, 7.0)}


@pytest.fixture
def model(versions, tmp_path):
    """Return a loaded model whose version 1 multiplies by 2."""
    shutil.copytree(versions[2.0], tmp_path / "m" / "1")
    (found,) = models.find(tmp_path / "m")
    found.refresh(settled=False)
    return found


def ask(version):
    return version.signature("serving_default")(X)["y"].tolist()


def refresh(model, times=2):
    """Refresh as the server does: a version is loaded once it is unchanged between refreshes."""
    for _ in range(times):
        model.refresh()


def states(model):
    return {number: (state, code) for number, state, (code, _) in model.states()}


def test_find_accepts_three_kinds_of_folder(versions, tmp_path):
    for name in ("a/1", "a/12", "b/0", "b/.writing-x", "c/not-a-number", "d/-1", "d/٣"):
        shutil.copytree(versions[2.0], tmp_path / name)
    (tmp_path / "README.md").touch()

    def found(path, name=None):
        return [(model.name, model.folder) for model in models.find(path, name)]

    everything = [("a", tmp_path / "a"), ("b", tmp_path / "b")]
    assert found(tmp_path) == everything
    assert found(tmp_path / "a") == everything[:1]
    assert found(tmp_path / "a", "other") == [("other", tmp_path / "a")]
    assert found(tmp_path / "a" / "12") == [("a", tmp_path / "a" / "12")]
    assert found(tmp_path / "c" / "not-a-number")[0][0] == "not-a-number"
    assert found(tmp_path / "c") == found(tmp_path / "d") == found(tmp_path / "none") == []
    with pytest.raises(ValueError, match="holds 2 models"):
        models.find(tmp_path, "name")


@pytest.mark.parametrize("name, number", [("12", 12), ("reviews", 1)])
def test_folder_of_one_version(versions, tmp_path, name, number):
    shutil.copytree(versions[2.0], tmp_path / name)
    (model,) = models.find(tmp_path / name)
    model.refresh(settled=False)
    assert model.version().number == number and ask(model.version()) == [6.0]
    shutil.rmtree(tmp_path / name)
    refresh(model)
    assert model.current is None


def test_definitions_are_those_of_the_saved_model(model, versions):
    pb = pytest.importorskip("tensorflow_serving.apis.get_model_metadata_pb2")
    from google.protobuf import json_format
    from tensorflow.core.protobuf import saved_model_pb2

    version = model.version()
    signatures = json_format.ParseDict(
        {"signature_def": version.definitions}, pb.SignatureDefMap()
    ).signature_def
    saved = saved_model_pb2.SavedModel.FromString((versions[2.0] / "saved_model.pb").read_bytes())
    assert dict(signatures) == dict(saved.meta_graphs[0].signature_def)
    assert version.labels is None and version.example() == 0.0


def test_latest_version_is_served(model, versions, tmp_path):
    held = model.version()
    shutil.copytree(versions[5.0], tmp_path / "m" / "10")
    shutil.copytree(versions[7.0], tmp_path / "m" / "9")
    refresh(model)
    assert model.version().number == 10 and ask(model.version()) == [15.0]
    assert ask(held) == [6.0], "a running request keeps its version"
    assert states(model) == {10: ("AVAILABLE", "OK"), 1: ("END", "OK")}
    assert model.version(10) is model.current
    for number in (1, 9, 0):
        with pytest.raises(LookupError, match=rf"Specific\(m, {number}\)"):
            model.version(number)
    with pytest.raises(ValueError, match="Unrecognized servable version label: stable"):
        model.version(label="stable")
    with pytest.raises(LookupError, match="Could not find version 9 of model m"):
        model.states(9)


def test_version_zero(versions, tmp_path):
    shutil.copytree(versions[5.0], tmp_path / "m" / "0")
    (model,) = models.find(tmp_path / "m")
    model.refresh(settled=False)
    assert model.version().number == model.version(0).number == 0


def test_version_that_is_being_copied_is_not_loaded(model, versions, tmp_path, monkeypatch):
    loads = []
    load = models.load
    monkeypatch.setattr(models, "load", lambda *args: loads.append(args) or load(*args))
    new = tmp_path / "m" / "2"
    (new / "variables").mkdir(parents=True)
    for name in ("saved_model.pb", "fingerprint.pb"):
        shutil.copy(versions[5.0] / name, new)
    model.refresh()
    for name in ("variables.index", "variables.data-00000-of-00001"):
        shutil.copy(versions[5.0] / "variables" / name, new / "variables")
        model.refresh()
        assert not loads
    model.refresh()
    assert len(loads) == 1 and ask(model.version()) == [15.0]
    refresh(model)
    assert len(loads) == 1, "an unchanged version is not loaded again"


def test_broken_version_keeps_the_previous_one(model, versions, tmp_path, monkeypatch):
    loads = []
    load = models.load
    monkeypatch.setattr(models, "load", lambda *args: loads.append(args) or load(*args))
    new = shutil.copytree(versions[5.0], tmp_path / "m" / "2")
    (new / "variables" / "variables.index").write_bytes(b"broken")
    refresh(model, 4)
    assert ask(model.version()) == [6.0] and model.version().number == 1
    assert states(model) == {2: ("END", "UNKNOWN"), 1: ("AVAILABLE", "OK")}
    assert model.states(2)[0][2][1], "the status holds the reason"
    assert len(loads) == 1, "a broken version is not loaded again until it changes"
    shutil.copy(versions[5.0] / "variables" / "variables.index", new / "variables")
    refresh(model)
    assert ask(model.version()) == [15.0]
    assert states(model) == {2: ("AVAILABLE", "OK"), 1: ("END", "OK")}


def test_removed_broken_version_is_forgotten(model, tmp_path):
    (tmp_path / "m" / "2").mkdir()
    refresh(model)
    assert states(model)[2] == ("END", "UNKNOWN")
    (tmp_path / "m" / "2").rmdir()
    refresh(model)
    assert states(model) == {1: ("AVAILABLE", "OK")}


def test_version_is_replaced_in_place(model, versions, tmp_path):
    shutil.rmtree(tmp_path / "m" / "1")
    model.refresh()
    assert ask(model.version()) == [6.0], "one refresh without files does not unload the model"
    shutil.copytree(versions[7.0], tmp_path / "m" / "1")
    refresh(model)
    assert ask(model.version()) == [21.0] and states(model) == {1: ("AVAILABLE", "OK")}
    # If the new files are broken, the loaded version stays, even if an older folder exists.
    shutil.copytree(versions[2.0], tmp_path / "m" / "0")
    (tmp_path / "m" / "1" / "saved_model.pb").write_bytes(b"broken")
    refresh(model, 4)
    assert ask(model.version()) == [21.0]
    assert states(model) == {1: ("AVAILABLE", "UNKNOWN")}
    for number in "01":
        shutil.rmtree(tmp_path / "m" / number)
    model.refresh()
    assert states(model) == {1: ("AVAILABLE", "OK")}


def test_removed_model_is_unloaded(model, versions, tmp_path):
    shutil.rmtree(tmp_path / "m")
    refresh(model)
    with pytest.raises(LookupError, match=r"Servable not found for request: Latest\(m\)"):
        model.version()
    assert states(model) == {1: ("END", "OK")}
    shutil.copytree(versions[5.0], tmp_path / "m" / "1")
    refresh(model)
    assert ask(model.version()) == [15.0]


def test_folder_without_a_valid_version(tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    (model,) = models.find(tmp_path / "m")
    with pytest.raises(LookupError, match="Could not find any versions of model m"):
        model.states()
    model.refresh(settled=False)
    assert model.current is None and states(model) == {1: ("END", "UNKNOWN")}


def test_unknown_signature(model):
    with pytest.raises(ValueError, match="no signature 'ids'.*'serving_default'"):
        model.version().signature("ids")


def test_rejected_input_is_a_value_error_of_one_line(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def serve(text):
        return {"number": tf.strings.to_number(text)}

    folder = served.save(tf.Module(), tmp_path / "1", serve)
    signature = models.load(folder, 1).signature(
        "serving_default"
    )  # its warm-up with "" fails, too
    assert signature({"text": np.array([b"2"], object)})["number"].tolist() == [2.0]
    with pytest.raises(ValueError, match="^StringToNumberOp could not .*: no$"):
        signature({"text": np.array([b"no"], object)})


@pytest.mark.slow
def test_previous_version_is_freed_at_once(tmp_path):
    """Without waiting for the garbage collector, which would let weights accumulate."""
    folder = tmp_path / "model"
    served.times(folder / "1", 1.0)
    [model] = models.find(folder)
    model.refresh(settled=False)
    before = weakref.ref(model.current._loaded)
    gc.disable()
    try:
        for number in range(2, 6):
            served.times(folder / str(number), 1.0)
            model.refresh(settled=False)
            assert model.current.number == number
            assert before() is None
            before = weakref.ref(model.current._loaded)
    finally:
        gc.enable()


def test_exhausted_memory_is_a_memory_error():
    def call(x):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")

    with pytest.raises(MemoryError, match="OOM when allocating"):
        models.Signature({}, {}, call)(X)


def test_input_names_are_those_of_the_saved_model(tmp_path):
    """The loaded Python function renames inputs to identifiers."""
    specs = [tf.TensorSpec([None], name=name) for name in ("a-1", "2.b")]
    serve = tf.function(lambda *values: {"sum": values[0] + values[1]}, input_signature=specs)
    version = models.load(served.save(tf.Module(), tmp_path / "1", serve), 1)
    signature = version.signature("serving_default")
    names = version.definitions["serving_default"]["inputs"]
    assert set(signature.inputs) == set(names) == {"a-1", "2.b"}
    assert signature(dict.fromkeys(names, X["x"]))["sum"].tolist() == [6.0]


def test_labels_may_contain_unusual_spaces_and_joiners(tmp_path):
    labels = ["a\xa0b", "c\u3000d", "\U0001f469\u200d\U0001f4bb"]
    model = keras_bert.heads.classifier(tiny.encoder(num_hidden_layers=1), labels=labels)
    assert models.load(keras_bert.export(model, tmp_path), 1).labels == labels


def test_labels_and_example_of_an_export(tmp_path):
    served.head("classification", tmp_path / "reviews")
    version = models.load(tmp_path / "reviews" / "1", 1)
    assert version.labels == ["bad", "good", "좋음"]
    assert version.example() == "your text"
    assert set(version.signatures) == {"serving_default", "ids"}
    assert version.signatures["ids"].inputs["input_word_ids"] == ("int32", (None, None))
