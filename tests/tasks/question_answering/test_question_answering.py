"""Tests of question answering: windows, targets, spans, and the official scores."""

import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.tasks.question_answering.data import Questions
from keras_bert.tasks.question_answering.task import QuestionAnswering
from tests import tiny

question_answering = QuestionAnswering()

PAD, UNK, CLS, SEP, GOOD, BAD, FILM, THIS, IS = 0, 1, 2, 3, 5, 6, 7, 12, 13


@pytest.fixture(scope="module")
def model():
    """A model that always answers."""
    return heads.span_selector(tiny.encoder())


@pytest.fixture(scope="module")
def model_with_no_answer(model):
    """A model that can give no answer."""
    return heads.span_selector(heads.find_encoder(model), no_answer=True)


@pytest.fixture(scope="module")
def korean_model():
    """A model that keeps Hangul syllables."""
    encoder = tiny.encoder()
    encoder.preprocessor = keras_bert.Preprocessor(tiny.PIECES, strip_accents=False)
    return heads.span_selector(encoder)


def one(context, *answers, question="is this good"):
    return Questions([question], [context], [list(answers)])


def targets(encoded):
    """Return the positions of the first and last token of the answer in each window."""
    _, target, _ = encoded.batch(np.arange(len(encoded)), encoded.max_length)
    return list(zip(target["start_logits"].tolist(), target["end_logits"].tolist(), strict=True))


def logits_at_targets(encoded):
    """Return the outputs of a perfect model."""
    eye = 9 * np.eye(encoded.max_length, dtype=np.float32)
    return [{"start_logits": eye[a], "end_logits": eye[b]} for a, b in targets(encoded)]


def logits(encoded, *entries):
    """Return outputs of 0, except for entries (window, name, position, value)."""
    outputs = [
        {name: np.zeros(length, np.float32) for name in ("start_logits", "end_logits")}
        for length in encoded.lengths
    ]
    for window, name, position, value in entries:
        outputs[window][f"{name}_logits"][position] = value
    return outputs


def test_build_allows_no_answer_if_a_training_question_has_none():
    encoder = tiny.encoder()
    answered = one("good", ("good", 0))
    some = Questions(["is"] * 2, ["good"] * 2, [[("good", 0)], []])
    for examples, expected in ((answered, False), (some, True), (one("good"), True)):
        assert heads.find_output(question_answering.build(encoder, examples)).no_answer is expected


@pytest.mark.slow
def test_loss_is_the_mean_of_start_and_end(model):
    model = question_answering.build(heads.find_encoder(model), one("good", ("good", 0)))
    assert heads.find_output(model).task == "question_answering"
    encoded = tiny.encode(model, one("this film is so good", ("film is", 5)), 16)
    inputs, target, weights = encoded.batch([0], 16)
    model.compile("sgd", **question_answering.compile_options(heads.find_output(model), None))
    loss = model.evaluate(inputs, target, sample_weight=weights, verbose=0, return_dict=True)
    outputs = model.predict_on_batch(inputs)
    expected = [
        np.log(np.exp(outputs[name][0]).sum()) - outputs[name][0, target[name][0]]
        for name in outputs
    ]
    np.testing.assert_allclose(loss["loss"], np.mean(expected), rtol=1e-5)


def test_window_is_question_and_context(model):
    examples = one("This film!", ("film", 5), question="is")
    inputs, target, weights = tiny.encode(model, examples, 32).batch([0], 9)
    expected = {
        "input_word_ids": [[CLS, IS, SEP, THIS, FILM, 11, SEP, PAD, PAD]],
        "input_mask": [[1, 1, 1, 1, 1, 1, 1, 0, 0]],
        "input_type_ids": [[0, 0, 0, 1, 1, 1, 1, 0, 0]],
    }
    assert {name: values.tolist() for name, values in inputs.items()} == expected
    assert {values.dtype for values in inputs.values()} == {np.dtype("int32")}
    assert target == {"start_logits": [4], "end_logits": [4]}
    assert weights == {"start_logits": [1.0], "end_logits": [1.0]}
    assert target["start_logits"].dtype == np.int32
    assert weights["start_logits"].dtype == np.float32


def test_windows_match_run_squad(model):
    """Compare with the loop of run_squad.py."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        length, stride = int(rng.integers(8, 33)), int(rng.integers(1, 20))
        texts = [" ".join(rng.choice(["good", "bad", "film"], n)) for n in rng.integers(0, 90, 4)]
        asked = [" ".join(["is"] * n) for n in rng.integers(0, 40, 4)]
        encoded = tiny.encode(model, Questions(asked, texts), length, stride=stride)
        assert len(encoded) == len(encoded.lengths) == encoded.window_splits[-1]
        for index, (question, text) in enumerate(zip(asked, texts, strict=True)):
            kept = min(len(question.split()), (length - 3) // 2)
            words = len(text.split())
            capacity = length - 3 - kept
            step = min(stride, capacity // 2)
            expected, start = [], 0
            while True:
                expected.append((start, min(capacity, words - start)))
                if start + capacity >= words:
                    break
                start += step
            rows = range(*encoded.window_splits[index : index + 2])
            assert [(encoded.part_start[row], encoded.part_size[row]) for row in rows] == expected
            assert {encoded.question[row] for row in rows} == {index}


def test_question_is_truncated_to_its_maximum_and_to_half_of_a_window(model):
    examples = one("bad " * 20, question="is " * 100)
    for length, most, kept in ((200, 64, 64), (200, 7, 7), (32, 64, 14), (5, 64, 1)):
        encoded = tiny.encode(model, examples, length, max_question_length=most)
        ids = encoded.batch([0], length)[0]["input_word_ids"][0].tolist()
        assert ids[: kept + 3] == [CLS] + [IS] * kept + [SEP, BAD]
        assert encoded.cut_questions == 1
    examples = Questions(["so so so", "so", ""], ["bad", " ", "bad"])
    encoded = tiny.encode(model, examples, 16)
    assert (encoded.cut_questions, encoded.without_tokens) == (0, 2)


def test_empty_questions_and_contexts_have_a_window(model):
    encoded = tiny.encode(model, Questions(["", "is", ""], ["good", "", " "]), 16)
    inputs, target, weights = encoded.batch([0, 1, 2], 5)
    assert inputs["input_word_ids"].tolist() == [
        [CLS, SEP, GOOD, SEP, PAD],
        [CLS, IS, SEP, SEP, PAD],
        [CLS, SEP, SEP, PAD, PAD],
    ]
    assert inputs["input_type_ids"].tolist() == [[0, 0, 1, 1, 0], [0, 0, 0, 1, 0], [0, 0, 1, 0, 0]]
    assert (target, weights) == (None, None)


def test_each_distinct_context_is_tokenized_once(model, monkeypatch):
    tokenizer = heads.find_encoder(model).preprocessor.python_tokenizer
    calls = []
    tokenize = tokenizer.tokenize_with_offsets
    monkeypatch.setattr(
        tokenizer, "tokenize_with_offsets", lambda text: calls.append(text) or tokenize(text)
    )
    texts = ["good film", "bad film", "good film", "so bad", "bad film"]
    encoded = tiny.encode(model, Questions(["is"] * 5, texts), 16)
    assert calls == ["good film", "bad film", "so bad"]
    assert encoded.context.tolist() == [0, 1, 0, 2, 1]


@pytest.mark.parametrize(
    "before", ["", "😀 ", "go\u0301od\u0301 ", "\u200b", "a\x00b ", "\ud83d x ", "ﬁ\u2028"]
)
def test_answer_positions_count_characters(model, before):
    context = f"{before}good film 😀 bad"
    for answer in ("good", "film", "good film", "bad", "film 😀 bad"):
        examples = one(context, (answer, context.index(answer)))
        encoded = tiny.encode(model, examples, 32)
        [(start, end)] = targets(encoded)
        ids = encoded.batch([0], 32)[0]["input_word_ids"][0, start : end + 1].tolist()
        words = {"good": GOOD, "film": FILM, "bad": BAD, "😀": UNK}
        assert ids == [words[word] for word in answer.split()]
        [found] = KerasPredictor(model).decode(examples, encoded, logits_at_targets(encoded))
        place = context.index(answer)
        assert (found["text"], found["start"], found["end"]) == (answer, place, place + len(answer))


def test_korean_answers(korean_model):
    context = "so 한국 film 한국어 good"
    examples = Questions(
        ["is"] * 3, [context] * 3, [[("한국", 3)], [("한국어", 11)], [("film 한국", 6)]]
    )
    encoded = tiny.encode(korean_model, examples, 32)
    found = KerasPredictor(korean_model).decode(examples, encoded, logits_at_targets(encoded))
    # 한국어 is a single [UNK], so an answer that ends inside of it takes the whole word.
    assert [answer["text"] for answer in found] == ["한국", "한국어", "film 한국어"]
    assert [answer["start"] for answer in found] == [3, 11, 6]
    assert targets(encoded)[0] == (4, 5)  # 한 ##국


def test_tokens_that_overlap_the_answer_are_its_span(model):
    # films: film ##s; goodly: good ##ly; the accent is a part of good
    context = "films goodly go\u0301od"
    spans = {"film": (3, 3), "s": (4, 4), "ilms": (3, 4), "s g": (4, 5), "ly": (6, 6), " ": None}
    spans["go\u0301od"] = (7, 7)
    for answer, expected in spans.items():
        examples = one(context, (answer, context.index(answer)), question="is")
        encoded = tiny.encode(model, examples, 16)
        assert targets(encoded) == [expected or (0, 0)]
        weight = encoded.batch([0], 16)[2]["start_logits"][0]
        assert weight == (0 if expected is None else 1)


def test_target_is_cls_in_windows_that_do_not_contain_the_answer(model):
    words = ["good"] * 10 + ["bad", "film"] + ["good"] * 8
    context = " ".join(words)
    examples = one(context, ("bad film", context.index("bad")), question="is")
    encoded = tiny.encode(model, examples, 14)  # windows of ten context tokens, a stride of five
    assert encoded.part_start.tolist() == [0, 5, 10]
    assert targets(encoded) == [(0, 0), (8, 9), (3, 4)]
    at_edge = one(context, ("good bad", context.index("bad") - 5), question="is")
    assert targets(tiny.encode(model, at_edge, 14)) == [(0, 0), (7, 8), (0, 0)]
    weights = encoded.batch([0, 1, 2], 14)[2]
    assert weights["end_logits"].tolist() == [1, 1, 1]  # as in run_squad.py


def test_first_answer_in_the_context_is_the_target(model):
    examples = Questions(
        ["is"] * 3, ["good film"] * 3, [[("bad", 0), ("film", 5), ("good", 0)], [("bad", 0)], []]
    )
    encoded = tiny.encode(model, examples, 16)
    assert targets(encoded) == [(4, 4), (0, 0), (0, 0)]
    weights = encoded.batch([0, 1, 2], 16)[2]
    assert {name: values.tolist() for name, values in weights.items()} == {
        "start_logits": [1, 0, 1],
        "end_logits": [1, 0, 1],
    }


def test_decode_inverts_encode(model):
    rng = np.random.default_rng(2)
    words = ["good", "films", "goodly", "bad", "!", "é😀", "한국어", "this", "A"]
    for length in (16, 32):
        rows = []
        for _ in range(60):
            chosen = rng.choice(words, rng.integers(1, 50))
            gaps = rng.choice([" ", "  ", "\n", "\u00a0 "], len(chosen))
            first = int(rng.integers(len(chosen)))
            # films and goodly have two tokens: at most four, less than half of a window
            last = min(len(chosen), first + int(rng.integers(1, 3)))
            spread = [word + gap for word, gap in zip(chosen, gaps, strict=True)]
            start = len("".join(spread[:first]))
            context = "".join(spread)
            answer = "".join(spread[first:last])[: -len(gaps[last - 1])]
            rows.append(("is " * int(rng.integers(0, 9)), context, [(answer, start)]))
        examples = Questions(*zip(*rows, strict=True))
        encoded = tiny.encode(model, examples, length)
        found = KerasPredictor(model).decode(examples, encoded, logits_at_targets(encoded))
        for row, answer in zip(rows, found, strict=True):
            text, start = row[2][0]
            assert (answer["text"], answer["start"]) == (text, start)
            assert answer["text"] == row[1][answer["start"] : answer["end"]]
            assert answer["score"] > 0.9


def test_span_counts_in_the_window_with_the_most_context(model):
    # Windows of ten context tokens, a stride of five: token 6 is in both windows.
    context = " ".join(["good"] * 6 + ["bad"] + ["good"] * 8)
    examples = one(context, question="is")
    encoded = tiny.encode(model, examples, 14)
    assert encoded.part_start.tolist() == [0, 5]
    position = {0: 3 + 6, 1: 3 + 1}
    other = 3 + 9  # the last token of window 1
    for window, found in ((0, "bad"), (1, "good")):
        outputs = logits(
            encoded,
            (window, "start", position[window], 5), (window, "end", position[window], 5),
            (1, "start", other, 4), (1, "end", other, 4),
        )  # fmt: skip
        [answer] = KerasPredictor(model).decode(examples, encoded, outputs, max_answer_length=3)
        assert answer["text"] == found


def test_null_threshold(model, model_with_no_answer):
    examples = one("good film", question="is")
    encoded = tiny.encode(model, examples, 16)
    outputs = logits(
        encoded, (0, "start", 0, 4), (0, "end", 0, 3), (0, "start", 3, 2), (0, "end", 3, 3)
    )
    for threshold, text in ((0.0, ""), (1.9, ""), (2.0, "good"), (5.0, "good")):
        [answer] = KerasPredictor(model_with_no_answer).decode(
            examples, encoded, outputs, null_threshold=threshold
        )
        assert answer["text"] == text
    assert KerasPredictor(model).decode(examples, encoded, outputs)[0]["text"] == "good"
    outputs[0]["start_logits"][0] = 2  # the same logit as the span
    assert (
        KerasPredictor(model_with_no_answer).decode(examples, encoded, outputs)[0]["text"] == "good"
    )
    [answer] = KerasPredictor(model_with_no_answer).decode(
        examples, encoded, outputs, null_threshold=-0.1
    )
    assert (answer["text"], answer["start"], answer["end"]) == ("", 0, 0)


def test_no_answer_needs_all_windows(model_with_no_answer):
    examples = one("good " * 15 + "film", question="is")
    encoded = tiny.encode(model_with_no_answer, examples, 14)
    assert len(encoded) == 3
    sure = [(window, name, 0, 5) for window in (0, 2) for name in ("start", "end")]
    span = [(1, "start", 7, 2), (1, "end", 7, 2)]
    [answer] = KerasPredictor(model_with_no_answer).decode(
        examples, encoded, logits(encoded, *sure, *span)
    )
    assert answer["text"] == "good"
    outputs = logits(encoded, *sure, *span, (1, "end", 0, 5))
    assert KerasPredictor(model_with_no_answer).decode(examples, encoded, outputs)[0]["text"] == ""


def test_context_without_tokens_has_no_answer(model, model_with_no_answer):
    examples = Questions(["is", "is"], ["", " \n"])
    encoded = tiny.encode(model, examples, 16)
    nothing = {"text": "", "start": 0, "end": 0}
    for each, score in ((model, 0.0), (model_with_no_answer, 1.0)):
        answers = KerasPredictor(each).decode(examples, encoded, logits(encoded))
        found = [{key: answer[key] for key in (*nothing, "score")} for answer in answers]
        assert found == [{**nothing, "score": score}] * 2


def test_score_is_a_probability_over_all_spans(model, model_with_no_answer):
    examples = one("good film", question="is")
    encoded = tiny.encode(model, examples, 16)
    outputs = logits(encoded, (0, "start", 3, 2), (0, "end", 4, 1), (0, "end", 0, -1))
    # good 2, film 1, good film 3; no answer -1
    spans = np.exp([3, 2, 1])
    no_answer = np.exp(-1)
    for each, threshold, expected in (
        (model, 0.0, spans[0] / spans.sum()),
        (model_with_no_answer, 0.0, spans[0] / (spans.sum() + no_answer)),
        (model_with_no_answer, -9.0, no_answer / (spans.sum() + no_answer)),
    ):
        [answer] = KerasPredictor(each).decode(examples, encoded, outputs, null_threshold=threshold)
        assert answer["score"] == pytest.approx(expected)


@pytest.mark.parametrize("no_answer", [False, True])
def test_score_does_not_depend_on_the_number_of_windows(model, model_with_no_answer, no_answer):
    """If the logits depend only on the token, the score is the same for all window lengths."""
    words = ["good", "bad", "film", "so", "this"] * 8
    examples = one(" ".join(words), question="is")
    rng = np.random.default_rng(5)
    of_token = {name: rng.normal(0, 3, len(words)) for name in ("start_logits", "end_logits")}
    scores = []
    for length in (14, 20, 32, 64):
        encoded = tiny.encode(model, examples, length)
        outputs = []
        for first, size in zip(encoded.part_start, encoded.part_size, strict=True):
            outputs.append({name: np.zeros(length) for name in of_token})
            for name, values in of_token.items():
                outputs[-1][name][3 : 3 + size] = values[first : first + size]
        each = model_with_no_answer if no_answer else model
        # Every span of at most 4 tokens is in some window.
        [answer] = KerasPredictor(each).decode(examples, encoded, outputs, max_answer_length=4)
        scores.append((len(encoded), answer["text"], answer["score"]))
    assert [windows for windows, _, _ in scores] == [7, 4, 2, 1]
    assert len({text for _, text, _ in scores}) == 1
    np.testing.assert_allclose([score for _, _, score in scores], scores[-1][2], rtol=1e-9)


def test_best_span_matches_exhaustive_search(model):
    rng = np.random.default_rng(3)
    texts = [
        " ".join(rng.choice(["good", "bad", "film", "so"], n)) for n in rng.integers(1, 11, 40)
    ]
    examples = Questions(["is"] * 40, texts)
    encoded = tiny.encode(model, examples, 14)
    assert len(encoded) == 40
    outputs = [
        {name: rng.normal(size=14).astype(np.float32) for name in ("start_logits", "end_logits")}
        for _ in texts
    ]
    answers = KerasPredictor(model).decode(examples, encoded, outputs, max_answer_length=3)
    for text, output, answer in zip(texts, outputs, answers, strict=True):
        words = text.split()
        starts, ends = output["start_logits"][3:], output["end_logits"][3:]
        _, first, last = max(
            (starts[i] + ends[j], i, j)
            for i in range(len(words))
            for j in range(i, min(i + 3, len(words)))
        )
        assert answer["text"] == " ".join(words[first : last + 1])
        assert answer["start"] == len(" ".join([*words[:first], ""]))


def scored(given, *accepted, characters=False):
    context = " ".join(accepted)
    answers = [(text, context.index(text)) for text in accepted]
    examples = Questions(["is"], [context], [answers], characters=characters)
    metrics = question_answering.score(None, examples, [{"text": given}])
    return tuple(metrics.values())


@pytest.mark.parametrize(
    ("given", "accepted", "f1", "exact"),
    [
        ("U.S.A.", ["usa"], 1, 1),
        ("well-known", ["wellknown"], 1, 1),  # punctuation is deleted
        ("an apple a day", ["apple day"], 1, 1),
        ("theatre", ["atre"], 0, 0),  # only whole words are articles
        ("Broncos", ["Denver Broncos"], 2 / 3, 0),  # precision 1, recall 1/2
        ("in 1990 or 1991", ["1990"], 0.4, 0),  # precision 1/4, recall 1
        ("gold gold", ["gold"], 2 / 3, 0),  # repeated words count repeatedly
        ("gold", ["silver", "gold medal", "golden"], 2 / 3, 0),  # the best of the accepted
        ("the", ["gold"], 0, 0),
        ("", ["the"], 1, 1),  # "the" becomes empty
        ("", ["the", "gold"], 0, 0),  # an answer that becomes empty is ignored
        ("“gold”", ["gold"], 0, 0),  # only ASCII punctuation is deleted
        ("Gold\u00a0medal", ["gold medal"], 1, 1),
    ],
)
def test_score_matches_squad(given, accepted, f1, exact):
    assert scored(given, *accepted) == pytest.approx((f1, exact))


def test_score_of_questions_without_an_answer():
    examples = Questions(
        ["is"] * 5, ["gold medal"] * 5, [[("gold medal", 0)], [("gold", 0)], [], [], []]
    )
    answers = [{"text": text} for text in ("gold", "", "", "gold", "the")]
    assert question_answering.score(None, examples, answers) == {
        "f1": pytest.approx((2 / 3 + 0 + 1 + 0 + 1) / 5),
        "exact_match": pytest.approx(2 / 5),
        "has_answer_f1": pytest.approx(1 / 3),
        "no_answer_accuracy": pytest.approx(2 / 3),
    }
    none = Questions(["is"], ["gold"], [[]])
    scores = question_answering.score(None, none, [{"text": ""}])
    assert scores == dict.fromkeys(("f1", "exact_match", "no_answer_accuracy"), 1)
    assert question_answering.metric_names(None, none) == tuple(scores)


def test_answers_longer_than_a_window_have_weight_0(model):
    context = "good film " * 20
    examples = Questions(
        ["is this"] * 2, [context] * 2, [[(context[:60], 0)], [("good", 100)]]
    )  # of 12 words, and of one
    encoded = tiny.encode(model, examples, 14)
    assert encoded.counts()["cut_answers"] == encoded.cut_answers == 1
    _, _, weights = encoded.batch(np.arange(len(encoded)), 14)
    # All windows of question 0 have weight 0, all windows of question 1 have weight 1.
    for weight in weights.values() if isinstance(weights, dict) else [weights]:
        assert weight.tolist() == [float(number) for number in encoded.question]


@pytest.mark.parametrize(
    ("given", "accepted", "f1", "exact"),
    [
        ("서울에서", ["서울"], 2 / 3, 0),  # 2 of 4 characters, all 2 found
        ("서울 시", ["서울시"], 1, 0),  # the same characters, other words
        ("《토지》", ["토지"], 1, 1),
        ("1945년(광복)", ["1945년 광복"], 1, 1),  # a bracket becomes a space
        ("3.1운동", ["31운동"], 1, 1),  # a period is deleted
        ("the BERT", ["bert"], 8 / 11, 0),  # articles count: 4 of 7, 4 of 4
        ("산부", ["부산"], 1, 0),  # characters in any order
    ],
)
def test_score_of_characters_matches_korquad(given, accepted, f1, exact):
    assert scored(given, *accepted, characters=True) == pytest.approx((f1, exact))


@pytest.mark.parametrize("option", ["max_length", "stride", "max_question_length"])
def test_windows_need_tokens(model, option):
    with pytest.raises(ValueError, match=f"{option} must be an integer of at least"):
        tiny.encode(model, one("good film"), **{"max_length": 16, option: 0})


def test_predictions_need_unique_ids():
    answers = [{"text": "a"}, {"text": "b"}]
    assert question_answering.predictions(Questions(["is"] * 2, ["a"] * 2), answers) == {
        "1": "a", "2": "b",
    }  # fmt: skip
    examples = Questions(["is"] * 2, ["a"] * 2, ids=["x", "x"], source="the file")
    with pytest.raises(ValueError, match="the file: ids must be unique"):
        question_answering.predictions(examples, answers)
