"""The scores of SQuAD and KorQuAD, and the file that their scripts read."""

import collections
import re
import string

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# KorQuAD replaces quotation marks and brackets by spaces, and deletes other punctuation.
_KOREAN_PUNCTUATION = str.maketrans(
    {**dict.fromkeys(string.punctuation), **dict.fromkeys("'\"()<>《》〈〉‘’", " ")}
)


def are_right(examples, answers):
    """Return True for each answer that `score` counts as an exact match, bool (questions,)."""
    texts = [answer["text"] for answer in answers]
    _, exact = scores_of(units_of(examples), texts, examples.answers)
    return exact == 1


def units_of(examples):
    """Return the function that normalizes a text and splits it into words or characters."""
    return _characters if examples.characters else _words


def scores_of(units, texts, accepted):
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


def best_thresholds(units, answers, accepted):
    """Return the best F1 and exact match over all thresholds of no answer, and their thresholds.

    Source: `find_all_best_thresh` in SQuAD's `evaluate-v2.0.py`.
    """
    differences = np.array([answer["null_difference"] for answer in answers])
    of_spans = scores_of(units, [answer["span_text"] for answer in answers], accepted)
    of_none = scores_of(units, [""] * len(answers), accepted)
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


def _words(text):
    """Return a text as SQuAD compares it, and its words."""
    words = _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()
    return " ".join(words), words


def _characters(text):
    """Return a text as KorQuAD compares it, and its characters."""
    words = text.translate(_KOREAN_PUNCTUATION).lower().split()
    return " ".join(words), list("".join(words))


def _f1(parts, accepted):
    """Return the F1 score of two lists of words or characters, ignoring their order."""
    if not parts or not accepted:
        return float(parts == accepted)
    common = (collections.Counter(parts) & collections.Counter(accepted)).total()
    return 2 * common / (len(parts) + len(accepted))
