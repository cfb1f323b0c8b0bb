"""Tokenizer files in the layouts of published models: equal ids, or one line that says why not.

Each row has the files of a published model, made with a tiny vocabulary. Its name says where the
layout is from; addresses without a host are on huggingface.co.
"""

import dataclasses

import pytest
import tokenizers

import keras_bert
from tests.checkpoints.huggingface_files import encoder_tensors, make_folder, write_json

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NAMES = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
FLAGS = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
VOCABULARY = [
    *SPECIAL, "[unused1]", "das", "größe", "große", "##s", "한국", "##어", "##는", "日", "本", "的",
    "a", "##n", "!", "[", "]", "paris", "Paris",
]  # fmt: skip
SENTENCEPIECE = [*SPECIAL, "▁한국", "▁영화", "▁좋", "다", "는"]
TEXTS = [
    "Das große Paris!", "das Größe [DEC]Paris", "한국어는 [BOP] [unused1]한국", "日本 的a",
    "an [bop]An, paris[DEC]", "",
]  # fmt: skip
ROWS = len(VOCABULARY) + 8  # of the embeddings


@dataclasses.dataclass
class Layout:
    """The files of a model, and what its own library does with them."""

    files: dict = dataclasses.field(default_factory=dict)
    vocabulary: list | str | None = dataclasses.field(default_factory=lambda: VOCABULARY)
    lowercase: bool = False
    strip_accents: bool | None = None
    split_cjk: bool = True
    added: dict = dataclasses.field(default_factory=dict)  # token -> normalized
    error: str | None = None


def word_piece(**parts):
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": False,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: index for index, token in enumerate(VOCABULARY)},
        },
        **parts,
    }


def decoder(*contents, special=True):
    first = len(VOCABULARY)
    tokens = {index: token for index, token in enumerate(SPECIAL)}
    tokens |= {first + index: token for index, token in enumerate(contents)}
    return {
        str(index): {"content": token, **FLAGS, "special": special}
        for index, token in tokens.items()
    }


KLUE = {
    "do_lower_case": False, "do_basic_tokenize": True, "never_split": None, "strip_accents": None,
    "tokenize_chinese_chars": True, "model_max_length": 512, "tokenizer_class": "BertTokenizer",
    **NAMES,
}  # fmt: skip
MECAB = {"do_lower_case": False, "word_tokenizer_type": "mecab"}
KOBERT = "tokenization_kobert.KoBertTokenizer"
ID = len(VOCABULARY)

LAYOUTS = {
    "klue/bert-base, of jhgan/ko-sbert-sts": Layout({"tokenizer_config": KLUE}),
    "klue/bert-base, tokenizer.json without vocab.txt, of AsterGoldman/klue-bert-base": Layout(
        {"tokenizer_config": KLUE, "tokenizer": word_piece()}, vocabulary=None
    ),
    "german-nlp-group/electra-base-german-uncased": Layout(
        {"tokenizer_config": {"do_lower_case": True, "strip_accents": False}},
        lowercase=True,
        strip_accents=False,
    ),
    "Outposts/news-classification": Layout(
        {
            "added_tokens": {token: index for index, token in enumerate(SPECIAL)},
            "special_tokens_map": NAMES,
            "tokenizer_config": {**KLUE, "added_tokens_decoder": decoder(special=False)},
        }
    ),
    "Salesforce/blip2-itm-vit-g-coco": Layout(
        {
            "added_tokens": {"[DEC]": ID, "[CLS]": 2},
            "tokenizer_config": {**KLUE, "added_tokens_decoder": decoder("[DEC]")},
        },
        added={"[DEC]": False},
    ),
    "Salesforce/blip2-itm-vit-g-coco, old files": Layout(
        {"added_tokens": {"[DEC]": ID}, "tokenizer_config": KLUE}, added={"[DEC]": True}
    ),
    "hd10/semeval2020_task11_tc": Layout(
        {
            "tokenizer_config": {"do_lower_case": True, **NAMES},
            "special_tokens_map": {**NAMES, "additional_special_tokens": ["[BOP]", "[EOP]"]},
        },
        lowercase=True,
        added={"[BOP]": False, "[EOP]": False},
    ),
    "github.com/certainlyio/nordic_bert/issues/3": Layout(  # 31,748 tokens for 32,000 rows
        {"tokenizer_config": {"do_lower_case": False}}
    ),
    "github.com/nghuyong/ERNIE-Pytorch/issues/10, edited on Windows": Layout(
        {"tokenizer_config": {"do_lower_case": False}},
        vocabulary="\ufeff" + "\r\n".join(VOCABULARY) + "\r\n\r\n",
    ),
    "tohoku-nlp/bert-base-japanese": Layout(
        {"tokenizer_config": {**MECAB, "subword_tokenizer_type": "wordpiece"}},
        error="mecab of BertJapaneseTokenizer",
    ),
    "Formzu/bert-base-japanese-jsnli": Layout(
        {"tokenizer_config": {**MECAB, "tokenizer_class": "BertJapaneseTokenizer", **NAMES}},
        error="received 'BertJapaneseTokenizer",
    ),
    "monologg/kobert": Layout(
        {
            "tokenizer_config": {
                "do_lower_case": False,
                "tokenizer_class": "KoBertTokenizer",
                "auto_map": {"AutoTokenizer": [KOBERT, KOBERT]},
            }
        },
        vocabulary=SENTENCEPIECE,
        error="SentencePiece|KoBertTokenizer",
    ),  # fmt: skip
    "antoinelouis/camembert-L2": Layout(
        {"special_tokens_map": {"cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>"}},
        error="unk_token must be '.UNK.', received '<unk>'",
    ),
    "github.com/microsoft/archai archai/nlp/datasets/hf_datasets/tokenizer_utils": Layout(
        {
            "tokenizer": word_piece(
                normalizer={
                    "type": "Sequence",
                    "normalizers": [
                        {"type": "NFD"},
                        {"type": "Lowercase"},
                        {"type": "StripAccents"},
                    ],
                },
                pre_tokenizer={"type": "Whitespace"},
            ),
            "tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast"},
        },
        error="normalizer must be that of BERT",
    ),
}


def make(path, layout):
    vocabulary = layout.vocabulary if isinstance(layout.vocabulary, list) else None
    tensors = encoder_tensors()
    name = "bert.embeddings.word_embeddings.weight"
    tensors[name] = tensors[name].repeat(ROWS, axis=0)[:ROWS]
    make_folder(path, tensors, vocabulary, vocab_size=ROWS)
    if isinstance(layout.vocabulary, str):
        (path / "vocab.txt").write_bytes(layout.vocabulary.encode())
    for file, content in layout.files.items():
        write_json(path / f"{file}.json", content)


def library_of(layout):
    """Return the tokenizer of Hugging Face's library that the layout's own library builds."""
    pieces = {token: index for index, token in enumerate(VOCABULARY)}
    tokenizer = tokenizers.BertWordPieceTokenizer(
        pieces,
        lowercase=layout.lowercase,
        strip_accents=layout.strip_accents,
        handle_chinese_chars=layout.split_cjk,
    )
    for token, normalized in layout.added.items():
        tokenizer.add_tokens([tokenizers.AddedToken(token, normalized=normalized)])
    return tokenizer


@pytest.mark.parametrize("name", LAYOUTS)
def test_published_layouts(untraced, tmp_path, name):
    layout = LAYOUTS[name]
    make(tmp_path, layout)
    if layout.error is not None:
        with pytest.raises(ValueError, match=layout.error) as raised:
            keras_bert.load(tmp_path)
        assert "\n" not in str(raised.value)
        return
    preprocessor = keras_bert.load(tmp_path, sequence_length=None).preprocessor
    assert len(preprocessor.vocabulary) <= ROWS
    theirs = library_of(layout)
    found = preprocessor.tokenizer.tokenize(TEXTS).to_list()
    for text, ids in zip(TEXTS, found, strict=True):
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ids == expected, text
