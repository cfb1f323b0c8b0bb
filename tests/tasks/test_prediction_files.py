"""Tests of files of answers: TSV, CSV, JSON Lines and SQuAD's predictions."""

import csv
import io
import itertools
import json

import numpy as np
import pytest

from keras_bert import heads
from keras_bert.data import tabular
from keras_bert.tasks import prediction_files, registry
from keras_bert.tasks.multiple_choice import data as swag
from keras_bert.tasks.question_answering import data as squad
from keras_bert.tasks.tagging import data as conll
from tests import tiny

QUOTED = 'so "good",\nreally'


@pytest.fixture(scope="module")
def models():
    encoder = tiny.encoder(num_hidden_layers=1)
    return {
        "classification": heads.classifier(encoder, labels=["1", "a,b"]),
        "label sets": heads.classifier(encoder, labels=["labels", "y"], multi_label=True),
        "regression": heads.regressor(encoder),
        "tagging": heads.tagger(encoder, labels=["O", "B-x"]),
        "reader": heads.span_selector(encoder),
        "chooser": heads.multiple_choice(encoder),
    }


def written_lines(format, model, answered, **options):
    task = registry.for_model(model)
    return prediction_files.lines(format, task, heads.find_output(model), answered, **options)


ANSWER = {"text": QUOTED, "start": 2, "end": 20, "score": 0.87654}
ANSWERED = {
    "classification": (tabular.Examples(["a"]), np.array([[0.12346, 0.87654]], np.float32)),
    "label sets": (tabular.Examples(["a"]), np.array([[0.75, 0.5]], np.float32)),
    "regression": (tabular.Examples(["a"]), np.array([-1.5], np.float32)),
    "tagging": (
        conll.TaggedSentences([["Ann", ","], ["so"]]),
        [[("B-x", 0.5), ("O", 1.0)], [("O", 0.25)]],
    ),
    "reader": (squad.Questions(["?"], ["so"], ids=["7"]), [ANSWER]),
    "chooser": (swag.Choices(["a"], [["b", "c"]]), [np.array([0.25, 0.75], np.float32)]),
}
# The objects of JSON Lines, and the rows of CSV.
EXPECTED = {
    "classification": (
        [{"label": "a,b", "score": 0.8765, "text": "a"}],
        [["label", "score", "text"], ["a,b", "0.8765", "a"]],
    ),
    "label sets": (
        [{"labels": ["labels", "y"], "scores": {"labels": 0.75, "y": 0.5}, "text": "a"}],
        [["labels", "labels", "y", "text"], ["labels,y", "0.7500", "0.5000", "a"]],
    ),
    "regression": ([{"score": -1.5, "text": "a"}], [["score", "text"], ["-1.5000", "a"]]),
    "tagging": (
        [
            {"words": ["Ann", ","], "tags": ["B-x", "O"], "scores": [0.5, 1.0]},
            {"words": ["so"], "tags": ["O"], "scores": [0.25]},
        ],
        [
            ["sentence", "word", "tag", "score"],
            ["1", "Ann", "B-x", "0.5000"],
            ["1", ",", "O", "1.0000"],
            ["2", "so", "O", "0.2500"],
        ],
    ),
    "reader": (
        [{"id": "7", "answer": QUOTED, "score": 0.8765, "start": 2, "end": 20}],
        [["id", "answer", "score", "start", "end"], ["7", QUOTED, "0.8765", "2", "20"]],
    ),
    "chooser": (
        [{"choice": 1, "score": 0.75, "text": "c"}],
        [["choice", "score", "text"], ["1", "0.7500", "c"]],
    ),
}


def test_csv_separator_does_not_occur_in_labels():
    labels = ["rude", "short, but kind", "true"]
    model = heads.classifier(tiny.encoder(num_hidden_layers=1), labels=labels, multi_label=True)
    answers = np.array([[0.9, 0.8, 0.1]], np.float32)
    _, line = written_lines("csv", model, [(tabular.Examples(["a"]), answers)])
    assert line == '"rude;short, but kind",0.9000,0.8000,0.1000,a'


@pytest.mark.parametrize("name", ANSWERED)
def test_json_lines_and_csv(models, name):
    answered = [ANSWERED[name]]
    objects, rows = EXPECTED[name]
    written = list(written_lines("jsonl", models[name], answered))
    assert [json.loads(line) for line in written] == objects
    written = "".join(f"{line}\n" for line in written_lines("csv", models[name], answered))
    assert list(csv.reader(io.StringIO(written, newline=""), strict=True)) == rows


def test_lines_are_written_part_by_part(models):
    part = ANSWERED["classification"]

    def parts():
        yield part
        yield part
        raise MemoryError("the third part was read")

    for format, count in (("jsonl", 2), ("csv", 3), ("tsv", 3)):
        lines = written_lines(format, models["classification"], parts())
        first = list(itertools.islice(lines, count))
        assert len(first) == count and len(set(first)) == (1 if format == "jsonl" else 2)
        with pytest.raises(MemoryError):
            next(lines)


@pytest.mark.parametrize("name", [name for name in ANSWERED if name != "tagging"])
def test_tsv_has_the_columns_of_csv(models, name):
    _, rows = EXPECTED[name]
    written = list(written_lines("tsv", models[name], [ANSWERED[name]]))
    assert [line.replace("\t", "|") for line in written] == [
        "|".join(fields).replace("\n", " ") for fields in rows
    ]
    without_header = written_lines("tsv", models[name], [ANSWERED[name]], header=False)
    assert list(without_header) == written[1:]


@pytest.mark.parametrize("format", ["tsv", "csv", "jsonl"])
def test_predicted_tags_can_be_read_again(models, tmp_path, format):
    words = [["1", "#", "Ann"], ["10 000", ",", '"', " "], ["2"]]
    sentences = conll.TaggedSentences(words)
    answers = [[("B-x" if word == "Ann" else "O", 0.5) for word in row] for row in words]
    lines = list(written_lines(format, models["tagging"], [(sentences, answers)]))
    again = conll.read(tiny.write_file(tmp_path / f"a.{format}", "\n".join(lines)))
    assert again.words == words
    assert again.tags == [[tag for tag, _ in row] for row in answers]
    if format == "tsv":  # as CoNLL: the tag is the last column
        assert lines[2:5] == ["Ann\t0.5000\tB-x", "", "10 000\t0.5000\tO"]


def read_rows(folder, name, content, **options):
    file = tiny.write_file(folder / name, content)
    return next(tabular.read_in_parts(file, keep_rows=True, **options))


def test_columns_of_the_input_are_kept(models, tmp_path):
    text = "id,review,label,score\n007,so,a,0.123456\n"
    examples = read_rows(tmp_path, "a.csv", text, text="review")
    answers = np.array([[0.25, 0.75]], np.float32)

    def lines(format):
        return list(written_lines(format, models["classification"], [(examples, answers)]))

    names = ["predicted_label", "predicted_score", "id", "review", "label", "score"]
    values = ["a,b", "0.7500", "007", "so", "a", "0.123456"]
    assert list(csv.reader(lines("csv"))) == [names, values]
    assert lines("tsv")[1].split("\t") == values
    assert json.loads(lines("jsonl")[0]) == {
        **dict(zip(names, values, strict=True)), "predicted_score": 0.75,
    }  # fmt: skip
    # Columns without a header are numbered.
    examples = read_rows(tmp_path, "a.tsv", "7\tso\tx\n", text="2", header=False)
    answered = [(examples, ANSWERED["regression"][1])]
    expected = ["score\t1\t2\t3", "-1.5000\t7\tso\tx"]
    assert list(written_lines("tsv", models["regression"], answered)) == expected


def test_values_of_json_are_kept(models, tmp_path):
    row = {"text": "a", "id": 0.123456, "tags": ["x", None]}
    answers = ANSWERED["regression"][1]
    examples = read_rows(tmp_path, "a.jsonl", json.dumps(row), text="text")
    [line] = written_lines("jsonl", models["regression"], [(examples, answers)])
    assert json.loads(line) == {"score": -1.5, **row}
    [_, line] = written_lines("tsv", models["regression"], [(examples, answers)])
    assert line == '-1.5000\ta\t0.123456\t["x", null]'
    rows = json.dumps(row) + "\n" + json.dumps(row | {"more": 1})
    examples = read_rows(tmp_path, "b.jsonl", rows, text="text")
    answered = [(examples, np.repeat(answers, 2))]
    assert len(list(written_lines("jsonl", models["regression"], answered))) == 2
    with pytest.raises(ValueError, match=r"has the key 'more', .*\.jsonl"):
        list(written_lines("csv", models["regression"], answered))


def test_tabs_and_line_ends_become_spaces_in_tsv(models):
    texts = tabular.Examples(["so\tgood\r\nfilm"], text_pairs=["a\x85b\u2028c"])
    answered = [(texts, ANSWERED["regression"][1])]
    [line] = written_lines("tsv", models["regression"], answered, header=False)
    assert line == "-1.5000\tso good  film\ta b c"
    [line] = written_lines("jsonl", models["regression"], answered)
    assert json.loads(line)["text"] == "so\tgood\r\nfilm"


def test_probabilities_of_every_class(models):
    for name, scores, columns in (
        ("classification", {"1": 0.1235, "a,b": 0.8765}, {"1": "0.1235", "a,b": "0.8765"}),
        ("chooser", [0.25, 0.75], {"0": "0.2500", "1": "0.7500"}),
    ):
        answered = [ANSWERED[name]]
        [line] = written_lines("jsonl", models[name], answered, probabilities=True)
        assert json.loads(line)["scores"] == scores
        lines = written_lines("csv", models[name], answered, probabilities=True)
        header, row = csv.reader(lines)
        assert columns.items() <= dict(zip(header, row, strict=True)).items()


def test_formats_of_files(models):
    task = registry.for_model(models["chooser"])
    names = {"a.jsonl": "jsonl", "a.ndjson": "jsonl", "a.csv": "csv", "a.txt": "tsv", None: "tsv"}
    assert {name: prediction_files.format_of(name, task) for name in names} == names
    with pytest.raises(ValueError, match=r"a\.json: .* only for question answering; use \.jsonl"):
        prediction_files.format_of("a.json", task)
    reader = models["reader"]
    assert prediction_files.format_of("a.JSON", registry.for_model(reader)) == "json"
    [line] = written_lines("json", reader, [ANSWERED["reader"]])
    assert json.loads(line) == {"7": QUOTED}


def test_labels_that_are_floats_are_not_rounded():
    labels = [0.123456, 2.5]
    encoder = tiny.encoder(num_hidden_layers=1)
    model = heads.classifier(encoder, labels=labels)
    answered = [(tabular.Examples(["a"]), np.array([[0.98764, 0.01236]], np.float32))]
    (line,) = written_lines("jsonl", model, answered)
    assert json.loads(line) == {"label": 0.123456, "score": 0.9876, "text": "a"}
    tagged = [(conll.TaggedSentences([["a"]]), [[("0.123456", 0.98764)]])]
    model = heads.tagger(encoder, labels=labels)
    (line,) = written_lines("jsonl", model, tagged)
    assert json.loads(line) == {"words": ["a"], "tags": [0.123456], "scores": [0.9876]}
    assert list(written_lines("csv", model, tagged))[1] == "1,a,0.123456,0.9876"
