"""Google's original release: bert_config.json, a TensorFlow 1 checkpoint, vocab.txt.

Source: google-research/bert, modeling.py (names and config), run_pretraining.py, run_classifier.py
and run_squad.py (heads), optimization.py (slots).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import bundle, canonical, folder, tokenizer_config
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
    """Whether the folder looks like this format; of the index, is it one by name."""
    path = Path(path)
    if not (path / "bert_config.json").is_file() or not any(path.glob("*.index")):
        return False
    return not bundle.holds_graph(path)


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
        path: The folder: bert_config.json, one checkpoint (or, of several, bert_model.ckpt or the
            latest), and vocab.txt, which may be missing.

    Returns:
        The `Checkpoint`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is broken, or does not hold exactly what the config calls for.
    """
    path = Path(path)
    config = read_config(path)
    vocabulary, tokenizer = read_tokenizer(path, config)  # before the weights, which are large
    weights = _read_weights(bundle.find(path), config)
    return Checkpoint(
        format=FORMAT,
        path=str(path),
        config=config,
        weights=weights,
        vocabulary=vocabulary,
        tokenizer=tokenizer,
        labels=None,
    )


def write(checkpoint: Checkpoint, path: str | Path) -> None:
    """Writes a folder as Google's release has it; the way back from `read`.

    Args:
        checkpoint: What to write. The labels of a classifier have no place in this format.
        path: An empty folder. Google's config says nothing about casing; a tokenizer_config.json,
            which its code does not look at, does.

    Raises:
        ValueError: If the format cannot hold it: another activation than tanh gelu and relu,
            another `layer_norm_eps` than 1e-12, a multi-label classifier.
    """
    import tensorflow as tf

    path = Path(path)
    if checkpoint.multi_label:
        raise ValueError(f"{FORMAT}: classes must exclude each other, received a multi-label model")
    config = dict(checkpoint.config)
    activation = config["hidden_act"]
    config["hidden_act"] = canonical.to_source_activation(activation, ACTIVATIONS, format=FORMAT)
    if config.pop("layer_norm_eps") != canonical.DEFAULTS["layer_norm_eps"]:
        raise ValueError(
            f"{FORMAT}: layer_norm_eps must be 1e-12, which Google's code has built in, received "
            f"{checkpoint.config['layer_norm_eps']}"
        )
    tensors = canonical.to_source(TABLE, checkpoint.config, checkpoint.weights, format=FORMAT)
    folder.write_json(path / "bert_config.json", config)
    if checkpoint.vocabulary is not None:
        folder.write_vocabulary(path / "vocab.txt", checkpoint.vocabulary)
        tokenizer_config.write(path, checkpoint.tokenizer)  # Google's code takes no notice of it
    tf.raw_ops.SaveV2(
        prefix=str(path / "bert_model.ckpt"),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(array) for array in tensors.values()],
    )


def _read_weights(prefix: Path, config: dict[str, Any]) -> Mapping[str, Any]:
    tensors = bundle.read(prefix)
    if tensors.is_by_object:
        raise ValueError(
            f"{prefix}: must be a TensorFlow 1 checkpoint by name, received one by object "
            "(TensorFlow 2, Model Garden)"
        )
    canonical.check_sizes(prefix, config, tensors.shapes)
    known = {source for entry in canonical.expand(TABLE, config) for source in entry.sources}
    kept = {
        name: shape
        for name, shape in tensors.shapes.items()
        if not _is_optimizer_state(name, known)
    }
    return canonical.read_weights(prefix, TABLE, config, kept, tensors.load)


def _is_optimizer_state(name: str, known: set[str]) -> bool:
    base, _, slot = name.rpartition("/")
    return name in IGNORED or (base in known and slot in IGNORED_SLOTS)


def read_tokenizer(path: Path, config: dict[str, Any]) -> tuple[list[str] | None, dict[str, Any]]:
    """Reads vocab.txt, which may be missing, and what a folder tells of its tokenizer.

    Args:
        path: The folder.
        config: Of the encoder.

    Returns:
        The vocabulary and the options, as `Checkpoint` has them.

    Raises:
        ValueError: If a file is broken, or the vocabulary is of another size than the config's.
    """
    vocabulary = None
    vocabulary_file = path / "vocab.txt"
    if vocabulary_file.is_file():
        vocabulary = folder.read_vocabulary(vocabulary_file)
        folder.check_vocabulary_size(vocabulary_file, vocabulary, config["vocab_size"])
    if (path / tokenizer_config.FILE).is_file():
        return vocabulary, tokenizer_config.read(path, vocabulary, config)
    lowercase = _is_lowercase(path, vocabulary)
    return vocabulary, {
        "lowercase": lowercase,
        "strip_accents": lowercase,
        "split_cjk": True,
        "sequence_length": None,
    }


def _is_lowercase(path: Path, vocabulary: list[str] | None) -> bool:
    """Google's config does not say, so the folder's name does, or else the vocabulary.

    Without either it is True, the default of Google's --do_lower_case.
    """
    name = path.resolve().name
    for pattern, lowercase in _LOWERCASE_BY_NAME:
        if re.search(pattern, name, re.IGNORECASE):
            return lowercase
    return vocabulary is None or not folder.is_cased(vocabulary)
