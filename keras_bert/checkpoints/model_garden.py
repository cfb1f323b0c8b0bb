"""The TensorFlow Model Garden: object-based checkpoints.

A tensor is found by its path in the object graph, not by its key: keys depend on how the model was
saved (`model=`, `encoder=`, the items of a pretrainer) and on its class.

Source: tensorflow/models official/nlp: modeling/networks/bert_encoder.py, modeling/models/
bert_pretrainer.py, bert_classifier.py, bert_token_classifier.py and bert_span_labeler.py,
modeling/layers/masked_lm.py and cls_head.py, configs/encoders.py, tools/export_tfhub_lib.py.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import bundle, canonical, folder, google, name_tables
from keras_bert.checkpoints.bundle import Bundle, Node
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.checkpoints.name_tables import Layout, rule
from keras_bert.runtime import reading
from keras_bert.runtime.escaping import printable

FORMAT = "model_garden"
_MAX_DEPTH = 50  # of YAML; the parser takes quadratic time
_MAX_YAML = 2**17  # bytes; the largest experiment of the Model Garden has 2**13
FILES = (
    "bert_config.json or params.yaml with the .index and .data files of a TensorFlow 2 checkpoint"
)

# Sources are attribute paths that start at the encoder or a head.
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
_HEADS = ("masked_lm", "classification_heads", "classifier", "span_labeling")

# Current name -> name in older versions.
_OLDER_NAMES = (
    ("/_position_embeddings", "/embeddings"),
    ("/_attention_layer/_output_dense/", "/_attention_output_dense/"),
    ("classifier/out_proj/", "classifier/"),  # the head of BertTokenClassifier is a dense layer
)
# Functional encoders number their layers that have weights. Before August 2020, encoders had no
# attributes besides these numbers.
_NUMBERED = re.compile(r"layer_with_weights-(\d{1,9})")
_BEFORE_BLOCKS = (
    "_embedding_layer",
    "_position_embedding_layer",
    "_type_embedding_layer",
    "_embedding_norm_layer",
)

# Name of a variable -> source, for objects without attributes. Alternatives are names of 2019.
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

# Ignored by key: counters, optimizer state, configs of Keras layers.
_IGNORED = re.compile(
    r"_CHECKPOINTABLE_OBJECT_GRAPH"
    r"|(?:save_counter|global_step)/\.ATTRIBUTES/VARIABLE_VALUE"
    r"|(?:.*/)?_?optimizer/.*"
    r"|.*/\.OPTIMIZER_SLOT/.*"
    r"|(?:.*/)?keras_api/metrics/.*"
    r"|(?:.*/)?\.ATTRIBUTES/OBJECT_CONFIG_JSON"
)

# As in Google's code, `official.modeling.activations.gelu` is the tanh approximation.
ACTIVATIONS = google.ACTIVATIONS
# configs/encoders.py -> Google's keys.
_YAML_KEYS = {
    "num_layers": "num_hidden_layers",
    "hidden_activation": "hidden_act",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
}
_SILENT_KEYS = google.SILENT_KEYS | {
    "backward_compatible",
    "return_all_encoder_outputs",
    "return_attention_scores",
    "return_word_embeddings",
}


def matches(path: str | Path) -> bool:
    """Return True if the folder has an object-based checkpoint."""
    return bundle.holds_graph(Path(path))


def read_config(path: str | Path) -> dict[str, Any]:
    """Read bert_config.json or params.yaml as keyword arguments of `BertEncoder`.

    The folder has bert_config.json with Google's keys, params.yaml from the Model Garden's
    trainer, or bert_encoder.yaml with the `encoder` section of params.yaml.
    """
    path = Path(path)
    files = [path / name for name in ("bert_config.json", "params.yaml", "bert_encoder.yaml")]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise FileNotFoundError(
            f"{path}: must hold bert_config.json, with the keys of google-research/bert, or "
            "params.yaml, from the Model Garden's trainer; the checkpoint does not store the "
            "activation"
        )
    found = folder.read_json(file) if file.suffix == ".json" else _read_yaml(file)
    return canonical.read_config(file, found, activations=ACTIVATIONS, silent=_SILENT_KEYS)


def _read_yaml(file: Path) -> dict[str, Any]:
    """Read the encoder section of the trainer's parameters, with Google's keys."""
    import yaml

    try:
        text = reading.read_bytes(file, _MAX_YAML).decode("utf-8")
        depth = 0
        for event in yaml.parse(text):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("an alias, which can expand to any size")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                raise ValueError(f"more than {_MAX_DEPTH} nested values")
        found = yaml.safe_load(text)
    except Exception as error:  # yaml raises many types for a value that its tag does not fit
        raise ValueError(
            f"{file}: must be YAML in UTF-8, received {reading.one_line(error)}"
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


def read(path: str | Path, ignore: Collection[str] = ()) -> Checkpoint:
    """Read a checkpoint of one of the Model Garden's BERT models.

    Supports `BertEncoder`, `BertEncoderV2`, `BertPretrainerV2`, `BertClassifier`,
    `BertTokenClassifier` and `BertSpanLabeler`. Optimizer state and counters are ignored. The
    folder has a config as for `read_config`, a checkpoint as `bundle.find` finds it, and
    optionally vocab.txt.

    If a head has its own pooler, as the next-sentence head of a pretrainer does, that pooler is
    used. It was trained, while the encoder's pooler kept its initial weights.
    """
    path = Path(path)
    tensors = bundle.read(bundle.find(path))
    if not tensors.is_object_based:
        raise ValueError(
            f"{tensors.prefix}: must be an object-based checkpoint (TensorFlow 2), received a "
            "name-based one"
        )
    config = read_config(path)
    graph = bundle.read_graph(tensors)
    weights = read_weights(tensors, resolve(tensors.prefix, graph), config, ignore=ignore)
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
    not_weights: Iterable[str] = (),
    ignore: Collection[str] = (),
) -> Mapping[str, np.ndarray]:
    """Convert the tensors of an object-based checkpoint to canonical weights.

    `key_of` maps sources of `TABLE` to keys, see `resolve`. Keys in `not_weights`, tensors that
    match the patterns `ignore` and optimizer state are left out.
    """
    known = {*key_of.values(), *not_weights}
    shapes = {
        source: tensors.shapes[key]
        for source, key in key_of.items()
        if key in tensors.shapes and not source.startswith("unused/")
    }
    # Unknown tensors keep their keys, so that the error lists them.
    shapes |= {
        key: shape
        for key, shape in tensors.shapes.items()
        if key not in known and not _IGNORED.fullmatch(key)
    }
    shapes = canonical.without_ignored(tensors.prefix, shapes, ignore)
    return name_tables.read_weights(
        tensors.prefix, TABLE, config, shapes, lambda source: tensors.load(key_of[source])
    )


def resolve(file: Path, graph: Sequence[Node]) -> dict[str, str]:
    """Find an encoder and its heads in an object graph: source of `TABLE` -> key of the tensor.

    If a head has its own pooler, the encoder's pooler is under "unused/".
    """
    nodes = list(graph)  # `_find_encoders` appends nodes
    encoders = _find_encoders(nodes)
    if len(encoders) > 1:
        raise ValueError(f"{file}: must hold one BERT encoder, received {len(encoders)}")
    for encoder in encoders:
        layers = len(nodes[nodes[encoder].children["_transformer_layers"]].children)
        if layers > canonical.MAX_LAYERS:
            raise ValueError(
                f"{file}: an encoder must have at most {canonical.MAX_LAYERS} layers, received "
                f"{layers}"
            )
    found = _resolve_by_path(nodes, encoders[0]) if encoders else _resolve_by_name(nodes)
    if not any(source.startswith("encoder/") for source in found):
        keys = [node.key for node in nodes if node.key and not _IGNORED.fullmatch(node.key)]
        shown = printable(", ".join(keys[:5]), 200) or "no variables"
        raise ValueError(
            f"{file}: must hold a BERT encoder of the Model Garden, received "
            f"{shown}{', ...' if len(keys) > 5 else ''}"
        )
    uses = [number for numbers in found.values() for number in numbers]
    canonical.raise_if(
        file,
        "each weight must be one variable, which is not shared",
        several=[source for source, numbers in found.items() if len(numbers) > 1],
        shared=sorted(str(nodes[n].key) for n, count in Counter(uses).items() if count > 1),
    )
    return {source: str(nodes[number].key) for source, (number,) in found.items()}


def _find_encoders(nodes: list[Node]) -> list[int]:
    """Return the nodes of encoders. Append nodes with the names in `TABLE` for numbered layers."""
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


def _resolve_by_path(nodes: list[Node], encoder: int) -> dict[str, set[int]]:
    """Return source of `TABLE` -> nodes of the variables with this path."""
    # A head may have several parents: its model, the saved object, a copy of a config.
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
    for row in TABLE.values():
        for template in row.sources:
            for i in range(layers if "{i}" in template else 1):
                source = template.format(i=i)
                older = [source.replace(new, old) for new, old in _OLDER_NAMES]
                found[source] = next(filter(None, map(follow, [source, *older])), set())
    for variable in ("kernel", "bias"):
        own = f"encoder/_pooler_layer/{variable}"
        poolers = follow(f"classification_heads/0/dense/{variable}")
        poolers |= follow(f"classifier/dense/{variable}")
        for node in nodes:
            for name, child in node.children.items():
                # An item of a pretrainer's checkpoint: "<name of the head>.pooler_dense".
                if name.endswith(".pooler_dense") and variable in nodes[child].children:
                    poolers.add(nodes[child].children[variable])
        if poolers:
            found[f"unused/{variable}"] = found[own]
            found[own] = poolers
    return {source: numbers for source, numbers in found.items() if numbers}


def _resolve_by_name(nodes: Sequence[Node]) -> dict[str, set[int]]:
    """Return source of `TABLE` -> nodes of the variables with a matching name."""
    found: dict[str, set[int]] = {}
    for number, node in enumerate(nodes):
        if node.key is None or _IGNORED.fullmatch(node.key):
            continue
        for pattern, path in _BY_NAME:
            if match := pattern.fullmatch(node.name):
                found.setdefault(match.expand(path), set()).add(number)
    return found
