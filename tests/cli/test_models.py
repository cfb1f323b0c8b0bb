"""`info`, `convert` and `export`."""

import json
import pathlib
import re

import numpy as np
import pytest
import safetensors.numpy

import keras_bert
from tests import tiny
from tests.cli.shared import run

pytestmark = pytest.mark.usefixtures("eager")


def test_info(encoder_folder, tmp_path, capsys):
    encoder = tiny.encoder(num_hidden_layers=1)
    model = keras_bert.heads.classifier(encoder, labels=["other", "same"], pairs=True)
    keras_bert.save(model, tmp_path)
    assert run("info", tmp_path) == 0
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert (lines["task"], lines["labels"]) == ("classification of pairs", "other, same")
    assert lines["hidden_size"] == "8"
    assert run("info", encoder_folder) == 0


def test_export(trained, tmp_path, capsys):
    folder = trained("classification")
    capsys.readouterr()
    options = ("--precision", "bfloat16", "--dev", folder / "a.tsv")
    assert run("export", folder / "model", tmp_path / "served", *options) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "served" / "1")
    assert (tmp_path / "served" / "1" / "saved_model.pb").is_file()
    page = (tmp_path / "served" / "README.md").read_text()
    metrics = json.loads((folder / "model" / "metrics.json").read_text())
    assert f"| accuracy | {metrics['accuracy']:.4g} |" in page and "| trained on | a.tsv |" in page
    assert "unknown. Check it before" in page and str(folder) not in page
    assert "| precision | bfloat16 |" in page and "examples, 100.00% of the answers" in page
    for name in ("served", "served/1"):
        assert run("info", tmp_path / name) == 1
        assert "is an export, which cannot be loaded" in capsys.readouterr().err
        assert run("serve", tmp_path / name, "--port", "0") == 1
        assert "served/1: a SavedModel is a program" in (error := capsys.readouterr().err)
        assert "--trusted" in error


def test_the_export_of_an_encoder_names_both_models(encoder_folder, tmp_path, monkeypatch, capsys):
    version = tmp_path / "encoder" / "1"
    monkeypatch.setattr(keras_bert, "export", lambda *_, **options: version)
    assert run("export", encoder_folder, tmp_path) == 0
    encoder, preprocessor = capsys.readouterr().out.splitlines()
    assert encoder == str(version)
    assert preprocessor.endswith(str(tmp_path / "preprocess"))


def test_export_takes_a_license(tmp_path, monkeypatch):
    said = {}
    monkeypatch.setattr(keras_bert, "load", lambda name, **options: None)

    def export(model, path, **options):
        said.update(options)
        return pathlib.Path(path, "1")

    monkeypatch.setattr(keras_bert, "export", export)
    for options, expected in (([], None), (["--license", "MIT"], "MIT")):
        assert run("export", "minilm", tmp_path / "there", *options) == 0
        assert said.pop("license") == expected
        assert said.pop("format") == "saved_model"
        assert set(said.values()) == {None}


def test_convert(tmp_path, capsys):
    encoder = tiny.encoder(num_hidden_layers=1)  # with exact gelu
    keras_bert.save(keras_bert.heads.pretraining(encoder), tmp_path / "start")
    assert run("convert", tmp_path / "start", tmp_path / "a", "--to", "google") == 1
    error = capsys.readouterr().err
    assert re.search("hidden_act must be gelu_new, .*received 'gelu'", error)
    google = ("convert", tmp_path / "start", tmp_path / "a", "--to", "google")
    assert run(*google, "--hidden-act", "gelu_new") == 0
    said = "google: encoder, masked_lm, next_sentence, pooler: 26 weights in "
    assert capsys.readouterr().out == f"{said}{tmp_path / 'a'}\n"
    hub = ("convert", tmp_path / "a", tmp_path / "b", "--to", "keras_hub")
    assert run(*hub) == 1
    error = capsys.readouterr().err
    assert "received masked_lm, next_sentence; drop next_sentence" in error
    theirs = ("convert", tmp_path / "a", tmp_path / "d", "--to", "huggingface")
    assert run(*theirs, "--drop", "next_sentence") == 1
    assert "; drop pooler for BertForMaskedLM" in capsys.readouterr().err
    assert run(*theirs, "--drop", "next_sentence", "--drop", "pooler") == 0
    assert run(*hub, "--drop", "next_sentence") == 0
    assert run("convert", tmp_path / "b", tmp_path / "c", "--to", "keras") == 0
    model = keras_bert.load(tmp_path / "c", task="masked_tokens")
    weights = keras_bert.heads.find_encoder(model).weights
    for ours, theirs in zip(encoder.weights, weights, strict=True):
        assert (ours.numpy() == theirs.numpy()).all()
    assert run("convert", tmp_path / "b", tmp_path / "c", "--to", "huggingface") == 1
    assert "must be an empty folder" in capsys.readouterr().err


def test_convert_leaves_out_unknown_tensors(tmp_path, capsys):
    keras_bert.save(tiny.encoder(), tmp_path / "a", format="huggingface")
    file = tmp_path / "a" / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    safetensors.numpy.save_file({**tensors, "cls.chain.weight": np.ones(3, np.float32)}, file)
    arguments = ["convert", tmp_path / "a", tmp_path / "b", "--to", "keras"]
    assert run(*arguments) == 1
    assert "unknown (1): cls.chain.weight" in capsys.readouterr().err
    assert run(*arguments, "--ignore", "cls.chain.*") == 0
    assert keras_bert.load(tmp_path / "b").count_params() == tiny.encoder().count_params()
