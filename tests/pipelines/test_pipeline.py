"""Pipelines: inputs of each task, results, long texts, and what is refused."""

import itertools
import pickle
import warnings

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.tasks import results
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.tasks.question_answering.data import Questions
from keras_bert.tasks.tagging.data import TaggedSentences
from tests import tiny
from tests.parameters import needs_tensorflow
from tests.properties.test_trained_models import traces

TEXTS = ["good " * 9, "bad", "this is " * 12, "", "so good film"]
KOREAN = "이 한국어 film is 🙂 so good!"


def encoder(**options):
    return tiny.encoder(num_hidden_layers=1, initializer_range=1.0, **options)


@pytest.fixture(scope="module")
def classify():
    return keras_bert.pipeline(heads.classifier(encoder(), labels=["bad", "good", "so-so"]))


def test_one_text_and_several(classify):
    examples = keras_bert.Examples(TEXTS)
    rows = KerasPredictor(classify.model).answers(examples)
    answers = classify(TEXTS)
    labels = ["bad", "good", "so-so"]
    assert [answer["label"] for answer in answers] == [labels[row.argmax()] for row in rows]
    scores = [answer["score"] for answer in answers]
    np.testing.assert_allclose(scores, [row.max() for row in rows], atol=1e-5)
    assert type(scores[0]) is float
    one, score = classify(TEXTS[4]), pytest.approx(answers[4]["score"], abs=1e-5)
    assert one == {"label": answers[4]["label"], "score": score}
    assert classify([]) == []
    for several in (tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, object), examples):
        assert classify(several) == answers
    assert classify(TEXTS, batch_size=1) == [
        {"label": answer["label"], "score": pytest.approx(answer["score"], abs=1e-5)}
        for answer in answers
    ]


def test_iterator_gives_an_iterator(classify):
    asked = []

    def texts():
        for number in range(1000):
            asked.append(number)
            yield "good"

    answers = classify(texts())
    assert asked == []
    assert next(answers)["label"] in ("bad", "good", "so-so")
    assert 0 < len(asked) < 1000
    assert len(list(answers)) == 999


def test_iterators_of_two_columns_give_an_iterator():
    ask = keras_bert.pipeline(heads.span_selector(encoder()))
    answers = ask(question=itertools.cycle(["who", "so"]), context=KOREAN)
    assert next(answers)["answer"] == ask(question="who", context=KOREAN)["answer"]
    ask = keras_bert.pipeline(heads.multiple_choice(encoder()))
    texts, choices = ["this film is", "so"], [["good", "bad"], ["a", "is"]]
    expected = ask(texts, choices=choices)
    assert list(ask(iter(texts), choices=iter(choices))) == expected
    assert list(ask(zip(texts, choices, strict=True))) == expected
    ask = keras_bert.pipeline(heads.classifier(encoder(), 2, pairs=True))
    assert list(ask(iter(texts), text_pair=iter(["a", "b"]))) == ask(texts, text_pair=["a", "b"])
    with pytest.raises(ValueError, match="shorter"):
        list(ask(iter(texts), text_pair=["a"]))
    with pytest.raises(ValueError, match="question is not an input of this task"):
        ask(question=iter(texts), context=["a", "b"])


def test_errors_in_an_iterator_say_where(classify):
    texts = iter(["good"] * 40 + [None])
    with pytest.raises(ValueError, match="in the inputs 33 to 41: text 9 must be a string"):
        list(classify(texts, batch_size=2))


def test_top_k(classify):
    every = classify("so good", top_k=None)
    assert sum(each["score"] for each in every) == pytest.approx(1.0, abs=1e-5)
    assert [each["score"] for each in every] == sorted((e["score"] for e in every), reverse=True)
    assert classify("so good", top_k=2) == every[:2]
    assert classify(["so good"], top_k=1) == [every[:1]]


def test_pairs():
    ask = keras_bert.pipeline(heads.classifier(encoder(), 2, pairs=True))
    pair = ask(("so good", "bad"))
    assert pair == ask("so good", text_pair="bad") == ask([["so good", "bad"]])[0]
    assert ask([("so good", "bad"), ("a", "b")]) == ask(["so good", "a"], text_pair=["bad", "b"])


def test_label_sets_and_numbers():
    examples = keras_bert.Examples(TEXTS)
    ask = keras_bert.pipeline(heads.classifier(encoder(), labels=["x", "y"], multi_label=True))
    every = ask(TEXTS, top_k=None)
    for chosen, scored in zip(ask(TEXTS), every, strict=True):
        assert chosen == [each for each in scored if each["score"] >= 0.5]
    rows = KerasPredictor(ask.model).answers(examples)
    assert {each["label"]: each["score"] for each in every[1]} == pytest.approx(
        dict(zip("xy", rows[1].tolist(), strict=True)), abs=1e-6
    )
    ask = keras_bert.pipeline(heads.regressor(encoder()))
    rows = KerasPredictor(ask.model).answers(examples)
    np.testing.assert_allclose([answer["score"] for answer in ask(TEXTS)], rows, atol=1e-5)


def test_entities_have_offsets_in_characters():
    ask = keras_bert.pipeline(heads.tagger(encoder(), labels=["O", "B-x", "I-x", "B-y", "I-y"]))
    words = ask(KOREAN, grouped=False)
    expected = ["이", "한국어", "film", "is", "🙂", "so", "good", "!"]
    assert [word["text"] for word in words] == expected
    for part in [*words, *ask(KOREAN)]:
        assert KOREAN[part["start"] : part["end"]] == part["text"]
        assert list(part) == ["text", "tag", "score", "start", "end"]
    assert {part["tag"] for part in ask(KOREAN)} <= {"x", "y"}
    assert ask(["", KOREAN])[0] == []


def test_the_task_auto_is_that_of_the_model():
    assert keras_bert.pipeline(heads.tagger(tiny.encoder(), 2), task="auto").task == "tagging"


def test_question_answering():
    ask = keras_bert.pipeline(heads.span_selector(encoder()))
    answer = ask(question="is this bad", context=KOREAN)
    assert answer["answer"] == KOREAN[answer["start"] : answer["end"]] != ""
    ranked = ask(question="is this bad", context=KOREAN, top_k=50)
    assert ranked[0] == {**answer, "score": pytest.approx(answer["score"], abs=1e-5)}
    scores = [each["score"] for each in ranked]
    assert scores == sorted(scores, reverse=True)
    assert len({(each["start"], each["end"]) for each in ranked}) == len(ranked)
    assert sum(scores) <= 1 + 1e-6
    two = ask(question=["is this bad", "so"], context=KOREAN)
    assert two[0]["answer"] == answer["answer"] and len(two) == 2
    assert ask("is this bad", KOREAN) == answer
    assert ask([("is this bad", KOREAN)])[0] == ask(("is this bad", KOREAN)) == answer


@pytest.mark.slow
def test_top_answers_include_no_answer():
    ask = keras_bert.pipeline(heads.span_selector(encoder(), no_answer=True))
    context = "film is so good"
    ranked = ask(question="who", context=context, top_k=100)
    assert ask(question="who", context=context, top_k=None) == ranked[0]
    assert [each["answer"] for each in ranked].count("") == 1
    assert sum(each["score"] for each in ranked) == pytest.approx(1.0, abs=1e-5)


def test_multiple_choice():
    ask = keras_bert.pipeline(heads.multiple_choice(encoder()))
    one = ask("this film is", choices=["good", "bad"])
    assert one["text"] == ["good", "bad"][one["choice"]] and 0.5 <= one["score"] <= 1
    rows = ask(["a", "this film is"], choices=[["so", "is", "a"], ["good", "bad"]])
    assert rows[1] == {**one, "score": pytest.approx(one["score"], abs=1e-5)}


def test_masked_tokens():
    ask = keras_bert.pipeline(heads.masked_lm(encoder()))
    (best, second) = ask("so [MASK] film", top_k=2)
    assert best["score"] >= second["score"] and best["token"] in tiny.PIECES
    assert len(ask("so [MASK]")) == 5
    both, other = ask(["[MASK] a [MASK]", "[MASK]"], top_k=1)
    assert [len(each) for each in both] == [1, 1] and list(other[0]) == ["token", "score"]


def test_embeddings():
    base = encoder()
    embed = keras_bert.pipeline(base)
    vectors = embed(TEXTS)
    assert vectors.shape == (5, 8) and vectors.dtype == np.float32
    np.testing.assert_allclose((vectors**2).sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(embed(TEXTS[4]), vectors[4], atol=1e-5)
    assert embed([]).shape == (0, 8)
    model = heads.embedder(base, pooling="max", normalize=False)
    preprocessor = base.preprocessor.with_options(sequence_length=32)
    expected = keras.ops.convert_to_numpy(model(preprocessor(TEXTS)))
    np.testing.assert_allclose(keras_bert.pipeline(model)(TEXTS), expected, atol=1e-5)
    np.testing.assert_array_equal(embed(keras_bert.Examples(TEXTS)), vectors)
    other = keras_bert.pipeline(heads.classifier(base, 2), task="embedding")
    np.testing.assert_allclose(other(TEXTS), vectors, atol=1e-6)
    with pytest.raises(ValueError, match="has the pooling 'max'; received 'cls'"):
        keras_bert.pipeline(model, pooling="cls")


def test_dataframes(classify):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [7, 8], "text": ["so good", "bad"]}, index=["a", "b"])
    answered = classify(frame)
    assert list(answered.columns) == ["id", "text", "label", "score"]
    assert list(answered.index) == ["a", "b"] and list(frame.columns) == ["id", "text"]
    assert classify(["so good"]).to_dataframe()["label"].tolist() == answered["label"][:1].tolist()
    assert classify(frame["text"]) == classify(["so good", "bad"])
    labeled = pandas.DataFrame({"text": ["so good"], "label": ["true"]})
    numbers = keras_bert.pipeline(heads.classifier(encoder(), labels=[0, 1]))(frame)
    assert numbers["label"].dtype == "int64"
    names = ["text", "label", "predicted_label", "score", "predicted_score"]
    for _ in range(3):  # a cell that is run again
        labeled = classify(labeled)
    assert list(labeled.columns) == names
    with pytest.raises(ValueError, match=r"no column 'text'. .* pipe\(frame, text="):
        classify(pandas.DataFrame({"words": ["a"]}))


def test_columns_of_a_dataframe_may_have_any_name(classify):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"Review Text": ["so good", "bad"], "text": ["x", "y"]})
    answered = classify(frame, text="Review Text")
    assert list(answered.columns) == ["Review Text", "text", "label", "score"]
    expected = [answer["score"] for answer in classify(frame["Review Text"])]
    assert answered["score"].tolist() == expected
    assert not len(classify(frame[:0], text="Review Text"))
    for inputs, options, message in (
        (frame, {"text": "Review"}, "no column 'Review'"),
        (frame, {"question": "Review Text"}, "question is not an input of this task"),
        (["a"], {"text": "Review Text"}, "text names a column of a DataFrame"),
    ):
        with pytest.raises(ValueError, match=message):
            classify(inputs, **options)


def test_long_texts_are_truncated_with_one_warning(classify):
    for call, counts in (
        (lambda ask: ask(["good " * 40, "bad"]), "1 of 2"),
        (lambda ask: ask.evaluate(keras_bert.Examples(["good " * 40], labels=["good"])), "1 of 1"),
        (lambda ask: list(ask(iter(["good " * 40] * 600), batch_size=8)), "600 of 600"),
    ):
        ask = keras_bert.pipeline(classify.model)
        ask.chunk = 1
        with pytest.warns(UserWarning, match=f"{counts} texts were truncated to 32") as caught:
            call(ask)
        (warning,) = tiny.user_warnings(caught)
        assert warning.filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            ask("good " * 40)
    embed = keras_bert.pipeline(heads.embedder(encoder()))
    pair = keras_bert.EmbeddingExamples([("so good " * 30, "so good " * 30 + "!")], [1.0])
    with pytest.warns(UserWarning, match="^2 of 2 texts were truncated"):
        embed.evaluate(pair)


def test_a_limit_below_that_of_the_encoder_is_named():
    encoder = tiny.encoder(pooling="mean")
    encoder.preprocessor.max_sequence_length = 16
    with pytest.warns(UserWarning, match="to 16 tokens.*max_sequence_length, at most 32"):
        keras_bert.pipeline(encoder)("good " * 20)
    encoder.preprocessor.max_sequence_length = 32
    keras_bert.pipeline(encoder)("good " * 20)
    with pytest.warns(UserWarning, match="to 32 tokens. Shorten them$"):
        keras_bert.pipeline(encoder)("good " * 40)


def test_long_texts_can_be_errors():
    for head, options in ((heads.embedder, {}), (heads.multiple_choice, {"choices": ["a", "b"]})):
        ask = keras_bert.pipeline(head(encoder(pooling="mean")), long_texts="error")
        with pytest.raises(ValueError, match="texts have more than 32 tokens. Shorten them"):
            ask("good " * 40, **options)


def test_long_texts_in_windows():
    model = heads.classifier(encoder(), 3)
    classify = keras_bert.pipeline(model, long_texts="window")
    ids = [5, 14, 6, 7, 8, 11] * 8  # 48 tokens; a window has 30, the next one begins 23 later
    text = " ".join(tiny.PIECES[number] for number in ids)
    windows = [" ".join(tiny.PIECES[n] for n in part) for part in (ids[:30], ids[23:])]
    rows = KerasPredictor(model).answers(keras_bert.Examples(windows))
    found = {each["label"]: each["score"] for each in classify([text, "bad"], top_k=None)[0]}
    expected = np.mean(rows, axis=0)
    assert [found[str(n)] for n in range(3)] == pytest.approx(expected.tolist(), abs=1e-5)
    with pytest.raises(ValueError, match="1 of 2 texts have more than 32 tokens"):
        keras_bert.pipeline(model, long_texts="error")([text, "bad"])
    with pytest.raises(ValueError, match="long_texts must be one of truncate, window, error"):
        keras_bert.pipeline(model, long_texts="cut")
    with pytest.raises(ValueError, match="long_texts must be one of window for the task tagging"):
        keras_bert.pipeline(heads.tagger(encoder(), 2), long_texts="truncate")
    pairs = heads.classifier(encoder(), 2, pairs=True)
    with pytest.raises(ValueError, match='"window" is only for single texts'):
        keras_bert.pipeline(pairs, long_texts="window")(("a", "b"))


@needs_tensorflow
@pytest.mark.slow
def test_windows_hold_after_the_training_in_files_and_exports(tmp_path):
    import tensorflow as tf

    text = "this film " * 40 + "good " * 30
    train = keras_bert.Examples(["good " * 70, "bad " * 70] * 4, labels=["good", "bad"] * 4)
    options = {"epochs": 1, "long_texts": "window", "show_progress": False}
    model, _ = keras_bert.finetune(tiny.learner(), train, **options)
    answer = keras_bert.pipeline(model)(text, top_k=None)
    scores = {row["label"]: pytest.approx(row["score"], abs=1e-5) for row in answer}
    keras_bert.save(model, tmp_path / "model.keras")
    again = keras_bert.pipeline(tmp_path / "model.keras")(text, top_k=None)
    assert {row["label"]: row["score"] for row in again} == scores
    served = tf.saved_model.load(str(keras_bert.export(model, tmp_path / "served")))
    answer = served.signatures["serving_default"](text=tf.constant([text, "bad", ""]))
    expected = [scores[label] for label in heads.find_output(model).labels]
    assert answer["probabilities"][0].numpy().tolist() == expected


@needs_tensorflow
def test_texts_of_other_lengths_are_not_traced_again(classify):
    classify("good")
    assert traces().of(classify, TEXTS) == 0
    assert traces().of(classify, TEXTS[2]) == 0


@pytest.mark.parametrize("change", ["assign", "lora", "int8"])
def test_changed_layers_are_used(change):
    model = heads.classifier(encoder(), 2)
    classify = keras_bert.pipeline(model)
    before = classify("so good")["score"]
    layer = heads.find_encoder(model).get_layer("layer_0").intermediate
    if change == "assign":
        layer.kernel.assign(-layer.kernel)
    elif change == "lora":
        layer.enable_lora(2)
        layer.lora_kernel_a.assign(layer.lora_kernel_a + 1.0)
        layer.lora_kernel_b.assign(layer.lora_kernel_b + 1.0)
    else:
        layer.quantize("int8")
    again = classify("so good")["score"]
    assert again != before
    assert again == pytest.approx(keras_bert.pipeline(model)("so good")["score"], abs=1e-6)


def test_evaluate_and_errors(classify):
    labels = ["good", "good", "bad", "so-so", "good"]
    examples = keras_bert.Examples(TEXTS, labels=labels)
    metrics = classify.evaluate(examples)
    assert next(iter(metrics)) == "accuracy"
    assert metrics["report"]["good"]["support"] == 3
    mistakes = classify.errors(examples)
    assert len(mistakes) == round(5 * (1 - metrics["accuracy"])) > 0
    assert [m["score"] for m in mistakes] == sorted((m["score"] for m in mistakes), reverse=True)
    assert all(mistake["label"] != mistake["expected"] for mistake in mistakes)
    assert classify.errors(examples, n=1) == mistakes[:1]
    with pytest.raises(ValueError, match="has no labels"):
        classify.errors(keras_bert.Examples(TEXTS))


@pytest.mark.slow
def test_errors_of_the_other_tasks():
    scored = keras_bert.Examples(TEXTS, scores=[0, 9, 0, 0, 0])
    assert keras_bert.pipeline(heads.regressor(encoder())).errors(scored, 1)[0]["text"] == "bad"
    mistakes = keras_bert.pipeline(heads.multiple_choice(encoder())).errors(tiny.choices(), 99)
    assert all(mistake["choice"] != mistake["expected"] for mistake in mistakes)
    pairs = keras_bert.EmbeddingExamples([("a", "b")])
    with pytest.raises(ValueError, match="errors does not apply to the task"):
        keras_bert.pipeline(encoder(pooling="mean")).errors(pairs)


def test_save_and_predict(classify, tmp_path):
    classify.save(tmp_path / "model.keras")
    expected = classify(["so good"])
    assert keras_bert.pipeline(tmp_path / "model.keras")(["so good"]) == expected
    assert keras_bert.predict(classify.model, ["so good"]) == expected


@needs_tensorflow
@pytest.mark.slow
def test_export(classify, tmp_path):
    version = classify.export(tmp_path / "exported")
    assert (version / "saved_model.pb").is_file()


def test_an_empty_question_is_an_error():
    ask = keras_bert.pipeline(heads.span_selector(tiny.encoder()))
    with pytest.raises(ValueError, match="question 2 is empty"):
        ask(question=["is this", "  "], context="a good film")
    with pytest.raises(ValueError, match="the questions: question 1 is empty"):
        ask(Questions([""], ["a good film"], source="the questions"))


def test_errors_compare_answers_as_the_score_does():
    ask = keras_bert.pipeline(heads.span_selector(tiny.encoder(initializer_range=0.5)))
    context = "a film is so good!"
    answer = ask(question="is this", context=context)["answer"]
    shown = f"The {answer.upper()}"  # equal to the answer by SQuAD's rules
    assert shown != answer
    questions = Questions(["is this"], [context], [[(shown, 0)]])
    assert ask.evaluate(questions)["exact_match"] == 1 and ask.errors(questions) == []
    questions = Questions(["is this"], [context], [[("film good", 0)]])
    assert len(ask.errors(questions)) == 1


def test_errors_compare_entities_as_the_score_does(monkeypatch):
    tagger = keras_bert.pipeline(
        heads.tagger(tiny.encoder(), labels=["O", "B-x", "I-x", "B-y", "I-y"])
    )
    sentences = TaggedSentences(
        [["so", "good", "bad", "film"], ["a", "film"]],
        [["O", "I-x", "I-x", "O"], ["B-y", "O"]],
    )
    tags = [["O", "B-x", "I-x", "O"], ["B-x", "I-y"]]
    answers = [[(tag, 0.5) for tag in row] for row in tags]
    monkeypatch.setattr(tagger.predictor, "answers", lambda *args, **options: answers)
    assert tagger.evaluate(sentences)["f1"] == pytest.approx(2 / 5)  # one of 2 and 3 is right
    found = [(row["word"], row["expected"], row["tag"]) for row in tagger.errors(sentences)]
    assert found == [("a", "B-y", "B-x"), ("film", "O", "I-y")]


def test_notebooks_show_escaped_html(classify):
    assert "<td>bad &lt;b&gt;</td>" in classify("bad <b>")._repr_html_()
    answer = keras_bert.pipeline(heads.span_selector(encoder()))(("who", "so <b>good</b>"))
    assert "<b>" not in answer._repr_html_() and "<mark" in answer._repr_html_()
    labeled = keras_bert.Examples(["a", "b"], labels=["bad", "good"])
    assert "<th>support" in classify.evaluate(labeled)._repr_html_()
    ask = keras_bert.pipeline(heads.masked_lm(encoder()))
    assert ask("so [MASK] [MASK]")._repr_html_().count("<table>") == 2


def test_the_best_of_overlapping_answers_is_marked():
    spans = [
        {"answer": "four minutes", "start": 14, "end": 26, "score": 0.6},
        {"answer": "1.7 litres; four", "start": 2, "end": 18, "score": 0.3},
        {"answer": "1.7", "start": 2, "end": 5, "score": 0.1},
    ]
    page = results.Entities(spans, "a 1.7 litres; four minutes", None)._repr_html_()
    assert "four minutes <small> 0.60" in page and "1.7 <small> 0.10" in page
    assert page.count("<mark") == 2


CLASSIFIER = lambda: heads.classifier(encoder(), 2)  # noqa: E731
PAIRS = lambda: heads.classifier(encoder(), 2, pairs=True)  # noqa: E731
CHOICE = lambda: heads.multiple_choice(encoder())  # noqa: E731
READER = lambda: heads.span_selector(encoder())  # noqa: E731


def test_texts_of_a_failed_call_are_not_counted_in_the_next_one(monkeypatch):
    pipe = keras_bert.pipeline(CLASSIFIER())
    monkeypatch.setattr(pipe.predictor, "outputs", lambda *args, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pipe("good " * 50)
    monkeypatch.undo()
    data = keras_bert.Examples(["good " * 50, "a"], labels=["0", "1"])
    with pytest.warns(UserWarning, match="^1 of 2 texts were truncated"):
        pipe.errors(data)


@pytest.mark.parametrize("size", [0, -1, "2"])
def test_every_batch_size_is_checked(size):
    model = CLASSIFIER()
    pipe = keras_bert.pipeline(model)
    data = keras_bert.Examples(["a", "b"], labels=["0", "1"])
    for call in (
        lambda: pipe.evaluate(data, batch_size=size),
        lambda: pipe.answers(data, batch_size=size),
        lambda: next(pipe(iter("ab"), batch_size=size)),
        lambda: keras_bert.evaluate(model, data, batch_size=size),
        lambda: pipe.predictor.answers(data, batch_size=size),
    ):
        with pytest.raises(ValueError, match="batch_size must be an integer of at least 1"):
            call()


@pytest.mark.parametrize(
    ("build", "inputs", "options", "message"),
    [
        (CLASSIFIER, ["a", None], {}, "text 2 must be a string; received None"),
        (CLASSIFIER, None, {}, "must be a string or a list of strings; received None"),
        (CLASSIFIER, "a", {"grouped": True}, "is not an option of this task; the options are top"),
        (CLASSIFIER, "a", {"context": "b"}, "context is not an input of this task"),
        (CLASSIFIER, "a", {"text_pair": "b"}, "task='classification', pairs=True"),
        (CLASSIFIER, "a", {"batch_size": -1}, "batch_size must be an integer of at least 1"),
        (CLASSIFIER, "a", {"top_k": 0}, "top_k must be an integer of at least 1"),
        (CLASSIFIER, iter("ab"), {"text_pair": ["a"]}, "text_pair cannot be combined with a str_"),
        (PAIRS, ["so good", "bad"], {}, r"input 1 must be \(text, text_pair\)"),
        (PAIRS, ["a", "b"], {"text_pair": ["c"]}, "text_pair must have an item for each of the 2"),
        (PAIRS, [("a", None)], {}, "input 1, text 2 must be a string; received None"),
        (CHOICE, "this film is", {}, r"input 1 must be \(text, choices\)"),
        (CHOICE, ["a", "b"], {"choices": [["x", "y"], ["z"]]}, "input 2: the choices must be a li"),
        (CHOICE, "a", {"choices": iter(["x", "y"])}, "input 1: the choices must be a list"),
        (READER, "who", {}, r"input 1 must be \(question, context\)"),
        (READER, None, {"question": ["a", "b"], "context": ["c"]}, "for each of the 2 texts"),
    ],
)
def test_wrong_inputs_and_options_are_named(build, inputs, options, message):
    with pytest.raises(ValueError, match=message):
        keras_bert.pipeline(build())(inputs, **options)


def without_preprocessor():
    base = encoder()
    base.preprocessor = None
    return heads.classifier(base, 2)


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (lambda: heads.features(tiny.encoder(), (-2, -1)), {}, "must have a head"),
        (without_preprocessor, {}, "has no preprocessor"),
        (CLASSIFIER, {"batch_size": 0}, "batch_size must be an integer of at least 1"),
        (CLASSIFIER, {"pooling": "mean"}, "pooling is only for embeddings"),
        (CLASSIFIER, {"task": "masked_tokens"}, "has the task classification; received 'masked"),
    ],
)
def test_wrong_models_and_arguments_are_named(build, options, message):
    with pytest.raises(ValueError, match=message):
        keras_bert.pipeline(build(), **options)


def test_outputs_of_nan_are_an_error():
    model = heads.classifier(encoder(), labels=["bad", "good"])
    classify = keras_bert.pipeline(model)
    layer = model.get_layer("logits")
    layer.bias.assign(np.full(2, np.nan))
    with pytest.raises(ValueError, match="its weight .*bias is damaged"):
        classify(TEXTS)


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="float16 for JAX and torch")
def test_an_overflow_in_float16_is_an_error():
    model = heads.classifier(encoder(), labels=["bad", "good"])
    model.set_weights([300 * weight for weight in model.get_weights()])
    assert keras_bert.pipeline(model)("so good")["label"] in ("bad", "good")
    with pytest.raises(ValueError, match="in float16.*precision='float32'"):
        keras_bert.pipeline(model, precision="float16")("so good")


def test_a_pipeline_can_be_pickled(classify):
    copy = pickle.loads(pickle.dumps(classify))
    expected = classify(TEXTS)
    for answer, other in zip(copy(TEXTS), expected, strict=True):
        assert answer["label"] == other["label"]
        assert answer["score"] == pytest.approx(other["score"], abs=1e-6)
