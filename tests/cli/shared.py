"""Files of each task, and functions that the tests of several commands use."""

import json

from keras_bert.__main__ import main

TEXTS = "text\tlabel\n" + "so good\tgood\nso bad\tbad\n" * 4


PAIRS = "text\tother\tlabel\n" + "good\tso good\tsame\nbad\tso good\tother\n" * 4


SETS = "text\tlabel\n" + "so good film\tgood;film\nso bad\tbad\nthis is a\t\n" * 4


SCORES = "text\tlabel\n" + "so good\t0.5\nso bad\t-0.5\n" * 4


TAGS = "this\tO\nfilm\tB-work\n\nso\tO\nbad\tB-mood\n\n" * 4


CHOICES = '{"text": "films", "choices": ["so good", "so bad"], "label": 1}\n' * 4


_QUESTION = {"question": "is this bad", "answers": [{"text": "good", "answer_start": 16}]}
_QUESTIONS = [{"id": f"q{number}", **_QUESTION} for number in range(4)]
_PARAGRAPH = {"context": "this film is so good!", "qas": _QUESTIONS}
QUESTIONS = json.dumps({"data": [{"paragraphs": [_PARAGRAPH]}]})


# Each task: its files, the options with which it reads them, the metric that counts, the lines
# of answers to its own file, and one of them as it must look.
_SCORE = r"[01]\.\d{4}"
TASKS = {
    "classification": ("a.tsv", TEXTS, [], "accuracy", 9, rf"(good|bad)\t{_SCORE}\tso good\tgood"),
    "pair": ("a.tsv", PAIRS, ["--text-pair", "other"], "accuracy", 9,
             rf"(same|other)\t{_SCORE}\tgood\tso good\tsame"),
    "multi-label": ("a.tsv", SETS, ["--separator", ";"], "micro_f1", 13,
                    rf"[a-z,]*(\t{_SCORE}){{3}}\tso good film\t[a-z;]*"),
    "regression": ("a.tsv", SCORES, [], "pearson", 9, r"-?\d\.\d{4}\tso good\t[\d.]+"),
    "tagging": ("a.conll", TAGS, [], "f1", 24, rf"(this|film|so|bad)\t{_SCORE}\t[A-Z][a-z-]*"),
    "question-answering": ("a.json", QUESTIONS, [], "f1", 5, rf"q\d\t[a-z! ]*\t{_SCORE}\t\d+\t\d+"),
    "multiple-choice": ("a.jsonl", CHOICES, [], "accuracy", 5, rf"[01]\t{_SCORE}\tso (good|bad)"),
}  # fmt: skip


# What a model of the task is asked for on the command line itself, and how many lines it answers.
ASKED = {
    "classification": (["so good", "한국어"], 2),
    "pair": (["so good", "bad"], 1),
    "multi-label": (["so good", "bad"], 3),
    "regression": (["so good"], 1),
    "tagging": (["so good!", "bad"], 6),
    "question-answering": (["is this bad", "a film so good"], 2),
    "multiple-choice": (["films", "good", "bad", "so"], 1),
}


def run(*arguments):
    """The exit status of a command."""
    return main([str(argument) for argument in arguments])
