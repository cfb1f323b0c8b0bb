"""Attack: data files of many columns, long numbers and control characters."""

import itertools
import string
import time

import pytest

import keras_bert
from tests.machine import slowness
from tests.tiny import write_file

DIGITS = "9" * 5000  # Python converts at most 4300 digits


def test_many_columns(tmp_path):
    names = map("".join, itertools.product(string.ascii_lowercase, repeat=3))
    header = ",".join(["sent1", "sent2", "ending0", *names])
    file = write_file(tmp_path / "a.csv", f"{header}\n")
    start = time.process_time()
    with pytest.raises(ValueError, match="contains no rows"):
        keras_bert.read(file, "multiple_choice")
    assert time.process_time() - start < 1 * slowness()


def test_names_of_columns_are_printable(tmp_path):
    file = write_file(tmp_path / "a.csv", "sent1,\x1b[2J\n")
    with pytest.raises(ValueError, match=r"sent1, \\x1b\[2J") as caught:
        keras_bert.read(file, "multiple_choice")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("task", "name", "content"),
    [
        ("multiple_choice", "a.csv", f"sent1,sent2,ending0,ending{DIGITS}\n"),
        (
            "multiple_choice",
            "a.jsonl",
            f'{{"text": "a", "choices": ["a", "b"], "label": "{DIGITS}"}}\n',
        ),
        ("tagging", "a.conll", "1 a b\n\n" * 200 + f"{DIGITS} c d\n"),
        ("tagging", "a.conllu", f"{DIGITS}\t" + "\t".join("abcdefghi") + "\n"),
    ],
)
def test_long_numbers(tmp_path, task, name, content):
    file = write_file(tmp_path / name, content)
    with pytest.raises(ValueError, match=rf"{name}(, line \d+)?: ") as caught:
        keras_bert.read(file, task)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("digits", [400, 5000])
def test_labels_of_many_digits(tmp_path, digits):
    file = write_file(tmp_path / "a.csv", f"text,label\na,{'1' * digits}\nb,2\n")
    assert keras_bert.read(file).labels == ["1" * digits, "2"]
