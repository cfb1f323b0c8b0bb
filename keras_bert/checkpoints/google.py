"""Google's original release: bert_config.json, a TensorFlow 1 checkpoint, vocab.txt.

Source: google-research/bert, modeling.py (names and config), run_pretraining.py, run_classifier.py
and run_squad.py (heads), optimization.py (slots).
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import bundle, canonical, folder, name_tables, tokenizer_config
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.checkpoints.name_tables import Layout
from keras_bert.model_spec import ModelSpec
from keras_bert.runtime.packages import import_tensorflow

FORMAT = "google"

_LAYER = "bert/encoder/layer_{i}"
_TRANSPOSED = ("next_sentence/kernel", "classifier/kernel", "span_selector/kernel")
TABLE = name_tables.table(
    {
        "embeddings/word_embeddings/embeddings": "bert/embeddings/word_embeddings",
        "embeddings/position_embeddings/embeddings": "bert/embeddings/position_embeddings",
        "embeddings/token_type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
        "embeddings/layer_norm": "bert/embeddings/LayerNorm",
        "layer_{i}/attention/qkv": f"{_LAYER}/attention/self/{{qkv}}",
        "layer_{i}/attention/output": f"{_LAYER}/attention/output/dense",
        "layer_{i}/attention_layer_norm": f"{_LAYER}/attention/output/LayerNorm",
        "layer_{i}/intermediate": f"{_LAYER}/intermediate/dense",
        "layer_{i}/output": f"{_LAYER}/output/dense",
        "layer_{i}/output_layer_norm": f"{_LAYER}/output/LayerNorm",
        "pooler/dense": "bert/pooler/dense",
        "masked_lm/transform": "cls/predictions/transform/dense",
        "masked_lm/layer_norm": "cls/predictions/transform/LayerNorm",
        "masked_lm/output_bias": "cls/predictions/output_bias",
        "next_sentence/kernel": "cls/seq_relationship/output_weights",
        "next_sentence/bias": "cls/seq_relationship/output_bias",
        "classifier/kernel": "output_weights",
        "classifier/bias": "output_bias",
        "span_selector/kernel": "cls/squad/output_weights",
        "span_selector/bias": "cls/squad/output_bias",
    },
    layouts=dict.fromkeys(_TRANSPOSED, Layout.TRANSPOSED),
)

# Optimizer state, ignored by name. A slot is ignored only beside its tensor.
_COUNTER = re.compile(r"global_step|beta[12]_power|(current_)?loss_scale|(num_)?(good|bad)_steps")
_SLOT = re.compile(r"(.+)/((adam|lamb)_[mv]|(Adam|AdamWeightDecayOptimizer|LAMBOptimizer)(_1)?)")

# Google's "gelu" is the tanh approximation (modeling.py, `gelu`).
ACTIVATIONS = {
    "gelu": "gelu_new", "gelu_new": "gelu_new", "relu": "relu", "tanh": "tanh", "linear": "linear",
}  # fmt: skip
# Parts of the names of folders with a lowercase vocabulary; "cased" alone is in the other names.
_LOWERCASE_NAMES = ("uncased", "chinese_l-", "multilingual_l-")


def read_config(path: Path) -> dict[str, Any]:
    """Read bert_config.json as keyword arguments of `BertEncoder`.

    Google's "gelu" becomes "gelu_new", because it is the tanh approximation.
    """
    file = path / "bert_config.json"
    content = folder.read_json(file)
    return canonical.read_config(file, content, ACTIVATIONS)


def read(path: Path, ignore: Collection[str] = ()) -> Checkpoint:
    """Read a folder of Google's release, or the output of run_classifier.py or run_squad.py.

    It holds bert_config.json, a checkpoint as `bundle.find` finds it, and optionally vocab.txt.
    """
    config = read_config(path)
    vocabulary, tokenizer = read_tokenizer(path, config)  # before the slow weights
    tensors = bundle.read(bundle.find(path))
    shapes = canonical.without_ignored(tensors.prefix, tensors.shapes, ignore)
    shapes = {name: shape for name, shape in shapes.items() if not _is_state(name, shapes)}
    spec = ModelSpec(config, vocabulary, tokenizer)

    def read_part(heads: bool) -> Checkpoint:
        weights = name_tables.read_weights(
            tensors.prefix, TABLE, config, shapes, tensors.load, heads=heads
        )
        return Checkpoint(FORMAT, str(path), spec, weights)

    return canonical.with_head_or_problem(read_part)


def write(checkpoint: Checkpoint, path: Path) -> None:
    """Write a folder in the layout of Google's release: the inverse of `read`.

    The labels of a classifier are not written. The tokenizer options are written to
    tokenizer_config.json, which Google's code ignores. Only tanh GELU, ReLU and a `layer_norm_eps`
    of 1e-12 are supported, and no multi-label classifier.
    """
    tf = import_tensorflow("writing a TensorFlow checkpoint")
    spec = checkpoint.spec
    canonical.check_is_bert(spec.encoder, format=FORMAT)
    config = canonical.without_family_keys(spec.encoder)
    activation = config["hidden_act"]
    config["hidden_act"] = canonical.to_source_activation(activation, ACTIVATIONS, format=FORMAT)
    canonical.check_layer_norm_eps(config.pop("layer_norm_eps"), "Google's code", format=FORMAT)
    tensors = name_tables.to_source(TABLE, spec.encoder, checkpoint.weights, format=FORMAT)
    folder.write_json(path / "bert_config.json", config)
    if spec.vocabulary is not None:
        tokenizer_config.write_with_vocabulary(path, spec.tokenizer, spec.vocabulary)
    tf.raw_ops.SaveV2(
        prefix=str(path / "bert_model.ckpt"),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(array) for array in tensors.values()],
    )


def _is_state(name: str, shapes: Collection[str]) -> bool:
    """Return True for a tensor of an optimizer."""
    slot = _SLOT.fullmatch(name)
    return bool(_COUNTER.fullmatch(name)) or (slot is not None and slot[1] in shapes)


def read_tokenizer(path: Path, config: dict[str, Any]) -> tuple[list[str] | None, dict[str, Any]]:
    """Read vocab.txt, if it exists, and the tokenizer options, as in `ModelSpec`."""
    tokenizer = tokenizer_config.read(path, config["vocab_size"], config["max_position_embeddings"])
    vocabulary = tokenizer.vocabulary
    if folder.has_file(path / tokenizer_config.FILE):
        return vocabulary, tokenizer.options
    return vocabulary, folder.default_tokenizer(_is_lowercase(path, vocabulary))


def _is_lowercase(path: Path, vocabulary: list[str] | None) -> bool:
    """Infer the casing from the folder name, else from the vocabulary."""
    name = path.resolve().name.lower()
    if any(part in name for part in _LOWERCASE_NAMES):
        return True
    return "cased" not in name and folder.is_lowercase(vocabulary)
