"""Find the weights of the Model Garden's models in the object graph of a checkpoint.

A tensor is found by its path in the object graph, not by its key: keys depend on how the model was
saved (`model=`, `encoder=`, the items of a pretrainer) and on its class.

Source: tensorflow/models official/nlp: modeling/networks/bert_encoder.py, modeling/models/
bert_pretrainer.py, bert_classifier.py, bert_token_classifier.py and bert_span_labeler.py,
modeling/layers/masked_lm.py and cls_head.py.
"""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_bert.checkpoints import bundle, canonical, name_tables
from keras_bert.checkpoints.bundle import Bundle, Node
from keras_bert.runtime import budget
from keras_bert.runtime.escaping import printable

# Sources are a layer of the encoder or a head, and attributes from there.
_BLOCK = "encoder/_transformer_layers/{i}"
_POSITIONS = "encoder/_position_embedding_layer/_position_embeddings"
TABLE = name_tables.table(
    {
        "embeddings/word_embeddings": "encoder/_embedding_layer",
        "embeddings/position_embeddings/embeddings": _POSITIONS,
        "embeddings/token_type_embeddings": "encoder/_type_embedding_layer",
        "embeddings/layer_norm": "encoder/_embedding_norm_layer",
        "layer_{i}/attention/qkv": f"{_BLOCK}/_attention_layer/_{{qkv}}_dense",
        "layer_{i}/attention/output": f"{_BLOCK}/_attention_layer/_output_dense",
        "layer_{i}/attention_layer_norm": f"{_BLOCK}/_attention_layer_norm",
        "layer_{i}/intermediate": f"{_BLOCK}/_intermediate_dense",
        "layer_{i}/output": f"{_BLOCK}/_output_dense",
        "layer_{i}/output_layer_norm": f"{_BLOCK}/_output_layer_norm",
        "pooler/dense": "encoder/_pooler_layer",
        "masked_lm/transform": "masked_lm/dense",
        "masked_lm/layer_norm": "masked_lm/layer_norm",
        "masked_lm/output_bias": "masked_lm/bias",
        "next_sentence": "classification_heads/0/out_proj",
        "classifier": "classifier/out_proj",
        "span_selector": "span_labeling/layer_with_weights-0",
    },
    layouts=name_tables.BY_HEAD,
)
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

# Patterns of the names of variables, for objects without attributes.
_NAMES = name_tables.table(
    {
        "embeddings/word_embeddings": "word_embeddings",
        "embeddings/position_embeddings": "position_embedding",
        "embeddings/token_type_embeddings": "type_embeddings",
        "embeddings/layer_norm": "embeddings/layer_norm",
        "layer_{i}/attention/qkv": "transformer/layer_{i}/self_attention/{qkv}",
        "layer_{i}/attention/output": (
            "transformer/layer_{i}/self_attention(?:/attention)?_output"
        ),
        "layer_{i}/attention_layer_norm": "transformer/layer_{i}/self_attention_layer_norm",
        "layer_{i}/intermediate": "transformer/layer_{i}/intermediate",
        "layer_{i}/output": "transformer/layer_{i}/output",
        "layer_{i}/output_layer_norm": "transformer/layer_{i}/output_layer_norm",
        "pooler/dense": "pooler_transform",
        "masked_lm/transform": "cls/predictions/transform/dense",
        "masked_lm/layer_norm": "cls/predictions/transform/LayerNorm",
        "masked_lm/output_bias": "cls/predictions/output_bias(?:/bias)?",
    }
)
_SOURCE_OF_NAME = {
    re.compile("(?:.+/)?" + name.replace("{i}", r"(?P<i>\d+)")): source
    for tensor, rule in _NAMES.items()
    for name, source in zip(rule.sources, TABLE[tensor].sources, strict=True)
}

# Keys of counters, of the state of an optimizer, of configs of Keras layers and of the tokenizer.
_IGNORED = re.compile(
    r"_CHECKPOINTABLE_OBJECT_GRAPH"
    r"|(?:save_counter|global_step|do_lower_case)/\.ATTRIBUTES/VARIABLE_VALUE"
    r"|(?:.*/)?_?optimizer/.*"
    r"|.*/\.OPTIMIZER_SLOT/.*"
    r"|(?:.*/)?keras_api/metrics/.*"
    r"|(?:.*/)?\.ATTRIBUTES/OBJECT_CONFIG_JSON"
)


class Variables(NamedTuple):
    """The variables of an encoder and its heads.

    Attributes:
        key_of: Source of `TABLE` -> key of the tensor.
        unused: Keys of the encoder's pooler if a head has its own pooler.
        of_encoder: Keys of all variables that the object of the encoder has.
    """

    key_of: dict[str, str]
    unused: set[str]
    of_encoder: set[str]


def read_weights(
    tensors: Bundle,
    variables: Variables,
    config: Mapping[str, Any],
    ignore: Collection[str],
    *,
    heads: bool,
) -> Mapping[str, np.ndarray]:
    """Convert the tensors of an object-based checkpoint to canonical weights.

    Tensors that match the patterns `ignore`, and optimizer state, are left out.
    """
    key_of = variables.key_of
    source_of = {key: source for source, key in key_of.items()}
    shapes = {}
    for key, shape in tensors.shapes.items():
        if key in source_of:
            shapes[source_of[key]] = shape
        elif key not in variables.unused and not _IGNORED.fullmatch(key):
            shapes[key] = shape  # so that an error lists it
    shapes = canonical.without_ignored(tensors.prefix, shapes, ignore)
    return name_tables.read_weights(
        tensors.prefix,
        TABLE,
        config,
        shapes,
        lambda source: tensors.load(key_of[source]),
        heads=heads,
        inside=variables.of_encoder,
    )


def find_variables(tensors: Bundle, *, heads: bool) -> Variables:
    """Find an encoder in the object graph of a checkpoint, and with `heads` also its heads."""
    file = tensors.prefix
    nodes = bundle.read_graph(tensors)
    encoders = _encoders(nodes)
    if len(encoders) > 1:
        raise ValueError(f"{file}: must hold one BERT encoder, received {len(encoders)}")
    unused: set[int] = set()
    if encoders:
        nodes_of = _nodes_by_path(nodes, encoders[0])
        unused = _use_pooler_of_head(nodes, nodes_of)
        of_encoder = _descendants(nodes, encoders[0])
    else:
        nodes_of = _nodes_by_name(nodes)
        of_encoder = set(range(len(nodes)))
    names_in_heads = [name for name in nodes_of if not name.startswith("encoder/")]
    of_encoder = of_encoder.difference(*(nodes_of[name] for name in names_in_heads))
    if not heads:
        for name in names_in_heads:
            del nodes_of[name]
    if not any(source.startswith("encoder/") for source in nodes_of):
        keys = [node.key for node in nodes if node.key and not _IGNORED.fullmatch(node.key)]
        shown = printable(", ".join(keys[:5]), 200) or "no variables"
        raise ValueError(f"{file}: must hold a BERT encoder of the Model Garden, received {shown}")
    uses = Counter(node for indices in nodes_of.values() for node in indices)
    problems = {
        "several": [source for source, indices in nodes_of.items() if len(indices) > 1],
        "shared": sorted(str(nodes[node].key) for node, count in uses.items() if count > 1),
    }
    canonical.raise_if(file, "each weight must be one variable, which is not shared", problems)
    key_of = {source: str(nodes[node].key) for source, (node,) in nodes_of.items()}
    return Variables(
        key_of,
        unused={str(nodes[node].key) for node in unused},
        of_encoder={str(nodes[node].key) for node in of_encoder},
    )


def _encoders(nodes: list[Node]) -> list[Node]:
    """Return the encoders, with the attributes in `TABLE`.

    Layers that only have numbers get these attributes; a list of blocks is appended to `nodes`.
    """
    encoders = []
    for node in tuple(nodes):
        attributes = node.children
        numbered = {
            int(match[1]): child
            for name, child in node.children.items()
            if (match := _NUMBERED.fullmatch(name))
        }
        layers = [numbered[number] for number in sorted(numbered)]
        is_block = ["_attention_layer" in nodes[layer].children for layer in layers]
        if any(is_block):
            first = is_block.index(True)
            end = len(layers) - is_block[::-1].index(True)
            attributes = dict(zip(_BEFORE_BLOCKS, layers[:first], strict=False))
            attributes |= dict(zip(["_pooler_layer"], layers[end:], strict=False))
            attributes["_transformer_layers"] = len(nodes)
            attributes |= node.children
            blocks = {str(index): layer for index, layer in enumerate(layers[first:end])}
            nodes.append(Node(blocks, None, ""))
        if "_transformer_layers" in attributes:
            encoders.append(Node(attributes, None, ""))
    return encoders


def _nodes_by_path(nodes: list[Node], encoder: Node) -> dict[str, set[int]]:
    """Return source of `TABLE` -> nodes of the variables with this path."""
    starts = {"encoder": {len(nodes)}}
    nodes.append(encoder)
    # A head may have several parents: its model, the saved object, a copy of a config.
    for head in _HEADS:
        starts[head] = _children(nodes, range(len(nodes)), head)
    blocks = nodes[encoder.children["_transformer_layers"]].children
    layers = min(len(blocks), budget.MAX_LAYERS)
    nodes_of = {}
    for template in itertools.chain.from_iterable(rule.sources for rule in TABLE.values()):
        for layer in range(layers if "{i}" in template else 1):
            source = template.format(i=layer)
            names = [source, *(source.replace(new, old) for new, old in _OLDER_NAMES)]
            indices = next(filter(None, (_follow(nodes, starts, name) for name in names)), None)
            if indices:
                nodes_of[source] = indices
    return nodes_of


def _follow(nodes: Sequence[Node], starts: Mapping[str, set[int]], source: str) -> set[int]:
    """Return the variables to which the path of a source leads."""
    start, *attributes = source.split("/")
    indices = starts[start]
    for attribute in attributes:
        indices = _children(nodes, indices, attribute)
    return {node for node in indices if nodes[node].key is not None}


def _children(nodes: Sequence[Node], parents: Iterable[int], name: str) -> set[int]:
    return {nodes[node].children[name] for node in parents if name in nodes[node].children}


def _descendants(nodes: Sequence[Node], node: Node) -> set[int]:
    """Return the nodes to which a path from a node leads."""
    descendants: set[int] = set()
    unvisited = list(node.children.values())
    while unvisited:
        index = unvisited.pop()
        if index not in descendants:
            descendants.add(index)
            unvisited += nodes[index].children.values()
    return descendants


def _use_pooler_of_head(nodes: Sequence[Node], nodes_of: dict[str, set[int]]) -> set[int]:
    """Replace the encoder's pooler by that of a head, in place. Return the replaced variables.

    The pooler of a head was trained, while the encoder's pooler kept its initial weights.
    """
    every_node = range(len(nodes))
    heads = _children(nodes, every_node, "classifier")
    heads |= _children(nodes, _children(nodes, every_node, "classification_heads"), "0")
    poolers = _children(nodes, heads, "dense")
    for node in nodes:
        for name, child in node.children.items():
            # An item of a pretrainer's checkpoint: "<name of the head>.pooler_dense".
            if name.endswith(".pooler_dense"):
                poolers.add(child)
    unused = set()
    for variable in ("kernel", "bias"):
        children = _children(nodes, poolers, variable)
        indices = {node for node in children if nodes[node].key is not None}
        if indices:
            unused |= nodes_of.get(f"encoder/_pooler_layer/{variable}", set())
            nodes_of[f"encoder/_pooler_layer/{variable}"] = indices
    return unused


def _nodes_by_name(nodes: Sequence[Node]) -> dict[str, set[int]]:
    """Return source of `TABLE` -> nodes of the variables with a matching name."""
    nodes_of: dict[str, set[int]] = {}
    for index, node in enumerate(nodes):
        if node.key is None or _IGNORED.fullmatch(node.key):
            continue
        for pattern, source in _SOURCE_OF_NAME.items():
            if match := pattern.fullmatch(node.name):
                nodes_of.setdefault(source.format(**match.groupdict()), set()).add(index)
    return nodes_of
