"""The tokenizer.json of Hugging Face's tokenizers library, for BERT's WordPiece.

Source: huggingface/tokenizers, `tokenizer/serialization.rs`, `normalizers/bert.rs`.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import added_tokens, folder, json_schema
from keras_bert.untrusted.errors import invalid

FILE = "tokenizer.json"
MAX_WORD_LENGTH = 200  # characters; `max_input_chars_per_word` of Google's WordpieceTokenizer

_LEAST_WORD_LENGTH = 100  # `max_input_chars_per_word` of Hugging Face's BertTokenizer
_SUFFIX = "##"
# Keys of the elements of a part with the type "Sequence".
_SEQUENCES = ("normalizers", "pretokenizers", "processors")
_MODEL = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": _SUFFIX}
_CLS = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
_SEP = {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
_REQUIRED_TOKENS = {"[UNK]", "[CLS]", "[SEP]"}  # the library reads no file without them
_SINGLE = [_CLS, {"Sequence": {"id": "A", "type_id": 0}}, _SEP]
_PAIR = [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]


def read(path: Path) -> dict[str, Any]:
    """Read the tokenizer.json in a folder, or return an empty dict if there is none.

    Raise a `ValueError` for a part that does not do what BERT's tokenizer does. Parts that the file
    lacks are not checked.
    """
    file = path / FILE
    content = folder.read_optional_json(file)
    checks = {
        "normalizer": _is_bert_normalizer,
        "pre_tokenizer": lambda part: part == {"type": "BertPreTokenizer"},
        "post_processor": _adds_cls_and_sep,
        "truncation": _is_at_the_end,
        "padding": _is_at_the_end,
    }
    for name, is_right in checks.items():
        if name in content:
            content[name] = _unwrapped(content[name])
            if not is_right(content[name]):
                rule = f"{name} must be that of BERT"
                raise invalid(file, rule, content[name], folder.OTHER_TOKENIZER)
    _check_model(file, content.get("model") or {})
    _check_ids(file, content)
    return content


def vocabulary(file: Path, content: Mapping[str, Any]) -> dict[int, str]:
    """Return {id: token} of the model in the content of a tokenizer.json."""
    tokens: dict[str, int] = content["model"]["vocab"]
    # Python finds integers of the same hash in quadratic time, and only large ones have it.
    for token, id_ in tokens.items():
        folder.check_id(file, token, id_)
    return {id_: token for token, id_ in tokens.items()}


def write(path: Path, tokenizer: Mapping[str, Any], vocabulary: Sequence[str]) -> None:
    """Write tokenizer.json, for transformers and the tokenizers library."""
    if not _REQUIRED_TOKENS.difference(vocabulary):
        folder.write_json(path / FILE, _content(vocabulary, tokenizer))


def text(tokenizer: Mapping[str, Any], vocabulary: Sequence[str]) -> str:
    """Return the text of a tokenizer.json, see `write`."""
    return json.dumps(_content(vocabulary, tokenizer), ensure_ascii=False)


def _content(vocabulary: Sequence[str], tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a tokenizer.json with the options of `ModelSpec.tokenizer`."""
    ids = {token: index for index, token in enumerate(vocabulary)}
    tokens = tokenizer.get("added_tokens", ())
    added = [dataclasses.asdict(token) | {"special": False} for token in tokens]
    added += [
        dataclasses.asdict(added_tokens.AddedToken(token)) | {"special": True}
        for token in added_tokens.SPECIAL
        if token in ids
    ]
    added_with_ids = [{"id": ids[token["content"]], **token} for token in added]
    pieces = added_tokens.word_pieces(vocabulary, tokens)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added_with_ids, key=lambda token: token["id"]),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": tokenizer["split_cjk"],
            "strip_accents": tokenizer["strip_accents"],
            "lowercase": tokenizer["lowercase"],
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": _SINGLE,
            "pair": [*_SINGLE, *_PAIR],
            "special_tokens": {
                token: {"id": token, "ids": [ids[token]], "tokens": [token]}
                for token in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": _SUFFIX, "cleanup": True},
        "model": {
            **_MODEL,
            "max_input_chars_per_word": MAX_WORD_LENGTH,
            "vocab": {token: ids[token] for token in pieces},
        },
    }


def _unwrapped(part: Any) -> Any:
    """Return the only element of a sequence of one normalizer, pre-tokenizer or processor."""
    for name in _SEQUENCES:
        inner = part.get(name) if isinstance(part, dict) else None
        if isinstance(inner, list) and len(inner) == 1:
            return inner[0]
    return part


def _is_bert_normalizer(part: Any) -> bool:
    if not isinstance(part, dict) or part.get("type") != "BertNormalizer":
        return False
    options = [part.get(key) for key in ("lowercase", "strip_accents", "handle_chinese_chars")]
    has_flags = all(isinstance(option, bool | None) for option in options)
    return has_flags and part.get("clean_text", True) is True


def _adds_cls_and_sep(part: Any) -> bool:
    if part is None:
        return True
    if part["type"] == "BertProcessing":
        tokens = [part["cls"][0], part["sep"][0]]  # each is [token, id]
        return tokens == ["[CLS]", "[SEP]"]
    expected = {"type": "TemplateProcessing", "single": _SINGLE, "pair": [*_SINGLE, *_PAIR]}
    return all(part.get(key) == value for key, value in expected.items())


def _check_ids(file: Path, content: Mapping[str, Any]) -> None:
    """Raise a `ValueError` if the post-processor adds other ids than those of [CLS] and [SEP]."""
    part = content.get("post_processor") or {}
    received = {name: entry.get("ids") for name, entry in part.get("special_tokens", {}).items()}
    if part.get("type") == "BertProcessing":
        received = {token: [id_] for token, id_ in (part["cls"], part["sep"])}
    ids = dict((content.get("model") or {}).get("vocab") or {})
    for token in content.get("added_tokens") or ():
        ids.setdefault(token.get("content"), token.get("id"))
    for name in ("[CLS]", "[SEP]"):
        if name in ids and received.get(name, [ids[name]]) != [ids[name]]:
            rule = f"post_processor must be that of BERT, which adds the id {ids[name]} for {name}"
            raise invalid(file, rule, received[name], folder.OTHER_TOKENIZER)


def _is_at_the_end(part: Any) -> bool:
    return part is None or bool(part.get("direction", "Right") == "Right")


def _check_model(file: Path, model: Mapping[str, Any]) -> None:
    json_schema.check(file, model, _MODEL, of="in the model", advice=folder.OTHER_TOKENIZER)
    length = model.get("max_input_chars_per_word", MAX_WORD_LENGTH)
    if type(length) is not int or length < _LEAST_WORD_LENGTH:
        rule = f"max_input_chars_per_word must be at least {_LEAST_WORD_LENGTH}"
        raise invalid(file, rule, length, folder.OTHER_TOKENIZER)
