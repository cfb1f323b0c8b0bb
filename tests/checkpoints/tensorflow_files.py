"""Files like those of the TensorFlow classes of transformers 4, made from saved folders."""

import re

import h5py
import numpy as np
from safetensors import numpy as safetensors


def to_tensorflow(name, array):
    """Return the name and the layout of a weight in a TensorFlow class."""
    layers = (("cls.predictions.", "mlm___cls.predictions."), ("cls.seq_", "nsp___cls.seq_"))
    for old, new in layers:
        name = name.replace(old, new)
    name = re.sub(r"layer\.(\d+)", r"layer_._\1", name)
    name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
        "LayerNorm.bias", "LayerNorm.beta"
    )
    if re.search(r"(position|token_type)_embeddings\.weight$", name):
        name = name.replace(".weight", ".embeddings")
    elif name.endswith(".weight") and "word_embeddings" not in name:
        name, array = name.removesuffix("weight") + "kernel", array.T
    name = name.replace("layer_._", "layer_#_").replace(".", "/").replace("layer_#_", "layer_._")
    return f"{name}:0", array


def write_safetensors(folder):
    """Replace model.safetensors by the one of a TensorFlow class."""
    tensors = dict(to_tensorflow(*pair) for pair in _tensors(folder).items())
    contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    safetensors.save_file(contiguous, folder / "model.safetensors", metadata={"format": "tf"})


def write_hdf5(folder):
    """Replace model.safetensors by the file tf_model.h5, in which tied weights are repeated."""
    tensors = _tensors(folder)
    (folder / "model.safetensors").unlink()
    with h5py.File(folder / "tf_model.h5", "w") as file:
        for name, array in (to_tensorflow(*pair) for pair in tensors.items()):
            layer = name.partition("/")[0]
            file.create_dataset(f"{layer}/tf_bert_model_1/{name}", data=array)
            if "/embeddings/" in name and any("mlm___" in path for path in file):
                file.create_dataset(f"mlm___cls/tf_bert_model_1/{name}", data=array)
        file.attrs["layer_names"] = list(file)  # h5py 3 writes strings of any length
        for layer in file.values():
            layer.attrs["weight_names"] = [name for name, _ in layer["tf_bert_model_1"].items()]


def save(prefix, **tensors):
    """Write a checkpoint of TensorFlow 1, and return the path of its only data file."""
    import tensorflow as tf

    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    return prefix.with_name(f"{prefix.name}.data-00000-of-00001")


def _tensors(folder):
    tensors = safetensors.load_file(folder / "model.safetensors")
    is_encoder = all(not name.startswith("bert.") for name in tensors)
    # The heads come first, so that `write_hdf5` knows them.
    named = {f"bert.{name}" if is_encoder else name: array for name, array in tensors.items()}
    return dict(sorted(named.items(), reverse=True))
