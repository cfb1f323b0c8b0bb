"""The fast tokenizer gives the ids of the graph, and falls back to the graph where needed."""

import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text import fast_tokenizer
from keras_bert.text.tokenizer import WordPieceTokenizer
from tests.fuzz import random_texts


@pytest.fixture
def tensorflow_text():
    return pytest.importorskip("tensorflow_text")


@pytest.mark.parametrize("name", ["uncased", "cased", "multilingual"])
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_same_ids_as_the_graph(tensorflow_text, vocabularies, name, count):
    tokens, options = vocabularies[name]
    tokenizer = WordPieceTokenizer(tokens, **options)
    tokenize = fast_tokenizer.tokenize_function(tokenizer)
    assert tokenize != tokenizer.tokenize
    agreed = fast_tokenizer.equal_code_points("lowercase" if options["lowercase"] else "cased")
    fast = 0
    for allowed in (lambda code: True, lambda code: code < 0x180, lambda code: agreed[code]):
        texts = list(random_texts(count, 7, tokens, allowed))
        fast += sum(all(agreed[ord(char)] for char in text) for text in texts)
        for start in range(0, count, 1000):
            batch = [text.encode() for text in texts[start : start + 1000]]
            expected, found = tokenizer.tokenize(batch), tokenize(batch)
            assert found.to_list() == expected.to_list()
            assert (found.dtype, found.row_splits.dtype) == (tf.int32, tf.int64)
    assert fast > count


@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_corner_cases(tensorflow_text, vocabularies, name):
    tokens, options = vocabularies[name]
    tokenizer = WordPieceTokenizer(tokens, **options)
    tokenize = fast_tokenizer.tokenize_function(tokenizer)
    for texts in (
        [],
        [""],
        ["", "playing", ""],
        ["Straße", "…", "ﬁ", "a\u200db", "\ufffd"],
        ["a" * 200, "a" * 201, "c" * 201 + " a", "x " + "é" * 201, "日" * 300],
        ["[MASK] [CLS]", "##ing", "##"],
        [b"\xff\xfeab\xc3", b"a\x00b", b"\xed\xa0\x80"],
        ["playing", "ﬁ", "a" * 201] * 3000,
    ):
        assert tokenize(texts).to_list() == tokenizer.tokenize(texts).to_list()


@pytest.mark.parametrize("casing", ["lowercase", "cased"])
def test_the_file_equals_a_new_comparison(tensorflow_text, casing):
    from tests.golden import make_agreement  # it imports tensorflow-text

    codes = [code for code in range(0x10000) if not 0xD800 <= code <= 0xDFFF]
    frozen = fast_tokenizer.equal_code_points(casing)[codes]
    differing = np.array(codes)[make_agreement.compare(casing, codes) != frozen]
    assert list(map(hex, differing)) == []
    assert frozen.mean() > 0.5


@pytest.mark.parametrize(
    ("tokens", "options"),
    [
        (["[UNK]", "a"], {"strip_accents": False}),
        (["[UNK]", "a"], {"lowercase": False, "strip_accents": True}),
        (["[UNK]", "a"], {"split_cjk": False}),
        (["[UNK]", "a", "a"], {}),
    ],
)
def test_options_that_tensorflow_text_lacks_use_the_graph(tokens, options):
    tokenizer = WordPieceTokenizer(tokens, **options)
    assert fast_tokenizer.tokenize_function(tokenizer) == tokenizer.tokenize


def test_without_tensorflow_text_all_texts_use_the_graph(monkeypatch):
    """It is missing, or its library does not load."""

    def find(name, *_):
        if name == "tensorflow_text":
            raise tf.errors.NotFoundError(None, None, "undefined symbol")

    tokenizer = WordPieceTokenizer(["[UNK]", "a"])
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    assert fast_tokenizer.tokenize_function(tokenizer) == tokenizer.tokenize
    monkeypatch.delitem(sys.modules, "tensorflow_text")
    monkeypatch.setattr(sys, "meta_path", [types.SimpleNamespace(find_spec=find), *sys.meta_path])
    assert fast_tokenizer.tokenize_function(tokenizer) == tokenizer.tokenize
