"""Find out the format of the checkpoint in a folder, from its files."""

import os
from pathlib import Path

from keras_bert.checkpoints import bundle, other_models
from keras_bert.runtime.escaping import printable, shown
from keras_bert.untrusted import links

# Format -> its files, in the words of an error.
FILES = {
    "google": "bert_config.json with bert_model.ckpt.index and its .data files",
    "huggingface": (
        "config.json or bert_config.json with model.safetensors or pytorch_model.bin (or the "
        ".index.json of either), or tf_model.h5"
    ),
    "keras_hub": "config.json with model.weights.h5",
    "sentence_transformers": "modules.json with the folders that it names",
    "model_garden": (
        "bert_config.json or params.yaml with the .index and .data files of a TensorFlow 2 "
        "checkpoint"
    ),
    "saved_model": "saved_model.pb with variables/variables.index and its .data files",
    "peft": "adapter_config.json with adapter_model.safetensors or adapter_model.bin",
}
# Weights of transformers, in order of preference.
HUGGINGFACE_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "tf_model.h5",
)
_MAX_NAMES = 20  # in an error


def detect(path: str | os.PathLike[str], format: str | None = None) -> str:
    """Return the format of the checkpoint in a folder, a key of `checkpoints.FORMATS`.

    `format` chooses one of several.
    """
    path = Path(path)
    if not path.is_dir():
        kind = "a file" if path.exists() else "nothing there"
        raise FileNotFoundError(f"{path}: must be the folder of a checkpoint, received {kind}")
    links.check(path)
    _raise_if_exported(path)
    formats = formats_in(path)
    if format in formats or (format is None and len(formats) == 1):
        return format or formats[0]
    if formats:
        choices = " or ".join(f"format={shown(name)}" for name in formats)
        problem = (
            "has several formats"
            if format is None
            else f"has no files of the format {shown(format)}"
        )
        raise ValueError(f"{path} {problem}. Pass {choices} (--source-format)")
    entries = sorted(path.iterdir())
    inner = [entry.name for entry in entries if _is_folder(entry) and formats_in(entry)]
    if inner:  # such as the output folder of a training program
        folders = printable(", ".join(inner), 200)
        raise ValueError(f"{path} is no checkpoint, but has folders with one: {folders}. Pass one")
    other_models.check_files(path)
    looked_for = "; ".join(f"{name}: {files}" for name, files in FILES.items())
    names = [printable(entry.name) for entry in entries[:_MAX_NAMES]]
    more = ["..."] if len(entries) > _MAX_NAMES else []
    raise ValueError(
        f"{path}: must hold a checkpoint of a known format, received no checkpoint; looked for "
        f"{looked_for}; found {', '.join(names + more) or 'an empty folder'}"
    )


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def formats_in(path: Path) -> list[str]:
    """Return the formats whose files a folder has."""

    def has(name: str) -> bool:
        return (path / name).is_file()

    indexes = list(path.glob("*.index"))
    has_object_graph = bool(indexes) and bundle.holds_graph(path)
    has_modules = has("modules.json")
    # pytorch-pretrained-bert named the config as Google does.
    has_config = has("config.json") or (has("bert_config.json") and not indexes)
    is_format = {
        "google": has("bert_config.json") and bool(indexes) and not has_object_graph,
        "huggingface": has_config and huggingface_weights(path) is not None and not has_modules,
        "keras_hub": has("config.json") and has("model.weights.h5"),
        "sentence_transformers": has_modules,
        "model_garden": has_object_graph,
        "saved_model": has("saved_model.pb") and has("variables/variables.index"),
        "peft": is_adapter(path) and not has_modules,
    }
    return [name for name in FILES if is_format[name]]


def is_adapter(path: Path) -> bool:
    """Return True for a folder with an adapter of PEFT and no weights of its base."""
    return (path / "adapter_config.json").is_file() and huggingface_weights(path) is None


def huggingface_weights(path: Path) -> Path | None:
    """Return the file with the weights in a folder of transformers, or `None`."""
    files = [path / name for name in HUGGINGFACE_WEIGHTS]
    return next((file for file in files if file.is_file()), None)


def _raise_if_exported(path: Path) -> None:
    """Raise ValueError for a folder that `export` wrote, which is no checkpoint."""
    folder = path.absolute()
    is_version = (folder / "saved_model.pb").is_file()
    model = folder.parent if is_version else folder
    files = [folder / "assets/labels.txt", model / "models.config"]
    remedy = None
    if any((f / "preprocess/1/saved_model.pb").is_file() for f in (folder, *folder.parents[:2])):
        remedy = "keras_bert.HubLayer(folder, trusted=True)"
    elif any(file.is_file() for file in files):
        remedy = "keras-bert serve --trusted"
    elif (folder / "keras_bert.json").is_file() and not huggingface_weights(folder):
        remedy = _engine_of_graph(folder)
    if remedy:
        raise ValueError(
            f"{path} is an export, which cannot be loaded. Load the model that was exported, or "
            f"run the export with {remedy}"
        )


def _engine_of_graph(folder: Path) -> str:
    """Return what runs the graph in the folder of an export."""
    if any(folder.glob("litert/*.tflite")):
        return "LiteRT, as its README.md shows"
    if any(folder.glob("onnx/*.onnx")) or any(folder.glob("openvino/*.xml")):
        return "keras_bert.pipeline"
    raise ValueError(
        f"{folder} is an export without its graph, such as onnx/model.onnx. Copy the whole folder, "
        "or export the model again"
    )
