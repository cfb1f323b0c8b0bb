"""Model folders: versions are found and loaded."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.server import models
from tests import served

X = {"x": np.float32([3])}


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Return folders of SavedModels that multiply by 2, 5 and 7."""
    folder = tmp_path_factory.mktemp("versions")
    return {factor: served.times(folder / str(factor), factor) for factor in (2.0, 5.0, 7.0)}


def ask(model):
    return model.signature("serving_default")(X)["y"].tolist()


def test_find_accepts_three_kinds_of_folder_and_gives_the_latest_version(versions, tmp_path):
    for name in ("a/1", "a/12", "b/0", "b/.writing-x", "c/not-a-number", "d/-1", "d/٣"):
        shutil.copytree(versions[2.0], tmp_path / name)
    (tmp_path / "README.md").touch()

    found = models.find
    everything = [("a", 12, tmp_path / "a" / "12"), ("b", 0, tmp_path / "b" / "0")]
    assert found(tmp_path) == everything
    assert found(tmp_path / "a") == everything[:1]
    assert found(tmp_path / "a" / "12") == everything[:1]
    assert found(tmp_path / "c" / "not-a-number")[0][0] == "not-a-number"
    assert found(tmp_path / "c") == found(tmp_path / "d") == found(tmp_path / "none") == []


def test_a_folder_that_is_no_version_is_version_1(versions, tmp_path):
    shutil.copytree(versions[2.0], tmp_path / "reviews")
    [(name, number, folder)] = models.find(tmp_path / "reviews")
    assert (name, number) == ("reviews", 1) and ask(models.load(folder, trusted=True)) == [6.0]


def test_a_broken_version_is_an_error_with_its_folder(versions, tmp_path):
    folder = shutil.copytree(versions[5.0], tmp_path / "2")
    (folder / "variables" / "variables.index").write_bytes(b"broken")
    with pytest.raises(ValueError, match="2 could not be loaded: "):
        models.load(folder, trusted=True)


def test_rejected_input_is_a_value_error_of_one_line(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def serve(text):
        return {"number": tf.strings.to_number(text)}

    folder = served.save(tf.Module(), tmp_path / "1", serve)
    model = models.load(folder, trusted=True)  # its warm-up with "" fails, too
    signature = model.signature("serving_default")
    assert signature({"text": np.array([b"2"], object)})["number"].tolist() == [2.0]
    with pytest.raises(ValueError, match="^StringToNumberOp could not .*: no$"):
        signature({"text": np.array([b"no"], object)})


def test_exhausted_memory_is_a_memory_error():
    def call(x):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")

    with pytest.raises(MemoryError, match="OOM when allocating"):
        models.Signature({}, {}, call)(X)


def test_input_names_are_those_of_the_saved_model(tmp_path):
    """The loaded Python function renames inputs to identifiers."""
    specs = [tf.TensorSpec([None], name=name) for name in ("a-1", "2.b")]
    serve = tf.function(lambda *values: {"sum": values[0] + values[1]}, input_signature=specs)
    version = models.load(served.save(tf.Module(), tmp_path / "1", serve), trusted=True)
    signature = version.signature("serving_default")
    names = version.definitions["serving_default"]["inputs"]
    assert set(signature.inputs) == set(names) == {"a-1", "2.b"}
    assert signature(dict.fromkeys(names, X["x"]))["sum"].tolist() == [6.0]
