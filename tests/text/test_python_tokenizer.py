"""The tokenizer without TensorFlow has the ids and the offsets of the one with it."""

import pytest

from keras_bert.text.python_tokenizer import PythonTokenizer
from tests.fuzz import random_texts
from tests.parameters import fast, needs_tensorflow
from tests.reference_tokenizer import ReferenceTokenizer, stable

NAMES = ("uncased", "cased", "multilingual", "korean", "chinese words", "accents only")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [300, pytest.param(34_000, marks=pytest.mark.slow)])
def test_random_texts(vocabularies, name, count):
    tokens, options = vocabularies[name]
    tokenizer = PythonTokenizer(tokens, **options)
    reference = ReferenceTokenizer(tokens, **options)
    seen = set()
    for text in random_texts(count, NAMES.index(name), tokens, stable):
        expected = reference.tokenize(text)
        assert tokenizer.tokenize([text]) == [expected]
        assert tokenizer.tokenize_with_offsets(text).ids == expected
        seen.update(expected)
    assert len(seen) > 150  # not only [UNK] is compared


@needs_tensorflow
@pytest.mark.parametrize("name", fast(NAMES, "uncased", "korean"))
def test_offsets_are_those_of_the_ops(untraced, vocabularies, name):
    from keras_bert.text.tokenizer import WordPieceTokenizer

    tokens, options = vocabularies[name]
    tokenizer = PythonTokenizer(tokens, **options)
    texts = list(random_texts(300, 7, tokens))
    columns = WordPieceTokenizer(tokens, **options).tokenize_with_offsets(texts)
    rows = zip(texts, *(column.to_list() for column in columns), strict=True)
    for text, ids, words, starts, limits in rows:
        found = tokenizer.tokenize_with_offsets(text)
        byte_of = [len(text[:place].encode()) for place in range(len(text) + 1)]
        assert found.ids == ids
        assert found.words == words
        assert [byte_of[start] for start in found.starts] == starts
        assert [byte_of[limit] for limit in found.limits] == limits


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("step", [293, pytest.param(1, marks=pytest.mark.slow)])
def test_each_code_point_as_a_word_and_inside_a_word(vocabularies, name, step):
    tokens, options = vocabularies[name]
    tokenizer = PythonTokenizer(tokens, **options)
    reference = ReferenceTokenizer(tokens, **options)
    for code in range(NAMES.index(name), 0x110000, step):
        if not 0xD800 <= code <= 0xDFFF and stable(code):
            text = f"{chr(code)} a{chr(code)}b"
            assert tokenizer.tokenize([text]) == [reference.tokenize(text)], hex(code)


def test_lone_surrogates_are_removed():
    tokenizer = PythonTokenizer(["[UNK]", "ab", "c"])
    assert tokenizer.tokenize(["a\ud800b c\udfff"]) == [[1, 2]]
    assert tokenizer.tokenize_with_offsets("a\ud800b c").starts == [0, 4]


def test_a_full_cache_starts_anew(monkeypatch):
    monkeypatch.setattr("keras_bert.text.python_tokenizer._MAX_CACHED", 2)
    tokenizer = PythonTokenizer(["[UNK]", "a", "##b", "c"])
    for _ in range(2):
        assert tokenizer.tokenize(["a ab abb c", "c ab"]) == [[1, 1, 2, 1, 2, 2, 3], [3, 1, 2]]
