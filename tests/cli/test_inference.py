"""`evaluate`, `predict`, `embed` and `fill`."""

import csv
import functools
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
from keras_bert.tasks.multiple_choice import data as swag
from keras_bert.tasks.question_answering import data as squad
from keras_bert.tasks.tagging import data as conll
from tests import tiny
from tests.cli.shared import ASKED, QUESTIONS, TASKS, run
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


def test_an_answer_is_one_line_whatever_its_text(trained, capsys):
    folder = trained("classification")
    capsys.readouterr()
    assert run("predict", folder / "model", "so\tgood\n film") == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line.split("\t")[-1] == "so good  film"


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv"])
@pytest.mark.parametrize(
    ("task", "classes", "answer"),
    [
        ("classification", ["bad", "good"], "predicted_label"),
        ("multiple-choice", ["0", "1"], "choice"),
    ],
)
def test_probability_of_every_class(trained, tmp_path, ending, task, classes, answer):
    folder, output = trained(task), tmp_path / f"answers.{ending}"
    arguments = ["--input", folder / TASKS[task][0], "--output", output, "--probabilities"]
    assert run("predict", folder / "model", *arguments) == 0
    lines = output.read_text().splitlines()
    if ending == "jsonl":
        rows = [json.loads(line) for line in lines]
        scores = [row["scores"] for row in rows]
        if task == "multiple-choice":
            scores = [dict(zip(classes, row, strict=True)) for row in scores]
    else:
        rows = list(csv.DictReader(lines, delimiter="\t" if ending == "tsv" else ","))
        given = ["text", "label"] if task == "classification" else ["text"]
        assert list(rows[0]) == [answer, "score", *classes, *given]
        scores = [{name: float(row[name]) for name in classes} for row in rows]
    assert len(rows) == ANSWERS[task]
    for row, each in zip(rows, scores, strict=True):
        assert list(each) == classes and sum(each.values()) == pytest.approx(1, abs=1e-3)
        assert each[str(row[answer])] == max(each.values()) == float(row["score"])


def test_texts_with_surrogates_are_written(trained, tmp_path):
    file, output = tmp_path / "a.jsonl", tmp_path / "answers.jsonl"
    file.write_text('{"text": "so \\ud800 good"}\n')
    arguments = ["--input", file, "--output", output]
    assert run("predict", trained("classification") / "model", *arguments) == 0
    assert json.loads(output.read_text())["text"] == "so ? good"


def test_the_json_of_a_reader_is_squads_file_of_predictions(trained, tmp_path):
    folder, output = trained("question-answering"), tmp_path / "predictions.json"
    assert run("predict", folder / "model", "--input", folder / "a.json", "--output", output) == 0
    predictions = json.loads(output.read_text())
    assert list(predictions) == ["q0", "q1", "q2", "q3"]
    assert all(isinstance(answer, str) for answer in predictions.values())


@pytest.mark.parametrize(
    ("task", "reader", "name", "text"),
    [
        ("classification", tabular, "a.tsv", "text\n" + "so good\nso bad\nthis film\n" * 3),
        ("tagging", conll, "a.conll", "so\ngood\n\nbad\n\nfilm\n\n" * 3),
        ("multiple-choice", swag, "a.jsonl", '{"text": "a", "choices": ["good", "bad"]}\n' * 9),
    ],
)
def test_a_large_file_is_read_in_parts(trained, tmp_path, monkeypatch, task, reader, name, text):
    folder = trained(task)
    file, once, twice = tmp_path / name, tmp_path / "once.jsonl", tmp_path / "twice.jsonl"
    file.write_text(text)
    arguments = ["predict", folder / "model", "--input", file, "--output"]
    assert run(*arguments, once) == 0
    seen = []
    read = reader.read_in_parts

    def in_fours(*args, **options):
        for part in read(*args, **options, size=4):
            seen.append(len(part))
            yield part

    monkeypatch.setattr(reader, "read_in_parts", in_fours)
    assert run(*arguments, twice) == 0
    assert seen == [4, 4, 1]
    assert once.read_text() == twice.read_text()
    assert len(once.read_text().splitlines()) == 9


def test_predictions_in_the_folder_of_the_model_are_continued(
    trained, tmp_path, monkeypatch, capsys
):
    model = shutil.copytree(trained("classification") / "model", tmp_path / "model")
    (file := tmp_path / "in.tsv").write_text("text\nso good\nso bad\nthis film\n")
    (output := model / "answers.tsv").write_text("of another run")
    read = tabular.read_in_parts

    def one_row(*args, **options):
        yield next(read(*args, **options, size=1))
        raise KeyboardInterrupt

    arguments = ["predict", model, "--input", file, "--output", output]
    with monkeypatch.context() as patch:
        patch.setattr(tabular, "read_in_parts", one_row)
        assert run(*arguments) == 130
    monkeypatch.setattr(tabular, "read_in_parts", functools.partial(read, size=1))
    capsys.readouterr()
    assert run(*arguments) == 0
    assert "resuming after 1 rows" in capsys.readouterr().err
    assert len(output.read_text().splitlines()) == 4


@pytest.mark.parametrize("ending", fast(["jsonl", "csv", "tsv"], "csv"))
def test_an_interrupted_run_is_continued(trained, tmp_path, monkeypatch, capsys, ending):
    model, file, folder = trained("classification") / "model", tmp_path / "in.tsv", tmp_path / "out"
    file.write_text("text\n" + "".join(f"good {'so ' * (n % 50)}\n" for n in range(9)))
    folder.mkdir()
    whole, output = tmp_path / f"whole.{ending}", folder / f"answers.{ending}"
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
    assert [path.name for path in folder.iterdir()] == [output.name]


CHARACTERS = "한\tB-x\n국\tI-x\n \tO\ng\tO\n\ng\tO\n!\tO\n\n" * 4


@pytest.mark.slow
def test_a_tagger_of_characters_splits_texts_into_those(encoder_folder, tmp_path, capsys):
    import tensorflow as tf

    file, folder = tmp_path / "klue.tsv", tmp_path / "out"
    file.write_text(CHARACTERS)
    common = ["--task", "tagging", "--train", file, "--output", folder, "--epochs", 1]
    assert run("finetune", "--model", encoder_folder, *common) == 0
    capsys.readouterr()
    assert run("predict", folder, "한국 g!") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["한", "국", "g", "!", ""]
    assert run("export", folder, tmp_path / "served") == 0
    served = tf.saved_model.load(tmp_path / "served" / "1").signatures["serving_default"]
    answer = {name: value.numpy() for name, value in served(text=tf.constant(["한국 g!"])).items()}
    assert [token.decode() for token in answer["token"][0]] == ["한", "국", "g", "!"]
    assert answer["start"].tolist() == [[0, 3, 7, 8]] and answer["end"].tolist() == [[3, 6, 8, 9]]
    for row, tag, score in zip(rows, answer["tag"][0], answer["score"][0], strict=False):
        assert (row[2], float(row[1])) == (tag.decode(), pytest.approx(score, abs=1e-4))


@pytest.mark.slow
def test_korquad_is_scored_over_characters(encoder_folder, tmp_path, capsys):
    content = json.loads(QUESTIONS)
    files = {}
    for version in ("1.1", "KorQuAD_v1.0_train"):
        file = files[version] = tmp_path / f"{version}.json"
        file.write_text(json.dumps({"version": version, **content}))
        assert squad.read(file).characters == (version != "1.1")
    folder = tmp_path / "out"
    common = ["--output", folder, "--epochs", 1, "--max-length", 16]
    scores = {}
    for version, options in (("1.1", []), ("KorQuAD_v1.0_train", []), ("1.1", ["--characters"])):
        given = ["--train", files[version], "--dev", files[version], *options]
        given += ["--task", "question-answering"]
        assert run("finetune", "--model", encoder_folder, *given, *common) == 0
        metrics = json.loads((folder / "metrics.json").read_text())
        scores[version, *options] = metrics["f1"]
        capsys.readouterr()
        assert run("evaluate", folder, "--input", files["1.1"], *options) == 0
        assert metrics["columns"]["characters"] == bool(options)
    assert scores["KorQuAD_v1.0_train",] == scores["1.1", "--characters"] != scores["1.1",]
    assert run("finetune", "--train", files["1.1"], *common, "--characters") == 1
    assert "--characters does not apply to the task classification" in capsys.readouterr().err


def test_what_is_replaced_is_told(texts, trained, encoder_folder, tmp_path, capsys):
    model = shutil.copytree(trained("classification") / "model", tmp_path / "model")
    capsys.readouterr()
    common = ["--train", texts, "--output", model, "--epochs", 1]
    assert run("finetune", "--model", encoder_folder, *common) == 0
    assert f"this run will replace the model in {model}" in capsys.readouterr().err


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


def test_what_is_read_is_not_written(trained, encoder_folder, tmp_path, capsys):
    file, link = tmp_path / "texts.tsv", tmp_path / "link.tsv"
    file.write_text("text\nso good\n")
    link.symlink_to(file)
    for command in (["predict", trained("classification") / "model"], ["embed", encoder_folder]):
        for output in (file, link):
            assert run(*command, "--input", file, "--output", output) == 1
            assert "the output must not be the input" in capsys.readouterr().err
    assert file.read_text() == "text\nso good\n"


def test_a_folder_in_place_of_the_output_file_is_refused_first(tmp_path, capsys):
    (file := tmp_path / "a.tsv").write_text("text\nso good\n")
    (folder := tmp_path / "out.npy").mkdir()
    (model := tmp_path / "empty").mkdir()  # to load it is another error
    for command in (
        ["embed", model, "--input", file], ["mine", file, "--model", model],
        ["explain", model, "so good"], ["predict", model, "--input", file],
    ):  # fmt: skip
        assert run(*command, "--output", folder) == 1
        assert "the output must be a file" in capsys.readouterr().err


@pytest.mark.slow
def test_conllu_by_another_name(encoder_folder, tmp_path, capsys):
    file = tmp_path / "tags.txt"
    row = "\tO\t_\t_\t_\t_\t_\t_\n"
    file.write_text(f"1\tgood\t_{row.replace('O', 'ADJ')}2\tfilm\t_{row}\n" * 4)
    common = ["finetune", "--model", encoder_folder, "--task", "tagging", "--train", file]
    common += ["--epochs", 1, "--output", tmp_path / "out"]
    assert run(*common) == 1
    assert "--format conllu" in capsys.readouterr().err
    assert run(*common, "--format", "conllu") == 0
    for command in ("evaluate", "predict"):
        arguments = [command, tmp_path / "out", "--input", file]
        assert run(*arguments, "--format", "conllu") == 0
    first_word = capsys.readouterr().out.split("majority")[1].split("\n")[1]
    assert re.fullmatch(r"good\t0\.\d+\t(ADJ|O)", first_word)


def test_a_failure_leaves_no_half_written_answers(trained, tmp_path, monkeypatch, capsys):
    file = tmp_path / "a.tsv"
    file.write_text("text\tx\nso good\tb\nso bad\n")
    before = tmp_path / "answers"
    before.write_text("of another run")
    folder = trained("classification")
    assert run("predict", folder / "model", "--input", file, "--output", before) == 1
    assert before.read_text() == "of another run"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.tsv", "answers"]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embed(encoder_folder, tmp_path, capsys, pooling):
    file = tmp_path / "a.tsv"
    file.write_text("text\nso good\nbad\nso good\n")
    arguments = ["--input", file, "--output", tmp_path / "v.npy", "--pooling", pooling]
    assert run("embed", encoder_folder, *arguments) == 0
    vectors = np.load(tmp_path / "v.npy")
    assert vectors.shape == (3, 8)
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)
    np.testing.assert_allclose((vectors**2).sum(1), 1, atol=1e-5)
    assert capsys.readouterr().out == f"3 vectors of 8 numbers in {tmp_path / 'v.npy'}\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.tsv", "v.npy"]


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


def test_vectors_of_a_large_file_are_written_part_by_part(encoder_folder, tmp_path, monkeypatch):
    file = tmp_path / "a.tsv"
    file.write_text("text\nso good\nbad\nthis film\n")
    arguments = ["embed", encoder_folder, "--input", file, "--output"]
    assert run(*arguments, tmp_path / "once.npy") == 0
    monkeypatch.setattr(tabular, "read_in_parts", functools.partial(tabular.read_in_parts, size=2))
    assert run(*arguments, tmp_path / "twice.npy") == 0
    once, twice = np.load(tmp_path / "once.npy"), np.load(tmp_path / "twice.npy")
    assert twice.dtype == np.float32
    np.testing.assert_allclose(twice, once, atol=1e-6)


def test_fill(tmp_path, capsys):
    keras_bert.save(keras_bert.heads.masked_lm(tiny.encoder()), tmp_path)
    assert run("fill", tmp_path, "so [MASK] film [MASK]", "--top", 2) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [line[2:] for line in lines] == [[n, "so [MASK] film [MASK]"] for n in "1122"]
    assert all(piece in tiny.PIECES for _, piece, *_ in lines)
    assert float(lines[0][0]) >= float(lines[1][0]) > 0


@pytest.mark.parametrize(
    ("head", "remedy"), [("masked_lm", "use keras-bert fill"), ("embedder", "use keras-bert embed")]
)
def test_predict_names_the_command_for_other_models(head, remedy, tmp_path, capsys):
    model = getattr(keras_bert.heads, head)(tiny.encoder(num_hidden_layers=1))
    keras_bert.save(model, tmp_path / "model.keras")
    assert run("predict", tmp_path / "model.keras", "so good") == 1
    assert remedy in capsys.readouterr().err


def test_evaluate_may_name_the_task_of_the_model(tmp_path, capsys):
    model = keras_bert.heads.tagger(tiny.encoder(num_hidden_layers=1), labels=["O", "B-x"])
    keras_bert.save(model, tmp_path / "model.keras")
    (tmp_path / "dev.tsv").write_text("so\tO\ngood\tB-x\n")
    arguments = ("--task", "tagging", "--input", tmp_path / "dev.tsv")
    assert run("evaluate", tmp_path / "model.keras", *arguments) == 0
    assert "accuracy" in capsys.readouterr().out
    for command in ("evaluate", "predict"):
        common = [command, tmp_path / "model.keras", "--input", tmp_path / "dev.tsv"]
        assert run(*common, "--text", "so") == 1
        assert "--text does not apply to the task tagging" in capsys.readouterr().err
