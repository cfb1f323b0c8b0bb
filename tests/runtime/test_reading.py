"""Bounded reading of untrusted files, and one-line errors."""

import keras
import numpy as np
import pytest

from keras_bert.runtime import reading


def test_files_over_the_limit_are_errors(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"good")
    assert len(reading.read_bytes(file, 4)) == 4
    with pytest.raises(ValueError, match="a.txt: 4 bytes, at most 3 are allowed"):
        reading.read_bytes(file, 3)
    with pytest.raises(FileNotFoundError):
        reading.read_bytes(tmp_path / "b.txt", 3)


def test_text_that_is_not_utf8(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes("good\né".encode("latin-1"))
    with pytest.raises(ValueError, match="a.txt: .* byte 0xe9 in line 2"):
        reading.read_text(file)


@pytest.mark.parametrize(
    ("data", "received"),
    [
        (b'{"a": 1', "Expecting"),
        (b"", "Expecting value"),
        (b'{"a": "\xff"}', "codec can't decode"),
        (b"[1]", "object, received list"),
        (b"[" * 100_000, "100000 nested values, at most 100 are allowed"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "101 nested values"),
        (b'["a' + b'\\"[' * 1_000_000, "Unterminated string"),
    ],
)
def test_parse_json_errors(data, received):
    with pytest.raises(ValueError, match="config.json(: must| cannot be read as JSON)") as error:
        reading.parse_json(data, "config.json")
    assert received in str(error.value)
    assert "\n" not in str(error.value)


def test_brackets_and_commas_in_strings_do_not_count():
    text = '["' + '[{,\\"' * 3_000_000 + '"]'
    assert len(reading.parse_json_list(text.encode(), "a.json")[0]) == 12_000_000


def test_one_line_is_short_and_printable():
    message = reading.one_line(ValueError("a\n\tb\x1b[2J" + "c" * 1000))
    assert message.startswith("a b\\x1b[2Jccc") and message.isprintable()
    assert len(message) < 520
    assert reading.one_line(KeyError()) == "KeyError"


class Picky(keras.layers.Layer):
    """A layer that refuses its call."""

    def call(self, x):
        raise ValueError("x must be \x1b[2Jsmaller,\nor absent")


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        (lambda: Picky()(np.ones((1, 1))), r"x must be \x1b[2Jsmaller, or absent"),
        (lambda: keras.layers.Activation("elu")(np.zeros((), "S1")), "string"),
        (lambda: keras.saving.deserialize_keras_object({"class_name": "X", "config": {}}), "'X'"),
    ],
)
def test_the_reason_of_an_error_of_keras(fail, reason):
    with pytest.raises(Exception) as caught:  # noqa: B017, PT011
        fail()
    line = reading.one_line(caught.value)
    assert reason in line and line.isprintable()
    for around in ("Exception encountered", "Arguments received", "Full object config", "[1m"):
        assert around not in line
    assert line.startswith(reading.first_line(caught.value).rstrip())
