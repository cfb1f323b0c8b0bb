"""Merge a LoRA adapter of PEFT into the weights of its base model.

Source: huggingface/peft, utils/save_and_load.py (names), tuners/lora/config.py and layer.py
(scales).
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_bert.checkpoints import canonical, folder, json_schema, tensor_files
from keras_bert.checkpoints.tensor_files import Tensor
from keras_bert.runtime import budget
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.words import words
from keras_bert.untrusted.errors import invalid

FILE = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_SCHEMA = {
    "peft_type": "LORA",
    "bias": "none",
    "use_dora": False,
    "use_qalora": False,
    "lora_bias": False,
    "fan_in_fan_out": False,
    "layer_replication": [],
    "target_parameters": [],
    "megatron_config": {},
    "trainable_token_indices": {},
    "alora_invocation_tokens": [],
    "use_bdlora": {},
    "arrow_config": {},
    "kasa_config": {},
    "monteclora_config": {},
    # Others, such as "pissa" and "loftq", also change the base model.
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
}
# Keys that are read, or that only matter for the training.
_OTHER_KEYS = words("""
    alpha_pattern auto_mapping base_model_name_or_path corda_config ensure_weight_tying eva_config
    exclude_modules inference_mode layers_pattern layers_to_transform loftq_config lora_alpha
    lora_dropout lora_ga_config megatron_core modules_to_save peft_version qalora_group_size r
    rank_pattern revision runtime_config target_modules task_type unsloth_fixed use_rslora
    velora_config
""")
_ADVICE = "Merge the adapter with PEFT's merge_and_unload, and save that model"
# Types that add tokens, layers or a choice between adapters.
_NOT_MERGED = re.compile("PROMPT|P_TUNING|PREFIX|CPT|POLY|XLORA|CARTRIDGE|SHADOW")
_NAME = re.compile(r"(?:base_model\.model\.)?(.+?)(?:\.(lora_[AB])(?:\.default)?)?\.(weight|bias)")
# `task_type` -> the class of the adapted model.
_CLASSES = {
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    "QUESTION_ANS": "ForQuestionAnswering",
    "FEATURE_EXTRACTION": "Model",
}


class Adapter(NamedTuple):
    """Tensors that change those of the base model, by the names of the base model.

    `added` has what is added to a tensor, and `replaced` has the tensors that replace others.
    `config` is the content of the file.
    """

    folder: Path
    config: dict[str, Any]
    added: dict[str, Tensor]
    replaced: dict[str, Tensor]


def read(path: Path) -> Adapter | None:
    """Return the adapter of a folder, or `None` for a folder without an adapter."""
    file = path / FILE
    if not folder.has_file(file):
        return None
    config = folder.read_json(file)
    kind = config.get("peft_type")
    if kind is None:
        advice = "Use one of the library adapters with that library"
        raise invalid(file, "must be of an adapter of PEFT", list(config), advice)
    is_merged = _NOT_MERGED.search(str(kind)) is None
    advice = _ADVICE if is_merged else "It cannot be merged; use it with PEFT"
    json_schema.check(file, config, _SCHEMA, advice=advice)
    used = [key for key, value in config.items() if value not in (None, False, [], {}, 0)]
    unknown = sorted(set(used).difference(_SCHEMA, _OTHER_KEYS))
    if unknown:
        raise invalid(file, "must have keys of a LoRA adapter", unknown[0], advice)
    weights_file = next((path / name for name in WEIGHTS if (path / name).is_file()), None)
    if weights_file is None:
        raise ValueError(f"{file}: must be beside {' or '.join(WEIGHTS)}, which is missing")
    rule = "must have the tensors of a LoRA adapter, each of them once"
    factors: dict[str, dict[str, Tensor]] = {}
    replaced: dict[str, Tensor] = {}
    for name, tensor in tensor_files.read(weights_file).items():
        if ".lora_embedding_" in name:
            module = name.partition(".lora_embedding_")[0]
            raise invalid(file, "target_modules must be dense layers", module, _ADVICE)
        match = _NAME.fullmatch(name)
        if match is None or "lora_" in match[1]:
            raise invalid(weights_file, rule, name, _ADVICE)
        module, factor, kind = match.groups()
        if factor is None:
            module = module.replace(".modules_to_save.default", "").replace(".modules_to_save", "")
            part = f"{module}.{kind}"
            parts = replaced
        else:
            part = factor
            parts = factors.setdefault(module, {})
        if part in parts:
            raise invalid(weights_file, rule, name, _ADVICE)
        parts[part] = tensor
    for module in factors:
        if f"{module}.weight" in replaced:
            raise invalid(weights_file, rule, f"{module}.weight and its LoRA matrices", _ADVICE)
    added = {
        f"{module}.weight": _product(weights_file, module, pair, config)
        for module, pair in factors.items()
    }
    return Adapter(path, config, added, replaced)


def _product(
    file: Path, module: str, factors: Mapping[str, Tensor], config: Mapping[str, Any]
) -> Tensor:
    """Return what LoRA adds to the weight of a module: scale * B A."""
    shapes = [factors[name].shape if name in factors else () for name in ("lora_A", "lora_B")]
    if [len(shape) for shape in shapes] != [2, 2] or shapes[0][0] != shapes[1][1]:
        raise invalid(file, "must have the matrices lora_A and lora_B", {module: shapes}, _ADVICE)
    rank = shapes[0][0]
    if rank < 1:
        raise invalid(file, "the rank of a matrix must be at least 1", {module: shapes}, _ADVICE)
    config_file = file.with_name(FILE)
    alpha = _alpha(config_file, config, module)
    if type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise invalid(config_file, "lora_alpha must be a number", alpha)
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)

    def load() -> np.ndarray:
        down = factors["lora_A"].load().astype(np.float32)
        up = factors["lora_B"].load().astype(np.float32)
        return np.float32(scale) * (up @ down)

    return Tensor((shapes[1][0], shapes[0][1]), load)


def _alpha(file: Path, config: Mapping[str, Any], module: str) -> Any:
    """Return alpha of a module: that of the first pattern that its name ends in."""
    patterns = config.get("alpha_pattern") or {}
    if not isinstance(patterns, dict):
        raise invalid(file, "alpha_pattern must be an object", patterns, _ADVICE)
    budget.check(len(patterns), "patterns", budget.MAX_LAYERS, file)
    for pattern, alpha in patterns.items():
        if re.fullmatch(r"[\w.]+", pattern) is None:
            raise invalid(file, "alpha_pattern must have names of modules", pattern, _ADVICE)
        if f".{module}".endswith(f".{pattern}"):
            return alpha
    return config.get("lora_alpha")


def with_task(
    adapter: Adapter | None, config: Mapping[str, Any], class_name: str
) -> dict[str, Any]:
    """Return the config of a base model with the class that its adapter states.

    `class_name` is the beginning of the classes of the base model, such as "Bert".
    """
    task_type = None if adapter is None else adapter.config.get("task_type")
    ending = _CLASSES.get(str(task_type))
    if ending is None:
        return dict(config)
    return {**config, "architectures": [f"{class_name}{ending}"]}


def task_type(class_name: str) -> str:
    """Return the `task_type` of a class of BERT in transformers."""
    for name, ending in _CLASSES.items():
        if class_name == f"Bert{ending}":
            return name
    raise ValueError(f"PEFT has no type of task for {class_name}. {canonical.USE_KERAS}")


def merge(tensors: Mapping[str, Tensor], adapter: Adapter) -> dict[str, Tensor]:
    """Return the tensors of the adapted model. All names are those of the base's tensors."""
    merged = {**tensors, **adapter.replaced}
    for name, product in adapter.added.items():
        base = tensors.get(name)
        if base is None or base.shape != product.shape:
            shape = None if base is None else base.shape
            rule = f"the base must have {shown(name)} with the shape {product.shape}"
            raise invalid(adapter.folder / FILE, rule, shape, "Correct base_model_name_or_path")
        merged[name] = _sum(base, product)
    return merged


def _sum(base: Tensor, product: Tensor) -> Tensor:
    return Tensor(base.shape, lambda: base.load().astype(np.float32) + product.load())
