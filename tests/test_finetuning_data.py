"""Reading labelled texts: formats, columns, kinds of labels, and files with faults."""

import json

import numpy as np
import pytest

from keras_bert.finetuning import data


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_formats_agree(tmp_path):
    tsv = write(tmp_path / "a.tsv", "id\ttext\tlabel\n1\tsays \"hi, you\tx\n\n2\tb's\ty\n")
    csv = write(tmp_path / "a.csv", 'id,text,label\r\n1,"says ""hi, you",x\r\n2,b\'s,y\r\n')
    jsonl = write(
        tmp_path / "a.jsonl",
        '{"text": "says \\"hi, you", "label": "x"}\n\n{"text": "b\'s", "label": "y"}\n',
    )
    bare = write(tmp_path / "plain", "\ufeffx\tsays \"hi, you\r\ny\tb's")
    for examples in (
        data.read(tsv, text="text", label="label"),
        data.read(csv, text="text", label="label"),
        data.read(jsonl, text="text", label="label"),
        data.read(bare, text="2", label="1", format="tsv", header=False),
    ):
        assert examples.texts == ['says "hi, you', "b's"]
        assert examples.labels == ["x", "y"]


def test_csv_fields_may_span_lines_and_be_long(tmp_path):
    long = "word " * 100_000
    file = write(tmp_path / "a.csv", f'text,label\n"two\nlines",1\n{long},2\n')
    assert data.read(file, text="text", label="label").texts == ["two\nlines", long]


def test_unicode_line_ends_stay_inside_a_field(tmp_path):
    file = write(tmp_path / "a.tsv", "text\tlabel\na\u2028b\x85c\x0cd\te\n")
    assert data.read(file, text="text").texts == ["a\u2028b\x85c\x0cd"]


def test_numbers_are_labels_and_sort_by_value(tmp_path):
    rows = "".join(json.dumps({"text": "a", "label": n}) + "\n" for n in (10, 9, 2))
    examples = data.read(write(tmp_path / "a.jsonl", rows), text="text", label="label")
    assert examples.label_names() == ["2", "9", "10"]


def test_a_blank_line_is_a_text_where_lines_are_texts(tmp_path):
    file = write(tmp_path / "a.txt", "good\n\nbad\n")
    assert data.read(file, text="1", header=False).texts == ["good", "", "bad"]


def test_limit_and_pairs(tmp_path):
    file = write(tmp_path / "a.tsv", "a\tb\n1\t2\n3\t4\n5\t6\n")
    examples = data.read(file, text="a", text_pair="b", limit=2)
    assert (examples.texts, examples.text_pairs) == (["1", "3"], ["2", "4"])


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.tsv", "text\tlabel\na\tb\nc\n", {}, r"a\.tsv, row 3: must have 2 columns; received 1"),
        ("a.tsv", "text\tlabel\na\tb\tc\n", {}, r"a\.tsv, row 2: must have 2 columns; received 3"),
        ("a.tsv", "text\tlabel\ttext\na\tb\tc\n", {}, r"has two columns 'text'"),
        ("a.tsv", "text\tlabel\na\t\n", {}, r"a\.tsv, row 2: the label is empty"),
        ("a.csv", 'text,label\n"a,b\nc,d\n', {}, r"a\.csv, after row 1: unexpected end of data"),
        ("a.tsv", "text\tlabel\na\tb\n", {"text_pair": "text"}, r"each column has one use"),
        ("a.jsonl", "[" * 200_000, {}, r"a\.jsonl, line 1: is not JSON"),
        ("a.tsv", "x\ty\na\tb\n", {}, r"a\.tsv: has no column 'text'; its columns are x, y"),
        ("a.tsv", "text\tlabel\n", {}, r"a\.tsv: holds no rows"),
        ("a.tsv", "", {}, r"a\.tsv: holds no rows"),
        ("a.tsv", b"text\tlabel\n\xff\tb\n", {}, r"a\.tsv: must be UTF-8; received the byte 0xff"),
        ("a.dat", "a", {}, r"a\.dat: the format must be one of tsv, csv, jsonl; received '\.dat'"),
        ("a.tsv", "a\tb\n", {"header": False}, r"without a header a column is a number from 1"),
        ("a.jsonl", "{", {}, r"a\.jsonl, line 1: is not JSON"),
        ("a.jsonl", "[1]", {}, r"a\.jsonl, line 1: must be a JSON object"),
        ("a.jsonl", '{"text": "a"}', {}, r"a\.jsonl, line 1: has no key 'label'"),
        ("a.jsonl", '{"text": null, "label": "a"}', {}, r"'text' must be a string; received null"),
        (
            "a.jsonl",
            '{"text": 3, "label": "a"}',
            {},
            r"line 1: 'text' must be a string; received 3",
        ),
        ("a.jsonl", '{"text": "3", "label": null}', {}, r"'label' must be a string; received null"),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        data.read(write(tmp_path / name, content), text="text", label="label", **options)
    assert "\n" not in str(caught.value)


def test_columns_of_any_kind_are_lists_of_strings():
    columns = data.Examples(np.array(["a", "b"]), labels=np.array([1, 0]))
    assert (columns.texts, columns.labels) == (["a", "b"], ["1", "0"])
    assert columns.label_names() == ["0", "1"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("good",), "texts must be a list of strings; received one string"),
        ((["good", None],), "texts must be strings; received None"),
        ((["good", 3],), "texts must be strings; received 3"),
        ((["a"], ["b", "c"]), "text_pairs must be as many as the texts, 1; received 2"),
        ((["a"], None, ["x", "y"]), "labels must be as many as the texts, 1; received 2"),
    ],
)
def test_bad_columns_are_an_error(columns, message):
    with pytest.raises(ValueError, match=message):
        data.Examples(*columns)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"scores": [1.0]}, "scores must be as many as the texts, 2; received 1"),
        ({"scores": [1.0, None]}, "scores must be numbers; received None"),
        ({"scores": [1.0, float("nan")]}, "scores must be numbers; received nan"),
        ({"label_sets": [["x"]]}, "label_sets must be as many as the texts, 2; received 1"),
        ({"labels": ["x", "y"], "scores": [1, 2]}, "exclude each other"),
    ],
)
def test_other_kinds_of_labels_are_checked(columns, message):
    with pytest.raises(ValueError, match=message):
        data.Examples(["a", "b"], **columns)


def test_scores(tmp_path):
    tsv = write(tmp_path / "a.tsv", "text\tlabel\na\t0.5\nb\t3\n")
    jsonl = write(tmp_path / "a.jsonl", '{"text": "a", "label": 0.5}\n{"text": "b", "label": 3}\n')
    for file in (tsv, jsonl):
        examples = data.read(file, text="text", label="label", kind="score")
        assert (examples.scores, examples.labels) == ([0.5, 3.0], None)
    file = write(tmp_path / "b.tsv", "text\tlabel\na\tmuch\n")
    with pytest.raises(ValueError, match=r"b\.tsv, row 2: scores must be numbers; received 'much'"):
        data.read(file, text="text", label="label", kind="score")


def test_label_sets(tmp_path):
    tsv = write(tmp_path / "a.tsv", "text\tlabel\na\tx| y\nb\t\n")
    jsonl = write(
        tmp_path / "a.jsonl", '{"text": "a", "label": ["x", "y"]}\n{"text": "b", "label": []}\n'
    )
    for file in (tsv, jsonl):
        examples = data.read(file, text="text", label="label", kind="label_set", separator="|")
        assert examples.label_sets == [("x", "y"), ()]
        assert examples.label_names() == ["x", "y"]
    with pytest.raises(ValueError, match="a label must be a string; received a list"):
        data.read(jsonl, text="text", label="label")


def test_a_file_is_read_in_parts(tmp_path):
    file = write(tmp_path / "a.tsv", "text\tlabel\n" + "".join(f"{n}\tx\n" for n in range(7)))
    parts = list(data.read_in_parts(file, text="text", label="label", size=3))
    assert [part.texts for part in parts] == [["0", "1", "2"], ["3", "4", "5"], ["6"]]
    assert all(part.labels == ["x"] * len(part) for part in parts)
    parts = data.read_in_parts(file, text="text", size=3, limit=3)
    assert [len(part) for part in parts] == [3]
    with pytest.raises(ValueError, match="kind must be label, label_set or score; received 'x'"):
        data.read(file, text="text", kind="x")


GLUE = {
    "CoLA": ("gj04\t1\t\tIt is good.\n", ["It is good."], None, ["1"]),
    "SST-2": ("sentence\tlabel\nso good\t1\n", ["so good"], None, ["1"]),
    "MRPC": (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\ta\tb\n", ["a"], ["b"], ["0"]
    ),
    "STS-B": ("sentence1\tsentence2\tscore\na\tb\t2.5\n", ["a"], ["b"], [2.5]),
    "QNLI": ("question\tsentence\tlabel\na\tb\tentailment\n", ["a"], ["b"], ["entailment"]),
}  # fmt: skip


@pytest.mark.parametrize("task", GLUE)
def test_glue_folders(tmp_path, task):
    content, texts, pairs, labels = GLUE[task]
    folder = tmp_path / task
    folder.mkdir()
    write(folder / "train.tsv", content)
    examples = data.read_glue(folder)
    assert (examples.texts, examples.text_pairs) == (texts, pairs)
    assert (examples.scores if task == "STS-B" else examples.labels) == labels


def test_glue_names_its_folders_and_files(tmp_path):
    with pytest.raises(ValueError, match="the folder of GLUE must be one of CoLA, SST-2"):
        data.read_glue(tmp_path / "other")
    write(tmp_path / "dev_matched.tsv", "sentence1\tsentence2\tgold_label\na\tb\tneutral\n")
    assert data.read_glue(tmp_path, "dev", task="mnli").labels == ["neutral"]
    with pytest.raises(FileNotFoundError):
        data.read_glue(tmp_path, "train", task="MNLI")
