"""Save what LoRA trained, and the head, as an adapter of PEFT.

Source: huggingface/peft, utils/save_and_load.py and tuners/lora/layer.py.
"""

import dataclasses
import pathlib
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import keras
import numpy as np

from keras_bert import checkpoints, keras_private, provenance
from keras_bert.checkpoints import (
    canonical,
    comparison,
    families,
    folder,
    huggingface,
    huggingface_heads,
    name_tables,
    peft,
    peft_adapter,
    tensor_files,
)
from keras_bert.checkpoints.canonical import USE_KERAS, Checkpoint
from keras_bert.hub import model_archives, model_weights, named_source, resolve
from keras_bert.hub.hub_source import PREFIX
from keras_bert.runtime.escaping import shown
from keras_bert.tasks import registry

_MERGED = f"{USE_KERAS}, which holds the merged weights"


def save(model: keras.Model, checkpoint: Checkpoint, path: pathlib.Path) -> list[str]:
    """Write the folder of an adapter, and read it back. Return the options that it lost.

    `checkpoint` is that of the model, whose base is the model that was given to `keras_bert.load`.
    Weights that the adapter does not have must be those of the base.
    """
    source = _source_of(model)
    base_folder = resolve.find(source)
    class_name = huggingface_heads.architecture(checkpoint)
    config = {
        "peft_type": "LORA",
        "task_type": peft_adapter.task_type(class_name),
        "bias": "none",
        "inference_mode": True,
        **_rank_and_alpha(model),
        **_name_of_base(source, base_folder),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were shown when the model was loaded
        base = checkpoints.read(base_folder, needs_head=False)
    weights = model_weights.read_unmerged(model, registry.find(model))
    adapted = _adapted(weights, checkpoint, base)
    factors = _factors(weights, adapted, checkpoint)
    saved = _saved(checkpoint, adapted)
    config["target_modules"] = sorted({module.removeprefix("bert.") for module, _ in factors})
    config["modules_to_save"] = sorted({_top_module(name) for name in saved})
    tensors = {f"{module}.{factor}.weight": array for (module, factor), array in factors.items()}
    prefix = "bert." if class_name == "BertModel" else ""
    tensors = {
        f"base_model.model.{name.removeprefix(prefix)}": array
        for name, array in (tensors | saved).items()
    }
    with checkpoints.new_folder(path) as temporary:
        folder.write_json(temporary / peft_adapter.FILE, config)
        tensor_files.write(temporary / peft_adapter.WEIGHTS[0], tensors)
        huggingface.write_tokenizer(checkpoint.spec, temporary)
        again = checkpoints.read(temporary, find_base=lambda name, revision: base_folder)
        return _lost_options(checkpoint, again, adapted)


def _rank_and_alpha(model: keras.Model) -> dict[str, Any]:
    ranks = keras_private.lora_layers(model).values()
    if len(set(map(tuple, ranks))) != 1:
        raise ValueError(
            f"format='peft' needs LoRA with one rank; {model.name!r} has {shown(sorted(ranks))}. "
            f"Call enable_lora of its encoder before the training. {USE_KERAS}"
        )
    [rank, alpha] = next(iter(ranks))
    return {"r": rank, "lora_alpha": alpha}


def _source_of(model: keras.Model) -> str:
    """Return the name or the path from which a model was loaded."""
    source = provenance.name_of_source(model)
    if source is None:
        raise ValueError(
            f"format='peft' needs the base of {model.name!r}, which keras_bert.load did not load. "
            f"{_MERGED}"
        )
    return source


def _name_of_base(source: str, base_folder: pathlib.Path) -> dict[str, Any]:
    """Return the name and the revision of the base as PEFT reads them."""
    is_local = model_archives.is_local(source)
    is_known = not is_local and named_source.knows(source)
    is_on_hub = is_known or source.startswith(PREFIX)
    config = folder.read_optional_json(base_folder / "config.json")
    is_bert = families.find(config) is families.BERT and (config or is_known)
    is_folder = is_local and pathlib.Path(source).expanduser().is_dir()
    has_adapter = (base_folder / peft_adapter.FILE).exists()
    if has_adapter or not is_bert or not (is_on_hub or is_folder):
        raise ValueError(
            "format='peft' needs a base in the format of transformers with the model_type 'bert'; "
            f"the model was loaded from {shown(source)}. {_MERGED}"
        )
    name, _, revision = source.removeprefix(PREFIX).partition("@")
    if is_known:
        name, revision = named_source.repository_of(source)
    if is_folder:
        name = str(pathlib.Path(source).expanduser())
        revision = ""
    return {"base_model_name_or_path": name, "revision": revision or None}


def _adapted(
    weights: Mapping[str, np.ndarray], checkpoint: Checkpoint, base: Checkpoint
) -> list[str]:
    """Return the names of the kernels with LoRA, which must be those of the base without it.

    A pooler that the base does not have is not among them.
    """
    names = []
    for factor in weights:
        name = factor.replace("/lora_kernel_a", "/kernel")
        if name == factor or name not in checkpoint.weights:
            continue
        has_new_pooler = canonical.group_of(name) == "pooler" and "pooler" not in base.groups
        if has_new_pooler:
            continue
        if name not in base.weights or not np.array_equal(weights[name], base.weights[name]):
            raise ValueError(
                f"format='peft' needs the weights of {shown(base.path)} below LoRA; {name} has "
                f"changed. {_MERGED}"
            )
        names.append(name)
    return names


def _factors(
    weights: Mapping[str, np.ndarray], adapted: Collection[str], checkpoint: Checkpoint
) -> dict[tuple[str, str], np.ndarray]:
    """Return {(module, "lora_A" or "lora_B"): array}. Query, key and value share their lora_A."""
    factors = {}
    for entry in name_tables.expand(huggingface.TABLE, checkpoint.spec.encoder, labels=-1):
        if entry.name not in adapted:
            continue
        stem = entry.name.removesuffix("/kernel")
        down = weights[f"{stem}/lora_kernel_a"]  # (in, rank)
        up = weights[f"{stem}/lora_kernel_b"]  # (rank, out)
        parts = np.split(up, len(entry.sources), axis=1)
        for source, part in zip(entry.sources, parts, strict=True):
            module = source.removesuffix(".weight")
            factors[module, "lora_A"] = down.T
            factors[module, "lora_B"] = part.T
    return factors


def _saved(checkpoint: Checkpoint, adapted: Collection[str]) -> dict[str, np.ndarray]:
    """Return the tensors of the head, and of a pooler that the base does not have."""
    groups = set(canonical.HEADS)
    if "pooler/dense/kernel" not in adapted:
        groups.add("pooler")
    weights = {
        name: array
        for name, array in checkpoint.weights.items()
        if canonical.group_of(name) in groups
    }
    config = checkpoint.spec.encoder
    return name_tables.to_source(huggingface.TABLE, config, weights, format=peft.FORMAT)


def _top_module(name: str) -> str:
    return name.removeprefix("bert.").partition(".")[0]


def _lost_options(checkpoint: Checkpoint, again: Checkpoint, adapted: Collection[str]) -> list[str]:
    """Return the options that the adapter lost, as `comparison.lost_options` does.

    The base may have other heads. Sums with LoRA are not compared, because they can differ in the
    last bit: `_adapted` has compared their parts.
    """
    kept = {name: again.weights[name] for name in checkpoint.weights if name in again.weights}
    summed = {name: kept[name] for name in adapted}
    written = dataclasses.replace(checkpoint, weights={**checkpoint.weights, **summed})
    return comparison.lost_options(peft.FORMAT, written, dataclasses.replace(again, weights=kept))
