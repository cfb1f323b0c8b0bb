"""Hugging Face's tokenizer_config.json and what lies around it; other formats may hold it too.

Source: huggingface/transformers, models/bert/tokenization_bert.py and
tokenization_utils_base.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import folder

FILE = "tokenizer_config.json"
_NO_LIMIT = 10**30  # how Hugging Face writes it


def read(
    path: str | Path, vocabulary: list[str] | None, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Reads the options of the tokenizer in a folder.

    What its config says, else its normalizer (tokenizer.json), else its vocabulary.

    Args:
        path: The folder; none of the files must be there.
        vocabulary: The pieces, or None.
        config: Of the encoder.

    Returns:
        As `Checkpoint.tokenizer`.

    Raises:
        ValueError: If a file is broken, or is of another kind of tokenizer.
    """
    path = Path(path)
    file = path / FILE
    found = folder.read_json(file) if file.is_file() else {}
    # Both would give other ids than ours, and nobody would see it.
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
        lowercase = vocabulary is None or not folder.is_cased(vocabulary)
    strip_accents = option("strip_accents", "strip_accents")
    split_cjk = option("tokenize_chinese_chars", "handle_chinese_chars")
    sentence_file = path / "sentence_bert_config.json"
    sentence = folder.read_json(sentence_file) if sentence_file.is_file() else {}
    # The most particular first; `_NO_LIMIT` is beyond any limit.
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
    """Writes the options of a tokenizer into a folder; the way back from `read`.

    Example:
        >>> import tempfile
        >>> options = {"lowercase": True, "strip_accents": False, "split_cjk": True}
        >>> with tempfile.TemporaryDirectory() as path:
        ...     write(path, {**options, "sequence_length": 64})
        ...     read(path, None, {"max_position_embeddings": 512})["strip_accents"]
        False
    """
    found = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": tokenizer["lowercase"],
        "strip_accents": tokenizer["strip_accents"],
        "tokenize_chinese_chars": tokenizer["split_cjk"],
        "model_max_length": tokenizer["sequence_length"] or _NO_LIMIT,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
    }
    folder.write_json(Path(path) / FILE, found)
