"""Vocabulary and tokenizer options in the files of Hugging Face's tokenizers.

Source: huggingface/transformers, models/bert/tokenization_bert.py, tokenization_utils_base.py and
models/auto/tokenization_auto.py.
"""

import dataclasses
import json
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_bert.checkpoints import (
    added_tokens,
    folder,
    json_schema,
    sentence_bert_config,
    tokenizer_json,
)
from keras_bert.checkpoints.added_tokens import AddedToken
from keras_bert.runtime import budget
from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.warn import level_of_caller
from keras_bert.runtime.words import words
from keras_bert.untrusted.errors import invalid

FILE = "tokenizer_config.json"
VOCABULARY_FILE = "vocab.txt"
_VOCABULARY_FILES = (VOCABULARY_FILE, tokenizer_json.FILE)
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
    "mask_token": "[MASK]",
}
# Keys of BertJapaneseTokenizer, and the value that leaves the tokenizer as it is.
_JAPANESE_KEYS = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "wordpiece"}


class Tokenizer(NamedTuple):
    """What the tokenizer files in a folder say.

    `vocabulary` is `None` if the folder has neither vocab.txt nor tokenizer.json. `options` are
    those of `ModelSpec.tokenizer`. `json` is the content of tokenizer.json.
    """

    vocabulary: list[str] | None
    options: dict[str, Any]
    json: dict[str, Any]


def is_in(path: Path) -> bool:
    """Return True for a folder with the vocabulary of a tokenizer."""
    return any(folder.has_file(path / name) for name in _VOCABULARY_FILES)


def read(
    path: Path, vocab_size: int = budget.MAX_TOKENS, max_length: int = sys.maxsize
) -> Tokenizer:
    """Read the vocabulary and the options in the tokenizer files of a folder; all are optional.

    The options in tokenizer_config.json take precedence over the normalizer in tokenizer.json,
    except for the class PreTrainedTokenizerFast. If neither sets the casing, it is inferred from
    the vocabulary. `vocab_size` and `max_length` are the numbers of ids and of positions of the
    encoder.
    """
    file = path / FILE
    config = folder.read_optional_json(file)
    has_vocabulary = is_in(path)
    content: dict[str, Any] = {}
    vocabulary = None
    added: list[AddedToken] = []
    if has_vocabulary:
        _check_class(path, config)
        _check_values(path, config)
        content = tokenizer_json.read(path)
        declared = added_tokens.read(path, config, content)
        vocabulary = _vocabulary(path, vocab_size, content, declared)
        added = _added(path, vocabulary, declared)
    normalizer = content.get("normalizer") or {}
    is_generic = config.get("tokenizer_class") in _GENERIC_CLASSES
    if not is_generic:
        _warn_of_defaults(path, config, normalizer)
    options = {}
    for key, (normalizer_key, _) in _DEFAULTS_OF_TRANSFORMERS.items():
        values = [config.get(key), normalizer.get(normalizer_key)]
        if is_generic:
            values.reverse()
        options[key] = values[1] if values[0] is None else values[0]
    json_schema.check(file, options, dict.fromkeys(options, json_schema.FLAG))
    lowercase = options["do_lower_case"]
    if lowercase is None:
        lowercase = folder.is_lowercase(vocabulary)
    strip_accents = options["strip_accents"]
    sentence_bert = sentence_bert_config.read(path)
    tokenizer = {
        **({"added_tokens": added} if added else {}),
        "lowercase": lowercase or sentence_bert.get("do_lower_case") is True,
        "strip_accents": lowercase if strip_accents is None else strip_accents,
        "split_cjk": options["tokenize_chinese_chars"] is not False,
        "sequence_length": _sequence_length(sentence_bert, config, max_length),
    }
    return Tokenizer(vocabulary, tokenizer, content)


def _vocabulary(
    path: Path,
    vocab_size: int,
    content: Mapping[str, Any],
    declared: Mapping[str, tuple[int | None, AddedToken]],
) -> list[str]:
    """Return the tokens of vocab.txt, or else of tokenizer.json, and those that are added.

    `content` is that of tokenizer.json, and `declared` is that of `added_tokens.read`.
    """
    json_file = path / tokenizer_json.FILE
    file = path / VOCABULARY_FILE
    of_json = tokenizer_json.vocabulary(json_file, content) if content.get("model") else None
    if folder.has_file(file):
        tokens = dict(enumerate(folder.read_vocabulary(file)))
    elif of_json is None:
        raise invalid(json_file, "must have the model of a tokenizer", list(content))
    else:
        file = json_file
        tokens = dict(of_json)
    # Tokens of the vocabulary override added tokens with the same id or name.
    known = set(tokens.values())
    for token, (id_, _) in declared.items():
        if id_ is not None and token not in known:
            tokens.setdefault(id_, token)
    if of_json is not None and tokens != of_json:
        _check_same_tokens(file, tokens, of_json, declared)
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


def _added(
    path: Path, vocabulary: list[str], declared: Mapping[str, tuple[int | None, AddedToken]]
) -> list[AddedToken]:
    """Return the tokens that are matched whole in texts. Warn of tokens without an id."""
    known = set(vocabulary)
    names = [name for name in declared if name not in added_tokens.SPECIAL]
    unknown = [name for name in names if name not in known]
    if unknown:
        warnings.warn(
            f"{path}: the vocabulary has no row for the added tokens "
            f"{printable(', '.join(unknown), 200)}, so they are plain text",
            stacklevel=level_of_caller(),
        )
    return [declared[name][1] for name in names if name in known]


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


def _sequence_length(
    sentence_bert: Mapping[str, Any], tokenizer: Mapping[str, Any], limit: int
) -> int | None:
    """Return the first length in two files that is at most `limit`, or `None` if there is none."""
    lengths = (
        sentence_bert.get("max_seq_length"),
        tokenizer.get("model_max_length"),  # `_NO_LIMIT` exceeds every limit
        tokenizer.get("max_len"),
    )
    fitting = (length for length in lengths if type(length) is int and 0 < length <= limit)
    return next(fitting, None)


def _check_class(path: Path, tokenizer: Mapping[str, Any]) -> None:
    """Raise a `ValueError` if a config names a tokenizer that is not BERT's WordPiece."""
    model_file = path / "config.json"
    contents = {model_file: folder.read_optional_json(model_file), path / FILE: tokenizer}
    for file, config in contents.items():
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


def write_special_tokens(path: Path) -> None:
    """Write special_tokens_map.json, which fastembed reads."""
    folder.write_json(path / _SPECIAL_FILE, _SPECIAL_TOKENS)


def write_with_vocabulary(
    path: Path, tokenizer: Mapping[str, Any], vocabulary: Sequence[str]
) -> None:
    """Write vocab.txt and tokenizer_config.json: the inverse of `read`."""
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
