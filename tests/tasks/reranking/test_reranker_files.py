"""Rerankers in files, exports and on the command line."""

import json

import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from tests import tiny
from tests.cli.shared import run

QUERY = "a film"
DOCUMENTS = ["so good", "bad film", "is this good!", "a " * 40 + "bad"]


@pytest.fixture(scope="module")
def model():
    return heads.reranker(tiny.encoder(initializer_range=0.5))


def scores(model):
    answers = keras_bert.pipeline(model)(QUERY, DOCUMENTS, show_progress=False)
    return [answer["score"] for answer in answers]


pytestmark = pytest.mark.filterwarnings("ignore:.*texts were truncated")


def test_a_regressor_of_pairs_stays_a_regressor(tmp_path):
    model = heads.regressor(tiny.encoder(), pairs=True)
    keras_bert.save(model, tmp_path / "model", format="huggingface")
    assert heads.find_task(keras_bert.load(tmp_path / "model", task="auto")) == "regression"
    as_reranker = keras_bert.load(tmp_path / "model", task="reranking")
    assert keras_bert.pipeline(as_reranker).rank("a", ["good"])


def test_a_checkpoint_without_an_activation_has_a_sigmoid(tmp_path, model):
    keras_bert.save(model, tmp_path / "model", format="huggingface")
    file = tmp_path / "model/config.json"
    config = json.loads(file.read_text())
    for key in ("sentence_transformers", "sbert_ce_default_activation_function"):
        del config[key]
    file.write_text(json.dumps(config))
    assert heads.find_task(keras_bert.load(tmp_path / "model", task="auto")) == "regression"
    loaded = keras_bert.load(tmp_path / "model", task="reranking")
    np.testing.assert_allclose(scores(loaded), scores(model), atol=1e-6)
    linear = keras_bert.load(tmp_path / "model", task="reranking", activation=None)
    logits = np.log(np.array(scores(model)) / (1 - np.array(scores(model))))
    np.testing.assert_allclose(scores(linear), logits, atol=1e-3)


@pytest.mark.peers
def test_sentence_transformers_gives_equal_scores(tmp_path, model):
    from sentence_transformers import CrossEncoder

    keras_bert.save(model, tmp_path / "ours", format="sentence_transformers")
    theirs = CrossEncoder(str(tmp_path / "ours"))
    pairs = [(QUERY, document) for document in DOCUMENTS]
    np.testing.assert_allclose(theirs.predict(pairs), scores(model), atol=1e-5)
    ranked = theirs.rank(QUERY, DOCUMENTS)
    ours = keras_bert.pipeline(model).rank(QUERY, DOCUMENTS)
    assert [row["corpus_id"] for row in ranked] == [row["index"] for row in ours]
    theirs.save_pretrained(str(tmp_path / "theirs"))
    np.testing.assert_allclose(scores(tmp_path / "theirs"), scores(model), atol=1e-5)


ROWS = ["query\tdocument\tscore", "a film\tso good\t1", "a film\tso bad\t0"] + [
    "this film\tgood!\t1", "this film\tbad!\t0", "this film\tis bad\t0",
]  # fmt: skip


def test_command_line(tmp_path, capsys, eager):
    keras_bert.save(tiny.learner(), tmp_path / "bert.keras")
    tiny.write_file(tmp_path / "train.tsv", "\n".join([ROWS[0], *ROWS[1:] * 4]) + "\n")
    train = ["--train", tmp_path / "train.tsv", "--dev", tmp_path / "train.tsv"]
    columns = ["--text", "query", "--text-pair", "document", "--label", "score"]
    run("finetune", "--model", tmp_path / "bert.keras", "--task", "reranking", *train, *columns,
        "--learning-rate", 0.01, "--epochs", 6, "--batch-size", 4,
        "--output", tmp_path / "reranker")  # fmt: skip
    assert "mrr@10" in capsys.readouterr().out
    metrics = json.loads((tmp_path / "reranker/metrics.json").read_text())
    assert (metrics["task"], metrics["mrr@10"]) == ("reranking", 1)
    # The columns are those of the training.
    run("evaluate", tmp_path / "reranker", "--input", tmp_path / "train.tsv")
    assert "mrr@10" in capsys.readouterr().out
    run("predict", tmp_path / "reranker", "--input", tmp_path / "train.tsv")
    first, good, bad, *_ = capsys.readouterr().out.splitlines()
    assert first.split("\t")[:2] == ["predicted_score", "query"]
    assert float(good.split("\t")[0]) > float(bad.split("\t")[0])
    run("predict", tmp_path / "reranker", "a film", "so bad", "so good")
    bad, good = capsys.readouterr().out.splitlines()
    assert float(good.split("\t")[0]) > float(bad.split("\t")[0])


def test_search_and_rerank(tmp_path, capsys, model):
    keras_bert.save(model, tmp_path / "reranker.keras")
    keras_bert.save(tiny.embedder("mean"), tmp_path / "embedder.keras")
    texts = ["so bad", "bad film", "so good", "is bad"]
    tiny.write_file(tmp_path / "texts.txt", "\n".join(texts) + "\n")
    search = ["search", tmp_path / "texts.txt", QUERY, "--model", tmp_path / "embedder.keras"]
    run(*search, "--rerank", tmp_path / "reranker.keras", "--top", 2)
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    expected = keras_bert.pipeline(model).rank(QUERY, texts, top_k=2)
    assert [text for _, _, text in lines] == [answer["text"] for answer in expected]
    assert run(*search, "--rerank", tmp_path / "embedder.keras") == 1
    assert "reranking" in capsys.readouterr().err
    assert run(*search, "--candidates", 3) == 1
    assert "--candidates needs --rerank" in capsys.readouterr().err
