"""Convert between checkpoints and models of KerasHub or KerasNLP in memory.

Source: keras-team/keras-hub, src/models/bert (config, layers).
"""

from typing import Any

import numpy as np

from keras_bert.checkpoints import canonical, folder, name_tables
from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.checkpoints.keras_hub import FORMAT, TASKS, to_canonical_config, to_source_config

# Sources are the `path` of a variable.
_LAYER = "transformer_layer_{i}"
_ATTENTION = f"{_LAYER}/self_attention_layer"
TABLE = name_tables.table(
    {
        "embeddings/word_embeddings": "token_embedding",
        "embeddings/position_embeddings": "position_embedding",
        "embeddings/token_type_embeddings": "segment_embedding",
        "embeddings/layer_norm": "embeddings_layer_norm",
        "layer_{i}/attention/qkv": (
            f"{_ATTENTION}/query",
            f"{_ATTENTION}/key",
            f"{_ATTENTION}/value",
        ),
        "layer_{i}/attention/output": f"{_ATTENTION}/attention_output",
        "layer_{i}/attention_layer_norm": f"{_LAYER}/self_attention_layer_norm",
        "layer_{i}/intermediate": f"{_LAYER}/feedforward_intermediate_dense",
        "layer_{i}/output": f"{_LAYER}/feedforward_output_dense",
        "layer_{i}/output_layer_norm": f"{_LAYER}/feedforward_layer_norm",
        "pooler/dense": "pooled_dense",
        "masked_lm/transform": "mlm_head/intermediate_dense",
        "masked_lm/layer_norm": "mlm_head/intermediate_layer_norm",
        "classifier": "logits",
    },
    {"masked_lm/output_bias": name_tables.rule("mlm_head/output_bias")},
    layouts=name_tables.BY_HEAD,
)


def from_model(model: Any) -> Checkpoint:
    """Convert a `BertBackbone`, `BertTextClassifier` or `BertMaskedLM` to a `Checkpoint`.

    The weights are copied. The vocabulary is that of the model's preprocessor, if it has one.
    """
    kind = type(model).__name__
    task = TASKS.get(kind)
    if task is None and kind != "BertBackbone":
        raise ValueError(f"the model must be a BertBackbone, {' or '.join(TASKS)}; received {kind}")
    backbone = model if task is None else model.backbone
    config = to_canonical_config(model.name, backbone.get_config())
    variables = {variable.path: variable for variable in model.weights}
    shapes = {path: tuple(variable.shape) for path, variable in variables.items()}
    weights = name_tables.read_weights(
        model.name, TABLE, config, shapes, lambda path: np.array(variables[path].numpy())
    )
    options = folder.default_tokenizer(lowercase=True)
    vocabulary = None
    preprocessor = None if task is None else model.preprocessor
    if preprocessor is not None:
        tokenizer = preprocessor.tokenizer
        vocabulary = list(tokenizer.get_vocabulary())
        options |= {
            "lowercase": tokenizer.lowercase,
            "strip_accents": tokenizer.strip_accents,
            "sequence_length": preprocessor.sequence_length,
        }
    return Checkpoint(FORMAT, model.name, config, weights, vocabulary, options, task=task)


def to_backbone(checkpoint: Checkpoint, backbone: Any = None) -> Any:
    """Copy the encoder of a checkpoint with a pooler to a `keras_hub.models.BertBackbone`.

    If `backbone` is `None`, a new one is created. Heads are ignored.
    """
    config = to_source_config(checkpoint.config)
    if backbone is None:
        import keras_hub

        backbone = keras_hub.models.BertBackbone(**config)
    encoder = canonical.without_heads(checkpoint.weights)
    tensors = name_tables.to_source(TABLE, checkpoint.config, encoder, format=FORMAT)
    variables = {variable.path: variable for variable in backbone.weights}
    name_tables.assign(variables, tensors, source=backbone.name)
    return backbone
