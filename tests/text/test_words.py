import random

import pytest

from keras_bert.text.python_tokenizer import PythonTokenizer
from keras_bert.text.words import split_words
from tests import tiny


@pytest.fixture(scope="module")
def tokenizer():
    return PythonTokenizer(tiny.PIECES)


def test_the_words_have_the_tokens_of_the_texts(tokenizer):
    draw = random.Random(3)
    letters = "abdfgilmosy !,\u0301\u200b한국어中é\u2028ﬁ"
    texts = ["".join(draw.choices(letters, k=draw.randint(0, 40))) for _ in range(500)]
    words, spans = split_words(texts, tokenizer)
    for text, row, span in zip(texts, words, spans, strict=True):
        assert [text[start:limit] for start, limit in span] == row
        separately = [token for ids in tokenizer.tokenize(row) for token in ids]
        assert tokenizer.tokenize([text]) == [separately]


def test_characters(tokenizer):
    words, spans = split_words(["a b한\u0301", ""], tokenizer, characters=True)
    assert words == [["a", "b", "한"], []]
    assert spans == [[(0, 1), (2, 3), (3, 4)], []]
