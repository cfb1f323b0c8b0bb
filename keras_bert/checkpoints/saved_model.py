"""SavedModels of BERT encoders from TF-Hub and Kaggle. They are read, never executed.

Source: tensorflow/models official/nlp/tools/export_tfhub_lib.py (the exporter),
tensorflow/core/protobuf/saved_model.proto.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import bundle, canonical, folder, model_garden
from keras_bert.checkpoints.bundle import Bundle
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.runtime import reading
from keras_bert.runtime.escaping import shown
from keras_bert.untrusted import protobuf

_MAX_BYTES = 2**29  # of the graph, and of the metadata
FORMAT = "saved_model"
FILES = "saved_model.pb with variables/variables.index and its .data files"

# The Model Garden exported these files, so its name table applies.
TABLE = model_garden.TABLE

_LOWERCASE = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"
_LAYER = re.compile(r"encoder/_transformer_layers/(\d{1,9})/.+")
# Paths of the names of ops: of the graph, and of its functions.
_OPS = (
    "meta_graphs.graph_def.node.op",
    "meta_graphs.graph_def.library.function.node_def.op",
)

# Activation -> alternative sets of ops. Tanh alone is not enough: the pooler has it too.
_ACTIVATIONS = {
    "gelu": ({"Erf"}, {"Erfc"}),
    "gelu_new": ({"Tanh", "Pow"},),
    "relu": ({"Relu"},),
}


def matches(path: str | Path) -> bool:
    """Return True if the folder has the files of this format."""
    path = Path(path)
    return (path / "saved_model.pb").is_file() and (path / "variables/variables.index").is_file()


def read_config(path: str | Path) -> dict[str, Any]:
    """Infer the keyword arguments of `BertEncoder` from the shapes of the variables.

    The activation is inferred from the ops of the graph. If that is ambiguous, it is "gelu_new",
    the activation of Google's models. The files do not hold the dropout rates: they are 0.1.
    """
    tensors = _open(Path(path))
    key_of = model_garden.resolve(tensors.prefix, bundle.read_graph(tensors))
    return _infer_config(Path(path), tensors, key_of)


def read(path: str | Path, ignore: Collection[str] = ()) -> Checkpoint:
    """Read a SavedModel of a BERT encoder, with its masked-LM head if it has one.

    Nothing is executed, so reading an untrusted SavedModel is safe. `lowercase` is the value of the
    variable do_lower_case; without it, the casing is inferred from assets/vocab.txt.
    """
    path = Path(path)
    tensors = _open(path)
    key_of = model_garden.resolve(tensors.prefix, bundle.read_graph(tensors))
    config = _infer_config(path, tensors, key_of)
    weights = model_garden.read_weights(tensors, key_of, config, {_LOWERCASE}, ignore)
    vocabulary = folder.read_optional_vocabulary(path / "assets/vocab.txt", config["vocab_size"])
    lowercase = _read_lowercase(tensors)
    if lowercase is None:
        lowercase = folder.is_lowercase(vocabulary)
    return Checkpoint(
        format=FORMAT,
        path=str(path),
        config=config,
        weights=weights,
        vocabulary=vocabulary,
        tokenizer=folder.default_tokenizer(lowercase),
        labels=None,
    )


def _open(path: Path) -> Bundle:
    file = path / "variables/variables.index"
    if not file.is_file():
        raise FileNotFoundError(f"{file}: missing")
    tensors = bundle.read(file.with_suffix(""))
    if not tensors.is_object_based:
        raise ValueError(
            f"{tensors.prefix}: must be the variables of a TensorFlow 2 SavedModel, received those "
            "of TensorFlow 1, which have no object graph"
        )
    return tensors


def _read_lowercase(tensors: Bundle) -> bool | None:
    if _LOWERCASE not in tensors.shapes:
        return None
    found = tensors.load(_LOWERCASE)
    if not isinstance(found, (bool, np.bool_)):
        raise ValueError(
            f"{tensors.prefix}: {_LOWERCASE} must be true or false, received {shown(found)}"
        )
    return bool(found)


def _infer_config(path: Path, tensors: Bundle, key_of: Mapping[str, str]) -> dict[str, Any]:
    layers = {int(match[1]) for match in map(_LAYER.fullmatch, key_of) if match}

    def shape(source: str, *sizes: str) -> tuple[int, ...]:
        found = tensors.shapes.get(key_of.get(source, ""))
        if found is None or len(found) != len(sizes):
            raise ValueError(
                f"{tensors.prefix}: {source} must have the shape ({', '.join(sizes)}), received "
                f"{'nothing' if found is None else found}"
            )
        return found

    vocab, hidden = shape("encoder/_embedding_layer/embeddings", "vocab", "hidden")
    positions, _ = shape(
        "encoder/_position_embedding_layer/_position_embeddings", "positions", "hidden"
    )
    types, _ = shape("encoder/_type_embedding_layer/embeddings", "types", "hidden")
    block = "encoder/_transformer_layers/0"
    _, heads, _ = shape(f"{block}/_attention_layer/_query_dense/kernel", "hidden", "heads", "size")
    _, intermediate = shape(f"{block}/_intermediate_dense/kernel", "hidden", "intermediate")
    if len(layers) != max(layers) + 1:
        raise ValueError(
            f"{tensors.prefix}: must number its layers from 0, received {len(layers)} layers up to "
            f"number {max(layers)}"
        )
    config = {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_hidden_layers": max(layers) + 1,
        "num_attention_heads": heads,
        "intermediate_size": intermediate,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
        "hidden_act": _read_activation(path),
    }
    return canonical.read_config(
        tensors.prefix,
        config,
        activations={name: name for name in _ACTIVATIONS},
    )


def _read_activation(path: Path) -> str:
    from keras_bert.untrusted.tensorflow_messages import SavedModel

    file = path / "saved_model.pb"
    content = reading.read_bytes(file, _MAX_BYTES)
    try:
        # Only the names of the ops are read: a small file could need gigabytes when it is parsed.
        names = protobuf.find(content, SavedModel.DESCRIPTOR, *_OPS)
    except ValueError as error:
        raise ValueError(f"{file}: must be a SavedModel, received {error}") from error
    ops = {name.decode("utf-8", "replace") for name in set().union(*names)}
    if not ops:
        raise ValueError(f"{file}: must be a SavedModel, received one without a graph")
    # Keras stores the arguments of layers in one of these files. The variables do not depend on
    # norm_first.
    metadata = path / "keras_metadata.pb"
    contents = {file: content}
    if metadata.is_file():
        contents[metadata] = reading.read_bytes(metadata, _MAX_BYTES)
    for source, text in contents.items():
        if re.search(rb'"norm_first": ?true', text):
            raise ValueError(f"{source}: norm_first must be false for BERT, received true")
    found = [name for name, sets in _ACTIVATIONS.items() if any(needed <= ops for needed in sets)]
    return found[0] if len(found) == 1 else "gelu_new"
