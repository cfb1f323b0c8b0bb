"""Hugging Face: config.json, the weights of a PyTorch or TensorFlow class, and tokenizer files.

Source: huggingface/transformers, models/bert/modeling_bert.py (names), configuration_bert.py and
configuration_utils.py (config), models/bert/tokenization_bert.py (tokenizer), and of version 4
modeling_tf_pytorch_utils.py (names of the TensorFlow classes).
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import (
    canonical,
    folder,
    name_tables,
    tensor_files,
    tokenizer_config,
    tokenizer_json,
)
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.checkpoints.name_tables import Layout, rule
from keras_bert.checkpoints.tensor_files import Tensor
from keras_bert.runtime.escaping import check_name

FORMAT = "huggingface"
FILES = (
    "config.json with model.safetensors or pytorch_model.bin (or the .index.json of either), or "
    "tf_model.h5"
)

_LAYER = "bert.encoder.layer.{i}"
TABLE = {
    "embeddings/word_embeddings/embeddings": rule("bert.embeddings.word_embeddings.weight"),
    "embeddings/position_embeddings/embeddings": rule("bert.embeddings.position_embeddings.weight"),
    "embeddings/token_type_embeddings/embeddings": rule(
        "bert.embeddings.token_type_embeddings.weight"
    ),
    "embeddings/layer_norm/gamma": rule("bert.embeddings.LayerNorm.weight"),
    "embeddings/layer_norm/beta": rule("bert.embeddings.LayerNorm.bias"),
    "layer_{i}/attention/qkv/kernel": rule(
        f"{_LAYER}.attention.self.query.weight",
        f"{_LAYER}.attention.self.key.weight",
        f"{_LAYER}.attention.self.value.weight",
        layout=Layout.TRANSPOSED,
    ),
    "layer_{i}/attention/qkv/bias": rule(
        f"{_LAYER}.attention.self.query.bias",
        f"{_LAYER}.attention.self.key.bias",
        f"{_LAYER}.attention.self.value.bias",
    ),
    "layer_{i}/attention/output/kernel": rule(
        f"{_LAYER}.attention.output.dense.weight", layout=Layout.TRANSPOSED
    ),
    "layer_{i}/attention/output/bias": rule(f"{_LAYER}.attention.output.dense.bias"),
    "layer_{i}/attention_layer_norm/gamma": rule(f"{_LAYER}.attention.output.LayerNorm.weight"),
    "layer_{i}/attention_layer_norm/beta": rule(f"{_LAYER}.attention.output.LayerNorm.bias"),
    "layer_{i}/intermediate/kernel": rule(
        f"{_LAYER}.intermediate.dense.weight", layout=Layout.TRANSPOSED
    ),
    "layer_{i}/intermediate/bias": rule(f"{_LAYER}.intermediate.dense.bias"),
    "layer_{i}/output/kernel": rule(f"{_LAYER}.output.dense.weight", layout=Layout.TRANSPOSED),
    "layer_{i}/output/bias": rule(f"{_LAYER}.output.dense.bias"),
    "layer_{i}/output_layer_norm/gamma": rule(f"{_LAYER}.output.LayerNorm.weight"),
    "layer_{i}/output_layer_norm/beta": rule(f"{_LAYER}.output.LayerNorm.bias"),
    "pooler/dense/kernel": rule("bert.pooler.dense.weight", layout=Layout.TRANSPOSED),
    "pooler/dense/bias": rule("bert.pooler.dense.bias"),
    "masked_lm/transform/kernel": rule(
        "cls.predictions.transform.dense.weight", layout=Layout.TRANSPOSED
    ),
    "masked_lm/transform/bias": rule("cls.predictions.transform.dense.bias"),
    "masked_lm/layer_norm/gamma": rule("cls.predictions.transform.LayerNorm.weight"),
    "masked_lm/layer_norm/beta": rule("cls.predictions.transform.LayerNorm.bias"),
    "masked_lm/output_bias": rule("cls.predictions.bias"),
    "next_sentence/kernel": rule("cls.seq_relationship.weight", layout=Layout.TRANSPOSED),
    "next_sentence/bias": rule("cls.seq_relationship.bias"),
    "classifier/kernel": rule("classifier.weight", layout=Layout.TRANSPOSED),
    "classifier/bias": rule("classifier.bias"),
    "span_selector/kernel": rule("qa_outputs.weight", layout=Layout.TRANSPOSED),
    "span_selector/bias": rule("qa_outputs.bias"),
}

# Alternative names, as (pattern, replacement). BertModel has no prefix; checkpoints of 2018 have
# Google's names for LayerNorm.
_SPELLINGS = (
    (r"^(?=(embeddings|encoder|pooler)\.)", "bert."),
    (r"LayerNorm\.gamma$", "LayerNorm.weight"),
    (r"LayerNorm\.beta$", "LayerNorm.bias"),
)
# Patterns that convert names of TensorFlow classes to names of PyTorch classes, and the names of
# weights within a layer.
_TENSORFLOW_NAMES = ((r":0$", ""), (r"^\w+___", ""), (r"_\._", "."), (r"/", "."))
_WEIGHT_NAMES = {"kernel": "weight", "embeddings": "weight"}
IGNORED = frozenset({"bert.embeddings.position_ids"})  # 0, 1, 2, ...
# Some versions of transformers write copies of tied tensors. The copies must be equal.
COPIES = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

# The first line is the exact gelu, the next two are its tanh approximation.
ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh"), "gelu_new"),
    **dict.fromkeys(("gelu_fast", "gelu_accurate"), "gelu_new"),
    "relu": "relu",
}
# Other values would change the architecture.
REQUIRED_VALUES = {
    "model_type": "bert",
    "is_decoder": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
}
# Other keys of `PretrainedConfig`, `BertConfig`, training scripts and sentence-transformers. They
# do not change the output of the encoder.
DROPPED_KEYS = frozenset(
    key
    for line in (
        # Origin.
        "_commit_hash _name_or_path architectures finetuning_task language name name_or_path",
        "tokenizer_class transformers_version",
        # Dtype and speed.
        "_attn_implementation _attn_implementation_autoset _attn_implementation_internal",
        "attn_implementation chunk_size_feed_forward dtype gradient_checkpointing",
        "tf_legacy_loss torch_dtype torchscript use_bfloat16 use_cache xla_device",
        # Outputs.
        "output_attentions output_hidden_states output_past return_dict use_return_dict",
        # Heads and training.
        "_num_labels classifier_dropout id2label label2id num_labels problem_type",
        "sbert_ce_default_activation_function sentence_transformers task_specific_params",
        "tie_encoder_decoder tie_word_embeddings",
        # Google's pooler; unused by any code.
        "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers",
        "pooler_size_per_head pooler_type",
        # Special tokens; their ids are read from the vocabulary.
        "bos_token_id decoder_start_token_id eos_token_id eos_token_ids mask_token_id",
        "pad_token_id prefix sep_token_id",
        # Text generation.
        "bad_words_ids begin_suppress_tokens cross_attention_hidden_size diversity_penalty",
        "do_sample early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty",
        "forced_bos_token_id forced_eos_token_id length_penalty max_length max_new_tokens",
        "min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences",
        "output_scores remove_invalid_values repetition_penalty return_dict_in_generate",
        "suppress_tokens temperature top_k top_p typical_p",
    )
    for key in line.split()
)

# Class in transformers -> task, and weights besides the encoder. For a checkpoint without a task,
# the first class with the same weights is used.
ARCHITECTURES: dict[str, tuple[str | None, set[str]]] = {
    "BertModel": (None, {"pooler"}),
    "BertForPreTraining": ("pretraining", {"pooler", "masked_lm", "next_sentence"}),
    "BertForMaskedLM": ("masked_lm", {"masked_lm"}),
    "BertForNextSentencePrediction": ("next_sentence", {"pooler", "next_sentence"}),
    "BertForSequenceClassification": ("classifier", {"pooler", "classifier"}),
    "BertForTokenClassification": ("tagger", {"classifier"}),
    "BertForMultipleChoice": ("multiple_choice", {"pooler", "classifier"}),
    "BertForQuestionAnswering": ("span_selector", {"span_selector"}),
}
_PROBLEMS: dict[tuple[str | None, bool], str] = {
    ("classifier", False): "single_label_classification",
    ("classifier", True): "multi_label_classification",
    ("regressor", False): "regression",
}

_SAFETENSORS = "model.safetensors"
_PICKLE = "pytorch_model.bin"
_HDF5 = "tf_model.h5"
# In order of preference.
_WEIGHTS_FILES = (
    *(name + ending for name in (_SAFETENSORS, _PICKLE) for ending in ("", tensor_files.INDEX)),
    _HDF5,
)


def matches(path: str | Path) -> bool:
    """Return True if the folder has the files of this format."""
    path = Path(path)
    has_files = (path / "config.json").is_file() and _weights_file(path) is not None
    return has_files and not (path / "modules.json").is_file()


# Keys of sentence-transformers' 1_Pooling/config.json.
_POOLING_KEYS = {
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "cls": "pooling_mode_cls_token",
}


def read_config(path: str | Path) -> dict[str, Any]:
    """Read config.json as keyword arguments of `BertEncoder`."""
    file = Path(path) / "config.json"
    return canonical.read_config(
        file,
        folder.read_json(file),
        activations=ACTIVATIONS,
        dropped=DROPPED_KEYS,
        required_values=REQUIRED_VALUES,
    )


def read(path: str | Path, ignore: Collection[str] = ()) -> Checkpoint:
    """Read a folder that `save_pretrained` wrote, or a snapshot of a Hugging Face repository.

    It holds config.json; model.safetensors or pytorch_model.bin, sharded or not, or tf_model.h5;
    and optionally the vocabulary, in vocab.txt or tokenizer.json.
    """
    path = Path(path)
    config = read_config(path)
    file = _weights_file(path)
    if file is None:
        raise FileNotFoundError(f"{path}: no weights, looked for {', '.join(_WEIGHTS_FILES)}")
    tensors = canonical.without_ignored(file, _normalize(file, tensor_files.read(file)), ignore)
    for name, tensor in tensors.items():
        if not tensor.dtype.startswith("float"):
            raise ValueError(f"{file}: {name} must hold floats, received {tensor.dtype}")
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    weights = name_tables.read_weights(
        file, TABLE, config, shapes, lambda name: tensors[name].load(), lazy=True
    )
    vocabulary = tokenizer_config.read_vocabulary(path, config["vocab_size"])
    task, multi_label = _read_task(path, weights)
    return Checkpoint(
        format=FORMAT,
        path=str(path),
        config=config,
        weights=weights,
        vocabulary=vocabulary,
        tokenizer=tokenizer_config.read(path, vocabulary, config),
        labels=_read_labels(path, weights),
        task=task,
        multi_label=multi_label,
        pooling=_read_pooling(path),
    )


def write(checkpoint: Checkpoint, path: str | Path) -> None:
    """Write a folder in the layout of `save_pretrained`: the inverse of `read`.

    Task and heads determine the class in transformers. A class with exactly these heads must exist.
    """
    path = Path(path)
    architecture = _architecture(checkpoint)
    tensors = name_tables.to_source(TABLE, checkpoint.config, checkpoint.weights, format=FORMAT)
    if architecture == "BertModel":
        tensors = {name.removeprefix("bert."): array for name, array in tensors.items()}
    activation = checkpoint.config["hidden_act"]
    config = {
        "architectures": [architecture],
        "model_type": "bert",
        **checkpoint.config,
        "hidden_act": canonical.to_source_activation(activation, ACTIVATIONS, format=FORMAT),
        "pad_token_id": _pad_id(checkpoint.vocabulary),
        "dtype": "float32",
    }
    if "classifier/bias" in checkpoint.weights:
        count = len(checkpoint.weights["classifier/bias"])
        labels = checkpoint.labels or [f"LABEL_{index}" for index in range(count)]
        config["id2label"] = {str(index): label for index, label in enumerate(labels)}
        config["label2id"] = {label: index for index, label in enumerate(labels)}
        config["problem_type"] = _PROBLEMS.get((checkpoint.task, checkpoint.multi_label))
    folder.write_json(path / "config.json", config)
    if checkpoint.pooling is not None:
        _write_pooling(path, checkpoint)
    tensor_files.write(path / _SAFETENSORS, tensors)
    if checkpoint.vocabulary is not None:
        tokenizer_config.write_with_vocabulary(path, checkpoint.tokenizer, checkpoint.vocabulary)
        tokenizer_json.write(path, checkpoint.tokenizer, checkpoint.vocabulary)


def _architecture(checkpoint: Checkpoint) -> str:
    """Return the class in transformers that has exactly the heads of a checkpoint."""
    for name, (task, groups) in ARCHITECTURES.items():
        if checkpoint.groups == groups and checkpoint.task in (task, None):
            return name
        if checkpoint.task == "regressor" and task == "classifier" and checkpoint.groups == groups:
            return name
    if checkpoint.groups <= {"pooler"}:
        return "BertModel"
    fits = [pair for pair in ARCHITECTURES.items() if pair[1][1] < checkpoint.groups]
    if checkpoint.task is not None:
        fits = [pair for pair in ARCHITECTURES.items() if pair[1][0] == checkpoint.task]
    wanted = next((pair for pair in fits if pair[1][0] is not None), None)
    advice = ""
    if wanted is not None and (extra := checkpoint.groups - wanted[1][1]):
        advice = f"; drop {', '.join(sorted(extra))} for {wanted[0]}"
    raise ValueError(
        f"{FORMAT}: a checkpoint must have the weights of one class in transformers, received "
        f"{', '.join(sorted(checkpoint.groups))}{advice}"
    )


def _pad_id(vocabulary: list[str] | None) -> int:
    return vocabulary.index("[PAD]") if vocabulary and "[PAD]" in vocabulary else 0


def _read_task(path: Path, weights: Mapping[str, np.ndarray]) -> tuple[str | None, bool]:
    """Return the task in the config, and True if a text can have several classes."""
    config = folder.read_json(path / "config.json")
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    task, groups = ARCHITECTURES.get(name if isinstance(name, str) else "", (None, set()))
    if task is None or not groups - {"pooler"} <= set(map(canonical.group_of, weights)):
        return None, False
    problem = config.get("problem_type")
    if task == "classifier" and (
        problem == "regression" or problem is None and len(weights["classifier/bias"]) == 1
    ):
        task = "regressor"
    return task, problem == "multi_label_classification"


def _weights_file(path: Path) -> Path | None:
    return next((path / name for name in _WEIGHTS_FILES if (path / name).is_file()), None)


def _normalize(file: Path, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert all names to those in the table, and remove ignored tensors and copies."""
    normal: dict[str, Tensor] = {}
    twice = []
    for source, tensor in tensors.items():
        name, tensor = _from_tensorflow(source, tensor) if "/" in source else (source, tensor)
        for pattern, replacement in _SPELLINGS:
            name = re.sub(pattern, replacement, name)
        if name in normal:
            twice.append(source)
        if name not in IGNORED:
            normal[name] = tensor
    unequal = []
    for copy, original in COPIES.items():
        if copy in normal:
            tensor = normal.pop(copy)
            if not _same_bits(normal.setdefault(original, tensor), tensor):
                unequal.append(f"{copy} (differs from {original})")
    canonical.raise_if(
        file,
        "a checkpoint must hold each tensor once, and copies of tied tensors must be equal",
        twice=twice,
        unequal=unequal,
    )
    return normal


def _from_tensorflow(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    """Convert a weight of a TensorFlow class to the name and the layout of PyTorch.

    For example "mlm___cls/predictions/transform/dense/kernel:0" is
    "cls.predictions.transform.dense.weight", with its axes swapped.
    """
    for pattern, replacement in _TENSORFLOW_NAMES:
        name = re.sub(pattern, replacement, name)
    module, _, kind = name.rpartition(".")
    if kind == "kernel":
        shape, dtype, load = tensor
        tensor = Tensor(shape[::-1], dtype, lambda: load().T)
    return f"{module}.{_WEIGHT_NAMES.get(kind, kind)}", tensor


def _same_bits(one: Tensor, other: Tensor) -> bool:
    if one is other:
        return True
    a, b = one.load(), other.load()
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    # Compare integers, because NaN != NaN and 0.0 == -0.0.
    integers = f"u{a.dtype.itemsize}"
    return bool(
        np.array_equal(
            np.ascontiguousarray(a).view(integers), np.ascontiguousarray(b).view(integers)
        )
    )


def _read_pooling(path: Path) -> str | None:
    """Return the pooling of a model that was trained with sentence-transformers, or `None`."""
    file = path / "1_Pooling" / "config.json"
    if not file.is_file():
        return None
    found = folder.read_json(file)
    chosen = [mode for mode, key in _POOLING_KEYS.items() if found.get(key) is True]
    return chosen[0] if len(chosen) == 1 else None


def _write_pooling(path: Path, checkpoint: Checkpoint) -> None:
    file = path / "1_Pooling" / "config.json"
    file.parent.mkdir()
    found = {key: mode == checkpoint.pooling for mode, key in _POOLING_KEYS.items()}
    size = checkpoint.config["hidden_size"]
    folder.write_json(file, {"word_embedding_dimension": size, **found})


def _read_labels(path: Path, weights: Mapping[str, np.ndarray]) -> list[str] | None:
    """Return the names of the classes, or None for the defaults (LABEL_0, LABEL_1, ...)."""
    file = path / "config.json"
    names = folder.read_json(file).get("id2label")
    if "classifier/bias" not in weights or not names:
        return None
    classes = len(weights["classifier/bias"])
    names = names if isinstance(names, dict) else {}
    labels = [names[str(i)] for i in range(len(names)) if isinstance(names.get(str(i)), str)]
    if labels and labels == [f"LABEL_{i}" for i in range(len(names))]:
        return None
    if len(labels) != classes or len(names) != classes:
        raise ValueError(
            f"{file}: id2label must name the classifier's {classes} classes, received "
            f"{names!r:.200}"
        )
    for label in labels:
        check_name(label, f"{file}: a label of id2label")
    return labels
