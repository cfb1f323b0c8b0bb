"""Folders of sentence-transformers: a BERT checkpoint, and the modules that make embeddings of it.

Source: UKPLab/sentence-transformers, `sentence_transformers/base/modules` and
`sentence_transformer/modules`.
"""

import collections
import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import (
    canonical,
    folder,
    huggingface,
    huggingface_heads,
    json_schema,
    peft,
    sentence_bert_config,
    tensor_files,
)
from keras_bert.checkpoints.canonical import Checkpoint, vector_layer_name
from keras_bert.checkpoints.detection import is_adapter
from keras_bert.model_spec import UNIT_LENGTH, HeadSpec, ModelSpec, VectorLayer
from keras_bert.runtime import budget
from keras_bert.runtime.escaping import shown
from keras_bert.untrusted import containers
from keras_bert.untrusted.errors import invalid

FORMAT = "sentence_transformers"

MODULES_FILE = "modules.json"
_CONFIG_FILE = "config_sentence_transformers.json"
_DEFAULT_ACTIVATION = "torch.nn.modules.activation.Tanh"
_PACKAGE = "sentence_transformers"
_TRANSFORMER = "base.modules.transformer.Transformer"
# These names of sparse modules are read by all versions, from 5.0; since 5.4, the first module is
# a Transformer.
_MLM_TRANSFORMER = "sparse_encoder.models.MLMTransformer"
_SPLADE_POOLING = "sparse_encoder.models.SpladePooling"
_SPARSE_MODULES = (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"])
_OLDER_NAMES = {"BERT": "Transformer"}  # before version 0.3, of 2020
_MODULE_OF_LAYER = {"unit_length": "Normalize", "dense": "Dense", "layer_norm": "LayerNorm"}
_SPLADE_OPTIONS = {"pooling_strategy": "max", "activation_function": "relu"}


def read(
    path: Path,
    ignore: Collection[str] = (),
    *,
    find_base: peft.FindBase | None = None,
) -> Checkpoint:
    """Read a folder that `SentenceTransformer.save` wrote."""
    modules = _modules(path)
    names = [name for name, _ in modules]
    if names[:1] not in (["Transformer"], ["MLMTransformer"]):
        advice = "Use it with sentence-transformers"
        raise invalid(path / MODULES_FILE, "the first module must be Transformer", names, advice)
    inner = modules[0][1]
    if is_adapter(inner):
        read_inner = peft.open_folder(inner, ignore, find_base)
    else:
        read_inner = huggingface.open_folder(inner, ignore)

    def read_part(heads: bool) -> Checkpoint:
        checkpoint = read_inner(heads)
        pooling = checkpoint.spec.pooling
        if names[1:2] == ["Pooling"]:
            pooling = huggingface_heads.pooling_of_encoder(modules[1][1] / "config.json")
        spec = dataclasses.replace(checkpoint.spec, pooling=pooling)
        checkpoint = dataclasses.replace(checkpoint, path=str(path), spec=spec)
        return with_modules(checkpoint, path) if heads else checkpoint

    return canonical.with_head_or_problem(read_part)


def with_modules(checkpoint: Checkpoint, path: Path) -> Checkpoint:
    """Return a checkpoint with what the modules after its encoder do. Others are a ValueError."""
    modules = _modules(path)
    names = [name for name, _ in modules]
    sentence_bert_config.check_outputs(modules[0][1])
    if names == ["Transformer"]:
        return _read_cross_encoder(path, checkpoint)
    if names in _SPARSE_MODULES:
        return _read_sparse_encoder(path, checkpoint, modules[1][1] / "config.json")
    if names[:2] != ["Transformer", "Pooling"]:
        rule = "the module after Transformer must be Pooling or SpladePooling"
        raise invalid(path / MODULES_FILE, rule, names)
    spec = checkpoint.spec
    head, weights = _read_embedder(path, modules[1:], spec.encoder["hidden_size"])
    return Checkpoint(
        FORMAT,
        str(path),
        dataclasses.replace(spec, head=head),
        collections.ChainMap(weights, checkpoint.weights),  # type: ignore[arg-type]
    )


def _read_cross_encoder(path: Path, checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint of a folder whose only module is the encoder with its head."""
    config = folder.read_optional_json(path / _CONFIG_FILE)
    prompts = config.get("prompts")
    default = config.get("default_prompt_name")
    if default is not None and isinstance(prompts, dict) and prompts.get(str(default)):
        rule = "default_prompt_name must be null for a cross-encoder"
        raise invalid(path / _CONFIG_FILE, rule, default)
    head = checkpoint.spec.head
    if config.get("activation_fn") is None and head.pairs:
        return checkpoint  # config.json has the activation
    count = huggingface_heads.number_of_logits(checkpoint.weights)
    cross_encoder = huggingface_heads.as_cross_encoder(head, count, config.get("activation_fn"))
    if head.pairs:  # config.json names the task
        cross_encoder = dataclasses.replace(cross_encoder, task=head.task)
    spec = dataclasses.replace(checkpoint.spec, head=cross_encoder)
    return dataclasses.replace(checkpoint, spec=spec)


def _read_sparse_encoder(path: Path, checkpoint: Checkpoint, pooling_file: Path) -> Checkpoint:
    """Return the checkpoint of a folder of a `SparseEncoder`."""
    if "masked_lm" not in checkpoint.groups:
        rule = "a sparse encoder must have the weights of a masked-LM head"
        raise invalid(path, rule, ", ".join(sorted(checkpoint.groups)) or "none")
    pooling = folder.read_json(pooling_file)
    json_schema.check(pooling_file, pooling, _SPLADE_OPTIONS)
    settings = _read_settings(path / _CONFIG_FILE, similarity="dot")
    if settings["similarity"] != "dot":
        rule = "similarity_fn_name of a sparse encoder must be dot"
        raise invalid(path / _CONFIG_FILE, rule, settings["similarity"])
    checkpoint = dataclasses.replace(checkpoint, format=FORMAT)
    return checkpoint.with_head(
        task="sparse_embedding",
        prompts=settings["prompts"],
        default_prompt=settings["default_prompt"],
    )


def write(checkpoint: Checkpoint, path: Path) -> None:
    """Write a folder that sentence-transformers loads: the inverse of `read`."""
    head = checkpoint.spec.head
    if head.pairs:
        huggingface.write(checkpoint, path)
        _write_cross_encoder(head, path)
        return
    if head.task == "sparse_embedding":
        huggingface.write(checkpoint, path)
        _write_sparse_encoder(checkpoint.spec, path)
        return
    embedding = checkpoint.spec.embedding
    if embedding is None or head.task not in (None, "embedding"):
        raise ValueError(
            f"{shown(checkpoint.path)} has no pooling. Save a model of heads.embedder, or an "
            "encoder with a pooling"
        )
    encoder = dataclasses.replace(checkpoint.spec.without_head(), pooling=None)
    huggingface.write(dataclasses.replace(checkpoint, spec=encoder), path)
    write_modules(checkpoint.spec, embedding, checkpoint.weights, path)


def _write_cross_encoder(head: HeadSpec, path: Path) -> None:
    """Write the files of a `CrossEncoder` beside those of transformers."""
    folder.write_json(path / MODULES_FILE, [_module(0, _TRANSFORMER, "")])
    _write_transformer(path, "sequence-classification", "scores")
    config: dict[str, Any] = {
        "model_type": "CrossEncoder",
        "activation_fn": huggingface_heads.activation_of_pairs(head),
        "prompts": {},
        "default_prompt_name": None,
    }
    folder.write_json(path / _CONFIG_FILE, config)


def _write_sparse_encoder(spec: ModelSpec, path: Path) -> None:
    """Write the files of a `SparseEncoder` beside those of transformers."""
    pooling = path / "1_SpladePooling"
    pooling.mkdir()
    width = {"word_embedding_dimension": spec.encoder["vocab_size"]}
    folder.write_json(pooling / "config.json", _SPLADE_OPTIONS | width)
    modules = [_module(0, _MLM_TRANSFORMER, ""), _module(1, _SPLADE_POOLING, pooling.name)]
    folder.write_json(path / MODULES_FILE, modules)
    _write_length(spec, path)
    config: dict[str, Any] = {
        "model_type": "SparseEncoder",
        "prompts": spec.head.prompts,
        "default_prompt_name": spec.head.default_prompt,
        "similarity_fn_name": "dot",
    }
    folder.write_json(path / _CONFIG_FILE, config)


def _module(index: int, kind: str, inner: str) -> dict[str, Any]:
    """Return an entry of modules.json."""
    return {"idx": index, "name": str(index), "path": inner, "type": f"{_PACKAGE}.{kind}"}


def _write_transformer(path: Path, task: str, output: str) -> None:
    """Write the options of the module with the encoder and a head."""
    method = {"method": "forward", "method_output_name": "logits"}
    options = {
        "transformer_task": task,
        "modality_config": {"text": method},
        "module_output_name": output,
    }
    folder.write_json(path / sentence_bert_config.FILE, options)


def _write_length(spec: ModelSpec, path: Path) -> None:
    """Write the options of the module with the encoder, for all versions."""
    length = spec.tokenizer["sequence_length"]
    sentence_bert = {"max_seq_length": length, "do_lower_case": False}
    folder.write_json(path / sentence_bert_config.FILE, sentence_bert)


def write_modules(
    spec: ModelSpec, embedding: HeadSpec, weights: Mapping[str, np.ndarray], path: Path
) -> None:
    """Write the files of sentence-transformers beside those of transformers.

    `weights` has those of the layers of `embedding`, by their canonical names.
    """
    _write_length(spec, path)
    huggingface_heads.write_pooling(path, embedding.pooling, spec.encoder["hidden_size"])
    types = ["Transformer", "Pooling"]
    types += [_MODULE_OF_LAYER[layer.kind] for layer in embedding.layers]
    modules = [
        _module(index, f"models.{kind}", "" if index == 0 else f"{index}_{kind}")
        for index, kind in enumerate(types)
    ]
    for index, layer in enumerate(embedding.layers):
        module_folder = path / str(modules[index + 2]["path"])
        module_folder.mkdir()
        if layer.kind == "dense":
            bias = weights[vector_layer_name(index, "bias")] if layer.use_bias else None
            kernel = weights[vector_layer_name(index, "kernel")]
            _write_dense(module_folder, kernel, bias, layer.activation)
        elif layer.kind == "layer_norm":
            gamma = weights[vector_layer_name(index, "gamma")]
            folder.write_json(module_folder / "config.json", {"dimension": len(gamma)})
            tensors = {"norm.weight": gamma, "norm.bias": weights[vector_layer_name(index, "beta")]}
            tensor_files.write(module_folder / "model.safetensors", tensors)
    folder.write_json(path / MODULES_FILE, modules)
    config = {
        "prompts": embedding.prompts,
        "default_prompt_name": embedding.default_prompt,
        "similarity_fn_name": embedding.similarity,
    }
    folder.write_json(path / _CONFIG_FILE, config)


def _modules(path: Path) -> list[tuple[str, Path]]:
    """Return the class name and the folder of each module."""
    return [(name, path / inner) for name, inner in read_module_paths(path)]


def read_module_paths(path: Path) -> list[tuple[str, str]]:
    """Return the class name of each module, and the path of its folder below `path`."""
    file = path / MODULES_FILE
    listed = folder.read_json_list(file)
    budget.check(len(listed), "modules", budget.MAX_LAYERS, file)
    modules = []
    for module in listed:
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise invalid(file, "a module must have a type", module)
        name = module["type"]
        # A class of another package can have the name of a known one.
        if name.startswith(f"{_PACKAGE}."):
            name = str(name.rpartition(".")[2])
            name = _OLDER_NAMES.get(name, name)
        inner = module.get("path", "")
        if not isinstance(inner, str) or (inner and not containers.is_below(inner)):
            raise invalid(file, "a path must be below the folder", inner)
        modules.append((name, inner))
    paths = [inner for _, inner in modules]
    if len(set(paths)) < len(paths):
        raise invalid(file, "each module must have a folder of its own", paths)
    return modules


def _read_embedder(
    path: Path, modules: list[tuple[str, Path]], hidden_size: int
) -> tuple[HeadSpec, dict[str, np.ndarray]]:
    """Return the head of an embedder, and the weights of its layers by their canonical names."""
    (_, pooling_folder), *others = modules
    pooling = huggingface_heads.read_pooling(pooling_folder / "config.json")
    width = hidden_size * len(pooling)
    layers: list[VectorLayer] = []
    weights: dict[str, np.ndarray] = {}
    for name, module_folder in others:
        if name == "Dropout":  # only for training
            continue
        if name == "Normalize":
            _check_inputs(module_folder / "config.json")
            layer = UNIT_LENGTH
            arrays: dict[str, np.ndarray] = {}
        elif name == "Dense":
            layer, arrays = _read_dense(module_folder, width)
            width = arrays["kernel"].shape[1]
        elif name == "LayerNorm":
            layer, arrays = _read_norm(module_folder, width)
        else:
            known = "Transformer, Pooling, Dense, LayerNorm, Normalize and Dropout"
            raise invalid(path / MODULES_FILE, f"unknown module; known are {known}", name)
        for variable, array in arrays.items():
            weights[vector_layer_name(len(layers), variable)] = array
        layers.append(layer)
    settings = _read_settings(path / _CONFIG_FILE)
    return HeadSpec("embedding", pooling=pooling, layers=tuple(layers), **settings), weights


def _read_settings(file: Path, similarity: str = "cosine") -> dict[str, Any]:
    """Return the prompts and the similarity of an embedder, by default `similarity`."""
    config = folder.read_optional_json(file)
    default = config.get("default_prompt_name")
    advice = "Remove it from the file, and pass truncate_dim or max_terms to encode"
    json_schema.check(file, config, {"truncate_dim": None, "max_active_dims": None}, advice=advice)
    return {
        "prompts": config.get("prompts") or {},
        "default_prompt": None if default is None else str(default),
        "similarity": config.get("similarity_fn_name") or similarity,
    }


def _check_inputs(file: Path) -> None:
    """Raise an error if a module uses other inputs or outputs than `sentence_embedding`."""
    schema = dict.fromkeys(("module_input_name", "module_output_name"), "sentence_embedding")
    json_schema.check(file, folder.read_optional_json(file), schema)


def _read_dense(path: Path, width: int) -> tuple[VectorLayer, dict[str, np.ndarray]]:
    """Read a dense layer for vectors of a width."""
    file = path / "config.json"
    _check_inputs(file)
    config = folder.read_json(file)
    activation = str(config.get("activation_function", _DEFAULT_ACTIVATION))
    keras_activation = huggingface_heads.keras_activation(activation)
    if keras_activation is None:
        known = ", ".join(huggingface_heads.TORCH_ACTIVATIONS)
        raise invalid(file, f"activation_function must be one of {known} of torch.nn", activation)
    json_schema.check(file, config, {"use_residual": False, "bias": json_schema.FLAG})
    units = config.get("out_features")
    shapes: dict[str, tuple[Any, ...]] = {"linear.weight": (units, width)}
    if config.get("bias", True):
        shapes["linear.bias"] = (units,)
    tensors = _read_module_weights(path, shapes)
    arrays = {"kernel": tensors["linear.weight"].T}
    if "linear.bias" in tensors:
        arrays["bias"] = tensors["linear.bias"]
    layer = VectorLayer("dense", arrays["kernel"].shape[1], keras_activation, "bias" in arrays)
    return layer, arrays


def _read_norm(path: Path, width: int) -> tuple[VectorLayer, dict[str, np.ndarray]]:
    """Read a layer normalization of vectors of a width."""
    shapes: dict[str, tuple[Any, ...]] = {"norm.weight": (width,), "norm.bias": (width,)}
    tensors = _read_module_weights(path, shapes)
    arrays = {"gamma": tensors["norm.weight"], "beta": tensors["norm.bias"]}
    return VectorLayer("layer_norm"), arrays


def _read_module_weights(path: Path, shapes: dict[str, tuple[Any, ...]]) -> dict[str, np.ndarray]:
    """Read exactly the tensors with these shapes, as float32."""
    files = [path / name for name in ("model.safetensors", "pytorch_model.bin")]
    file = next((file for file in files if file.is_file()), files[0])
    tensors = tensor_files.read(file)
    actual = {name: tensor.shape for name, tensor in tensors.items()}
    if actual != shapes or any(0 in shape for shape in shapes.values()):
        expected = " and ".join(f"{name} {shape!s:.80}" for name, shape in shapes.items())
        raise invalid(file, f"must hold {expected}", actual)
    arrays = {name: tensor.load().astype(np.float32) for name, tensor in tensors.items()}
    for name, array in arrays.items():
        canonical.check_numbers(file, name, array)
    return arrays


def _write_dense(path: Path, kernel: np.ndarray, bias: np.ndarray | None, activation: str) -> None:
    size, units = kernel.shape
    config = {
        "in_features": size,
        "out_features": units,
        "bias": bias is not None,
        "activation_function": huggingface_heads.torch_activation(activation),
    }
    folder.write_json(path / "config.json", config)
    tensors = {"linear.weight": np.ascontiguousarray(kernel.T)}
    if bias is not None:
        tensors["linear.bias"] = bias
    tensor_files.write(path / "model.safetensors", tensors)
