"""`evaluate`, `predict`, `embed` and `fill`."""

import json
import logging
import os
import re
import shutil
import warnings

import numpy as np
import pytest

import keras_bert
from keras_bert.data import tabular
from tests import tiny
from tests.cli.shared import ASKED, TASKS, run
from tests.parameters import fast

pytestmark = pytest.mark.usefixtures("eager")


# The other tasks share their code with classification.
FAST = ("classification", "tagging", "question-answering", "multiple-choice")
ANSWERS = {"multi-label": 12, "question-answering": 4, "multiple-choice": 4}
ANSWERS |= dict.fromkeys(("classification", "pair", "regression", "tagging"), 8)
PICTURED = ("classification", "pair", "tagging")


@pytest.mark.parametrize("task", fast(TASKS, *FAST))
def test_each_task_from_file_to_answers(trained, task, tmp_path, capsys):
    name, _, _, metric, lines, pattern = TASKS[task]
    folder = trained(task)
    pictures = {"curves.png"} | ({"confusion_matrix.png"} if task in PICTURED else set())
    files = {file.name for file in (folder / "model").iterdir()}
    assert files == {"metrics.json", "model.keras", *pictures}
    metrics = json.loads((folder / "model" / "metrics.json").read_text())
    assert (metrics["metric"], metrics["best_epoch"], len(metrics["history"])) == (metric, 1, 1)
    assert metrics["train"] == metrics["dev"] == name  # without the folder
    capsys.readouterr()

    # The columns are those of the training, without a word of them.
    assert run("evaluate", folder / "model", "--input", folder / name) == 0
    found = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert float(found[metric]) == pytest.approx(metrics[metric], abs=1e-3)

    output = tmp_path / "answers"
    arguments = ["--input", folder / name, "--output", output]
    assert run("predict", folder / "model", *arguments) == 0
    assert capsys.readouterr().out == f"{ANSWERS[task]} answers in {output}\n"
    written = output.read_text().splitlines()
    assert len(written) == lines
    first = written[0] if task == "tagging" else written[1]
    assert re.fullmatch(pattern, first), first
    assert [file.name for file in tmp_path.iterdir()] == ["answers"]


@pytest.mark.parametrize("task", fast(ASKED, *FAST))
def test_each_task_from_the_command_line(trained, task, capsys):
    texts, lines = ASKED[task]
    folder = trained(task)
    capsys.readouterr()
    assert run("predict", folder / "model", "--batch-size", 2, *texts) == 0
    written = capsys.readouterr().out.splitlines()
    assert len(written) == lines
    if task == "multi-label":  # whose probabilities have no other names
        assert re.fullmatch(r"labels(\t[a-z]+){3}\ttext", written.pop(0))
    if task in ("classification", "multi-label", "regression"):
        assert [line.split("\t")[-1] for line in written] == texts
    if task == "pair":
        assert written[0].split("\t")[2:] == texts
    if task == "multiple-choice":
        index, _, chosen = written[0].split("\t")
        assert chosen == texts[1:][int(index)]


def test_texts_with_surrogates_are_written(trained, tmp_path):
    file, output = tmp_path / "a.jsonl", tmp_path / "answers.jsonl"
    file.write_text('{"text": "so \\ud800 good"}\n')
    arguments = ["--input", file, "--output", output]
    assert run("predict", trained("classification") / "model", *arguments) == 0
    assert json.loads(output.read_text())["text"] == "so ? good"


@pytest.mark.parametrize("ending", fast(["jsonl", "csv", "tsv"], "csv"))
def test_an_interrupted_run_is_continued(trained, tmp_path, monkeypatch, capsys, ending):
    model = shutil.copytree(trained("classification") / "model", tmp_path / "model")
    before = {path.name for path in model.iterdir()}
    file, whole = tmp_path / "in.tsv", tmp_path / f"whole.{ending}"
    output = model / f"answers.{ending}"  # in this folder, it is not another version of the model
    file.write_text("text\n" + "".join(f"good {'so ' * (n % 50)}\n" for n in range(9)))
    capsys.readouterr()
    assert run("predict", model, "--input", file, "--output", whole) == 0
    told = capsys.readouterr().err
    read = tabular.read_in_parts
    stop_after = 2

    def in_twos(*args, **options):
        for number, part in enumerate(read(*args, **options, size=2)):
            if number == stop_after:
                raise KeyboardInterrupt
            yield part

    monkeypatch.setattr(tabular, "read_in_parts", in_twos)
    arguments = ["predict", model, "--input", file, "--output", output]
    assert run(*arguments) == 130
    assert not output.exists()
    stop_after = None
    capsys.readouterr()
    assert run(*arguments, "--batch-size", 3) == 0, "other options begin anew"
    assert "resuming" not in capsys.readouterr().err
    stop_after = 2
    assert run(*arguments) == 130
    stop_after = None
    os.utime(model / "metrics.json")
    assert run(*arguments) == 0, "so does another version of the model"
    assert "resuming" not in capsys.readouterr().err
    stop_after = 2
    assert run(*arguments) == 130
    stop_after = None
    capsys.readouterr()
    assert run(*arguments) == 0
    assert capsys.readouterr().err == "resuming after 4 rows\n" + told
    assert output.read_bytes() == whole.read_bytes()
    assert {path.name for path in model.iterdir()} == before | {output.name}


def test_what_a_link_names_is_written(trained, encoder_folder, tmp_path):
    file, link, texts = tmp_path / "out.npy", tmp_path / "link.npy", tmp_path / "texts.tsv"
    link.symlink_to(file)
    texts.write_text("text\nso good\n")
    assert run("embed", encoder_folder, "--input", texts, "--output", link) == 0
    assert link.is_symlink() and np.load(file).shape == (1, 8)
    link, file = tmp_path / "link.tsv", tmp_path / "out.tsv"
    link.symlink_to(file)
    model = trained("classification") / "model"
    assert run("predict", model, "so good", "--output", link) == 0
    assert link.is_symlink() and file.read_text().endswith("so good\n")


def test_a_dash_is_standard_output(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert run("predict", trained("classification") / "model", "so good", "--output", "-") == 0
    assert re.fullmatch(r"(good|bad)\t\d\.\d{4}\tso good\n", capsys.readouterr().out)
    assert list(tmp_path.iterdir()) == []


def test_warnings_are_lines(monkeypatch, capsys):
    def load(name, **options):
        warnings.warn("this is\n  odd", stacklevel=2)
        logging.getLogger("tensorflow").warning("5 out of the last 9 calls")
        raise ValueError("the end")

    monkeypatch.setattr(keras_bert, "load", load)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run("info", "minilm") == 1
    assert capsys.readouterr().err == "keras-bert: this is odd\nkeras-bert: the end\n"


def test_what_is_not_read_is_told_beside_the_answers(trained, encoder_folder, tmp_path, capsys):
    texts, vectors = tmp_path / "texts.tsv", tmp_path / "vectors.npy"
    texts.write_text("text\n" + "so good " * 40 + "\n\u200b\n")
    capsys.readouterr()
    assert run("predict", trained("classification") / "model", "--input", texts) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 3
    told = [
        "texts truncated to the maximum length (--max-length of finetune): 1",
        "texts that are empty or contain only invisible characters: 1",
    ]
    assert said.err.splitlines() == told
    assert run("embed", encoder_folder, "--input", texts, "--output", vectors) == 0
    assert capsys.readouterr().err.splitlines() == told


def test_a_failure_leaves_no_half_written_answers(trained, tmp_path, monkeypatch, capsys):
    file = tmp_path / "a.tsv"
    file.write_text("text\tx\nso good\tb\nso bad\n")
    before = tmp_path / "answers"
    before.write_text("of another run")
    folder = trained("classification")
    assert run("predict", folder / "model", "--input", file, "--output", before) == 1
    assert before.read_text() == "of another run"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.tsv", "answers"]


def test_vectors_with_nan_are_not_written(tmp_path, capsys):
    encoder = tiny.encoder(pooling="mean")
    for variable in encoder.trainable_variables:
        variable.assign(variable * 1e37)  # overflows
    keras_bert.save(encoder, tmp_path / "damaged.keras")
    output = tmp_path / "v.npy"
    (file := tmp_path / "a.tsv").write_text("text\nso good\n")
    assert run("embed", tmp_path / "damaged.keras", "--input", file, "--output", output) == 1
    assert "returned NaN in float32" in capsys.readouterr().err
    assert not output.exists()
