"""Vocabularies and tokenizer options in Hugging Face folders."""

import pytest

import keras_bert
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
    return checkpoints.read(path).spec.tokenizer


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


def config(**values):
    return {"tokenizer_config": values}


def fast(**values):
    return {"tokenizer": normalizer(**values)}


@pytest.mark.parametrize(
    ("vocabulary", "files", "expected"),
    [
        (VOCABULARY, {}, options(True, True)),
        (CASED, {}, options(False, False)),
        (None, {}, options(True, True)),
        (VOCABULARY, config(do_lower_case=False), options(False, False)),
        (CASED, config(do_lower_case=True), options(True, True)),
        (CASED, config(do_lower_case=True, strip_accents=False), options(True, False)),
        (
            CASED,
            config(strip_accents=True, tokenize_chinese_chars=False),
            options(False, True, False),
        ),
        (CASED, fast(lowercase=True, strip_accents=None), options(True, True)),
        (
            CASED,
            {"tokenizer": NORMALIZER}
            | config(do_lower_case=False, tokenizer_class="PreTrainedTokenizerFast"),
            options(True, False, False),
        ),
        (CASED, {"tokenizer": {"post_processor": None}}, options(False, False)),
    ],
)
def test_tokenizer_options(tmp_path, vocabulary, files, expected):
    assert read_tokenizer(tmp_path, vocabulary, **files) == expected


@pytest.mark.parametrize(
    ("stated", "changes", "expected", "named"),
    [
        (NORMALIZER, {}, options(True, False, False), "strip_accents=false"),
        (NORMALIZER, {"do_lower_case": False}, options(False, False, False), "chinese_chars"),
        (normalizer(lowercase=False), {}, options(False, False), "do_lower_case=false"),
    ],
)
def test_options_that_only_tokenizer_json_states(tmp_path, stated, changes, expected, named):
    files = {"tokenizer": stated, "tokenizer_config": changes}
    with pytest.warns(UserWarning, match=f"{named}.*transformers uses its defaults"):
        assert read_tokenizer(tmp_path, VOCABULARY, **files) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tokenizer_config": {"model_max_length": 8}}, 8),
        ({"tokenizer_config": {"max_len": 7}}, 7),
        ({"tokenizer_config": {"model_max_length": 9}}, None),  # there are 8 positions
        ({"sentence_bert_config": {"max_seq_length": 5}}, 5),
        ({"sentence_bert_config": {"max_seq_length": None}, "tokenizer_config": {"max_len": 8}}, 8),
    ],
)
def test_sequence_length(tmp_path, files, expected):
    assert read_tokenizer(tmp_path, **files)["sequence_length"] == expected


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
    assert checkpoints.read(tmp_path).spec.vocabulary == VOCABULARY


def test_vocab_txt_with_added_tokens(tmp_path):
    make_folder(tmp_path, encoder_tensors(), VOCABULARY[:-2])
    write_json(tmp_path / "tokenizer.json", word_piece(VOCABULARY[:-2]))
    write_json(tmp_path / "added_tokens.json", {"f": 10, "e": 9, "[CLS]": 2})
    assert checkpoints.read(tmp_path).spec.vocabulary == VOCABULARY


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (word_piece([*VOCABULARY, "g"]), "vocab_size 11 ids, received 12"),
        (word_piece(VOCABULARY[:-1], added=[(11, "f")]), "received no token for 10"),
        ({"model": {"type": "BPE", "vocab": {}}}, "'WordPiece' in the model, received 'BPE'"),
        ({"model": None}, "must have the model of a tokenizer"),
        ({}, "must have the model of a tokenizer"),
    ],
)
def test_vocabulary_errors_in_tokenizer_json(tmp_path, tokenizer, message):
    make_folder(tmp_path, encoder_tensors())
    write_json(tmp_path / "tokenizer.json", tokenizer)
    with pytest.raises(ValueError, match=message):
        checkpoints.read(tmp_path)


def test_a_vocabulary_must_not_be_longer_than_the_embeddings(tmp_path):
    make_folder(tmp_path, encoder_tensors(), [*VOCABULARY, "x"])
    with pytest.raises(ValueError, match="vocab.txt: .*vocab_size 11 ids, received 12$"):
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
    assert checkpoint.spec.vocabulary == VOCABULARY
    assert checkpoint.spec.tokenizer == options(lowercase, lowercase, False, 6)


BERT = {
    "normalizer": {"type": "BertNormalizer", "clean_text": True, "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
    "truncation": {"direction": "Right", "max_length": 8},
    **word_piece(VOCABULARY),
}


def sequence(kind, *types):
    return {"type": "Sequence", kind: [{"type": each} for each in types]}


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("normalizer", None, "received None"),
        ("normalizer", {"type": "Lowercase"}, "received .*Lowercase"),
        ("normalizer", sequence("normalizers", "NFKC", "Lowercase"), "received .*NFKC"),
        ("normalizer", {"type": "BertNormalizer", "clean_text": False}, "'clean_text': False"),
        ("pre_tokenizer", {"type": "WhitespaceSplit"}, "received .*WhitespaceSplit"),
        ("post_processor", {"type": "RobertaProcessing"}, "received .*RobertaProcessing"),
        ("post_processor", {**BERT["post_processor"], "sep": ["</s>", 3]}, "'</s>'"),
        ("post_processor", {**BERT["post_processor"], "sep": ["[SEP]", 5]}, "adds the id 3"),
        ("truncation", {"direction": "Left", "max_length": 8}, "'direction': 'Left'"),
        ("padding", {"direction": "Left"}, "'direction': 'Left'"),
    ],
)
def test_other_tokenizers_in_tokenizer_json_are_errors(tmp_path, part, value, message):
    make_folder(tmp_path, encoder_tensors())
    write_json(tmp_path / "tokenizer.json", BERT)
    checkpoints.read(tmp_path)
    write_json(tmp_path / "tokenizer.json", {**BERT, part: value})
    with pytest.raises(ValueError, match=f"tokenizer.json: {part} must be .*{message}.*without"):
        checkpoints.read(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("unk_token", "<unk>"),
        ("continuing_subword_prefix", "@@"),
        ("max_input_chars_per_word", 20),
        ("type", "Unigram"),
    ],
)
def test_other_models_in_tokenizer_json_are_errors(tmp_path, key, value):
    make_folder(tmp_path, encoder_tensors(), VOCABULARY)
    write_json(tmp_path / "tokenizer.json", {**BERT, "model": {**BERT["model"], key: value}})
    with pytest.raises(ValueError, match=f"tokenizer.json: {key} .*must be .*received .*{value}"):
        checkpoints.read(tmp_path)


def test_a_sequence_of_one_is_that_one(tmp_path):
    make_folder(tmp_path, encoder_tensors(), VOCABULARY)
    wrapped = {
        "normalizer": {"type": "Sequence", "normalizers": [BERT["normalizer"]]},
        "pre_tokenizer": sequence("pretokenizers", "BertPreTokenizer"),
    }
    write_json(tmp_path / "tokenizer.json", {**BERT, **wrapped})
    assert checkpoints.read(tmp_path).spec.tokenizer == options(True, True)


JAPANESE = {"word_tokenizer_type": "mecab", "subword_tokenizer_type": "wordpiece"}


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("config", {"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
        ("config", {"tokenizer_class": ["BertTokenizer"]}, "BertTokenizer"),
        ("tokenizer_config", {"tokenizer_class": "XLMRobertaTokenizerFast"}, "XLMRobertaTokenizer"),
        ("tokenizer_config", {"auto_map": {"AutoTokenizer": ["kobert.KoBert", None]}}, "KoBert"),
        ("tokenizer_config", JAPANESE, "mecab of BertJapanese"),
    ],
)
def test_tokenizers_that_are_not_berts(tmp_path, name, values, message):
    make_folder(tmp_path, encoder_tensors(), VOCABULARY, **(values if name == "config" else {}))
    if name != "config":
        write_json(tmp_path / f"{name}.json", values)
    with pytest.raises(ValueError, match=f"/{name}.json: tokenizer_class .*{message}.*without"):
        checkpoints.read(tmp_path)
    (tmp_path / "vocab.txt").unlink()  # what the error advises
    assert checkpoints.read(tmp_path).spec.vocabulary is None


@pytest.mark.parametrize("name", ["DistilBertTokenizer", "ElectraTokenizerFast"])
def test_berts_tokenizer_has_several_names(tmp_path, name):
    make_folder(tmp_path, encoder_tensors(), VOCABULARY, tokenizer_class=name)
    assert checkpoints.read(tmp_path).spec.vocabulary == VOCABULARY


@pytest.mark.parametrize(
    ("key", "value"),
    [("padding_side", "left"), ("do_basic_tokenize", False), ("do_lower_case", "yes")],
)
def test_options_that_would_change_the_ids(tmp_path, key, value):
    with pytest.raises(ValueError, match=f"tokenizer_config.json: {key} must be"):
        read_tokenizer(tmp_path, tokenizer_config={key: value})


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("value", ["<s>", {"content": "<s>", "lstrip": False}])
def test_special_tokens_with_other_names(tmp_path, file, value):
    make_folder(tmp_path, encoder_tensors(), VOCABULARY)
    write_json(tmp_path / file, {"cls_token": value})
    with pytest.raises(ValueError, match=rf"{file}: cls_token must be '\[CLS\]', received '<s>'"):
        checkpoints.read(tmp_path)
    write_json(tmp_path / file, {"cls_token": {"content": "[CLS]"}})
    checkpoints.read(tmp_path)


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁한국", "▁영화", "는"]


def test_sentencepiece_vocabularies_are_errors(tmp_path):
    make_folder(tmp_path, encoder_tensors(), PIECES)
    with pytest.raises(ValueError, match="vocab.txt: .*SentencePiece.*without vocab.txt"):
        checkpoints.read(tmp_path)
    with pytest.raises(ValueError, match="SentencePiece"):
        keras_bert.Preprocessor(PIECES)
    keras_bert.Preprocessor([*VOCABULARY, "▁", "▁▁", "##▁", "##a"])  # of a multilingual BERT


@pytest.mark.parametrize("missing", [["[PAD]"], ["[CLS]", "[SEP]"]])
def test_vocabularies_without_special_tokens(tmp_path, missing):
    make_folder(tmp_path, encoder_tensors(), [each for each in VOCABULARY if each not in missing])
    names = ", ".join(missing).replace("[", r"\[")
    with pytest.raises(ValueError, match=f"has no {names}. Add it"):
        keras_bert.load(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    assert keras_bert.load(tmp_path).preprocessor is None


@pytest.mark.parametrize(
    ("change", "message"),
    [(lambda tokens: [*tokens[:-1], "other"], "'other'"), (lambda tokens: tokens[:-1], "has None")],
)
def test_two_vocabularies_that_differ_are_an_error(tmp_path, change, message):
    tokens = change(VOCABULARY)
    vocab = {token: index for index, token in enumerate(tokens)}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab}
    with pytest.raises(ValueError, match=f"{message}.*Delete the file"):
        read_tokenizer(tmp_path, tokenizer={"model": model})


def test_tokenizer_json_may_leave_out_repeated_and_added_tokens(tmp_path):
    vocabulary = [*VOCABULARY[:-2], VOCABULARY[-3], "<e>"]
    vocab = {token: index for index, token in enumerate(vocabulary[:-1])}
    added = [{"id": len(vocabulary) - 1, "content": "<e>", "special": False}]
    content = {"model": {"unk_token": "[UNK]", "vocab": vocab}, "added_tokens": added}
    found = read_tokenizer(tmp_path, vocabulary, tokenizer=content)
    assert [token.content for token in found["added_tokens"]] == ["<e>"]
