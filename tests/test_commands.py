"""The command line, from a file to an exported model, and what it says when things are wrong."""

import argparse
import csv
import functools
import gzip
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.__main__ import _check_files, main
from keras_bert.cli import pretraining, reading, training
from keras_bert.data import tabular
from keras_bert.pretraining import records, vocabulary
from keras_bert.runtime import files
from keras_bert.tasks import multiple_choice, question_answering, tagging
from keras_bert.training import finetuning
from tests import prose, tiny

# What is trained here is trained for a few steps only.
pytestmark = pytest.mark.usefixtures("eager")

TEXTS = "text\tlabel\n" + "so good\tgood\nso bad\tbad\n" * 4
PAIRS = "text\tother\tlabel\n" + "good\tso good\tsame\nbad\tso good\tother\n" * 4
SETS = "text\tlabel\n" + "so good film\tgood;film\nso bad\tbad\nthis is a\t\n" * 4
SCORES = "text\tlabel\n" + "so good\t0.5\nso bad\t-0.5\n" * 4
TAGS = "this\tO\nfilm\tB-work\n\nso\tO\nbad\tB-mood\n\n" * 4
CHOICES = '{"text": "films", "choices": ["so good", "so bad"], "label": 1}\n' * 4
QUESTIONS = json.dumps(
    {
        "data": [
            {
                "paragraphs": [
                    {
                        "context": "this film is so good!",
                        "qas": [
                            {
                                "id": f"q{number}",
                                "question": "is this bad",
                                "answers": [{"text": "good", "answer_start": 16}],
                            }
                            for number in range(4)
                        ],
                    }
                ]
            }
        ]
    }
)
# Each task: its files, the options with which it reads them, the metric that counts, the lines
# of answers to its own file, and one of them as it must look.
TASKS = {
    "classification": ("a.tsv", TEXTS, [], "accuracy", 9, r"(good|bad)\t[01]\.\d{4}"),
    "pair": ("a.tsv", PAIRS, ["--text-pair", "other"], "accuracy", 9, r"(same|other)\t[01]\.\d{4}"),
    "multi-label": (
        "a.tsv",
        SETS,
        ["--separator", ";"],
        "micro_f1",
        13,
        r"[a-z,]*(\t[01]\.\d{4}){3}",
    ),
    "regression": ("a.tsv", SCORES, [], "pearson", 9, r"-?\d\.\d{4}"),
    "tagging": ("a.conll", TAGS, [], "f1", 24, r"(this|film|so|bad)\t[A-Z][a-z-]*\t[01]\.\d{4}"),
    "qa": ("a.json", QUESTIONS, [], "f1", 5, r"q\d\t[a-z! ]*\t[01]\.\d{4}\t\d+\t\d+"),
    "multiple-choice": ("a.jsonl", CHOICES, [], "accuracy", 5, r"[01]\t[01]\.\d{4}"),
}
# What a model of the task is asked for on the command line itself, and how many lines it answers.
ASKED = {
    "classification": (["so good", "한국어"], 2),
    "pair": (["so good", "bad"], 1),
    "multi-label": (["so good", "bad"], 2),
    "regression": (["so good"], 1),
    "tagging": (["so good!", "bad"], 6),
    "qa": (["is this bad", "a film so good"], 1),
    "multiple-choice": (["films", "good", "bad", "so"], 1),
}
PICTURED = ("classification", "pair", "tagging")


def run(*arguments):
    """The exit status of a command."""
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    keras_bert.save(tiny.encoder(num_hidden_layers=1), folder)
    return folder


@pytest.fixture(scope="module")
def trained(encoder_folder, tmp_path_factory):
    """A function that gives a folder with a model of the task, fine-tuned once by the command."""
    folders = {}

    def finetune(task):
        if task not in folders:
            name, content, options, *_ = TASKS[task]
            folder = folders[task] = tmp_path_factory.mktemp("trained")
            file = folder / name
            file.write_text(content, encoding="utf-8")
            options = [*options, "--epochs", 1, "--batch-size", 4, "--max-length", 16]
            status = run(
                "finetune", "--model", encoder_folder, "--task", task, "--train", file,
                "--dev", file, "--output", folder / "model", *options,
            )  # fmt: skip
            assert status == 0
        return folders[task]

    return finetune


@pytest.mark.parametrize("task", TASKS)
def test_each_task_from_file_to_answers(trained, task, tmp_path, capsys):
    name, _, _, metric, lines, pattern = TASKS[task]
    folder = trained(task)
    pictures = {"curves.png"} | ({"confusion_matrix.png"} if task in PICTURED else set())
    files = {file.name for file in (folder / "model").iterdir()}
    assert files == {"metrics.json", "model.keras", *pictures}
    metrics = json.loads((folder / "model" / "metrics.json").read_text())
    assert (metrics["metric"], metrics["best_epoch"], len(metrics["history"])) == (metric, 1, 1)
    assert metrics["train"] == metrics["dev"] == str(folder / name)
    capsys.readouterr()

    # The columns are those of the training, without a word of them.
    assert run("evaluate", folder / "model", "--input", folder / name) == 0
    found = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert float(found[metric]) == pytest.approx(metrics[metric], abs=1e-3)

    output = tmp_path / "answers"
    arguments = ["--input", folder / name, "--output", output]
    assert run("predict", folder / "model", *arguments) == 0
    written = output.read_text().splitlines()
    assert len(written) == lines
    first = written[0] if task == "tagging" else written[1]
    assert re.fullmatch(pattern, first), first
    assert [file.name for file in tmp_path.iterdir()] == ["answers"]


@pytest.mark.parametrize("task", ASKED)
def test_each_task_from_the_command_line(trained, task, capsys):
    texts, lines = ASKED[task]
    folder = trained(task)
    capsys.readouterr()
    assert run("predict", folder / "model", *texts) == 0
    written = capsys.readouterr().out.splitlines()
    if task == "multi-label":  # whose probabilities have no other names
        assert re.fullmatch(r"labels(\t[a-z]+){3}\ttext", written.pop(0))
    assert len(written) == lines
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
    assert line.split("\t")[-1] == "so good film"


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_the_ending_of_the_output_is_its_format(trained, tmp_path, ending):
    file, output = tmp_path / "a.jsonl", tmp_path / f"answers.{ending}"
    file.write_text('{"text": "so good"}\n{"text": "so bad"}\n' * 2)
    model = trained("classification") / "model"
    assert run("predict", model, "--input", file, "--output", output) == 0
    lines = output.read_text().splitlines()
    rows = list(csv.DictReader(lines)) if ending == "csv" else list(map(json.loads, lines))
    assert [sorted(row) for row in rows] == [["label", "score"]] * 4
    assert rows[:2] == rows[2:]  # in the order of the file
    assert isinstance(rows[0]["score"], str if ending == "csv" else float)


def test_the_json_of_a_reader_is_squads_file_of_predictions(trained, tmp_path):
    folder, output = trained("qa"), tmp_path / "predictions.json"
    assert run("predict", folder / "model", "--input", folder / "a.json", "--output", output) == 0
    predictions = json.loads(output.read_text())
    assert list(predictions) == ["q0", "q1", "q2", "q3"]
    assert all(isinstance(answer, str) for answer in predictions.values())


@pytest.mark.parametrize(
    ("task", "reader", "name", "text", "lines"),
    [
        ("classification", tabular, "a.tsv", "text\n" + "so good\nso bad\nthis film\n" * 3, 9),
        ("tagging", tagging, "a.conll", "so\ngood\n\nbad\n\nfilm\n\n" * 3, 12),
        (
            "multiple-choice",
            multiple_choice,
            "a.jsonl",
            '{"text": "this film", "choices": ["so good", "so bad"]}\n' * 9,
            9,
        ),
    ],
)
def test_a_large_file_is_read_in_parts(
    trained, tmp_path, monkeypatch, task, reader, name, text, lines
):
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
    assert len(once.read_text().splitlines()) == lines


CHARACTERS = "한\tB-x\n국\tI-x\n \tO\ng\tO\n\ng\tO\n!\tO\n\n" * 4


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
        assert (row[1], float(row[2])) == (tag.decode(), pytest.approx(score, abs=1e-4))


def test_words_that_texts_do_not_have_are_told():
    preprocessor = keras_bert.Preprocessor(tiny.PIECES)

    def note(*words):
        return training._note_of_words(tagging.TaggedSentences([[*words, "so"] * 9]), preprocessor)

    assert note("do", "n't").startswith("33.3% of the words hold punctuation, at which a text on ")
    assert note("good", "!") is None
    assert note("g", "!", " ") is None
    assert training._note_of_words(tiny.examples(), preprocessor) is None


def test_korquad_is_scored_over_characters(encoder_folder, tmp_path, capsys):
    content = json.loads(QUESTIONS)
    files = {}
    for version in ("1.1", "KorQuAD_v1.0_train"):
        file = files[version] = tmp_path / f"{version}.json"
        file.write_text(json.dumps({"version": version, **content}))
        assert question_answering.read(file).characters == (version != "1.1")
    folder = tmp_path / "out"
    common = ["--output", folder, "--epochs", 1, "--max-length", 16]
    scores = {}
    for version, options in (("1.1", []), ("KorQuAD_v1.0_train", []), ("1.1", ["--characters"])):
        given = ["--train", files[version], "--dev", files[version], "--task", "qa", *options]
        assert run("finetune", "--model", encoder_folder, *given, *common) == 0
        metrics = json.loads((folder / "metrics.json").read_text())
        scores[version, *options] = metrics["f1"]
        capsys.readouterr()
        assert run("evaluate", folder, "--input", files["1.1"], *options) == 0
        assert metrics["columns"]["characters"] == bool(options)
    assert scores["KorQuAD_v1.0_train",] == scores["1.1", "--characters"] != scores["1.1",]
    assert run("finetune", "--train", files["1.1"], *common, "--characters") == 1
    assert "--characters is for questions" in capsys.readouterr().err


def test_what_is_replaced_is_told(trained, encoder_folder, tmp_path, capsys):
    model = shutil.copytree(trained("classification") / "model", tmp_path / "model")
    (file := tmp_path / "a.tsv").write_text(TEXTS)
    capsys.readouterr()
    common = ["--train", file, "--output", model, "--epochs", 1]
    assert run("finetune", "--model", encoder_folder, *common) == 0
    assert f"{model} holds a model, which this run's will replace" in capsys.readouterr().err


def test_vectors_are_no_text(encoder_folder, tmp_path, capsys):
    (file := tmp_path / "a.tsv").write_text("text\na\n")
    assert run("embed", encoder_folder, "--input", file, "--output", tmp_path / "v.csv") == 1
    assert "v.csv: vectors are written in NumPy's format; name it .npy" in capsys.readouterr().err


def test_standard_output_by_its_path(trained, tmp_path):
    """Where it leads to a file, and through a link; a pipe is read as it comes."""
    link = tmp_path / "link"
    link.symlink_to("/dev/stdout")
    arguments = [sys.executable, "-m", "keras_bert", "predict", trained("classification") / "model"]
    for output in ("/dev/stdout", link):
        file = tmp_path / "out.txt"
        file.write_text("before\n")
        with open(file, "a") as stdout:
            subprocess.run([*arguments, "so good", "--output", output], stdout=stdout, check=True)
        assert re.fullmatch(r"before\n(good|bad)\t0\.\d{4}\tso good\n", file.read_text())
        assert link.is_symlink() and os.path.islink("/dev/stdout")


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


def test_vectors_go_into_no_pipe(encoder_folder, tmp_path, capsys):
    (file := tmp_path / "a.tsv").write_text("text\na\n")
    os.mkfifo(tmp_path / "pipe")
    for output in (tmp_path / "pipe", "-", "/dev/stdout"):
        assert run("embed", encoder_folder, "--input", file, "--output", output) == 1
        assert "vectors are written to a file; name one, .npy" in capsys.readouterr().err
    assert (tmp_path / "pipe").is_fifo()


def test_a_dash_is_standard_output(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert run("predict", trained("classification") / "model", "so good", "--output", "-") == 0
    assert capsys.readouterr().out.endswith("\tso good\n")
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
        "texts longer than the model reads (finetune's --max-length), cut there: 1",
        "texts that are empty or invisible characters alone: 1",
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
            assert "--output must be another file than --input" in capsys.readouterr().err
    assert file.read_text() == "text\nso good\n"


def test_conllu_by_another_name(encoder_folder, tmp_path, capsys):
    file = tmp_path / "tags.txt"
    row = "\tO\t_\t_\t_\t_\t_\t_\n"
    file.write_text(f"1\tgood\t_{row.replace('O', 'ADJ')}2\tfilm\t_{row}\n" * 4)
    common = ["finetune", "--model", encoder_folder, "--task", "tagging", "--train", file]
    common += ["--epochs", 1, "--output", tmp_path / "out"]
    assert run(*common) == 1
    assert "looks like CoNLL-U" in capsys.readouterr().err
    assert run(*common, "--format", "conllu") == 0
    for command in ("evaluate", "predict"):
        arguments = [command, tmp_path / "out", "--input", file]
        assert run(*arguments, "--format", "conllu") == 0
    assert re.match(r"good\t(ADJ|O)\t", capsys.readouterr().out.split("majority")[1].split("\n")[1])


def test_no_answer_may_be_made_rarer_or_more_frequent(encoder_folder, tmp_path, capsys):
    file, folder = tmp_path / "a.json", tmp_path / "out"
    content = json.loads(QUESTIONS)
    content["data"][0]["paragraphs"][0]["qas"][0]["answers"] = []
    file.write_text(json.dumps(content))
    common = ["--train", file, "--output", folder, "--epochs", 1, "--max-length", 16]
    assert run("finetune", "--model", encoder_folder, "--task", "qa", *common) == 0
    for threshold, empty in ((-1000, 4), (1000, 0)):
        capsys.readouterr()
        assert run("predict", folder, "--input", file, "--null-threshold", threshold) == 0
        rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
        assert sum(not row[1] for row in rows) == empty
        assert run("evaluate", folder, "--input", file, "--null-threshold", threshold) == 0
        scores = dict(line.split() for line in capsys.readouterr().out.splitlines())
        assert float(scores["no_answer_accuracy"]) == (empty == 4)


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


def test_fill_wants_a_checkpoint_with_the_head(tmp_path, capsys):
    keras_bert.save(tiny.encoder(), tmp_path, format="huggingface")
    assert run("fill", tmp_path, "so [MASK]") == 1
    assert capsys.readouterr().err == (
        f"keras-bert: {tmp_path} has no masked-LM head to fill blanks with; take a checkpoint "
        "that has one, such as base\n"
    )


def test_info(trained, encoder_folder, capsys):
    folder = trained("pair")
    capsys.readouterr()
    assert run("info", folder / "model") == 0
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert (lines["task"], lines["labels"]) == ("classifier of pairs", "other, same")
    assert lines["hidden_size"] == "8"
    assert run("info", encoder_folder) == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"lowercase": True, "strip_accents": True, "split_cjk": True}),
        (["--keep-accents"], {"lowercase": True, "strip_accents": False, "split_cjk": True}),
        (
            ["--cased", "--no-split-cjk"],
            {"lowercase": False, "strip_accents": False, "split_cjk": False},
        ),
    ],
)
def test_vocab(tmp_path, capsys, options, expected):
    words = ["Crème", "brûlée", "play", "playing", "한국어", "日本", "films", "good"]
    texts = [" ".join(words[n % 5 :]) + ("" if n % 20 else " unseen☃") for n in range(1, 201)]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("\n\n".join(texts), encoding="utf-8")
    folder = tmp_path / "vocabulary"
    size = ("--size", 70, "--min-frequency", 3, "--max-bytes", 10**6)
    assert run("vocab", tmp_path / "corpus", "--output", folder, *size, *options) == 0
    pieces, found = vocabulary.read(folder)
    assert len(pieces) == 70 and found == expected
    assert ("C" in pieces) == ("--cased" in options)
    assert not set(pieces) & {"☃", "##☃"}  # it is in the held-out documents alone
    first, where, *lines = capsys.readouterr().out.splitlines()
    assert first == f"70 pieces from 200 documents in {folder}"
    assert where.startswith("on 10 documents held out, ")
    values = {line.rsplit(maxsplit=1)[0].strip(): line.rsplit(maxsplit=1)[1] for line in lines}
    assert float(values["unknown"].removesuffix("%")) > 5
    assert float(values["pieces a word"]) >= 1
    assert float(values["whole words"].removesuffix("%")) > 20


@pytest.mark.parametrize(
    ("text", "options", "apart"),
    [
        ("한국어 문장 low lower lowest\n" * 9, (), True),
        ("한국어 문장 low lower lowest\n" * 9, ("--keep-accents",), False),
        ("한국 low\n" * 2 + "low lower lowest\n" * 99, (), False),  # English that names a place
    ],
)
def test_vocab_says_when_it_takes_hangul_apart(tmp_path, capsys, text, options, apart):
    file = tmp_path / "a.txt"
    file.write_text(text, encoding="utf-8")
    assert run("vocab", file, "--output", tmp_path / "out", "--size", 32, *options) == 0
    assert ("Hangul are taken apart; --cased or --keep" in capsys.readouterr().out) == apart


def test_vocab_of_one_document_is_tried_on_it(tmp_path, capsys):
    file = tmp_path / "a.txt"
    file.write_bytes(b"low lower lowest \xff\n" * 9)
    assert run("vocab", file, "--output", tmp_path / "out", "--size", 24) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("on the corpus itself, 27 words:")
    mended = "mended: 9 lines with bytes that are not UTF-8, now U+FFFD; the first: a.txt, line 1"
    assert lines[-1] == mended


def test_export(trained, tmp_path, capsys):
    folder = trained("classification")
    capsys.readouterr()
    assert run("export", folder / "model", tmp_path / "served") == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "served" / "1")
    assert (tmp_path / "served" / "1" / "saved_model.pb").is_file()
    page = (tmp_path / "served" / "README.md").read_text()
    metrics = json.loads((folder / "model" / "metrics.json").read_text())
    assert f"| accuracy | {metrics['accuracy']:.4g} |" in page and "| trained on | a.tsv |" in page
    assert "not known" in page and str(folder) not in page


# Of each task: what its SavedModel is asked, as `ASKED`, and the answers that `predict` prints too.
SERVED = {
    "classification": ({"text": ["so good", "한국어"]}, ["label", "score"]),
    "pair": ({"text": ["so good"], "text_pair": ["bad"]}, ["label", "score"]),
    "multi-label": ({"text": ["so good", "bad"]}, ["probabilities"]),
    "regression": ({"text": ["so good"]}, ["score"]),
    "tagging": ({"text": ["so good!", "bad"]}, ["token", "tag", "score"]),
    "qa": ({"question": ["is this bad"], "context": ["a film so good"]}, ["answer", "score"]),
    "multiple-choice": ({"text": ["films"], "choices": [["good", "bad", "so"]]}, ["choice"]),
}


@pytest.mark.parametrize("task", SERVED)
def test_each_trained_folder_goes_into_an_export(trained, task, tmp_path, capsys):
    import tensorflow as tf

    folder = trained(task)
    asked, names = SERVED[task]
    assert run("export", folder / "model", tmp_path) == 0
    capsys.readouterr()
    assert run("predict", folder / "model", *ASKED[task][0]) == 0
    printed = capsys.readouterr().out
    served = tf.saved_model.load(tmp_path / "1").signatures["serving_default"]
    answers = served(**{name: tf.constant(value) for name, value in asked.items()})
    for name in names:
        for value in answers[name].numpy().ravel():
            text = value.decode() if isinstance(value, bytes) else f"{value:.4f}"
            assert text.removesuffix(".0000") in printed, (name, printed)


def test_both_parts_of_a_pair_are_named(encoder_folder, tmp_path, capsys):
    for number in "12":
        assert run("export", encoder_folder, tmp_path / "pair") == 0
        parts = [str(tmp_path / "pair" / part / number) for part in ("encoder", "preprocess")]
        assert capsys.readouterr().out.splitlines() == parts


def test_an_export_knows_the_licence_of_its_source_or_is_told(tmp_path, monkeypatch):
    said = {}
    monkeypatch.setattr(keras_bert, "load", lambda name, **options: None)
    monkeypatch.setattr(keras_bert, "export", lambda model, path, **options: said.update(options))
    for metrics, options, expected in (
        ("broken", [], {"metrics": {}, "license": None}),
        ("[1]", [], {"metrics": {}, "license": None}),
        ('{"model": "minilm"}', [], {"metrics": {"model": "minilm"}, "license": "Apache-2.0"}),
        ('{"model": 1}', ["--license", "MIT"], {"metrics": {"model": 1}, "license": "MIT"}),
    ):
        (tmp_path / "metrics.json").write_text(metrics)
        (tmp_path / "model.keras").touch()
        for model in (tmp_path, tmp_path / "model.keras"):
            assert run("export", model, tmp_path / "there", *options) == 0
            assert said == expected
    assert run("export", "minilm", tmp_path / "there") == 0
    assert said == {"metrics": {}, "license": "Apache-2.0"}


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
        "metric": "mcc", "patience": 2, "accumulate": 4, "seed": 8, "class_weight": "balanced",
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
    arguments["gradient_accumulation_steps"] = arguments.pop("accumulate")
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
    assert "--search, --metric and --patience need --dev" in capsys.readouterr().err


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
    assert "the run there is not finished" in capsys.readouterr().err
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
        "rows that have not the columns of the file, left out: 2 (a.tsv)",
        "rows that have not the columns of the file, left out: 2 (b.tsv)",
    ]


def test_what_was_not_seen_is_told():
    train, dev = (tabular.Examples(["a"], source=name) for name in ("a.tsv", "b.tsv"))
    names = ("truncated", "without_pieces", "words_without_pieces", "cut_answers")
    counts = {name: number for number, name in enumerate((*names, "invisible_answers"), 1)}
    expected = [
        "texts longer than the model reads (finetune's --max-length), cut there: 1 (a.tsv)",
        "texts that are empty or invisible characters alone: 2 (a.tsv)",
        "words of invisible characters alone, which the model does not see: 3 (a.tsv)",
        "answers longer than a window, from which nothing is learned: 4 (a.tsv)",
        "answers of invisible characters alone, from which nothing is learned: 5 (a.tsv)",
        "texts longer than the model reads (finetune's --max-length), cut there: 6 (b.tsv)",
    ]
    counts["dev_truncated"] = 6
    assert list(reading.notes(train, dev, counts)) == expected
    # Of one file the lines would be alike.
    dev = tabular.Examples(["a"], source="a.tsv")
    assert list(reading.notes(train, dev, counts))[-1].endswith(": 6 (a.tsv, scored)")


def test_answers_that_are_not_learned_are_told():
    answers = [[("b", 0)], [("x", 0)]]
    train, dev = (
        question_answering.Questions(["a", "a"], ["c b", "c"], answers, source=name)
        for name in ("a.json", "b.json")
    )
    assert list(reading.notes(train, dev)) == [
        f"{what}: 1 ({name})"
        for name in ("a.json", "b.json")
        for what in (
            "answers that do not stand where the file says, taken at the nearest place",
            "answers that do not stand in their text, from which nothing is learned",
        )
    ]


def test_a_vocabulary_of_another_language_is_told():
    english = keras_bert.Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "film"])
    korean = tabular.Examples(["좋은 영화", "good film"] * 3, labels=["a", "b"] * 3)
    note = training._note_of_vocabulary(korean, english, "minilm")
    assert note.startswith("minilm has few of the words: 1.0 pieces a word, 50.0% unknown; ")
    sentences = tagging.TaggedSentences([["좋은", "영화"]], [["A", "B"]])
    assert "100.0% unknown" in training._note_of_vocabulary(sentences, english, "minilm")
    for texts in (["good film"], [" "]):
        assert training._note_of_vocabulary(tabular.Examples(texts), english, "minilm") is None


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
    (model / "metrics.json").unlink()
    assert run("evaluate", model, "--input", plain) == 0


def test_the_columns_of_a_glue_task_are_remembered(encoder_folder, tmp_path):
    folder = tmp_path / "CoLA"
    folder.mkdir()
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text("a\t1\t\tso good\nb\t0\t*\tso bad\n" * 3)
    common = ["--epochs", 1, "--model", encoder_folder, "--output", tmp_path / "out"]
    assert run("finetune", "--glue", folder, *common) == 0
    assert run("evaluate", tmp_path / "out", "--input", folder / "dev.tsv") == 0


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
    assert "left out: 1 (" in capsys.readouterr().out
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
        assert "the best: learning_rate 0.01" in output
        assert ("stopped; what follows is the best so far" in output) == bool(stop_at)
        for a, b in zip(keras_bert.load(tmp_path / "out").get_weights(), seen[1][1], strict=True):
            np.testing.assert_array_equal(a, b)
        metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
        assert len(metrics["search"]) == len(seen)
        assert metrics["accuracy"] == 0.75
    assert run(*common, "--search") == 1
    assert "--search, --metric and --patience need --dev" in capsys.readouterr().err


def test_a_search_takes_no_run_that_is_not_finished(encoder_folder, tmp_path, capsys):
    file, folder = tmp_path / "a.tsv", tmp_path / "out"
    file.write_text(TEXTS)
    folder.mkdir()
    (folder / "training.npz").touch()
    common = ["finetune", "--model", encoder_folder, "--train", file, "--dev", file, "--epochs", 1]
    assert run(*common, "--search", "--output", folder) == 1
    assert "the same command without --search goes on with it, or delete training.npz" in (
        capsys.readouterr().err
    )
    assert [path.name for path in folder.iterdir()] == ["training.npz"]


def test_a_folder_is_one_runs(encoder_folder, tmp_path, capsys):
    file, folder = tmp_path / "a.tsv", tmp_path / "out"
    file.write_text(TEXTS)
    common = ["finetune", "--model", encoder_folder, "--train", file, "--epochs", 1]
    with files.alone(folder, "anything"):
        assert run(*common, "--output", folder) == 1
    assert capsys.readouterr().err == f"keras-bert: {folder}: another process is training there\n"
    assert run(*common, "--output", folder) == 0
    assert ".lock" not in {path.name for path in folder.iterdir()}


def test_the_model_of_an_earlier_run_says_so(trained, tmp_path, capsys):
    """A run that goes on writes its state beside the model that is there."""
    model = shutil.copytree(trained("classification") / "model", tmp_path / "model")
    (model / "training.npz").touch()
    capsys.readouterr()
    assert run("predict", model, "so good") == 0
    assert capsys.readouterr().err == (
        f"{model}: the run there is not finished; the same finetune command goes on with it. This "
        "is the model of an earlier run\n"
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
    goes_on = re.match(r"resuming the run in .*, epoch (\d+) of 20\n", said["killed"][1])
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
    assert "stopped; what follows is the best so far" in out
    metrics = json.loads((tmp_path / "stopped" / "metrics.json").read_text())
    assert metrics["stopped"] and metrics["best_epoch"] <= len(metrics["history"]) < 10_000
    keras_bert.load(tmp_path / "stopped", task="auto")


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
    assert "is of a run with seed=0, this one has 1" in capsys.readouterr().err
    assert run(*arguments) == 0
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert [record["epoch"] for record in metrics["history"]] == [1, 2]
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert names == ["curves.png", "metrics.json", "model.keras"]


def test_convert(tmp_path, capsys):
    encoder = tiny.encoder(num_hidden_layers=1)  # with exact gelu
    keras_bert.save(keras_bert.heads.pretraining(encoder), tmp_path / "start")
    assert run("convert", tmp_path / "start", tmp_path / "a", "--to", "google") == 1
    error = capsys.readouterr().err
    assert "hidden_act must be gelu_new, relu, received 'gelu'" in error
    assert error.endswith(": give --hidden-act gelu_new\n")
    google = ("convert", tmp_path / "start", tmp_path / "a", "--to", "google")
    assert run(*google, "--hidden-act", "gelu_new") == 0
    said = "google: encoder, masked_lm, next_sentence, pooler: 26 weights in "
    assert capsys.readouterr().out == f"{said}{tmp_path / 'a'}\n"
    hub = ("convert", tmp_path / "a", tmp_path / "b", "--to", "keras_hub")
    assert run(*hub) == 1
    error = capsys.readouterr().err
    assert "received masked_lm, next_sentence; drop next_sentence: give --drop next_s" in error
    theirs = ("convert", tmp_path / "a", tmp_path / "d", "--to", "huggingface")
    assert run(*theirs, "--drop", "next_sentence") == 1
    assert capsys.readouterr().err.endswith(
        "; drop pooler for BertForMaskedLM: give --drop pooler\n"
    )
    assert run(*theirs, "--drop", "next_sentence", "--drop", "pooler") == 0
    assert run(*hub, "--drop", "next_sentence") == 0
    assert run("convert", tmp_path / "b", tmp_path / "c", "--to", "keras") == 0
    model = keras_bert.load(tmp_path / "c", task="masked_lm")
    weights = keras_bert.heads.find_encoder(model).weights
    for ours, theirs in zip(encoder.weights, weights, strict=True):
        assert (ours.numpy() == theirs.numpy()).all()
    assert run("convert", tmp_path / "b", tmp_path / "c", "--to", "huggingface") == 1
    assert "must be an empty folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "no-such-model"], "'no-such-model' is no folder and no known name"),
        (["finetune", "--output", "x"], "finetune needs --train or --glue"),
        (
            ["finetune", "--glue", "RTE", "--train", "{rows}", "--output", "x"],
            "give one or the other",
        ),
        (
            ["finetune", "--glue", "RTE", "--task", "pair", "--output", "x"],
            "--dev and --task; give",
        ),
        (["finetune", "--glue", "sst", "--output", "x"], "sst: must be one of GLUE's tasks, CoLA"),
        (["finetune", "--train", "missing.tsv", "--output", "x"], "missing.tsv: No such file"),
        (["finetune", "--train", "{rows}", "--text", "t", "--output", "x"], "has no column 't'"),
        (
            ["finetune", "--train", "{rows}", "--task", "pair", "--output", "x"],
            "pairs need --text-pair",
        ),
        (
            ["finetune", "--train", "{rows}", "--task", "qa", "--output", "x"],
            "a.tsv: is not JSON",
        ),
        (["predict", "{model}"], "predict takes texts or --input, one of them"),
        (["predict", "{model}", "a", "--input", "{rows}"], "predict takes texts or --input"),
        (["predict", "{model}", "--input", "missing"], "missing: No such file"),
        (["predict", "{model}", "a", "--output", "no/such"], "its folder does not exist"),
        (["predict", "{encoder}", "a"], "an encoder has to be fine-tuned first"),
        (["predict", "{qa}", "a"], "takes a question and a context, two texts"),
        (["predict", "{choice}", "a", "b"], "a text and its choices, at least two"),
        (["predict", "{pair}", "--input", "{rows}"], "has no column 'other'; its columns are text"),
        (
            ["predict", "{pair}", "--input", "{rows}", "--text", "text"],
            "pairs need --text-pair, the column of the",
        ),
        (["predict", "{pair}", "a"], "predict takes the two texts of one; received 1"),
        (["predict", "{pair}", "a", "b", "c", "d"], "give --input with --text and --text-pair"),
        (["predict", "{model}", "a", "--output", "a.json"], "qa alone; name it .jsonl"),
        (["evaluate", "{model}", "--input", "{rows}", "--label", "x"], "has no column 'x'"),
        (["fill", "{encoder}", "a [MASK]"], "has no masked-LM head to fill blanks with; take a ch"),
        (
            ["fill", "{model}", "a [MASK]"],
            "has no masked-LM head to fill blanks with; take a check",
        ),
        (["predict", "{rows}", "a"], "must be a folder or a .keras file"),
        (["vocab", "missing/*.txt", "--output", "x"], "missing/*.txt: no such file, folder or"),
        (["vocab", "{nothing}", "--output", "x"], "nothing.txt: holds no documents"),
        (["vocab", "{rows}", "--output", "x"], "size must be at most"),
        (["vocab", "{rows}", "--output", "no/such"], "its folder does not exist"),
        (["vocab", "{cut}", "--output", "x"], "cut.gz: this gzip file is damaged or truncated"),
        (["vocab", "{folder}", "--output", "{folder}/x"], "x: must not be inside the corpus"),
        (["records", "missing/*", "--vocab", "a", "--output", "x"], "missing/*: no such file"),
        (["records", "{rows}", "--vocab", "none", "--output", "x"], "'none' is no folder and no"),
        (["records", "{rows}", "--vocab", "a", "--output", "no/such"], "its folder does not exist"),
        (["records", "{nothing}", "--vocab", "{vocab}", "--output", "x"], "the corpus holds no te"),
        (
            ["records", "{rows}", "--vocab", "{vocab}", "--output", "x", "--held-out", "1"],
            "held_out must be at least 0 and below 1; received 1.0",
        ),
        (["records", "{rows}", "--vocab", "{bare}", "--output", "x"], "has no vocabulary"),
        (["pretrain", "--records", "none", "--output", "x"], "none holds no records.json; make"),
        (["pretrain", "--records", "{records}", "--output", "no/such"], "its folder does not exi"),
        (
            ["pretrain", "--records", "{records}", "--output", "x", "--lengths", "8", "16", "32"],
            "--lengths takes one or two numbers; received 3",
        ),
        (
            ["pretrain", "--records", "{records}", "--output", "x", "--config", "none.json"],
            "none.json: No such file",
        ),
        (
            ["pretrain", "--records", "{records}", "--output", "x", "--config", "{rows}"],
            "a.tsv: must be JSON",
        ),
        (
            ["pretrain", "--records", "{records}", "--output", "x", "--config", "{list}"],
            "list.json: must hold a JSON object",
        ),
        (
            [
                "pretrain",
                "--records",
                "{records}",
                "--output",
                "x",
                "--model",
                "{encoder}",
                "--lengths",
                "16",
            ],
            "another vocabulary of 52 tokens; received 18 tokens",
        ),
        (
            [
                "pretrain",
                "--records",
                "{records}",
                "--output",
                "x",
                "--size",
                "tiny",
                "--batch-size",
                "4",
                "--accumulate",
                "3",
            ],
            "batch_size must be a multiple of gradient_accumulation_steps x devices",
        ),
        (
            ["evaluate", "{model}", "--input", "{rows}", "--characters"],
            "--characters is for questions; ",
        ),
        (
            ["finetune", "--model", "{encoder}", "--train", "{rows}", "--output", "x"]
            + ["--stride", "4"],
            "stride is not an option for Examples",
        ),
        (
            ["finetune", "--train", "{rows}", "--task", "qa", "--format", "csv", "--output", "x"],
            "questions are read from SQuAD's JSON alone; received --format csv",
        ),
        (
            ["predict", "{qa}", "a", "b", "--null-threshold", "1"],
            "--null-threshold is for questions that may have no answer; ",
        ),
        (
            ["predict", "{choice}", "--input", "{rows}"],
            "a.tsv: the format must be csv or jsonl (--format); received 'tsv'",
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
        ("qa", "qa"),
        ("choice", "multiple-choice"),
        ("pair", "pair"),
    ):
        if any(f"{{{name}}}" in argument for argument in arguments):
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
    assert main([argument.format(**names) for argument in arguments]) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("keras-bert: ")
    assert message in error
    assert "\n" not in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["finetune", "--train", "missing.tsv", "--output", "x"], "missing.tsv: No such file"),
        (["finetune", "--train", "a.tsv", "--dev", "no", "--output", "x"], "no: No such file"),
        (["finetune", "--train", "empty.tsv", "--output", "x"], "empty.tsv: is empty"),
        (["predict", ".", "--input", "folder"], "folder: Is a directory"),
        (["evaluate", ".", "--input", "mising.tsv"], "mising.tsv: No such file"),
        (["embed", "minilm", "--input", "empty.tsv", "--output", "x"], "empty.tsv: is empty"),
        (["predict", "my_modle", "a"], "'my_modle' is no folder and no known name"),
        (["predict", "my_model.keras", "a"], "my_model.keras: No such file"),
        (["finetune", "--model", "bas", "--train", "a.tsv", "--output", "x"], "no known name"),
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
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("keras-bert: ") and error.count("\n") == 1
    assert message in error


def test_what_a_pipe_holds_is_not_read_by_the_check(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    _check_files(argparse.Namespace(files=("input",), input=str(pipe)))  # to open it would wait


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


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("finetune", "keys text, choices (a list) and label (the index of the right one, from 0)"),
        ("finetune", "optional, without it nothing is scored"),
        ("predict", "multiple-choice: JSON Lines with the keys text and choices (a list)"),
        ("predict", "of pairs the two texts, for qa the question and the context"),
        ("predict", ".jsonl has a JSON object a line, .csv is CSV"),
    ],
)
def test_help_says_what_files_and_arguments_hold(command, said, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert said in " ".join(capsys.readouterr().out.split())


def test_training_without_dev_says_that_nothing_was_scored(encoder_folder, tmp_path, capsys):
    file = tmp_path / "a.tsv"
    file.write_text(TEXTS)
    arguments = ["--train", file, "--epochs", 1, "--output", tmp_path / "out"]
    assert run("finetune", "--model", encoder_folder, *arguments) == 0
    assert "nothing was scored, as there was no --dev" in capsys.readouterr().out


def test_bad_options_are_refused_by_the_parser(capsys):
    for option, value in (
        ("--epochs", "0"), ("--max-length", "2"), ("--learning-rate", "-1"), ("--warmup", "1.5"),
        ("--task", "chess"), ("--class-weight", "equal"), ("--accumulate", "0"),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            main(["finetune", "--train", "a", "--output", "b", option, value])
        assert value in capsys.readouterr().err


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
    for known, said in (((), ""), (("at step 3",), " at step 3")):

        def interrupted(name, known=known, **options):
            raise KeyboardInterrupt(*known)

        monkeypatch.setattr(keras_bert.hub.loading, "load", interrupted)
        assert main(["info", "minilm"]) == 130
        assert capsys.readouterr().err == f"keras-bert: stopped{said}\n"


# --- Pretraining


CONFIG = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "max_position_embeddings": 32, "hidden_act": "gelu_new",
}  # fmt: skip


def test_records_and_pretrain(tmp_path, capsys):
    """From a text to a model in a few steps, in two phases, and on from there."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(prose.text(prose.documents(200, seed=41)) + "Zab unknown.\n")
    vocab = tmp_path / "vocab"
    options = {"lowercase": True, "strip_accents": True, "split_cjk": True}
    vocabulary.write(vocab, prose.PIECES, **options)
    command = ["records", corpus, "--vocab", vocab, "--output", tmp_path / "records"]
    command += ["--held-out", "0.1", "--workers", "1"]
    assert run(*command) == 0
    made = records.Records(tmp_path / "records")
    counts = made.manifest["counts"]
    output = capsys.readouterr().out
    assert output.splitlines() == [
        f"201 documents, {counts['sentences']:,} sentences, {counts['pieces']:,} pieces in "
        f"{tmp_path / 'records'}",
        f"  held out         {made.counts('eval')['documents']} documents",
        f"  unknown          {1 / counts['pieces']:.3%}",
    ]
    assert run(*command) == 0
    assert capsys.readouterr().out == output
    assert run(*command[:-3], "0.2", *command[-2:]) == 1
    assert "held_out=0.1, these would have 0.2" in capsys.readouterr().err

    config = tmp_path / "bert_config.json"
    config.write_text(json.dumps(CONFIG))
    command = [
        "pretrain", "--records", tmp_path / "records", "--output", tmp_path / "run",
        "--config", config, "--steps", 2, "--lengths", 16, 32, "--first-share", 0.5,
        "--batch-size", 4, "--warmup-steps", 1, "--log-every", 1, "--save-every", 1,
    ]  # fmt: skip
    assert run(*command, "--size", "tiny") == 1
    assert "--config is in place of --size; give one of them" in capsys.readouterr().err
    assert run(*command, "--tensorboard", config / "logs") == 1
    assert f"logs: must be a folder; {config} is a file" in capsys.readouterr().err
    assert run(*command) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[-1] == f"saved in {tmp_path / 'run'}"
    files = {file.name for file in (tmp_path / "run").iterdir()} - {".lock"}
    assert files == {"checkpoints", "curves.png", "history.jsonl", "model.keras"}
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["sequence_length"] for line in lines] == [16, 32]
    assert {"eval_loss", "eval_masked_lm_accuracy", "eval_next_sentence_accuracy"} <= set(
        json.loads(lines[-1])
    )
    model = keras_bert.load(tmp_path / "run", task="auto")
    encoder = keras_bert.heads.find_encoder(model)
    assert encoder.bert_config | CONFIG == encoder.bert_config
    assert encoder.bert_config["vocab_size"] == len(prose.PIECES)
    assert encoder.preprocessor.vocabulary == tuple(prose.PIECES)
    assert keras_bert.heads.find_task(model) == "pretraining"

    # Its heads can be served, or the encoder alone.
    capsys.readouterr()
    assert run("export", tmp_path / "run", tmp_path / "fill", "--task", "masked_lm") == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "fill" / "1")]
    card = (tmp_path / "fill" / "README.md").read_text(encoding="utf-8")
    assert "candidates" in card

    # Given again it is done already; with other settings it is another run.
    assert run(*command) == 0
    assert "; the run is complete\n" in capsys.readouterr().err
    assert run(*command, "--seed", 1) == 1
    assert "take another folder" in capsys.readouterr().err

    # In another folder it is the same, whatever was drawn before.
    keras.utils.set_random_seed(99)
    command[4] = tmp_path / "again"
    assert run(*command) == 0
    again = keras_bert.load(tmp_path / "again", task="auto")
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)

    # Packed, with the other options, from that model.
    command = [
        "pretrain", "--records", tmp_path / "records", "--output", tmp_path / "on",
        "--model", tmp_path / "run", "--steps", 2, "--lengths", 32, "--batch-size", 4,
        "--packed", "--whole-words", "--no-next-sentence", "--optimizer", "lamb",
        "--accumulate", 2, "--warmup-steps", 0, "--seed", 5, "--dtype", "mixed_bfloat16",
        "--max-predictions", 3,
    ]  # fmt: skip
    assert run(*command) == 0
    model = keras_bert.load(tmp_path / "on", task="auto")
    assert keras_bert.heads.find_task(model) == "masked_lm"
    assert keras_bert.heads.find_encoder(model).dtype_policy.name == "mixed_bfloat16"

    capsys.readouterr()
    for options, message in (
        (("--size", "base"), "--size and --config are of a new model; --model has its own"),
        (("--max-predictions", 3, 4), "one number, or one for each of --lengths; received 2"),
        (("--output", "gs://mine/run"), "gs://mine/run: must be a folder of this machine; mount"),
        (("--records", "gs://mine/r"), "gs://mine/r: must be a folder of this machine; mount"),
    ):
        assert run(*command, *options) == 1
        assert message in capsys.readouterr().err


def test_pretraining_goes_on_with_all_weights(tmp_path):
    """Both heads' too, in another dtype than that of the model on disk."""
    bert = keras_bert.BertEncoder(**CONFIG, vocab_size=len(prose.PIECES))
    bert.preprocessor = keras_bert.Preprocessor(prose.PIECES)
    before = keras_bert.heads.pretraining(bert)
    keras_bert.save(before, tmp_path / "model")
    args = argparse.Namespace(
        model=str(tmp_path / "model"), size=None, config=None, dtype="mixed_bfloat16",
        rematerialize=True, no_next_sentence=False, trusted=False,
    )  # fmt: skip
    model = pretraining._model_to_go_on_with(args)
    encoder = keras_bert.heads.find_encoder(model)
    assert (encoder.dtype_policy.name, encoder.rematerialize) == ("mixed_bfloat16", True)
    assert encoder.preprocessor.vocabulary == tuple(prose.PIECES)
    for a, b in zip(before.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)

    # Without next sentences it is the half that is left, and that goes on as it is.
    args.no_next_sentence = True
    half = pretraining._model_to_go_on_with(args)
    assert keras_bert.heads.find_task(half) == "masked_lm"
    keras_bert.save(half, tmp_path / "half")
    args = argparse.Namespace(
        model=str(tmp_path / "half"), size=None, config=None, dtype=None, rematerialize=False,
        no_next_sentence=True, trusted=False,
    )  # fmt: skip
    for model in (half, pretraining._model_to_go_on_with(args)):
        head = model.get_layer("masked_lm")
        for a, b in zip(
            before.get_layer("masked_lm").get_weights(), head.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(a, b)


def test_published_configs_make_new_models(tmp_path):
    prose.build(tmp_path, prose.documents(9))
    made = records.Records(tmp_path / "records")
    config = tmp_path / "bert_config.json"
    published = {"directionality": "bidi", "pooler_fc_size": 768, "model_type": "bert"}
    config.write_text(json.dumps(CONFIG | published))
    args = argparse.Namespace(config=str(config), lengths=[16], size=None)
    assert pretraining._bert_config(args, made).keys() == CONFIG.keys() | {"vocab_size"}
    config.write_text(json.dumps(CONFIG | {"model_type": "gpt2"}))
    with pytest.raises(ValueError, match="model_type: no key of a BERT's config"):
        pretraining._bert_config(args, made)


def test_a_second_phase_that_is_too_short_is_known_before_the_first(tmp_path, capsys):
    prose.build(tmp_path, prose.documents(20))
    command = ["pretrain", "--records", tmp_path / "records", "--output", tmp_path / "run"]
    with pytest.raises(SystemExit):
        run(*command, "--size", "tiny", "--steps", 10, "--lengths", 16, 7)
    assert "argument --lengths: invalid length (at least 8) value: '7'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_too_few_documents_are_said_when_records_are_made(tmp_path, capsys):
    file = tmp_path / "corpus.txt"
    file.write_text("Zab. Zeb.\nZib.\n")
    vocab = tmp_path / "vocab"
    vocabulary.write(vocab, prose.PIECES, lowercase=True, strip_accents=True, split_cjk=True)
    assert run("records", file, "--vocab", vocab, "--output", tmp_path / "r", "--workers", 1) == 0
    output = capsys.readouterr().out
    assert "put blank lines between documents, or pretrain with --no-next-sentence" in output
    assert "fewer than two documents are held out: pretraining will not be evaluated" in output
    config = tmp_path / "bert_config.json"
    config.write_text(json.dumps(CONFIG))
    command = ["pretrain", "--records", tmp_path / "r", "--output", tmp_path / "run",
               "--config", config, "--steps", 1, "--lengths", 16, "--batch-size", 2]  # fmt: skip
    assert run(*command) == 1
    error = capsys.readouterr().err
    assert "separate documents by blank lines, or use --no-next-sentence" in error


def test_what_was_mended_in_a_corpus_is_said_with_its_place(tmp_path, capsys):
    corpus = tmp_path / "corpus.txt"
    lines = [prose.text([document]).encode() for document in prose.documents(40, seed=7)]
    lines.insert(3, b"Caf\xe9 one.\n\n")
    corpus.write_bytes(b"".join(lines))
    number = b"".join(lines[:3]).count(b"\n") + 1
    vocab = tmp_path / "vocab"
    vocabulary.write(vocab, prose.PIECES, lowercase=True, strip_accents=True, split_cjk=True)
    assert run("records", corpus, "--vocab", vocab, "--output", tmp_path / "r", "--workers", 1) == 0
    expected = "mended: 1 lines with bytes that are not UTF-8, now U+FFFD; the first: corpus.txt, "
    assert f"{expected}line {number}" in capsys.readouterr().out


def test_documents_of_one_sentence_have_no_next_one(tmp_path, capsys):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"{prose.PIECES[5 + number]}.\n\n" for number in range(9)))
    vocab = tmp_path / "vocab"
    vocabulary.write(vocab, prose.PIECES, lowercase=True, strip_accents=True, split_cjk=True)
    made = tmp_path / "records"
    assert run("records", corpus, "--vocab", vocab, "--output", made, "--workers", 1) == 0
    assert "no document has a second sentence: pretrain with --no-next" in capsys.readouterr().out
    config = tmp_path / "bert_config.json"
    config.write_text(json.dumps(CONFIG))
    command = ["pretrain", "--records", made, "--output", tmp_path / "run", "--config", config,
               "--steps", 1, "--lengths", 8, "--batch-size", 2]  # fmt: skip
    assert run(*command) == 1
    assert "no document has a second sentence, which" in capsys.readouterr().err
    assert run(*command, "--no-next-sentence") == 0


def test_options_of_pretraining_are_checked_by_the_parser(capsys):
    for option, value in (
        ("--steps", "0"), ("--lengths", "2"), ("--first-share", "1.5"), ("--size", "huge"),
        ("--optimizer", "sgd"), ("--batch-size", "0"), ("--keep", "0"), ("--save-every", "-1"),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            main(["pretrain", "--records", "a", "--output", "b", option, value])
        assert value in capsys.readouterr().err
    for option, value in (("--held-out", "1.5"), ("--workers", "0")):
        with pytest.raises(SystemExit):
            main(["records", "a", "--vocab", "b", "--output", "c", option, value])
        assert value in capsys.readouterr().err
