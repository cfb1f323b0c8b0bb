"""Convert between checkpoints and the Model Garden's encoders in memory.

Source: tensorflow/models official/nlp/modeling/networks/bert_encoder.py.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_bert.checkpoints import canonical, name_tables
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.checkpoints.model_garden import FORMAT
from keras_bert.checkpoints.model_garden_graph import TABLE
from keras_bert.untrusted.errors import invalid

_TABLE = {name: row for name, row in TABLE.items() if row.sources[0].startswith("encoder/")}


def from_encoder(garden_encoder: Any) -> Checkpoint:
    """Convert a `BertEncoderV2` or `BertEncoder` of `official.nlp.modeling.networks`.

    Return a `Checkpoint` with copies of the weights and without a vocabulary. The encoder must be
    BERT: no `norm_first`, `output_range` or factorized embeddings, and GELU, tanh GELU or ReLU.
    """
    name = type(garden_encoder).__name__
    config = _read_config(garden_encoder)
    variables = _variables(garden_encoder, config)
    shapes = {source: tuple(variable.shape) for source, variable in variables.items()}
    weights = name_tables.read_weights(
        name, _TABLE, config, shapes, lambda source: variables[source].numpy()
    )
    return Checkpoint(format="", path=name, config=config, weights=weights)


def to_encoder(checkpoint: Checkpoint, garden_encoder: Any = None) -> Any:
    """Copy weights to an encoder of the Model Garden: the inverse of `from_encoder`.

    Weights of heads are ignored. If `garden_encoder` is `None`, a `BertEncoderV2` is created, which
    needs tf-models-official. After an error, no variable has changed.
    """
    ours = checkpoint.config
    if garden_encoder is None:
        garden_encoder = _new_encoder(ours)
    name = type(garden_encoder).__name__
    theirs = _read_config(garden_encoder)
    different = [
        f"{key} (expected {ours[key]!r:.80}, found {theirs[key]!r:.80})"
        for key in (*canonical.SIZES, "hidden_act", "layer_norm_eps")
        if ours[key] != theirs[key]
    ]
    rule = "the encoder must have the checkpoint's config"
    canonical.raise_if(name, rule, {"different": different})
    weights = canonical.without_heads(checkpoint.weights)
    tensors = name_tables.to_source(_TABLE, ours, weights, format=name)
    name_tables.assign(_variables(garden_encoder, theirs), tensors, source=name)
    return garden_encoder


def _read_config(encoder: Any) -> dict[str, Any]:
    """Return the config of an encoder as keyword arguments of `BertEncoder`."""
    name = type(encoder).__name__
    if not encoder.built:
        encoder(encoder.inputs)  # creates the variables
    arguments = encoder.get_config()
    width = arguments.get("embedding_width") or arguments["hidden_size"]
    wanted = {
        "norm_first": False,
        "output_range": None,
        "embedding_width": arguments["hidden_size"],
    }
    for key, value in {**arguments, "embedding_width": width}.items():
        if key in wanted and value != wanted[key]:
            raise invalid(name, f"{key} must be {wanted[key]} for BERT", value)
    initializer = arguments.get("initializer")
    spread = initializer.get("config", {}) if isinstance(initializer, dict) else {}
    return {
        "vocab_size": arguments["vocab_size"],
        "hidden_size": arguments["hidden_size"],
        "num_hidden_layers": arguments["num_layers"],
        "num_attention_heads": arguments["num_attention_heads"],
        "intermediate_size": arguments["inner_dim"],
        "hidden_act": _read_activation(encoder),
        "hidden_dropout_prob": arguments["output_dropout"],
        "attention_probs_dropout_prob": arguments["attention_dropout"],
        "max_position_embeddings": arguments["max_sequence_length"],
        "type_vocab_size": arguments["type_vocab_size"],
        "initializer_range": spread.get("stddev", canonical.DEFAULTS["initializer_range"]),
        "layer_norm_eps": 1e-12,  # a constant in the Model Garden
    }


# Activations are recognized by their values at these inputs, because a function's name may mislead.
_INPUTS = (-2.0, -0.5, 1.0, 3.0)
_OUTPUTS = {
    "gelu": (-0.04550026, -0.15426877, 0.84134475, 2.9959502),
    "gelu_new": (-0.04540229, -0.15428599, 0.841192, 2.9963627),
    "relu": (0.0, 0.0, 1.0, 3.0),
}


def _read_activation(encoder: Any) -> str:
    activation = encoder.transformer_layers[0]._intermediate_activation_layer.activation
    values = np.asarray(activation(np.array(_INPUTS, np.float32)))
    for name, expected in _OUTPUTS.items():
        if np.allclose(values, expected, rtol=0, atol=1e-5):
            return name
    raise ValueError(
        f"{type(encoder).__name__}: inner_activation must be one of {', '.join(_OUTPUTS)}, "
        f"received a function with the values {values.tolist()} at {list(_INPUTS)}"
    )


def _variables(encoder: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return source of the table -> variable."""
    variables = {}
    for entry in name_tables.expand(_TABLE, config):
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

    canonical.to_source_activation(
        config["hidden_act"], {name: name for name in _OUTPUTS}, format=FORMAT
    )
    encoder = networks.BertEncoderV2(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_attention_heads=config["num_attention_heads"],
        max_sequence_length=config["max_position_embeddings"],
        type_vocab_size=config["type_vocab_size"],
        inner_dim=config["intermediate_size"],
        inner_activation={
            "gelu": tf_keras.activations.gelu,
            "gelu_new": activations.gelu,
            "relu": tf_keras.activations.relu,
        }[config["hidden_act"]],
        output_dropout=config["hidden_dropout_prob"],
        attention_dropout=config["attention_probs_dropout_prob"],
        initializer=tf_keras.initializers.TruncatedNormal(stddev=config["initializer_range"]),
    )
    encoder(encoder.inputs)  # creates the variables
    return encoder
