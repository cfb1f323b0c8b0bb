"""Reading labelled texts: formats, columns, kinds of labels, and files with faults."""

import decimal
import itertools
import json

import numpy as np
import pytest

from keras_bert.data import tabular


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
        tabular.read(tsv, text="text", label="label"),
        tabular.read(csv, text="text", label="label"),
        tabular.read(jsonl, text="text", label="label"),
        tabular.read(bare, text="2", label="1", format="tsv", header=False),
    ):
        assert examples.texts == ['says "hi, you', "b's"]
        assert examples.labels == ["x", "y"]


def test_csv_fields_may_span_lines_and_be_long(tmp_path):
    long = "word " * 100_000
    file = write(tmp_path / "a.csv", f'text,label\n"two\nlines",1\n{long},2\n')
    assert tabular.read(file, text="text", label="label").texts == ["two\nlines", long]


def test_unicode_line_ends_stay_inside_a_field(tmp_path):
    file = write(tmp_path / "a.tsv", "text\tlabel\na\u2028b\x85c\x0cd\te\n")
    assert tabular.read(file, text="text").texts == ["a\u2028b\x85c\x0cd"]


def test_numbers_are_labels_and_sort_by_value(tmp_path):
    rows = "".join(json.dumps({"text": "a", "label": n}) + "\n" for n in (10, 9, 2))
    examples = tabular.read(write(tmp_path / "a.jsonl", rows), text="text", label="label")
    assert examples.label_names() == ["2", "9", "10"]


def test_a_blank_line_is_a_text_where_lines_are_texts(tmp_path):
    file = write(tmp_path / "a.txt", "good\n\nbad\n")
    assert tabular.read(file, text="1", header=False).texts == ["good", "", "bad"]


def test_limit_and_pairs(tmp_path):
    file = write(tmp_path / "a.tsv", "a\tb\n1\t2\n3\t4\n5\t6\n")
    examples = tabular.read(file, text="a", text_pair="b", limit=2)
    assert (examples.texts, examples.text_pairs) == (["1", "3"], ["2", "4"])


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.tsv", "text\tlabel\na\tb\nc\n", {}, r"a\.tsv, row 3: must have 2 columns; received 1"),
        ("a.tsv", "text\tlabel\na\tb\tc\n", {}, r"a\.tsv, row 2: must have 2 columns; received 3"),
        ("a.tsv", "text\tlabel\ttext\na\tb\tc\n", {}, r"has two columns 'text'"),
        ("a.tsv", "text\tlabel\na\t\n", {}, r"a\.tsv, row 2: the label is empty"),
        ("a.csv", 'text,label\na,"b\nc"\n', {}, r"a\.csv, row 2: a label .* line ends"),
        ("a.csv", 'text,label\n"a,b\nc,d\n', {}, r"a\.csv, after row 1: unexpected end of data"),
        ("a.tsv", "text\tlabel\na\tb\n", {"text_pair": "text"}, r"each column has one use"),
        ("a.jsonl", '{"text": "a", "label": ["b", null]}', {}, r"line 1: 'label' must be a string"),
        ("a.jsonl", '{"text": "a", "label": NaN}', {}, r"line 1: is not JSON \(NaN is no number\)"),
        ("a.jsonl", "[" * 200_000, {}, r"a\.jsonl, line 1: is not JSON"),
        ("a.tsv", "x\ty\na\tb\n", {}, r"a\.tsv: has no column 'text'; its columns are x, y"),
        ("a.tsv", "\n\n", {}, r"has no column 'text'; its columns are without names"),
        ("a.tsv", "text\tlabel\na\tb\n", {"separator": ""}, r"separator .* must not be empty"),
        ("a.tsv", "text\tlabel\n", {}, r"a\.tsv: holds no rows"),
        ("a.tsv", "", {}, r"a\.tsv: holds no rows"),
        (
            "a.tsv",
            b"text\tlabel\n\xff\tb\n",
            {},
            r"a\.tsv, line 2: must be UTF-8; received the byte 0xff",
        ),
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
        tabular.read(write(tmp_path / name, content), text="text", label="label", **options)
    assert "\n" not in str(caught.value)


def test_columns_of_any_kind_are_lists_of_strings():
    columns = tabular.Examples(np.array(["a", "b"]), labels=np.array([1, 0]))
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
        ((["a"], None, [None]), "labels must be there; received None"),
        ((["a"], None, np.array([np.nan], np.float32)), "labels must be there; received .*nan"),
    ],
)
def test_bad_columns_are_an_error(columns, message):
    with pytest.raises(ValueError, match=message):
        tabular.Examples(*columns)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"scores": [1, None]}, "the examples: scores must be numbers; received None"),
        ({"scores": [1, "nan"]}, "scores must be numbers; received 'nan'"),
        ({"scores": [1, 1e39]}, "scores must be at most 1e[+]18 in size; received 1e[+]39"),
        ({"scores": [1, 2, 3]}, "scores must be as many as the texts, 2; received 3"),
        ({"label_sets": [["x"]]}, "label_sets must be as many as the texts, 2; received 1"),
        ({"label_sets": [["x"], "y,z"]}, "must be a list of labels; received 'y,z'"),
        ({"label_sets": [["x"], [None]]}, "labels must be there; received None"),
        ({"labels": ["x", "y"], "scores": [1, 2]}, "labels, label_sets and scores exclude"),
    ],
)
def test_bad_kinds_of_labels_are_an_error(columns, message):
    with pytest.raises(ValueError, match=message):
        tabular.Examples(["a", "b"], **columns)


@pytest.mark.parametrize("label", [None, "", float("nan"), decimal.Decimal("nan"), b"p"])
def test_labels_must_be_there(label):
    for column in ({"labels": [label, "x"]}, {"label_sets": [[label], ["x"]]}):
        with pytest.raises(ValueError, match="labels must be (there|strings); received"):
            tabular.Examples(["a", "b"], **column)
    if label is not None and label != "" and not isinstance(label, bytes):
        with pytest.raises(ValueError, match="each of label_sets must be a list of labels"):
            tabular.Examples(["a"], label_sets=[label])


def test_a_line_end_of_another_kind_is_an_error(tmp_path):
    file = write(tmp_path / "a.tsv", "0\ta b\n1\tc\r0\tz\r\n")
    with pytest.raises(ValueError, match="line 2: lines must end in .* received .r$"):
        tabular.read(file, text="2", label="1", header=False)


def test_scores_beyond_all_numbers_are_an_error():
    with pytest.raises(ValueError, match="scores must be numbers; received 1000"):
        tabular.Examples(["a"], scores=[10**400])


def test_an_example_is_named_by_its_row(tmp_path):
    file = write(tmp_path / "a.csv", 'text,label\n\n"a\nb",x\nc,y\n')
    examples = tabular.read(file, text="text", label="label")
    assert [examples.place(index) for index in range(2)] == [f"{file}, row 3", f"{file}, row 4"]
    file = write(tmp_path / "a.jsonl", '\n{"text": "a"}\n{"text": "b"}\n')
    parts = list(tabular.read_in_parts(file, text="text", size=1))
    assert [part.place(0) for part in parts] == [f"{file}, line 2", f"{file}, line 3"]


def test_label_sets_and_scores_of_any_kind():
    sets = tabular.Examples(["a", "b", "c"], label_sets=[["x", 10], (), np.array([9])])
    assert sets.label_sets == [("x", "10"), (), ("9",)]
    assert sets.label_names() == ["10", "9", "x"]
    assert tabular.Examples(["a", "b"], scores=np.array([1, 2.5])).scores == [1.0, 2.5]
    assert tabular.Examples(["a", "b"], scores=["1", "-2e1"]).scores == [1.0, -20.0]


def test_space_around_a_label_is_none_of_it(tmp_path):
    file = write(tmp_path / "a.tsv", "text\tlabel\na\tx\nb\tx \nc\t \u3000x\n")
    assert tabular.read(file, text="text", label="label").labels == ["x", "x", "x"]


def test_json_labels_are_as_they_stand_there(tmp_path):
    rows = '{"text": "a", "label": %s}\n'
    file = write(tmp_path / "a.jsonl", "".join(rows % x for x in ("true", "1", '"x"', "1.5")))
    assert tabular.read(file, text="text", label="label").labels == ["true", "1", "x", "1.5"]


def test_majority():
    assert tabular.Examples(["a"] * 4, labels=["x", "y", "x", "x"]).majority_share() == 0.75


# --- Kinds of labels in files


def test_label_sets_in_files(tmp_path):
    tsv = write(tmp_path / "a.tsv", "text\tlabel\na\tx, y\nb\t\nc\ty\n")
    rows = [{"text": "a", "label": ["x", "y"]}, {"text": "b", "label": []}]
    rows.append({"text": "c", "label": "y"})
    jsonl = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    for file in (tsv, jsonl):
        examples = tabular.read(file, text="text", label="label", kind="label_set")
        assert examples.label_sets == [("x", "y"), (), ("y",)]
        assert (examples.labels, examples.scores) == (None, None)
    other = write(tmp_path / "b.tsv", "text\tlabel\na\tx, y|z\n")
    options = {"text": "text", "label": "label", "kind": "label_set"}
    assert tabular.read(other, **options, separator="|").label_sets == [("x, y", "z")]


def test_scores_in_files(tmp_path):
    tsv = write(tmp_path / "a.tsv", "text\tlabel\na\t5.000\nb\t-1e-1\n")
    jsonl = write(tmp_path / "a.jsonl", '{"text": "a", "label": 5}\n{"text": "b", "label": "-.1"}')
    for file in (tsv, jsonl):
        examples = tabular.read(file, text="text", label="label", kind="score")
        assert examples.scores == [5.0, -0.1]
        assert (examples.labels, examples.label_sets) == (None, None)


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("a.tsv", "text\tlabel\na\t1\nb\tx\n", "score", r"row 3: scores .* received 'x'"),
        ("a.tsv", "text\tlabel\na\tinf\n", "score", r"row 2: scores .* received 'inf'"),
        ("a.tsv", "text\tlabel\na\t\n", "score", r"row 2: scores .* received ''"),
        ("a.tsv", "text\tlabel\na\t1\nb\t-1e19\n", "score", r"row 3: scores must be at most 1e"),
        ("a.jsonl", '{"text": "a", "label": "\\ud800x"}', "label", r"line 1: .* half pairs; rec"),
        ("a.jsonl", '{"text": "a", "label": ["\\ud800"]}', "label_set", r"line 1: .* half pairs"),
        ("a.jsonl", '{"text": "a", "label": ["a\\tb"]}', "label_set", r"line 1: a label .* tabs"),
        ("a.tsv", "text\tlabel\na\tb\0\n", "label", r"row 2: a label .* NUL"),
        ("a.jsonl", '{"text": "a", "label": [1]}', "score", r"line 1: scores .* received \['1'\]"),
        (
            "a.jsonl",
            '{"text": "a", "label": ["x"]}',
            "label",
            r"line 1: a label .* received a list",
        ),
        ("a.jsonl", '{"text": ["a"], "label": "x"}', "label", r"'text' must be a string"),
        ("a.jsonl", '{"text": "a", "label": {}}', "label_set", r"'label' must be a string"),
        ("a.tsv", "text\tlabel\na\tx\n", "class", "kind must be label, .* received 'class'"),
    ],
)
def test_bad_labels_are_named(tmp_path, name, content, kind, message):
    with pytest.raises(ValueError, match=message):
        tabular.read(write(tmp_path / name, content), text="text", label="label", kind=kind)


# --- Files of any size


def test_parts_are_the_whole(tmp_path):
    rows = [f"text {n}\tpair {n}\t{n % 3}\n" for n in range(10)]
    file = write(tmp_path / "a.tsv", "text\tb\tlabel\n" + "".join(rows))
    options = {"text": "text", "text_pair": "b", "label": "label"}
    whole = tabular.read(file, **options)
    for size in (1, 3, 5, 10, 99):
        parts = list(tabular.read_in_parts(file, **options, size=size))
        assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)
        assert 0 < len(parts[-1]) <= size
        for column in ("texts", "text_pairs", "labels"):
            assert [x for part in parts for x in getattr(part, column)] == getattr(whole, column)
    limited = list(tabular.read_in_parts(file, **options, size=3, limit=6))
    assert [len(part) for part in limited] == [3, 3]


def test_a_part_is_read_when_it_is_wanted(tmp_path):
    file = write(tmp_path / "a.tsv", "text\tx\na\tb\nc\td\ne\n")
    parts = tabular.read_in_parts(file, text="text", size=2)
    assert next(parts).texts == ["a", "c"]
    with pytest.raises(ValueError, match="row 4: must have 2 columns; received 1"):
        next(parts)


# --- GLUE, the first rows as its archives have them

HEADERS = {
    "CoLA": None,
    "SST-2": "sentence\tlabel",
    "MRPC": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "STS-B": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\t"
    "sentence2\tscore",
    "QQP": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "MNLI": "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
    "QNLI": "index\tquestion\tsentence\tlabel",
    "RTE": "index\tsentence1\tsentence2\tlabel",
    "WNLI": "index\tsentence1\tsentence2\tlabel",
}
TEXT_COLUMNS = {
    "CoLA": ["sentence"],
    "SST-2": ["sentence"],
    "MRPC": ["#1 String", "#2 String"],
    "QQP": ["question1", "question2"],
    "QNLI": ["question", "sentence"],
}
LABEL_COLUMNS = {"MRPC": "Quality", "QQP": "is_duplicate", "MNLI": "gold_label"}


@pytest.mark.parametrize("task", tabular.GLUE)
def test_glue_reads_the_columns_of_each_task(tmp_path, task):
    header = HEADERS[task]
    # Each value is the name of its column, so that what is read tells where it stood.
    names = ["source", "label", "mark", "sentence"] if header is None else header.split("\t")
    row = ["3.5" if name == "score" else name for name in names]
    folder = tmp_path / task
    folder.mkdir()
    lines = ["\t".join(row)] if header is None else [header, "\t".join(row)]
    write(folder / "train.tsv", "\n".join(lines) + "\n")
    examples = tabular.read_glue(folder)
    first, *second = TEXT_COLUMNS.get(task, ["sentence1", "sentence2"])
    assert examples.texts == [first]
    assert examples.text_pairs == (second or None)
    if task == "STS-B":
        assert examples.scores == [3.5]
    else:
        assert examples.labels == [LABEL_COLUMNS.get(task, "label")]


def test_glue_by_another_name_and_split(tmp_path):
    line = HEADERS["MNLI"] + "\n"
    write(tmp_path / "dev_matched.tsv", line * 2)
    write(tmp_path / "dev_mismatched.tsv", line * 3)
    assert len(tabular.read_glue(tmp_path, "dev", task="mnli")) == 1
    assert len(tabular.read_glue(tmp_path, "dev_mismatched", task="MNLI")) == 2
    assert len(tabular.read_glue(tmp_path, "dev_mismatched", task="MNLI", limit=1)) == 1
    with pytest.raises(ValueError, match="must be one of GLUE's tasks, CoLA, SST-2, MRPC"):
        tabular.read_glue(tmp_path)
    with pytest.raises(FileNotFoundError):
        tabular.read_glue(tmp_path, "test", task="MNLI")


def test_broken_rows_of_qqp_are_left_out_and_counted(tmp_path):
    row = "1\t2\t3\tIs it?\tWas it?\t0\n"
    broken = "\tWas he real?\t0\n"  # as its train.tsv has it, a question with a line end in it
    write(tmp_path / "train.tsv", HEADERS["QQP"] + "\n" + row + broken + row)
    examples = tabular.read_glue(tmp_path, task="QQP")
    assert (examples.labels, examples.ragged_rows) == (["0", "0"], 1)
    columns = {name: tabular.GLUE["QQP"][name] for name in ("text", "text_pair", "label")}
    with pytest.raises(ValueError, match=r"train\.tsv, row 3: must have 6 columns; received 3"):
        tabular.read(tmp_path / "train.tsv", **columns)


def test_a_label_that_is_no_number_among_numbers():
    """Whatever order a set has: "nan" can be compared with nothing."""
    names = ["10", "nan", "1", "2"]
    for order in itertools.permutations(names):
        examples = tabular.Examples(["a"] * 4, labels=list(order))
        assert examples.label_names() == ["1", "10", "2", "nan"]
