"""Added tokens are matched as Hugging Face's tokenizers match them: ids, words and offsets."""

import json
import random

import pytest
import tensorflow as tf
import tokenizers

import keras_bert
from keras_bert.checkpoints import tokenizer_json
from keras_bert.text.python_tokenizer import PythonTokenizer
from keras_bert.text.tokenizer import WordPieceTokenizer

WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "movie", "e", "##1", "[", "]", "<", ">",
    "a", "##b", "##a", "b", "new", "york", "中", "国", "_", "-", "한", "##국",
]  # fmt: skip
# What the texts of the fuzz are made of.
PARTS = [
    "[E1]", "[e1]", "[É1]", "e1", "<a>", "ab", "aba", "bab", "New York", "york", " ", "  ", "\t",
    "\u00a0", "_", "-", "é", "E\u0301", "中国", "中", "국", "한국", "the", "Movie", "İ", "ΑΣ",
    "\u200d", "\x00", "[MASK]",
]  # fmt: skip


def token(content, **flags):
    return {"content": content, **flags}


TOKENS = {
    "exact": ["[E1]", "<a>"],
    "normalized": [token("[E1]", normalized=True), token("aba", normalized=True)],
    "both": ["[E1]", "ab", token("[É1]x", normalized=True), token("bab", normalized=True)],
    "one inside the other": ["ab", "aba", "bab"],
    "spaces around": [
        token("<a>", lstrip=True, rstrip=True),
        token("ab", lstrip=True),
        token("e1", rstrip=True),
    ],
    "single words": [
        token("ab", single_word=True),
        token("aba", single_word=True, normalized=True),
        token("[E1]", single_word=True, lstrip=True),
    ],
    "several words": [token("New York", normalized=True), token("the Movie")],
    "ideographs": [token("中国", normalized=True), "中"],
    "words of the vocabulary": ["the", token("Movie", normalized=True), "##국"],
    "wrong suffix": ["##1]", token("##국", normalized=True)],
}


def make(added, **options):
    """Return our tokenizer and that of the library, with the same tokens."""
    contents = [each if isinstance(each, str) else each["content"] for each in added]
    vocabulary = [*WORDS, *(content for content in contents if content not in WORDS)]
    ours = WordPieceTokenizer(vocabulary, added_tokens=added, **options)
    settings = {
        name: getattr(ours, name)
        for name in ("lowercase", "strip_accents", "split_cjk", "added_tokens")
    }
    content = json.loads(tokenizer_json.text(settings, vocabulary))
    # Special tokens in a text are plain text for us.
    added_tokens = [entry for entry in content["added_tokens"] if not entry["special"]]
    text = json.dumps(content | {"added_tokens": added_tokens})
    return ours, tokenizers.Tokenizer.from_str(text)


def characters_of_bytes(text):
    """Return the index of the character of each UTF-8 byte of a text, a list."""
    return [index for index, character in enumerate(text) for _ in character.encode()]


def our_tokens(tokenizer, texts):
    """Return (id, word, start, end) of each token of each text, in characters."""
    ids, words, starts, limits = (
        each.to_list() for each in tokenizer.tokenize_with_offsets(tf.constant(texts))
    )
    rows = []
    for text, *columns in zip(texts, ids, words, starts, limits, strict=True):
        char_of = characters_of_bytes(text)
        rows.append(
            [
                (id_, word, char_of[start], char_of[limit - 1] + 1)
                for id_, word, start, limit in zip(*columns, strict=True)
            ]
        )
    return rows


def their_tokens(tokenizer, text):
    encoding = tokenizer.encode(text, add_special_tokens=False)
    columns = encoding.ids, encoding.word_ids, encoding.offsets
    rows = []
    for id_, word, (start, end) in zip(*columns, strict=True):
        # We count a stripped accent to the letter before it, the library does not.
        while end < len(text) and text[end] == "\u0301":
            end += 1
        rows.append((id_, word, start, end))
    return rows


SLOW = ("exact", "normalized", "ideographs", "wrong suffix")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in [*TOKENS, "cased"]],
)
def test_tokens_are_those_of_the_library(untraced, name):
    added = TOKENS["both" if name == "cased" else name]
    ours, theirs = make(added, lowercase=name != "cased")
    generator = random.Random(0)
    texts = ["", *PARTS]
    for _ in range(100):
        texts.append("".join(generator.choices(PARTS, k=generator.randrange(1, 8))))
    in_python = PythonTokenizer(
        ours.vocabulary, lowercase=ours.lowercase, added_tokens=ours.added_tokens
    )
    for text, tokens in zip(texts, our_tokens(ours, texts), strict=True):
        assert list(zip(*in_python.tokenize_with_offsets(text), strict=True)) == tokens, text
    # The library decomposes İ in lower case, and knows no final sigma.
    texts = [text.replace("İ", "I").replace("Σ", "σ") for text in texts]
    rows = our_tokens(ours, texts)
    for text, tokens in zip(texts, rows, strict=True):
        assert tokens == their_tokens(theirs, text), text
    ids = [[id_ for id_, *_ in row] for row in rows]
    assert ours.tokenize(tf.constant(texts)).to_list() == ids


def test_a_text_with_many_tokens():
    """With the graph that users run; the other tests trace none."""
    ours, theirs = make(["ab", token("aba", normalized=True)])
    texts = ["ababa abab " * 200, "ab" * 500]
    for text, tokens in zip(texts, our_tokens(ours, texts), strict=True):
        assert tokens == their_tokens(theirs, text)


def test_special_tokens_are_plain_text(untraced):
    ours, _ = make(["[E1]"])
    plain = WordPieceTokenizer(WORDS)
    texts = tf.constant(["the [MASK] movie", "[CLS]"])
    assert ours.tokenize(texts).to_list() == plain.tokenize(texts).to_list()


def test_words_are_not_spelled_with_added_tokens(untraced):
    """Added tokens stand after the vocabulary; WordPiece would find `ab` in "AB"."""
    ours, _ = make(["ab"])
    added_id = ours.token_id("ab")
    assert added_id not in ours.tokenize(tf.constant(["AB", "xab"])).to_list()[0]
    assert added_id in ours.tokenize(tf.constant(["ab"])).to_list()[0]


@pytest.mark.parametrize("make_it", [WordPieceTokenizer, keras_bert.Preprocessor])
@pytest.mark.parametrize(
    ("added", "message"),
    [
        (["[E9]"], r"no \[E9\].*added_tokens"),
        ([""], "1 to 1024 characters"),
        ([token("a", lstrip=1)], "true or false"),
    ],
)
def test_wrong_added_tokens(make_it, added, message):
    with pytest.raises(ValueError, match=message):
        make_it(WORDS, added_tokens=added)


def test_characters_are_words_of_their_own(untraced):
    ours, _ = make(["[E1]"])
    ids, *_ = ours.tokenize_characters_with_offsets(tf.constant(["[E1]"]))
    assert ours.token_id("[E1]") not in ids.to_list()[0]
