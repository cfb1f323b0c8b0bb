"""Folders of sentence-transformers: a BERT checkpoint, and the modules that make embeddings of it.

Source: UKPLab/sentence-transformers, `sentence_transformers/base/modules` and
`sentence_transformer/modules`.
"""

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import folder, huggingface, huggingface_heads, tensor_files
from keras_bert.checkpoints.canonical import Checkpoint, DenseLayer, EmbeddingModules
from keras_bert.runtime.arguments import SIMILARITIES
from keras_bert.runtime.escaping import check_name, printable
from keras_bert.untrusted import containers

FORMAT = "sentence_transformers"
FILES = "modules.json with the folders that it names"

_MODULES_FILE = "modules.json"
_MAX_MODULES = 20
_CONFIG_FILE = "config_sentence_transformers.json"
# Keys of older files, in the order in which the pooled vectors are concatenated.
_OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_MODES = tuple(_OLD_MODES.values())
_DEFAULT_ACTIVATION = "torch.nn.modules.activation.Tanh"
_PACKAGE = "sentence_transformers"
_TYPES = f"{_PACKAGE}.models."


def matches(path: str | Path) -> bool:
    """Return True if the folder has the files of this format."""
    return (Path(path) / _MODULES_FILE).is_file()


def read_config(path: str | Path) -> dict[str, Any]:
    """Read the config of the encoder as keyword arguments of `BertEncoder`."""
    (_, encoder), *_ = _read_modules(Path(path))
    return huggingface.read_config(encoder)


def read(path: str | Path, ignore: Collection[str] = ()) -> Checkpoint:
    """Read a folder that `SentenceTransformer.save` wrote. An unknown module is a `ValueError`."""
    path = Path(path)
    (_, encoder), *modules = _read_modules(path)
    checkpoint = huggingface.read(encoder, ignore)
    tokenizer = dict(checkpoint.tokenizer)
    sentence_bert = folder.read_optional_json(encoder / "sentence_bert_config.json")
    if sentence_bert.get("do_lower_case") is True:
        tokenizer["lowercase"] = True
    if not modules:
        checkpoint = dataclasses.replace(checkpoint, path=str(path), tokenizer=tokenizer)
        return _read_cross_encoder(path, checkpoint)
    embedding = _read_embedding(path, modules, checkpoint.config["hidden_size"])
    is_only_pooling = len(embedding.pooling) == 1 and not any(embedding.layers)
    pooling = embedding.pooling[0] if is_only_pooling else None
    return dataclasses.replace(
        checkpoint,
        format=FORMAT,
        path=str(path),
        tokenizer=tokenizer,
        task="embedding",
        pooling=pooling,
        embedding=embedding,
    )


def _read_cross_encoder(path: Path, checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint of a folder whose only module is the encoder with its head."""
    config = folder.read_optional_json(path / _CONFIG_FILE)
    prompts = config.get("prompts")
    default = config.get("default_prompt_name")
    if default is not None and isinstance(prompts, dict) and prompts.get(str(default)):
        raise ValueError(
            f"{path / _CONFIG_FILE}: default_prompt_name must be null for a cross-encoder; "
            f"received {default!r:.80}"
        )
    if config.get("activation_fn") is None and checkpoint.pairs:
        return checkpoint  # config.json has the activation
    return huggingface_heads.as_cross_encoder(checkpoint, config.get("activation_fn"))


def write(checkpoint: Checkpoint, path: str | Path) -> None:
    """Write a folder that sentence-transformers loads: the inverse of `read`."""
    path = Path(path)
    embedding = checkpoint.embedding
    if embedding is None:
        if checkpoint.pooling is None:
            raise ValueError(
                f"{checkpoint.path!r:.80} has no pooling. Save a model of heads.embedder, or an "
                "encoder with a pooling"
            )
        # `keras_bert.pipeline` also normalizes the vectors of an encoder.
        embedding = EmbeddingModules(pooling=(checkpoint.pooling,), layers=(None,))
    huggingface.write(
        dataclasses.replace(checkpoint, task=None, pooling=None, embedding=None), path
    )
    length = checkpoint.tokenizer["sequence_length"]
    folder.write_json(
        path / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False}
    )
    types = ["Transformer", "Pooling"]
    size = checkpoint.config["hidden_size"]
    # Before version 5.7, sentence-transformers knows only the old keys, which have no order.
    pooling: dict[str, Any] = {"pooling_mode": list(embedding.pooling)}
    if embedding.pooling == tuple(mode for mode in _MODES if mode in embedding.pooling):
        pooling = {key: mode in embedding.pooling for key, mode in _OLD_MODES.items()}
    (path / "1_Pooling").mkdir()
    folder.write_json(path / "1_Pooling/config.json", {"word_embedding_dimension": size, **pooling})
    for layer in embedding.layers:
        name = f"{len(types)}_{'Normalize' if layer is None else 'Dense'}"
        (path / name).mkdir()
        if layer is None:
            types.append("Normalize")
            continue
        types.append("Dense")
        _write_dense(path / name, layer)
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": "" if index == 0 else f"{index}_{type}",
            "type": f"{_TYPES}{type}",
        }
        for index, type in enumerate(types)
    ]
    folder.write_json(path / _MODULES_FILE, modules)
    folder.write_json(
        path / _CONFIG_FILE,
        {
            "prompts": embedding.prompts,
            "default_prompt_name": embedding.default_prompt,
            "similarity_fn_name": embedding.similarity,
        },
    )


def _read_modules(path: Path) -> list[tuple[str, Path]]:
    """Return the class name and the folder of each module; the first one is the encoder."""
    modules = read_module_paths(path)
    names = [name for name, _ in modules]
    if names != ["Transformer"] and names[:2] != ["Transformer", "Pooling"]:
        raise ValueError(
            f"{path / _MODULES_FILE}: the modules must begin with Transformer, Pooling, or be one "
            f"Transformer, a cross-encoder; found {printable(', '.join(names), 200) or 'none'}"
        )
    return [(name, path / place) for name, place in modules]


def read_module_paths(path: Path) -> list[tuple[str, str]]:
    """Return the class name of each module, and the path of its folder below `path`."""
    file = path / _MODULES_FILE
    listed = folder.read_json_list(file)
    if len(listed) > _MAX_MODULES:
        raise ValueError(
            f"{file}: must list at most {_MAX_MODULES} modules, received {len(listed)}"
        )
    modules = []
    for module in listed:
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise ValueError(f"{file}: a module must have a type; received {module!r:.80}")
        name, place = module["type"], module.get("path", "")
        # A class of another package can have the name of a known one.
        if name.startswith(f"{_PACKAGE}."):
            name = name.rpartition(".")[2]
        if not isinstance(place, str) or (place and not containers.is_below(place)):
            raise ValueError(f"{file}: a path must be below the folder; received {place!r:.80}")
        modules.append((name, place))
    return modules


def _read_embedding(
    path: Path, modules: list[tuple[str, Path]], hidden_size: int
) -> EmbeddingModules:
    (_, pooling_folder), *others = modules
    pooling = _read_pooling(pooling_folder / "config.json")
    width = hidden_size * len(pooling)
    layers: list[DenseLayer | None] = []
    for name, place in others:
        if name == "Normalize":
            _check_inputs(place / "config.json")
            layers.append(None)
        elif name == "Dense":
            layer = _read_dense(place, width)
            width = layer.kernel.shape[1]
            layers.append(layer)
        elif name != "Dropout":  # only for training
            raise ValueError(
                f"{path / _MODULES_FILE}: unknown module {name!r:.80}; known are Transformer, "
                "Pooling, Dense, Normalize and Dropout"
            )
    config = folder.read_optional_json(path / _CONFIG_FILE)
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise ValueError(
            f"{path / _CONFIG_FILE}: prompts must be strings; received {prompts!r:.80}"
        )
    for name in prompts:
        check_name(name, f"{path / _CONFIG_FILE}: the name of a prompt")
    similarity = config.get("similarity_fn_name") or "cosine"
    if similarity not in SIMILARITIES:
        raise ValueError(
            f"{path / _CONFIG_FILE}: similarity_fn_name must be one of "
            f"{', '.join(SIMILARITIES)}; received {similarity!r:.80}"
        )
    default = config.get("default_prompt_name")
    if default is not None and not (isinstance(default, str) and default in prompts):
        raise ValueError(
            f"{path / _CONFIG_FILE}: default_prompt_name must be one of the prompts; received "
            f"{default!r:.80}"
        )
    if (size := config.get("truncate_dim")) is not None:
        raise ValueError(
            f"{path / _CONFIG_FILE}: truncate_dim must be null; received {size!r:.80}. Remove it "
            "from the file, and pass truncate_dim to encode"
        )
    return EmbeddingModules(
        pooling=pooling,
        layers=tuple(layers),
        prompts=prompts,
        default_prompt=default,
        similarity=similarity,
    )


def _read_pooling(file: Path) -> tuple[str, ...]:
    if not file.is_file():
        raise FileNotFoundError(f"{file}: missing; {_MODULES_FILE} names its folder")
    config = folder.read_json(file)
    if config.get("include_prompt") is False:
        raise ValueError(f"{file}: include_prompt must be true; received false")
    modes = config.get("pooling_mode")
    if modes is None:
        given = {mode: config[key] for key, mode in _OLD_MODES.items() if key in config}
        if not all(isinstance(value, bool) for value in given.values()):
            raise ValueError(f"{file}: the modes must be true or false; received {given!s:.200}")
        modes = [mode for mode, chosen in given.items() if chosen] if given else ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or not modes or not set(map(str, modes)) <= set(_MODES):
        raise ValueError(
            f"{file}: the pooling must be of {', '.join(_MODES)}; received {modes or config!r:.80}"
        )
    if len(set(modes)) < len(modes):
        raise ValueError(f"{file}: each pooling must occur once; received {modes!r:.80}")
    return tuple(modes)


def _check_inputs(file: Path) -> None:
    """Raise an error if a module uses other inputs or outputs than `sentence_embedding`."""
    config = folder.read_optional_json(file)
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise ValueError(
                f"{file}: {key} must be sentence_embedding; received {config[key]!r:.80}"
            )


def _read_dense(path: Path, width: int) -> DenseLayer:
    """Read a dense layer for vectors of a width."""
    file = path / "config.json"
    _check_inputs(file)
    config = folder.read_json(file)
    activation = str(config.get("activation_function", _DEFAULT_ACTIVATION))
    keras_activation = huggingface_heads.keras_activation(activation)
    if keras_activation is None:
        known = ", ".join(huggingface_heads.TORCH_ACTIVATIONS)
        raise ValueError(
            f"{file}: activation_function must be one of {known} of torch.nn; "
            f"received {activation!r:.80}"
        )
    if config.get("use_residual"):
        raise ValueError(f"{file}: use_residual must be false; received true")
    weights = next(
        (f for f in (path / "model.safetensors", path / "pytorch_model.bin") if f.is_file()), None
    )
    if weights is None:
        raise FileNotFoundError(
            f"{path}: no weights, looked for model.safetensors, pytorch_model.bin"
        )
    tensors = {key: tensor.load() for key, tensor in tensor_files.read(weights).items()}
    kernel, bias = tensors.get("linear.weight"), tensors.get("linear.bias")
    sizes = config.get("out_features"), config.get("in_features")
    if sizes[1] != width:
        raise ValueError(
            f"{file}: in_features must be {width}, the width of the vectors before the layer; "
            f"received {sizes[1]!r:.80}"
        )
    has_bias = config.get("bias", True)
    if (
        kernel is None
        or kernel.shape != sizes
        or 0 in kernel.shape
        or (None if bias is None else bias.shape) != (sizes[:1] if has_bias else None)
    ):
        shapes = {key: tensor.shape for key, tensor in tensors.items()}
        raise ValueError(
            f"{weights}: must hold linear.weight {sizes!s:.80}"
            f"{' and linear.bias' * bool(has_bias)}; found {shapes!s:.200}"
        )
    if not all(np.isfinite(tensor).all() for tensor in (kernel, bias) if tensor is not None):
        raise ValueError(f"{weights}: must hold finite numbers, received NaN or infinity")
    return DenseLayer(
        kernel=np.asarray(kernel, np.float32).T,
        bias=None if bias is None else np.asarray(bias, np.float32),
        activation=keras_activation,
    )


def _write_dense(path: Path, layer: DenseLayer) -> None:
    known = huggingface_heads.TORCH_ACTIVATIONS.values()
    if layer.activation not in known:
        raise ValueError(
            f"{FORMAT}: the activation of a dense layer must be one of {', '.join(known)}; "
            f"received {layer.activation!r:.80}"
        )
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
