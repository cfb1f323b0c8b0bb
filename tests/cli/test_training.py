"""`finetune`."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import types

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.cli import arguments, data_notes, reading
from keras_bert.data import conll, squad, tabular
from keras_bert.runtime import distribution, files
from keras_bert.training import finetuning
from tests import tiny
from tests.cli.shared import SCORES, TEXTS, run
from tests.data.test_retrieval import beir
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


def test_options_reach_the_training(calls, encoder_folder, tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text(TEXTS)
    arguments = {
        "epochs": 5, "batch_size": 3, "learning_rate": 1e-3, "warmup": 0.2, "max_length": 20,
        "metric": "mcc", "patience": 2, "gradient_accumulation_steps": 4, "seed": 8,
        "class_weight": "balanced", "evaluate_every": 0.5, "schedule": "cosine",
    }  # fmt: skip
    given = [
        text for key, value in arguments.items() for text in (f"--{key.replace('_', '-')}", value)
    ]
    given += ["--fixed-length", "--freeze", "--limit", 3, "--tensorboard", tmp_path / "logs"]
    given += ["--dtype", "mixed_bfloat16", "--rematerialize"]
    common = ["finetune", "--model", encoder_folder, "--train", file, "--output", tmp_path / "out"]
    assert run(*common, "--dev", file, *given) == 1
    encoder, (examples, dev), options = calls[0]
    assert not encoder.trainable and (len(examples), len(dev)) == (3, 8)
    assert callable(options.pop("on_end"))
    assert options.pop("tensorboard") == str(tmp_path / "logs")
    assert options == {**arguments, "fixed_length": True, "folder": tmp_path / "out"}


def test_what_is_not_given_is_the_librarys(calls, encoder_folder, tmp_path):
    (file := tmp_path / "a.tsv").write_text(TEXTS)
    run("finetune", "--model", encoder_folder, "--train", file, "--output", tmp_path / "out")
    _, _, options = calls[0]
    assert not {"epochs", "batch_size", "learning_rate", "class_weight", "stride"} & {*options}


def test_what_is_given_is_not_searched(monkeypatch, encoder_folder, tmp_path):
    (file := tmp_path / "a.tsv").write_text(TEXTS)
    seen = []

    def grid(encoder, examples, dev, **options):
        seen.append(options)
        raise ValueError("that is enough")

    monkeypatch.setattr("keras_bert.training.search.grid", grid)
    common = ["finetune", "--model", encoder_folder, "--train", file, "--dev", file, "--search"]
    run(*common, "--output", tmp_path / "out", "--epochs", 1, "--batch-size", 4)
    assert seen[0]["choices"] == {"learning_rate": (5e-5, 3e-5, 2e-5)}
    assert (seen[0]["epochs"], seen[0]["batch_size"]) == (1, 4)


@pytest.mark.parametrize("option", ["--search", "--metric=f1", "--patience=1"])
def test_what_needs_scores_needs_dev(option, encoder_folder, tmp_path, capsys):
    (file := tmp_path / "a.tsv").write_text(TEXTS)
    common = ["finetune", "--model", encoder_folder, "--train", file, "--output", tmp_path / "out"]
    assert run(*common, option) == 1
    assert "--patience and --evaluate-every need --dev" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("is_faster", [True, False])
def test_dtype_auto(calls, encoder_folder, tmp_path, monkeypatch, capsys, is_faster):
    (file := tmp_path / "a.tsv").write_text(TEXTS)
    monkeypatch.setattr(distribution, "is_faster_in_bfloat16", lambda: is_faster)
    arguments = ["--train", file, "--output", tmp_path / "out", "--dtype", "auto"]
    assert run("finetune", "--model", encoder_folder, *arguments) == 1  # `calls` stops it
    dtype = "mixed_bfloat16" if is_faster else "float32"
    assert calls[0][0].dtype_policy.name == dtype
    assert f"--dtype auto: {dtype}\n" in capsys.readouterr().out


def test_dtype_auto_on_torch_which_has_no_distribution(monkeypatch, capsys):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    monkeypatch.setattr(keras.distribution, "list_devices", None)
    assert arguments.dtype_of(types.SimpleNamespace(dtype="auto")) == "float32"
    assert capsys.readouterr().out == "--dtype auto: float32\n"


def test_nothing_of_another_run_stays(encoder_folder, tmp_path):
    (file := tmp_path / "a.tsv").write_text(TEXTS)
    (scores := tmp_path / "b.tsv").write_text("text\tlabel\na good film\t1\na bad film\t2\n")
    common = ["finetune", "--model", encoder_folder, "--output", tmp_path / "out", "--epochs", 1]
    assert run(*common, "--train", file, "--dev", file) == 0
    assert (tmp_path / "out" / "confusion_matrix.png").is_file()
    assert run(*common, "--task", "regression", "--train", scores) == 0
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left == {"model.keras", "metrics.json", "curves.png"}
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert (metrics["task"], metrics["recipe"]["epochs"]) == ("regression", 1)
    assert (metrics["recipe"]["freeze"], metrics["recipe"]["dtype"]) == (False, "float32")


@pytest.mark.slow
def test_a_full_disk_at_the_end_costs_no_run(encoder_folder, tmp_path, monkeypatch, capsys):
    (file := tmp_path / "a.tsv").write_text(TEXTS)
    common = ["finetune", "--model", encoder_folder, "--train", file, "--output", tmp_path / "out"]

    def full(*args, **options):
        raise OSError(28, "No space left on device", "model.keras")

    with monkeypatch.context() as patch:
        patch.setattr(keras_bert, "save", full)
        assert run(*common, "--epochs", 1) == 1
    assert "model.keras: No space left on device" in capsys.readouterr().err
    # A model that is not there yet is not taken for one.
    assert run("evaluate", tmp_path / "out", "--input", file) == 1
    assert "has an unfinished run" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(keras.Model, "fit", None)  # it would be called
        assert run(*common, "--epochs", 1) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"model.keras", "metrics.json"}
    assert not (tmp_path / "out" / "training.npz").exists()


def test_rows_that_were_left_out_are_told():
    train, dev = (
        tabular.Examples(["a"], source=name, ragged_rows=2) for name in ("a.tsv", "b.tsv")
    )
    assert list(reading.notes(train, dev)) == [
        "rows skipped because their number of columns differs: 2 (a.tsv)",
        "rows skipped because their number of columns differs: 2 (b.tsv)",
    ]


def test_what_was_not_seen_is_told():
    train, dev = (tabular.Examples(["a"], source=name) for name in ("a.tsv", "b.tsv"))
    names = ("truncated", "without_tokens", "words_without_tokens", "cut_answers")
    counts = {name: number for number, name in enumerate((*names, "invisible_answers"), 1)}
    expected = [
        "texts truncated to the maximum length (--max-length of finetune): 1 (a.tsv)",
        "texts that are empty or contain only invisible characters: 2 (a.tsv)",
        "words of only invisible characters, which the model does not see: 3 (a.tsv)",
        "answers longer than a window, not used for training: 4 (a.tsv)",
        "answers of only invisible characters, not used for training: 5 (a.tsv)",
        "texts truncated to the maximum length (--max-length of finetune): 6 (b.tsv)",
    ]
    counts["dev_truncated"] = 6
    assert list(reading.notes(train, dev, counts)) == expected
    # Of one file the lines would be alike.
    dev = tabular.Examples(["a"], source="a.tsv")
    assert list(reading.notes(train, dev, counts))[-1].endswith(": 6 (a.tsv, scored)")


def test_answers_that_are_not_learned_are_told():
    answers = [[("b", 0)], [("x", 0)]]
    train, dev = (
        squad.Questions(["a", "a"], ["c b", "c"], answers, source=name)
        for name in ("a.json", "b.json")
    )
    assert list(reading.notes(train, dev)) == [
        f"{what}: 1 ({name})"
        for name in ("a.json", "b.json")
        for what in (
            "answers not at the position in the file; the nearest occurrence is used",
            "answers that do not occur in their context, not used for training",
        )
    ]


def test_a_vocabulary_of_another_language_is_told():
    english = keras_bert.Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "film"])
    korean = tabular.Examples(["좋은 영화", "good film"] * 3, labels=["a", "b"] * 3)
    note = data_notes.note_of_vocabulary(korean, english, "minilm")
    assert note.startswith("the vocabulary of minilm does not fit these texts: 1.0 tokens")
    sentences = conll.TaggedSentences([["좋은", "영화"]], [["A", "B"]])
    assert "100.0% unknown" in data_notes.note_of_vocabulary(sentences, english, "minilm")
    for texts in (["good film"], [" "]):
        assert data_notes.note_of_vocabulary(tabular.Examples(texts), english, "minilm") is None


@pytest.mark.slow
def test_the_columns_of_the_training_are_remembered(encoder_folder, tmp_path, capsys):
    file, other, model = tmp_path / "a.tsv", tmp_path / "b.tsv", tmp_path / "model"
    rows = [("good", "so good"), ("bad", "so bad")] * 4
    file.write_text("".join(f"{label}\t0\t{text}\n" for label, text in rows))
    other.write_text("words\tkind\n" + "".join(f"{text}\t{label}\n" for label, text in rows))
    plain = tmp_path / "c.tsv"
    plain.write_text(other.read_text().replace("words\tkind", "text\tlabel"))
    assert run(
        "finetune", "--model", encoder_folder, "--train", file, "--output", model, "--epochs", 1,
        "--no-header", "--text", 3, "--label", 1,
    ) == 0  # fmt: skip
    assert run("evaluate", model, "--input", file) == 0
    assert run("predict", model, "--input", file, "--output", tmp_path / "answers.tsv") == 0
    assert len((tmp_path / "answers.tsv").read_text().splitlines()) == 1 + len(rows)
    # What is given counts, and none of what was.
    columns = ["--text", "words", "--label", "kind"]
    assert run("evaluate", model, "--input", other, *columns) == 0
    assert run("predict", model, "--input", other, "--text", "words") == 0
    capsys.readouterr()
    assert run("evaluate", model, "--input", plain) == 1
    assert "a column is a number from 1 to 2; received '3'" in capsys.readouterr().err
    # The .keras file has them too.
    (model / "model.keras").rename(tmp_path / "moved.keras")
    assert run("evaluate", tmp_path / "moved.keras", "--input", file) == 0
    (tmp_path / "moved.keras").rename(model / "model.keras")
    (model / "metrics.json").unlink()
    assert run("evaluate", model, "--input", plain) == 0


@pytest.mark.slow
def test_the_columns_of_a_glue_task_are_remembered(encoder_folder, tmp_path):
    folder = tmp_path / "CoLA"
    folder.mkdir()
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text("a\t1\t\tso good\nb\t0\t*\tso bad\n" * 3)
    common = ["--epochs", 1, "--model", encoder_folder, "--output", tmp_path / "out"]
    assert run("finetune", "--glue", folder, *common) == 0
    assert run("evaluate", tmp_path / "out", "--input", folder / "dev.tsv") == 0


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
def test_search_keeps_the_best(monkeypatch, encoder_folder, tmp_path, capsys):
    file = tmp_path / "a.tsv"
    file.write_text(TEXTS)
    seen, stop_at, plain = [], None, finetuning.finetune

    def finetune(encoder, examples, dev, **options):
        model, metrics = plain(encoder, examples, dev, **options)
        metrics["accuracy"] = {1e-3: 0.5, 1e-2: 0.75, 1e-4: 0.6}[options["learning_rate"]]
        metrics["stopped"] = options["learning_rate"] == stop_at
        seen.append((options["learning_rate"], model.get_weights()))
        return model, metrics

    monkeypatch.setattr(finetuning, "finetune", finetune)
    rates = (1e-4, 1e-2, 1e-3)
    monkeypatch.setattr("keras_bert.training.search.GRID", {"learning_rate": rates})
    common = ["finetune", "--model", encoder_folder, "--train", file, "--output", tmp_path / "out"]
    common += ["--epochs", 1]
    for stop_at in (None, 1e-2):
        seen.clear()
        assert run(*common, "--dev", file, "--search") == 0
        # None is trained again, and Ctrl-C is the end.
        assert [rate for rate, _ in seen] == [1e-4, 1e-2, *([] if stop_at else [1e-3])]
        output = capsys.readouterr().out
        assert "best: learning_rate 0.01" in output
        assert ("stopped early; these are the best results" in output) == bool(stop_at)
        for a, b in zip(keras_bert.load(tmp_path / "out").get_weights(), seen[1][1], strict=True):
            np.testing.assert_array_equal(a, b)
        metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
        assert len(metrics["search"]) == len(seen)
        assert metrics["accuracy"] == 0.75
    assert run(*common, "--search") == 1
    assert "--patience and --evaluate-every need --dev" in capsys.readouterr().err


def test_a_search_takes_no_run_that_is_not_finished(encoder_folder, tmp_path, capsys):
    file, folder = tmp_path / "a.tsv", tmp_path / "out"
    file.write_text(TEXTS)
    folder.mkdir()
    (folder / "training.npz").touch()
    common = ["finetune", "--model", encoder_folder, "--train", file, "--dev", file, "--epochs", 1]
    assert run(*common, "--search", "--output", folder) == 1
    assert "Run the same command without --search to resume it, or delete training.npz" in (
        capsys.readouterr().err
    )
    assert [path.name for path in folder.iterdir()] == ["training.npz"]


def test_a_folder_is_one_runs(encoder_folder, tmp_path, capsys):
    file, folder = tmp_path / "a.tsv", tmp_path / "out"
    file.write_text(TEXTS)
    common = ["finetune", "--model", encoder_folder, "--train", file, "--epochs", 1]
    with files.exclusive_lock(folder, "anything"):
        assert run(*common, "--output", folder) == 1
    assert capsys.readouterr().err.startswith(
        f"keras-bert: {folder}: another process is training there"
    )
    assert run(*common, "--output", folder) == 0
    assert ".lock" not in {path.name for path in folder.iterdir()}


@pytest.mark.slow
def test_the_model_of_an_earlier_run_says_so(trained, tmp_path, capsys):
    """A run that goes on writes its state beside the model that is there."""
    model = shutil.copytree(trained("classification") / "model", tmp_path / "model")
    (model / "training.npz").touch()
    capsys.readouterr()
    assert run("predict", model, "so good") == 0
    assert capsys.readouterr().err == (
        f"{model} has an unfinished run. Run the same finetune command again to resume it. The "
        "model there is from an earlier run\n"
    )


def _command(*arguments):
    """A process of the command line, its stderr a pipe, that hears Ctrl-C."""
    command = [sys.executable, "-m", "keras_bert", *map(str, arguments)]
    # In the background of a shell these tests ignore it, and what they start would do the same.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)


def _wait_for(process, said):
    """Reads what a process says until it says this."""
    for line in process.stderr:
        if line.startswith(said):
            return
    raise AssertionError(f"it ended without {said!r}")


@pytest.mark.slow
def test_real_signals_end_a_run_and_it_goes_on(encoder_folder, tmp_path):
    """SIGKILL after the first epoch, the same command again: the undisturbed run's model.

    And Ctrl-C after the first epoch: the best so far, status 0.
    """
    file = tmp_path / "a.tsv"
    file.write_text(TEXTS)
    common = ["finetune", "--model", encoder_folder, "--train", file, "--dev", file]
    # More epochs than could go by until the signal is there.
    common += ["--epochs", 20, "--batch-size", 4, "--output"]
    with _command(*common, tmp_path / "killed") as process:
        _wait_for(process, "epoch 2 of 20")
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

    common[common.index("--epochs") + 1] = 10_000
    with _command(*common, tmp_path / "stopped") as process:
        _wait_for(process, "epoch 2 of 10000")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    assert process.returncode == 0
    assert "stopped early; these are the best results" in out
    metrics = json.loads((tmp_path / "stopped" / "metrics.json").read_text())
    assert metrics["stopped"] and metrics["best_epoch"] <= len(metrics["history"]) < 10_000
    keras_bert.load(tmp_path / "stopped", task="auto")


@pytest.mark.slow
def test_a_killed_run_goes_on(encoder_folder, tmp_path, monkeypatch, capsys):
    file = tmp_path / "a.tsv"
    file.write_text(TEXTS)
    arguments = ["finetune", "--model", encoder_folder, "--train", file, "--epochs", 2]
    arguments += ["--batch-size", 8, "--output", tmp_path / "out"]
    save = finetuning.RunState.save

    def killed(state, model):
        save(state, model)
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(finetuning.RunState, "save", killed)
        assert run(*arguments) == 1
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["training.npz"]
    assert run(*arguments, "--seed", 1) == 1
    assert "belongs to a run with seed=0; this run has 1" in capsys.readouterr().err
    assert run(*arguments) == 0
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert [record["epoch"] for record in metrics["history"]] == [1, 2]
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert names == ["curves.png", "metrics.json", "model.keras"]


@pytest.mark.slow
def test_training_without_dev_says_that_nothing_was_scored(encoder_folder, tmp_path, capsys):
    file = tmp_path / "a.tsv"
    file.write_text(TEXTS)
    arguments = ["--train", file, "--epochs", 1, "--output", tmp_path / "out"]
    assert run("finetune", "--model", encoder_folder, *arguments) == 0
    assert "nothing was scored, since --dev was not given" in capsys.readouterr().out


def test_embedding(tmp_path, capsys):
    model = tmp_path / "start.keras"
    head = keras_bert.heads.embedder(tiny.encoder(num_hidden_layers=1), prompts={"query": "so "})
    keras_bert.save(head, model)
    rows = "so good\tgood\t1\nbad film\tbad\t0\n" * 4
    (file := tmp_path / "a.tsv").write_text(f"q\ta\tscore\n{rows}")
    out = tmp_path / "out"
    common = ["finetune", "--model", model, "--task", "embedding", "--train", file, "--dev", file]
    columns = ["--text", "q", "--text-pair", "a", "--epochs", 1]
    assert run(*common, *columns, "--output", out) == 0
    assert "mrr@10" in capsys.readouterr().out
    assert keras_bert.heads.find_output(keras_bert.load(out)).prompts == {"query": "so "}
    assert run("evaluate", out, "--input", file) == 0
    assert "mrr@10" in capsys.readouterr().out
    assert run(*common, *columns, "--label", "score", "--loss", "contrastive", "--output", out) == 0
    assert "spearman" in capsys.readouterr().out
    (words := tmp_path / "words.tsv").write_text(
        "q\tclass\n" + "good\tx\nbad\ty\nfilm\tx\na\ty\n" * 2
    )
    for options in ([], ["--label", "class"]):
        arguments = [
            "finetune",
            "--model",
            model,
            "--task",
            "embedding",
            "--text",
            "q",
            "--train",
            words,
        ]
        assert run(*arguments, *options, "--epochs", 1, "--output", out) == 0
    (tmp_path / "beir").mkdir()
    common[-1] = beir(tmp_path / "beir")
    (tmp_path / "beir/qrels/test.tsv").rename(tmp_path / "beir/qrels/dev.tsv")
    assert run(*common, *columns, "--matryoshka-dims", 8, 4, "--output", out) == 0
    assert "ndcg@10" in capsys.readouterr().out


def test_options_of_embeddings_are_refused_for_other_tasks(tmp_path, capsys):
    (file := tmp_path / "a.tsv").write_text("text\tlabel\na\tb\n")
    for option, *values in (
        ("--negatives", "mean"), ("--pooling", "mean"), ("--teacher", "mean"),
        ("--score-range", 0, 5),
    ):  # fmt: skip
        arguments = ["finetune", "--train", file, "--output", tmp_path / "out"]
        assert run(*arguments, option, *values) == 1
        assert f"{option} applies only to --task embedding" in capsys.readouterr().err


def test_embed_uses_prompts(tmp_path):
    bert = tiny.encoder(num_hidden_layers=1, pooling="mean")
    head = keras_bert.heads.embedder(bert, prompts={"q": "so ", "d": "bad "}, default_prompt="q")
    keras_bert.save(head, tmp_path / "model.keras")
    (file := tmp_path / "a.tsv").write_text("text\ngood\nfilm\n")
    embed, out = keras_bert.pipeline(head), tmp_path / "vectors.npy"
    for options, prompt in (([], None), (["--prompt", "d"], "d"), (["--prompt", "x "], "x ")):
        assert (
            run("embed", tmp_path / "model.keras", "--input", file, "--output", out, *options) == 0
        )
        expected = embed.encode(["good", "film"], prompt=prompt)
        np.testing.assert_allclose(np.load(out), expected, atol=1e-5)


def test_search(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "model.keras"
    keras_bert.save(keras_bert.heads.embedder(tiny.encoder(initializer_range=0.5)), model)
    (file := tmp_path / "texts.tsv").write_text("text\nso good\nbad film\ngood\n")
    arguments = ["search", file, "bad film", "--model", model, "--top", 2]
    assert run(*arguments) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "model.keras", "texts.tsv"}
    out, err = capsys.readouterr()
    first, second = out.splitlines()
    assert first == "1.0000\t2\tbad film" and len(second.split("\t")) == 3 and err == ""
    [vectors] = (tmp_path / "cache").rglob("*.npz")
    written = vectors.stat().st_mtime_ns
    assert run(*arguments) == 0
    assert capsys.readouterr().out == out and vectors.stat().st_mtime_ns == written
    file.write_text("text\nso good\nbad film\ngood\nbad film\n")
    assert run(*arguments) == 0
    out, err = capsys.readouterr()
    assert {line.split("\t")[1] for line in out.splitlines()} == {"2", "4"}
    assert "belongs to other texts, another model or prompt" in err
    vectors.write_bytes(b"broken")
    assert run(*arguments) == 0
    out, err = capsys.readouterr()
    assert "2\tbad film" in out and "is broken" in err
    for change in (lambda array: array * np.nan, lambda array: array[:, 1:], np.float64):
        with np.load(vectors) as found:
            np.savez(vectors, key=found["key"], vectors=change(found["vectors"]))
        assert run(*arguments) == 0
        changed, err = capsys.readouterr()
        assert changed == out and "is broken" in err
    assert run("search", file, " ", "--model", model) == 1
    assert "the query is empty. Give a text" in capsys.readouterr().err
    (blank := tmp_path / "blank.tsv").write_text("text\tn\n\t1\n \t2\n")
    assert run("search", blank, "good", "--model", model) == 1
    assert "blank.tsv has no texts to search" in capsys.readouterr().err
    assert [vectors] == list((tmp_path / "cache").rglob("*.npz"))
    assert run("search", tmp_path / "no.tsv", "a", "--model", model) == 1
    other = tmp_path / "other.keras"
    keras_bert.save(keras_bert.heads.embedder(tiny.encoder(initializer_range=0.1)), other)
    assert run("search", file, "bad film", "--model", other) == 0
    assert "belongs to other texts, another model or prompt" in capsys.readouterr().err
    (plain := tmp_path / "plain.txt").write_text("so good\nbad film\n")
    assert run("search", plain, "bad film", "--model", model, "--top", 1) == 0
    assert capsys.readouterr().out == "1.0000\t2\tbad film\n"


def test_vectors_that_come_with_the_texts_are_not_read(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "model.keras"
    keras_bert.save(keras_bert.heads.embedder(tiny.encoder(initializer_range=0.5)), model)
    file = tmp_path / "texts.tsv"
    file.write_text("text\nso good\nbad film\n")
    arguments = ["search", file, "bad film", "--model", model, "--top", 1]
    assert run(*arguments) == 0
    expected = capsys.readouterr().out
    [vectors] = (tmp_path / "cache").rglob("*.npz")
    with np.load(vectors) as right:
        wrong = {"key": right["key"], "vectors": right["vectors"][::-1]}
    np.savez(tmp_path / "texts.tsv.vectors.npz", **wrong)
    vectors.unlink()
    assert run(*arguments) == 0
    assert capsys.readouterr().out == expected


@pytest.fixture
def pairs(tmp_path):
    """Return an encoder with pooling, and a file of pairs."""
    keras_bert.save(tiny.encoder(num_hidden_layers=2, pooling="mean"), tmp_path / "encoder")
    rows = [f"{word} so\t{word}" for word in ("good", "bad", "film", "a", "b", "c", "d", "e")]
    (tmp_path / "a.tsv").write_text("q\ta\n" + "\n".join(rows) + "\n")
    return tmp_path / "encoder", tmp_path / "a.tsv"


def test_mine_and_train_with_the_negatives(pairs, tmp_path, capsys):
    encoder, file = pairs
    columns = ["--text", "q", "--text-pair", "a"]
    out, mined = tmp_path / "out", tmp_path / "mined.csv"
    arguments = ["--model", encoder, "--output", mined, "--count", 2, "--margin", -2]
    assert run("mine", file, *columns, *arguments) == 0
    assert f"8 rows written to {mined}\n" in capsys.readouterr().out
    header, *rows = csv.reader(mined.read_text().splitlines())
    assert header == ["q", "a", "negative_1", "negative_2"]
    assert len(rows) == 8 and all(len(set(row[1:])) == 3 for row in rows)
    common = ["finetune", "--model", encoder, "--task", "embedding", *columns, "--epochs", 1]
    common += ["--output", out, "--batch-size", 4]
    negatives = ["--negatives", "negative_1", "negative_2", "--loss", "triplet"]
    assert run(*common, "--train", mined, *negatives, "--dev", file) == 0
    assert "mrr@10" in capsys.readouterr().out
    assert run("evaluate", out, "--input", file) == 0  # the file has no negatives
    assert run(*common, "--train", mined, "--negatives", "x") == 1
    message = "no column 'x'; .* give the name of the column as `negatives` "
    assert re.search(message, capsys.readouterr().err)
    content = file.read_bytes()
    assert run("mine", file, *columns, "--model", encoder, "--output", file) == 1
    assert "the output must not be the input" in capsys.readouterr().err
    assert file.read_bytes() == content


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (["a\tb", "a\tc"], [], "all rows have the same query, 'a', so there are no negatives"),
        (["a\tb"], [], "all rows have the same query"),
        ([" \t ", " \t "], [], "no text has tokens"),
        (["a\tb", "c\td"], ["--score-range", 0, 1], "name their column with label"),
        (["a\tb", "c\td"], ["--teacher", "x", "--loss", "contrastive"], "--teacher works with"),
    ],
)
def test_rows_without_anything_to_learn(rows, options, message, pairs, tmp_path, capsys):
    encoder, _ = pairs
    (file := tmp_path / "rows.tsv").write_text("q\ta\n" + "\n".join(rows) + "\n")
    options = [encoder if option == "x" else option for option in options]
    arguments = ["finetune", "--model", encoder, "--task", "embedding", "--train", file, *options]
    arguments += ["--text", "q", "--text-pair", "a", "--output", tmp_path / "out"]
    assert run(*arguments) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_embedders_have_the_options_of_other_tasks(pairs, tmp_path, capsys):
    encoder, file = pairs
    out, board = tmp_path / "out", tmp_path / "board"
    arguments = [
        "finetune", "--model", encoder, "--task", "embedding", "--train", file, "--dev", file,
        "--text", "q", "--text-pair", "a", "--epochs", 9, "--learning-rate", 1e-12, "--patience", 1,
        "--tensorboard", board, "--dtype", "mixed_bfloat16", "--output", out,
    ]  # fmt: skip
    assert run(*arguments) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    assert len(metrics["history"]) == 2 and metrics["recipe"]["dtype"] == "mixed_bfloat16"
    assert (out / "curves.png").is_file() and any(board.rglob("events*"))
    assert run("export", out, tmp_path / "exported") == 0
    assert "mrr@10" in (tmp_path / "exported" / "README.md").read_text()


@pytest.mark.slow
def test_several_sets_and_gradient_caching(pairs, tmp_path, capsys):
    encoder, file = pairs
    arguments = [
        "finetune", "--model", encoder, "--task", "embedding", "--text", "q", "--text-pair", "a",
        "--epochs", 2, "--batch-size", 4, "--output", tmp_path / "out",
    ]  # fmt: skip
    caching = ["--gradient-caching", "--gradient-accumulation-steps", 2]
    assert run(*arguments, "--train", file, *caching) == 0
    recipe = json.loads((tmp_path / "out" / "metrics.json").read_text())["recipe"]
    assert recipe["gradient_caching"] is True
    assert run(*arguments, "--train", file, file, "--sampling", "round_robin") == 0
    recipe = json.loads((tmp_path / "out" / "metrics.json").read_text())["recipe"]
    assert recipe["sampling"] == "round_robin"
    capsys.readouterr()
    assert run(*arguments, "--train", file, file, *caching) == 1
    assert "train on one set" in capsys.readouterr().err
    assert run(*arguments, "--train", file, "--gradient-caching") == 1
    assert "gradient_accumulation_steps of at least 2" in capsys.readouterr().err
    assert run("finetune", "--train", file, file, "--output", tmp_path / "out") == 1
    assert "the task classification takes one --train file" in capsys.readouterr().err


@pytest.mark.slow
def test_teacher_and_evaluation_of_an_encoder(pairs, tmp_path, capsys):
    encoder, file = pairs
    columns = ["--text", "q", "--text-pair", "a"]
    arguments = ["finetune", "--model", encoder, "--task", "embedding", *columns]
    arguments += ["--train", file, "--dev", file, "--teacher", encoder, "--epochs", 1]
    assert run(*arguments, "--keep-layers", 1, "--output", tmp_path / "out") == 0
    student = keras_bert.load(tmp_path / "out")
    assert keras_bert.heads.find_encoder(student).bert_config["num_hidden_layers"] == 1
    capsys.readouterr()
    assert run("evaluate", encoder, "--task", "embedding", "--input", file, *columns) == 0
    assert "mrr@10" in capsys.readouterr().out
    assert run(*arguments, "--keep-layers", 7, "--output", tmp_path / "out") == 1
    assert "increasing numbers from 0 to 1" in capsys.readouterr().err
    narrow = tmp_path / "narrow"
    keras_bert.save(tiny.encoder(hidden_size=4, num_attention_heads=2, pooling="mean"), narrow)
    other = [*arguments[:2], narrow, *arguments[3:]]
    assert run(*other, "--output", tmp_path / "other") == 0
    assert keras_bert.load(tmp_path / "other").output_shape == (None, 8)
    assert run(*other, "--loss", "cosent", "--output", tmp_path / "scores") == 0
    assert keras_bert.load(tmp_path / "scores").output_shape == (None, 4)


def test_scores_of_a_range(pairs, tmp_path, capsys):
    encoder, _ = pairs
    (file := tmp_path / "scored.tsv").write_text("a\tb\ts\ngood\tso\t0\nbad\tfilm\t5\n")
    arguments = ["finetune", "--model", encoder, "--task", "embedding", "--train", file]
    arguments += ["--text", "a", "--text-pair", "b", "--label", "s", "--epochs", 1]
    arguments += ["--loss", "cosine_similarity", "--output", tmp_path / "out"]
    assert run(*arguments) == 1
    assert "needs scores from -1 to 1" in capsys.readouterr().err
    assert run(*arguments, "--score-range", 0, 4) == 1
    assert "row 3: the score 5 is not from 0 to 4" in capsys.readouterr().err
    assert run(*arguments, "--score-range", 0, 5) == 0
    assert run("evaluate", tmp_path / "out", "--input", file) == 0
    assert "spearman" in capsys.readouterr().out


def test_evaluate_retrieval(pairs, tmp_path, capsys):
    from tests.data.test_retrieval import beir

    encoder, _ = pairs
    (folder := tmp_path / "beir").mkdir()
    arguments = ["evaluate", encoder, "--task", "embedding", "--input", beir(folder)]
    assert run(*arguments, "--prompt", "so ") == 0
    assert "ndcg@10" in capsys.readouterr().out
    assert run(*arguments, "--split", "dev") == 1
    assert "dev.tsv: no such file; the splits of this folder are test" in capsys.readouterr().err


def test_evaluate_pairs_with_prompts(pairs, capsys):
    encoder, file = pairs
    columns = ["--text", "q", "--text-pair", "a"]
    arguments = ["evaluate", encoder, "--task", "embedding", "--input", file, *columns]
    prompts = ("so ", "bad ")
    assert run(*arguments, "--prompt", prompts[0], "--corpus-prompt", prompts[1]) == 0
    out = capsys.readouterr().out
    data = keras_bert.read(file, "embedding", text="q", text_pair="a").with_prompts(*prompts)
    expected = keras_bert.pipeline(encoder).evaluate(data)
    for name, value in expected.items():
        assert re.search(rf"{name} +{value:.3f}", out)
    assert run(*arguments) == 0
    assert capsys.readouterr().out != out
    assert run(*arguments, "--prompt", "query") == 1
    assert "the model has no prompts; received 'query'" in capsys.readouterr().err


OTHER = "text\tlabel\n" + "so good\tyes\nso bad\tno\n" * 4


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (TEXTS, [], "goes on with the head of .*, classification with the labels bad, good"),
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
    assert (keras_bert.heads.find_task(start) == "classifier") == goes_on
    assert re.search(says, printed) if says else "head" not in printed
    if goes_on:
        np.testing.assert_array_equal(
            start.get_layer("logits").kernel, model.get_layer("logits").kernel
        )


@pytest.mark.slow
def test_frozen_layers_stay_frozen(calls, tmp_path):
    encoder = tiny.encoder()
    encoder.get_layer("layer_0").trainable = False
    keras_bert.save(encoder, tmp_path / "model")
    (file := tmp_path / "a.tsv").write_text(TEXTS)
    run("finetune", "--model", tmp_path / "model", "--train", file, "--output", tmp_path / "out")
    start, _, _ = calls[0]
    assert not start.get_layer("layer_0").trainable_variables
    assert start.get_layer("layer_1").trainable_variables
