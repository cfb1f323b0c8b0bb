"""The preprocessor: truncation and packing, inputs, models, and saving."""

import itertools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert import Preprocessor

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", *map("##".__add__, "abcdefgh")]
PAD, UNK, CLS, SEP = range(4)
KEYS = ["input_word_ids", "input_mask", "input_type_ids"]


def truncate_seq_pair(tokens_a, tokens_b, max_length):
    """`_truncate_seq_pair` of google-research/bert `run_classifier.py`, unchanged."""
    while True:
        total_length = len(tokens_a) + len(tokens_b)
        if total_length <= max_length:
            break
        if len(tokens_a) > len(tokens_b):
            tokens_a.pop()
        else:
            tokens_b.pop()


def google(ids, pair_ids, length):
    """Return ids, mask and types of one text or pair, as `convert_single_example` does."""
    ids = list(ids)
    if pair_ids is None:
        ids = ids[: length - 2]
        tokens, types = [CLS, *ids, SEP], [0] * (len(ids) + 2)
    else:
        pair_ids = list(pair_ids)
        truncate_seq_pair(ids, pair_ids, length - 3)
        tokens = [CLS, *ids, SEP, *pair_ids, SEP]
        types = [0] * (len(ids) + 2) + [1] * (len(pair_ids) + 1)
    rest = length - len(tokens)
    return tokens + [PAD] * rest, [1] * len(tokens) + [0] * rest, types + [0] * rest


def rows(outputs):
    """Return the outputs of a preprocessor as a list of (ids, mask, types), one per text."""
    assert list(outputs) == KEYS
    arrays = [keras.ops.convert_to_numpy(x) for x in outputs.values()]
    assert all(x.dtype == np.int32 for x in arrays)
    return list(zip(*(x.tolist() for x in arrays), strict=True))


@pytest.fixture(scope="module")
def preprocessor():
    return Preprocessor(TOKENS, sequence_length=8)


@pytest.mark.parametrize("length", [3, 4, 5, 6, 7, 8, 11, 12])
def test_truncation_is_googles(preprocessor, length):
    sizes = list(itertools.product(range(13), repeat=2))
    ids = [list(range(100, 100 + first)) for first, _ in sizes]
    pair_ids = [list(range(200, 200 + second)) for _, second in sizes]

    def ragged(lists):
        return tf.ragged.constant(lists, dtype=tf.int32, row_splits_dtype=tf.int64)

    options = {"sequence_length": length, "max_sequence_length": 99}
    found = rows(preprocessor.pack(ragged(ids), ragged(pair_ids), **options))
    assert found == [google(a, b, length) for a, b in zip(ids, pair_ids, strict=True)]
    found = rows(preprocessor.pack(ragged(ids), **options))
    assert found == [google(a, None, length) for a in ids]


def test_padding_to_the_longest_text_of_the_batch():
    free = Preprocessor(TOKENS, sequence_length=None, max_sequence_length=6)
    assert rows(free(["a", "a b c"])) == [google([5], None, 5), google([5, 6, 7], None, 5)]
    assert rows(free(["a b c d e f"])) == [google(range(5, 11), None, 6)]
    assert rows(free(["a", "a b"], ["b c d e", "c"])) == [
        google([5], [6, 7, 8, 9], 6),
        google([5, 6], [7], 6),
    ]
    assert rows(free(["", ""])) == [google([], None, 2)] * 2
    assert free(keras.Input((), dtype="string"))["input_mask"].shape == (None, None)


@pytest.mark.parametrize("length", [8, None])
def test_no_texts(length):
    layer = Preprocessor(TOKENS, sequence_length=length)
    for pair in ([], [[]]):
        out = layer([], *pair)
        assert [tuple(x.shape) for x in out.values()] == [(0, length or 2 + len(pair))] * 3


@pytest.mark.parametrize("text", ["a b", b"a b", np.str_("a b"), np.array("a b")])
def test_a_single_string(preprocessor, text):
    out = preprocessor(text)
    assert [tuple(x.shape) for x in out.values()] == [(8,)] * 3
    assert rows({k: v[None] for k, v in out.items()}) == [google([5, 6], None, 8)]
    out = preprocessor(text, text)
    assert rows({k: v[None] for k, v in out.items()}) == [google([5, 6], [5, 6], 8)]


@pytest.mark.parametrize(
    "container", [list, tuple, np.array, lambda x: np.array(x, object), tf.constant]
)
def test_containers(preprocessor, container):
    expected = [google([5, 6], None, 8), google([7], None, 8)]
    assert rows(preprocessor(container(["a b", "c"]))) == expected


def test_invalid_unicode_is_dropped(preprocessor):
    out = preprocessor(["a\ud800b", b"c\xff"])  # a lone surrogate, a stray byte
    assert rows(out) == [google([5, 14], None, 8), google([7], None, 8)]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([None], "must be strings; received None"),
        ([["a", 1.5]], "must be strings; received 1.5"),
        ([tf.zeros(2)], "must be strings; received a tensor of float32"),
        ([[["a"], ["b"]]], r"received \(2, 1\)"),
        ([tf.constant([["a"]])], r"received \(1, 1\)"),
        ([["a", "b"], ["a"]], "same shape"),
        ([["a"], [None]], "must be strings; received None"),
    ],
)
def test_errors(preprocessor, args, message):
    with pytest.raises(ValueError, match=message):
        preprocessor(*args)


@pytest.mark.parametrize("length", [2, 8.0])
@pytest.mark.parametrize("option", ["sequence_length", "max_sequence_length"])
def test_length_errors(option, length):
    with pytest.raises(ValueError, match=f"^{option} must be .*at least 3; received {length!r}"):
        Preprocessor(TOKENS, **{option: length})


@pytest.mark.parametrize("token", ["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
def test_a_missing_special_token(token):
    tokens = [other for other in TOKENS if other != token]
    with pytest.raises(ValueError, match=rf"\({len(tokens)} tokens\) has no \{token}"):
        Preprocessor(tokens)


@pytest.mark.parametrize("token", ["a\nb", "a\rb", "\r"])
def test_a_token_with_a_line_end(token):
    with pytest.raises(ValueError, match=re.escape(f"a line end; received {token!r}")):
        Preprocessor([*TOKENS, token])


def test_without_a_vocabulary():
    with pytest.raises(ValueError, match="has no vocabulary"):
        Preprocessor()(["a"])
    with pytest.raises(ValueError, match="has no vocabulary"):
        _ = Preprocessor().vocabulary


def test_the_vocabulary_from_a_file(tmp_path):
    tokens = [*TOKENS, "a\u2028b", "", "é"]
    file = tmp_path / "vocab.txt"
    text = "".join(f"{token} \n" for token in tokens)  # white space around tokens is stripped
    file.write_text(text, "utf-8", newline="\n")
    for path in (file, str(file)):
        assert list(Preprocessor(path).vocabulary) == tokens
    file.write_bytes("\r\n".join(tokens).encode())  # Windows line ends
    assert list(Preprocessor(file).vocabulary) == tokens
    with pytest.raises(FileNotFoundError):
        Preprocessor(tmp_path / "absent.txt")


@pytest.mark.parametrize(
    ("options", "text", "expected"),
    [
        ({}, "É A", ["e", "a"]),
        ({"strip_accents": False}, "É A", ["é", "a"]),
        ({"lowercase": False}, "É A", ["É", "[UNK]"]),
        ({"lowercase": False, "strip_accents": True}, "É e", ["E", "e"]),
        ({"split_cjk": False}, "日本", ["日本"]),
        ({}, "日本", ["日", "本"]),
    ],
)
def test_options_reach_the_tokenizer(untraced, options, text, expected):
    tokens = [*TOKENS[:5], "e", "é", "E", "É", "a", "日", "本", "日本"]
    layer = Preprocessor(tokens, sequence_length=4, **options)
    ids = layer(text)["input_word_ids"][1:3].numpy().tolist()
    assert [tokens[index] for index in ids if index != SEP] == expected


# --- In tf.data and in models


@pytest.mark.parametrize("length", [8, None])
def test_tf_data(length):
    layer = Preprocessor(TOKENS, sequence_length=length, max_sequence_length=8)
    texts, pairs = ["a b", "", "c d e"], ["h", "g h", ""]
    data = tf.data.Dataset.from_tensor_slices((texts, pairs))
    batched = data.batch(3).map(layer)
    assert batched.element_spec["input_word_ids"].shape.as_list() == [None, length]
    batch = next(iter(batched))
    assert rows(batch) == rows(layer(texts, pairs))
    padded = data.map(layer).padded_batch(3)  # one text at a time
    assert rows(next(iter(padded))) == rows(batch)


def test_functional_model_on_strings():
    layer = Preprocessor(TOKENS, sequence_length=8)
    text, pair = keras.Input((), dtype="string"), keras.Input((), dtype="string")
    out = layer(text, pair)
    assert {k: (tuple(v.shape), v.dtype) for k, v in out.items()} == dict.fromkeys(
        KEYS, ((None, 8), "int32")
    )
    model = keras.Model([text, pair], out)
    texts = tf.constant(["a b", "c", "d e"]), tf.constant(["f", "", "g"])
    found = model.predict(texts, batch_size=2, verbose=0)
    assert rows(found) == rows(layer(*texts))
    assert rows(model(list(texts))) == rows(layer(*texts))


# --- Saving and loading


def test_the_vocabulary_is_an_asset(tmp_path):
    # A duplicate, line separators, an empty token.
    tokens = [*TOKENS, "\u2028", "a", "\x85", " y", ""]
    layer = Preprocessor(tokens, sequence_length=5, lowercase=False)
    text = keras.Input((), dtype="string")
    keras.Model(text, layer(text)).save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    (again,) = (found for found in loaded.layers if isinstance(found, Preprocessor))
    assert again.vocabulary == layer.vocabulary
    assert again.get_config() == layer.get_config()
    assert rows(again(["A ab"])) == rows(layer(["A ab"]))
