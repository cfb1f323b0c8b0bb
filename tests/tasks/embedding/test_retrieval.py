"""Reading of retrieval data."""

import json

import pytest

import keras_bert
from keras_bert import RetrievalData
from keras_bert.tasks.embedding import retrieval
from tests import tiny


def write(folder, **files):
    for name, content in files.items():
        file = folder / name.replace("__", "/").replace("_", ".", 1)
        file.parent.mkdir(exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return folder


def beir(folder, qrels="query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td2\t1\n"):
    corpus = [{"_id": "d1", "title": "A", "text": "b c"}, {"_id": "d2", "title": "", "text": "d"}]
    queries = [{"_id": "q1", "text": "b"}, {"_id": "q2", "text": "d"}, {"_id": "q3", "text": "e"}]
    return write(
        folder,
        corpus_jsonl="".join(json.dumps(row) + "\n" for row in corpus),
        queries_jsonl="".join(json.dumps(row) + "\n" for row in queries),
        qrels__test_tsv=qrels,
    )


def test_relevant_documents_can_be_sets():
    data = RetrievalData({"q": "b"}, {"d": "b", "e": "c"}, {"q": {"d", "e"}})
    assert data.relevant == {"q": {"d": 1.0, "e": 1.0}}
    same = RetrievalData(data.queries, data.corpus, {"q": ["d", "e"]})
    assert same.relevant == data.relevant


def test_unknown_documents_count_as_missed_and_unknown_queries_are_left_out():
    data = RetrievalData({1: "b"}, {1: "b", 2: "c"}, {1: {2: 1, 9: 1}, 7: [1]})
    assert data.relevant == {"1": {"2": 1.0, "9": 1.0}}
    assert data.counts() == {"unknown_documents": 1, "unknown_queries": 1}
    assert data.with_prompts("query: ", "text: ").counts() == data.counts()
    metrics = keras_bert.pipeline(tiny.encoder(pooling="mean"), task="embedding").evaluate(data)
    # The document with the id of the query is left out, so the other one is first.
    assert (metrics["mrr@10"], metrics["recall@100"]) == (1.0, 0.5)


def test_lists_for_rerankers_leave_out_the_query_and_repeated_texts():
    corpus = {"q": "so good", "d1": "good", "d2": "good", "d3": "film"}
    data = RetrievalData({"q": "so good"}, corpus, {"q": {"d2": 1}})
    embed = keras_bert.pipeline(tiny.encoder(pooling="mean"), task="embedding")
    lists = keras_bert.RankingExamples.of_retrieval(data, embed, top_k=4)
    scores = dict(zip(lists.documents[0], lists.scores[0], strict=True))
    assert scores == {"good": 1.0, "film": 0.0}


def test_beir(tmp_path):
    found = keras_bert.read(beir(tmp_path), "retrieval")
    assert found.queries == {"q1": "b", "q2": "d", "q3": "e"}
    assert found.corpus == {"d1": "A b c", "d2": "d"}
    assert found.relevant == {"q1": {"d1": 2.0}, "q2": {"d2": 1.0}}
    assert len(found) == 2
    with pytest.raises(FileNotFoundError, match="dev.tsv: no such file; the splits .* are: test"):
        keras_bert.read(tmp_path, "retrieval", split="dev")
    file = tmp_path / "qrels" / "test.tsv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))  # no header
    assert keras_bert.read(tmp_path, "retrieval").relevant == found.relevant


def test_trec_has_no_splits(tmp_path):
    folder = write(
        tmp_path, corpus_tsv="1\tb c\n2\td\n", queries_tsv="7\td\n", qrels_txt="7 0 2 1\n7 0 1 0\n"
    )
    found = retrieval.read(folder)
    assert (found.queries, found.corpus) == ({"7": "d"}, {"1": "b c", "2": "d"})
    assert found.relevant == {"7": {"2": 1.0}}
    with pytest.warns(UserWarning, match=r"qrels\.txt .* split='dev' was not used"):
        assert retrieval.read(folder, "dev").relevant == {"7": {"2": 1}}
    write(tmp_path, qrels__dev_tsv="7\t1\t1\n")
    assert retrieval.read(folder, "dev").relevant == {"7": {"1": 1}}


def test_squad(tmp_path):
    questions = [{"question": "who?", "id": "1"}, {"question": "when?", "id": "2"}]
    paragraphs = [{"context": "Ada did.", "qas": questions}]
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    found = keras_bert.read(file, "retrieval")
    assert list(found.queries.values()) == ["who?", "when?"]
    assert list(found.corpus.values()) == ["Ada did."]
    assert len(found.relevant) == 2


def test_an_embedder_is_scored_and_trained_with_it(eager):
    words = [token for token in tiny.PIECES if token.isascii() and token.isalpha()]
    corpus = {f"d{number}": word for number, word in enumerate(words)}
    queries = {f"q{number}": word for number, word in enumerate(words)} | {"x": "so"}
    data = RetrievalData(queries, corpus, {f"q{n}": {f"d{n}": 1} for n in range(len(words))})
    bert = tiny.encoder(pooling="mean", num_hidden_layers=1)
    found = keras_bert.pipeline(bert, task="embedding").evaluate(data)
    assert found["mrr@10"] == pytest.approx(1.0)
    assert found["ndcg@10"] == pytest.approx(1.0)
    pairs = keras_bert.EmbeddingExamples([(word, word) for word in words])
    _, metrics = keras_bert.finetune(bert, pairs, dev=data, epochs=1, show_progress=False)
    assert metrics["metric"] == "mrr@10" and "dev_loss" not in metrics
    with pytest.raises(ValueError, match="metric must be one of mrr@10, .*recall@100; received"):
        keras_bert.finetune(bert, pairs, dev=data, metric="dev_loss", show_progress=False)


@pytest.mark.parametrize(
    ("qrels", "message"),
    [
        ("a\tb\tc\nq1\td1\n", "line 2: must have a query, a document and a grade"),
        ("q1\td1\thigh\n", "line 1: must have"),
        ("a\tb\tc\nq1\td1\tnan\n", "line 2: must have"),
        ("a\tb\tc\nq9\td1\t1\n", "no query has a relevant document"),
        ("a\tb\tc\nq1\td9\t1\n", "no relevant document is in the corpus, such as 'd9'"),
    ],
)
def test_wrong_qrels(tmp_path, qrels, message):
    with pytest.raises(ValueError, match=message):
        retrieval.read(beir(tmp_path, qrels))


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ('{"_id": "d1", "text": "a"}\n{"_id": "d1", "text": "b"}\n', "line 2: the id 'd1' occurs"),
        ('{"_id": null, "text": "a"}\n', "line 1: _id: ids must be strings or integers"),
        ('{"_id": "d1"}\n', "line 1: title and text must be strings"),
        ("x\n", "line 1 is not JSON"),
    ],
)
def test_wrong_corpus(tmp_path, corpus, message):
    beir(tmp_path)
    (tmp_path / "corpus.jsonl").write_text(corpus)
    with pytest.raises(ValueError, match=message):
        retrieval.read(tmp_path)


def test_wrong_table(tmp_path):
    beir(tmp_path)
    (tmp_path / "corpus.tsv").write_text("d1\n")
    with pytest.raises(ValueError, match="line 1: must have an id, a tab and a text"):
        retrieval.read(tmp_path)
