"""Training and scoring of embedders."""

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import EmbeddingExamples, heads, losses
from keras_bert.data.batching import Batches
from keras_bert.packed_heads import packed_rows
from keras_bert.tasks.embedding.task import Embedding
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.training.batch_plan import BatchPlan
from tests import tiny
from tests.parameters import slow

embedding = Embedding()

WORDS = [token for token in tiny.PIECES if token.isalpha()]


def encoder(**options):
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    options = {"num_hidden_layers": 1, "initializer_range": 0.3, **rates, **options}
    return tiny.encoder(pooling="mean", **options)


def rows(count=24, negatives=0, seed=0):
    """Return rows whose texts share a word; the negatives share none."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        word = WORDS[number % len(WORDS)]
        others = [" ".join(rng.choice(WORDS, 2)) for _ in range(negatives)]
        made.append((f"{word} so", f"{word} {rng.choice(WORDS)}", *others))
    return made


@pytest.mark.parametrize(
    ("negatives", "scores", "options"),
    [
        (0, None, {}),
        slow(1, None, {"loss": "triplet"}),
        slow(2, None, {"matryoshka_dims": [8, 4]}),
        slow(0, np.linspace(0, 1, 24), {}),
        slow(0, [0, 1] * 12, {"loss": "contrastive"}),
        slow(0, [0, 1] * 12, {"loss": "cosine_similarity"}),
    ],
)
def test_finetune_lowers_the_loss(negatives, scores, options):
    examples = EmbeddingExamples(rows(negatives=negatives), scores=scores)
    model, found = keras_bert.finetune(
        encoder(), examples, dev=examples, epochs=8, batch_size=8, learning_rate=1e-2,
        show_progress=False, **options,
    )  # fmt: skip
    history = found["history"]
    assert history[-1]["loss"] < history[0]["loss"]
    assert heads.find_task(model) == "embedding" and model.output_shape == (None, 8)
    assert set(embedding.metric_names(None, examples)) <= set(found)


@pytest.mark.parametrize("layers", [[], [5]])
def test_packed_rows_give_the_same_vectors(layers):
    made = [keras.layers.Dense(units, "tanh") for units in layers]
    model = heads.embedder(encoder(), layers=made)
    unpacked = heads.siamese(model)
    encoded = KerasPredictor(model).encode(EmbeddingExamples(rows(24, negatives=1)), 32)
    plan = BatchPlan(model, encoded, 8, seed=0, epochs=2, losses=encoded.loss)
    assert plan.shape is not None
    seen = []
    for epoch in range(2):
        batches = plan.epoch(epoch)
        for index, chosen in enumerate(batches.rows):
            inputs, targets, weights = batches[index]
            plain, expected_targets, _ = encoded.batch(chosen, int(encoded.lengths[chosen].max()))
            packed = keras.ops.convert_to_numpy(plan.trained(inputs, training=False))
            expected = keras.ops.convert_to_numpy(unpacked(plain, training=False))
            np.testing.assert_allclose(packed, expected, atol=1e-5)
            np.testing.assert_array_equal(targets, expected_targets)
            assert weights.tolist() == [1.0] * len(chosen)
            seen.extend(chosen)
    assert sorted(seen) == sorted([*range(24), *range(24)])


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="compiles with TensorFlow")
def test_empty_places_of_packed_rows_have_no_nan_gradient():
    import tensorflow as tf

    model = packed_rows(heads.embedder(encoder()))
    encoded = KerasPredictor(heads.embedder(encoder())).encode(EmbeddingExamples(rows(25)), 32)
    plan = BatchPlan(heads.embedder(encoder()), encoded, 8, seed=0, epochs=1, losses=encoded.loss)
    inputs, _, _ = plan.epoch(0)[0]
    counts = inputs["text_ids"].max(axis=1)
    assert counts.min() < counts.max(), "some rows have an empty place"

    @tf.function(jit_compile=True)
    def gradients(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(inputs)[:, 0] * tf.ones([8]))
        variables = [variable.value for variable in model.trainable_variables]
        return tape.gradient(loss, variables, unconnected_gradients="zero")

    found = gradients({key: tf.constant(value) for key, value in inputs.items()})
    assert all(np.isfinite(tf.convert_to_tensor(each)).all() for each in found)


def test_calls_between_the_results_of_an_iterator():
    embed = keras_bert.pipeline(heads.embedder(encoder()))
    found = embed(iter(["good", "bad"]), truncate_dim=3)
    assert embed("film").shape == (8,)
    assert [vector.shape for vector in found] == [(3,), (3,)]


@pytest.mark.parametrize("order", [1, -1])
def test_dev_data_of_another_kind(order, eager):
    triplets = EmbeddingExamples(rows(8, negatives=1))
    scored = EmbeddingExamples(rows(8), scores=[0.0, 1.0] * 4)
    train, dev = [triplets, scored][::order]
    _, found = keras_bert.finetune(
        encoder(), train, dev, epochs=1, batch_size=4, show_progress=False
    )
    assert embedding.metric_names(None, dev)[0] in found
    assert np.isfinite(found["history"][0]["dev_loss"])


def test_training_starts_from_an_embedder(eager):
    bert = encoder(type_vocab_size=1)  # no second segment is needed
    model = heads.embedder(bert, prompts={"query": "so "}, similarity="dot")
    trained, _ = keras_bert.finetune(
        model, EmbeddingExamples(rows()), epochs=1, show_progress=False
    )
    assert trained is model
    assert heads.find_output(trained).similarity == "dot"


def test_a_loss_can_be_an_object(eager):
    made = losses.MultipleNegativesRanking(scale=3.0)
    _, found = train(loss=made, epochs=1)
    assert found["recipe"]["loss"]["scale"] == 3.0


def test_the_default_prompt_is_used_as_in_encode():
    examples = EmbeddingExamples(rows(8))
    options = {"prompts": {"query": "film bad "}, "default_prompt": "query"}
    bert = encoder()
    embed = keras_bert.pipeline(heads.embedder(bert, **options))
    prompted = EmbeddingExamples([tuple(f"film bad {text}" for text in row) for row in rows(8)])
    plain = keras_bert.pipeline(heads.embedder(bert))
    assert embed.evaluate(examples) == pytest.approx(plain.evaluate(prompted))
    found = keras_bert.RetrievalData({"q": "so"}, {"d": "good", "e": "bad"}, {"q": {"d": 1}})
    expected = plain.evaluate(found.with_prompts("film bad ", "film bad "))
    assert embed.evaluate(found) == pytest.approx(expected)
    with_own = found.with_prompts("a ", "")
    assert embed.evaluate(with_own) == pytest.approx(plain.evaluate(with_own))


def test_own_prompts_replace_the_default_prompt():
    bert, pairs = encoder(), EmbeddingExamples(rows(8), [0.1 * number for number in range(8)])
    prompted = pairs.with_prompts("film ", "bad ")
    options = {"prompts": {"query": "so "}, "default_prompt": "query"}
    embed = keras_bert.pipeline(heads.embedder(bert, **options))
    plain = keras_bert.pipeline(heads.embedder(bert))
    assert embed.evaluate(prompted) == pytest.approx(plain.evaluate(prompted))
    assert embed.evaluate(prompted) != pytest.approx(embed.evaluate(pairs))
    written = [("film " + first, "bad " + second) for first, second in rows(8)]
    assert plain.evaluate(prompted) == plain.evaluate(EmbeddingExamples(written, pairs.scores))
    for method in (embed.mine_negatives, embed.as_teacher):
        with pytest.raises(ValueError, match="the data has prompts. Call with_prompts later"):
            method(prompted)
    with pytest.raises(ValueError, match="all have scores or none, the same prompts"):
        EmbeddingExamples.of_sets([pairs, prompted])
    with pytest.raises(ValueError, match="already have prompts"):
        prompted.with_prompts("", "")
    with pytest.raises(ValueError, match="takes texts such as 'query: '; received 'query'"):
        pairs.with_prompts("query", "")


def test_a_query_with_a_prompt_does_not_find_itself():
    texts = ["good", "bad", "so good", "so bad"]
    data = EmbeddingExamples.of_classes(keras_bert.Examples(texts, labels=["x", "y", "x", "y"]))
    embed = keras_bert.pipeline(encoder())
    vectors = [
        [
            embed.encode(text, prompt=prompt)
            for text, prompt in zip(row, ("so ", "bad "), strict=True)
        ]
        for row in data.texts
    ]
    expected = embedding.score(None, data, vectors)
    assert embed.evaluate(data.with_prompts("so ", "bad ")) == pytest.approx(expected)
    # Prompts in the texts would count the own text of a query as relevant.
    written = [("so " + first, "bad " + second) for first, second in data.texts]
    written = EmbeddingExamples(written, classes=data.classes)
    assert embed.evaluate(written) != pytest.approx(expected)
    same = EmbeddingExamples([(text, text) for text in texts]).with_prompts("so ", "bad ")
    with pytest.raises(ValueError, match="texts without labels cannot be scored"):
        embed.evaluate(same)


def test_retrieval_compares_as_the_model_was_trained():
    queries, corpus = {"q": np.array([1.0, 0.0])}, {"long": [2.0, 9.0], "near": [1.0, 0.0]}
    vectors = [np.array([queries["q"]]), *([np.array(each)] for each in corpus.values())]
    data = keras_bert.RetrievalData({"q": "a"}, dict.fromkeys(corpus, "b"), {"q": {"long": 1}})
    for kind, rank in (("dot", 1.0), ("cosine", 0.5), ("euclidean", 0.5)):
        output = heads.TaskOutput("embedding", similarity=kind)
        assert embedding.score(output, data, vectors)["mrr@10"] == rank


def test_an_assumed_pooling_is_a_warning():
    bert = encoder().with_options(pooling=None)
    for use in (lambda: embedding.build(bert, None), lambda: keras_bert.pipeline(bert)):
        with pytest.warns(UserWarning, match="has no pooling; the mean over"):
            use()


def test_read_texts_without_pairs():
    table = {"q": ["a", "b"], "n": ["e", "f"]}
    twice = keras_bert.read(table, "embedding", text="q")
    assert twice.texts == [("a", "a"), ("b", "b")] and twice.classes is None
    with pytest.warns(UserWarning, match="2 of 2 texts were left out"):
        keras_bert.read(table, "embedding", text="q", label="n")
    with pytest.raises(ValueError, match="apply only to pairs; give text_pair"):
        keras_bert.read(table, "embedding", text="q", negatives=["n"])


def test_mined_negatives():
    embed = keras_bert.pipeline(heads.embedder(encoder()))
    pairs = [
        ("so good", "good"),
        ("so good", "good film"),
        ("bad", "bad film"),
        ("film", "this film"),
    ]
    data = EmbeddingExamples(pairs)
    mined = embed.mine_negatives(data, 1, margin=-2.0)
    assert [row[:2] for row in mined.texts] == pairs
    corpus = [positive for _, positive in pairs]
    gaps = []  # between the positive and the text that is least similar
    for query, right_answer, negative in mined.texts:
        right = {positive for other, positive in pairs if other == query}
        others = [text for text in corpus if text not in right]
        similar = embed.similarity(embed.encode(query), embed.encode(others))[0]
        assert negative == others[similar.argmax()]
        near = embed.similarity(embed.encode(query), embed.encode(right_answer)).item()
        gaps.append(near - similar.min())
    margin = (min(gaps) + max(gaps)) / 2
    with pytest.warns(UserWarning, match=r"\d of 4 rows were left out, .* lower count"):
        fewer = embed.mine_negatives(data, 1, margin=margin)
    for query, positive, negative in fewer.texts:
        near, far = embed.similarity(embed.encode(query), embed.encode([positive, negative]))[0]
        assert far < near - margin
    assert embed.mine_negatives(data, 1, margin=0).texts == mined.texts
    with pytest.raises(ValueError, match="lower count or margin"):
        embed.mine_negatives(data, 1, margin=3.0)
    with pytest.raises(ValueError, match="without scores and classes"):
        embed.mine_negatives(EmbeddingExamples(pairs, scores=[1, 2, 3, 4]))


# Losses, compared with sums over the pairs in NumPy.


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(5, 3, 4)).astype("float32")


def log_softmax_at(scores, index):
    return scores[index] - np.log(np.exp(scores).sum())


def ranking_of_row(row, rows, vectors):
    """Return the ranking loss of a row of texts, among the other rows.

    Each other text of the rows is a negative once, except for positives of the same query.
    """
    positives = {other[1] for other in rows if other[0] == row[0]}
    negatives = {text for other in rows for text in other[1:]} - positives
    candidates = [row[1], *negatives]
    return -log_softmax_at(np.array([20 * vectors[row[0]] @ vectors[t] for t in candidates]), 0)


@pytest.mark.parametrize("texts", [2, 3, 4])
@pytest.mark.parametrize("symmetric", [False, True])
def test_ranking_of_rows_that_repeat_texts(texts, symmetric):
    rng = np.random.default_rng(texts)
    ids = rng.integers(0, 6, (12, texts))
    ids[:, 0] %= 4
    vectors = unit(rng.normal(size=(6, 3)).astype("float32"))
    rows = [tuple(row) for row in ids.tolist()]
    expected = [ranking_of_row(row, rows, vectors) for row in rows]
    if symmetric:
        swapped = [(row[1], row[0]) for row in rows]
        other = [ranking_of_row(row, swapped, vectors) for row in swapped]
        expected = np.add(expected, other) / 2
    loss = losses.MultipleNegativesRanking(symmetric=symmetric, reduction=None)
    np.testing.assert_allclose(np.array(loss(ids, vectors[ids])), expected, rtol=1e-4, atol=1e-5)


def test_losses_tell_close_targets_apart():
    """In bfloat16, 257 would be 256, and 0.5001 would be 0.5."""
    vectors = unit(np.array([[[1.0, 0.9], [1.0, 0.8]], [[0.9, 1.0], [0.8, 1.0]]]))
    cosent, ranking = losses.CoSENT(), losses.MultipleNegativesRanking()
    scores, ids = np.array([0.5001, 0.5]), np.array([[256, 256], [257, 257]])
    expected = float(cosent(scores, vectors)), float(ranking(ids, vectors))
    keras.config.set_floatx("bfloat16")
    try:
        cosent, ranking = losses.CoSENT(), losses.MultipleNegativesRanking()
        found = float(cosent(scores, vectors)), float(ranking(ids, vectors))
    finally:
        keras.config.set_floatx("float32")
    assert found == expected and min(found) > 0


def test_filler_rows_do_not_count_twice(vectors):
    """The last batch of compiled steps is filled with copies of its first row."""
    loss = losses.MultipleNegativesRanking(reduction="sum")
    ids = np.arange(15).reshape(5, 3)
    filled = np.concatenate([vectors, vectors[:1], vectors[:1]])
    weights = np.array([1.0] * 5 + [0.0] * 2)
    again = loss(np.concatenate([ids, ids[:1], ids[:1]]), filled, weights)
    np.testing.assert_allclose(float(again), float(loss(ids, vectors)), rtol=1e-5)


def test_the_dev_loss_is_the_loss_of_the_caller(eager):
    data = EmbeddingExamples(rows(6), scores=np.linspace(0, 1, 6))
    _, found = keras_bert.finetune(
        encoder(), data, data, epochs=1, loss=losses.CoSENT(scale=2.0), learning_rate=1e-9,
        show_progress=False,
    )  # fmt: skip
    assert found["dev_loss"] == pytest.approx(found["train_loss"], rel=1e-4)


def test_vectors_with_nan_are_an_error():
    model = encoder()
    weight = model.trainable_variables[0]
    weight.assign(weight * np.nan)
    with pytest.raises(ValueError, match="returned NaN, because its weight .* is damaged"):
        keras_bert.pipeline(model).encode(["so good"])


def test_filler_rows_of_cosent_do_not_count():
    data = EmbeddingExamples([("a b", "c"), ("b", "a"), ("c c", "a")], scores=[0.1, 0.5, 0.9])
    model = heads.embedder(encoder())
    encoded = KerasPredictor(model).encode(data, 16)
    ((inputs, targets, weights),) = Batches(encoded, 5, seed=(0, 0), lengths=(16,))
    assert weights.tolist() == [1, 1, 1, 0, 0] and np.isnan(targets[3:]).all()
    vectors = keras.ops.convert_to_numpy(heads.siamese(model)(inputs))
    loss = losses.CoSENT(reduction="sum")
    expected = float(loss(targets[:3], vectors[:3]))
    assert float(loss(targets, vectors, weights)) == pytest.approx(expected, rel=1e-5)


def test_cosent(vectors):
    scores = np.array([0.1, 0.9, 0.9, 0.0, 0.5])
    cosine = 20 * (unit(vectors)[:, 0] * unit(vectors)[:, 1]).sum(-1)
    terms = [
        np.exp(cosine[low] - cosine[high])
        for low, high in np.ndindex(5, 5)
        if scores[low] < scores[high]
    ]
    got = float(losses.CoSENT()(scores, vectors[:, :2]))
    np.testing.assert_allclose(got, np.log(1 + np.sum(terms)), rtol=1e-5)


def test_matryoshka(vectors):
    inner = losses.CosineSimilarity()
    loss = losses.Matryoshka(inner, dims=[4, 2], weights=[1.0, 0.5])
    targets = np.linspace(0, 1, 5)
    expected = float(inner(targets, vectors)) + 0.5 * float(inner(targets, vectors[:, :, :2]))
    np.testing.assert_allclose(float(loss(targets, vectors)), expected, rtol=1e-5)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    np.testing.assert_allclose(float(again(targets, vectors)), expected, rtol=1e-5)


@pytest.mark.peers
@pytest.mark.parametrize(
    "name", ["MultipleNegativesRanking", "CoSENT", "CosineSimilarity", "Triplet", "Contrastive"]
)
def test_losses_are_those_of_sentence_transformers(vectors, name):
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    count = 3 if name in ("MultipleNegativesRanking", "Triplet") else 2
    targets = np.array([0.1, 0.9, 0.9, 0.0, 0.5])
    if name in ("Contrastive", "Triplet"):
        targets = np.array([0, 1, 1, 0, 1])
    options = {}
    if name == "Triplet":
        distance = theirs.TripletDistanceMetric.COSINE
        options = {"distance_metric": distance, "triplet_margin": 0.5}

    class Model(torch.nn.Module):
        def forward(self, features):
            return {"sentence_embedding": features}

        def __getitem__(self, index):
            return self

    loss = getattr(theirs, f"{name}Loss")(Model(), **options)
    given = [torch.tensor(vectors[:, index]) for index in range(count)]
    expected = loss(given, torch.tensor(targets, dtype=torch.float32))
    if name == "MultipleNegativesRanking":
        targets = np.arange(5 * count).reshape(5, count)
    ours = getattr(losses, name)()(targets, vectors[:, :count])
    np.testing.assert_allclose(float(ours), float(expected), rtol=1e-4)


def evaluate(examples, **options):
    return keras_bert.evaluate(heads.embedder(encoder()), examples, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EmbeddingExamples([("a",)]), "row 1: must be at least 2 texts"),
        (lambda: EmbeddingExamples([("a", "b"), ("a", "b", "c")]), "row 2: .* as many as in"),
        (lambda: EmbeddingExamples([("a", 3)]), r"row 1: .*received \('a', 3\)"),
        (lambda: EmbeddingExamples([("a", "b")], scores=[np.nan]), "received nan in row 1"),
        (lambda: EmbeddingExamples([("a", "b", "c")], scores=[1]), "scores need rows of 2"),
        (lambda: EmbeddingExamples([("a", "b")], [1.0], classes=["x"]), "only one of scores, cla"),
        (lambda: EmbeddingExamples.of_texts("abc"), "must be a list"),
        (lambda: train(loss="x"), "loss must be one of"),
        (lambda: train(loss=keras.losses.MeanSquaredError()), "or such a loss of keras_bert.loss"),
        (lambda: train(loss=losses.Matryoshka(losses.CoSENT(), [4])), "give matryoshka_dims"),
        (lambda: train(loss="cosent"), "cosent needs rows with scores; .* has texts"),
        (lambda: train(loss="distillation"), "needs rows with vectors"),
        (lambda: train(loss="triplet"), "needs rows of three texts"),
        (lambda: scored([0.5, 5.0], loss="contrastive"), "needs scores from 0 to 1; .* has 5.0"),
        (lambda: scored([-1.5, 0.5], loss="cosine_similarity"), "needs scores from -1 to 1"),
        (lambda: scored([0.5, 0.5]), "all scores are 0.5, so there is nothing to rank"),
        (lambda: train(batch_size=1), "at least 2, because the loss compares"),
        (lambda: train(sampling="round_robin"), "needs several sets"),
        (lambda: train(matryoshka_dims=[9]), "dims must be at most 8"),
        (lambda: train(matryoshka_dims=[4.5]), "must be an integer"),
        (lambda: fit([("a", "x"), ("b", "x")]), "the same positive .* so there are no negatives"),
        (lambda: fit([("a", "x"), ("a", "y")]), "all rows have the same query"),
        (lambda: fit([("\u200b", " "), (" ", "")]), "no text has tokens"),
        (lambda: evaluate(EmbeddingExamples(rows()), top_k=1), "top_k is not an option"),
        (lambda: evaluate(EmbeddingExamples.of_texts(["a"])), "without labels cannot be scored"),
        (
            lambda: keras_bert.pipeline(encoder()).evaluate(tiny.examples()),
            "takes EmbeddingExamples or",
        ),
        (lambda: mine(tiny.examples()), "examples must be EmbeddingExamples"),
        (lambda: mine(EmbeddingExamples(rows()), margin="a"), "margin must be a finite number"),
        (lambda: keras_bert.pipeline(encoder())(tiny.questions()), "takes Examples; received Q"),
        (lambda: heads.embedder(encoder(), prompts={"a": 1}), "prompts must be a dict"),
        (lambda: keras_bert.pipeline(heads.siamese(heads.embedder(encoder()))), "use its embedder"),
        (lambda: heads.siamese(heads.classifier(encoder(), 2)), "needs a model of heads.embedder"),
        (lambda: losses.Matryoshka(losses.CoSENT(), [1], [1, 2]), "one number for each of dims"),
    ],
)
def test_wrong_inputs(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def scored(scores, **options):
    examples = EmbeddingExamples(rows(2), scores)
    return keras_bert.finetune(encoder(), examples, show_progress=False, **options)


def mine(examples, **options):
    return keras_bert.pipeline(heads.embedder(encoder())).mine_negatives(examples, **options)


def fit(texts):
    return keras_bert.finetune(encoder(), EmbeddingExamples(texts), show_progress=False)


def train(**options):
    examples = EmbeddingExamples(rows())
    return keras_bert.finetune(encoder(), examples, show_progress=False, **options)
