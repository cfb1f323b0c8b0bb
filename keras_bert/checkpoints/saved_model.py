"""SavedModels of BERT encoders, as TF-Hub and Kaggle hold them; read, never executed.

Source: tensorflow/models official/nlp/tools/export_tfhub_lib.py, which wrote them; the SavedModel
format, tensorflow/core/protobuf/saved_model.proto.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import bundle, canonical, folder, model_garden
from keras_bert.checkpoints.bundle import Bundle
from keras_bert.checkpoints.canonical import Checkpoint

FORMAT = "saved_model"
FILES = "saved_model.pb with variables/variables.index and its .data files"

# The variables are the Model Garden's, whose code made the files.
TABLE = model_garden.TABLE

_LOWERCASE = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"
_LAYER = re.compile(r"encoder/_transformer_layers/(\d+)/.+")
# Activation -> the ops that make it, by version. A pooler has Tanh as well, so it takes two.
_ACTIVATIONS = {
    "gelu": ({"Erf"}, {"Erfc"}),
    "gelu_new": ({"Tanh", "Pow"},),
    "relu": ({"Relu"},),
}


def matches(path: str | Path) -> bool:
    """Whether the folder looks like this format; nothing is read."""
    path = Path(path)
    return (path / "saved_model.pb").is_file() and (path / "variables/variables.index").is_file()


def read_config(path: str | Path) -> dict[str, Any]:
    """Tells the keyword arguments of `BertEncoder` from the shapes of the variables.

    The activation is the one whose ops the graph holds; "gelu_new", Google's, where it holds those
    of none or of more than one. Nothing in the files tells the rates of dropout: they are 0.1.

    Args:
        path: The folder.

    Returns:
        Exactly the keys of `canonical.CONFIG_KEYS`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is broken, or the variables are not those of a BERT encoder.
    """
    tensors = _open(Path(path))
    key_of = model_garden.resolve(tensors.prefix, bundle.read_graph(tensors))
    return _infer_config(Path(path), tensors, key_of)


def read(path: str | Path) -> Checkpoint:
    """Reads the folder of a SavedModel, with the head for masked words where it has one.

    Its variables are read from their files and its graph is looked at for the activation; nothing
    of it runs, so that a SavedModel from anywhere is as safe as an array.

    Args:
        path: The folder: saved_model.pb, variables/, and assets/vocab.txt, which may be missing.

    Returns:
        The `Checkpoint`; `lowercase` is the variable do_lower_case, or, where there is none, what
        the vocabulary tells.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is broken, or holds something else than a BERT encoder.
    """
    path = Path(path)
    tensors = _open(path)
    key_of = model_garden.resolve(tensors.prefix, bundle.read_graph(tensors))
    config = _infer_config(path, tensors, key_of)
    weights = model_garden.read_weights(tensors, key_of, config, ignored={_LOWERCASE})
    vocabulary = None
    vocabulary_file = path / "assets/vocab.txt"
    if vocabulary_file.is_file():
        vocabulary = folder.read_vocabulary(vocabulary_file)
        folder.check_vocabulary_size(vocabulary_file, vocabulary, config["vocab_size"])
    lowercase = _read_lowercase(tensors)
    if lowercase is None:
        lowercase = vocabulary is None or not folder.is_cased(vocabulary)
    return Checkpoint(
        format=FORMAT,
        path=str(path),
        config=config,
        weights=weights,
        vocabulary=vocabulary,
        tokenizer={
            "lowercase": lowercase,
            "strip_accents": lowercase,
            "split_cjk": True,
            "sequence_length": None,
        },
        labels=None,
    )


def _open(path: Path) -> Bundle:
    file = path / "variables/variables.index"
    if not file.is_file():
        raise FileNotFoundError(f"{file}: missing")
    tensors = bundle.read(file.with_suffix(""))
    if not tensors.is_by_object:
        raise ValueError(
            f"{tensors.prefix}: must be the variables of a TensorFlow 2 SavedModel, received those "
            "of TensorFlow 1, which have no graph of objects"
        )
    return tensors


def _read_lowercase(tensors: Bundle) -> bool | None:
    if _LOWERCASE not in tensors.shapes:
        return None
    found = tensors.load(_LOWERCASE)
    if not isinstance(found, (bool, np.bool_)):
        raise ValueError(f"{tensors.prefix}: {_LOWERCASE} must be true or false, received {found}")
    return bool(found)


def _infer_config(path: Path, tensors: Bundle, key_of: Mapping[str, str]) -> dict[str, Any]:
    layers = {int(match[1]) for match in map(_LAYER.fullmatch, key_of) if match}

    def shape(source: str, *sizes: str) -> tuple[int, ...]:
        found = tensors.shapes.get(key_of.get(source, ""))
        if found is None or len(found) != len(sizes):
            raise ValueError(
                f"{tensors.prefix}: {source} must be ({', '.join(sizes)}) to tell the sizes of the "
                f"model, received {'nothing' if found is None else found}"
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
        dropped=(),
        required_values={},
    )


def _read_activation(path: Path) -> str:
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    file = path / "saved_model.pb"
    content = file.read_bytes()
    try:
        model = saved_model_pb2.SavedModel.FromString(content)
    except DecodeError as error:
        raise ValueError(
            f"{file}: must be a SavedModel, received {' '.join(str(error).split())}"
        ) from error
    if not model.meta_graphs:
        raise ValueError(f"{file}: must be a SavedModel, received one without a graph")
    # Keras notes its layers' arguments there, or in a file beside it. The variables are the same
    # whether layers are normalized before or after.
    notes = path / "keras_metadata.pb"
    for place, text in ((file, content), (notes, notes.read_bytes() if notes.is_file() else b"")):
        if re.search(rb'"norm_first": ?true', text):
            raise ValueError(f"{place}: norm_first must be false for BERT, received true")
    ops = {
        node.op
        for graph in model.meta_graphs
        for nodes in (
            graph.graph_def.node,
            *(function.node_def for function in graph.graph_def.library.function),
        )
        for node in nodes
    }
    found = [name for name, ways in _ACTIVATIONS.items() if any(way <= ops for way in ways)]
    return found[0] if len(found) == 1 else "gelu_new"
