"""Tests of reading labeled texts: formats, columns, labels, errors, parts, GLUE."""

import pytest

from keras_bert.data import tabular
from tests.tiny import write_file


def test_a_file_without_a_header(tmp_path):
    file = write_file(tmp_path / "plain", "\ufeffx\tsays \"hi, you\r\ny\tb's")
    examples = tabular.read(file, text="2", label="1", format="tsv", header=False)
    assert examples.texts == ['says "hi, you', "b's"]
    assert examples.labels == ["x", "y"]


def test_csv_fields_may_span_lines_and_be_long(tmp_path):
    long = "word " * 100_000
    file = write_file(tmp_path / "a.csv", f'text,label\n"two\nlines",1\n{long},2\n')
    assert tabular.read(file, text="text", label="label").texts == ["two\nlines", long]


def test_unicode_line_ends_do_not_end_a_row(tmp_path):
    file = write_file(tmp_path / "a.tsv", "text\tlabel\na\u2028b\x85c\x0cd\te\n")
    assert tabular.read(file, text="text").texts == ["a\u2028b\x85c\x0cd"]


def test_blank_line_is_a_text_in_a_file_of_texts_only(tmp_path):
    file = write_file(tmp_path / "a.txt", "good\n\nbad\n")
    assert tabular.read(file, text="1", header=False).texts == ["good", "", "bad"]


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.tsv", "text\tlabel\na\tb\nc\n", {}, r"a\.tsv, row 3: must have 2 columns; received 1"),
        ("a.tsv", "text\tlabel\ttext\na\tb\tc\n", {}, r"has two columns 'text'"),
        ("a.csv", 'text,label\n"a,b\nc,d\n', {}, r"a\.csv, after row 1: unexpected end of data"),
        ("a.jsonl", '{"text": "a", "label": ["b", null]}', {}, "line 1: labels must be strings"),
        ("a.jsonl", "[" * 200_000, {}, r"a\.jsonl, line 1 is not JSON"),
        ("a.tsv", "x\ty\na\tb\n", {}, r"a\.tsv has no column 'text'; its columns are x, y"),
        ("a.csv", "text;label\na;b\n", {}, r"columns are text;label; .* a DataFrame"),
        ("a.tsv", "text\tlabel\n", {}, r"a\.tsv contains no rows"),
        ("a.tsv", b"text\tlabel\n\xff\tb\n", {}, r"line 2: must be UTF-8; received the byte 0xff"),
        ("a.dat", "a", {}, r"a\.dat: the format must be one of tsv, csv, jsonl; received '\.dat'"),
        ("a.tsv", "a\tb\n", {"header": False}, r"without a header a column is a number from 1"),
        ("a.jsonl", '{"text": "a"}', {}, r"a\.jsonl, line 1 has no key 'label'"),
    ],
)
def test_errors_name_file_and_row(tmp_path, name, content, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        tabular.read(write_file(tmp_path / name, content), text="text", label="label", **options)
    assert "\n" not in str(caught.value)


def test_other_line_ends_are_rejected(tmp_path):
    file = write_file(tmp_path / "a.tsv", "0\ta b\n1\tc\r0\tz\r\n")
    with pytest.raises(ValueError, match="line 2: lines must end in .* received .r$"):
        tabular.read(file, text="2", label="1", header=False)


def test_location(tmp_path):
    file = write_file(tmp_path / "a.csv", 'text,label\n\n"a\nb",x\nc,y\n')
    examples = tabular.read(file, text="text", label="label")
    assert [examples.location(index) for index in range(2)] == [f"{file}, row 3", f"{file}, row 4"]
    file = write_file(tmp_path / "a.jsonl", '\n{"text": "a"}\n{"text": "b"}\n')
    parts = list(tabular.read_in_parts(file, text="text", size=1))
    assert [part.location(0) for part in parts] == [f"{file}, line 2", f"{file}, line 3"]


def test_white_space_around_labels_is_stripped(tmp_path):
    file = write_file(tmp_path / "a.tsv", "text\tlabel\na\tx\nb\tx \nc\t \u3000x\n")
    assert tabular.read(file, text="text", label="label").labels == ["x", "x", "x"]


def test_json_labels_keep_their_spelling(tmp_path):
    rows = '{"text": "a", "label": %s}\n'
    file = write_file(tmp_path / "a.jsonl", "".join(rows % x for x in ("true", "1", '"x"', "1.5")))
    assert tabular.read(file, text="text", label="label").labels == ["True", "1", "x", "1.5"]


def test_separator_of_label_sets(tmp_path):
    file = write_file(tmp_path / "a.tsv", "text\tlabel\na\tx, y|z\n")
    examples = tabular.read(file, text="text", label="label", kind="label_set", separator="|")
    assert examples.label_sets == [("x, y", "z")]


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("a.tsv", "text\tlabel\na\t1\nb\tx\n", "score", r"row 3: scores .* received 'x'"),
        ("a.tsv", "text\tlabel\na\t\n", "score", r"row 2: scores .* received ''"),
        ("a.jsonl", '{"text": "a", "label": [1]}', "score", r"line 1: scores .* received \[1\]"),
        ("a.jsonl", '{"text": ["a"], "label": "x"}', "label", "line 1: texts must be strings"),
        ("a.jsonl", '{"text": "a", "label": {}}', "label_set", "line 1: label_sets must be"),
    ],
)
def test_errors_name_the_row_of_a_label(tmp_path, name, content, kind, message):
    with pytest.raises(ValueError, match=message):
        tabular.read(write_file(tmp_path / name, content), text="text", label="label", kind=kind)


def test_parts_make_up_the_file(tmp_path):
    rows = [f"text {n}\tpair {n}\t{n % 3}\n" for n in range(10)]
    file = write_file(tmp_path / "a.tsv", "text\tb\tlabel\n" + "".join(rows))
    options = {"text": "text", "text_pair": "b", "label": "label"}
    whole = tabular.read(file, **options)
    for size in (3, 5, 99):
        parts = list(tabular.read_in_parts(file, **options, size=size))
        assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)
        assert 0 < len(parts[-1]) <= size
        for column in ("texts", "text_pairs", "labels"):
            assert [x for part in parts for x in getattr(part, column)] == getattr(whole, column)
    limited = list(tabular.read_in_parts(file, **options, size=3, limit=6))
    assert [len(part) for part in limited] == [3, 3]


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
    # Each value is the name of its column, to identify the columns that are read.
    names = ["source", "label", "mark", "sentence"] if header is None else header.split("\t")
    row = ["3.5" if name == "score" else name for name in names]
    folder = tmp_path / task
    folder.mkdir()
    lines = ["\t".join(row)] if header is None else [header, "\t".join(row)]
    write_file(folder / "train.tsv", "\n".join(lines) + "\n")
    examples = tabular.read_glue(folder)
    first, *second = TEXT_COLUMNS.get(task, ["sentence1", "sentence2"])
    assert examples.texts == [first]
    assert examples.text_pairs == (second or None)
    if task == "STS-B":
        assert examples.scores == [3.5]
    else:
        assert examples.labels == [LABEL_COLUMNS.get(task, "label")]


def test_glue_splits(tmp_path):
    folder = tmp_path / "mnli"
    folder.mkdir()
    line = HEADERS["MNLI"] + "\n"
    write_file(folder / "dev_matched.tsv", line * 2)
    write_file(folder / "dev_mismatched.tsv", line * 3)
    assert len(tabular.read_glue(folder, "dev")) == 1
    assert len(tabular.read_glue(folder, "dev_mismatched")) == 2
    assert len(tabular.read_glue(folder, "dev_mismatched", limit=1)) == 1
    with pytest.raises(ValueError, match="must be one of GLUE's tasks, CoLA, SST-2, MRPC"):
        tabular.read_glue(tmp_path)


def test_ragged_rows_of_qqp_are_skipped_and_counted(tmp_path):
    folder = tmp_path / "QQP"
    folder.mkdir()
    row = "1\t2\t3\tIs it?\tWas it?\t0\n"
    broken = "\tWas he real?\t0\n"  # as in its train.tsv, where a question holds a line end
    write_file(folder / "train.tsv", HEADERS["QQP"] + "\n" + row + broken + row)
    examples = tabular.read_glue(folder)
    assert (examples.labels, examples.ragged_rows) == ([0, 0], 1)
    assert len(tabular.read_glue(folder, limit=2)) == 2
