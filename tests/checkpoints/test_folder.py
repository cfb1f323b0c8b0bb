"""Vocabulary files and default tokenizer options."""

import pathlib

import pytest

from keras_bert.checkpoints import folder

FILE = pathlib.Path("vocab.txt")


def test_the_text_of_a_vocabulary_is_unchanged(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n")
    assert folder.read_vocabulary_text(tmp_path / "vocab.txt") == "[PAD]\n"


def test_a_vocabulary_is_optional(tmp_path):
    assert folder.read_optional_vocabulary(tmp_path / "missing.txt", 3) is None


@pytest.mark.parametrize("lowercase", [True, False])
def test_accents_are_stripped_if_text_is_lowercased(lowercase):
    options = folder.default_tokenizer(lowercase)
    assert options["lowercase"] is options["strip_accents"] is lowercase


def test_the_text_of_a_vocabulary_has_one_token_per_line():
    assert folder.vocabulary_text(FILE, ["[PAD]", "a b"]) == "[PAD]\na b\n"


def test_a_token_must_not_have_white_space_around_it():
    message = "^vocab.txt: a token must be a line without white space around it, received 'c '$"
    with pytest.raises(ValueError, match=message):
        folder.vocabulary_text(FILE, ["[PAD]", "a b", "c "])


def test_a_vocabulary_must_not_have_more_tokens_than_ids():
    folder.check_vocabulary_size(FILE, ["[PAD]", "a"], 3)
    with pytest.raises(ValueError, match="^vocab.txt: .*vocab_size 1 ids, received 2$"):
        folder.check_vocabulary_size(FILE, ["[PAD]", "a"], 1)
