"""Added tokens of a checkpoint: read from each file, kept in each format, matched on each way."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

import keras_bert
from keras_bert import checkpoints
from tests import tiny
from tests.checkpoints.huggingface_files import VOCABULARY, encoder_tensors, make_folder, write_json
from tests.parameters import slow

# The embeddings of the folder have 11 rows.
PIECES = VOCABULARY[:-2]
ADDED = {"[E1]": 9, "[E2]": 10}


def flags(content, **changed):
    names = ("lstrip", "rstrip", "single_word", "normalized", "special")
    return {"content": content, **dict.fromkeys(names, False), **changed}


DECODER = {"9": flags("[E1]", special=True), "10": flags("[E2]", normalized=True)}
FAST = {
    "added_tokens": [
        {"id": 2, **flags("[CLS]", special=True)},
        *({"id": int(id_), **token} for id_, token in DECODER.items()),
    ]
}
WORD_PIECE = {"type": "WordPiece", "vocab": {token: id_ for id_, token in enumerate(PIECES)}}


@pytest.mark.parametrize(
    ("files", "normalized"),
    [
        ({"added_tokens": ADDED}, {"[E1]", "[E2]"}),
        ({"tokenizer_config": {"added_tokens_decoder": DECODER}}, {"[E2]"}),
        ({"tokenizer": FAST}, {"[E2]"}),
        slow({"tokenizer": {**FAST, "model": WORD_PIECE}}, {"[E2]"}),
        (
            {
                "added_tokens": ADDED,
                "special_tokens_map": {"additional_special_tokens": ["[E1]"], "cls_token": "[CLS]"},
            },
            {"[E2]"},
        ),
        ({"special_tokens_map": {"additional_special_tokens": ["[E1]", flags("[E2]")]}}, set()),
        slow({"tokenizer_config": {"extra_special_tokens": {"a": "[E1]", "b": "[E2]"}}}, set()),
        slow({"tokenizer_config": {"bos_token": "[E1]", "eos_token": flags("[E2]")}}, set()),
    ],
)
def test_files_that_declare_added_tokens(untraced, tmp_path, files, normalized):
    has_model = "model" in files.get("tokenizer", {})
    make_folder(tmp_path, encoder_tensors(), None if has_model else PIECES)
    for name, content in files.items():
        write_json(tmp_path / f"{name}.json", content)
    preprocessor = keras_bert.load(tmp_path, sequence_length=8).preprocessor
    assert preprocessor.vocabulary[9:] == ("[E1]", "[E2]")
    assert {each.content: each.normalized for each in preprocessor.added_tokens} == {
        name: name in normalized for name in ADDED
    }
    ids = preprocessor(["a[E1] [E2]b"])["input_word_ids"][0]
    assert ids.numpy().tolist() == [2, 5, 9, 10, 6, 3, 0, 0]


def test_tokens_of_the_vocabulary_can_be_added_tokens(untraced, tmp_path):
    make_folder(tmp_path, encoder_tensors(), [*VOCABULARY[:-1], "[unused1]"])
    declared = {"additional_special_tokens": ["[unused1]", "[MASK]"]}
    write_json(tmp_path / "special_tokens_map.json", declared)
    preprocessor = keras_bert.load(tmp_path, sequence_length=8).preprocessor
    ids = preprocessor(["[unused1][MASK]"])["input_word_ids"][0].numpy().tolist()
    assert ids == [2, 10, 1, 1, 1, 3, 0, 0]  # [MASK] is plain text


def test_added_tokens_without_a_row_are_plain_text_with_a_warning(tmp_path):
    make_folder(tmp_path, encoder_tensors(), VOCABULARY)
    write_json(tmp_path / "special_tokens_map.json", {"additional_special_tokens": ["[E1]"]})
    with pytest.warns(UserWarning, match=r"no row for the added tokens \[E1\]"):
        assert keras_bert.load(tmp_path).preprocessor.added_tokens == ()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"added_tokens": {"[E1]": 11}}, "no token for 9"),
        ({"added_tokens": {"[E1]": 9, "[E2]": 10, "[E3]": 11}}, "vocab_size 11 ids, received 12"),
        ({"tokenizer_config": {"added_tokens_decoder": {"9": 5}}}, "cannot be read"),
        ({"tokenizer": {"added_tokens": [{"id": 9, "content": ""}]}}, "1 to 1024 characters"),
        ({"tokenizer": {"added_tokens": [flags("a", lstrip=1)]}}, "json: .* true or false"),
    ],
)
def test_broken_declarations(tmp_path, files, message):
    make_folder(tmp_path, encoder_tensors(), PIECES)
    for name, content in files.items():
        write_json(tmp_path / f"{name}.json", content)
    with pytest.raises(ValueError, match=message):
        checkpoints.read(tmp_path)


TOKENS = [*tiny.PIECES, "[E1]", "new film"]
TEXTS = ["this [E1] is so good", "New Film[e1] [E1]!", "a film", ""]


@pytest.fixture(scope="module")
def encoder():
    preprocessor = keras_bert.Preprocessor(
        TOKENS,
        sequence_length=12,
        max_sequence_length=32,
        added_tokens=["[E1]", {"content": "new film", "normalized": True}],
    )
    return tiny.encoder(
        vocab_size=24, hidden_act="gelu_new", preprocessor=preprocessor, pooling="mean"
    )


def ids_of_first_text():
    this, is_, so, good = (TOKENS.index(token) for token in ("this", "is", "so", "good"))
    return [2, this, 18, is_, so, good, 3, 0, 0, 0, 0, 0]


def ids_of(preprocessor):
    return np.array(preprocessor(TEXTS)["input_word_ids"]).tolist()


def test_ids(untraced, encoder):
    assert ids_of(encoder.preprocessor)[0] == ids_of_first_text()
    assert ids_of(encoder.preprocessor)[1][:2] == [2, 19]


@pytest.mark.parametrize("format", ["keras", "huggingface", "google", "sentence_transformers"])
def test_formats_keep_added_tokens(untraced, tmp_path, encoder, format):
    # Google's format holds no pooling.
    model = encoder.with_options(pooling=None) if format == "google" else encoder
    keras_bert.save(model, tmp_path / "a", format=format)
    again = keras_bert.load(tmp_path / "a", sequence_length=12).preprocessor
    assert again.vocabulary == tuple(TOKENS)
    assert again.added_tokens == encoder.preprocessor.added_tokens
    assert ids_of(again) == ids_of(encoder.preprocessor)


def test_keras_hub_cannot_hold_added_tokens(tmp_path, encoder):
    with pytest.raises(ValueError, match=r"added tokens.*\[E1\].*format='keras'"):
        keras_bert.save(encoder, tmp_path / "a", format="keras_hub")


@pytest.mark.slow  # 8 s
def test_saved_models_match_added_tokens(tmp_path, encoder):
    keras_bert.export(encoder, tmp_path / "hub")
    module = tf.saved_model.load(str(tmp_path / "hub/preprocess/1"))
    found = module(tf.constant(TEXTS))["input_word_ids"][:, :12]
    assert found.numpy().tolist() == ids_of(encoder.preprocessor)


def test_pipelines_match_added_tokens(untraced, tmp_path, encoder):
    model = keras_bert.heads.tagger(encoder, labels=["O", "B-PER"])
    keras_bert.export(model, tmp_path / "onnx", format="onnx")
    for predict in (keras_bert.pipeline(model), keras_bert.pipeline(tmp_path / "onnx")):
        words = [[entry["text"] for entry in row] for row in predict(TEXTS, grouped=False)]
        assert words[0] == ["this", "[E1]", "is", "so", "good"]
        assert words[1][0] == "New Film"
        assert words[1][-2:] == ["[E1]", "!"]


@pytest.mark.parametrize(
    ("format", "added"), [("huggingface", ["[E1]"]), ("sentence_transformers", [])]
)
def test_tokenizer_json_is_read_by_its_library(untraced, tmp_path, encoder, format, added):
    """The library finds the same ids as we, except for [MASK] and so on in texts."""
    preprocessor = encoder.preprocessor.with_options(added_tokens=added, sequence_length=None)
    model = tiny.encoder(vocab_size=24, preprocessor=preprocessor, pooling="mean")
    keras_bert.save(model, tmp_path / "a", format=format)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "a/tokenizer.json"))
    generator = np.random.default_rng(0)
    parts = [*"abgo!? #", "good", "Film", " ", "[E1]", "한국", "Ä", "film", "\u0301", "\t"]
    texts = ["".join(generator.choice(parts, size)) for size in range(1, 100)]
    for columns in ([texts], [texts[:10], texts[9::-1]]):  # long pairs are truncated otherwise
        inputs = {name: value.numpy() for name, value in preprocessor(*columns).items()}
        theirs.enable_truncation(32)
        rows = list(zip(*columns, strict=True)) if len(columns) > 1 else texts
        for index, encoding in enumerate(theirs.encode_batch(rows)):
            length = inputs["input_mask"][index].sum()
            assert inputs["input_word_ids"][index][:length].tolist() == encoding.ids
            assert inputs["input_type_ids"][index][:length].tolist() == encoding.type_ids
    theirs.no_truncation()
    assert theirs.encode("[MASK]", add_special_tokens=False).ids == [4]
    content = json.loads((tmp_path / "a/tokenizer.json").read_text())
    special = [token["content"] for token in content["added_tokens"] if token["special"]]
    assert special == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
