"""Options, errors and exit statuses of the command line."""

import os
import re
import subprocess
import sys

import pytest

from keras_bert.__main__ import _check_files, main
from keras_bert.cli import options
from tests.cli.shared import TEXTS

pytestmark = pytest.mark.usefixtures("eager")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("finetune --train missing.tsv --output x", "missing.tsv: No such file"),
        ("finetune --train a.tsv --dev no --output x", "no: No such file"),
        ("finetune --train empty.tsv --output x", "empty.tsv is empty"),
        ("evaluate . --input mising.tsv", "mising.tsv: No such file"),
        ("embed minilm --input empty.tsv --output x", "empty.tsv is empty"),
        ("predict my_modle a", "'my_modle' is neither a folder nor"),
        ("predict . \udcc1\udcc1", "must be UTF-8; received \\udcc1"),
        ("search a.tsv \udcc1", "must be UTF-8"),
        ("predict my_model.keras a", "my_model.keras: No such file"),
        ("finetune --model bas --train a.tsv --output x", "nor a known model"),
    ],
)
def test_a_wrong_path_is_told_before_tensorflow_starts(
    tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text(TEXTS)
    (tmp_path / "empty.tsv").touch()

    def started():
        raise AssertionError("it would start")

    monkeypatch.setattr("keras_bert.__main__.quiet_imports", started)
    assert main(arguments.split()) == 1
    error = capsys.readouterr().err
    assert error.startswith("keras-bert: ") and error.count("\n") == 1
    assert message in error


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_what_a_pipe_holds_is_not_read_by_the_check(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    _check_files(options.Predict(model="minilm", input=str(pipe)))  # to open it would wait


def test_errors_of_the_parser_are_short(capsys):
    for arguments, message in (
        (["predcit"], "invalid choice: 'predcit'"),
        (["finetune"], "keras-bert finetune: the following arguments are required: --output\nsee "),
        (["finetune", "--epochs", "x", "--output", "b"], "argument --epochs: invalid positive int"),
        (
            ["finetune", "--output", "b", "--lr", "3"],
            "keras-bert finetune: unrecognized arguments: --lr 3\nsee keras-bert finetune --help\n",
        ),
    ):
        with pytest.raises(SystemExit) as raised:
            main(arguments)
        error = capsys.readouterr().err
        assert raised.value.code == 2 and message in error
        assert error.count("\n") == 2 and "usage" not in error


def test_without_a_command_there_is_help(capsys):
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("usage: keras-bert") and "finetune" in said.out and not said.err


def test_help_has_groups_types_and_defaults(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit):
        main(["pretrain", "--help"])
    help = " ".join(capsys.readouterr().out.split())
    assert (
        "--lengths LENGTHS [LENGTHS ...] sequence length of each phase (default: 128 512)" in help
    )
    assert "recipe; the defaults are those of the paper: --steps STEPS optimizer steps" in help
    assert "--optimizer {adamw,lamb}" in help and "(default: 15%)" in help


def test_list_needs_no_keras(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["NAME", "CASE"]
    assert any(line.startswith("base-multilingual-cased ") for line in lines)
    done = subprocess.run(
        [sys.executable, "-m", "keras_bert", "list"],
        env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[0].split() == lines[0].split()
    assert not re.search(r"\| +(keras|tensorflow|huggingface_hub|numpy)\n", done.stderr)


def test_interrupt_is_no_traceback(monkeypatch, capsys):
    for known, said in (((), "stopped"), (("stopped at step 3",), "stopped at step 3")):

        def interrupted(name, known=known, **options):
            raise KeyboardInterrupt(*known)

        monkeypatch.setattr("keras_bert.hub.loading.load", interrupted)
        assert main(["info", "minilm"]) == 130
        assert capsys.readouterr().err == f"keras-bert: {said}\n"
