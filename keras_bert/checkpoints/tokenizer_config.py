"""Vocabulary and tokenizer options in the files of Hugging Face's tokenizers.

Source: huggingface/transformers, models/bert/tokenization_bert.py, tokenization_utils_base.py and
models/auto/tokenization_auto.py.
"""

import dataclasses
import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import added_tokens, folder, json_schema, tokenizer_json
from keras_bert.checkpoints.added_tokens import AddedToken
from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.warn import level_of_caller
from keras_bert.runtime.words import words
from keras_bert.untrusted.errors import invalid

FILE = "tokenizer_config.json"
VOCABULARY_FILE = "vocab.txt"
_SPECIAL_FILE = "special_tokens_map.json"
_SPECIAL_TOKENS = {
    f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")
}
_NO_LIMIT = 10**30  # what Hugging Face writes for a tokenizer without a maximum length
# Classes of transformers that read what tokenizer.json states, and no options of the config.
_GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Names of BERT's WordPiece tokenizer; most also end in "Fast".
_BERT_CLASSES = words("""
    BertTokenizer BertTokenizerLegacy DistilBertTokenizer ElectraTokenizer MobileBertTokenizer
    DPRContextEncoderTokenizer DPRQuestionEncoderTokenizer DPRReaderTokenizer
""")
_CLASSES = {*_GENERIC_CLASSES, *_BERT_CLASSES, *(f"{name}Fast" for name in _BERT_CLASSES)}
# Key in tokenizer_config.json -> key of the normalizer in tokenizer.json, and the value with which
# BertTokenizer of transformers 4 and 5 replaces it.
_DEFAULTS_OF_TRANSFORMERS = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}
# Other values of these keys would change the ids.
_REQUIRED_VALUES = {
    "padding_side": "right",
    "truncation_side": "right",
    "do_basic_tokenize": True,
    "clean_text": True,
    "wordpieces_prefix": "##",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
}
# Keys of BertJapaneseTokenizer, and the value that leaves the tokenizer as it is.
_JAPANESE_KEYS = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "wordpiece"}


def read_vocabulary(
    path: Path, vocab_size: int, tokenizer: Mapping[str, Any] | None = None
) -> list[str] | None:
    """Read vocab.txt, or else tokenizer.json, and the tokens that other files add.

    `tokenizer` is the content of tokenizer.json, if it was read before. Return `None` if the
    folder has neither file. Two vocabularies that differ are an error.
    """
    file = path / VOCABULARY_FILE
    json_file = path / tokenizer_json.FILE
    content = tokenizer_json.read(path) if tokenizer is None else tokenizer
    if folder.has_file(file):
        tokens = dict(enumerate(folder.read_vocabulary(file)))
    elif folder.has_file(json_file):
        file = json_file
        tokens = tokenizer_json.vocabulary(json_file, content)
    else:
        return None
    declared = added_tokens.read(path, content)
    # Tokens of the vocabulary override added tokens with the same id or name.
    known = set(tokens.values())
    for token, (id_, _) in declared.items():
        if id_ is not None and token not in known:
            tokens.setdefault(id_, token)
    others = tokenizer_json.vocabulary(json_file, content) if content.get("model") else tokens
    if tokens != others:
        _check_same_tokens(file, tokens, others, declared)
    gaps = set(range(len(tokens))).difference(tokens)
    if gaps:
        rule = "ids must be contiguous from 0, received no token for"
        raise ValueError(f"{file}: {rule} {min(gaps)}")
    vocabulary = [tokens[id_] for id_ in range(len(tokens))]
    folder.check_vocabulary_size(file, vocabulary, vocab_size)
    folder.check_tokens(file, vocabulary)
    folder.refuse_sentencepiece(file, vocabulary)
    # A special token without an id gets the next one.
    known = {*vocabulary, *added_tokens.SPECIAL}
    missing = [token for token in declared if token not in known]
    return vocabulary + missing[: vocab_size - len(vocabulary)]


def _check_same_tokens(
    file: Path, tokens: Mapping[int, str], others: Mapping[int, str], declared: Collection[str]
) -> None:
    """Raise a `ValueError` if tokenizer.json has other tokens than vocab.txt."""
    known = {*others.values(), *declared}
    for id_ in sorted({*tokens, *others}):
        token = tokens.get(id_)
        other = others.get(id_)
        # tokenizer.json has each token once, and may leave out tokens that are added.
        if token != other and not (other is None and token in known):
            raise ValueError(
                f"{file}: must have the tokens of {tokenizer_json.FILE}, received {shown(token)} "
                f"for id {id_}, where {tokenizer_json.FILE} has {shown(other)}. Delete the file "
                "that does not belong to the weights"
            )


def read(path: Path, vocabulary: list[str] | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """Read the tokenizer options in a folder, as in `ModelSpec.tokenizer`. All files are optional.

    The options in tokenizer_config.json take precedence over the normalizer in tokenizer.json,
    except for the class PreTrainedTokenizerFast. If neither sets the casing, it is inferred from
    the vocabulary. `config` is that of the encoder.
    """
    file = path / FILE
    tokenizer = folder.read_optional_json(file)
    normalizer: Mapping[str, Any] = {}
    added: list[AddedToken] = []
    if vocabulary is not None:
        _check_class(path)
        _check_values(path, tokenizer)
        content = tokenizer_json.read(path)
        normalizer = content.get("normalizer") or {}
        added = read_added(path, vocabulary, content)
    is_generic = tokenizer.get("tokenizer_class") in _GENERIC_CLASSES
    if not is_generic:
        _warn_of_defaults(path, tokenizer, normalizer)
    options = {}
    for key, (normalizer_key, _) in _DEFAULTS_OF_TRANSFORMERS.items():
        values = [tokenizer.get(key), normalizer.get(normalizer_key)]
        if is_generic:
            values.reverse()
        options[key] = values[1] if values[0] is None else values[0]
    json_schema.check(file, options, dict.fromkeys(options, json_schema.FLAG))
    lowercase = options["do_lower_case"]
    if lowercase is None:
        lowercase = folder.is_lowercase(vocabulary)
    strip_accents = options["strip_accents"]
    split_cjk = options["tokenize_chinese_chars"]
    return {
        **({"added_tokens": added} if added else {}),
        "lowercase": lowercase,
        "strip_accents": lowercase if strip_accents is None else strip_accents,
        "split_cjk": split_cjk is not False,
        "sequence_length": _sequence_length(path, tokenizer, config["max_position_embeddings"]),
    }


def _warn_of_defaults(
    path: Path, tokenizer: Mapping[str, Any], normalizer: Mapping[str, Any]
) -> None:
    """Warn of options that only tokenizer.json states: transformers uses its defaults instead."""
    differing = [
        f"{key}={printable(json.dumps(normalizer[normalizer_key]), 80)}"
        for key, (normalizer_key, default) in _DEFAULTS_OF_TRANSFORMERS.items()
        if tokenizer.get(key) is None and normalizer.get(normalizer_key) not in (None, default)
    ]
    if differing:
        warnings.warn(
            f"{path}: only {tokenizer_json.FILE} states {', '.join(differing)}, which is used "
            "here. BertTokenizer of transformers uses its defaults instead. State it in "
            f"{FILE}, too",
            stacklevel=level_of_caller(),
        )


def _sequence_length(path: Path, tokenizer: Mapping[str, Any], limit: int) -> int | None:
    """Return the first length in a folder that is at most `limit`, or `None` if there is none."""
    sentence_bert = folder.read_optional_json(path / "sentence_bert_config.json")
    lengths = (
        sentence_bert.get("max_seq_length"),
        tokenizer.get("model_max_length"),  # `_NO_LIMIT` exceeds every limit
        tokenizer.get("max_len"),
    )
    fitting = (length for length in lengths if type(length) is int and 0 < length <= limit)
    return next(fitting, None)


def _check_class(path: Path) -> None:
    """Raise a `ValueError` if a config names a tokenizer that is not BERT's WordPiece."""
    for file in (path / "config.json", path / FILE):
        config = folder.read_optional_json(file)
        name = str(config.get("tokenizer_class") or "BertTokenizer")
        code = (config.get("auto_map") or {}).get("AutoTokenizer")
        others = [] if name in _CLASSES else [name]
        if code:
            others.append(f"the code of {code}")
        for key, value in _JAPANESE_KEYS.items():
            if config.get(key, value) != value:
                others.append(f"{config[key]} of BertJapaneseTokenizer")
        if others:
            rule = "tokenizer_class must be one of BERT's WordPiece, such as BertTokenizer"
            raise invalid(file, rule, others[0], folder.OTHER_TOKENIZER)


def _check_values(path: Path, tokenizer: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for an option that would change the ids."""
    map_file = path / _SPECIAL_FILE
    contents = {path / FILE: tokenizer, map_file: folder.read_optional_json(map_file)}
    for file, content in contents.items():
        json_schema.check(file, content, _REQUIRED_VALUES)


def read_added(path: Path, vocabulary: list[str], tokenizer: Mapping[str, Any]) -> list[AddedToken]:
    """Return the tokens that are matched whole in texts. Warn of tokens without an id.

    `tokenizer` is the content of tokenizer.json.
    """
    declared = {
        name: token
        for name, (_, token) in added_tokens.read(path, tokenizer).items()
        if name not in added_tokens.SPECIAL
    }
    known = set(vocabulary)
    unknown = [name for name in declared if name not in known]
    if unknown:
        warnings.warn(
            f"{path}: the vocabulary has no row for the added tokens "
            f"{printable(', '.join(unknown), 200)}, so they are plain text",
            stacklevel=level_of_caller(),
        )
    return [token for name, token in declared.items() if name in known]


def write_special_tokens(path: Path) -> None:
    """Write special_tokens_map.json, which fastembed reads."""
    folder.write_json(path / _SPECIAL_FILE, _SPECIAL_TOKENS)


def write_with_vocabulary(
    path: Path, tokenizer: Mapping[str, Any], vocabulary: Sequence[str]
) -> None:
    """Write vocab.txt and tokenizer_config.json: the inverse of `read_vocabulary` and `read`."""
    pieces = added_tokens.word_pieces(vocabulary, tokenizer.get("added_tokens", ()))
    folder.write_vocabulary(path / VOCABULARY_FILE, pieces)
    write(path, tokenizer, vocabulary)


def write(path: Path, tokenizer: Mapping[str, Any], vocabulary: Sequence[str]) -> None:
    """Write `ModelSpec.tokenizer` to tokenizer_config.json: the inverse of `read`."""
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": tokenizer["lowercase"],
        "strip_accents": tokenizer["strip_accents"],
        "tokenize_chinese_chars": tokenizer["split_cjk"],
        "model_max_length": tokenizer["sequence_length"] or _NO_LIMIT,
        **_SPECIAL_TOKENS,
    }
    if "added_tokens" in tokenizer:
        ids = {token: index for index, token in enumerate(vocabulary)}
        config["added_tokens_decoder"] = {
            str(ids[token.content]): {**dataclasses.asdict(token), "special": False}
            for token in tokenizer["added_tokens"]
        }
    folder.write_json(path / FILE, config)
