"""Question answering: the answer is a span of the context, as in SQuAD and KorQuAD 1.0.

Questions and contexts are cut into windows. The answer is the best span of all windows.

Source: sections 4.2 and 4.3 of the BERT paper; google-research/bert `run_squad.py`.
"""

import collections
import re
import string

import keras
import numpy as np
import scipy.special

from keras_bert import heads
from keras_bert.data.batching import REDUCTION
from keras_bert.tasks.question_windows import MIN_LENGTH, OUTPUTS, EncodedQuestions

HEADS = ("span_selector",)
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
    return heads.span_selector(encoder, no_answer=not all(_known_answers(train)))


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


def encode(model, examples, max_length, *, stride=128, max_question_length=64):
    """Cut questions and contexts into windows of at most `max_length` tokens: `EncodedQuestions`.

    `stride` is the number of context tokens between the starts of two windows. It is reduced so
    that windows overlap by at least half of their context. A question takes at most half of a
    window.
    Source: `convert_examples_to_features` in google-research/bert `run_squad.py`.
    """
    for name, value, minimum in (
        ("max_length", max_length, MIN_LENGTH),
        ("stride", stride, 1),
        ("max_question_length", max_question_length, 1),
    ):
        if value < minimum:
            raise ValueError(f"{name} must be at least {minimum}; received {value}")
    preprocessor = heads.find_encoder(model).preprocessor
    if preprocessor is None:
        raise ValueError(
            f"the encoder of {model.name!r} has no preprocessor; set its `preprocessor`"
        )
    return EncodedQuestions(
        preprocessor.tokenizer, examples, max_length, stride, max_question_length
    )


def decode(
    model, examples, encoded, outputs, *, max_answer_length=30, null_threshold=0.0, top_k=None
):
    """Return a dict per question: `text`, `start`, `end` (in characters), `score` (a probability).

    `outputs` has a dict of `start_logits` and `end_logits`, (seq,), per window. `text` is "" if the
    logit of no answer exceeds that of the best span by more than `null_threshold`. With `top_k`,
    return a list of that many answers per question, the most probable first.
    Source: `write_predictions` in google-research/bert `run_squad.py`.
    """
    if max_answer_length < 1:
        raise ValueError(f"max_answer_length must be at least 1; received {max_answer_length}")
    if len(outputs) != len(encoded):
        raise ValueError(
            f"{examples.source}: give one output for each of the {len(encoded)} windows; "
            f"received {len(outputs)}"
        )
    no_answer = heads.find_output(model).no_answer
    answers = []
    for question, context in enumerate(examples.contexts):
        rows = range(*encoded.window_splits[question : question + 2])
        spans, total = _best_spans(encoded, outputs, rows, max_answer_length, top_k or 1)
        if no_answer:
            none = _null_score(outputs, rows)
            total = np.logaddexp(total, none)
            before = sum(none - logit <= null_threshold for logit, _, _ in spans)
            spans.insert(before, (none, None, None))
        offset = encoded.context_splits[encoded.context[question]]
        ranked = []
        for logit, first, last in spans or [(-np.inf, None, None)]:  # a context without tokens
            start = end = 0
            if first is not None:
                start, end = int(encoded.starts[offset + first]), int(encoded.ends[offset + last])
            score = float(np.exp(logit - total)) if np.isfinite(logit) else 0.0
            ranked.append({"text": context[start:end], "start": start, "end": end, "score": score})
        answers.append(ranked[0] if top_k is None else ranked[:top_k])
    return answers


def _null_score(outputs, rows):
    """Return the logit of no answer: the lowest one of all windows."""
    return min(float(sum(outputs[row][name][0] for name in OUTPUTS)) for row in rows)


def _best_spans(encoded, outputs, rows, max_answer_length, count):
    """Return the best spans of all windows of one question, and the sum of all spans.

    A span is `(logit, first, last)`, with its first and last token of the context. The sum is the
    log-sum-exp of the logits of all spans, minus infinity if there is none.
    """
    windows = _span_windows(encoded, rows, max_answer_length)
    spans, total = [], -np.inf
    for row in rows:
        first, size = encoded.part_start[row], encoded.part_size[row]
        if not size:
            continue
        begin = 2 + encoded.question_size[encoded.question[row]]
        start, end = (
            np.asarray(outputs[row][name], np.float64)[begin : begin + size] for name in OUTPUTS
        )
        # Row i holds the logits of the spans that start at token i, shortest first.
        end = np.concatenate([end, np.full(max_answer_length - 1, -np.inf)])
        table = start[:, None] + np.lib.stride_tricks.sliding_window_view(end, max_answer_length)
        table[windows[first : first + size] != row] = -np.inf
        total = np.logaddexp(total, scipy.special.logsumexp(table))
        flat = table.ravel()
        best = [flat.argmax()] if count == 1 else np.argsort(-flat, kind="stable")[:count]
        for index in best:
            token, more = divmod(int(index), max_answer_length)
            if np.isfinite(flat[index]):
                spans.append((float(flat[index]), first + token, first + token + more))
    spans.sort(key=lambda span: -span[0])  # stable: of equal spans, the first window's
    return spans[:count], total


def _span_windows(encoded, rows, max_answer_length):
    """Return the window of each span, int (tokens of the context, max_answer_length), -1 for none.

    The axes are the first token of the span and its length minus 1. Of the windows that contain a
    span, take the one with the most context on the shorter side of its first token. run_squad.py
    drops the span if that window does not contain its end.
    """
    shape = (encoded.part_start[rows[-1]] + encoded.part_size[rows[-1]], max_answer_length)
    windows, max_context = np.full(shape, -1), np.full(shape, -1)
    for row in rows:
        first, size = encoded.part_start[row], encoded.part_size[row]
        left = np.arange(size)
        right = size - 1 - left
        # 100 times the score of run_squad.py: the shorter side + 0.01 x the size of the window.
        context = (100 * np.minimum(left, right) + size)[:, None]
        contained = np.arange(max_answer_length) <= right[:, None]
        better = contained & (context > max_context[first : first + size])
        windows[first : first + size][better] = row
        max_context[first : first + size] = np.where(
            better, context, max_context[first : first + size]
        )
    return windows


def score(model, examples, answers, *, characters=None):
    """Score answers as SQuAD's `evaluate-v2.0.py` does: `f1`, the main metric, and `exact_match`.

    If some questions have no answer: also `has_answer_f1` and `no_answer_accuracy`. `characters`
    selects KorQuAD's rules, F1 over characters with articles; by default `examples.characters`.
    `evaluate-v1.1.py` gives the same results for answers that hold a letter or a digit.
    """
    accepted = _known_answers(examples)
    _check_number(examples, answers)
    if not len(examples):
        raise ValueError(f"found no questions in {examples.source}; give at least one")
    characters = examples.characters if characters is None else characters
    units = _characters if characters else _words
    f1, exact = np.zeros(len(examples)), np.zeros(len(examples))
    for index, (answer, right) in enumerate(zip(answers, accepted, strict=True)):
        given = units(answer["text"])
        # As in the official script, an answer that normalizes to "", such as "the", is no answer.
        known = [wanted for wanted in (units(text) for text, _ in right) if wanted[0]] or [("", [])]
        f1[index] = max(_f1(given[1], wanted) for _, wanted in known)
        exact[index] = max(given[0] == wanted for wanted, _ in known)
    metrics = {"f1": f1.mean(), "exact_match": exact.mean()}
    has_answer = np.array([bool(right) for right in accepted])
    if not has_answer.all():
        if has_answer.any():
            metrics["has_answer_f1"] = f1[has_answer].mean()
        metrics["no_answer_accuracy"] = exact[~has_answer].mean()
    return {name: float(value) for name, value in metrics.items()}


def metric_names(model, examples):
    """Return the names of the metrics of `score`, the main one first."""
    has_answer = [bool(right) for right in _known_answers(examples)]
    names = ["f1", "exact_match"]
    if not all(has_answer):
        names += ["has_answer_f1"] * any(has_answer) + ["no_answer_accuracy"]
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
        raise ValueError(f"{examples.source}: ids must be unique; {repeated[0]!r} occurs twice")
    return {name: answer["text"] for name, answer in zip(names, answers, strict=True)}
