"""The TensorFlow Model Garden: object-based checkpoints, and encoders in memory.

Source: tensorflow/models official/nlp: configs/encoders.py, tools/export_tfhub_lib.py,
modeling/networks/bert_encoder.py.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import (
    bundle,
    canonical,
    folder,
    google,
    json_schema,
    model_garden_graph,
    name_tables,
)
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.model_spec import ModelSpec
from keras_bert.runtime import reading
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.words import words
from keras_bert.untrusted.errors import invalid

FORMAT = "model_garden"
_MAX_YAML = 2**17  # bytes; the largest experiment of the Model Garden has 2**13

# As in Google's code, `official.modeling.activations.gelu` is the tanh approximation.
ACTIVATIONS = google.ACTIVATIONS
# Keys of configs/encoders.py, and arguments of `BertEncoderV2` -> Google's keys.
_GOOGLE_KEYS = {
    "num_layers": "num_hidden_layers",
    "hidden_activation": "hidden_act",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    "inner_dim": "intermediate_size",
    "output_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
}
_SILENT_KEYS = words("""
    backward_compatible return_all_encoder_outputs return_attention_scores
    return_word_embeddings
""")
_ENCODER_TABLE = {
    name: rule
    for name, rule in model_garden_graph.TABLE.items()
    if rule.sources[0].startswith("encoder/")
}


def read_config(path: Path) -> dict[str, Any]:
    """Read bert_config.json or params.yaml as keyword arguments of `BertEncoder`.

    The folder has bert_config.json with Google's keys, or params.yaml from the Model Garden's
    trainer.
    """
    files = [path / name for name in ("bert_config.json", "params.yaml")]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise FileNotFoundError(
            f"{path}: must hold bert_config.json of google-research/bert, or params.yaml from the "
            "Model Garden's trainer; the checkpoint does not store the activation"
        )
    content = folder.read_json(file) if file.suffix == ".json" else _read_yaml(file)
    return canonical.read_config(file, content, ACTIVATIONS, _SILENT_KEYS)


def _read_yaml(file: Path) -> dict[str, Any]:
    """Read the encoder section of the trainer's parameters, with Google's keys."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("an alias, which can expand to any size")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            mapping = super().construct_mapping(node, deep)
            if len(mapping) < len(node.value):
                raise ValueError("a key that occurs twice")
            return mapping

    data = reading.read_bytes(file, _MAX_YAML)
    try:
        content = yaml.load(data.decode("utf-8"), Loader)  # noqa: S506
    except Exception as error:  # yaml raises many types for a value that its tag does not fit
        raise invalid(file, "must be YAML in UTF-8", error) from error
    for key in ("task", "model", "encoder"):
        content = content.get(key, content)
    options = content.get("bert")
    if not options or content.get("type", "bert") != "bert":
        raise invalid(file, "the encoder must be of type 'bert'", content.get("type"))
    return json_schema.renamed(file, {str(key): options[key] for key in options}, _GOOGLE_KEYS)


def read(path: Path, ignore: Collection[str] = ()) -> Checkpoint:
    """Read a checkpoint of one of the Model Garden's BERT models.

    Supports `BertEncoder`, `BertEncoderV2`, `BertPretrainerV2`, `BertClassifier`,
    `BertTokenClassifier` and `BertSpanLabeler`. Optimizer state and counters are ignored. The
    folder has a config as for `read_config`, a checkpoint as `bundle.find` finds it, and
    optionally vocab.txt.

    If a head has its own pooler, as the next-sentence head of a pretrainer does, that pooler is
    used. It was trained, while the encoder's pooler kept its initial weights.
    """
    tensors = bundle.read(bundle.find(path))
    config = read_config(path)
    vocabulary, tokenizer = google.read_tokenizer(path, config)
    spec = ModelSpec(config, vocabulary, tokenizer)

    def read_part(heads: bool) -> Checkpoint:
        variables = model_garden_graph.find_variables(tensors, heads=heads)
        weights = model_garden_graph.read_weights(tensors, variables, config, ignore, heads=heads)
        return Checkpoint(FORMAT, str(path), spec, weights)

    return canonical.with_head_or_problem(read_part)


def from_encoder(encoder: Any) -> Checkpoint:
    """Convert a `BertEncoderV2` or `BertEncoder` of `official.nlp.modeling.networks`.

    Return a `Checkpoint` with copies of the weights and without a vocabulary. The encoder must be
    BERT: no `norm_first`, `output_range` or factorized embeddings, and GELU, tanh GELU or ReLU.
    """
    name = type(encoder).__name__
    config = _config_of(encoder)
    variables = _variables(encoder, config)
    shapes = {source: tuple(variable.shape) for source, variable in variables.items()}
    weights = name_tables.read_weights(
        name, _ENCODER_TABLE, config, shapes, lambda source: variables[source].numpy()
    )
    return Checkpoint("", name, ModelSpec(config), dict(weights))


def to_encoder(checkpoint: Checkpoint, encoder: Any = None) -> Any:
    """Copy weights to an encoder of the Model Garden: the inverse of `from_encoder`.

    Weights of heads are ignored. If `encoder` is `None`, a `BertEncoderV2` is created, which needs
    tf-models-official. After an error, no variable has changed.
    """
    ours = checkpoint.spec.encoder
    if encoder is None:
        encoder = _new_encoder(ours)
    name = type(encoder).__name__
    theirs = _config_of(encoder)
    different = [
        f"{key} (expected {shown(ours[key])}, found {shown(theirs[key])})"
        for key in (
            *canonical.SIZES,
            "hidden_act",
            "layer_norm_eps",
            "embedding_size",
            "pooler_act",
        )
        if ours[key] != theirs[key]
    ]
    canonical.raise_if(name, "must have the checkpoint's config", {"different": different})
    weights = canonical.without_heads(checkpoint.weights)
    tensors = name_tables.to_source(_ENCODER_TABLE, ours, weights, format=name)
    name_tables.assign(_variables(encoder, theirs), tensors, source=name)
    return encoder


def _config_of(encoder: Any) -> dict[str, Any]:
    """Return the config of an encoder in memory as keyword arguments of `BertEncoder`."""
    if not encoder.built:
        encoder(encoder.inputs)  # creates the variables
    arguments = encoder.get_config()
    content = {_GOOGLE_KEYS.get(key, key): value for key, value in arguments.items()}
    content["hidden_act"] = _activation_of(encoder)
    content["initializer_range"] = arguments["initializer"]["config"].get("stddev", 0.02)
    names = {name: name for name in _ACTIVATION_VALUES}
    return canonical.read_config(type(encoder).__name__, content, names, silent=content)


# Activations are recognized by their values at these inputs, because a function's name may mislead.
_ACTIVATION_INPUTS = (-2.0, -0.5, 1.0, 3.0)
_ACTIVATION_VALUES = {
    "gelu": (-0.04550026, -0.15426877, 0.84134475, 2.9959502),
    "gelu_new": (-0.04540229, -0.15428599, 0.841192, 2.9963627),
    "relu": (0.0, 0.0, 1.0, 3.0),
}


def _activation_of(encoder: Any) -> str:
    activation = encoder.transformer_layers[0]._intermediate_activation_layer.activation
    values = np.asarray(activation(np.array(_ACTIVATION_INPUTS, np.float32)))
    for name, expected in _ACTIVATION_VALUES.items():
        if np.allclose(values, expected, rtol=0, atol=1e-5):
            return name
    raise ValueError(
        f"{type(encoder).__name__}: inner_activation must be one of "
        f"{', '.join(_ACTIVATION_VALUES)}, received a function with the values "
        f"{values.tolist()} at {list(_ACTIVATION_INPUTS)}"
    )


def _variables(encoder: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return source of the table -> variable."""
    variables = {}
    for entry in name_tables.expand(_ENCODER_TABLE, config, labels=0):
        for source in entry.sources:
            value = encoder
            for attribute in source.split("/")[1:]:
                value = value[int(attribute)] if attribute.isdigit() else getattr(value, attribute)
            variables[source] = value
    return variables


def _new_encoder(config: Mapping[str, Any]) -> Any:
    import tf_keras
    from official.modeling import activations
    from official.nlp.modeling import networks

    functions = {
        "gelu": tf_keras.activations.gelu,
        "gelu_new": activations.gelu,
        "relu": tf_keras.activations.relu,
    }
    names = {name: name for name in functions}
    activation = canonical.to_source_activation(config["hidden_act"], names, format=FORMAT)
    encoder = networks.BertEncoderV2(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_attention_heads=config["num_attention_heads"],
        max_sequence_length=config["max_position_embeddings"],
        type_vocab_size=config["type_vocab_size"],
        inner_dim=config["intermediate_size"],
        inner_activation=functions[activation],
        output_dropout=config["hidden_dropout_prob"],
        attention_dropout=config["attention_probs_dropout_prob"],
        initializer=tf_keras.initializers.TruncatedNormal(stddev=config["initializer_range"]),
    )
    encoder(encoder.inputs)  # creates the variables
    return encoder
