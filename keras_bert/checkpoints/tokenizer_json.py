"""The tokenizer.json of Hugging Face's tokenizers library, for BERT's WordPiece.

Source: huggingface/tokenizers, `tokenizer/serialization.rs`, `normalizers/bert.rs`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_bert.checkpoints import added_tokens, folder
from keras_bert.runtime.escaping import printable
from keras_bert.untrusted.errors import invalid

FILE = "tokenizer.json"
MAX_WORD_LENGTH = 200  # characters; `max_input_chars_per_word` of Google's WordpieceTokenizer

_LEAST_WORD_LENGTH = 100  # `max_input_chars_per_word` of Hugging Face's BertTokenizer
_MAX_ADDED = 2**20  # characters; the library takes a second to build a matcher of them
_SUFFIX = "##"
# Keys of the elements of a part with the type "Sequence".
_SEQUENCES = ("normalizers", "pretokenizers", "processors")
_MODEL = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": _SUFFIX}
_CLS = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
_SEP = {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
_REQUIRED_TOKENS = {"[UNK]", "[CLS]", "[SEP]"}  # the library reads no file without them
_TEXT = {"Sequence": {"id": "A", "type_id": 0}}
_PAIR = [
    {"Sequence": {"id": "B", "type_id": 1}},
    {"SpecialToken": {"id": "[SEP]", "type_id": 1}},
]


def read(path: Path, advice: str = folder.OTHER_TOKENIZER) -> dict[str, Any]:
    """Read the tokenizer.json in a folder, or return an empty dict if there is none.

    Raise a `ValueError` for a part that does not do what BERT's tokenizer does. The error ends
    with `advice`. Parts that the file lacks are not checked.
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
                raise _refused(file, name, content[name], advice)
    model = content.get("model")
    if isinstance(model, dict):
        _check_model(file, model, advice)
    return content


def normalizer(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of the normalizer in the content of a tokenizer.json."""
    options: Mapping[str, Any] = content.get("normalizer") or {}
    return options


def vocabulary(file: Path, content: Mapping[str, Any]) -> dict[int, str]:
    """Return {id: token} of the model in the content of a tokenizer.json."""
    model = content.get("model")
    tokens = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(tokens, dict):
        raise invalid(file, "must hold a WordPiece model with its vocab", tokens)
    # Python finds integers of the same hash in quadratic time, and only large ones have it.
    for token, id_ in tokens.items():
        folder.check_id(file, token, id_)
    return {id_: token for token, id_ in tokens.items()}


def write(path: Path, tokenizer: Mapping[str, Any], vocabulary: Sequence[str]) -> None:
    """Write tokenizer.json, for transformers and the tokenizers library."""
    if not _REQUIRED_TOKENS.difference(vocabulary):
        folder.write_json(path / FILE, content(vocabulary, tokenizer, special=True))


def content(
    vocabulary: Sequence[str], tokenizer: Mapping[str, Any], *, special: bool
) -> dict[str, Any]:
    """Return the content of a tokenizer.json with the options of `Checkpoint.tokenizer`.

    With `special`, the library also matches [CLS], [SEP] and so on in texts, as transformers
    needs it.
    """
    ids = {token: index for index, token in enumerate(vocabulary)}
    tokens = tokenizer.get("added_tokens", ())
    added = [dataclasses.asdict(token) | {"special": False} for token in tokens]
    if special:
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
            "single": [_CLS, _TEXT, _SEP],
            "pair": [_CLS, _TEXT, _SEP, *_PAIR],
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


class ExportedTokenizer(NamedTuple):
    """The tokenizer.json in an ONNX folder.

    Attributes:
        ids: The id of each token.
        options: Arguments of `PythonTokenizer` besides the vocabulary.
        max_length: Maximum number of tokens of a text, not checked.
    """

    ids: dict[str, int]
    options: dict[str, Any]
    max_length: Any


def read_exported(path: Path) -> ExportedTokenizer:
    """Read the tokenizer.json in an ONNX folder."""
    file = path / FILE
    advice = "Export the model again"
    exported = read(path, advice)
    for name in ("normalizer", "pre_tokenizer", "model"):
        if not isinstance(exported.get(name), dict):
            raise _refused(file, name, exported.get(name), advice)
    ids = {token: id_ for id_, token in vocabulary(file, exported).items()}
    added = []
    for fields in exported.get("added_tokens") or ():
        token = _added_token(file, fields)
        ids.setdefault(token.content, fields.get("id"))
        added.append(token)
    characters = sum(len(token.content) for token in added)
    if characters > _MAX_ADDED:
        rule = f"added tokens must have at most {_MAX_ADDED} characters in total"
        raise invalid(file, rule, characters, advice)
    missing = {*_REQUIRED_TOKENS, "[PAD]"}.difference(ids)
    if missing:
        raise ValueError(f"{file}: has no token {min(missing)}. {advice}")
    for token, id_ in ids.items():
        folder.check_id(file, token, id_)
    stated = normalizer(exported)
    options = {
        "lowercase": stated.get("lowercase", True),
        "strip_accents": stated.get("strip_accents"),
        "split_cjk": stated.get("handle_chinese_chars", True),
    }
    for name, value in options.items():
        if not isinstance(value, bool) and not (name == "strip_accents" and value is None):
            raise _refused(file, "normalizer", exported["normalizer"], advice)
    truncation = exported.get("truncation")
    length = truncation.get("max_length") if isinstance(truncation, dict) else None
    return ExportedTokenizer(ids, {**options, "added_tokens": added}, length)


def _added_token(file: Path, fields: Any) -> added_tokens.AddedToken:
    """Return an entry of the `added_tokens` of a tokenizer.json."""
    if not isinstance(fields, dict):
        raise invalid(file, "an added token must be an object", fields)
    known = {name: value for name, value in fields.items() if name not in ("id", "special")}
    try:
        return added_tokens.as_added_token(known)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _unwrapped(part: Any) -> Any:
    """Return the only element of a sequence of one normalizer, pre-tokenizer or processor."""
    for name in _SEQUENCES:
        inner = part.get(name) if isinstance(part, dict) else None
        if isinstance(inner, list) and len(inner) == 1:
            return inner[0]
    return part


def _is_bert_normalizer(part: Any) -> bool:
    is_bert = isinstance(part, dict) and part.get("type") == "BertNormalizer"
    return is_bert and part.get("clean_text", True) is True


def _adds_cls_and_sep(part: Any) -> bool:
    if not isinstance(part, dict):
        return part is None
    if part.get("type") == "BertProcessing":
        pairs = [part.get("cls"), part.get("sep")]  # each is [token, id]
        names = [pair[0] if isinstance(pair, list) and pair else None for pair in pairs]
        return names == ["[CLS]", "[SEP]"]
    return (
        part.get("type") == "TemplateProcessing"
        and part.get("single") == [_CLS, _TEXT, _SEP]
        and part.get("pair") == [_CLS, _TEXT, _SEP, *_PAIR]
    )


def _is_at_the_end(part: Any) -> bool:
    return part is None or isinstance(part, dict) and part.get("direction", "Right") == "Right"


def _check_model(file: Path, model: Mapping[str, Any], advice: str) -> None:
    for key, value in _MODEL.items():
        if model.get(key, value) != value:
            raise invalid(file, f"{key} of the model must be {value}", model[key], advice)
    length = model.get("max_input_chars_per_word", MAX_WORD_LENGTH)
    if type(length) is not int or length < _LEAST_WORD_LENGTH:
        rule = f"max_input_chars_per_word must be at least {_LEAST_WORD_LENGTH}"
        raise invalid(file, rule, length, advice)


def _refused(file: Path, name: str, part: Any, advice: str) -> ValueError:
    received = "null" if part is None else printable(_shown(part), 200)
    return ValueError(f"{file}: {name} must be that of BERT, received {received}. {advice}")


def _shown(part: Any) -> str:
    """Return the types of a part and of its elements, such as "Sequence of NFKC, Lowercase"."""
    if not isinstance(part, dict):
        return repr(part)
    for name in _SEQUENCES:
        if isinstance(part.get(name), list):
            inner = ", ".join(map(_shown, part[name]))
            return f"{part.get('type')} of {inner}"
    if part.get("type") in ("BertNormalizer", "TemplateProcessing", "BertProcessing", None):
        return repr(part)
    return str(part["type"])
