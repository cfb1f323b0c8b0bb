"""Training, answers and scores of rerankers."""

import unicodedata

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import EmbeddingExamples, Examples, RankingExamples, heads, losses
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.tasks.reranking import first_search, head
from keras_bert.training.batch_plan import BatchPlan
from tests import tiny

QUICK = {"show_progress": False, "learning_rate": 0.01, "epochs": 6, "batch_size": 4}


@pytest.fixture(scope="module")
def model():
    """A reranker that finds good documents."""
    trained, _ = keras_bert.finetune(tiny.learner(), tiny.rankings(), **QUICK)
    return trained


@pytest.mark.parametrize(
    "loss", ["binary_cross_entropy", "multiple_negatives", "margin_mse", "listnet"]
)
def test_every_loss_finds_the_relevant_documents(loss, eager):
    data = tiny.rankings()
    model, metrics = keras_bert.finetune(tiny.learner(), data, data, loss=loss, **QUICK)
    assert metrics["mrr@10"] == 1
    assert metrics["metric"] == "mrr@10"
    assert metrics["recipe"]["loss"] == loss
    assert ("dev_loss" in metrics) == (loss == "binary_cross_entropy")
    assert keras_bert.pipeline(model).evaluate(data)["ndcg@10"] == 1


def test_default_losses(eager):
    data = tiny.rankings()[:6]
    encoder = tiny.learner()
    options = {**QUICK, "epochs": 1}

    def loss(train):
        return keras_bert.finetune(encoder, train, **options)[1]["recipe"]["loss"]

    assert loss(data) == "listnet"
    grades = [[3 * score for score in scores] for scores in data.scores]
    assert loss(RankingExamples(data.queries, data.documents, grades)) == "listnet"
    positives = [[text for text in texts if "good" in text] for texts in data.documents]
    assert loss(RankingExamples(data.queries, positives, [[1]] * 6)) == "multiple_negatives"
    queries = [str(index) for index in range(16)]
    single = RankingExamples(queries, [["good"], ["bad"]] * 8, [[1], [0]] * 8)
    assert loss(single) == "binary_cross_entropy"
    grades = RankingExamples(queries, [["good"], ["bad"]] * 8, [[3], [0]] * 8)
    with pytest.raises(ValueError, match="needs scores from 0 to 1; received 3. Divide the scores"):
        loss(grades)


def test_default_batches_have_32_documents(eager):
    data = tiny.rankings()[:3]
    encoder = tiny.learner()

    def batch_size(**options):
        _, metrics = keras_bert.finetune(encoder, data, show_progress=False, epochs=1, **options)
        return metrics["recipe"]["batch_size"]

    documents = max(map(len, data.documents))
    assert batch_size() == 32 // documents
    assert batch_size(loss="binary_cross_entropy") == 32
    assert batch_size(batch_size=7) == 7
    queries = [*data.queries, "this"]
    documents = [*data.documents, ["good"] + ["bad"] * 39]
    scores = [*data.scores, [1] + [0] * 39]
    data = RankingExamples(queries, documents, scores)
    assert batch_size() == 1


def test_rank_sorts_the_documents(model):
    pipe = keras_bert.pipeline(model)
    documents = ["so bad", "so good", "bad!", "so good"]
    ranked = pipe.rank("a film", documents)
    scores = np.array([pipe("a film", text)["score"] for text in documents])
    order = np.argsort(-scores, kind="stable")
    assert [answer["index"] for answer in ranked] == order.tolist() == [1, 3, *order[2:]]
    assert [answer["text"] for answer in ranked] == [documents[index] for index in order]
    assert [answer["score"] for answer in ranked] == pytest.approx(scores[order], abs=1e-6)
    assert ranked[0]["score"] == ranked[1]["score"] == np.float32(ranked[0]["score"])
    assert pipe.rank("a film", documents, top_k=1) == ranked[:1]
    assert pipe.rank("a film", ["so good"])[0]["index"] == 0
    assert pipe.rank("a film", []) == []


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("a", "one document"), {}, "documents must be a list of strings; received one string"),
        (("a", ["b", 3]), {}, "document 2 must be a string; received 3"),
        ((7, ["b"]), {}, "query 1 must be a string; received 7"),
        (("a", ["b"]), {"top_k": 0}, "top_k must be an integer of at least 1"),
        (("a", ["b"]), {"batch_size": 0}, "batch_size must be an integer of at least 1"),
    ],
)
def test_rank_of_wrong_inputs(model, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        keras_bert.pipeline(model).rank(*arguments, **options)


def test_calls_score_pairs(model):
    pipe = keras_bert.pipeline(model)
    pairs = [("a film", "so good"), ("a film", "so bad")]
    expected = pipe(pairs)
    assert pipe("a film", ["so good", "so bad"]) == expected
    assert pipe(query=["a film"] * 2, document=["so good", "so bad"]) == expected
    assert pipe("a film", "so good") == expected[0]
    (ranked,) = keras_bert.pipeline(model)(RankingExamples(["a film"], [["so bad", "so good"]]))
    assert [answer["index"] for answer in ranked] == [1, 0]
    with pytest.raises(ValueError, match="top_k applies to rank"):
        pipe("a film", ["so good", "so bad"], top_k=1)
    with pytest.raises(ValueError, match="give a query and its documents once"):
        pipe("a film", query="this", document="good")


def test_long_documents_have_the_score_of_their_best_window(model):
    heads.find_encoder(model).preprocessor.max_sequence_length = 12
    pipe = keras_bert.pipeline(model, long_texts="window")
    words = ["bad"] * 12 + ["good"] + ["bad"] * 9
    # [CLS] a film [SEP] and the last [SEP] leave 7 tokens; windows overlap by 1.
    windows = [words[start : start + 7] for start in (0, 6, 12, 18)]
    (answer,) = pipe.rank("a film", [" ".join(words)])
    parts = keras_bert.pipeline(model)("a film", [" ".join(window) for window in windows])
    assert answer["score"] == pytest.approx(max(part["score"] for part in parts), abs=1e-6)
    with pytest.warns(UserWarning, match="1 of 1 texts were truncated .*long_texts="):
        keras_bert.pipeline(model).rank("a film", [" ".join(words)])
    # Nothing is cut if the pair fits.
    query = "a film is so good this"
    (answer,) = pipe.rank(query, ["bad"])
    alone = keras_bert.pipeline(model)(query, "bad")["score"]
    assert (answer["score"], pipe.counts["cut_questions"]) == (pytest.approx(alone, abs=1e-6), 0)
    # A long query leaves half of the positions to a long document.
    with pytest.warns(UserWarning, match="1 of 1 texts were truncated to 12 tokens. Shorten them"):
        pipe.rank("a film is so good " * 5, ["so bad " * 9])
    assert pipe.counts["cut_questions"] == 1
    heads.find_encoder(model).preprocessor.max_sequence_length = 32


def test_metrics_of_ranked_documents(model):
    data = RankingExamples(
        ["a film", "this film", "is this"],
        [["bad", "good", "so bad"], ["good", "bad"], ["bad", "so bad"]],
        [[2, 1, 0], [1, 0], [0, 0]],
        missed=[[1.0], [], [1.0]],
    )
    answers = [np.array([0.1, 0.9, 0.5]), np.array([0.2, 0.8]), np.array([0.5, 0.4])]
    task = keras_bert.pipeline(model).predictor.task
    metrics = task.metrics(None, data, answers)
    # Ranks of relevant documents: 1 and 3 of three, 2 of one, none of one.
    assert metrics["mrr@10"] == pytest.approx((1 + 1 / 2 + 0) / 3)
    gains = 1 + 2 / np.log2(4)
    ideal = 2 + 1 / np.log2(3) + 1 / np.log2(4)
    assert metrics["ndcg@10"] == pytest.approx((gains / ideal + 1 / np.log2(3) + 0) / 3)
    assert metrics["map@100"] == pytest.approx(((1 + 2 / 3) / 3 + 1 / 2 + 0) / 3)
    assert metrics["first_search_mrr@10"] == pytest.approx((1 + 1 + 0) / 3)
    with pytest.raises(ValueError, match="no list of documents has a relevant one"):
        task.metrics(None, RankingExamples(["a"], [["b", "c"]], [[0, 0]]), [np.ones(2)])


def test_single_documents_are_scored_as_labels(model):
    task = keras_bert.pipeline(model).predictor.task
    # One query that occurs twice makes a list, which has no order to score among single documents.
    pairs = Examples(["a", "b", "c", "c"], text_pairs=["x", "y", "z", "x"], scores=[1, 0, 1, 0])
    data = RankingExamples.of_pairs(pairs)
    answers = [np.array([0.9]), np.array([0.2]), np.array([0.8, 0.1])]
    metrics = task.metrics(None, data, answers)
    assert list(metrics)[:2] == ["average_precision", "accuracy"]
    assert metrics["average_precision"] == 1
    grades = RankingExamples(["a film"] * 3, [["good"], ["bad"], ["good"]], [[4], [2], [4]])
    assert list(task.metrics(None, grades, answers[:2] + answers[:1])) == ["spearman"]
    found = RankingExamples(["a film"], [["good"]], [[1]], missed=[[1.0]])
    assert task.metrics(None, found, answers[:1])["recall@10"] == 0.5
    positives = RankingExamples(["a", "b"], [["x"], ["y"]], [[1], [1]])
    with pytest.raises(ValueError, match="all documents have the score 1"):
        keras_bert.finetune(tiny.learner(), tiny.rankings(), positives, **QUICK)


def test_a_list_beside_single_documents_is_ranked(model):
    task = keras_bert.pipeline(model).predictor.task
    data = RankingExamples(["a", "b", "c"], [["x", "y"], ["z", "x"], ["y"]], [[0, 1], [1, 0], [1]])
    answers = [np.array([0.9, 0.1]), np.array([0.9, 0.1]), np.array([0.5])]
    # The only document of a query would always be the first one.
    assert task.metrics(None, data, answers)["mrr@10"] == pytest.approx((1 / 2 + 1) / 2)


def test_a_teacher_reads_long_documents_as_its_pipeline(model):
    long = RankingExamples(["a film"], [["so bad " * 40 + "good"]])
    teacher = keras_bert.pipeline(model, long_texts="window")
    logits = keras_bert.pipeline(head.with_logits(model), long_texts="window")
    expected = logits("a film", long.documents[0])[0]["score"]
    assert teacher.as_teacher(long).scores[0] == pytest.approx([expected], abs=1e-5)
    assert not teacher.counts["truncated"]
    with pytest.warns(UserWarning, match="1 of 1 texts were truncated"):
        keras_bert.pipeline(model).as_teacher(long)


def test_errors_are_the_queries_with_a_wrong_first_document(model):
    data = RankingExamples(["a film"] * 2, [["bad", "good"]] * 2, [[1, 0], [0, 1]])
    (mistake,) = keras_bert.pipeline(model).errors(data)
    assert (mistake["expected"], mistake["document"]) == ("bad", "good")
    data = RankingExamples(["a film", "films"], [["good"], ["bad"]], [[1], [0]])
    with pytest.raises(ValueError, match="its order has no errors"):
        keras_bert.pipeline(model).errors(data)


def test_lists_train_like_their_documents_alone(model):
    """Packed batches, batches of lists and single pairs have the same logits."""
    data = tiny.rankings()
    task = keras_bert.pipeline(model).predictor.task
    logits = head.with_logits(model)
    options = task.training_options(loss="listnet")
    encoded = task.encode_training(KerasPredictor(logits).task_model, data, 32, options)
    assert encoded.targets[1].tolist() == [1, 0, 0]
    plan = BatchPlan(logits, encoded, 8, 0, 1, losses=encoded.loss)
    assert plan.shape is not None
    inputs, targets, _ = plan.batch(0)
    packed = keras.ops.convert_to_numpy(plan.trained(inputs))
    rows = plan.epoch(0).rows[0]
    plain, plain_targets, _ = encoded.batch(rows, 16)
    unpacked = keras.ops.convert_to_numpy(head.of_lists(logits)(plain))
    np.testing.assert_array_equal(targets, plain_targets)
    exists = ~np.isnan(targets)
    np.testing.assert_allclose(packed[exists], unpacked[exists], atol=1e-5)
    alone = keras_bert.pipeline(logits)(data.queries[rows[0]], data.documents[rows[0]])
    expected = [answer["score"] for answer in alone]
    np.testing.assert_allclose(packed[0][exists[0]], expected, atol=1e-5)


def test_negatives_are_drawn_from_other_queries():
    from keras_bert.tasks.reranking import lists

    data = RankingExamples(
        ["a", "b", "c"], [["good", "bad"], ["so good"], ["is good"]], [[1, 0], [1], [1]]
    )
    rows = lists.lists_of(data, losses.MultipleNegativesReranking(), 1)
    for query, documents, scores in rows:
        own = data.documents[data.queries.index(query)]
        assert documents[: len(own)] == own
        assert len(documents) == len(own) + 1 == len(set(documents))
        assert scores == [1, *[0] * len(own)]
    # A query can have a row for each of its positives. They are no negatives of each other.
    data = RankingExamples(["a", "a", "b"], [["good"], ["so good"], ["bad"]], [[1]] * 3)
    rows = lists.lists_of(data, losses.MultipleNegativesReranking(), 4)
    assert [documents for query, documents, _ in rows if query == "a"] == [
        ["good", "bad"], ["so good", "bad"],
    ]  # fmt: skip


def test_queries_that_teach_nothing_are_left_out(eager):
    data = tiny.rankings()[:4]
    data = RankingExamples(
        [*data.queries, "is this"], [*data.documents, ["so", "a"]], [*data.scores, [0, 0]]
    )
    for loss, reason in (
        ("listnet", "all their documents have the same score"),
        ("multiple_negatives", "no document has the score 1"),
    ):
        with pytest.warns(UserWarning, match=f"1 of 5 queries were left out, because {reason}"):
            keras_bert.finetune(tiny.learner(), data, loss=loss, **{**QUICK, "epochs": 1})


@pytest.mark.slow
def test_a_teacher_leaves_out_queries_without_documents(model):
    teacher = keras_bert.pipeline(model)
    data = RankingExamples(["a", "b"], [[], ["good", "bad"]], missed=[[1], []])
    with pytest.warns(UserWarning, match="1 of 2 queries were left out"):
        scored = teacher.as_teacher(data)
    assert (scored.queries, len(scored.scores[0])) == (["b"], 2)
    with pytest.raises(ValueError, match="no query has documents"):
        teacher.as_teacher(data[:1])


def test_a_teacher_gives_the_scores_of_its_logits(model):
    teacher = keras_bert.pipeline(model)
    data = teacher.as_teacher(RankingExamples(["a film"], [["good", "bad"]]))
    logits = keras_bert.pipeline(head.with_logits(model))("a film", ["good", "bad"])
    expected = [answer["score"] for answer in logits]
    assert data.scores[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([[2, 0]], {"loss": "binary_cross_entropy"}, "needs scores from 0 to 1; received 2"),
        ([[0, 0]], {"loss": "multiple_negatives"}, "nothing to learn .*no document has"),
        ([[1, 0.5]], {"loss": "multiple_negatives"}, r"query 1 \('a'\): .*the scores 0 and 1"),
        ([[1, 0]], {"num_negatives": 3}, "num_negatives applies to the loss multiple_negatives"),
        ([[1, 1]], {"loss": "binary_cross_entropy"}, "all scores are 1, .*multiple_negatives"),
        ([[1, 0]], {"loss": "cosent"}, "loss must be one of binary_cross_entropy, "),
        ([[1, 0]], {"long_texts": "window"}, 'long_texts must be "truncate" in training'),
        ([[1, 0]], {"num_negatives": -1, "loss": "multiple_negatives"}, "num_negatives must be"),
        ([[1, 0]], {"negatives": 3}, "negatives is not an option .* did you mean num_negatives"),
        (None, {}, "the training data, the queries, has no labels"),
    ],
)
def test_wrong_training(data, options, message):
    train = RankingExamples(["a"], [["good", "bad"]], data)
    with pytest.raises(ValueError, match=message):
        keras_bert.finetune(tiny.learner(), train, **{**QUICK, **options})


def test_lists_need_several_documents():
    train = RankingExamples(["a", "b"], [["good"], ["bad"]], [[1], [0]])
    with pytest.raises(ValueError, match="the loss listnet compares the documents of a query"):
        keras_bert.finetune(tiny.learner(), train, loss="listnet", **QUICK)
    same = RankingExamples(["a", "b"], [["good"], ["good"]], [[1], [1]])
    with pytest.raises(ValueError, match="there are no negatives"):
        keras_bert.finetune(tiny.learner(), same, **QUICK)


def test_finetune_turns_rows_of_texts_into_rankings(eager):
    rows = [("this film", "so good", "so bad"), ("a film", "good!", "bad!")] * 4
    options = {**QUICK, "epochs": 1}
    model, _ = keras_bert.finetune(
        tiny.learner(), EmbeddingExamples(rows), task="reranking", **options
    )
    assert heads.find_task(model) == "reranking"
    pairs = Examples(["a film"] * 2, text_pairs=["good", "bad"], scores=[1, 0])
    more, metrics = keras_bert.finetune(model, pairs, pairs, task="reranking", **options)
    assert more is model
    assert metrics["metric"] == "mrr@10"
    with pytest.raises(ValueError, match="takes RankingExamples; received EmbeddingExamples"):
        keras_bert.pipeline(model).evaluate(EmbeddingExamples(rows))
    with pytest.raises(ValueError, match="is data of the task classification; received task="):
        keras_bert.finetune(tiny.learner(), tiny.examples(), task="tagging")


def test_terms_do_not_depend_on_the_normalization():
    text = "BERT는 언어 모델, café"
    assert first_search.terms(unicodedata.normalize("NFD", text)) == first_search.terms(text)
