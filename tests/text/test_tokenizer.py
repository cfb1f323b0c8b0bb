"""The tokenizer's graph against the reference: no id may differ, wherever the text is from."""

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

from keras_bert.text.tokenizer import MAX_WORD_LENGTH, WordPieceTokenizer
from tests import served
from tests.fuzz import random_texts
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
    """Compares ids, with and without offsets, batch by batch; returns the number of texts."""
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
    """A function from the name of a small vocabulary to its tokenizer and reference."""
    made = {}

    def get(name):
        if name not in made:
            pieces, options = vocabularies[name]
            made[name] = (
                WordPieceTokenizer(pieces, **options),
                ReferenceTokenizer(pieces, **options),
            )
        return made[name]

    return get


@pytest.mark.parametrize("name", NAMES)
def test_fuzz(pair, vocabularies, name):
    pieces = vocabularies[name][0]
    count = 45_000 if name in NAMES[:4] else 12_000
    texts = random_texts(count, NAMES.index(name), pieces, stable)
    assert assert_equal_ids(*pair(name), texts) == count
    seen = set(
        pair(name)[0].tokenize([piece.removeprefix("##") for piece in pieces]).values.numpy()
    )
    assert len(seen) > 150  # so that agreement is not agreement on [UNK]


@pytest.mark.parametrize("name", NAMES)
def test_each_code_point_alone_and_inside_a_word(pair, name):
    codes = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF and stable(c)]
    codes = [c for c in codes if c < 0x3400 or c % 29 == NAMES.index(name)]
    texts = (f"{chr(code)} a{chr(code)}b" for code in codes)
    assert assert_equal_ids(*pair(name), texts, size=20_000) == len(codes)


@pytest.mark.parametrize("name", REAL)
def test_real_vocabularies(shared, name):
    pieces = vocabulary(shared, name)
    tokenizer = WordPieceTokenizer(pieces, **REAL[name])
    reference = ReferenceTokenizer(pieces, **REAL[name])
    texts = random_texts(5000, 100, pieces, stable)
    assert assert_equal_ids(tokenizer, reference, texts) == 5000


@pytest.mark.parametrize("name", REAL)
def test_lines_of_the_shared_data(shared, name):
    """Each vocabulary one line in 120; with KERAS_BERT_ALL_LINES=1, all (8 minutes)."""
    pieces = vocabulary(shared, name)
    tokenizer = WordPieceTokenizer(pieces, **REAL[name])
    reference = ReferenceTokenizer(pieces, **REAL[name])
    step = 1 if os.environ.get("KERAS_BERT_ALL_LINES") else 120
    texts = itertools.islice(lines(shared), list(REAL).index(name), None, step)
    texts = filter(lambda text: all(map(stable, map(ord, text))), texts)
    assert assert_equal_ids(tokenizer, reference, texts, size=5000) > 4_000


def vocabulary(shared, name):
    return (
        (shared / "vocab" / f"{name}-vocab.txt").read_text("utf-8").removesuffix("\n").split("\n")
    )


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
        ("uncased", "un\u00adaffable", ["un", "##aff", "##able"]),  # a soft hyphen vanishes
        ("uncased", "un\x00affable\ufffd", ["un", "##aff", "##able"]),
        ("uncased", "is\u2028as\u3000of", ["is", "as", "of"]),
        ("uncased", "Straße", ["s", "##t", "##r", "##a", "##ß", "##e"]),  # not ss
        ("uncased", "ﬁ", ["[UNK]"]),  # not fi
        ("uncased", "…", ["…"]),  # not ...
        ("uncased", "ΣΟΦΟΣ", ["σοφος"]),
        ("uncased", "ΣΟΦΟΣ.", ["σοφος", "."]),
        ("uncased", "ΟΣ", ["ο", "##ς"]),
        ("uncased", "İ", ["i"]),
        ("uncased", "a一b", ["a", "一", "b"]),
        ("uncased", "[MASK]", ["[", "m", "##a", "##s", "##k", "]"]),
        ("uncased", "a" * 199 + "b", ["a" * 199 + "b"]),
        ("uncased", "c" * 200, ["c", *["##c"] * 199]),
        ("uncased", "c" * 201, ["[UNK]"]),  # though the vocabulary holds it
        ("uncased", "한", ["ᄒ", "##ᅡ", "##ᆫ"]),
        ("korean", "한국어를", ["[UNK]"]),
        ("korean", "한국어 한국", ["한국어", "한국"]),
        ("korean", "정말 재미있다", ["정말", "재미있", "##다"]),
        ("cased", "Zürich USA", ["Zürich", "USA"]),
        ("cased", "zÜrich", ["z", "##Ü", "##r", "##i", "##c", "##h"]),
        ("chinese words", "日本", ["日本"]),
        ("multilingual", "日本", ["日", "本"]),
        ("accents only", "É", ["[UNK]"]),
    ],
)
def test_examples(pair, vocabularies, name, text, expected):
    tokenizer, reference = pair(name)
    found = tokenizer.tokenize([text]).to_list()[0]
    assert found == reference.tokenize(text)
    assert [vocabularies[name][0][index] for index in found] == expected


# --- Offsets


def normalized(data, options):
    text = data.decode()
    return "".join(basic_tokens(text, **options))


MODERATE = (
    "abcdefghijklmnopqrstuvwxyz" * 3 + "ABCDEIMOPSTUZ" + "àÉîõüÿçñŁødßšž" + "0129²" + ".,!?'\"-()[]"
    "   \t\n\u3000\xa0" + "日本一万中" + "はがぱア" + "а́йМосква" + "\u0301\u0308\u0327\u0323"
    "\xad\u200d\x07" + "😀☃…–’"
)  # fmt: skip


@pytest.mark.parametrize("name", ["uncased", "cased", "multilingual", "chinese words"])
def test_offsets_cover_what_normalizes_to_the_piece(pair, vocabularies, name):
    pieces, options = vocabularies[name]
    tokenizer, reference = pair(name)
    rng = np.random.default_rng(5)
    letters = np.array(list(MODERATE))
    texts = ["".join(rng.choice(letters, rng.integers(0, 30))) for _ in range(6000)]
    words = [piece.removeprefix("##") for piece in pieces if "[" not in piece and piece.isalpha()]
    if options["lowercase"]:  # a final sigma needs its context; a syllable falls apart
        words = [word for word in words if not set("ς가") & set(word)]
    texts += [" ".join(rng.choice(words, 6)) for _ in range(2000)]
    ids, word, start, limit = tokenizer.tokenize_with_offsets(texts)
    checked = 0
    for text, *columns in zip(
        texts, *(x.to_list() for x in (ids, word, start, limit)), strict=True
    ):
        data, end = text.encode(), 0
        tokens = basic_tokens(text, **options)
        assert sorted(set(columns[1])) == list(range(len(tokens)))
        assert columns[0] == reference.tokenize(text)
        for index, at, first, last in zip(*columns, strict=True):
            assert end <= first < last <= len(data)
            end = last
            found = normalized(data[first:last], options)
            if pieces[index] == "[UNK]":
                assert found == tokens[at], (text, data[first:last])
            else:
                assert found == pieces[index].removeprefix("##"), (text, data[first:last])
                checked += 1
            following = data[last:].decode()[:1]
            if options["strip_accents"] and following:
                assert unicodedata.category(following) != "Mn", (text, data[first:last])
    assert checked > 10_000


def test_offsets_of_an_accent_and_of_what_expands(pair):
    tokenizer = pair("uncased")[0]
    text = "xé\u0323 naïve"
    _, words, starts, limits = (x.to_list()[0] for x in tokenizer.tokenize_with_offsets([text]))
    pieces = [text.encode()[a:b].decode() for a, b in zip(starts, limits, strict=True)]
    assert pieces == ["x", "é\u0323", "naïve"]
    assert words == [0, 0, 1]
    # Each part of a syllable that falls apart stands for all of it.
    _, words, starts, limits = (x.to_list()[0] for x in tokenizer.tokenize_with_offsets(["한"]))
    assert (words, starts, limits) == ([0, 0, 0], [0, 0, 0], [3, 3, 3])


def test_words_are_counted_from_zero_in_each_text(pair):
    words = pair("uncased")[0].tokenize_with_offsets(["a b", "", "playing unaffable"])[1]
    assert words.to_list() == [[0, 1], [], [0, 1, 1, 1]]


# --- Shapes, types and bytes


def test_no_text_and_empty_texts(pair):
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
    texts = [rng.bytes(rng.integers(0, 12)) for _ in range(10_000)]
    for _ in range(10_000):
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
    ("texts", "message"),
    [
        (None, "texts must be strings; received None"),
        ([None], "texts must be strings"),
        (["a", None], "texts must be strings"),
        ([1, 2], "texts must be strings; received int32"),
        ([1.5], "texts must be strings; received float32"),
        (["a", 3], "texts must be strings"),
        ([["a"], ["b"]], r"texts must have shape \(batch,\); received \(2, 1\)"),
        ("a", r"texts must have shape \(batch,\); received \(\)"),
        ([["a"], ["b", "c"]], "texts must be strings"),
    ],
)
@pytest.mark.parametrize("method", ["tokenize", "tokenize_with_offsets"])
def test_errors(pair, texts, message, method):
    with pytest.raises(ValueError, match=message):
        getattr(pair("uncased")[0], method)(texts)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [([], "the vocabulary is empty"), (["a", "b"], r"2 pieces\) has no \[UNK\]")],
)
def test_vocabulary_errors(pieces, message):
    with pytest.raises(ValueError, match=message):
        WordPieceTokenizer(pieces)


def test_token_id(pair, vocabularies):
    tokenizer = pair("uncased")[0]
    assert tokenizer.token_id("[CLS]") == vocabularies["uncased"][0].index("[CLS]")
    with pytest.raises(KeyError):
        tokenizer.token_id("no such piece")


def test_odd_vocabularies():
    for pieces in (["[UNK]"], ["[UNK]", "##", ""], ["a", "[UNK]", "a", "##b", "ab"]):
        tokenizer, reference = WordPieceTokenizer(pieces), ReferenceTokenizer(pieces)
        texts = ["a", "ab", "abb", "b", "##", "##b", "[UNK]", ""]
        assert assert_equal_ids(tokenizer, reference, texts) == len(texts)
    assert WordPieceTokenizer(["a", "[UNK]", "a"]).tokenize(["a"]).to_list() == [[2]]


def test_a_text_of_ten_megabytes(pair):
    tokenizer, reference = pair("uncased")
    line = "The naïve playing of unaffable things, 日本 and Москва! "
    count = 10_000_000 // len(line.encode())
    start = time.perf_counter()
    ids = tokenizer.tokenize([line * count, line])
    assert time.perf_counter() - start < 120
    assert ids.row_lengths().numpy().tolist() == [
        count * len(reference.tokenize(line)),
        ids[1].shape[0],
    ]
    assert (ids[0].numpy().reshape(count, -1) == ids[1].numpy()).all()


@pytest.mark.parametrize(
    ("char", "count", "pieces"),
    [
        ("a", 1_000_000, ["[UNK]"]),
        ("é", 300_000, ["[UNK]"]),
        ("\u0301", 300_000, []),
        ("一", 200_000, None),
    ],
)
def test_a_word_of_a_million_characters(pair, char, count, pieces):
    tokenizer = pair("uncased")[0]
    expected = [char] * count if pieces is None else pieces
    expected = [tokenizer.token_id(piece) for piece in expected]
    start = time.perf_counter()
    ids, _, starts, limits = tokenizer.tokenize_with_offsets(["x " + char * count, char * count])
    assert time.perf_counter() - start < 60
    assert ids[0].numpy().tolist() == [tokenizer.token_id("x"), *expected]
    assert ids[1].numpy().tolist() == expected
    if pieces:
        assert (starts[1].numpy(), limits[1].numpy()) == (0, count * len(char.encode()))


def test_in_tf_data_and_in_a_graph_of_the_users_own(pair):
    tokenizer, reference = pair("uncased")
    texts = ["Playing!", "naïve 日本", ""]
    expected = [reference.tokenize(text) for text in texts]
    data = tf.data.Dataset.from_tensor_slices(texts).batch(2).map(tokenizer.tokenize)
    assert [row for batch in data for row in batch.to_list()] == expected
    graph = tf.function(lambda x: tokenizer.tokenize(x).to_tensor(-1))
    found = graph(tf.constant(texts)).numpy()
    assert [[i for i in row if i >= 0] for row in found.tolist()] == expected


def test_the_graph_holds_core_ops_only():
    tokenizer = WordPieceTokenizer(["[UNK]", "a", "##b"])
    for function in (tokenizer._tokenize_flat, tokenizer._tokenize_flat_with_offsets):
        ops, foreign = served.foreign_ops_in(function.get_concrete_function().graph.as_graph_def())
        assert {"GatherV2", "StatelessWhile"} <= ops or {"GatherV2", "While"} <= ops
        assert not foreign
        # Tables of strings or of state would have to be initialized before they serve.
        assert not [
            op for op in ops if "HashTable" in op or "PyFunc" in op or op.startswith("Regex")
        ]


# --- The warning


WRONG = [
    ("cased", {"lowercase": True}, "can match no text"),
    ("multilingual", {"lowercase": True}, "can match no text"),
    ("korean", {"lowercase": True}, "such as '가', can match no text"),
    ("korean", {"lowercase": False, "strip_accents": True}, "can match no text"),
    ("words", {"lowercase": False}, "hold a letter a-z and none A-Z"),
]


def pieces_of(vocabularies, name):
    if name != "words":
        return vocabularies[name][0]
    return ["[UNK]", "[CLS]", *map("".join, itertools.product("abcdefgh", repeat=3))]


@pytest.mark.parametrize(("name", "options", "message"), WRONG)
def test_warns_of_options_that_do_not_fit(vocabularies, name, options, message):
    with pytest.warns(UserWarning, match=message) as caught:
        WordPieceTokenizer(pieces_of(vocabularies, name), **options)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert f"lowercase={options['lowercase']}, strip_accents=" in str(caught[0].message)


@pytest.mark.parametrize("name", ["cased", "multilingual", "korean", "words"])
def test_does_not_warn_of_options_that_fit(vocabularies, name):
    options = vocabularies[name][1] if name != "words" else {"lowercase": True}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WordPieceTokenizer(pieces_of(vocabularies, name), **options)


def test_does_not_warn_of_a_handful_of_pieces():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WordPieceTokenizer(["[UNK]", "Play", "한국", "é"])
        WordPieceTokenizer(["[UNK]", "play", "##ing"], lowercase=False)


@pytest.mark.parametrize("name", REAL)
def test_warning_for_the_real_vocabularies(shared, name):
    pieces = vocabulary(shared, name)
    for lowercase, strip_accents in itertools.product((True, False), repeat=2):
        options = {"lowercase": lowercase, "strip_accents": strip_accents}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            WordPieceTokenizer(pieces, **options)
        right = {"strip_accents": REAL[name]["lowercase"], **REAL[name]}
        # The Chinese vocabulary has next to no upper case and no accents: all fits.
        tolerant = name == "bert-base-chinese" or (
            name in ("kcbert-base", "koelectra") and not strip_accents
        )
        tolerant |= name == "bert-base-uncased" and lowercase
        tolerant |= name == "bert-base-cased" and not lowercase
        assert bool(caught) == (not tolerant and options != right), options


def test_the_limit_is_googles():
    assert MAX_WORD_LENGTH == 200
