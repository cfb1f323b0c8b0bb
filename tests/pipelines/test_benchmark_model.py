"""The packages mteb and beir evaluate our embedders."""

import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.pipelines.benchmark_model import BenchmarkModel
from tests import tiny

WORDS = [token for token in tiny.PIECES if token.isascii() and token.isalpha()]
CORPUS = {f"d{number}": {"title": "", "text": word} for number, word in enumerate(WORDS)}
QUERIES = {f"q{number}": word for number, word in enumerate(WORDS)}
QRELS = {f"q{number}": {f"d{number}": 1} for number in range(len(WORDS))}


@pytest.fixture(scope="module")
def embed():
    encoder = tiny.encoder(pooling="mean", num_hidden_layers=1, initializer_range=0.5)
    return keras_bert.pipeline(heads.embedder(encoder, prompts={"query": "so "}))


def test_prompts(embed):
    model = BenchmarkModel(embed, query_prompt="query")
    expected = embed.encode(["so good"])
    np.testing.assert_allclose(model.encode_queries(["good"]), expected, atol=1e-6)
    np.testing.assert_allclose(
        model.encode([{"text": ["good"]}], prompt_type="query"), expected, atol=1e-6
    )
    np.testing.assert_allclose(
        model.encode([{"text": ["so"]}, {"text": ["good"]}]),
        embed.encode(["so", "good"]),
        atol=1e-6,
    )


@pytest.mark.parametrize("similarity", ["cosine", "dot", "manhattan"])
def test_pairwise_similarity(embed, similarity):
    model = BenchmarkModel(keras_bert.pipeline(heads.embedder(
        heads.find_encoder(embed.model), normalize=False, similarity=similarity
    )))  # fmt: skip
    first, second = model.encode([{"text": WORDS[:3]}]), model.encode([{"text": WORDS[3:6]}])
    expected = np.diag(model.similarity(first, second))
    np.testing.assert_allclose(model.similarity_pairwise(first, second), expected, atol=1e-6)


@pytest.mark.peers
def test_beir(embed):
    pytest.importorskip("beir")
    from beir.retrieval.evaluation import EvaluateRetrieval
    from beir.retrieval.search.dense import DenseRetrievalExactSearch

    retriever = EvaluateRetrieval(
        DenseRetrievalExactSearch(BenchmarkModel(embed)), score_function="cos_sim"
    )
    results = retriever.retrieve(CORPUS, QUERIES)
    ndcg, *_ = retriever.evaluate(QRELS, results, [10])
    ours = embed.evaluate(
        keras_bert.RetrievalData(QUERIES, {key: row["text"] for key, row in CORPUS.items()}, QRELS)
    )
    assert ndcg["NDCG@10"] == pytest.approx(ours["ndcg@10"], abs=1e-4)


@pytest.mark.peers
def test_mteb(embed):
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")

    class Task(mteb.abstasks.AbsTaskSTS):
        metadata = mteb.TaskMetadata(
            name="Words", description="x", type="STS", category="t2t", eval_splits=["test"],
            eval_langs=["eng-Latn"], main_score="cosine_spearman",
            dataset={"path": "x", "revision": "1"}, reference=None, modalities=["text"],
        )  # fmt: skip
        min_score, max_score = 0, 1

        def load_data(self, **options):
            rows = {
                "sentence1": WORDS[:6],
                "sentence2": WORDS[1:7],
                "score": [0, 0.2, 1, 0.5, 0.1, 0.9],
            }
            self.dataset = datasets.DatasetDict(test=datasets.Dataset.from_dict(rows))
            self.data_loaded = True

    found = mteb.evaluate(BenchmarkModel(embed), Task(), cache=None)
    score = found[0].scores["test"][0]["cosine_spearman"]
    pairs = keras_bert.EmbeddingExamples(
        list(zip(WORDS[:6], WORDS[1:7], strict=True)), [0, 0.2, 1, 0.5, 0.1, 0.9]
    )
    assert score == pytest.approx(embed.evaluate(pairs)["spearman"], abs=1e-5)
