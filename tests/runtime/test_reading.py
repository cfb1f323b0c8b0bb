"""Bounded reading of untrusted files, and one-line errors."""

import pytest

from keras_bert.runtime import reading


@pytest.mark.parametrize("read", [reading.read_bytes, reading.read_text])
def test_files_over_the_limit_are_errors(tmp_path, read):
    file = tmp_path / "a.txt"
    file.write_bytes(b"good")
    assert len(read(file, 4)) == 4
    with pytest.raises(ValueError, match="a.txt: must have at most 3 bytes"):
        read(file, 3)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "b.txt", 3)


def test_text_that_is_not_utf8(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes("good\né".encode("latin-1"))
    with pytest.raises(ValueError, match="a.txt: .* byte 0xe9 in line 2"):
        reading.read_text(file, 100)


@pytest.mark.parametrize(
    ("data", "received"),
    [
        (b'{"a": 1', "Expecting"),
        (b"", "Expecting value"),
        (b'{"a": "\xff"}', "codec can't decode"),
        (b"[1]", "object, received list"),
        (b"[" * 100_000, "100000 nested values, at most 100 are allowed"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "101 nested values"),
        (b"[" + b"[]," * 3_000_000 + b"1]", "3000001 lists and objects"),
        (b'{"a":[' + b"1," * 9_000_000 + b"1]}", "9000002 values"),
        (b'["a' + b'\\"[' * 1_000_000, "Unterminated string"),
    ],
)
def test_parse_json_errors(data, received):
    with pytest.raises(ValueError, match="config.json: must .*received ") as error:
        reading.parse_json(data, "config.json")
    assert received in str(error.value)
    assert "\n" not in str(error.value)


def test_large_json_within_the_limits():
    """A tokenizer.json with 500,000 tokens and a million merges."""
    pairs = ",".join(f'["[{number}", ",]"]' for number in range(1_000_000))
    tokens = ",".join(f'"[unused{number}]":{number}' for number in range(500_000))
    text = f'{{"vocab":{{{tokens}}},"merges":[{pairs}]}}'
    found = reading.parse_json(text.encode(), "tokenizer.json")
    assert len(found["merges"]) == 1_000_000 and found["vocab"]["[unused7]"] == 7


def test_brackets_and_commas_in_strings_do_not_count():
    text = '["' + '[{,\\"' * 3_000_000 + '"]'
    assert len(reading.parse_json_list(text.encode(), "a.json")[0]) == 12_000_000


def test_one_line_is_short_and_printable():
    message = reading.one_line(ValueError("a\n\tb\x1b[2J" + "c" * 1000))
    assert message.startswith("a b\\x1b[2Jccc") and message.isprintable()
    assert len(message) < 520
    assert reading.one_line(KeyError()) == "KeyError"
