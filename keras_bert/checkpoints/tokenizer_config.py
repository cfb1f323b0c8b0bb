"""Tokenizer options in Hugging Face's tokenizer_config.json and related files.

Source: huggingface/transformers, models/bert/tokenization_bert.py and
tokenization_utils_base.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import folder

FILE = "tokenizer_config.json"
_NO_LIMIT = 10**30  # as written by Hugging Face


def read(
    path: str | Path, vocabulary: list[str] | None, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Read the tokenizer options in a folder, as in `Checkpoint.tokenizer`. All files are optional.

    The options in tokenizer_config.json take precedence over the normalizer in tokenizer.json. If
    neither sets the casing, it is inferred from the vocabulary. `config` is that of the encoder.
    """
    path = Path(path)
    file = path / FILE
    found = folder.read_json(file) if file.is_file() else {}
    # Ignoring these options would silently change the ids.
    for key in ("padding_side", "truncation_side"):
        if found.get(key) not in (None, "right"):
            raise ValueError(f"{file}: {key} must be 'right', received {found[key]!r:.80}")
    if found.get("tokenizer_class") == "BertJapaneseTokenizer":
        raise ValueError(
            f"{file}: tokenizer_class must be one of BERT's, received 'BertJapaneseTokenizer'"
        )
    if found.get("do_basic_tokenize", True) is False:
        raise ValueError(f"{file}: do_basic_tokenize must be true, received false")
    normalizer = _read_normalizer(path / "tokenizer.json")

    def option(key: str, normalizer_key: str) -> bool | None:
        value = found.get(key)
        value = normalizer.get(normalizer_key) if value is None else value
        if value is not None and not isinstance(value, bool):
            raise ValueError(f"{file}: {key} must be true, false or null, received {value!r}")
        return value

    lowercase = option("do_lower_case", "lowercase")
    if lowercase is None:
        lowercase = folder.is_lowercase(vocabulary)
    strip_accents = option("strip_accents", "strip_accents")
    split_cjk = option("tokenize_chinese_chars", "handle_chinese_chars")
    sentence_file = path / "sentence_bert_config.json"
    sentence = folder.read_json(sentence_file) if sentence_file.is_file() else {}
    # In order of precedence. `_NO_LIMIT` exceeds every limit.
    lengths = (sentence.get("max_seq_length"), found.get("model_max_length"), found.get("max_len"))
    limit = config["max_position_embeddings"]
    return {
        "lowercase": lowercase,
        "strip_accents": lowercase if strip_accents is None else strip_accents,
        "split_cjk": True if split_cjk is None else split_cjk,
        "sequence_length": next((n for n in lengths if type(n) is int and 0 < n <= limit), None),
    }


def _read_normalizer(file: Path) -> Mapping[str, Any]:
    if not file.is_file():
        return {}
    normalizer = folder.read_json(file).get("normalizer")
    if isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer":
        return normalizer
    return {}


def write(path: str | Path, tokenizer: Mapping[str, Any]) -> None:
    """Write `Checkpoint.tokenizer` to tokenizer_config.json: the inverse of `read`."""
    found = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": tokenizer["lowercase"],
        "strip_accents": tokenizer["strip_accents"],
        "tokenize_chinese_chars": tokenizer["split_cjk"],
        "model_max_length": tokenizer["sequence_length"] or _NO_LIMIT,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
    }
    folder.write_json(Path(path) / FILE, found)
