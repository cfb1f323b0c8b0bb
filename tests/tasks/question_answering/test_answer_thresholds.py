"""The best threshold of no answer, held to the rule of SQuAD's official script."""

import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.tasks.question_answering.task import QuestionAnswering
from tests import tiny

question_answering = QuestionAnswering()


@pytest.fixture(scope="module")
def ask():
    model = heads.span_selector(tiny.encoder(initializer_range=0.5), no_answer=True)
    return keras_bert.pipeline(model)


def test_best_threshold_gives_the_best_scores(ask):
    questions = tiny.questions()
    found = ask.evaluate(questions)
    for name in ("f1", "exact_match"):
        again = ask.evaluate(questions, null_threshold=found[f"best_{name}_threshold"])
        assert again[name] == pytest.approx(found[f"best_{name}"])
        others = [ask.evaluate(questions, null_threshold=t)[name] for t in (-9, -1, 0, 1, 9)]
        assert found[f"best_{name}"] >= max(others) - 1e-9


def official(differences, spans, has_answer, scores):
    """The rule of SQuAD's script: begin with no answers, and add them by rising difference."""
    current = best = sum(not answered for answered in has_answer)
    threshold = 0.0
    for row in np.argsort(differences):
        current += scores[row] if has_answer[row] else -bool(spans[row])
        if current > best:
            best, threshold = current, differences[row]
    return best / len(spans), threshold


@pytest.mark.parametrize("shift", [3.0, 0.0, -3.0])
def test_thresholds_of_the_official_script(ask, shift):
    rng = np.random.default_rng(1)
    words = ["gold", "silver", "bronze"]
    has_answer = rng.random(30) < 0.6
    right = rng.choice(words, 30)
    spans = rng.choice(words, 30)
    differences = rng.normal(size=30) + np.where(has_answer, -0.5, 0.5) + shift
    context = " ".join(words)
    accepted = [
        [(word, context.index(word))] if answered else []
        for word, answered in zip(right.tolist(), has_answer, strict=True)
    ]
    data = keras_bert.Questions(["which?"] * 30, [context] * 30, accepted)
    answers = [
        {"text": "", "span_text": span, "null_difference": difference}
        for span, difference in zip(spans.tolist(), differences.tolist(), strict=True)
    ]
    found = question_answering.score(ask.output, data, answers)
    best, threshold = official(differences, spans, has_answer, (spans == right).astype(float))
    assert found["best_exact_match"] == found["best_f1"] == pytest.approx(best)
    assert found["best_f1_threshold"] == threshold


def test_a_threshold_that_answers_nothing(ask):
    data = keras_bert.Questions(["which?"] * 2, ["gold"] * 2, [[], []])
    answers = [{"text": "", "span_text": "gold", "null_difference": value} for value in (-3.0, 1.0)]
    found = question_answering.score(ask.output, data, answers)
    assert found["best_f1"] == 1 and found["best_f1_threshold"] < -3


def test_results_have_no_further_keys(ask):
    answer = ask(question="is this bad", context="a film so bad is this")
    assert set(answer) == {"answer", "start", "end", "score"}
    assert "best_f1" not in ask.evaluate(
        keras_bert.Questions(["is this"], ["a good film"], [[("good", 2)]])
    )
