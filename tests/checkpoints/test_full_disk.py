"""A full disk while a model is written."""

import errno
import os
import pathlib
import zipfile

import pytest
import tensorflow as tf

import keras_bert
from keras_bert.checkpoints import tensor_files
from keras_bert.hub import model_archives, resolve
from tests import prose, tiny


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_save_names_the_folder(tmp_path, monkeypatch):
    class SafetensorError(Exception):
        """Like that of safetensors."""

    def write(*_):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(tensor_files, "write", write)
    with pytest.raises(OSError, match="No space left on device") as caught:
        keras_bert.save(tiny.encoder(), tmp_path / "a", format="huggingface")
    assert str(tmp_path) in str(caught.value) and not any(tmp_path.iterdir())


def test_export_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(pathlib.Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        keras_bert.export(tiny.encoder(), tmp_path / "a", format="onnx")
    assert str(tmp_path) in str(caught.value) and not any(tmp_path.iterdir())


def test_a_saved_model_names_the_folder(tmp_path, monkeypatch):
    def write(module, folder, **_):
        message = f"{folder}/variables/variables; No space left on device\n\t[[node]]"
        raise tf.errors.ResourceExhaustedError(None, None, message)

    monkeypatch.setattr(tf.saved_model, "save", write)
    model = keras_bert.heads.classifier(tiny.encoder(num_hidden_layers=1), 2)
    with pytest.raises(OSError, match="No space left on device") as caught:
        keras_bert.export(model, tmp_path / "a")
    assert caught.value.filename == str(tmp_path / "a") and not any((tmp_path / "a").iterdir())


def test_records_name_the_file(tmp_path, monkeypatch):
    class Writer:
        def __init__(self, path):
            self.path = path

        def write(self, record):
            message = f"{self.path}; No space left on device"
            raise tf.errors.ResourceExhaustedError(None, None, message)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    monkeypatch.setattr(tf.io, "TFRecordWriter", Writer)
    with pytest.raises(OSError, match="No space left on device") as caught:
        prose.build(tmp_path, prose.documents(2))
    assert caught.value.filename == str(tmp_path / "records" / "train-00000.tfrecord")


def test_the_cache_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "")
    monkeypatch.setattr(model_archives.archives, "unpack", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        resolve.find(tmp_path / "a.zip")
    assert str(tmp_path / "cache") in str(caught.value)
