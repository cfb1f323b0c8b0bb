"""Files of each task, and functions that the tests of several commands use."""

import json

from keras_bert.__main__ import main

TEXTS = "text\tlabel\n" + "so good\tgood\nso bad\tbad\n" * 4


PAIRS = "text\tother\tlabel\n" + "good\tso good\tsame\nbad\tso good\tother\n" * 4


SETS = "text\tlabel\n" + "so good film\tgood;film\nso bad\tbad\nthis is a\t\n" * 4


SCORES = "text\tlabel\n" + "so good\t0.5\nso bad\t-0.5\n" * 4


TAGS = "this\tO\nfilm\tB-work\n\nso\tO\nbad\tB-mood\n\n" * 4


CHOICES = '{"text": "films", "choices": ["so good", "so bad"], "label": 1}\n' * 4


QUESTIONS = json.dumps(
    {
        "data": [
            {
                "paragraphs": [
                    {
                        "context": "this film is so good!",
                        "qas": [
                            {
                                "id": f"q{number}",
                                "question": "is this bad",
                                "answers": [{"text": "good", "answer_start": 16}],
                            }
                            for number in range(4)
                        ],
                    }
                ]
            }
        ]
    }
)


# Each task: its files, the options with which it reads them, the metric that counts, the lines
# of answers to its own file, and one of them as it must look.
TASKS = {
    "classification": (
        "a.tsv",
        TEXTS,
        [],
        "accuracy",
        9,
        r"(good|bad)\t[01]\.\d{4}\tso good\tgood",
    ),
    "pair": (
        "a.tsv",
        PAIRS,
        ["--text-pair", "other"],
        "accuracy",
        9,
        r"(same|other)\t[01]\.\d{4}\tgood\tso good\tsame",
    ),
    "multi-label": (
        "a.tsv",
        SETS,
        ["--separator", ";"],
        "micro_f1",
        13,
        r"[a-z,]*(\t[01]\.\d{4}){3}\tso good film\t[a-z;]*",
    ),
    "regression": ("a.tsv", SCORES, [], "pearson", 9, r"-?\d\.\d{4}\tso good\t[\d.]+"),
    "tagging": ("a.conll", TAGS, [], "f1", 24, r"(this|film|so|bad)\t[01]\.\d{4}\t[A-Z][a-z-]*"),
    "question-answering": (
        "a.json",
        QUESTIONS,
        [],
        "f1",
        5,
        r"q\d\t[a-z! ]*\t[01]\.\d{4}\t\d+\t\d+",
    ),
    "multiple-choice": ("a.jsonl", CHOICES, [], "accuracy", 5, r"[01]\t[01]\.\d{4}\tso (good|bad)"),
}


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
