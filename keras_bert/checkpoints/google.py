"""Google's original release: bert_config.json, a TensorFlow 1 checkpoint, vocab.txt.

Source: google-research/bert, modeling.py (names and config), run_pretraining.py, run_classifier.py
and run_squad.py (heads), optimization.py (slots).
"""

import glob
import re
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import canonical, folder
from keras_bert.checkpoints.canonical import Checkpoint, Layout, rule

FORMAT = "google"
FILES = "bert_config.json with bert_model.ckpt.index and its .data files"

_LAYER = "bert/encoder/layer_{i}"
TABLE = {
    "embeddings/word_embeddings/embeddings": rule("bert/embeddings/word_embeddings"),
    "embeddings/position_embeddings/embeddings": rule("bert/embeddings/position_embeddings"),
    "embeddings/token_type_embeddings/embeddings": rule("bert/embeddings/token_type_embeddings"),
    "embeddings/layer_norm/gamma": rule("bert/embeddings/LayerNorm/gamma"),
    "embeddings/layer_norm/beta": rule("bert/embeddings/LayerNorm/beta"),
    "layer_{i}/attention/qkv/kernel": rule(
        f"{_LAYER}/attention/self/query/kernel",
        f"{_LAYER}/attention/self/key/kernel",
        f"{_LAYER}/attention/self/value/kernel",
    ),
    "layer_{i}/attention/qkv/bias": rule(
        f"{_LAYER}/attention/self/query/bias",
        f"{_LAYER}/attention/self/key/bias",
        f"{_LAYER}/attention/self/value/bias",
    ),
    "layer_{i}/attention/output/kernel": rule(f"{_LAYER}/attention/output/dense/kernel"),
    "layer_{i}/attention/output/bias": rule(f"{_LAYER}/attention/output/dense/bias"),
    "layer_{i}/attention_layer_norm/gamma": rule(f"{_LAYER}/attention/output/LayerNorm/gamma"),
    "layer_{i}/attention_layer_norm/beta": rule(f"{_LAYER}/attention/output/LayerNorm/beta"),
    "layer_{i}/intermediate/kernel": rule(f"{_LAYER}/intermediate/dense/kernel"),
    "layer_{i}/intermediate/bias": rule(f"{_LAYER}/intermediate/dense/bias"),
    "layer_{i}/output/kernel": rule(f"{_LAYER}/output/dense/kernel"),
    "layer_{i}/output/bias": rule(f"{_LAYER}/output/dense/bias"),
    "layer_{i}/output_layer_norm/gamma": rule(f"{_LAYER}/output/LayerNorm/gamma"),
    "layer_{i}/output_layer_norm/beta": rule(f"{_LAYER}/output/LayerNorm/beta"),
    "pooler/dense/kernel": rule("bert/pooler/dense/kernel"),
    "pooler/dense/bias": rule("bert/pooler/dense/bias"),
    "masked_lm/transform/kernel": rule("cls/predictions/transform/dense/kernel"),
    "masked_lm/transform/bias": rule("cls/predictions/transform/dense/bias"),
    "masked_lm/layer_norm/gamma": rule("cls/predictions/transform/LayerNorm/gamma"),
    "masked_lm/layer_norm/beta": rule("cls/predictions/transform/LayerNorm/beta"),
    "masked_lm/output_bias": rule("cls/predictions/output_bias"),
    "next_sentence/kernel": rule("cls/seq_relationship/output_weights", layout=Layout.TRANSPOSED),
    "next_sentence/bias": rule("cls/seq_relationship/output_bias"),
    "classifier/kernel": rule("output_weights", layout=Layout.TRANSPOSED),
    "classifier/bias": rule("output_bias"),
    "span_selector/kernel": rule("cls/squad/output_weights", layout=Layout.TRANSPOSED),
    "span_selector/bias": rule("cls/squad/output_bias"),
}

# Ignored by name: what the optimizers of the day kept beside the weights. A slot is ignored only
# next to a tensor of the table, so that nothing that might matter goes unseen.
IGNORED = frozenset(
    {
        "global_step",
        "beta1_power",
        "beta2_power",
        "loss_scale",
        "current_loss_scale",
        "good_steps",
        "bad_steps",
        "num_good_steps",
        "num_bad_steps",
    }
)
IGNORED_SLOTS = (
    "adam_m",
    "adam_v",
    "lamb_m",
    "lamb_v",
    "Adam",
    "Adam_1",
    "AdamWeightDecayOptimizer",
    "AdamWeightDecayOptimizer_1",
    "LAMBOptimizer",
    "LAMBOptimizer_1",
)

# Google's "gelu" is the tanh approximation (modeling.py, `gelu`).
ACTIVATIONS = {"gelu": "gelu_new", "gelu_new": "gelu_new", "relu": "relu"}
DROPPED_KEYS = frozenset(
    {
        "attention_window",
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    }
)

# Google's folders say what they are in their names: uncased_L-12_H-768_A-12, multi_cased_..., and
# the two uncased ones without the word. "uncased" stands before "cased", which is a part of it.
_LOWERCASE_BY_NAME = (
    (r"uncased", True),
    (r"cased", False),
    (r"chinese_L-|multilingual_L-", True),
)


def matches(path: str | Path) -> bool:
    """Whether the folder looks like this format; nothing is read."""
    path = Path(path)
    return (path / "bert_config.json").is_file() and any(path.glob("*.index"))


def read_config(path: str | Path) -> dict[str, Any]:
    """Reads bert_config.json as keyword arguments of `BertEncoder`.

    Google's "gelu" becomes "gelu_new", because it is the tanh approximation.

    Args:
        path: The folder.

    Returns:
        Exactly the keys of `canonical.CONFIG_KEYS`.

    Raises:
        FileNotFoundError: If there is no bert_config.json.
        ValueError: If it is broken, or holds a key or a value that BERT does not have.

    Example:
        >>> import json, tempfile
        >>> sizes = dict.fromkeys(canonical.SIZES, 8)
        >>> with tempfile.TemporaryDirectory() as path:
        ...     _ = Path(path, "bert_config.json").write_text(json.dumps(sizes))
        ...     config = read_config(path)
        >>> config["hidden_act"], config["layer_norm_eps"]
        ('gelu_new', 1e-12)
    """
    file = Path(path) / "bert_config.json"
    return canonical.read_config(
        file,
        folder.read_json(file),
        activations=ACTIVATIONS,
        dropped=DROPPED_KEYS,
        required_values={},
    )


def read(path: str | Path) -> Checkpoint:
    """Reads a folder of Google's release, or what run_classifier.py or run_squad.py left there.

    Args:
        path: The folder: bert_config.json, one checkpoint (or, of several, bert_model.ckpt), and
            vocab.txt, which may be missing.

    Returns:
        The `Checkpoint`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is broken, or does not hold exactly what the config calls for.
    """
    path = Path(path)
    config = read_config(path)
    weights = _read_weights(_checkpoint_prefix(path), config)
    vocabulary = None
    vocabulary_file = path / "vocab.txt"
    if vocabulary_file.is_file():
        vocabulary = folder.read_vocabulary(vocabulary_file)
        folder.check_vocabulary_size(vocabulary_file, vocabulary, config["vocab_size"])
    lowercase = _is_lowercase(path, vocabulary)
    return Checkpoint(
        format=FORMAT,
        path=str(path),
        config=config,
        weights=weights,
        vocabulary=vocabulary,
        tokenizer={
            "lowercase": lowercase,
            "strip_accents": lowercase,
            "split_cjk": True,
            "sequence_length": None,
        },
        labels=None,
    )


def _checkpoint_prefix(path: Path) -> Path:
    """The checkpoint's name without .index, which is what TensorFlow goes by."""
    found = sorted(file.with_suffix("") for file in path.glob("*.index"))
    if not found:
        raise FileNotFoundError(f"{path}: no checkpoint, looked for bert_model.ckpt.index")
    preferred = path / "bert_model.ckpt"
    if len(found) > 1 and preferred not in found:
        raise ValueError(
            f"{path}: must hold one checkpoint or bert_model.ckpt, received "
            f"{', '.join(prefix.name for prefix in found)}"
        )
    prefix = preferred if preferred in found else found[0]
    if not any(path.glob(f"{glob.escape(prefix.name)}.data-*")):
        raise FileNotFoundError(f"{prefix}.data-00000-of-00001: missing beside {prefix.name}.index")
    return prefix


def _read_weights(prefix: Path, config: dict[str, Any]) -> dict[str, Any]:
    import tensorflow as tf  # Only this format needs it, and it takes seconds to import.

    broken = (tf.errors.OpError, IndexError, RuntimeError, ValueError)

    def fail(error: Exception) -> ValueError:
        message = " ".join(str(getattr(error, "message", error)).split()) or type(error).__name__
        return ValueError(
            f"{prefix}: must be a whole TensorFlow checkpoint, .index and .data, received {message}"
        )

    try:
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = reader.get_variable_to_shape_map()
    except broken as error:
        raise fail(error) from error
    if "_CHECKPOINTABLE_OBJECT_GRAPH" in shapes:
        raise ValueError(
            f"{prefix}: must be a TensorFlow 1 checkpoint by name, received one by object "
            "(TensorFlow 2, Model Garden)"
        )

    def load(name: str) -> Any:
        try:
            return reader.get_tensor(name)
        except broken as error:
            raise fail(error) from error

    known = {source for entry in canonical.expand(TABLE, config) for source in entry.sources}
    kept = {
        name: tuple(shape) for name, shape in shapes.items() if not _is_optimizer_state(name, known)
    }
    return canonical.read_weights(prefix, TABLE, config, kept, load)


def _is_optimizer_state(name: str, known: set[str]) -> bool:
    base, _, slot = name.rpartition("/")
    return name in IGNORED or (base in known and slot in IGNORED_SLOTS)


def _is_lowercase(path: Path, vocabulary: list[str] | None) -> bool:
    """Google's config does not say, so the folder's name does, or else the vocabulary.

    Without either it is True, the default of Google's --do_lower_case.
    """
    name = path.resolve().name
    for pattern, lowercase in _LOWERCASE_BY_NAME:
        if re.search(pattern, name, re.IGNORECASE):
            return lowercase
    return vocabulary is None or not folder.is_cased(vocabulary)
