"""Question answering: the answer is a span of the context, as in SQuAD and KorQuAD 1.0.

Questions and contexts are cut into windows. The answer is the best span of all windows.

Source: sections 4.2 and 4.3 of the BERT paper; google-research/bert `run_squad.py`.
"""

import collections
import re
import string

import keras
import numpy as np

from keras_bert.data.batching import REDUCTION
from keras_bert.model_structure import find_encoder, find_output
from keras_bert.tasks.question_answering import windows as question_windows
from keras_bert.tasks.question_answering.head import span_selector
from keras_bert.tasks.question_answering.windows import MIN_LENGTH, OUTPUTS, EncodedQuestions

HEADS = ("question_answering",)
MAX_LENGTH = 384

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# KorQuAD replaces quotation marks and brackets by spaces, and deletes other punctuation.
_KOREAN_PUNCTUATION = str.maketrans(
    {**dict.fromkeys(string.punctuation), **dict.fromkeys("'\"()<>《》〈〉‘’", " ")}
)


def build(encoder, train):
    """Build a model of `heads.span_selector` for `Questions` with answers.

    If some questions have no answer, the model can predict that there is no answer.
    """
    return span_selector(encoder, no_answer=not all(_known_answers(train)))


def _known_answers(examples):
    if examples.answers is None:
        raise ValueError(f"found no answers in {examples.source}; give questions with `answers`")
    return examples.answers


def compile_options(model):
    """Return loss (the mean of start and end) and metrics as arguments of `keras.Model.compile`."""
    return {
        "loss": {
            name: keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=REDUCTION)
            for name in OUTPUTS
        },
        "loss_weights": dict.fromkeys(OUTPUTS, 0.5),
        "weighted_metrics": {},
    }


def encode(
    model,
    examples,
    max_length,
    *,
    stride=question_windows.STRIDE,
    max_question_length=question_windows.MAX_QUESTION_LENGTH,
):
    """Cut questions and contexts into windows of at most `max_length` tokens: `EncodedQuestions`.

    Each distinct context is tokenized once. `stride` and `max_question_length` are as in
    `EncodedQuestions`.
    Source: `convert_examples_to_features` in google-research/bert `run_squad.py`.
    """
    for name, value, minimum in (
        ("max_length", max_length, MIN_LENGTH),
        ("stride", stride, 1),
        ("max_question_length", max_question_length, 1),
    ):
        if value < minimum:
            raise ValueError(f"{name} must be at least {minimum}; received {value}")
    preprocessor = find_encoder(model).preprocessor
    if preprocessor is None:
        raise ValueError(
            f"the encoder of {model.name!r} has no preprocessor; set its `preprocessor`"
        )
    return EncodedQuestions(
        examples,
        preprocessor.python_tokenizer,
        max_length,
        stride,
        max_question_length,
    )


def decode(
    model, examples, encoded, outputs, *, max_answer_length=30, null_threshold=0.0, top_k=None
):
    """Return a dict per question, see `question_windows.decode`.

    `outputs` has a dict of `start_logits` and `end_logits`, (seq,), per window.
    """
    options = {"max_answer_length": max_answer_length, "null_threshold": null_threshold}
    no_answer = find_output(model).no_answer
    return question_windows.decode(examples, encoded, outputs, no_answer, top_k=top_k, **options)


def score(output, examples, answers, *, characters=None):
    """Score answers as SQuAD's `evaluate-v2.0.py` does: `f1`, the main metric, and `exact_match`.

    If some questions have no answer: also `has_answer_f1` and `no_answer_accuracy`, and of models
    with `no_answer` the best scores of all values of `null_threshold` with these values: `best_f1`,
    `best_f1_threshold`, `best_exact_match` and `best_exact_match_threshold`. `characters`
    selects KorQuAD's rules, F1 over characters with articles; by default `examples.characters`.
    `evaluate-v1.1.py` gives the same results for answers that hold a letter or a digit.
    """
    accepted = _known_answers(examples)
    _check_number(examples, answers)
    if not len(examples):
        raise ValueError(f"found no questions in {examples.source}; give at least one")
    units = _units(examples, characters)
    f1, exact = _scores(units, [answer["text"] for answer in answers], accepted)
    metrics = {"f1": f1.mean(), "exact_match": exact.mean()}
    has_answer = np.array([bool(right) for right in accepted])
    if not has_answer.all():
        if has_answer.any():
            metrics["has_answer_f1"] = f1[has_answer].mean()
        metrics["no_answer_accuracy"] = exact[~has_answer].mean()
        if output is not None and output.no_answer:
            metrics |= _best_thresholds(units, answers, accepted)
    return {name: float(value) for name, value in metrics.items()}


def are_right(examples, answers):
    """Return True for each answer that `score` counts as an exact match, bool (questions,)."""
    texts = [answer["text"] for answer in answers]
    _, exact = _scores(_units(examples), texts, _known_answers(examples))
    return exact == 1


def _units(examples, characters=None):
    """Return the function that normalizes a text and splits it, see `characters` of `score`."""
    characters = examples.characters if characters is None else characters
    return _characters if characters else _words


def _scores(units, texts, accepted):
    """Return two arrays of floats (questions,): the F1 and the exact match of each text."""
    f1 = np.zeros(len(texts))
    exact = np.zeros(len(texts))
    for index, (text, accepted_answers) in enumerate(zip(texts, accepted, strict=True)):
        normalized, parts = units(text)
        # As in the official script, an answer that normalizes to "", such as "the", is no answer.
        known = [units(accepted_text) for accepted_text, _ in accepted_answers]
        known = [(known_text, known_parts) for known_text, known_parts in known if known_text]
        known = known or [("", [])]
        f1[index] = max(_f1(parts, known_parts) for _, known_parts in known)
        exact[index] = max(normalized == known_text for known_text, _ in known)
    return f1, exact


def _best_thresholds(units, answers, accepted):
    """Return the best F1 and exact match over all thresholds of no answer, and their thresholds.

    Source: `find_all_best_thresh` in SQuAD's `evaluate-v2.0.py`.
    """
    differences = np.array([answer["null_difference"] for answer in answers])
    of_spans = _scores(units, [answer["span_text"] for answer in answers], accepted)
    of_none = _scores(units, [""] * len(answers), accepted)
    metrics: dict[str, float] = {}
    for name, of_span, without in zip(("f1", "exact_match"), of_spans, of_none, strict=True):
        best, threshold = _best_threshold(differences, of_span, without)
        metrics |= {f"best_{name}": best, f"best_{name}_threshold": threshold}
    return metrics


def _best_threshold(differences, of_span, without):
    """Return the best mean score over all thresholds, and its threshold.

    A question is answered with its span if its difference is at most the threshold. `of_span` and
    `without` are its scores with the span and without an answer. All are floats (questions,).
    """
    order = np.argsort(differences, kind="stable")
    ranked = differences[order]
    gains = np.cumsum((of_span - without)[order])
    # Questions of equal differences are answered together.
    is_last = np.append(ranked[1:] != ranked[:-1], True)
    answers_nothing = 0.0 if ranked[0] > 0 else ranked[0] - 1
    thresholds = np.append(answers_nothing, ranked[is_last])
    totals = without.sum() + np.append(0.0, gains[is_last])
    best = totals.argmax()
    return totals[best] / len(ranked), thresholds[best]


def metric_names(output, examples):
    """Return the names of the metrics of `score`, the main one first, without thresholds."""
    has_answer = [bool(right) for right in _known_answers(examples)]
    names = ["f1", "exact_match"]
    if not all(has_answer):
        if any(has_answer):
            names.append("has_answer_f1")
        names.append("no_answer_accuracy")
        if output is not None and output.no_answer:
            names += ["best_f1", "best_exact_match"]
    return tuple(names)


def _words(text):
    """Return a text as SQuAD compares it, and its words."""
    words = _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()
    return " ".join(words), words


def _characters(text):
    """Return a text as KorQuAD compares it, and its characters."""
    words = text.translate(_KOREAN_PUNCTUATION).lower().split()
    return " ".join(words), list("".join(words))


def _f1(given, wanted):
    """Return the F1 score of two lists of words or characters, ignoring their order."""
    if not given or not wanted:
        return float(given == wanted)
    common = (collections.Counter(given) & collections.Counter(wanted)).total()
    return 2 * common / (len(given) + len(wanted))


def _check_number(examples, answers):
    if len(answers) != len(examples):
        raise ValueError(
            f"{examples.source}: give one answer for each of the {len(examples)} "
            f"questions; received {len(answers)}"
        )


def _names(examples):
    """Return the ids of questions, by default numbers from 1."""
    if examples.ids is not None:
        return examples.ids
    return [str(number) for number in range(1, len(examples) + 1)]


def records(model, examples, answers):
    """Return an iterator of a dict per question: `id`, `answer`, `score`, `start`, `end`."""
    _check_number(examples, answers)
    return (
        {
            "id": name,
            "answer": answer["text"],
            "score": float(answer["score"]),
            "start": int(answer["start"]),
            "end": int(answer["end"]),
        }
        for name, answer in zip(_names(examples), answers, strict=True)
    )


def predictions(examples, answers):
    """Return the answers as the official scoring scripts read them: a dict from id to text.

    Questions without ids are numbered from 1.
    """
    _check_number(examples, answers)
    names = _names(examples)
    repeated = [name for name, count in collections.Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{examples.source}: ids must be unique; {repeated[0]!r:.80} occurs twice")
    return {name: answer["text"] for name, answer in zip(names, answers, strict=True)}
