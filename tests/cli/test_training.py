"""`finetune`."""

import json
import re
import signal
import subprocess
import sys
import types

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.cli import reading
from keras_bert.data import tabular
from keras_bert.runtime import distribution, files
from keras_bert.tasks.question_answering import data as squad
from keras_bert.training import finetuning
from tests import tiny
from tests.checkpoints.huggingface_files import edit_json
from tests.cli.shared import SCORES, TEXTS, run
from tests.parameters import slow

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture
def calls(monkeypatch):
    """What `finetune` is called with; nothing is trained."""
    made = []

    def finetune(encoder, *args, **options):
        made.append((encoder, args, options))
        raise ValueError("that is enough")

    monkeypatch.setattr(finetuning, "finetune", finetune)
    return made


def test_what_is_given_is_not_searched(texts, monkeypatch, encoder_folder, tmp_path):
    seen = []

    def grid(encoder, examples, dev, **options):
        seen.append(options)
        raise ValueError("that is enough")

    monkeypatch.setattr("keras_bert.training.search.grid", grid)
    common = ["finetune", "--model", encoder_folder, "--train", texts, "--dev", texts, "--search"]
    run(*common, "--output", tmp_path / "out", "--epochs", 1, "--batch-size", 4)
    assert seen[0]["choices"] == {"learning_rate": (5e-5, 3e-5, 2e-5)}
    assert (seen[0]["epochs"], seen[0]["batch_size"]) == (1, 4)


@pytest.mark.parametrize("is_faster", [True, False])
def test_dtype_auto(is_faster, monkeypatch, capsys):
    """On torch, which has no `keras.distribution`."""
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    monkeypatch.setattr(distribution, "has_accelerator", lambda: False)
    monkeypatch.setattr(distribution, "is_faster_in_bfloat16", lambda: is_faster)
    monkeypatch.setattr(keras.distribution, "list_devices", None)
    dtype = "mixed_bfloat16" if is_faster else "float32"
    assert reading.dtype_of(types.SimpleNamespace(dtype="auto")) == dtype
    assert capsys.readouterr().out == f"--dtype auto: {dtype}\n"


def test_nothing_of_another_run_stays(texts, encoder_folder, tmp_path, capsys):
    (scores := tmp_path / "b.tsv").write_text("text\tlabel\na good film\t1\na bad film\t2\n")
    common = ["finetune", "--model", encoder_folder, "--output", tmp_path / "out", "--epochs", 1]
    assert run(*common, "--train", texts, "--dev", texts) == 0
    assert (tmp_path / "out" / "confusion_matrix.png").is_file()
    capsys.readouterr()
    assert run(*common, "--task", "regression", "--train", scores) == 0
    assert f"this run will replace the model in {tmp_path / 'out'}" in capsys.readouterr().err
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left == {"model.keras", "metrics.json", "curves.png"}
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert (metrics["task"], metrics["recipe"]["epochs"]) == ("regression", 1)
    assert (metrics["recipe"]["freeze"], metrics["recipe"]["dtype"]) == (False, "float32")


@pytest.mark.slow
def test_a_full_disk_at_the_end_costs_no_run(texts, encoder_folder, tmp_path, monkeypatch, capsys):
    common = ["finetune", "--model", encoder_folder, "--train", texts, "--output", tmp_path / "out"]

    def full(*args, **options):
        raise OSError(28, "No space left on device", "model.keras")

    with monkeypatch.context() as patch:
        patch.setattr(keras_bert, "save", full)
        assert run(*common, "--epochs", 1) == 1
    assert "model.keras: No space left on device" in capsys.readouterr().err
    # A model that is not there yet is not taken for one.
    assert run("evaluate", tmp_path / "out", "--input", texts) == 1
    assert "has an unfinished run" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(keras.Model, "fit", None)  # it would be called
        assert run(*common, "--epochs", 1) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"model.keras", "metrics.json"}
    assert not (tmp_path / "out" / "training.npz").exists()


def test_what_was_not_read_or_learned_is_told():
    train, dev = (
        tabular.Examples(["a"], source=name, ragged_rows=rows)
        for name, rows in (("a.tsv", 2), ("b.tsv", 3))
    )
    told = list(reading.notes(train, dev, {"truncated": 4, "dev_truncated": 5}))
    assert [line.rpartition(": ")[2] for line in told] == [
        "2 (a.tsv)", "4 (a.tsv)", "3 (b.tsv)", "5 (b.tsv)"
    ]  # fmt: skip
    questions = squad.Questions(["a", "a"], ["c b", "c"], [[("b", 0)], [("x", 0)]], source="a.json")
    moved, lost = reading.notes(questions)
    assert "not at the position" in moved and "do not occur in their context" in lost


@pytest.mark.slow
def test_the_broken_rows_of_qqp_are_left_out_when_it_is_scored_too(
    encoder_folder, tmp_path, capsys
):
    folder = tmp_path / "QQP"
    folder.mkdir()
    rows = "good\tso good\t1\nbad\tso good\t0\n" * 3 + "torn\n"
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text(f"question1\tquestion2\tis_duplicate\n{rows}")
    common = ["--epochs", 1, "--model", encoder_folder, "--output", tmp_path / "out"]
    assert run("finetune", "--glue", folder, *common) == 0
    capsys.readouterr()
    assert run("evaluate", tmp_path / "out", "--input", folder / "dev.tsv") == 0
    assert "number of columns differs: 1 (" in capsys.readouterr().out
    # Answers stand beside their rows, so here none may be missing.
    assert run("predict", tmp_path / "out", "--input", folder / "dev.tsv") == 1
    assert "row 8: must have 3 columns; received 1" in capsys.readouterr().err


def test_glue(calls, encoder_folder, tmp_path):
    folder = tmp_path / "RTE"
    folder.mkdir()
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text(f"sentence1\tsentence2\tlabel\na\tb\t{split}\n")
    common = ["finetune", "--model", encoder_folder, "--output", tmp_path / "out"]
    assert run(*common, "--glue", folder) == 1
    _, (examples, dev), _ = calls[0]
    assert (examples.labels, dev.labels) == (["train"], ["dev"])


@pytest.mark.slow
def test_search_keeps_the_best(texts, monkeypatch, encoder_folder, tmp_path, capsys):
    seen = []
    plain = finetuning.finetune

    def finetune(encoder, examples, dev, **options):
        model, metrics = plain(encoder, examples, dev, **options)
        metrics["accuracy"] = {1e-3: 0.5, 1e-2: 0.75, 1e-4: 0.6}[options["learning_rate"]]
        seen.append(model.get_weights())
        return model, metrics

    monkeypatch.setattr(finetuning, "finetune", finetune)
    rates = (1e-4, 1e-2, 1e-3)
    monkeypatch.setattr("keras_bert.training.search.GRID", {"learning_rate": rates})
    common = ["finetune", "--model", encoder_folder, "--train", texts, "--output", tmp_path / "out"]
    assert run(*common, "--epochs", 1, "--dev", texts, "--search") == 0
    assert "best: learning_rate 0.01" in capsys.readouterr().out
    for a, b in zip(keras_bert.load(tmp_path / "out").get_weights(), seen[1], strict=True):
        np.testing.assert_array_equal(a, b)
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert len(metrics["search"]) == len(seen) == 3  # the best one is not trained again
    assert metrics["accuracy"] == 0.75


def test_a_folder_is_one_runs(texts, encoder_folder, tmp_path, capsys):
    folder = tmp_path / "out"
    common = ["finetune", "--model", encoder_folder, "--train", texts, "--epochs", 1]
    with files.exclusive_lock(folder, "anything"):
        assert run(*common, "--output", folder) == 1
    assert capsys.readouterr().err.startswith(
        f"keras-bert: {folder}: another process is training there"
    )
    assert run(*common, "--output", folder) == 0
    assert ".lock" not in {path.name for path in folder.iterdir()}


def _command(*arguments):
    """Start a process of the command line."""
    command = [sys.executable, "-m", "keras_bert", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(texts, encoder_folder, tmp_path):
    """SIGKILL after the first epoch, the same command again: the undisturbed run's model."""
    common = ["finetune", "--model", encoder_folder, "--train", texts, "--dev", texts]
    # More epochs than could go by until the signal is there.
    common += ["--epochs", 20, "--batch-size", 4, "--output"]
    with _command(*common, tmp_path / "killed") as process:
        assert any(line.startswith("epoch 2 of 20") for line in process.stderr)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "killed" / "training.npz").is_file()
    assert not (tmp_path / "killed" / "model.keras").exists()
    runs = {name: _command(*common, tmp_path / name) for name in ("killed", "undisturbed")}
    said = {name: process.communicate() for name, process in runs.items()}
    assert [process.returncode for process in runs.values()] == [0, 0], said
    goes_on = re.match(r".*resuming the run in .*, epoch (\d+) of 20\n", said["killed"][1])
    assert 2 <= int(goes_on[1]) <= 20
    assert f"\nepoch {goes_on[1]} of 20: " in said["killed"][1]
    assert "\nepoch 1 of 20: " not in said["killed"][1]
    models = [keras_bert.load(tmp_path / name) for name in runs]
    for a, b in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_array_equal(a, b)


OTHER = "text\tlabel\n" + "so good\tyes\nso bad\tno\n" * 4


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (TEXTS, [], "goes on with the head of .*, classifi.* with the labels bad, good"),
        (OTHER, [], "a new head replaces the head of .* bad, good"),
        slow(TEXTS, ["--dtype", "mixed_bfloat16"], "a new head replaces the head of"),
        slow(TEXTS, ["--keep-layers", "0"], "a new head replaces the head of"),
        slow(SCORES, ["--task", "regression"], "a new head replaces the head of"),
        slow(TEXTS, [], None),
    ],
)
def test_the_head_of_a_trained_model(calls, tmp_path, capsys, content, options, says):
    encoder = tiny.encoder()
    model = keras_bert.heads.classifier(encoder, labels=["bad", "good"])
    keras_bert.save(model if says else encoder, tmp_path / "model")
    (file := tmp_path / "a.tsv").write_text(content)
    common = ["finetune", "--model", tmp_path / "model", "--train", file, "--output"]
    assert run(*common, tmp_path / "out", *options) == 1  # `calls` stops it
    start, _, _ = calls[0]
    printed = capsys.readouterr().out
    goes_on = says is not None and says.startswith("goes on")
    assert (keras_bert.heads.find_task(start) == "classification") == goes_on
    assert re.search(says, printed) if says else "head" not in printed
    if goes_on:
        np.testing.assert_array_equal(
            start.get_layer("logits").kernel, model.get_layer("logits").kernel
        )


def test_the_encoder_of_a_model_with_an_unknown_head(texts, calls, tmp_path, capsys):
    model = keras_bert.heads.embedder(tiny.encoder(pooling="mean"))
    keras_bert.save(model, tmp_path / "model", format="sentence_transformers")
    edit_json(tmp_path / "model/1_Pooling/config.json", include_prompt=False)
    run("finetune", "--model", tmp_path / "model", "--train", texts, "--output", tmp_path / "out")
    start, _, _ = calls[0]
    assert isinstance(start, keras_bert.BertEncoder)
    captured = capsys.readouterr()
    assert (captured.out + captured.err).count("include_prompt must be true") == 1
