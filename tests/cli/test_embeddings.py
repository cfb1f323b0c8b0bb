"""Embeddings: `finetune --task embedding`, `embed`, `search`, `mine` and `evaluate`."""

import csv
import json
import re

import numpy as np
import pytest

import keras_bert
from keras_bert import provenance
from tests import tiny
from tests.cli.shared import run
from tests.parameters import fast
from tests.tasks.embedding.test_retrieval import beir

pytestmark = pytest.mark.usefixtures("eager")


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
        arguments = ["finetune", "--model", model, "--task", "embedding", "--text", "q"]
        arguments += ["--train", words]
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
        assert f"{option} does not apply to the task" in capsys.readouterr().err


def test_search(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "model.keras"
    keras_bert.save(keras_bert.heads.embedder(tiny.encoder(initializer_range=0.5)), model)
    (file := tmp_path / "texts.tsv").write_text("text\nso good\nbad film\ngood\n")
    arguments = ["search", file, "bad film", "--model", model, "--top", 2]
    assert run(*arguments) == 0
    out, err = capsys.readouterr()
    first, second = out.splitlines()
    assert first == "1.0000\t2\tbad film" and len(second.split("\t")) == 3 and err == ""
    [vectors] = (tmp_path / "cache").rglob("*.npz")
    written = vectors.stat().st_mtime_ns
    assert run(*arguments) == 0
    assert capsys.readouterr().out == out and vectors.stat().st_mtime_ns == written
    # The vectors of other texts, of another model and a broken file are computed again.
    file.write_text("text\nso good\nbad film\ngood\nbad film\n")
    assert run(*arguments) == 0
    out = capsys.readouterr().out
    assert {line.split("\t")[1] for line in out.splitlines()} == {"2", "4"}
    vectors.write_bytes(b"broken")
    assert run(*arguments) == 0
    assert capsys.readouterr().out == out
    written = vectors.read_bytes()
    other = tmp_path / "other.keras"
    keras_bert.save(keras_bert.heads.embedder(tiny.encoder(initializer_range=0.1)), other)
    assert run("search", file, "bad film", "--model", other) == 0
    assert [vectors] == list((tmp_path / "cache").rglob("*.npz"))
    assert vectors.read_bytes() != written
    capsys.readouterr()
    (plain := tmp_path / "plain.txt").write_text("so good\nbad film\n")
    assert run("search", plain, "bad film", "--model", model, "--top", 1) == 0
    assert capsys.readouterr().out == "1.0000\t2\tbad film\n"


@pytest.mark.parametrize("precision", fast(["int8", "binary"], "binary"))
def test_search_in_small_vectors(tmp_path, capsys, monkeypatch, precision):
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    model, other = tmp_path / "model.keras", tmp_path / "other.keras"
    keras_bert.save(keras_bert.heads.embedder(tiny.encoder(initializer_range=0.5)), model)
    keras_bert.save(keras_bert.heads.embedder(tiny.encoder(initializer_range=0.1)), other)
    (file := tmp_path / "texts.tsv").write_text(
        "text\tn\n \t1\n" + "so good\t1\nbad film\t2\n" * 60
    )
    small = tmp_path / "small.npz"
    arguments = ["embed", model, "--input", file, "--vector-precision", precision]
    options = ["--truncate-dim", 7]
    assert run(*arguments, *options, "--output", small) == 0
    assert capsys.readouterr().out == f"121 vectors of 7 numbers in {small}\n"
    stored = keras_bert.search.QuantizedVectors.load(small)
    expected = keras_bert.pipeline(model).encode(
        keras_bert.read(file, text="text", label=None).texts, truncate_dim=7, precision=precision
    )
    np.testing.assert_array_equal(stored.values, expected)
    assert {path.name for path in tmp_path.glob(".*")} == set()
    find = ["search", file, "bad film", "--vectors", small, "--top", 3]
    assert run(*find, "--model", model) == 0
    rows = [line.split("\t")[1:] for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 3 and all(text == "bad film" and int(row) % 2 for row, text in rows)
    assert not (tmp_path / "cache").exists()
    # Vectors of another model, of another prompt, and of other texts.
    for change, message in (
        (["--model", other], "vectors of another model"),
        (["--model", model, "--corpus-prompt", "so: "], "does not hold the vectors of"),
    ):
        assert run(*find, *change) == 1
        assert re.search(message, capsys.readouterr().err)
    file.write_text(file.read_text().replace("so good\t1", "good\t1", 1))
    assert run(*find, "--model", model) == 1
    assert re.search("does not hold the vectors of", capsys.readouterr().err)
    np.save(tmp_path / "floats.npy", expected)
    find[find.index(small)] = tmp_path / "floats.npy"
    assert run(*find, "--model", model) == 1
    assert re.search("embed --vector-precision", capsys.readouterr().err)


def test_embed_refuses(tmp_path, capsys, encoder_folder):
    (file := tmp_path / "a.tsv").write_text("text\ngood\n")
    for options, message in (
        (["--output", tmp_path / "v.npy", "--vector-precision", "binary"], r"extension \.npz"),
        (["--output", tmp_path / "v.npz"], r"extension \.npy"),
        (["--output", tmp_path / "v.npy", "--truncate-dim", 9], "at most 8"),
        (["--output", tmp_path / "v.npz", "--vector-precision", "int8"], "need several vectors"),
    ):
        assert run("embed", encoder_folder, "--input", file, *options) == 1
        assert re.search(message, capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]


def test_search_and_mine_use_the_columns_of_the_training(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "model"
    keras_bert.save(keras_bert.heads.embedder(tiny.encoder(initializer_range=0.5)), model)
    (file := tmp_path / "a.tsv").write_text("q\ta\nbad film\tso bad\nso good\tgood film\n")
    mine = ["mine", file, "--model", model, "--margin", -2, "--output", tmp_path / "mined.csv"]
    assert run(*mine, "--text", "q") == 1
    assert "--text-pair" in capsys.readouterr().err
    provenance.write_metrics(model, {"columns": {"text": "q", "text_pair": "a", "label": "s"}})
    assert run("search", file, "bad film", "--model", model, "--top", 1) == 0
    assert capsys.readouterr().out == "1.0000\t1\tbad film\n"
    assert run(*mine) == 0
    assert (tmp_path / "mined.csv").read_text().startswith("q,a,negative_1\n")


def test_too_few_candidates_are_refused_before_the_models_load(tmp_path, capsys):
    (file := tmp_path / "a.tsv").write_text("text\ngood\n")
    (model := tmp_path / "empty").mkdir()  # to load it is another error
    options = ["--rerank", model, "--top", 100, "--candidates", 10]
    assert run("search", file, "good", "--model", model, *options) == 1
    assert "--candidates must be at least --top" in capsys.readouterr().err


def test_search_without_texts_or_query(encoder_folder, tmp_path, capsys):
    (file := tmp_path / "blank.tsv").write_text("text\tn\n\t1\n \t2\n")
    for query, message in (("good", "has no texts"), (" ", "the query is empty")):
        assert run("search", file, query, "--model", encoder_folder) == 1
        assert message in capsys.readouterr().err
        file.write_text("text\ngood\n")


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
    assert "has no column 'x'; its columns are q, a, negative_1" in capsys.readouterr().err
    content = file.read_bytes()
    assert run("mine", file, *columns, "--model", encoder, "--output", file) == 1
    assert "the output must not be the input" in capsys.readouterr().err
    assert file.read_bytes() == content


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (["a\tb", "a\tc"], [], "all rows have the same query"),
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
    encoder, _ = pairs
    (folder := tmp_path / "beir").mkdir()
    arguments = ["evaluate", encoder, "--task", "embedding", "--input", beir(folder)]
    assert run(*arguments, "--prompt", "so ") == 0
    assert "ndcg@10" in capsys.readouterr().out
    assert run(*arguments, "--split", "dev") == 1
    assert "dev.tsv: no such file; the splits of this folder are: test" in capsys.readouterr().err
    (folder / "qrels" / "test.tsv").unlink()
    assert run(*arguments) == 1
    assert "no relevance judgments" in capsys.readouterr().err


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
