"""What each format cannot hold: `save` refuses it, or loses it with a warning, and nothing else."""

import types

from keras_bert import heads
from tests.properties import reload

_CROSS_ENCODERS = ("classification", "regression", "reranking")
_TORCH_ACTIVATIONS = ("linear", "tanh", "relu", "gelu", "sigmoid", "silu")
# Format -> words of the error -> which models have what it cannot hold.
_LIMITS = {
    "keras": {},
    "google": {
        "multi_label": lambda model: model.multi_label,
        "activation": lambda model: model.task == "reranking" or model.activation != "linear",
        "pooling": lambda model: model.task == "embedding",
        "prompts": lambda model: model.prompts,
        "output_embeddings": lambda model: model.has_output_matrix,
        "hidden_act": lambda model: model.hidden_act == "gelu",
        "layer_norm_eps": lambda model: model.layer_norm_eps != 1e-12,
    },
    "huggingface": {
        "activation": lambda model: model.activation != "linear" and not model.pairs,
        "the activation": lambda model: model.activation not in _TORCH_ACTIVATIONS,
        "pooling": lambda model: len(model.poolings) > 1,
        "prompts": lambda model: model.prompts,
        "similarity": lambda model: model.task == "embedding" and model.similarity != "cosine",
        "normalize=False": lambda model: model.poolings and model.layers == [],
        "layers": lambda model: model.poolings and model.layers not in ([], ["normalize"]),
    },
    "keras_hub": {
        "multi_label": lambda model: model.multi_label,
        "the head": lambda model: (
            model.task not in (None, "classification", "masked_tokens", "embedding")
        ),
        "pooling": lambda model: model.poolings not in ((), ("mean",), ("cls",), ("max",)),
        "prompts": lambda model: model.prompts,
        "similarity": lambda model: model.similarity not in ("cosine", "dot"),
        "layers": lambda model: model.layers not in ([], ["normalize"]),
        "output_embeddings": lambda model: model.has_output_matrix,
        "strip_accents": lambda model: model.strip_accents and not model.lowercase,
        "split_cjk": lambda model: not model.split_cjk,
        "added tokens": lambda model: model.added_tokens,
        "hidden_act": lambda model: model.hidden_act != "gelu_new",
        "layer_norm_eps": lambda model: model.layer_norm_eps != 1e-12,
    },
    "sentence_transformers": {
        "the activation": lambda model: model.activation not in _TORCH_ACTIVATIONS,
        "no pooling": lambda model: (
            model.task != "sparse_embedding"
            and model.task != "embedding"
            and not (model.task is None and model.pooling)
            and not _is_cross_encoder(model)
        ),
    },
}
_LIMITS_OF_FOLDERS = {
    "pooler_act": lambda model: model.pooler_act != "tanh",
    "embedding_size": lambda model: model.embedding_size is not None,
    "quantized": lambda model: model.is_quantized,
    "pooling=": lambda model: model.poolings and model.task != "embedding",
}
# Format -> name in the warning -> which models have it. `load` takes it, or only training uses it.
_LOST = {
    "keras": {},
    "google": {
        "labels": lambda model: _has_labels(model),
        "label_type": lambda model: model.label_type != "str",
        "pairs": lambda model: _is_cross_encoder(model),
        "dropout": lambda model: model.has_dropout,
        "no_answer": lambda model: model.no_answer,
        "pooling": lambda model: model.pooling is not None,
        "task": lambda model: model.has_logits,
    },
    "huggingface": {
        # These are the names of a config without names.
        "labels": lambda model: model.labels == ["LABEL_0", "LABEL_1"],
        "label_type": lambda model: model.label_type != "str",
        "no_answer": lambda model: model.no_answer,
        "pooling": lambda model: _is_pooling_lost(model),
    },
    "keras_hub": {
        "labels": lambda model: _has_labels(model),
        "label_type": lambda model: model.label_type != "str",
        "pairs": lambda model: _is_cross_encoder(model),
        "initializer_range": lambda model: model.initializer_range != 0.02,
        "pooling": lambda model: (
            _is_pooling_lost(model) or (model.pooling and model.task not in (None, "embedding"))
        ),
    },
    "sentence_transformers": {"pooling": lambda model: _is_pooling_lost(model)},
}


def _is_cross_encoder(model):
    return model.task in _CROSS_ENCODERS and model.pairs


def _is_pooling_lost(model):
    """Return True if an embedder has another pooling than its encoder."""
    is_other = model.task == "embedding" and model.poolings != (model.pooling,)
    return model.pooling is not None and is_other


def _has_labels(model):
    return model.task in _CROSS_ENCODERS + ("tagging",) and model.labels not in (None, ["0", "1"])


def _facts(model):
    """Return the options of a model that decide which formats hold it."""
    layers = [layer.name for layer in model.layers]
    paths = [weight.path for weight in model.weights]
    facts = dict.fromkeys(("labels", "multi_label", "pairs", "no_answer", "prompts", "has_dropout"))
    facts |= {"similarity": "cosine", "poolings": (), "layers": []}
    facts |= heads.find_encoder(model).get_config() | reload.describe(model)
    facts["task"] = heads.find_task(model)
    if "pooling" in layers:
        pooling = model.get_layer("pooling")
        is_list = isinstance(pooling.mode, tuple)
        facts["poolings"] = pooling.mode if is_list else (pooling.mode,)
        after = layers[layers.index("pooling") + 1 : -1]
        facts["layers"] = ["normalize"] * pooling.normalize + after
    if "dropout" in layers and facts["task"] != "question_answering":
        facts["has_dropout"] = model.get_layer("dropout").rate != facts["hidden_dropout_prob"]
    facts["has_logits"] = any(path.startswith("logits/") for path in paths)
    facts["is_quantized"] = any(path.endswith("_scale") for path in paths)
    facts["has_output_matrix"] = any(path.endswith("output_embeddings") for path in paths)
    return types.SimpleNamespace(**facts)


def limits(model, format):
    """Return words of the possible errors of `save`; none if the format holds the model."""
    of_format = _LIMITS[format] | (_LIMITS_OF_FOLDERS if format != "keras" else {})
    facts = _facts(model)
    return [words for words, has_limit in of_format.items() if has_limit(facts)]


def lost_options(model, format):
    """Return the options that the warning of `save` must name."""
    facts = _facts(model)
    return {name for name, is_lost in _LOST[format].items() if is_lost(facts)}
