"""The ids of the tokenizer's graph equal those of the reference tokenizer."""

import bz2
import itertools
import json
import os
import time
import unicodedata
import warnings

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.text.tokenizer import WordPieceTokenizer
from tests.fuzz import random_texts
from tests.machine import slowness
from tests.parameters import fast
from tests.reference_tokenizer import ReferenceTokenizer, basic_tokens, stable

NAMES = ("uncased", "cased", "multilingual", "korean", "chinese words", "accents only")
REAL = {  # file -> options
    "bert-base-uncased": {"lowercase": True},
    "bert-base-cased": {"lowercase": False},
    "bert-base-multilingual-cased": {"lowercase": False},
    "bert-base-chinese": {"lowercase": True},
    "kcbert-base": {"lowercase": True, "strip_accents": False},
    "koelectra": {"lowercase": False, "strip_accents": False},
}


def assert_equal_ids(tokenizer, reference, texts, size=1000):
    """Compare ids, with and without offsets, batch by batch; return the number of texts."""
    texts, count = iter(texts), 0
    while batch := list(itertools.islice(texts, size)):
        expected = [reference.tokenize(text) for text in batch]
        encoded = [text.encode() for text in batch]
        for ids in (tokenizer.tokenize(encoded), tokenizer.tokenize_with_offsets(encoded)[0]):
            if (found := ids.to_list()) != expected:
                place = next(i for i in range(len(batch)) if found[i] != expected[i])
                raise AssertionError((batch[place], found[place], expected[place]))
        count += len(batch)
    return count


@pytest.fixture(scope="module")
def pair(vocabularies):
    """Return a function from the name of a small vocabulary to its tokenizer and reference."""
    made = {}

    def get(name):
        if name not in made:
            tokens, options = vocabularies[name]
            made[name] = (
                WordPieceTokenizer(tokens, **options),
                ReferenceTokenizer(tokens, **options),
            )
        return made[name]

    return get


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [350, pytest.param(34_000, marks=pytest.mark.slow)])
def test_random_texts(pair, vocabularies, name, count):
    tokens = vocabularies[name][0]
    texts = random_texts(count, NAMES.index(name), tokens, stable)
    assert assert_equal_ids(*pair(name), texts) == count
    seen = set(
        pair(name)[0].tokenize([token.removeprefix("##") for token in tokens]).values.numpy()
    )
    assert len(seen) > 150  # not only [UNK] is compared


@pytest.mark.parametrize("name", fast(NAMES, "uncased", "korean", "accents only"))
@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_each_code_point_as_a_word_and_inside_a_word(pair, name, step):
    """Code points below U+3400 in steps of `step`, the others in steps of 29."""
    codes = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF and stable(c)]
    first = NAMES.index(name)
    codes = [c for c in codes if (c - first) % (step if c < 0x3400 else 29) == 0]
    texts = (f"{chr(code)} a{chr(code)}b" for code in codes)
    assert assert_equal_ids(*pair(name), texts, size=20_000) == len(codes)


@pytest.mark.parametrize(
    "name", fast(REAL, "bert-base-uncased", "bert-base-multilingual-cased", "kcbert-base")
)
def test_real_vocabularies(shared, name):
    tokens = vocabulary(shared, name)
    tokenizer = WordPieceTokenizer(tokens, **REAL[name])
    reference = ReferenceTokenizer(tokens, **REAL[name])
    texts = random_texts(1500, 100, tokens, stable)
    assert assert_equal_ids(tokenizer, reference, texts) == 1500


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_lines_of_the_shared_data(shared, name):
    """Compare every 120th line, or with KERAS_BERT_ALL_LINES=1 every line (8 minutes)."""
    tokens = vocabulary(shared, name)
    tokenizer = WordPieceTokenizer(tokens, **REAL[name])
    reference = ReferenceTokenizer(tokens, **REAL[name])
    step = 1 if os.environ.get("KERAS_BERT_ALL_LINES") else 120
    texts = itertools.islice(lines(shared), list(REAL).index(name), None, step)
    texts = filter(lambda text: all(map(stable, map(ord, text))), texts)
    assert assert_equal_ids(tokenizer, reference, texts, size=5000) > 4_000


def vocabulary(shared, name):
    text = (shared / "vocab" / f"{name}-vocab.txt").read_text("utf-8")
    return text.removesuffix("\n").split("\n")


def lines(shared):
    for file in sorted((shared / "data").glob("*/*")):
        data = file.read_bytes()
        if file.suffix == ".bz2":
            data = bz2.decompress(data)
        text = data.decode(
            "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", "ignore"
        )
        if file.suffix == ".json":
            text = json.dumps(json.loads(text), ensure_ascii=False, indent=0)
        yield from text.split("\n")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("uncased", "na\u00efve", ["naive"]),
        ("uncased", "nai\u0308ve", ["naive"]),
        ("uncased", "un\u00adaffable", ["un", "##aff", "##able"]),  # a soft hyphen is removed
        ("uncased", "is\u2028as\u3000of", ["is", "as", "of"]),
        ("uncased", "Straße", ["s", "##t", "##r", "##a", "##ß", "##e"]),  # not ss
        ("uncased", "ﬁ", ["[UNK]"]),  # not fi
        ("uncased", "…", ["…"]),  # not ...
        ("uncased", "ΣΟΦΟΣ.", ["σοφος", "."]),
        ("uncased", "İ", ["i"]),
        ("uncased", "a一b", ["a", "一", "b"]),
        ("uncased", "[MASK]", ["[", "m", "##a", "##s", "##k", "]"]),
        ("uncased", "a" * 199 + "b", ["a" * 199 + "b"]),
        ("uncased", "c" * 201, ["[UNK]"]),  # although the vocabulary contains it
        ("uncased", "한", ["ᄒ", "##ᅡ", "##ᆫ"]),
        ("korean", "정말 재미있다", ["정말", "재미있", "##다"]),
        ("cased", "Zürich USA", ["Zürich", "USA"]),
        ("chinese words", "日本", ["日本"]),
        ("accents only", "É", ["[UNK]"]),
    ],
)
def test_examples(pair, vocabularies, name, text, expected):
    tokenizer, reference = pair(name)
    found = tokenizer.tokenize([text]).to_list()[0]
    assert found == reference.tokenize(text)
    assert [vocabularies[name][0][index] for index in found] == expected


# --- Offsets


MODERATE = (
    "abcdefghijklmnopqrstuvwxyz" * 3 + "ABCDEIMOPSTUZ" + "àÉîõüÿçñŁødßšž" + "0129²" + ".,!?'\"-()[]"
    "   \t\n\u3000\xa0" + "日本一万中" + "はがぱア" + "а́йМосква" + "\u0301\u0308\u0327\u0323"
    "\xad\u200d\x07" + "😀☃…–’"
)  # fmt: skip


@pytest.mark.parametrize("name", ["uncased", "cased", "multilingual", "chinese words"])
def test_the_text_at_the_offsets_normalizes_to_the_token(pair, vocabularies, name):
    tokens, options = vocabularies[name]
    tokenizer, reference = pair(name)
    rng = np.random.default_rng(5)
    letters = np.array(list(MODERATE))
    texts = ["".join(rng.choice(letters, rng.integers(0, 30))) for _ in range(2000)]
    # Without final sigmas, which need context, and syllables, which decompose.
    words = [token for token in tokens if token.isalpha() and not set("ς가") & set(token)]
    texts += [" ".join(rng.choice(words, 6)) for _ in range(700)]
    ids, word, start, limit = tokenizer.tokenize_with_offsets(texts)
    checked = 0
    rows = (x.to_list() for x in (ids, word, start, limit))
    for text, *columns in zip(texts, *rows, strict=True):
        data, end = text.encode(), 0
        expected_words = basic_tokens(text, **options)
        assert sorted(set(columns[1])) == list(range(len(expected_words)))
        assert columns[0] == reference.tokenize(text)
        for index, at, first, last in zip(*columns, strict=True):
            assert end <= first < last <= len(data)
            end = last
            found = "".join(basic_tokens(data[first:last].decode(), **options))
            if tokens[index] == "[UNK]":
                assert found == expected_words[at], (text, data[first:last])
            else:
                assert found == tokens[index].removeprefix("##"), (text, data[first:last])
                checked += 1
            following = data[last:].decode()[:1]
            if options["strip_accents"] and following:
                assert unicodedata.category(following) != "Mn", (text, data[first:last])
    assert checked > 3_000


def test_offsets_of_an_accent_and_of_a_decomposed_syllable(pair):
    tokenizer = pair("uncased")[0]
    text = "xé\u0323 naïve"
    _, words, starts, limits = (x.to_list()[0] for x in tokenizer.tokenize_with_offsets([text]))
    tokens = [text.encode()[a:b].decode() for a, b in zip(starts, limits, strict=True)]
    assert tokens == ["x", "é\u0323", "naïve"]
    assert words == [0, 0, 1]
    # Each part of a decomposed syllable has the offsets of the syllable.
    _, words, starts, limits = (x.to_list()[0] for x in tokenizer.tokenize_with_offsets(["한"]))
    assert (words, starts, limits) == ([0, 0, 0], [0, 0, 0], [3, 3, 3])


# --- Shapes, types and bytes


def test_no_texts_and_empty_texts(pair):
    tokenizer = pair("uncased")[0]
    for texts in ([], tf.constant([], tf.string), np.array([], object)):
        assert tokenizer.tokenize(texts).to_list() == []
        assert [x.to_list() for x in tokenizer.tokenize_with_offsets(texts)] == [[]] * 4
    for texts in ([""], ["", "a", ""], [" \t\u3000", "\x00", "\u0301"], ["", ""]):
        expected = [pair("uncased")[1].tokenize(text) for text in texts]
        assert tokenizer.tokenize(texts).to_list() == expected
        assert tokenizer.tokenize_with_offsets(texts)[0].to_list() == expected
    ids = tokenizer.tokenize(["a"])
    assert (ids.dtype, ids.row_splits.dtype) == (tf.int32, tf.int64)


def test_invalid_utf8_is_dropped(pair):
    tokenizer, reference = pair("multilingual")
    rng = np.random.default_rng(6)
    parts = [b"a", b"of", b" ", "é".encode(), "日".encode(), "😀".encode(), b"!", b"\x00"]
    broken = [b"\xff", b"\xc3", b"\xe6\x97", b"\xf0\x9f\x98", b"\x80", b"\xc0\xaf", b"\xed\xa0\x80"]
    broken += [b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xe0\x80\x80", b"\xfe"]
    texts = [rng.bytes(rng.integers(0, 12)) for _ in range(3_000)]
    for _ in range(3_000):
        chosen = rng.integers(0, len(parts) + len(broken), rng.integers(1, 8))
        texts.append(b"".join((parts + broken)[index] for index in chosen))
    texts = [text for text in texts if all(map(stable, map(ord, text.decode("utf-8", "ignore"))))]
    expected = [reference.tokenize(text.decode("utf-8", "ignore")) for text in texts]
    found = tokenizer.tokenize(texts).to_list()
    wrong = [x for x in zip(texts, found, expected, strict=True) if x[1] != x[2]]
    assert wrong == []
    ids, _, starts, limits = tokenizer.tokenize_with_offsets(texts)
    assert ids.to_list() == expected
    sizes = np.repeat([len(text) for text in texts], ids.row_lengths())
    assert ((starts.values >= 0) & (starts.values < limits.values)).numpy().all()
    assert (limits.values.numpy() <= sizes).all()


@pytest.mark.parametrize(
    ("tokens", "message"),
    [([], r"0 tokens\) has no"), (["a", "b"], r"2 tokens\) has no \[UNK\]")],
)
def test_vocabulary_errors(tokens, message):
    with pytest.raises(ValueError, match=message):
        WordPieceTokenizer(tokens)


@pytest.mark.slow
@pytest.mark.parametrize(
    "tokens", [["[UNK]"], ["[UNK]", "##", ""], ["a", "[UNK]", "a", "##b", "ab"]], ids=str
)
def test_odd_vocabularies(tokens):
    texts = ["a", "ab", "abb", "b", "##", "##b", "[UNK]", ""]
    assert_equal_ids(WordPieceTokenizer(tokens), ReferenceTokenizer(tokens), texts)


@pytest.mark.parametrize(
    ("char", "count", "tokens"),
    [
        ("a", 1_000_000, ["[UNK]"]),
        ("\u0301", 300_000, []),
        ("一", 200_000, None),
    ],
)
def test_a_word_of_a_million_characters(pair, char, count, tokens):
    tokenizer = pair("uncased")[0]
    expected = [char] * count if tokens is None else tokens
    expected = [tokenizer.token_id(token) for token in expected]
    start = time.perf_counter()
    ids, _, starts, limits = tokenizer.tokenize_with_offsets(["x " + char * count, char * count])
    assert time.perf_counter() - start < 60 * slowness()
    assert ids[0].numpy().tolist() == [tokenizer.token_id("x"), *expected]
    assert ids[1].numpy().tolist() == expected
    if tokens:
        assert (starts[1].numpy(), limits[1].numpy()) == (0, count * len(char.encode()))


# --- Warnings


WRONG = [
    ("cased", {"lowercase": True}, "never match a text"),
    ("multilingual", {"lowercase": True}, "never match a text"),
    ("korean", {"lowercase": True}, "such as '가', never match a text"),
    ("korean", {"lowercase": False, "strip_accents": True}, "never match a text"),
    ("words", {"lowercase": False}, "no token has a letter A-Z"),
]


def tokens_of(vocabularies, name):
    if name != "words":
        return vocabularies[name][0]
    return ["[UNK]", "[CLS]", *map("".join, itertools.product("abcdefgh", repeat=3))]


@pytest.mark.parametrize(("name", "options", "message"), WRONG)
def test_warns_if_options_do_not_fit_the_vocabulary(vocabularies, name, options, message):
    with pytest.warns(UserWarning, match=message) as caught:
        WordPieceTokenizer(tokens_of(vocabularies, name), **options)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert f"lowercase={options['lowercase']}, strip_accents=" in str(caught[0].message)


def test_does_not_warn_for_a_few_tokens():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WordPieceTokenizer(["[UNK]", "Play", "한국", "é"])
        WordPieceTokenizer(["[UNK]", "play", "##ing"], lowercase=False)
