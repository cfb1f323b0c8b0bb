"""Commands that compute with the graph of an ONNX or OpenVINO export."""

import re
import subprocess
import sys

import pytest

import keras_bert
from keras_bert import heads
from tests import tiny
from tests.cli.shared import run


def exported(model, folder, format):
    """Save and export a model; return the two paths."""
    saved = folder / "saved.keras"
    keras_bert.save(model, saved)
    return saved, keras_bert.export(model, folder / "exported", format=format)


@pytest.fixture(params=["onnx", "openvino"])
def format(request):
    if request.param == "openvino":
        pytest.importorskip("openvino")
    return request.param


def outputs(capsys, command, models, *arguments):
    """Return what a command prints for each of some models."""
    printed = []
    for model in models:
        assert run(command, model, *arguments) == 0
        printed.append(capsys.readouterr().out)
    return printed


@pytest.mark.filterwarnings("ignore:.* were truncated")
def test_predict_and_evaluate(tmp_path, capsys, format, eager):
    encoder = tiny.encoder(num_hidden_layers=1)
    model = heads.classifier(encoder, labels=["good", "bad"])
    rows = "so good\tgood\nbad\tbad\n" * 4 + "bad " * 30 + "\tbad\n"
    (file := tmp_path / "a.tsv").write_text(f"review\tkind\n{rows}", encoding="utf-8")
    train = keras_bert.read(file, text="review", label="kind")
    model, _ = keras_bert.finetune(model, train, epochs=1, max_length=8)
    models = exported(model, tmp_path, format)
    expected, actual = outputs(capsys, "predict", models, "so good", "한국어", "good " * 20)
    assert actual == expected
    assert len(actual.splitlines()) == 3
    # The columns are those of the training.
    expected, actual = outputs(capsys, "evaluate", models, "--input", file)
    assert actual == expected
    assert "texts truncated" in actual
    assert run("predict", models[1], "so good", "--engine", "keras") == 1
    assert "an export, which cannot be loaded" in capsys.readouterr().err
    assert run("predict", models[0], "so good", "--engine", format) == 1
    assert re.search(f"has no graph of the engine '{format}'", capsys.readouterr().err)


def test_a_search_computes_the_vectors_of_another_export_anew(tmp_path, capsys):
    (file := tmp_path / "a.tsv").write_text("text\nso good\nbad film\n", encoding="utf-8")
    scores = []
    for pooling in ("mean", "max"):
        model = heads.embedder(tiny.encoder(num_hidden_layers=1), pooling=pooling)
        folder = keras_bert.export(model, tmp_path / pooling, format="onnx")
        assert run("search", file, "bad film", "--model", folder) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert first == "1.0000\t2\tbad film"
        scores.append(second)
    assert scores[0] != scores[1]


def test_keras_is_not_imported(tmp_path):
    model = heads.classifier(tiny.encoder(num_hidden_layers=1), labels=["good", "bad"])
    folder = keras_bert.export(model, tmp_path / "exported", format="onnx")
    (file := tmp_path / "a.tsv").write_text("text\tlabel\nso good\tgood\nbad\tbad\n")
    program = (
        "import sys\n"
        "from keras_bert.__main__ import main\n"
        "_, folder, file = sys.argv\n"
        "assert main(['predict', folder, 'so good']) == 0\n"
        "assert main(['evaluate', folder, '--input', file]) == 0\n"
        "assert not {'keras', 'tensorflow', 'jax', 'torch'} & sys.modules.keys()\n"
    )
    command = [sys.executable, "-c", program, str(folder), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
