"""Options, errors and exit statuses of the command line."""

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

import keras_bert
from keras_bert.__main__ import _check_files, main
from keras_bert.cli import options
from keras_bert.cli.parser import parse
from keras_bert.pretraining import vocabulary
from tests import prose, tiny
from tests.cli.shared import TEXTS

pytestmark = pytest.mark.usefixtures("eager")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("info no-such-model", "'no-such-model' is neither a folder nor"),
        ("finetune --output x", "finetune needs --train or --glue"),
        ("finetune --glue RTE --train {rows} --output x", "Give either --glue or the others"),
        ("finetune --glue RTE --task pair --output x", "--dev and --task. Give"),
        ("finetune --glue sst --output x", "sst: must be one of GLUE's tasks, CoLA"),
        ("finetune --train missing.tsv --output x", "missing.tsv: No such file"),
        ("finetune --train {rows} --text t --output x", "has no column 't'"),
        ("finetune --train {rows} --task pair --output x", "needs --text-pair"),
        ("finetune --train {rows} --task question-answering --output x", "a.tsv is not JSON"),
        ("predict {model}", "give either texts or --input"),
        ("predict {model} a --input {rows}", "give either texts or --input"),
        ("predict {model} {rows}", "a.tsv is a file. To read it, give --input "),
        ("predict {model} --input missing", "missing: No such file"),
        ("predict {model} a --output no/such", "no/such does not exist"),
        ("predict {encoder} a", "fine-tune it first"),
        ("predict {qa} a", "needs two texts, a question and a context"),
        ("predict {choice} a b", "the choices must be a list of at least two"),
        ("predict {pair} --input {rows}", "has no column 'other'; its columns are text"),
        (
            "predict {pair} --input {rows} --text text",
            "the task pair needs --text-pair, the column of the",
        ),
        ("predict {pair} a", "give the two texts of a pair, or --input; received 1"),
        ("predict {pair} a b c d", "give the two texts of a pair, or --input; received 4"),
        ("predict {model} a --output a.json", "question answering; use .jsonl"),
        (
            "predict {qa} a b --probabilities",
            "--probabilities needs a model with classes or choices; ",
        ),
        ("evaluate {model} --input {rows} --label x", "has no column 'x'"),
        ("fill {encoder} 'a [MASK]'", "has no masked LM head. Use a checkpoint"),
        ("fill {model} 'a [MASK]'", "has no masked LM head. Use a checkpoint"),
        ("predict {rows} a", "must be a folder or a .keras file"),
        ("vocab missing/*.txt --output x", "missing/*.txt: no such file, folder or"),
        ("vocab {nothing} --output x", "nothing.txt contains no documents"),
        ("vocab {rows} --output x", "size must be at most"),
        ("vocab {rows} --output no/such", "no/such does not exist"),
        ("vocab {cut} --output x", "cut.gz: this gzip file is damaged or truncated"),
        ("vocab {folder} --output {folder}/x", "x: must not be inside the corpus"),
        ("records missing/* --vocab a --output x", "missing/*: no such file"),
        ("records {rows} --vocab none --output x", "'none' is neither a folder"),
        ("records {rows} --vocab a --output no/such", "no/such does not exist"),
        ("records {nothing} --vocab {vocab} --output x", "the corpus contains no"),
        (
            "records {rows} --vocab {vocab} --output x --held-out 1",
            "held_out must be at least 0 and below 1; received 1.0",
        ),
        ("records {rows} --vocab {bare} --output x", "has no vocabulary"),
        ("pretrain --records none --output x", "none contains no records.json; make"),
        ("pretrain --records {records} --output no/such", "no/such does not exist"),
        (
            "pretrain --records {records} --output x --lengths 8 16 32",
            "--lengths takes one or two numbers; received 3",
        ),
        ("pretrain --records {records} --output x --config none.json", "none.json: No such file"),
        ("pretrain --records {records} --output x --config {rows}", "a.tsv cannot be read as JSON"),
        (
            "pretrain --records {records} --output x --config {list}",
            "list.json: must hold a JSON object",
        ),
        (
            "pretrain --records {records} --output x --model {encoder} --lengths 16",
            "another vocabulary of 52 tokens; received 18 tokens",
        ),
        (
            "pretrain --records {records} --output x --size tiny --batch-size 4 "
            "--gradient-accumulation-steps 3",
            "batch_size must be a multiple of gradient_accumulation_steps x devices",
        ),
        (
            "evaluate {model} --input {rows} --characters",
            "--characters does not apply to ",
        ),
        (
            "finetune --model {encoder} --train {rows} --output x --stride 4",
            "stride is not an option of finetune for Examples",
        ),
        (
            "finetune --train {rows} --task question-answering --format csv --output x",
            "reads one format only. Remove --format csv",
        ),
        (
            "predict {qa} a b --null-threshold 1",
            "--null-threshold needs a model for questions without an answer; ",
        ),
        (
            "predict {choice} --input {rows}",
            "a.tsv: format (--format) must be csv or jsonl; received 'tsv'",
        ),
    ],
)
def test_errors_are_one_line(
    trained, encoder_folder, capsys, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    names = {"encoder": encoder_folder}
    for name, task in (
        ("model", "classification"),
        ("qa", "question-answering"),
        ("choice", "multiple-choice"),
        ("pair", "pair"),
    ):
        if f"{{{name}}}" in arguments:
            names[name] = trained(task) / "model"
    if "{rows}" in arguments:
        names["rows"] = shutil.copy(trained("classification") / "a.tsv", tmp_path)
    if "{nothing}" in arguments:
        names["nothing"] = tmp_path / "nothing.txt"
        names["nothing"].write_text("\n \n")
    if "{cut}" in arguments:
        names["cut"] = tmp_path / "cut.gz"
        names["cut"].write_bytes(gzip.compress(b"Zab.\n" * 99)[:-9])
    if "{folder}" in arguments:
        names["folder"] = tmp_path
    if "{vocab}" in arguments:
        options = {"lowercase": True, "strip_accents": True, "split_cjk": True}
        names["vocab"] = tmp_path / "vocab"
        vocabulary.write(names["vocab"], prose.PIECES, **options)
    if "{bare}" in arguments:
        names["bare"] = tmp_path / "bare"
        keras_bert.save(tiny.encoder(num_hidden_layers=1, preprocessor=None), names["bare"])
    if "{records}" in arguments:
        names["records"] = prose.build(tmp_path, prose.documents(9)).folder
    if "{list}" in arguments:
        names["list"] = tmp_path / "list.json"
        names["list"].write_text("[1, 2]")
    capsys.readouterr()
    assert main([argument.format(**names) for argument in shlex.split(arguments)]) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("keras-bert: ")
    assert message in error
    assert "\n" not in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("finetune --train missing.tsv --output x", "missing.tsv: No such file"),
        ("finetune --train a.tsv --dev no --output x", "no: No such file"),
        ("finetune --train empty.tsv --output x", "empty.tsv is empty"),
        ("predict . --input folder", "folder: Is a directory"),
        ("evaluate . --input mising.tsv", "mising.tsv: No such file"),
        ("embed minilm --input empty.tsv --output x", "empty.tsv is empty"),
        ("predict my_modle a", "'my_modle' is neither a folder nor"),
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
    (tmp_path / "folder").mkdir()

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
    _check_files(options.Predict("minilm", input=str(pipe)))  # to open it would wait


def test_errors_of_the_parser_are_short(capsys):
    for arguments, message in (
        (["finetune", "--task", "taging"], "; did you mean tagging?\nsee keras-bert finetune --h"),
        (["predcit"], "; did you mean predict?\nsee keras-bert --help\n"),
        (["finetune"], "keras-bert finetune: the following arguments are required: --output\nsee "),
        (["finetune", "--epochs", "x", "--output", "b"], "argument --epochs: invalid positive int"),
        (["finetune", "--seed", "-1", "--output", "b"], "argument --seed: invalid seed (0 to 2^32"),
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


def test_bad_options_are_refused_by_the_parser(capsys):
    for option, value in (
        ("--epochs", "0"), ("--max-length", "2"), ("--learning-rate", "-1"), ("--warmup", "1.5"),
        ("--task", "chess"), ("--class-weight", "equal"), ("--gradient-accumulation-steps", "0"),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            main(["finetune", "--train", "a", "--output", "b", option, value])
        assert value in capsys.readouterr().err


@pytest.mark.parametrize("task", ["question-answering", "question_answering"])
def test_names_of_tasks_may_have_hyphens_or_underscores(task):
    _, args = parse(["finetune", "--task", task, "--output", "x"])
    assert args.task == "question_answering"


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
