"""The accelerator gives the same ids as the graph, and knows when it may not be used."""

import sys

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
def test_same_ids_as_the_graph(tensorflow_text, vocabularies, name):
    pieces, options = vocabularies[name]
    tokenizer = WordPieceTokenizer(pieces, **options)
    tokenize = fast_tokenizer.tokenize_function(tokenizer)
    assert tokenize != tokenizer.tokenize
    casing = fast_tokenizer.agreement("lowercase" if options["lowercase"] else "cased")
    easy = 0
    for allowed in (lambda code: True, lambda code: code < 0x180, lambda code: casing[code]):
        texts = list(random_texts(10_000, 7, pieces, allowed))
        easy += sum(all(casing[ord(char)] for char in text) for text in texts)
        for start in range(0, len(texts), 1000):
            batch = [text.encode() for text in texts[start : start + 1000]]
            expected, found = tokenizer.tokenize(batch), tokenize(batch)
            assert found.to_list() == expected.to_list()
            assert (found.dtype, found.row_splits.dtype) == (tf.int32, tf.int64)
    assert easy > 10_000


@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_corner_cases(tensorflow_text, vocabularies, name):
    pieces, options = vocabularies[name]
    tokenizer = WordPieceTokenizer(pieces, **options)
    tokenize = fast_tokenizer.tokenize_function(tokenizer)
    for texts in (
        [],
        [""],
        ["", "playing", ""],
        ["Straße", "…", "ﬁ", "a\u200db", "\ufffd"],
        [
            "a" * 200,
            "a" * 201,
            "c" * 201 + " a",
            "x " + "é" * 201,
            "日" * 300,
            ("a" * 200 + " ") * 3,
        ],
        ["[MASK] [CLS]", "##ing", "##"],
        [b"\xff\xfeab\xc3", b"a\x00b", b"\xed\xa0\x80"],
        ["playing", "ﬁ", "a" * 201] * 3000,
    ):
        assert tokenize(texts).to_list() == tokenizer.tokenize(texts).to_list()


def test_easy_texts_do_go_through_tensorflow_text(tensorflow_text, monkeypatch):
    class Other:
        def __init__(self, *args, **kwargs):
            pass

        def tokenize(self, texts):
            return tf.RaggedTensor.from_row_lengths(
                tf.fill([tf.size(texts)], 77), tf.ones_like(texts, tf.int64)
            )

    monkeypatch.setattr(tensorflow_text, "FastBertTokenizer", Other)
    tokenizer = WordPieceTokenizer(["[UNK]", "a", "ß"])
    tokenize = fast_tokenizer.tokenize_function(tokenizer)
    assert tokenize(["a", "ß", "b"]).to_list() == [[77], [2], [77]]
    assert tokenize(["a", "b"]).to_list() == [[77], [77]]
    assert tokenize(["ß", "ßa"]).to_list() == [[2], [0]]


def test_works_in_tf_data(tensorflow_text, vocabularies):
    pieces, options = vocabularies["uncased"]
    tokenizer = WordPieceTokenizer(pieces, **options)
    texts = ["playing", "naïve…", "ﬁ", ""]
    data = tf.data.Dataset.from_tensor_slices(texts).batch(3)
    found = data.map(fast_tokenizer.tokenize_function(tokenizer))
    expected = tokenizer.tokenize(texts).to_list()
    assert [row for batch in found for row in batch.to_list()] == expected


@pytest.mark.parametrize("casing", ["lowercase", "cased"])
def test_the_frozen_agreement_is_what_both_say(tensorflow_text, casing):
    codes = [code for code in range(0x10000) if not 0xD800 <= code <= 0xDFFF]
    frozen = fast_tokenizer.agreement(casing)[codes]
    differing = np.array(codes)[fast_tokenizer.ask(casing, codes) != frozen]
    assert list(map(hex, differing)) == []
    assert frozen.mean() > 0.5


def test_agreement_in_plain_cases():
    lower, cased = map(fast_tokenizer.agreement, ("lowercase", "cased"))
    for char in "aZ9 .,é日\n":
        assert lower[ord(char)] and cased[ord(char)]
    for char in "ß…ﬁΣ\ufffd\x01":
        assert not lower[ord(char)], char
    assert cased[ord("ß")] and not cased[ord("\ufffd")]
    assert not lower[0xD800:0xE000].any()


@pytest.mark.parametrize(
    ("pieces", "options"),
    [
        (["[UNK]", "a"], {"strip_accents": False}),
        (["[UNK]", "a"], {"lowercase": False, "strip_accents": True}),
        (["[UNK]", "a"], {"split_cjk": False}),
        (["[UNK]", "a", "a"], {}),
    ],
)
def test_other_options_go_through_the_graph(pieces, options):
    tokenizer = WordPieceTokenizer(pieces, **options)
    assert fast_tokenizer.tokenize_function(tokenizer) == tokenizer.tokenize


def test_without_tensorflow_text_all_goes_through_the_graph(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    tokenizer = WordPieceTokenizer(["[UNK]", "a"])
    assert fast_tokenizer.tokenize_function(tokenizer) == tokenizer.tokenize


def test_write_asks_about_each_code_point_and_freezes(tmp_path, monkeypatch):
    asked = []

    def ask(casing, codes):
        asked.extend(codes)
        return np.array([code % 7 == len(casing) % 7 for code in codes])

    monkeypatch.setattr(fast_tokenizer, "ask", ask)
    path = tmp_path / "agreement.npz"
    fast_tokenizer.write(path)
    assert asked == [code for code in range(0x110000) if not 0xD800 <= code < 0xE000] * 2
    with np.load(path) as made:
        assert sorted(made.files) == ["cased", "lowercase"]
        for casing in made.files:
            found = np.flatnonzero(np.unpackbits(made[casing], count=0x110000))
            assert (found % 7 == len(casing) % 7).all() and len(found) > 150_000
