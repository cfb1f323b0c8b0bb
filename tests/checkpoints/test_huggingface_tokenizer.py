"""Vocabularies and tokenizer options in Hugging Face folders."""

import pytest

from keras_bert import checkpoints
from tests.checkpoints.huggingface_files import (
    CASED,
    VOCABULARY,
    encoder_tensors,
    make_folder,
    write_json,
)


def read_tokenizer(path, vocabulary=VOCABULARY, **files):
    make_folder(path, encoder_tensors(), vocabulary)
    for name, content in files.items():
        write_json(path / f"{name}.json", content)
    return checkpoints.read(path).tokenizer


def options(lowercase, strip_accents, split_cjk=True, sequence_length=None):
    return {
        "lowercase": lowercase,
        "strip_accents": strip_accents,
        "split_cjk": split_cjk,
        "sequence_length": sequence_length,
    }


def normalizer(**values):
    return {"normalizer": {"type": "BertNormalizer", "clean_text": True, **values}}


NORMALIZER = normalizer(lowercase=True, strip_accents=False, handle_chinese_chars=False)


@pytest.mark.parametrize(
    ("vocabulary", "files", "expected"),
    [
        (VOCABULARY, {}, options(True, True)),
        (CASED, {}, options(False, False)),
        (None, {}, options(True, True)),
        (VOCABULARY, {"tokenizer_config": {"do_lower_case": False}}, options(False, False)),
        (CASED, {"tokenizer_config": {"do_lower_case": True}}, options(True, True)),
        (
            CASED,
            {"tokenizer_config": {"do_lower_case": True, "strip_accents": None}},
            options(True, True),
        ),
        (
            CASED,
            {"tokenizer_config": {"do_lower_case": True, "strip_accents": False}},
            options(True, False),
        ),
        (
            CASED,
            {"tokenizer_config": {"strip_accents": True, "tokenize_chinese_chars": False}},
            options(False, True, split_cjk=False),
        ),
        (CASED, {"tokenizer": NORMALIZER}, options(True, False, split_cjk=False)),
        (
            CASED,
            {"tokenizer": normalizer(lowercase=True, strip_accents=None)},
            options(True, True),
        ),
        (
            CASED,
            {"tokenizer": NORMALIZER, "tokenizer_config": {"do_lower_case": False}},
            options(False, False, split_cjk=False),
        ),
        (CASED, {"tokenizer": {"normalizer": None}}, options(False, False)),
        (CASED, {"tokenizer": {"normalizer": {"type": "Lowercase"}}}, options(False, False)),
    ],
)
def test_tokenizer_options(tmp_path, vocabulary, files, expected):
    if vocabulary is None:
        files = {}
    assert read_tokenizer(tmp_path, vocabulary, **files) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tokenizer_config": {"model_max_length": 8}}, 8),
        ({"tokenizer_config": {"max_len": 7}}, 7),
        ({"tokenizer_config": {"model_max_length": int(1e30)}}, None),
        ({"tokenizer_config": {"model_max_length": 9}}, None),  # there are 8 positions
        ({"tokenizer_config": {"model_max_length": None}}, None),
        (
            {
                "sentence_bert_config": {"max_seq_length": 5},
                "tokenizer_config": {"model_max_length": 8},
            },
            5,
        ),
        (
            {
                "sentence_bert_config": {"max_seq_length": None},
                "tokenizer_config": {"model_max_length": 8},
            },
            8,
        ),
    ],
)
def test_sequence_length(tmp_path, files, expected):
    assert read_tokenizer(tmp_path, **files)["sequence_length"] == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"do_lower_case": "yes"}, "do_lower_case must be true, false or null, received 'yes'"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "tokenizer_class must be one of BERT's"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize must be true, received false"),
    ],
)
def test_tokenizer_errors(tmp_path, config, message):
    with pytest.raises(ValueError, match=f"tokenizer_config.json: {message}"):
        read_tokenizer(tmp_path, tokenizer_config=config)


def word_piece(pieces, added=()):
    return {
        "model": {
            "type": "WordPiece",
            "vocab": {p: i for i, p in reversed(list(enumerate(pieces)))},
        },
        "added_tokens": [{"id": i, "content": piece} for i, piece in added],
    }


@pytest.mark.parametrize(
    "tokenizer",
    [
        word_piece(VOCABULARY),
        word_piece(VOCABULARY, added=[(0, "[PAD]")]),
        word_piece(VOCABULARY[:-1], added=[(0, "[PAD]"), (10, "f")]),
    ],
)
def test_vocabulary_from_tokenizer_json(tmp_path, tokenizer):
    make_folder(tmp_path, encoder_tensors())
    write_json(tmp_path / "tokenizer.json", tokenizer)
    assert checkpoints.read(tmp_path).vocabulary == VOCABULARY


def test_vocab_txt_with_added_tokens(tmp_path):
    make_folder(tmp_path, encoder_tensors(), VOCABULARY[:-2])
    write_json(tmp_path / "tokenizer.json", word_piece(CASED))
    write_json(tmp_path / "added_tokens.json", {"f": 10, "e": 9, "[CLS]": 2})
    assert checkpoints.read(tmp_path).vocabulary == VOCABULARY


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (word_piece(VOCABULARY[:-1]), "vocab_size 11 ids, received 10"),
        (word_piece(VOCABULARY[:-1], added=[(11, "f")]), "received no token for id 10"),
        ({"model": {"type": "BPE", "vocab": {}}}, "model must be WordPiece, received 'BPE'"),
        ({"model": None}, "must hold a WordPiece model with its vocab"),
        ({}, "must hold a WordPiece model with its vocab"),
    ],
)
def test_vocabulary_errors_in_tokenizer_json(tmp_path, tokenizer, message):
    make_folder(tmp_path, encoder_tensors())
    write_json(tmp_path / "tokenizer.json", tokenizer)
    with pytest.raises(ValueError, match=f"tokenizer.json: .*{message}"):
        checkpoints.read(tmp_path)


@pytest.mark.parametrize("vocabulary", [VOCABULARY[:-1], [*VOCABULARY, "x"]])
def test_vocabulary_of_the_wrong_size(tmp_path, vocabulary):
    make_folder(tmp_path, encoder_tensors(), vocabulary)
    with pytest.raises(
        ValueError, match=rf"vocab.txt: .*vocab_size 11 ids, received {len(vocabulary)}$"
    ):
        checkpoints.read(tmp_path)


@pytest.mark.peers
@pytest.mark.parametrize("lowercase", [True, False])
def test_tokenizer_saved_by_transformers(tmp_path, lowercase):
    transformers = pytest.importorskip("transformers")
    make_folder(tmp_path, encoder_tensors(), VOCABULARY)
    tokenizer = transformers.BertTokenizer.from_pretrained(
        tmp_path, do_lower_case=lowercase, tokenize_chinese_chars=False, model_max_length=6
    )
    (tmp_path / "vocab.txt").unlink()
    tokenizer.save_pretrained(tmp_path)
    checkpoint = checkpoints.read(tmp_path)
    assert checkpoint.vocabulary == VOCABULARY
    assert checkpoint.tokenizer == options(lowercase, lowercase, False, 6)
