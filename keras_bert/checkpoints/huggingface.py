"""Hugging Face: config.json, the weights of a PyTorch or TensorFlow class, and tokenizer files.

Source: huggingface/transformers, models/bert/modeling_bert.py (names), configuration_bert.py and
configuration_utils.py (config), models/bert/tokenization_bert.py (tokenizer), and of version 4
modeling_tf_pytorch_utils.py (names of the TensorFlow classes).
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import (
    canonical,
    families,
    folder,
    huggingface_heads,
    name_tables,
    other_models,
    peft_adapter,
    tensor_files,
    tokenizer_config,
    tokenizer_json,
)
from keras_bert.checkpoints.canonical import Checkpoint, ReadPart
from keras_bert.checkpoints.detection import HUGGINGFACE_WEIGHTS, huggingface_weights
from keras_bert.checkpoints.families import Family
from keras_bert.checkpoints.huggingface_heads import POOLING_FILE
from keras_bert.checkpoints.name_tables import Layout
from keras_bert.checkpoints.peft_adapter import Adapter
from keras_bert.checkpoints.tensor_files import Tensor
from keras_bert.model_spec import HeadSpec, ModelSpec
from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.words import words

FORMAT = "huggingface"

_LAYER = "bert.encoder.layer.{i}"
TABLE = name_tables.table(
    {
        "embeddings/word_embeddings": "bert.embeddings.word_embeddings",
        "embeddings/position_embeddings": "bert.embeddings.position_embeddings",
        "embeddings/token_type_embeddings": "bert.embeddings.token_type_embeddings",
        "embeddings/layer_norm": "bert.embeddings.LayerNorm",
        "embeddings/projection": "bert.embeddings_project",
        "layer_{i}/attention/qkv": f"{_LAYER}.attention.self.{{qkv}}",
        "layer_{i}/attention/output": f"{_LAYER}.attention.output.dense",
        "layer_{i}/attention_layer_norm": f"{_LAYER}.attention.output.LayerNorm",
        "layer_{i}/intermediate": f"{_LAYER}.intermediate.dense",
        "layer_{i}/output": f"{_LAYER}.output.dense",
        "layer_{i}/output_layer_norm": f"{_LAYER}.output.LayerNorm",
        "pooler/dense": "bert.pooler.dense",
        "masked_lm/transform": "cls.predictions.transform.dense",
        "masked_lm/layer_norm": "cls.predictions.transform.LayerNorm",
        "masked_lm/output_bias": "cls.predictions.bias",
        "masked_lm/output_embeddings": "cls.predictions.decoder.weight",
        "next_sentence": "cls.seq_relationship",
        "classifier": "classifier",
        "span_selector": "qa_outputs",
    },
    separator=".",
    variables={"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"},
    layouts={name: Layout.TRANSPOSED for name in canonical.SHAPES if name.endswith("/kernel")},
)

# PyTorch's wrappers, such as DistributedDataParallel and `torch.compile`, add a part to the names.
_WRAPPERS = r"(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)"
_WRAPPED = re.compile(rf"(^|\.)(?:{_WRAPPERS}\.)+")
_FIRST_TENSOR = "embeddings.word_embeddings.weight"
# Alternative names, as (pattern, replacement). BertModel has no prefix; checkpoints of 2018 have
# Google's names for LayerNorm.
_SPELLINGS = (
    (r"^(?=(embeddings|embeddings_project|encoder|pooler)\.)", "bert."),
    (r"LayerNorm\.gamma$", "LayerNorm.weight"),
    (r"LayerNorm\.beta$", "LayerNorm.bias"),
)
# Patterns that convert names of TensorFlow classes to names of PyTorch classes, and the names of
# weights within a layer.
_TENSORFLOW_NAMES = ((r":0$", ""), (r"^\w+___", ""), (r"_\._", "."), (r"/", "."))
_WEIGHT_NAMES = {"kernel": "weight", "embeddings": "weight"}
# Buffers with the default inputs: 0, 1, 2, ... and zeros.
IGNORED = frozenset({"bert.embeddings.position_ids", "bert.embeddings.token_type_ids"})
# Some versions of transformers write copies of tied tensors.
_DECODER_BIAS = "cls.predictions.decoder.bias"
COPIES = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    _DECODER_BIAS: "cls.predictions.bias",
}

# "gelu" is exact, and "gelu_new" is its tanh approximation.
ACTIVATIONS = {
    "gelu": "gelu", "gelu_python": "gelu", "gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_new",
    "gelu_python_tanh": "gelu_new", "gelu_fast": "gelu_new", "gelu_accurate": "gelu_new",
    "linear": "linear", "mish": "mish", "relu": "relu", "relu6": "relu6", "sigmoid": "sigmoid",
    "silu": "silu", "swish": "silu", "tanh": "tanh",
}  # fmt: skip
# Other keys of `PretrainedConfig`, `BertConfig`, training scripts and sentence-transformers, which
# need no warning. They do not change the output of the encoder.
# In order: origin, dtype and speed, outputs, heads and training, special tokens (their ids are read
# from the vocabulary), text generation.
SILENT_KEYS = words("""
    _commit_hash _name_or_path architectures finetuning_task language name name_or_path
    tokenizer_class transformers_version auto_map _attn_implementation _attn_implementation_autoset
    _attn_implementation_internal attn_implementation chunk_size_feed_forward dtype
    gradient_checkpointing tf_legacy_loss torch_dtype torchscript use_bfloat16 use_cache
    xla_device output_attentions output_hidden_states output_past return_dict use_return_dict
    _num_labels classifier_dropout id2label label2id num_labels problem_type
    sbert_ce_default_activation_function sentence_transformers task_specific_params
    tie_encoder_decoder tie_word_embeddings bos_token_id decoder_start_token_id eos_token_id
    eos_token_ids mask_token_id pad_token_id prefix sep_token_id do_sample early_stopping
    length_penalty max_length num_beams num_return_sequences repetition_penalty temperature top_k
    top_p
""")

# Files of other libraries -> what they state.
_NOT_READ = {
    "quantize_config.json": "quantized weights of GPTQ",
    "quant_config.json": "quantized weights of AWQ",
}
_MODULE_OF_VECTORS = re.compile(r"\d+_(Dense|LayerNorm|CNN|LSTM|WeightedLayerPooling|WordWeights)")
_SAFETENSORS = "model.safetensors"


def _classifier_dropout(path: Path, config: Mapping[str, Any]) -> float | None:
    rate = config.get("classifier_dropout")
    if rate is not None and not (type(rate) in (int, float) and 0 <= rate < 1):
        file = _config_file(path)
        raise ValueError(f"{file}: classifier_dropout must be from 0 to 1, received {shown(rate)}")
    return rate


def _config_file(path: Path) -> Path:
    """Return the file with the config, which pytorch-pretrained-bert named as Google does."""
    file = path / "config.json"
    older = path / "bert_config.json"
    is_older = older.is_file() and not file.is_file() and not any(path.glob("*.index"))
    return older if is_older else file


def _check_modules_are_listed(path: Path) -> None:
    """Raise an error for modules of sentence-transformers that would be left out."""
    if (path / "modules.json").is_file():
        return
    names = sorted(file.parent.name for file in path.glob("*_*/config.json"))
    modules = [name for name in names if _MODULE_OF_VECTORS.fullmatch(name)]
    if modules:
        raise ValueError(
            f"{path}: modules.json is missing, but the folder has the modules "
            f"{printable(', '.join(modules), 80)}. Copy modules.json into it, or remove them to "
            "load the encoder without them"
        )


def _check_other_files(path: Path, config: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for a file that changes what the weights compute and is not read."""
    for name, content in _NOT_READ.items():
        if (path / name).is_file():
            raise ValueError(
                f"{path / name}: must not be beside the weights, since {content} are not read. "
                "Merge them into the weights with the library that wrote them, or remove the file"
            )
    if any(path.glob("*.index")):  # bert_config.json is that of Google's checkpoint
        return
    other = folder.read_optional_json(path / "bert_config.json")
    for key in canonical.CONFIG_KEYS:
        if key in config and key in other and config[key] != other[key]:
            raise ValueError(
                f"{path}: config.json and bert_config.json must agree; {key} is "
                f"{shown(config[key])} and {shown(other[key])}. Remove the file that does not "
                "belong to the weights"
            )


def read(path: Path, ignore: Collection[str] = ()) -> Checkpoint:
    """Read a folder that `save_pretrained` wrote, or a snapshot of a Hugging Face repository."""
    return canonical.with_head_or_problem(open_folder(path, ignore))


def open_folder(
    path: Path, ignore: Collection[str] = (), adapter: Adapter | None = None
) -> ReadPart:
    """Return the function that reads a folder, which is opened here.

    It holds config.json, or bert_config.json as in 2018; model.safetensors or pytorch_model.bin,
    sharded or not, or tf_model.h5; and optionally the vocabulary, in vocab.txt or tokenizer.json.
    An adapter, by default that in the folder, is merged. Its own folder can have another tokenizer.
    """
    file = _config_file(path)
    if not file.is_file():
        other_models.check_files(path)
    content = folder.read_json(file)
    family = families.find(content)
    adapter = adapter or peft_adapter.read(path)
    content = peft_adapter.with_task(adapter, content, family.class_name)
    source_config = families.bert_config(file, family, content)
    _check_other_files(path, content)
    other_models.check_config(file, source_config, is_converted=family is not families.BERT)
    silent = SILENT_KEYS | family.silent_keys
    config = canonical.read_config(file, source_config, ACTIVATIONS, silent)
    tokenizer_folder = _folder_of_tokenizer(path, adapter)
    tokenizer = tokenizer_config.read(
        tokenizer_folder, config["vocab_size"], config["max_position_embeddings"]
    )
    families.check_padding(tokenizer_folder, family, content, tokenizer.vocabulary)
    weights_file = _find_weights(path)
    families.check_file(weights_file, family)
    source_tensors = tensor_files.read(weights_file)
    tensors = _read_tensors(weights_file, source_tensors, family, adapter)
    tensors = families.with_bert_shapes(family, content, tensors)
    config["embedding_size"] = families.embedding_size(file, family, content, tensors)
    tensors = canonical.without_ignored(weights_file, tensors, ignore)
    tied = source_config.get("tie_word_embeddings") is not False
    copies = []
    if tied:
        copies = _remove_copies(tensors)
    elif _DECODER_BIAS in tensors:  # transformers adds it in place of the other bias
        tensors[COPIES[_DECODER_BIAS]] = tensors.pop(_DECODER_BIAS)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    pooling = huggingface_heads.pooling_of_encoder(path / POOLING_FILE)

    def read_part(heads: bool) -> Checkpoint:
        if heads:
            families.check_heads(file, family, {**content, **config}, source_tensors)
            _check_copies(weights_file, copies)
        weights = name_tables.read_weights(
            weights_file, TABLE, config, shapes, lambda name: tensors[name].load(), heads=heads
        )
        has_pooler = "pooler/dense/kernel" in weights
        pooler_act = family.pooler_act if has_pooler else config["pooler_act"]
        encoder = {**config, "pooler_act": pooler_act}
        spec = ModelSpec(encoder, tokenizer.vocabulary, tokenizer.options, pooling)
        if heads:
            head = _read_head(path, source_config, weights, tied)
            spec = dataclasses.replace(spec, head=head)
        return Checkpoint(FORMAT, str(path), spec, weights)

    return read_part


def _folder_of_tokenizer(path: Path, adapter: Adapter | None) -> Path:
    """Return the folder of an adapter, if it has a tokenizer, or else that of the base."""
    if adapter is not None and tokenizer_config.is_in(adapter.folder):
        return adapter.folder
    return path


def _find_weights(path: Path) -> Path:
    file = huggingface_weights(path)
    if file is None:
        other_models.check_files(path)
        files = ", ".join(HUGGINGFACE_WEIGHTS)
        raise FileNotFoundError(f"{path}: no weights, looked for {files}")
    return file


def _read_tensors(
    file: Path, source_tensors: Mapping[str, Tensor], family: Family, adapter: Adapter | None
) -> dict[str, Tensor]:
    """Return the tensors by the names in the table, with those of an adapter."""
    tensors = _normalize(file, source_tensors, family)
    if adapter is None:
        return tensors
    adapter_file = adapter.folder / peft_adapter.FILE
    families.check_adapter(adapter_file, family, source_tensors, adapter.added, adapter.replaced)
    added = _normalize(file, adapter.added, family)
    replaced = _normalize(file, adapter.replaced, family)
    return peft_adapter.merge(tensors, adapter._replace(added=added, replaced=replaced))


def _read_head(
    path: Path, config: Mapping[str, Any], weights: Mapping[str, np.ndarray], tied: bool
) -> HeadSpec:
    _check_modules_are_listed(path)
    if folder.has_file(path / POOLING_FILE):
        huggingface_heads.read_pooling(path / POOLING_FILE)
    code = config.get("auto_map")
    if isinstance(code, dict) and any(key.startswith("AutoModelFor") for key in code):
        raise ValueError(f"{path}: the code of {shown(code)} computes the head")
    head = huggingface_heads.read_head(path, config, weights, tied)
    if "span_selector/bias" in weights:  # its class in transformers has no dropout
        return head
    return dataclasses.replace(head, dropout=_classifier_dropout(path, config))


def write(checkpoint: Checkpoint, path: Path) -> None:
    """Write a folder in the layout of `save_pretrained`: the inverse of `read`.

    Task and heads determine the class in transformers. A class with exactly these heads must exist.
    """
    canonical.check_is_bert(checkpoint.spec.encoder, format=FORMAT)
    architecture = huggingface_heads.architecture(checkpoint)
    write_config_and_tokenizer(checkpoint, path, architecture)
    spec = checkpoint.spec
    tensors = name_tables.to_source(TABLE, spec.encoder, checkpoint.weights, format=FORMAT)
    if not spec.head.tied and COPIES[_DECODER_BIAS] in tensors:
        # transformers then reads only this copy of the bias.
        tensors[_DECODER_BIAS] = tensors[COPIES[_DECODER_BIAS]]
    if architecture == "BertModel":
        tensors = {name.removeprefix("bert."): array for name, array in tensors.items()}
    tensor_files.write(path / _SAFETENSORS, tensors)


def write_config_and_tokenizer(checkpoint: Checkpoint, path: Path, architecture: str) -> None:
    """Write the files of `save_pretrained` except for the weights."""
    spec = checkpoint.spec
    vocabulary = spec.vocabulary or []
    encoder = canonical.without_family_keys(spec.encoder)
    activation = encoder["hidden_act"]
    config = {
        "architectures": [architecture],
        "model_type": "bert",
        **encoder,
        "hidden_act": canonical.to_source_activation(activation, ACTIVATIONS, format=FORMAT),
        "pad_token_id": vocabulary.index("[PAD]") if "[PAD]" in vocabulary else 0,
        "dtype": "float32",
        **huggingface_heads.config_of_head(checkpoint),
    }
    folder.write_json(path / "config.json", config)
    if spec.embedding is not None:
        huggingface_heads.write_pooling(path, spec.embedding.pooling, config["hidden_size"])
    write_tokenizer(spec, path)


def write_tokenizer(spec: ModelSpec, path: Path) -> None:
    """Write the files of the tokenizer, if there is one."""
    if spec.vocabulary is not None:
        tokenizer_config.write_with_vocabulary(path, spec.tokenizer, spec.vocabulary)
        tokenizer_config.write_special_tokens(path)
        tokenizer_json.write(path, spec.tokenizer, spec.vocabulary)


def _normalize(file: Path, tensors: Mapping[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Convert all names to those in the table, and remove tensors that are always ignored."""
    plain: dict[str, tuple[str, Tensor]] = {}
    for source, tensor in tensors.items():
        name, tensor = _from_tensorflow(source, tensor) if "/" in source else (source, tensor)
        plain[source] = _WRAPPED.sub(r"\1", name), tensor
    prefix = _prefix_of_model([name for name, _ in plain.values()], family.prefix)
    other_models.check_prefix(file, prefix)
    names = {source: name.removeprefix(prefix) for source, (name, _) in plain.items()}
    renamed = families.bert_names(family, names.values())
    names = {source: renamed[name] for source, name in names.items() if name in renamed}
    normal: dict[str, Tensor] = {}
    twice = []
    for source, name in names.items():
        for pattern, replacement in _SPELLINGS:
            name = re.sub(pattern, replacement, name)
        if name in normal:
            twice.append(source)
        if name not in IGNORED:
            normal[name] = plain[source][1]
    canonical.raise_if(file, "a checkpoint must hold each tensor once", {"twice": twice})
    return normal


def _prefix_of_model(names: Iterable[str], model_name: str) -> str:
    """Return what stands before the names of a BERT that is a part of another module, or "".

    For example "model." for "model.bert.embeddings.word_embeddings.weight" and the model name
    "bert". A file with several encoders has no prefix.
    """
    prefixes = [name.removesuffix(_FIRST_TENSOR) for name in names if name.endswith(_FIRST_TENSOR)]
    return re.sub(rf"(^|\.){model_name}\.$", r"\1", prefixes[0]) if len(prefixes) == 1 else ""


def _remove_copies(tensors: dict[str, Tensor]) -> list[tuple[str, Tensor, Tensor]]:
    """Remove the copies of tied tensors, which are in heads. Return (name, copy, original)."""
    copies = []
    for name, original in COPIES.items():
        if name in tensors:
            copy = tensors.pop(name)
            copies.append((name, copy, tensors.setdefault(original, copy)))
    return copies


def _check_copies(file: Path, copies: list[tuple[str, Tensor, Tensor]]) -> None:
    """Raise a `ValueError` if a copy of a tied tensor is not equal to the tensor."""
    unequal = [
        name for name, copy, original in copies if not np.array_equal(copy.load(), original.load())
    ]
    canonical.raise_if(
        file,
        "copies of tied tensors must be equal, unless tie_word_embeddings in config.json is false. "
        f"To use the original tensors, pass ignore={unequal} to keras_bert.load",
        {"unequal": [f"{name} (differs from {COPIES[name]})" for name in unequal]},
    )


def _from_tensorflow(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    """Convert a weight of a TensorFlow class to the name and the layout of PyTorch.

    For example "mlm___cls/predictions/transform/dense/kernel:0" is
    "cls.predictions.transform.dense.weight", with its axes swapped.
    """
    for pattern, replacement in _TENSORFLOW_NAMES:
        name = re.sub(pattern, replacement, name)
    module, _, kind = name.rpartition(".")
    if kind == "kernel":
        load = tensor.load
        tensor = Tensor(tensor.shape[::-1], lambda: load().T)
    return f"{module}.{_WEIGHT_NAMES.get(kind, kind)}", tensor
