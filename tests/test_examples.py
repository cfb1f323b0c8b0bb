"""The examples run, in a small mode, and the data beside them is what its README says."""

import ast
import collections
import os
import pathlib
import re
import runpy
import subprocess
import sys

import keras
import pytest

import keras_bert
import keras_bert.hub.resolve
from keras_bert.data import tabular
from keras_bert.tasks.question_answering import data as squad
from keras_bert.tasks.tagging import data as conll

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
DATA = EXAMPLES / "data"
SHARE = r"(0\.\d\d|1\.00)"
DOCUMENTS = [
    " ".join(f"The parcel {word} was {number} days late." for word in "abcdef")
    for number in range(200)
]
# For each example how to run it in a small mode, and what it then prints, line by line.
LESSONS = {
    "answer_questions": (
        ["--epochs", "1", "--limit", "16"],
        [rf"F1 {SHARE}, exact match {SHARE} on 45 dev questions; F1 0\.\d\d for the whole passage"]
        + [rf"  .+\? .+ \({SHARE}\)"] * 3,
    ),
    "classify_pairs": (
        ["--epochs", "1", "--limit", "32"],
        [rf"{SHARE} accuracy on 100 dev pairs, F1 {SHARE}"]
        + ["0.50 if all pairs get the same label"]
        + [rf"  (same |other) {SHARE}  .+ \| .+"] * 3,
    ),
    "classify_texts": (
        ["--epochs", "1", "--limit", "32"],
        [r"2/2 - .+", rf"{SHARE} accuracy on 140 dev messages"]
        + ["0.18 for always predicting the most frequent label"]
        + [rf"  [a-z]+ +{SHARE}  .+"] * 3,
    ),
    "extract_features": (
        ["--limit", "64"],
        [r"features +width  dev accuracy"]
        + [rf"[a-z ]+ +(16|64)  {SHARE}"] * 5
        + [rf"always the most frequent label +{SHARE}"],
    ),
    "fill_blanks": (
        ["--epochs", "1", "--limit", "32"],
        [rf"accuracy on \d+ masked dev tokens: {SHARE} before, {SHARE} after; {SHARE} for .+"]
        + [r"  .*\[MASK\].*  (\S+ 0\.\d\d, ){4}\S+ 0\.\d\d"] * 2,
    ),
    "korean_sentiment": (
        ["--epochs", "1", "--limit", "32"],
        [r"어휘 vocabulary: \d+, 매개변수 parameters: [\d,]+"]
        + [rf"정확도 accuracy: {SHARE} \(118 dev reviews\), 다수 클래스 majority class: 0.50"]
        + [rf"  (긍정|부정) {SHARE}  .+"] * 2,
    ),
    "look_inside": (
        ["--epochs", "1", "--limit", "32"],
        [rf"{SHARE} accuracy on 140 dev messages"]
        + [
            r"  [a-z]+ +[+-]\d+\.\d\d: (\S+ [+-]\d+\.\d\d, ){3}\S+ [+-]\d+\.\d\d",
            r"    error of the sum: \de[+-]\d\d",
        ]
        * 3
        + [rf"Head \d of layer \d attends most to the previous token \(weight {SHARE}; .+\)"],
    ),
    "korean_search": (
        ["--epochs", "1", "--limit", "32"],
        [rf"BM25 +MRR@10 {SHARE}", rf"학습 전 before +MRR@10 {SHARE}"]
        + [rf"학습 후 trained +MRR@10 {SHARE} \(24 dev questions\)"]
        + [r"  -?\d\.\d\d  .+\? → .+", r"  -?\d\.\d\d  .+요 → .+"],
    ),
    "semantic_search": (
        ["--limit", "20"],
        [r"20 paragraphs, vectors of \d\.\d MB"] + [r".+\?", *[r"  -?\d\.\d\d  .+"] * 3] * 3,
    ),
    "train_embeddings": (
        ["--epochs", "1", "--limit", "32"],
        [
            rf"before +average precision {SHARE}",
            rf"scored pairs \(CoSENT\) +average precision {SHARE}",
        ]
        + [r"  .+", r"  \+ .+", r"  - .+"]
        + [rf"pairs with hard negatives +average precision {SHARE}"]
        + [rf"student of two layers +average precision {SHARE}", r"exported to .+"],
    ),
    "pretrain": (
        ["--vocabulary-size", "100", "--layers", "1", "--hidden-size", "64", "--steps", "2"]
        + ["--batch-size", "4"],
        [r"200 documents, [\d,]+ tokens", r"   step  masked LM  next sentence  .+"]
        + [rf" {{6}}{step}      \d\.\d{{3}} +\d\.\d{{3}}" for step in (1, 2)]
        + [r"Load the model with keras_bert\.load\('.+'\)"],
    ),
    "compare_directions": (
        ["--vocabulary-size", "100", "--layers", "1", "--hidden-size", "64", "--steps", "6"]
        + ["--epochs", "1", "--limit", "16", "--runs", "2"],
        [r" +texts \(accuracy\)  words \(F1\)"]
        + [
            rf"{way} +{SHARE} ± {SHARE}  +{SHARE} ± {SHARE}"
            for way in ("random weights", "both directions, NSP", "both directions")
            + ("left to right", "left to right, BiLSTM")
        ],
    ),
    "score_similarity": (
        ["--limit", "64"],
        ["Cosine between sentences"]
        + [r"(  [ -]\d\.\d\d){3}  .+"] * 3
        + ["The dev messages nearest to 'my package is lost'"]
        + [rf"  {SHARE}  .+"] * 3
        + [rf"{SHARE} of 140 dev messages have the label of the nearest of 64 messages; 0.18 .+"],
    ),
    "tag_words": (
        ["--epochs", "1", "--limit", "32"],
        [rf"entity F1 {SHARE} on 70 dev sentences, precision {SHARE}, recall {SHARE}"]
        + [rf"{SHARE} accuracy of words, 0.\d\d if all are O"],  # and the tags it found, if any
    ),
}


@pytest.mark.slow
def test_quickstart():
    try:
        keras_bert.hub.resolve.find("minilm")
    except OSError as error:
        pytest.skip(str(error))
    result = subprocess.run(
        [sys.executable, EXAMPLES / "quickstart.py", "--epochs", "1", "--limit", "64"],
        capture_output=True,
        encoding="utf-8",
        env={k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    # Where there is no terminal: the way of the training, a line an epoch, no warnings.
    note, epoch = result.stderr.splitlines()
    assert "64 texts of 7 labels" in note
    assert re.fullmatch(r"epoch 1 of 1: loss \d\.\d{3}, accuracy .*", epoch)
    for number in range(1, 6):
        assert f"\n{number}. " in result.stdout
    assert "[CLS] unbelievable : the cafe ref ##und ##ed me ! [SEP]" in result.stdout
    answers = result.stdout.split("\n5. ")[1].splitlines()[1:]
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
    arguments, lines = LESSONS[name]
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
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(lines) or name == "tag_words"
    for line, pattern in zip(printed, lines, strict=False):
        assert re.fullmatch(pattern, line)


def test_headers_say_command_time_and_expected_number():
    files = sorted(EXAMPLES.glob("*.py"))
    assert {file.stem for file in files} == {*LESSONS, "quickstart"}
    for file in files:
        header = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
        assert re.search(r"^Command:   (make|python) \S", header, re.M), file
        assert re.search(r"^Time:      .+ 2 CPU cores", header, re.M), file
        assert re.search(r"^Expected:  .*\d", header, re.M), file


def test_the_index_says_what_the_headers_say():
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\) \| (.+) \|$", page, re.M))
    assert set(rows) == {file.stem for file in EXAMPLES.glob("*.py")}
    for name, row in rows.items():
        header = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8")))
        command = re.search(r"^Command: +(.+)$", header, re.M)[1]
        time = re.search(r"^Time: +(.+) on 2 CPU cores", header, re.M)[1]
        assert row == f"{header.splitlines()[0].removesuffix('.')} | `{command}` | {time}"
    folders = {folder.name for folder in EXAMPLES.iterdir() if any(folder.glob("*.*"))}
    assert set(re.findall(r"^\| \[(\w+)/\]\(\1\) \|", page, re.M)) == folders - {"__pycache__"}


def check_in_readme(file, *counts):
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    [line] = [line for line in readme.splitlines() if line.startswith(f"| `{file}`")]
    assert [int(number) for number in re.findall(r"(\d+)(?: [a-z]+)? \|", line)] == list(counts)


def read_both(file, read, **options):
    return [read(DATA / file.replace("*", split), **options) for split in ("train", "dev")]


def plain(text):
    return re.sub(r"\W+", " ", text.lower()).strip()


def check_no_text_twice(train, dev):
    counts = collections.Counter(plain(text) for text in [*train, *dev])
    assert counts.most_common(1)[0][1] == 1


def test_support_data():
    train, dev = read_both("support_*.tsv", tabular.read, text="text", label="label")
    assert train.label_names() == dev.label_names()
    assert len(train.label_names()) == 7
    assert all(0.1 < part.majority_share() < 0.25 for part in (train, dev))
    check_no_text_twice(train.texts, dev.texts)
    check_in_readme("support_*.tsv", len(train), len(dev))


def test_pairs_data():
    columns = {"text": "text", "text_pair": "text_pair", "label": "label"}
    train, dev = read_both("pairs_*.tsv", tabular.read, **columns)
    messages = []
    for part in (train, dev):
        # Each message once in a pair of either label: alone it tells nothing.
        labels = collections.defaultdict(list)
        for text, pair, label in zip(part.texts, part.text_pairs, part.labels, strict=True):
            labels[text].append(label)
            labels[pair].append(label)
        assert all(sorted(both) == ["other", "same"] for both in labels.values())
        messages.append(labels)
    check_no_text_twice(*messages)
    check_in_readme("pairs_*.tsv", len(train), len(dev))


def test_entities_data():
    train, dev = read_both("entities_*.conll", conll.read)
    types = ("DATE", "ORDER", "PERSON", "PLACE", "PRODUCT")
    tags = ["O", *(f"B-{name}" for name in types), *(f"I-{name}" for name in types)]
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    assert train.label_names() == tags
    assert set(dev.label_names()) <= set(tags)
    for part in (train, dev):
        for row in part.tags:
            for before, tag in zip(["O", *row], row, strict=False):
                assert not tag.startswith("I-") or before[2:] == tag[2:]
    for name in types:
        counts = [sum(row.count(f"B-{name}") for row in part.tags) for part in (train, dev)]
        assert re.search(rf"\| `{name}` \| .* \| {counts[0]} \| {counts[1]} \|", readme)
    check_no_text_twice(*([" ".join(words) for words in part.words] for part in (train, dev)))
    check_in_readme("entities_*.conll", len(train), len(dev))


def test_manual_data():
    train, dev = read_both("manual_*.json", squad.read)
    for part in (train, dev):
        assert part.moved_answers == part.lost_answers == 0
        assert all(len(answers) == 1 for answers in part.answers)
        assert set(collections.Counter(part.contexts).values()) == {3}
        assert len(set(part.ids)) == len(part)
    check_no_text_twice(set(train.contexts), set(dev.contexts))
    for part in (train, dev):
        both = zip(part.questions, part.contexts, strict=True)
        check_no_text_twice((f"{question} {context}" for question, context in both), [])
    check_in_readme("manual_*.json", len(train), len(dev))


def test_korean_data():
    train, dev = read_both("korean_reviews_*.tsv", tabular.read, text="text", label="label")
    for part in (train, dev):
        assert collections.Counter(part.labels) == dict.fromkeys(("긍정", "부정"), len(part) // 2)
        assert all(re.search("[가-힣]", text) for text in part.texts)
    check_no_text_twice(train.texts, dev.texts)
    check_in_readme("korean_reviews_*.tsv", len(train), len(dev))


def test_korean_questions():
    options = {"task": "embedding", "text": "question", "text_pair": "answer"}
    train, dev = read_both("korean_faq_*.tsv", keras_bert.read, **options)
    assert sorted(dev.positives) == sorted(set(train.positives)), "one new question per answer"
    assert set(collections.Counter(train.positives).values()) == {4}
    questions = [row[0] for row in (*train.texts, *dev.texts)]
    assert len(set(questions)) == len(questions)
    check_in_readme("korean_faq_*.tsv", len(train), len(dev))
