"""`info`, `convert` and `export`."""

import json
import re

import numpy as np
import pytest

import keras_bert
from tests import served, tiny
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
    exported = tmp_path / "exported"
    assert run("export", folder / "model", exported, "--format", "onnx") == 0
    assert capsys.readouterr().out.strip() == str(exported)
    page = (exported / "README.md").read_text()
    metrics = json.loads((folder / "model" / "metrics.json").read_text())
    assert f"| accuracy | {metrics['accuracy']:.4g} |" in page and "| trained on | a.tsv |" in page
    assert "unknown. Check it before" in page and str(folder) not in page
    assert run("info", exported) == 1
    assert "is an export, which cannot be loaded" in capsys.readouterr().err


def test_a_saved_model_is_served_only_if_it_is_trusted(tmp_path, capsys):
    served.times(tmp_path / "served" / "1", 2.0)
    for name in ("served", "served/1"):
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


def test_convert(tmp_path, capsys):
    encoder = tiny.encoder(num_hidden_layers=1)  # with exact gelu
    keras_bert.save(keras_bert.heads.pretraining(encoder), tmp_path / "start")
    google = ("convert", tmp_path / "start", tmp_path / "a", "--to", "google")
    assert run(*google) == 1
    error = capsys.readouterr().err
    assert re.search("hidden_act must be gelu_new, .*received 'gelu'", error)
    assert run(*google, "--hidden-act", "gelu_new") == 0
    said = "google: encoder, masked_lm, next_sentence, pooler: 26 weights in "
    assert capsys.readouterr().out == f"{said}{tmp_path / 'a'}\n"
    theirs = ("convert", tmp_path / "a", tmp_path / "b", "--to", "huggingface")
    assert run(*theirs, "--drop", "next_sentence") == 1
    assert "; drop pooler for BertForMaskedLM" in capsys.readouterr().err
    assert run(*theirs, "--drop", "next_sentence", "--drop", "pooler") == 0
    model = keras_bert.load(tmp_path / "b", task="masked_tokens")
    table = keras_bert.heads.find_encoder(model).get_layer("embeddings").weights[0]
    np.testing.assert_array_equal(table, encoder.get_layer("embeddings").weights[0])
    assert run(*theirs) == 1
    assert "must be an empty folder" in capsys.readouterr().err
