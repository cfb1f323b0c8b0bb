"""The TensorFlow Model Garden: object checkpoints, and its encoders in memory.

A tensor is known by its place among the objects, not by the key it was saved under: keys differ
with what was saved (`model=`, `encoder=`, the items of a pretrainer) and with the class.

Source: tensorflow/models official/nlp: modeling/networks/bert_encoder.py, modeling/models/
bert_pretrainer.py, bert_classifier.py, bert_token_classifier.py and bert_span_labeler.py,
modeling/layers/masked_lm.py and cls_head.py, configs/encoders.py, tools/export_tfhub_lib.py.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import bundle, canonical, folder, google
from keras_bert.checkpoints.bundle import Bundle, Node
from keras_bert.checkpoints.canonical import Checkpoint, Layout, rule

FORMAT = "model_garden"
_MAX_YAML = 2**17  # bytes; the longest of the Model Garden's experiments has 2**13
FILES = (
    "bert_config.json or params.yaml with the .index and .data files of a TensorFlow 2 checkpoint"
)

# The sources are paths of attributes, from the encoder or the head that the first part names.
_BLOCK = "encoder/_transformer_layers/{i}"
_ATTENTION = f"{_BLOCK}/_attention_layer"
TABLE = {
    "embeddings/word_embeddings/embeddings": rule("encoder/_embedding_layer/embeddings"),
    "embeddings/position_embeddings/embeddings": rule(
        "encoder/_position_embedding_layer/_position_embeddings"
    ),
    "embeddings/token_type_embeddings/embeddings": rule("encoder/_type_embedding_layer/embeddings"),
    "embeddings/layer_norm/gamma": rule("encoder/_embedding_norm_layer/gamma"),
    "embeddings/layer_norm/beta": rule("encoder/_embedding_norm_layer/beta"),
    "layer_{i}/attention/qkv/kernel": rule(
        f"{_ATTENTION}/_query_dense/kernel",
        f"{_ATTENTION}/_key_dense/kernel",
        f"{_ATTENTION}/_value_dense/kernel",
        layout=Layout.HEADS_OUT,
    ),
    "layer_{i}/attention/qkv/bias": rule(
        f"{_ATTENTION}/_query_dense/bias",
        f"{_ATTENTION}/_key_dense/bias",
        f"{_ATTENTION}/_value_dense/bias",
        layout=Layout.HEADS_OUT,
    ),
    "layer_{i}/attention/output/kernel": rule(
        f"{_ATTENTION}/_output_dense/kernel", layout=Layout.HEADS_IN
    ),
    "layer_{i}/attention/output/bias": rule(f"{_ATTENTION}/_output_dense/bias"),
    "layer_{i}/attention_layer_norm/gamma": rule(f"{_BLOCK}/_attention_layer_norm/gamma"),
    "layer_{i}/attention_layer_norm/beta": rule(f"{_BLOCK}/_attention_layer_norm/beta"),
    "layer_{i}/intermediate/kernel": rule(f"{_BLOCK}/_intermediate_dense/kernel"),
    "layer_{i}/intermediate/bias": rule(f"{_BLOCK}/_intermediate_dense/bias"),
    "layer_{i}/output/kernel": rule(f"{_BLOCK}/_output_dense/kernel"),
    "layer_{i}/output/bias": rule(f"{_BLOCK}/_output_dense/bias"),
    "layer_{i}/output_layer_norm/gamma": rule(f"{_BLOCK}/_output_layer_norm/gamma"),
    "layer_{i}/output_layer_norm/beta": rule(f"{_BLOCK}/_output_layer_norm/beta"),
    "pooler/dense/kernel": rule("encoder/_pooler_layer/kernel"),
    "pooler/dense/bias": rule("encoder/_pooler_layer/bias"),
    "masked_lm/transform/kernel": rule("masked_lm/dense/kernel"),
    "masked_lm/transform/bias": rule("masked_lm/dense/bias"),
    "masked_lm/layer_norm/gamma": rule("masked_lm/layer_norm/gamma"),
    "masked_lm/layer_norm/beta": rule("masked_lm/layer_norm/beta"),
    "masked_lm/output_bias": rule("masked_lm/bias"),
    "next_sentence/kernel": rule("classification_heads/0/out_proj/kernel"),
    "next_sentence/bias": rule("classification_heads/0/out_proj/bias"),
    "classifier/kernel": rule("classifier/out_proj/kernel"),
    "classifier/bias": rule("classifier/out_proj/bias"),
    "span_selector/kernel": rule("span_labeling/layer_with_weights-0/kernel"),
    "span_selector/bias": rule("span_labeling/layer_with_weights-0/bias"),
}
_ENCODER_TABLE = {
    name: line for name, line in TABLE.items() if line.sources[0].startswith("encoder/")
}
_HEADS = ("masked_lm", "classification_heads", "classifier", "span_labeling")

# What older versions called the same.
_OLDER = (
    ("/_position_embeddings", "/embeddings"),
    ("/_attention_layer/_output_dense/", "/_attention_output_dense/"),
    ("classifier/out_proj/", "classifier/"),  # BertTokenClassifier's is a dense layer
)
# An encoder that is a functional model numbers the layers that have weights, in their order. One
# from before it kept them as attributes as well has these alone.
_NUMBERED = re.compile(r"layer_with_weights-(\d+)")
_BEFORE_BLOCKS = (
    "_embedding_layer",
    "_position_embedding_layer",
    "_type_embedding_layer",
    "_embedding_norm_layer",
)

# Names of variables, for objects that keep no attributes. The older of two are those of the first
# release, of 2019.
_BY_NAME = tuple(
    (re.compile(rf"(?:.+/)?(?:{pattern})"), path)
    for pattern, path in (
        ("word_embeddings/embeddings", "encoder/_embedding_layer/embeddings"),
        (
            "position_embedding/embeddings|embedding_postprocessor/position_embeddings",
            "encoder/_position_embedding_layer/_position_embeddings",
        ),
        (
            "type_embeddings/embeddings|embedding_postprocessor/type_embeddings",
            "encoder/_type_embedding_layer/embeddings",
        ),
        (
            "(?:embeddings|embedding_postprocessor)/layer_norm/(gamma|beta)",
            r"encoder/_embedding_norm_layer/\1",
        ),
        *(
            (
                rf"(?:transformer|encoder)/layer_(\d+)/{pattern}",
                rf"encoder/_transformer_layers/\1/{path}",
            )
            for pattern, path in (
                (
                    "self_attention/(query|key|value)/(kernel|bias)",
                    r"_attention_layer/_\2_dense/\3",
                ),
                (
                    "self_attention(?:/attention)?_output/(kernel|bias)",
                    r"_attention_layer/_output_dense/\2",
                ),
                ("self_attention_layer_norm/(gamma|beta)", r"_attention_layer_norm/\2"),
                ("intermediate/(kernel|bias)", r"_intermediate_dense/\2"),
                ("output/(kernel|bias)", r"_output_dense/\2"),
                ("output_layer_norm/(gamma|beta)", r"_output_layer_norm/\2"),
            )
        ),
        ("pooler_transform/(kernel|bias)", r"encoder/_pooler_layer/\1"),
        ("cls/predictions/transform/dense/(kernel|bias)", r"masked_lm/dense/\1"),
        ("cls/predictions/transform/LayerNorm/(gamma|beta)", r"masked_lm/layer_norm/\1"),
        ("cls/predictions/output_bias(?:/bias)?", "masked_lm/bias"),
    )
)

# Ignored by name: counters, what an optimizer keeps, and what Keras noted of a layer as JSON.
_IGNORED = re.compile(
    r"_CHECKPOINTABLE_OBJECT_GRAPH"
    r"|(?:save_counter|global_step)/\.ATTRIBUTES/VARIABLE_VALUE"
    r"|(?:.*/)?_?optimizer/.*"
    r"|.*/\.OPTIMIZER_SLOT/.*"
    r"|(?:.*/)?keras_api/metrics/.*"
    r"|(?:.*/)?\.ATTRIBUTES/OBJECT_CONFIG_JSON"
)

# `official.modeling.activations.gelu` is the tanh approximation, as Google's.
ACTIVATIONS = google.ACTIVATIONS
# configs/encoders.py -> Google's keys.
_YAML_KEYS = {
    "num_layers": "num_hidden_layers",
    "hidden_activation": "hidden_act",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
}
_DROPPED_KEYS = google.DROPPED_KEYS | {
    "backward_compatible",
    "return_all_encoder_outputs",
    "return_attention_scores",
    "return_word_embeddings",
}


def matches(path: str | Path) -> bool:
    """Whether the folder looks like this format; of the index, is it one by object."""
    return bundle.holds_graph(Path(path))


def read_config(path: str | Path) -> dict[str, Any]:
    """Reads bert_config.json or params.yaml as keyword arguments of `BertEncoder`.

    One of them must be there: the arrays do not tell the activation and the dropout.

    Args:
        path: The folder: bert_config.json with Google's keys, or else params.yaml, as a trainer
            writes it, or bert_encoder.yaml, which holds its part `encoder` alone.

    Returns:
        Exactly the keys of `canonical.CONFIG_KEYS`.

    Raises:
        FileNotFoundError: If there is none of them.
        ValueError: If it is broken, or is not of an encoder like BERT.

    Example:
        >>> import json, tempfile
        >>> bert = dict.fromkeys(canonical.SIZES, 8) | {"hidden_activation": "relu"}
        >>> bert["num_layers"] = bert.pop("num_hidden_layers")
        >>> params = {"task": {"model": {"encoder": {"type": "bert", "bert": bert}}}}
        >>> with tempfile.TemporaryDirectory() as path:
        ...     _ = Path(path, "params.yaml").write_text(json.dumps(params))  # JSON is YAML
        ...     config = read_config(path)
        >>> config["num_hidden_layers"], config["hidden_act"], config["vocab_size"]
        (8, 'relu', 8)
    """
    path = Path(path)
    files = [path / name for name in ("bert_config.json", "params.yaml", "bert_encoder.yaml")]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise FileNotFoundError(
            f"{path}: must hold bert_config.json, with the keys of google-research/bert, or "
            "params.yaml, as the Model Garden's trainer writes it; the checkpoint alone does not "
            "tell the activation"
        )
    found = folder.read_json(file) if file.suffix == ".json" else _read_yaml(file)
    embedding_size = found.pop("embedding_size", None)
    if embedding_size not in (None, found.get("hidden_size")):
        raise ValueError(
            f"{file}: embedding_size must be None or hidden_size for a BERT encoder, received "
            f"{embedding_size!r}"
        )
    return canonical.read_config(
        file,
        found,
        activations=ACTIVATIONS,
        dropped=_DROPPED_KEYS,
        required_values={"norm_first": False, "output_range": None},
    )


def _read_yaml(file: Path) -> dict[str, Any]:
    """The part of a trainer's parameters that is about the encoder, under Google's keys."""
    import yaml

    try:
        text = folder.read_bytes(file, _MAX_YAML).decode("utf-8")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise ValueError("an alias, which can stand for any amount of content")
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{file}: must be YAML in UTF-8, received {folder.one_line(error)}"
        ) from error
    for key in ("task", "model", "encoder"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    if not isinstance(found, dict) or not isinstance(found.get("bert"), dict):
        kind = found.get("type") if isinstance(found, dict) else found
        raise ValueError(f"{file}: the encoder must be of type 'bert', received {kind!r:.80}")
    if found.get("type", "bert") != "bert":
        raise ValueError(
            f"{file}: the encoder must be of type 'bert', received {found['type']!r:.80}"
        )
    return {_YAML_KEYS.get(str(key), str(key)): value for key, value in found["bert"].items()}


def read(path: str | Path) -> Checkpoint:
    """Reads a folder with a checkpoint of the Model Garden's BERT.

    Of `BertEncoder`, `BertEncoderV2`, `BertPretrainerV2`, `BertClassifier`, `BertTokenClassifier`
    or `BertSpanLabeler`, whatever `tf.train.Checkpoint` it was saved by. The optimizer's state and
    counters are ignored.

    A head that pools on its own, as that of a pretrainer for the next sentence does, gives its
    pooler: that is the one that was trained, while the encoder's own kept its random weights.

    Args:
        path: The folder: a config as for `read_config`, one checkpoint (or, of several,
            bert_model.ckpt or the latest), and vocab.txt, which may be missing.

    Returns:
        The `Checkpoint`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is broken, or does not hold exactly what the config calls for.
    """
    path = Path(path)
    tensors = bundle.read(bundle.find(path))
    if not tensors.is_by_object:
        raise ValueError(
            f"{tensors.prefix}: must be a TensorFlow 2 checkpoint by object, received one by name"
        )
    config = read_config(path)
    graph = bundle.read_graph(tensors)
    weights = read_weights(tensors, resolve(tensors.prefix, graph), config)
    vocabulary, tokenizer = google.read_tokenizer(path, config)
    return Checkpoint(
        format=FORMAT,
        path=str(path),
        config=config,
        weights=weights,
        vocabulary=vocabulary,
        tokenizer=tokenizer,
        labels=None,
    )


def read_weights(
    tensors: Bundle,
    key_of: Mapping[str, str],
    config: Mapping[str, Any],
    ignored: Iterable[str] = (),
) -> Mapping[str, np.ndarray]:
    """Turns the tensors of a checkpoint by object into canonical weights.

    Args:
        tensors: The checkpoint.
        key_of: What `resolve` found in it.
        config: Sizes of the model.
        ignored: Keys that do not matter, beside those of optimizers.

    Returns:
        Canonical name -> array.

    Raises:
        ValueError: If the tensors are not exactly those that the config calls for.
    """
    known = {*key_of.values(), *ignored}
    shapes = {
        source: tensors.shapes[key]
        for source, key in key_of.items()
        if key in tensors.shapes and not source.startswith("unused/")
    }
    # What has no place in the table goes on under its key, to be listed.
    shapes |= {
        key: shape
        for key, shape in tensors.shapes.items()
        if key not in known and not _IGNORED.fullmatch(key)
    }
    return canonical.read_weights(
        tensors.prefix, TABLE, config, shapes, lambda source: tensors.load(key_of[source])
    )


def resolve(file: Path, graph: Sequence[Node]) -> dict[str, str]:
    """Finds the variables of an encoder and its heads among the objects of a checkpoint.

    Args:
        file: Named in errors.
        graph: The objects.

    Returns:
        Source of `TABLE` -> the key of its tensor. A pooler that a head has replaced is there under
        "unused/".

    Raises:
        ValueError: If there is no BERT encoder of the Model Garden among them, or more than one.

    Example:
        >>> graph = [
        ...     Node({"model": 1}, None, ""),
        ...     Node({"_transformer_layers": 2, "_pooler_layer": 3}, None, ""),
        ...     Node({}, None, ""),
        ...     Node({"kernel": 4}, None, ""),
        ...     Node({}, "the key", ""),
        ... ]
        >>> resolve(Path("model.ckpt"), graph)
        {'encoder/_pooler_layer/kernel': 'the key'}
    """
    nodes = list(graph)  # grows by those that put numbered layers under their names
    encoders = _find_encoders(nodes)
    if len(encoders) > 1:
        raise ValueError(f"{file}: must hold one BERT encoder, received {len(encoders)}")
    found = _resolve_by_place(nodes, encoders[0]) if encoders else _resolve_by_name(nodes)
    if not any(source.startswith("encoder/") for source in found):
        keys = [node.key for node in nodes if node.key and not _IGNORED.fullmatch(node.key)]
        raise ValueError(
            f"{file}: must hold a BERT encoder of the Model Garden, received "
            f"{', '.join(keys[:5]) or 'no variables'}{', ...' if len(keys) > 5 else ''}"
        )
    uses = [number for numbers in found.values() for number in numbers]
    canonical.raise_if(
        file,
        "each part of a BERT must be a variable of its own",
        several=[source for source, numbers in found.items() if len(numbers) > 1],
        shared=sorted(str(nodes[n].key) for n, count in Counter(uses).items() if count > 1),
    )
    return {source: str(nodes[number].key) for source, (number,) in found.items()}


def _find_encoders(nodes: list[Node]) -> list[int]:
    """The nodes of encoders, with children named as in `TABLE`; adds what it needs."""
    encoders = []
    for number, node in enumerate(tuple(nodes)):
        layers = {
            int(match[1]): child
            for name, child in node.children.items()
            if (match := _NUMBERED.fullmatch(name))
        }
        ordered = [layers[index] for index in sorted(layers)]
        blocks = [i for i, n in enumerate(ordered) if "_attention_layer" in nodes[n].children]
        if blocks:
            first, end = blocks[0], blocks[-1] + 1
            block_of = {str(i): number for i, number in enumerate(ordered[first:end])}
            nodes.append(Node(block_of, None, ""))
            named = {"_transformer_layers": len(nodes) - 1}
            named |= zip(_BEFORE_BLOCKS, ordered[:first], strict=False)
            named |= zip(("_pooler_layer",), ordered[end:], strict=False)
            nodes.append(Node(named | node.children, None, ""))
            encoders.append(len(nodes) - 1)
        elif "_transformer_layers" in node.children:
            encoders.append(number)
    return encoders


def _resolve_by_place(nodes: list[Node], encoder: int) -> dict[str, set[int]]:
    """Source of `TABLE` -> the variables in its place."""
    # A head may hang on several objects: on its model, on what was saved, on a copy of a config.
    parts = {
        name: {node.children[name] for node in nodes if name in node.children} for name in _HEADS
    }
    parts["encoder"] = {encoder}

    def follow(path: str) -> set[int]:
        part, *attributes = path.split("/")
        numbers = parts[part]
        for attribute in attributes:
            numbers = {
                nodes[number].children[attribute]
                for number in numbers
                if attribute in nodes[number].children
            }
        return {number for number in numbers if nodes[number].key is not None}

    found = {}
    layers = len(nodes[nodes[encoder].children["_transformer_layers"]].children)
    for line in TABLE.values():
        for template in line.sources:
            for i in range(layers if "{i}" in template else 1):
                source = template.format(i=i)
                older = [source.replace(new, old) for new, old in _OLDER]
                found[source] = next(filter(None, map(follow, [source, *older])), set())
    for variable in ("kernel", "bias"):
        own = f"encoder/_pooler_layer/{variable}"
        poolers = follow(f"classification_heads/0/dense/{variable}")
        poolers |= follow(f"classifier/dense/{variable}")
        for node in nodes:
            for name, child in node.children.items():
                # An item of a pretrainer's checkpoint, named after the head.
                if name.endswith(".pooler_dense") and variable in nodes[child].children:
                    poolers.add(nodes[child].children[variable])
        if poolers:
            found[f"unused/{variable}"] = found[own]
            found[own] = poolers
    return {source: numbers for source, numbers in found.items() if numbers}


def _resolve_by_name(nodes: Sequence[Node]) -> dict[str, set[int]]:
    """Source of `TABLE` -> the variables of its name."""
    found: dict[str, set[int]] = {}
    for number, node in enumerate(nodes):
        if node.key is None or _IGNORED.fullmatch(node.key):
            continue
        for pattern, path in _BY_NAME:
            if match := pattern.fullmatch(node.name):
                found.setdefault(match.expand(path), set()).add(number)
    return found


def from_encoder(garden_encoder: Any) -> Checkpoint:
    """Takes the weights of one of the Model Garden's encoders in memory.

    Args:
        garden_encoder: A `BertEncoderV2` or `BertEncoder` of `official.nlp.modeling.networks`.

    Returns:
        The `Checkpoint`, with copies of the weights and without a vocabulary.

    Raises:
        ValueError: If it computes something else than BERT: `norm_first`, an `output_range`,
            factorized embeddings, another activation than gelu, tanh gelu and relu.

    Example:
        >>> def to_mine(garden_encoder):  # into a `keras_bert.BertEncoder`
        ...     from keras_bert.hub.conversion import from_checkpoint
        ...     return from_checkpoint(from_encoder(garden_encoder))
    """
    config = _live_config(garden_encoder)
    variables = _live_variables(garden_encoder, config)
    weights = canonical.read_weights(
        type(garden_encoder).__name__,
        _ENCODER_TABLE,
        config,
        {source: tuple(variable.shape) for source, variable in variables.items()},
        lambda source: variables[source].numpy(),
    )
    return Checkpoint(
        format="",
        path=type(garden_encoder).__name__,
        config=config,
        weights=weights,
        vocabulary=None,
        tokenizer={},
        labels=None,
    )


def to_encoder(checkpoint: Checkpoint | Mapping[str, Any], garden_encoder: Any = None) -> Any:
    """Gives weights to one of the Model Garden's encoders; the way back from `from_encoder`.

    Args:
        checkpoint: A `Checkpoint`, or weights alone: canonical name -> array. Those of heads are
            left out.
        garden_encoder: A `BertEncoderV2` or `BertEncoder` of the same configuration; default: a
            new `BertEncoderV2`, for which the checkpoint's config is needed and
            tf-models-official must be installed.

    Returns:
        The encoder. Either all of its variables have been assigned, or none.

    Raises:
        ValueError: If the encoder and the checkpoint do not fit, or there are weights without a
            config to make an encoder of.
        ImportError: If tf-models-official is needed and not installed.

    Example:
        >>> to_encoder({})
        Traceback (most recent call last):
        ...
        ValueError: to make an encoder takes a Checkpoint, whose config it has; received weights \
alone
    """
    config = checkpoint.config if isinstance(checkpoint, Checkpoint) else None
    weights = checkpoint.weights if isinstance(checkpoint, Checkpoint) else checkpoint
    if garden_encoder is None:
        if config is None:
            raise ValueError(
                "to make an encoder takes a Checkpoint, whose config it has; received weights alone"
            )
        garden_encoder = _new_encoder(config)
    theirs = _live_config(garden_encoder)
    name = type(garden_encoder).__name__
    if config is not None:
        canonical.raise_if(
            name,
            "the encoder must compute what the checkpoint's config says",
            different=[
                f"{key} (expected {config[key]!r}, found {theirs[key]!r})"
                for key in (*canonical.SIZES, "hidden_act", "layer_norm_eps")
                if config[key] != theirs[key]
            ],
        )
    ours = {
        name: np.asarray(array)
        for name, array in weights.items()
        if name.partition("/")[0] not in canonical.OPTIONAL_GROUPS - {"pooler"}
    }
    shapes = {entry.name: entry.shape for entry in canonical.expand(_ENCODER_TABLE, theirs)}
    canonical.raise_if(
        name,
        "the weights must be of the encoder's sizes",
        **{
            "wrong shape": [
                f"{name} (expected {shapes[name]}, found {array.shape})"
                for name, array in ours.items()
                if name in shapes and array.shape != shapes[name]
            ]
        },
    )
    tensors = canonical.to_source(_ENCODER_TABLE, theirs, ours, format=name)
    canonical.assign(_live_variables(garden_encoder, theirs), tensors, source=name)
    return garden_encoder


def _live_config(encoder: Any) -> dict[str, Any]:
    """Keyword arguments of `BertEncoder` for one of the Model Garden's in memory."""
    name = type(encoder).__name__
    if not encoder.built:
        encoder(encoder.inputs)  # which makes its variables
    found = encoder.get_config()
    width = found.get("embedding_width")
    for key, value, wanted in (
        ("norm_first", found.get("norm_first"), False),
        ("output_range", found.get("output_range"), None),
        ("embedding_width", found["hidden_size"] if width is None else width, found["hidden_size"]),
    ):
        if value != wanted:
            raise ValueError(f"{name}: {key} must be {wanted!r} for BERT, received {value!r}")
    initializer = found.get("initializer")
    spread = initializer.get("config", {}) if isinstance(initializer, dict) else {}
    return {
        "vocab_size": found["vocab_size"],
        "hidden_size": found["hidden_size"],
        "num_hidden_layers": found["num_layers"],
        "num_attention_heads": found["num_attention_heads"],
        "intermediate_size": found["inner_dim"],
        "hidden_act": _live_activation(encoder),
        "hidden_dropout_prob": found["output_dropout"],
        "attention_probs_dropout_prob": found["attention_dropout"],
        "max_position_embeddings": found["max_sequence_length"],
        "type_vocab_size": found["type_vocab_size"],
        "initializer_range": spread.get("stddev", canonical.DEFAULTS["initializer_range"]),
        "layer_norm_eps": 1e-12,  # built in
    }


# What the activations give for the inputs below; names of functions tell less than they do.
_PROBES = (-2.0, -0.5, 1.0, 3.0)
_PROBED = {
    "gelu": (-0.04550026, -0.15426877, 0.84134475, 2.9959502),
    "gelu_new": (-0.04540229, -0.15428599, 0.841192, 2.9963627),
    "relu": (0.0, 0.0, 1.0, 3.0),
}


def _live_activation(encoder: Any) -> str:
    activation = encoder.transformer_layers[0]._intermediate_activation_layer.activation
    values = np.asarray(activation(np.array(_PROBES, np.float32)))
    for name, expected in _PROBED.items():
        if np.allclose(values, expected, rtol=0, atol=1e-5):
            return name
    raise ValueError(
        f"{type(encoder).__name__}: inner_activation must be {', '.join(_PROBED)}, received one "
        f"that makes {values.tolist()} of {list(_PROBES)}"
    )


def _live_variables(encoder: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """Source of the table -> variable."""
    variables = {}
    for entry in canonical.expand(_ENCODER_TABLE, config):
        for source in entry.sources:
            found = encoder
            for attribute in source.split("/")[1:]:
                found = found[int(attribute)] if attribute.isdigit() else getattr(found, attribute)
            variables[source] = found
    return variables


def _new_encoder(config: Mapping[str, Any]) -> Any:
    import tf_keras
    from official.modeling import activations
    from official.nlp.modeling import networks

    canonical.to_source_activation(config["hidden_act"], {n: n for n in _PROBED}, format=FORMAT)
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
    encoder(encoder.inputs)  # which makes its variables
    return encoder
