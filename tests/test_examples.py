"""The examples run, in a small mode."""

import pathlib
import re
import runpy
import sys

import keras
import pytest

import keras_bert
import keras_bert.hub.resolve

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
DOCUMENTS = [
    " ".join(f"The parcel {word} was {number} days late." for word in "abcdef")
    for number in range(200)
]
SMALL = ["--epochs", "1", "--limit", "32"]
TINY_MODEL = ["--vocabulary-size", "100", "--layers", "1", "--hidden-size", "64"]
# The arguments that run each example in a small mode.
LESSONS = {
    "answer_questions": ["--epochs", "1", "--limit", "16"],
    "classify_pairs": SMALL,
    "classify_texts": SMALL,
    "extract_features": ["--limit", "64"],
    "fill_blanks": SMALL,
    "korean_sentiment": SMALL,
    "look_inside": SMALL,
    "korean_search": SMALL,
    "semantic_search": ["--limit", "20"],
    "train_embeddings": SMALL,
    "pretrain": [*TINY_MODEL, "--steps", "2", "--batch-size", "4"],
    "compare_directions": [*TINY_MODEL, "--steps", "6", "--runs", "2", *SMALL],
    "score_similarity": ["--limit", "64"],
    "tag_words": SMALL,
}


@pytest.mark.slow
def test_quickstart(python):
    try:
        keras_bert.hub.resolve.find("minilm")
    except OSError as error:
        pytest.skip(str(error))
    printed = python(EXAMPLES / "quickstart.py", "--epochs", "1", "--limit", "64")
    assert "[CLS] unbelievable : the cafe ref ##und ##ed me ! [SEP]" in printed
    answers = printed.split("\n5. ")[1].splitlines()[1:]
    assert len(answers) == 4
    assert all(re.match(r"  [a-z]+ +0\.\d\d  \S", line) for line in answers)


@pytest.mark.slow
@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the examples run on TensorFlow"
)
@pytest.mark.parametrize("name", LESSONS)
# The vectors of the small model differ a little between processors.
@pytest.mark.filterwarnings("ignore:.*rows were left out")
def test_lesson(name, small_model, monkeypatch, capsys, tmp_path):
    """In this process, where TensorFlow is imported already and warnings are errors."""
    arguments = LESSONS[name]
    if name in ("pretrain", "compare_directions"):
        corpus = tmp_path / "corpus.txt"
        corpus.write_text("\n\n".join(DOCUMENTS))
        arguments = [str(corpus), *arguments]
        arguments += ["--output", str(tmp_path / "mine")] * (name == "pretrain")
    elif name not in ("korean_sentiment", "korean_search"):  # which make their own
        arguments = [*arguments, "--model", str(small_model)]
    if name == "train_embeddings":
        arguments += ["--output", str(tmp_path / "exported")]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    if name == "pretrain":
        assert "Load the model with keras_bert.load" in printed
    else:
        assert re.search(r"\b(0\.\d\d|1\.00)", printed)  # a score


PAIR = {"text": "text", "text_pair": "text_pair", "label": "label"}
FAQ = {"text": "question", "text_pair": "answer"}
# The task of each pair of files, the options to read them, and the column that has no row twice.
DATA = {
    "support_*.tsv": ("classification", {}, "texts"),
    "pairs_*.tsv": ("pair", PAIR, "texts"),
    "entities_*.conll": ("tagging", {}, "words"),
    "manual_*.json": ("question_answering", {}, "contexts"),
    "korean_reviews_*.tsv": ("classification", {}, "texts"),
    "korean_faq_*.tsv": ("embedding", FAQ, "texts"),
}


@pytest.mark.parametrize("file", DATA)
def test_data_of_the_examples(file):
    task, options, column = DATA[file]
    parts = [
        keras_bert.read(EXAMPLES / "data" / file.replace("*", split), task, **options)
        for split in ("train", "dev")
    ]
    readme = (EXAMPLES / "data" / "README.md").read_text(encoding="utf-8")
    (line,) = [line for line in readme.splitlines() if line.startswith(f"| `{file}`")]
    counts = re.findall(r"(\d+)(?: [a-z]+)? \|", line)
    assert list(map(int, counts)) == [len(part) for part in parts]
    train, dev = (set(map(str, getattr(part, column))) for part in parts)
    assert not train & dev
    if task == "question_answering":
        assert not any(part.moved_answers or part.lost_answers for part in parts)
