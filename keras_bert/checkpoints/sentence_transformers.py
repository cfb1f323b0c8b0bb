"""Folders of sentence-transformers: a BERT checkpoint, and the modules that make embeddings of it.

Source: UKPLab/sentence-transformers, `sentence_transformers/base/modules` and
`sentence_transformer/modules`.
"""

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import canonical, folder, huggingface, huggingface_heads, tensor_files
from keras_bert.checkpoints.canonical import Checkpoint, DenseLayer, EmbeddingModules, NormLayer
from keras_bert.runtime.escaping import shown
from keras_bert.untrusted import containers
from keras_bert.untrusted.errors import invalid

FORMAT = "sentence_transformers"
FILES = "modules.json with the folders that it names"

_MODULES_FILE = "modules.json"
_MAX_MODULES = 20
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
_MODULE_OF_LAYER: dict[type, str] = {
    type(None): "Normalize",
    DenseLayer: "Dense",
    NormLayer: "LayerNorm",
}
_SPLADE_OPTIONS = {"pooling_strategy": "max", "activation_function": "relu"}


def matches(path: Path) -> bool:
    """Return True if the folder has the files of this format."""
    return (path / _MODULES_FILE).is_file()


def read(path: Path, ignore: Collection[str] = ()) -> Checkpoint:
    """Read a folder that `SentenceTransformer.save` wrote. An unknown module is a `ValueError`."""
    modules = [(name, path / inner) for name, inner in read_module_paths(path)]
    names = [name for name, _ in modules]
    is_sparse = names in _SPARSE_MODULES
    if not is_sparse and names != ["Transformer"] and names[:2] != ["Transformer", "Pooling"]:
        rule = (
            "the modules must begin with Transformer, Pooling, or be one Transformer, or be "
            "Transformer, SpladePooling"
        )
        raise invalid(path / _MODULES_FILE, rule, names)
    encoder = modules[0][1]
    checkpoint = huggingface.read(encoder, ignore)
    tokenizer = dict(checkpoint.tokenizer)
    sentence_bert = folder.read_optional_json(encoder / "sentence_bert_config.json")
    if sentence_bert.get("do_lower_case") is True:
        tokenizer["lowercase"] = True
    checkpoint = dataclasses.replace(checkpoint, path=str(path), tokenizer=tokenizer)
    if len(modules) == 1:
        return _read_cross_encoder(path, checkpoint)
    if is_sparse:
        return _read_sparse_encoder(path, checkpoint, modules[1][1] / "config.json")
    embedding = _read_embedding(path, modules[1:], checkpoint.config["hidden_size"])
    is_only_pooling = len(embedding.pooling) == 1 and not any(embedding.layers)
    pooling = embedding.pooling[0] if is_only_pooling else None
    return dataclasses.replace(
        checkpoint, format=FORMAT, task="embedding", pooling=pooling, embedding=embedding
    )


def _read_cross_encoder(path: Path, checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint of a folder whose only module is the encoder with its head."""
    config = folder.read_optional_json(path / _CONFIG_FILE)
    prompts = config.get("prompts")
    default = config.get("default_prompt_name")
    if default is not None and isinstance(prompts, dict) and prompts.get(str(default)):
        rule = "default_prompt_name must be null for a cross-encoder"
        raise invalid(path / _CONFIG_FILE, rule, default)
    if config.get("activation_fn") is None and checkpoint.pairs:
        return checkpoint  # config.json has the activation
    cross_encoder = huggingface_heads.as_cross_encoder(checkpoint, config.get("activation_fn"))
    if checkpoint.pairs:  # config.json names the task
        return dataclasses.replace(cross_encoder, task=checkpoint.task)
    return cross_encoder


def _read_sparse_encoder(path: Path, checkpoint: Checkpoint, pooling_file: Path) -> Checkpoint:
    """Return the checkpoint of a folder of a `SparseEncoder`."""
    if "masked_lm" not in checkpoint.groups:
        rule = "a sparse encoder must have the weights of a masked-LM head"
        raise invalid(path, rule, ", ".join(sorted(checkpoint.groups)) or "none")
    pooling = folder.read_json(pooling_file)
    for key, value in _SPLADE_OPTIONS.items():
        if pooling.get(key) not in (None, value):
            raise invalid(pooling_file, f"{key} must be {value}", pooling[key])
    settings = _read_settings(path / _CONFIG_FILE, similarity="dot")
    if settings["similarity"] != "dot":
        rule = "similarity_fn_name of a sparse encoder must be dot"
        raise invalid(path / _CONFIG_FILE, rule, settings["similarity"])
    return dataclasses.replace(
        checkpoint,
        format=FORMAT,
        task="sparse_embedding",
        prompts=settings["prompts"],
        default_prompt=settings["default_prompt"],
    )


def write(checkpoint: Checkpoint, path: Path) -> None:
    """Write a folder that sentence-transformers loads: the inverse of `read`."""
    if checkpoint.pairs:
        huggingface.write(checkpoint, path)
        _write_cross_encoder(checkpoint, path)
        return
    if checkpoint.task == "sparse_embedding":
        huggingface.write(checkpoint, path)
        _write_sparse_encoder(checkpoint, path)
        return
    embedding = checkpoint.modules
    if embedding is None:
        raise ValueError(
            f"{shown(checkpoint.path)} has no pooling. Save a model of heads.embedder, or an "
            "encoder with a pooling"
        )
    encoder = dataclasses.replace(checkpoint, task=None, pooling=None, embedding=None)
    huggingface.write(encoder, path)
    write_modules(checkpoint, embedding, path)


def _write_cross_encoder(checkpoint: Checkpoint, path: Path) -> None:
    """Write the files of a `CrossEncoder` beside those of transformers."""
    folder.write_json(path / _MODULES_FILE, [_module(0, _TRANSFORMER, "")])
    _write_transformer(path, "sequence-classification", "scores")
    config: dict[str, Any] = {
        "model_type": "CrossEncoder",
        "activation_fn": huggingface_heads.activation_of_pairs(checkpoint),
        "prompts": {},
        "default_prompt_name": None,
    }
    folder.write_json(path / _CONFIG_FILE, config)


def _write_sparse_encoder(checkpoint: Checkpoint, path: Path) -> None:
    """Write the files of a `SparseEncoder` beside those of transformers."""
    pooling = path / "1_SpladePooling"
    pooling.mkdir()
    width = {"word_embedding_dimension": checkpoint.config["vocab_size"]}
    folder.write_json(pooling / "config.json", _SPLADE_OPTIONS | width)
    modules = [_module(0, _MLM_TRANSFORMER, ""), _module(1, _SPLADE_POOLING, pooling.name)]
    folder.write_json(path / _MODULES_FILE, modules)
    _write_length(checkpoint, path)
    config: dict[str, Any] = {
        "model_type": "SparseEncoder",
        "prompts": checkpoint.prompts,
        "default_prompt_name": checkpoint.default_prompt,
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
    folder.write_json(path / "sentence_bert_config.json", options)


def _write_length(checkpoint: Checkpoint, path: Path) -> None:
    """Write the options of the module with the encoder, for all versions."""
    length = checkpoint.tokenizer["sequence_length"]
    sentence_bert = {"max_seq_length": length, "do_lower_case": False}
    folder.write_json(path / "sentence_bert_config.json", sentence_bert)


def write_modules(checkpoint: Checkpoint, embedding: EmbeddingModules, path: Path) -> None:
    """Write the files of sentence-transformers beside those of transformers."""
    _write_length(checkpoint, path)
    huggingface_heads.write_pooling(path, embedding.pooling, checkpoint.config["hidden_size"])
    types = ["Transformer", "Pooling"]
    types += [_MODULE_OF_LAYER[type(layer)] for layer in embedding.layers]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": "" if index == 0 else f"{index}_{type_}",
            "type": f"{_PACKAGE}.models.{type_}",
        }
        for index, type_ in enumerate(types)
    ]
    for module, layer in zip(modules[2:], embedding.layers, strict=True):
        module_folder = path / str(module["path"])
        module_folder.mkdir()
        if isinstance(layer, DenseLayer):
            _write_dense(module_folder, layer)
        elif isinstance(layer, NormLayer):
            folder.write_json(module_folder / "config.json", {"dimension": len(layer.gamma)})
            tensors = {"norm.weight": layer.gamma, "norm.bias": layer.beta}
            tensor_files.write(module_folder / "model.safetensors", tensors)
    folder.write_json(path / _MODULES_FILE, modules)
    config = {
        "prompts": embedding.prompts,
        "default_prompt_name": embedding.default_prompt,
        "similarity_fn_name": embedding.similarity,
    }
    folder.write_json(path / _CONFIG_FILE, config)


def read_module_paths(path: Path) -> list[tuple[str, str]]:
    """Return the class name of each module, and the path of its folder below `path`."""
    file = path / _MODULES_FILE
    listed = folder.read_json_list(file)
    if len(listed) > _MAX_MODULES:
        raise invalid(file, f"must list at most {_MAX_MODULES} modules", len(listed))
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
    return modules


def _read_embedding(
    path: Path, modules: list[tuple[str, Path]], hidden_size: int
) -> EmbeddingModules:
    (_, pooling_folder), *others = modules
    pooling = huggingface_heads.read_pooling(pooling_folder / "config.json")
    width = hidden_size * len(pooling)
    layers: list[DenseLayer | NormLayer | None] = []
    for name, module_folder in others:
        if name == "Normalize":
            _check_inputs(module_folder / "config.json")
            layers.append(None)
        elif name == "Dense":
            layer = _read_dense(module_folder, width)
            width = layer.kernel.shape[1]
            layers.append(layer)
        elif name == "LayerNorm":
            layers.append(_read_norm(module_folder, width))
        elif name != "Dropout":  # only for training
            known = "Transformer, Pooling, Dense, LayerNorm, Normalize and Dropout"
            raise invalid(path / _MODULES_FILE, f"unknown module; known are {known}", name)
    return EmbeddingModules(pooling, tuple(layers), **_read_settings(path / _CONFIG_FILE))


def _read_settings(file: Path, similarity: str = "cosine") -> dict[str, Any]:
    """Return the prompts and the similarity of an embedder, by default `similarity`."""
    config = folder.read_optional_json(file)
    default = config.get("default_prompt_name")
    size = config.get("truncate_dim")
    if size is not None:
        advice = "Remove it from the file, and pass truncate_dim to encode"
        raise invalid(file, "truncate_dim must be null", size, advice)
    return {
        "prompts": config.get("prompts") or {},
        "default_prompt": None if default is None else str(default),
        "similarity": config.get("similarity_fn_name") or similarity,
    }


def _check_inputs(file: Path) -> None:
    """Raise an error if a module uses other inputs or outputs than `sentence_embedding`."""
    config = folder.read_optional_json(file)
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise invalid(file, f"{key} must be sentence_embedding", config[key])


def _read_dense(path: Path, width: int) -> DenseLayer:
    """Read a dense layer for vectors of a width."""
    file = path / "config.json"
    _check_inputs(file)
    config = folder.read_json(file)
    activation = str(config.get("activation_function", _DEFAULT_ACTIVATION))
    keras_activation = huggingface_heads.keras_activation(activation)
    if keras_activation is None:
        known = ", ".join(huggingface_heads.TORCH_ACTIVATIONS)
        raise invalid(file, f"activation_function must be one of {known} of torch.nn", activation)
    if config.get("use_residual"):
        raise invalid(file, "use_residual must be false", True)
    units = config.get("out_features")
    shapes: dict[str, tuple[Any, ...]] = {"linear.weight": (units, width)}
    if config.get("bias", True):
        shapes["linear.bias"] = (units,)
    tensors = _read_module_weights(path, shapes)
    return DenseLayer(tensors["linear.weight"].T, tensors.get("linear.bias"), keras_activation)


def _read_norm(path: Path, width: int) -> NormLayer:
    """Read a layer normalization of vectors of a width."""
    shapes: dict[str, tuple[Any, ...]] = {"norm.weight": (width,), "norm.bias": (width,)}
    tensors = _read_module_weights(path, shapes)
    return NormLayer(tensors["norm.weight"], tensors["norm.bias"])


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


def _write_dense(path: Path, layer: DenseLayer) -> None:
    size, units = layer.kernel.shape
    config = {
        "in_features": size,
        "out_features": units,
        "bias": layer.bias is not None,
        "activation_function": huggingface_heads.torch_activation(layer.activation),
    }
    folder.write_json(path / "config.json", config)
    tensors = {"linear.weight": np.ascontiguousarray(layer.kernel.T)}
    if layer.bias is not None:
        tensors["linear.bias"] = layer.bias
    tensor_files.write(path / "model.safetensors", tensors)
