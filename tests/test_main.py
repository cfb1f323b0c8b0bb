"""The command line, from a file to an exported model, and what it says when things are wrong."""

import json

import pytest

import keras_bert
from keras_bert.__main__ import main
from tests import tiny

ROWS = "text\tlabel\n" + "so good\tgood\nso bad\tbad\n" * 8


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    keras_bert.save(tiny.encoder(), folder)
    return str(folder)


@pytest.fixture(scope="module")
def trained(encoder_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    file = folder / "rows.tsv"
    file.write_text(ROWS)
    arguments = ["--train", str(file), "--dev", str(file), "--output", str(folder / "model")]
    status = main(["finetune", "--model", encoder_folder, *arguments, "--epochs", "1"])
    assert status == 0
    return folder


def test_finetune_leaves_a_model_and_its_metrics(trained):
    assert sorted(path.name for path in (trained / "model").iterdir()) == [
        "metrics.json",
        "model.keras",
    ]
    metrics = json.loads((trained / "model" / "metrics.json").read_text())
    assert metrics["majority"] == 0.5
    assert 0 <= metrics["accuracy"] <= 1


def test_info(trained, encoder_folder, capsys):
    assert main(["info", str(trained / "model")]) == 0
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert lines["labels"] == "bad, good"
    assert lines["hidden_size"] == "8"
    assert main(["info", encoder_folder]) == 0


def test_predict_texts_and_files(trained, capsys, tmp_path):
    model = str(trained / "model")
    assert main(["predict", model, "so good", "한국어"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[2] for line in lines] == ["so good", "한국어"]
    output = tmp_path / "answers.tsv"
    assert (
        main(["predict", model, "--input", str(trained / "rows.tsv"), "--output", str(output)]) == 0
    )
    rows = output.read_text().splitlines()
    assert rows[0] == "label\tscore"
    assert len(rows) == 17


def test_export(trained, tmp_path, capsys):
    assert main(["export", str(trained / "model"), str(tmp_path / "served")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "served" / "1")
    assert (tmp_path / "served" / "1" / "saved_model.pb").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "no-such-model"], "'no-such-model' is no folder and no known name"),
        (["finetune", "--train", "missing.tsv", "--output", "x"], "missing.tsv: No such file"),
        (["finetune", "--train", "{rows}", "--text", "t", "--output", "x"], "has no column 't'"),
        (["predict", "{model}"], "predict takes texts or --input, one of them"),
        (["predict", "{model}", "a", "--input", "b"], "predict takes texts or --input"),
        (["predict", "{encoder}", "a"], "must be a classifier"),
        (["export", "{encoder}", "x"], "must end in a head"),
        (["predict", "{rows}", "a"], "must be a folder or a .keras file"),
    ],
)
def test_errors_are_one_line(
    trained, encoder_folder, capsys, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    names = {"rows": trained / "rows.tsv", "model": trained / "model", "encoder": encoder_folder}
    assert main([argument.format(**names) for argument in arguments]) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("keras-bert: ")
    assert message in error
    assert "\n" not in error


def test_bad_options_are_refused_by_the_parser(capsys):
    for option, value in (("--epochs", "0"), ("--max-length", "2"), ("--learning-rate", "-1")):
        with pytest.raises(SystemExit):
            main(["finetune", "--train", "a", "--output", "b", option, value])
        assert value in capsys.readouterr().err


def test_interrupt_is_no_traceback(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(keras_bert.hub, "load", interrupted)
    assert main(["info", "minilm"]) == 130
    assert capsys.readouterr().err == "keras-bert: stopped\n"
