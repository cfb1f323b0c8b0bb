"""Hugging Face: config.json, model.safetensors or pytorch_model.bin, and the tokenizer's files.

Source: huggingface/transformers, models/bert/modeling_bert.py (names), configuration_bert.py and
configuration_utils.py (config), models/bert/tokenization_bert.py (tokenizer).
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_bert.checkpoints import canonical, folder, tokenizer_config, torch_pickle
from keras_bert.checkpoints.canonical import Checkpoint, Layout, rule

FORMAT = "huggingface"
FILES = "config.json with model.safetensors or pytorch_model.bin (or the .index.json of either)"

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

# Ways in which the same tensor has been spelled, as (pattern, replacement). A bare BertModel leaves
# the prefix out; checkpoints of 2018 kept Google's names for LayerNorm.
_SPELLINGS = (
    (r"^(?=(embeddings|encoder|pooler)\.)", "bert."),
    (r"LayerNorm\.gamma$", "LayerNorm.weight"),
    (r"LayerNorm\.beta$", "LayerNorm.bias"),
)
IGNORED = frozenset({"bert.embeddings.position_ids"})  # 0, 1, 2, ...
# Copies of tied tensors, which some versions write. They must be just that.
COPIES = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

# One function has many names there: the first line is exact, the next two its tanh approximation.
ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh"), "gelu_new"),
    **dict.fromkeys(("gelu_fast", "gelu_accurate"), "gelu_new"),
    "relu": "relu",
}
# Values that would make it another model than BERT's encoder.
REQUIRED_VALUES = {
    "model_type": "bert",
    "is_decoder": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
}
# What else `PretrainedConfig` and `BertConfig` have written over the years, and what training
# scripts and sentence-transformers add. None of it changes what the encoder computes.
DROPPED_KEYS = frozenset(
    key
    for line in (
        # What the file is and who wrote it.
        "_commit_hash _name_or_path architectures finetuning_task language name name_or_path",
        "tokenizer_class transformers_version",
        # Number type and speed.
        "_attn_implementation _attn_implementation_autoset _attn_implementation_internal",
        "attn_implementation chunk_size_feed_forward dtype gradient_checkpointing",
        "tf_legacy_loss torch_dtype torchscript use_bfloat16 use_cache xla_device",
        # What is returned.
        "output_attentions output_hidden_states output_past return_dict use_return_dict",
        # Heads and training.
        "_num_labels classifier_dropout id2label label2id num_labels problem_type",
        "sbert_ce_default_activation_function sentence_transformers task_specific_params",
        "tie_encoder_decoder tie_word_embeddings",
        # Google's pooler, of which no code takes notice.
        "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers",
        "pooler_size_per_head pooler_type",
        # Special ids; ours come from the vocabulary.
        "bos_token_id decoder_start_token_id eos_token_id eos_token_ids mask_token_id",
        "pad_token_id prefix sep_token_id",
        # Text generation, of which every model carried the settings.
        "bad_words_ids begin_suppress_tokens cross_attention_hidden_size diversity_penalty",
        "do_sample early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty",
        "forced_bos_token_id forced_eos_token_id length_penalty max_length max_new_tokens",
        "min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences",
        "output_scores remove_invalid_values repetition_penalty return_dict_in_generate",
        "suppress_tokens temperature top_k top_p typical_p",
    )
    for key in line.split()
)

# Class of transformers -> our head, and what it has beside the encoder. Where several have the
# same, the first is taken for a checkpoint that does not say which it is.
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
_INDEX = ".index.json"
# In the order of preference: a pickle is read with care, but a file that cannot run is better.
_WEIGHTS_FILES = (_SAFETENSORS, _SAFETENSORS + _INDEX, _PICKLE, _PICKLE + _INDEX)


def matches(path: str | Path) -> bool:
    """Whether the folder looks like this format; nothing is read."""
    path = Path(path)
    return (path / "config.json").is_file() and _weights_file(path) is not None


def read_config(path: str | Path) -> dict[str, Any]:
    """Reads config.json as keyword arguments of `BertEncoder`.

    Args:
        path: The folder.

    Returns:
        Exactly the keys of `canonical.CONFIG_KEYS`.

    Raises:
        FileNotFoundError: If there is no config.json.
        ValueError: If it is broken, is another model's, or holds a key of unknown meaning.

    Example:
        >>> import json, tempfile
        >>> sizes = dict.fromkeys(canonical.SIZES, 8)
        >>> with tempfile.TemporaryDirectory() as path:
        ...     _ = Path(path, "config.json").write_text(json.dumps(sizes))
        ...     config = read_config(path)
        >>> config["hidden_size"], config["hidden_act"]
        (8, 'gelu')
    """
    file = Path(path) / "config.json"
    return canonical.read_config(
        file,
        folder.read_json(file),
        activations=ACTIVATIONS,
        dropped=DROPPED_KEYS,
        required_values=REQUIRED_VALUES,
    )


def read(path: str | Path) -> Checkpoint:
    """Reads a folder as `save_pretrained` writes it, or a snapshot of a repository of the hub.

    Args:
        path: The folder: config.json; model.safetensors or pytorch_model.bin, in one piece or in
            shards; the vocabulary in vocab.txt or tokenizer.json, which may be missing.

    Returns:
        The `Checkpoint`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is broken, or does not hold exactly what the config calls for.
    """
    path = Path(path)
    config = read_config(path)
    file = _weights_file(path)
    if file is None:
        raise FileNotFoundError(f"{path}: no weights, looked for {', '.join(_WEIGHTS_FILES)}")
    tensors = _normalize(file, _read_tensors(file))
    for name, tensor in tensors.items():  # now, since none is read yet
        if not tensor.dtype.startswith("float"):
            raise ValueError(f"{file}: {name} must hold floats, received {tensor.dtype}")
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    weights = canonical.read_weights(
        file, TABLE, config, shapes, lambda name: tensors[name].load(), lazy=True
    )
    vocabulary = _read_vocabulary(path, config["vocab_size"])
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
    )


def write(checkpoint: Checkpoint, path: str | Path) -> None:
    """Writes a folder as `save_pretrained` does; the way back from `read`.

    Args:
        checkpoint: What to write. Its task, or else its heads, say which class of transformers it
            is for.
        path: An empty folder.

    Raises:
        ValueError: If no class of transformers has just these heads.
    """
    from safetensors.numpy import save_file

    path = Path(path)
    architecture = _architecture(checkpoint)
    tensors = canonical.to_source(TABLE, checkpoint.config, checkpoint.weights, format=FORMAT)
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
    contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(contiguous, path / _SAFETENSORS, metadata={"format": "pt"})
    if checkpoint.vocabulary is not None:
        folder.write_vocabulary(path / "vocab.txt", checkpoint.vocabulary)
        tokenizer_config.write(path, checkpoint.tokenizer)


def _architecture(checkpoint: Checkpoint) -> str:
    """The class of transformers that has just the heads of a checkpoint."""
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
    # The first with a head: the encoder alone is no advice to who has one.
    wanted = next((pair for pair in fits if pair[1][0] is not None), None)
    advice = ""
    if wanted is not None and (extra := checkpoint.groups - wanted[1][1]):
        advice = f"; drop {', '.join(sorted(extra))} for {wanted[0]}"
    raise ValueError(
        f"{FORMAT}: a checkpoint must have the parts of one class of transformers, received "
        f"{', '.join(sorted(checkpoint.groups))}{advice}"
    )


def _pad_id(vocabulary: list[str] | None) -> int:
    return vocabulary.index("[PAD]") if vocabulary and "[PAD]" in vocabulary else 0


def _read_task(path: Path, weights: Mapping[str, np.ndarray]) -> tuple[str | None, bool]:
    """The head that the config names, and whether its classes are independent."""
    config = folder.read_json(path / "config.json")
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    task, groups = ARCHITECTURES.get(name if isinstance(name, str) else "", (None, set()))
    if task is None or not groups - {"pooler"} <= {n.partition("/")[0] for n in weights}:
        return None, False
    problem = config.get("problem_type")
    if task == "classifier" and (
        problem == "regression" or problem is None and len(weights["classifier/bias"]) == 1
    ):
        task = "regressor"
    return task, problem == "multi_label_classification"


def _weights_file(path: Path) -> Path | None:
    return next((path / name for name in _WEIGHTS_FILES if (path / name).is_file()), None)


# What safetensors calls the types that NumPy has; bfloat16 it has not.
_NUMPY_TYPES = {
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "BOOL": "bool",
}


class _Tensor(NamedTuple):
    """A tensor of a file that may be read later."""

    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], np.ndarray]


def _in_memory(tensors: Mapping[str, np.ndarray]) -> dict[str, _Tensor]:
    return {
        name: _Tensor(array.shape, str(array.dtype), functools.partial(np.asarray, array))
        for name, array in tensors.items()
    }


def _read_tensors(file: Path) -> dict[str, _Tensor]:
    if file.name.endswith(_INDEX):
        return _read_shards(file)
    if file.name.endswith(".bin"):
        return _in_memory(torch_pickle.read(file))
    return _read_safetensors(file)


def _read_shards(index: Path) -> dict[str, _Tensor]:
    """Reads the files that an index names, each with just the tensors that the index says."""
    file_of = folder.read_json(index).get("weight_map")
    suffix = Path(index.name.removesuffix(_INDEX)).suffix
    if not isinstance(file_of, dict) or not all(
        isinstance(name, str) and name == Path(name).name and name.endswith(suffix)
        for name in file_of.values()
    ):
        raise ValueError(
            f"{index}: weight_map must name a {suffix} file of this folder for each tensor"
        )
    tensors: dict[str, _Tensor] = {}
    for name in sorted(set(file_of.values())):
        shard = index.with_name(name)
        if not shard.is_file():
            raise FileNotFoundError(f"{shard}: missing, {index.name} names it")
        found = _read_tensors(shard)
        expected = {tensor for tensor, its_file in file_of.items() if its_file == name}
        canonical.raise_if(
            shard,
            f"a shard must hold the tensors that {index.name} names",
            missing=sorted(expected - found.keys()),
            unknown=sorted(found.keys() - expected),
        )
        tensors |= found
    return tensors


def _read_safetensors(file: Path) -> dict[str, _Tensor]:
    import safetensors

    try:
        with safetensors.safe_open(file, framework="numpy") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            if any(s.get_dtype() == "BF16" for s in slices.values()):
                return _in_memory(_read_bfloat16_safetensors(file))
            found = {name: (tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}
    except (safetensors.SafetensorError, TypeError, AttributeError) as error:
        raise _broken_safetensors(file, error) from error

    def state() -> tuple[int, ...]:
        found = file.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns

    before = state()

    def load(name: str) -> np.ndarray:
        if state() != before:
            raise ValueError(f"{file}: must stay as it is while it is read, but was changed")
        # Opened for each tensor: what stays mapped counts as memory of the process.
        try:
            with safetensors.safe_open(file, framework="numpy") as opened:
                array: np.ndarray = opened.get_tensor(name)
                return array
        except (safetensors.SafetensorError, TypeError, AttributeError) as error:
            raise _broken_safetensors(file, error) from error

    return {
        name: _Tensor(shape, _NUMPY_TYPES.get(dtype, dtype), functools.partial(load, name))
        for name, (shape, dtype) in found.items()
    }


def _broken_safetensors(file: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{file}: must be a whole safetensors file, received {folder.one_line(error)}"
    )


def _read_bfloat16_safetensors(file: Path) -> dict[str, np.ndarray]:
    """NumPy has no bfloat16, so these files are taken as bytes."""
    import safetensors

    numpy_types = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8"}
    tensors = {}
    for name, found in safetensors.deserialize(file.read_bytes()):  # type: ignore[no-untyped-call]
        if found["dtype"] not in numpy_types:
            raise TypeError(f"{name} of type {found['dtype']}")
        flat = np.frombuffer(found["data"], numpy_types[found["dtype"]])
        flat = canonical.bfloat16_to_float32(flat) if found["dtype"] == "BF16" else flat
        tensors[name] = flat.reshape(found["shape"])
    return tensors


def _normalize(file: Path, tensors: Mapping[str, _Tensor]) -> dict[str, _Tensor]:
    """Spells all names as the table does, and takes out what is ignored and what is a copy."""
    normal: dict[str, _Tensor] = {}
    twice = []
    for source, tensor in tensors.items():
        name = source
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
                unequal.append(f"{copy} (other than {original})")
    canonical.raise_if(
        file,
        "a checkpoint must hold each tensor once, tied ones as equal copies",
        twice=twice,
        unequal=unequal,
    )
    return normal


def _same_bits(one: _Tensor, other: _Tensor) -> bool:
    if one is other:
        return True
    a, b = one.load(), other.load()
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    # As integers, because NaN is equal to nothing and 0 is equal to -0.
    integers = f"u{a.dtype.itemsize}"
    return bool(
        np.array_equal(
            np.ascontiguousarray(a).view(integers), np.ascontiguousarray(b).view(integers)
        )
    )


def _read_vocabulary(path: Path, vocab_size: int) -> list[str] | None:
    """From vocab.txt and added_tokens.json, else from tokenizer.json, which holds both."""
    file = path / "vocab.txt"
    if file.is_file():
        pieces = folder.read_vocabulary(file)
        added_file = path / "added_tokens.json"
        added = folder.read_json(added_file) if added_file.is_file() else {}
        # Those that the vocabulary has too come first, so that it has the last word.
        pieces = _in_order(added_file, [*_flip(added), *enumerate(pieces)])
        folder.check_vocabulary_size(file, pieces, vocab_size)
        return pieces
    file = path / "tokenizer.json"
    if not file.is_file():
        return None
    tokenizer = folder.read_json(file)
    try:
        model, added_list = tokenizer["model"], tokenizer.get("added_tokens") or ()
        if model.get("type", "WordPiece") != "WordPiece":
            raise ValueError(f"{file}: model must be WordPiece, received {model['type']!r}")
        ids = [*_flip(model["vocab"]), *((token["id"], token["content"]) for token in added_list)]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: must hold a WordPiece model with its vocab") from error
    pieces = _in_order(file, ids)
    folder.check_vocabulary_size(file, pieces, vocab_size)
    return pieces


def _flip(ids: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return [(id_, piece) for piece, id_ in ids.items()]


def _in_order(file: Path, pieces: Iterable[tuple[Any, Any]]) -> list[str]:
    """The pieces as a list in which the place is the id, from (id, piece) in any order."""
    by_id = {id_: piece for id_, piece in pieces if type(id_) is int and isinstance(piece, str)}
    for i in range(len(by_id)):
        if i not in by_id:
            raise ValueError(f"{file}: ids must run from 0 on, received no piece for {i}")
    return [by_id[i] for i in range(len(by_id))]


def _read_labels(path: Path, weights: Mapping[str, np.ndarray]) -> list[str] | None:
    """The names of the classes, unless they are the numbered ones that every config has."""
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
            f"{file}: id2label must name the classifier's {classes} classes from 0 on, "
            f"received {names!r}"
        )
    return labels
