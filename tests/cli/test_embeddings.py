"""Embeddings: `finetune --task embedding`, `embed`, `search`, `mine` and `evaluate`."""

import csv
import functools
import json
import re

import numpy as np
import pytest

import keras_bert
from keras_bert import provenance
from keras_bert.data import tabular
from tests import tiny
from tests.cli.shared import run
from tests.parameters import fast
from tests.tasks.embedding.test_retrieval import beir

pytestmark = pytest.mark.usefixtures("eager")

COLUMNS = ["--text", "q", "--text-pair", "a"]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    """The file of an embedder with a prompt."""
    path = tmp_path_factory.mktemp("model") / "embedder.keras"
    encoder = tiny.encoder(initializer_range=0.5)
    keras_bert.save(keras_bert.heads.embedder(encoder, prompts={"query": "so "}), path)
    return path


@pytest.fixture(scope="module")
def other_embedder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "other.keras"
    keras_bert.save(keras_bert.heads.embedder(tiny.encoder(initializer_range=0.1)), path)
    return path


@pytest.fixture
def pairs(tmp_path):
    """A file of pairs."""
    rows = [f"{word} so\t{word}" for word in ("good", "bad", "film", "a", "b", "c", "d", "e")]
    (tmp_path / "pairs.tsv").write_text("q\ta\n" + "\n".join(rows) + "\n")
    return tmp_path / "pairs.tsv"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The user's cache, which is empty."""
    monkeypatch.setenv("KERAS_BERT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_embedder_is_trained_on_several_files_and_scored_on_a_corpus(
    embedder, pairs, tmp_path, capsys
):
    (folder := tmp_path / "beir").mkdir()
    beir(folder)
    (folder / "qrels/test.tsv").rename(folder / "qrels/dev.tsv")
    out = tmp_path / "out"
    arguments = ["finetune", "--model", embedder, "--task", "embedding", *COLUMNS, "--epochs", 1]
    arguments += ["--train", pairs, pairs, "--sampling", "round_robin", "--dev", folder]
    assert run(*arguments, "--output", out) == 0
    assert "ndcg@10" in capsys.readouterr().out
    assert json.loads((out / "metrics.json").read_text())["recipe"]["sampling"] == "round_robin"
    assert keras_bert.heads.find_output(keras_bert.load(out)).prompts == {"query": "so "}
    assert run("evaluate", out, "--input", pairs) == 0
    assert "mrr@10" in capsys.readouterr().out


def test_scores_of_a_range(embedder, tmp_path, capsys):
    (file := tmp_path / "scored.tsv").write_text("q\ta\ts\ngood\tso\t0\nbad\tfilm\t5\n")
    arguments = ["finetune", "--model", embedder, "--task", "embedding", "--train", file]
    arguments += [*COLUMNS, "--label", "s", "--epochs", 1, "--loss", "cosine_similarity"]
    assert run(*arguments, "--score-range", 0, 5, "--output", tmp_path / "out") == 0
    assert run("evaluate", tmp_path / "out", "--input", file) == 0
    assert "spearman" in capsys.readouterr().out


def test_mine_and_train_with_the_negatives(embedder, pairs, tmp_path, capsys):
    mined = tmp_path / "mined.csv"
    options = ["--model", embedder, "--output", mined, "--count", 2, "--margin", -2]
    assert run("mine", pairs, *COLUMNS, *options) == 0
    assert f"8 rows written to {mined}\n" in capsys.readouterr().out
    header, *rows = csv.reader(mined.read_text().splitlines())
    assert header == ["q", "a", "negative_1", "negative_2"]
    assert len(rows) == 8 and all(len(set(row[1:])) == 3 for row in rows)
    arguments = ["finetune", "--model", embedder, "--task", "embedding", *COLUMNS, "--epochs", 1]
    arguments += ["--negatives", "negative_1", "negative_2", "--loss", "triplet", "--train", mined]
    assert run(*arguments, "--dev", pairs, "--output", tmp_path / "out") == 0
    assert "mrr@10" in capsys.readouterr().out
    assert run("evaluate", tmp_path / "out", "--input", pairs) == 0  # it has no negatives


def test_evaluate_pairs_with_prompts(embedder, pairs, capsys):
    arguments = ["evaluate", embedder, "--task", "embedding", "--input", pairs, *COLUMNS]
    assert run(*arguments, "--prompt", "so ", "--corpus-prompt", "bad ") == 0
    out = capsys.readouterr().out
    data = keras_bert.read(pairs, "embedding", text="q", text_pair="a")
    expected = keras_bert.pipeline(embedder).evaluate(data.with_prompts("so ", "bad "))
    for name, value in expected.items():
        assert re.search(rf"{name} +{value:.3f}", out)


def test_search_reads_vectors_of_the_same_model_and_texts(
    embedder, other_embedder, tmp_path, cache, capsys
):
    (file := tmp_path / "texts.tsv").write_text("text\nso good\nbad film\ngood\n")

    def found(model=embedder):
        assert run("search", file, "bad film", "--model", model, "--top", 2) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    first, second = found().splitlines()
    assert first == "1.0000\t2\tbad film" and len(second.split("\t")) == 3
    [vectors] = cache.rglob("*.npz")
    written = vectors.stat().st_mtime_ns
    assert found().splitlines() == [first, second] and vectors.stat().st_mtime_ns == written
    # The vectors of other texts, of another model and a broken file are computed again.
    file.write_text("text\nso good\nbad film\ngood\nbad film\n")
    of_four = found()
    assert {line.split("\t")[1] for line in of_four.splitlines()} == {"2", "4"}
    vectors.write_bytes(b"broken")
    assert found() == of_four
    of_embedder = vectors.read_bytes()
    found(other_embedder)
    assert [vectors] == list(cache.rglob("*.npz")) and vectors.read_bytes() != of_embedder
    # Vectors that come with the texts are not read: their author could give false ones.
    with np.load(vectors) as right:
        wrong = {"key": right["key"], "vectors": right["vectors"][::-1]}
    np.savez(tmp_path / "texts.tsv.vectors.npz", **wrong)
    vectors.unlink()
    assert found() == of_four


@pytest.mark.parametrize("precision", fast(["int8", "binary"], "binary"))
def test_search_in_small_vectors(embedder, other_embedder, tmp_path, cache, capsys, precision):
    (file := tmp_path / "texts.tsv").write_text(
        "text\tn\n \t1\n" + "so good\t1\nbad film\t2\n" * 60
    )
    small = tmp_path / "small.npz"
    arguments = ["embed", embedder, "--input", file, "--vector-precision", precision]
    assert run(*arguments, "--truncate-dim", 7, "--output", small) == 0
    assert capsys.readouterr().out == f"121 vectors of 7 numbers in {small}\n"
    stored = keras_bert.search.QuantizedVectors.load(small)
    expected = keras_bert.pipeline(embedder).encode(
        keras_bert.read(file, text="text", label=None).texts, truncate_dim=7, precision=precision
    )
    np.testing.assert_array_equal(stored.values, expected)
    assert {path.name for path in tmp_path.glob(".*")} == set()
    np.save(tmp_path / "floats.npy", expected)
    find = ["search", file, "bad film", "--top", 3, "--vectors"]
    assert run(*find, small, "--model", embedder) == 0
    rows = [line.split("\t")[1:] for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 3 and all(text == "bad film" and int(row) % 2 for row, text in rows)
    assert not cache.exists()
    for vectors, model, options, message in (
        (small, other_embedder, [], "vectors of another model"),
        (small, embedder, ["--corpus-prompt", "so: "], "does not hold the vectors of"),
        (tmp_path / "floats.npy", embedder, [], "embed --vector-precision"),
    ):
        assert run(*find, vectors, "--model", model, *options) == 1
        assert message in capsys.readouterr().err
    file.write_text(file.read_text().replace("so good\t1", "good\t1", 1))
    assert run(*find, small, "--model", embedder) == 1
    assert "does not hold the vectors of" in capsys.readouterr().err


def test_vectors_of_a_large_file_are_written_part_by_part(embedder, tmp_path, monkeypatch):
    (file := tmp_path / "a.tsv").write_text("text\nso good\nbad\nthis film\n")
    monkeypatch.setattr(tabular, "read_in_parts", functools.partial(tabular.read_in_parts, size=2))
    assert run("embed", embedder, "--input", file, "--output", tmp_path / "a.npy") == 0
    vectors = np.load(tmp_path / "a.npy")
    assert vectors.dtype == np.float32
    expected = keras_bert.pipeline(embedder).encode(["so good", "bad", "this film"])
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_search_and_mine_use_the_columns_of_the_training(embedder, tmp_path, capsys):
    model = tmp_path / "model"
    keras_bert.save(keras_bert.load(embedder), model)
    provenance.write_metrics(model, {"columns": {"text": "q", "text_pair": "a", "label": "s"}})
    (file := tmp_path / "a.tsv").write_text("q\ta\nbad film\tso bad\nso good\tgood film\n")
    assert run("search", file, "bad film", "--model", model, "--top", 1) == 0
    assert capsys.readouterr().out == "1.0000\t1\tbad film\n"
    mined = tmp_path / "mined.csv"
    assert run("mine", file, "--model", model, "--margin", -2, "--output", mined) == 0
    assert mined.read_text().startswith("q,a,negative_1\n")


def test_search_in_lines_of_text(embedder, tmp_path, capsys):
    (file := tmp_path / "plain.txt").write_text("so good\nbad film\n")
    assert run("search", file, "bad film", "--model", embedder, "--top", 1) == 0
    assert capsys.readouterr().out == "1.0000\t2\tbad film\n"
