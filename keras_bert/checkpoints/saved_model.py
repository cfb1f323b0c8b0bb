"""SavedModels of BERT encoders from TF-Hub and Kaggle. They are read, never executed.

Source: tensorflow/models official/nlp/tools/export_tfhub_lib.py (the exporter),
tensorflow/core/protobuf/saved_model.proto.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import bundle, canonical, folder, model_garden_graph
from keras_bert.checkpoints.bundle import Bundle
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.model_spec import ModelSpec
from keras_bert.runtime import budget, reading
from keras_bert.untrusted import protobuf
from keras_bert.untrusted.errors import invalid

FORMAT = "saved_model"

# The Model Garden exported these files, so its object graph and its names apply.
TABLE = model_garden_graph.TABLE

_LOWERCASE = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"
_POSITIONS = "encoder/_position_embedding_layer/_position_embeddings"
_LAYER = re.compile(r"encoder/_transformer_layers/(\d{1,9})/.+")
# Paths of the names of ops: of the graph, and of its functions.
_OPS = ("meta_graphs.graph_def.node.op", "meta_graphs.graph_def.library.function.node_def.op")

# Activation -> alternative sets of ops. Tanh alone is not enough: the pooler has it too.
_ACTIVATIONS = {
    "gelu": ({"Erf"}, {"Erfc"}),
    "gelu_new": ({"Tanh", "Pow"},),
    "relu": ({"Relu"},),
}


def read(path: Path, ignore: Collection[str] = ()) -> Checkpoint:
    """Read a SavedModel of a BERT encoder, with its masked-LM head if it has one.

    Nothing is executed, so reading an untrusted SavedModel is safe. `lowercase` is the value of the
    variable do_lower_case; without it, the casing is inferred from assets/vocab.txt.
    """
    tensors = bundle.read(path / "variables/variables")

    def read_part(heads: bool) -> Checkpoint:
        variables = model_garden_graph.find_variables(tensors, heads=heads)
        config = _infer_config(path, tensors, variables.key_of)
        weights = model_garden_graph.read_weights(tensors, variables, config, ignore, heads=heads)
        vocabulary, lowercase = _read_vocabulary(path, tensors, config["vocab_size"])
        spec = ModelSpec(config, vocabulary, folder.default_tokenizer(lowercase))
        return Checkpoint(FORMAT, str(path), spec, weights)

    return canonical.with_head_or_problem(read_part)


def _read_vocabulary(path: Path, tensors: Bundle, vocab_size: int) -> tuple[list[str] | None, bool]:
    """Return the vocabulary, and True if its texts are in lower case."""
    vocabulary = folder.read_optional_vocabulary(path / "assets/vocab.txt", vocab_size)
    if _LOWERCASE in tensors.shapes:
        return vocabulary, bool(tensors.load(_LOWERCASE))
    return vocabulary, folder.is_lowercase(vocabulary)


def _infer_config(path: Path, tensors: Bundle, key_of: Mapping[str, str]) -> dict[str, Any]:
    """Infer the arguments of `BertEncoder` from the shapes of the variables.

    The activation is inferred from the ops of the graph. If they belong to none or to several of
    the known activations, `hidden_act` is `None`, and the user has to say it. The files do not hold
    the dropout rates: they are 0.1.
    """
    layers = {int(match[1]) for match in map(_LAYER.fullmatch, key_of) if match}

    shapes = {source: tensors.shapes[key] for source, key in key_of.items()}
    embeddings = shapes["encoder/_embedding_layer/embeddings"]
    block = "encoder/_transformer_layers/0"
    config = {
        "vocab_size": embeddings[0],
        "hidden_size": embeddings[1],
        "num_hidden_layers": len(layers),
        "num_attention_heads": shapes[f"{block}/_attention_layer/_query_dense/kernel"][1],
        "intermediate_size": shapes[f"{block}/_intermediate_dense/kernel"][1],
        "max_position_embeddings": shapes[_POSITIONS][0],
        "type_vocab_size": shapes["encoder/_type_embedding_layer/embeddings"][0],
    }
    config = canonical.read_config(tensors.prefix, config, {"gelu": "gelu"})
    return {**config, "hidden_act": _read_activation(path)}


def _read_activation(path: Path) -> str | None:
    from keras_bert.untrusted.tensorflow_messages import SavedModel

    file = path / "saved_model.pb"
    content = reading.read_bytes(file, budget.MAX_FILE)
    try:
        # Only the names of the ops are read: a small file could need gigabytes when it is parsed.
        names = protobuf.find(content, SavedModel.DESCRIPTOR, *_OPS)
        ops = {name.decode("utf-8", "replace") for name in set().union(*names)}
        if not ops:
            raise ValueError("a file without a graph")
    except ValueError as error:
        raise invalid(file, "must be a SavedModel", error) from error
    # Keras stores the arguments of layers in one of these files. The variables do not depend on
    # norm_first.
    for source in (file, path / "keras_metadata.pb"):
        text = reading.read_bytes(source, budget.MAX_FILE) if folder.has_file(source) else b""
        if re.search(rb'"norm_first"\s*:\s*true', text):
            raise ValueError(f"{source}: norm_first must be false for BERT, received true")
    activations = [
        name for name, sets in _ACTIVATIONS.items() if any(needed <= ops for needed in sets)
    ]
    return activations[0] if len(activations) == 1 else None
