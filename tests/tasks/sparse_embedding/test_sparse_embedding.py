"""Sparse embedders: vectors, training, search and scores."""

import keras
import numpy as np
import pytest
from scipy import sparse

import keras_bert
from keras_bert import EmbeddingExamples, Examples, RankingExamples, RetrievalData, heads, losses
from keras_bert.data.batching import Batches
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.training.batch_plan import BatchPlan
from tests import tiny

QUICK = {"show_progress": False, "learning_rate": 0.01, "epochs": 6, "batch_size": 4}
TEXTS = ["so good", "a film so bad is this", "!", ""]
ROWS = [("good film", "so good"), ("bad film", "so bad"), ("film!", "films")] * 8


def masked_lm(**options):
    """Return a masked-LM model whose weights are not those of a new head."""
    model = heads.masked_lm(tiny.encoder(initializer_range=0.5, **options))
    head = model.get_layer("masked_lm")
    keras.utils.set_random_seed(3)
    head.output_bias.assign(keras.random.normal(head.output_bias.shape, stddev=0.5))
    return model


@pytest.fixture(scope="module")
def model():
    """A sparse embedder with the weights of `masked_lm`."""
    built = masked_lm()
    task = keras_bert.pipeline(heads.sparse_embedder(tiny.encoder())).predictor.task
    return task.with_pretrained_head(built, heads.find_encoder(built))


@pytest.fixture(scope="module")
def trained():
    encoder_and_head = heads.masked_lm(tiny.learner())
    data = EmbeddingExamples(ROWS)
    return keras_bert.finetune(
        encoder_and_head, data, data, task="sparse_embedding", **{**QUICK, "epochs": 12}
    )


def test_weights_are_those_of_the_largest_logits(model):
    """[CLS] and [SEP] count, and padding does not."""
    expected = []
    built = masked_lm()
    preprocessor = heads.find_encoder(model).preprocessor.python_tokenizer
    for text in TEXTS:
        (pieces,) = preprocessor.tokenize([text])
        ids = [[2, *pieces, 3]]
        logits = built.predict(
            {
                "input_word_ids": np.array(ids),
                "input_mask": np.ones_like(ids),
                "input_type_ids": np.zeros_like(ids),
                "masked_lm_positions": np.arange(len(ids[0]))[None],
            },
            verbose=0,
        )
        expected.append(np.log1p(np.maximum(logits[0].max(axis=0), 0)))
    vectors = keras_bert.pipeline(model).encode(TEXTS)
    np.testing.assert_allclose(vectors.toarray(), expected, atol=1e-5)


def test_large_vocabularies_are_computed_in_parts(model, monkeypatch):
    expected = keras_bert.pipeline(model).encode(TEXTS)
    monkeypatch.setattr("keras_bert.layers.splade_head._CHUNK", 7)
    rebuilt = heads.sparse_embedder(heads.find_encoder(model))
    rebuilt.set_weights(model.get_weights())
    vectors = keras_bert.pipeline(rebuilt).encode(TEXTS)
    np.testing.assert_allclose(vectors.toarray(), expected.toarray(), atol=1e-6)


def test_encode_returns_sparse_rows(model):
    pipe = keras_bert.pipeline(model)
    vectors = pipe.encode(TEXTS)
    assert isinstance(vectors, sparse.csr_array)
    assert (vectors.shape, vectors.dtype) == ((4, len(tiny.PIECES)), np.float32)
    assert vectors.nnz == np.count_nonzero(vectors.toarray())
    assert pipe(TEXTS[0]).shape == (1, len(tiny.PIECES))
    np.testing.assert_allclose(pipe(TEXTS[0]).toarray(), vectors[[0]].toarray(), atol=1e-5)
    assert pipe.encode([]).shape == (0, len(tiny.PIECES))
    for row, vector in enumerate(pipe(iter(TEXTS))):
        np.testing.assert_allclose(vector.toarray(), vectors[[row]].toarray(), atol=1e-5)
    kept = pipe.encode(TEXTS, max_terms=2)
    assert np.diff(kept.indptr).max() == 2
    smallest = np.sort(vectors.toarray(), axis=1)[:, -2]
    assert (kept.toarray().max(axis=1) >= smallest).all()
    prompted = pipe.encode("good", prompt="so ")
    np.testing.assert_allclose(prompted.toarray(), pipe("so good").toarray(), atol=1e-5)


def test_explain_names_the_terms(model):
    pipe = keras_bert.pipeline(model)
    vector = pipe.encode("so good")
    terms = pipe.explain("so good", top_k=None)
    assert terms == pipe.explain(vector, top_k=None)
    assert len(terms) == vector.nnz
    weights = [weight for _, weight in terms]
    assert weights == sorted(weights, reverse=True)
    for token, weight in terms:
        assert vector[0, tiny.PIECES.index(token)] == np.float32(weight)
    assert pipe.explain(vector, top_k=2) == terms[:2]
    product = vector.multiply(pipe.encode("bad"))
    score = sum(weight for _, weight in pipe.explain(product, top_k=None))
    assert score == pytest.approx((vector @ pipe.encode("bad").T).toarray()[0, 0], rel=1e-5)
    with pytest.raises(ValueError, match="one text or vector; received 2"):
        pipe.explain(pipe.encode(["good", "bad"]))
    with pytest.raises(ValueError, match="top_k must be an integer of at least 1"):
        pipe.explain("so good", 0)


def test_search_ranks_by_dot_products(model):
    pipe = keras_bert.pipeline(model)
    corpus = pipe.encode(["so good", "so bad", "films", "so good"])
    scores = (pipe.encode("good film") @ corpus.T).toarray()[0]
    answers = pipe.search("good film", corpus.tocsc())
    order = [index for index in np.argsort(-scores, kind="stable") if scores[index] > 0]
    assert [answer["index"] for answer in answers] == order
    assert [answer["score"] for answer in answers] == pytest.approx(scores[order], rel=1e-6)
    assert pipe.search(["good film"], corpus, top_k=1) == [answers[:1]]
    assert pipe.search(pipe.encode(["good film"]), corpus) == [answers]
    with pytest.raises(ValueError, match="the same width; received 18 .* and 5 for the corpus"):
        pipe.search("good", sparse.csr_array((3, 5)))
    assert pipe.search(np.array(["good film"]), corpus) == [answers]
    with pytest.raises(ValueError, match="call encode on its texts"):
        pipe.search("good", ["so good", "so bad"])


def test_finetuning_starts_from_the_masked_lm_head(trained):
    model, metrics = trained
    assert heads.find_task(model) == "sparse_embedding"
    assert metrics["metric"] == "mrr@10"
    assert metrics["mrr@10"] == 1
    assert metrics["recipe"]["loss"] == "multiple_negatives_ranking"
    assert metrics["history"][-1]["loss"] < metrics["history"][0]["loss"]
    assert "dev_loss" in metrics
    scores = keras_bert.pipeline(model).evaluate(EmbeddingExamples(ROWS))
    assert scores["mrr@10"] == 1
    vectors = keras_bert.pipeline(model).encode([row[0] for row in ROWS[:3]])
    assert scores["query_terms"] == pytest.approx(vectors.nnz / 3)


def test_a_training_of_no_steps_keeps_the_masked_lm_model(eager):
    """The encoder is copied, and the new model has the weights of the head."""
    built = masked_lm()
    before = built.get_weights()
    model, _ = keras_bert.finetune(
        built, EmbeddingExamples(ROWS[:3]), task="sparse_embedding",
        **{**QUICK, "epochs": 1, "learning_rate": 1e-12},
    )  # fmt: skip
    head = model.get_layer("masked_lm")
    np.testing.assert_allclose(head.output_bias, built.get_layer("masked_lm").output_bias)
    for weight, old in zip(built.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_the_factor_of_the_regularization_rises(model):
    """As in sentence-transformers: with the square of the step, in the first third of the run."""
    task = keras_bert.pipeline(model).predictor.task
    encoded = task.encode(
        KerasPredictor(model).task_model, EmbeddingExamples(ROWS), 16, task.training_options()
    )
    plan = BatchPlan(model, encoded, 2, 0, 3, losses=encoded.loss)  # 36 batches
    factors = [plan.batch(number)[1][:, -1] for number in (0, 3, 6, 11, 12, 35)]
    assert all(len(set(factor.tolist())) == 1 for factor in factors)
    expected = [0, (3 / 12) ** 2, (6 / 12) ** 2, (11 / 12) ** 2, 1, 1]
    assert [float(factor[0]) for factor in factors] == pytest.approx(expected)
    _, targets, _ = encoded.batch(np.arange(2), 8)
    assert targets[:, -1].tolist() == [1, 1]


@pytest.mark.parametrize("step", [None, 30])
def test_rows_that_fill_a_batch_do_not_count(model, step):
    task = keras_bert.pipeline(model).predictor.task
    options = task.training_options(document_regularizer_weight=1.0, query_regularizer_weight=1.0)
    encoded = task.encode(
        KerasPredictor(model).task_model, EmbeddingExamples(ROWS[:3]), 16, options
    )
    ((inputs, targets, weights),) = Batches(encoded, 5, seed=(0, 0), lengths=(16,))
    assert weights.tolist() == [1, 1, 1, 0, 0]
    if step is not None:
        inputs, targets, weights = encoded.at_step((inputs, targets, weights), step, 90)
    vectors = keras.ops.convert_to_numpy(task.model_of_batches(model)(inputs))
    expected = 3 * float(encoded.loss(targets[:3], vectors[:3]))  # of means over the rows
    assert 5 * float(encoded.loss(targets, vectors, weights)) == pytest.approx(expected, rel=1e-5)


def test_distillation_from_the_scores_of_a_teacher(eager):
    documents = [["so good", "so bad", "films"], ["so bad", "so good", "films"]]
    scores = [[4.0, 1.0, 0.0], [3.0, 1.0, 0.0]]
    data = RankingExamples(["good film", "bad film"] * 8, documents * 8, scores * 8)
    _, metrics = keras_bert.finetune(
        heads.masked_lm(tiny.learner()), data, task="sparse_embedding", **QUICK
    )
    assert metrics["recipe"]["loss"] == "margin_mse"
    assert metrics["history"][-1]["loss"] < metrics["history"][0]["loss"]


def test_retrieval_metrics(trained):
    model, _ = trained
    data = RetrievalData(
        {"q": "good film", "r": "bad film"},
        {"a": "so good", "b": "so bad", "c": "films"},
        {"q": {"a"}, "r": {"b": 2}},
    )
    metrics = keras_bert.pipeline(model).evaluate(data)
    assert metrics["ndcg@10"] == metrics["mrr@10"] == 1
    assert list(metrics)[-2:] == ["query_terms", "document_terms"]
    assert keras_bert.evaluate(model, data) == pytest.approx(metrics)


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        (EmbeddingExamples([("a", "b")] * 4, [1.0] * 4), {}, "has scores, which sparse embedders"),
        (EmbeddingExamples(ROWS), {"loss": "cosent"}, "loss must be one of multiple_negatives_r"),
        (EmbeddingExamples(ROWS), {"loss": "margin_mse"}, "margin_mse needs rows with document_s"),
        (EmbeddingExamples(ROWS), {"matryoshka_dims": [8]}, "matryoshka_dims is not an option"),
        (Examples(["a"], labels=["b"]), {}, "is data of the task classification; received task="),
        (RankingExamples(["a"], [["b", "c"]]), {}, "has no scores. Make some with a reranker's"),
        (RankingExamples(["a"], [["b"]], [[2]]), {}, "each query must have several documents"),
        (tiny.rankings(), {}, "which are labels"),
        (
            EmbeddingExamples(ROWS),
            {"loss": losses.Splade(), "document_regularizer_weight": 0.1},
            "give document_regularizer_weight to losses.Splade",
        ),
        (EmbeddingExamples(ROWS), {"query_regularizer_weight": -1}, "must be at least 0"),
    ],
)
def test_wrong_training(train, options, message):
    with pytest.raises(ValueError, match=message):
        keras_bert.finetune(
            heads.masked_lm(tiny.learner()), train, task="sparse_embedding", **{**QUICK, **options}
        )


def test_models_without_a_masked_lm_head():
    data = EmbeddingExamples(ROWS)
    with pytest.raises(ValueError, match="has no masked-LM head, which a sparse embedder needs"):
        keras_bert.finetune(tiny.learner(), data, task="sparse_embedding", **QUICK)
    with pytest.raises(ValueError, match="has the task embedding; received task='sparse_embed"):
        keras_bert.finetune(tiny.embedder("mean"), data, task="sparse_embedding", **QUICK)
    with pytest.raises(ValueError, match="several documents per row. Train a sparse embedder"):
        rows = EmbeddingExamples([("a", "b", "c")], document_scores=[[1, 0]])
        keras_bert.finetune(tiny.learner(), rows, **QUICK)


def test_wrong_inputs(model):
    with pytest.raises(ValueError, match="is a sparse_embedding model.* Call encode or search"):
        keras_bert.pipeline(model, task="embedding")
    pipe = keras_bert.pipeline(model)
    with pytest.raises(ValueError, match="text 2 must be a string; received 3"):
        pipe.encode(["a", 3])
    with pytest.raises(ValueError, match="max_terms must be an integer of at least 1"):
        pipe.encode(["a"], max_terms=0)
    with pytest.raises(ValueError, match="takes EmbeddingExamples or RetrievalData"):
        pipe.evaluate(Examples(["a"], labels=["b"]))
    with pytest.raises(ValueError, match="sparse embedders are scored on a search"):
        pipe.evaluate(EmbeddingExamples([("a", "b"), ("b", "c")], [0.0, 1.0]))
    with pytest.raises(ValueError, match="a score for each of at least two documents"):
        EmbeddingExamples([("a", "b", "c")], document_scores=[[1]])


def test_scores_of_documents_make_rankings():
    rows = EmbeddingExamples([("a", "b", "c")], document_scores=[[4.0, -1.0]])
    assert RankingExamples.of_rows(rows).scores == [[4, -1]]


def test_a_loss_of_the_package(trained, eager):
    model, _ = trained
    loss = losses.Splade(losses.MultipleNegativesRanking(scale=20), query_regularizer_weight=0)
    again, metrics = keras_bert.finetune(
        model, EmbeddingExamples(ROWS), loss=loss, **{**QUICK, "epochs": 1}
    )
    assert again is model
    assert metrics["recipe"]["loss"]["name"] == "splade"
