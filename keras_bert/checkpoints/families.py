"""Models of transformers that are a BERT under other names.

- DistilBERT has no segments and no pooler. Its classifiers have a layer with ReLU there.
- ELECTRA has no pooler. Its classifiers have a layer with GELU there.
- RoBERTa's first token has the position `pad_token_id` + 1, and there is one segment. It is read if
  its tokenizer is WordPiece.

A model without segments, or with one, gets two equal segments, so that it can read pairs of texts.

Source: huggingface/transformers, models/distilbert/modeling_distilbert.py,
models/electra/modeling_electra.py, models/roberta/modeling_roberta.py.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_bert.checkpoints import json_schema
from keras_bert.checkpoints.other_models import classes_of
from keras_bert.checkpoints.tensor_files import Tensor
from keras_bert.runtime.escaping import shown
from keras_bert.untrusted.errors import invalid

_POSITIONS = "bert.embeddings.position_embeddings.weight"
_SEGMENTS = "bert.embeddings.token_type_embeddings.weight"


class Family(NamedTuple):
    """How to read a model as a BERT.

    Attributes:
        class_name: Beginning of its classes in transformers.
        prefix: First part of the names of its tensors.
        pooler_act: Activation of the hidden layer of its classifiers.
        keys: Key of its config -> BERT's key.
        names: (pattern, replacement) for names of tensors after the prefix became "bert.".
        silent_keys: Keys of its config that are ignored without a warning.
    """

    class_name: str
    prefix: str
    pooler_act: str
    keys: Mapping[str, str]
    names: tuple[tuple[str, str], ...]
    silent_keys: frozenset[str] = frozenset()


BERT = Family("Bert", "bert", "tanh", {}, ())

_CLASSIFIER = (
    (r"^classifier\.dense\.", "bert.pooler.dense."),
    (r"^classifier\.out_proj\.", "classifier."),
)
FAMILIES = {
    "distilbert": Family(
        "DistilBert",
        "distilbert",
        "relu",
        {
            "dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
            "hidden_dim": "intermediate_size", "activation": "hidden_act",
            "dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob",
            "seq_classif_dropout": "classifier_dropout",
        },
        (
            (r"^(bert\.)?transformer\.layer\.", r"bert.encoder.layer."),
            (r"\.attention\.q_lin\.", ".attention.self.query."),
            (r"\.attention\.k_lin\.", ".attention.self.key."),
            (r"\.attention\.v_lin\.", ".attention.self.value."),
            (r"\.attention\.out_lin\.", ".attention.output.dense."),
            (r"\.sa_layer_norm\.", ".attention.output.LayerNorm."),
            (r"\.ffn\.lin1\.", ".intermediate.dense."),
            (r"\.ffn\.lin2\.", ".output.dense."),
            (r"\.output_layer_norm\.", ".output.LayerNorm."),
            (r"^vocab_transform\.", "cls.predictions.transform.dense."),
            (r"^vocab_layer_norm\.", "cls.predictions.transform.LayerNorm."),
            (r"^vocab_projector\.bias$", "cls.predictions.bias"),
            (r"^vocab_projector\.weight$", "cls.predictions.decoder.weight"),
            (r"^pre_classifier\.", "bert.pooler.dense."),
        ),
        frozenset({"sinusoidal_pos_embds", "tie_weights_", "qa_dropout"}),
    ),
    "electra": Family(
        "Electra",
        "electra",
        "gelu",
        {},
        (
            *_CLASSIFIER,
            (r"^generator_predictions\.dense\.", "cls.predictions.transform.dense."),
            (r"^generator_predictions\.LayerNorm\.", "cls.predictions.transform.LayerNorm."),
            (r"^generator_lm_head\.bias$", "cls.predictions.bias"),
            (r"^generator_lm_head\.weight$", "cls.predictions.decoder.weight"),
        ),
        frozenset({
            "embedding_size", "generator_size", "generator_hidden_size", "summary_activation",
            "summary_last_dropout", "summary_type", "summary_use_proj",
        }),
    ),
    "roberta": Family(
        "Roberta",
        "roberta",
        "tanh",
        {},
        (
            *_CLASSIFIER,
            (r"^lm_head\.dense\.", "cls.predictions.transform.dense."),
            (r"^lm_head\.layer_norm\.", "cls.predictions.transform.LayerNorm."),
            (r"^lm_head\.bias$", "cls.predictions.bias"),
            (r"^lm_head\.decoder\.", "cls.predictions.decoder."),
        ),
    ),
}  # fmt: skip


def find(config: Mapping[str, Any]) -> Family:
    """Return the family that a config names by its type, or else by its class; else `BERT`."""
    model_type = config.get("model_type")
    if model_type is not None:
        return FAMILIES.get(str(model_type), BERT)
    name = next(iter(classes_of(config)), "")
    for family in FAMILIES.values():
        if re.match(f"(TF|Flax)?{family.class_name}", name):
            return family
    return BERT


def bert_config(family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a BERT with the same layers."""
    if family is BERT:
        return dict(config)
    content = json_schema.renamed("config.json", config, family.keys)
    content["model_type"] = "bert"
    content["architectures"] = [
        re.sub(f"^(TF|Flax)?{family.class_name}", "Bert", name) for name in classes_of(config)
    ]
    if family.prefix == "distilbert":
        content.pop("layer_norm_eps", None)  # a constant in its code
    if family.prefix == "distilbert" or content.get("type_vocab_size") == 1:
        content["type_vocab_size"] = 2
    positions = content.get("max_position_embeddings")
    if family.prefix == "roberta" and isinstance(positions, int):
        content["max_position_embeddings"] = positions - _first_position(config)
    return content


def bert_names(family: Family, names: Iterable[str]) -> dict[str, str]:
    """Return {name: name in a BERT}. A classifier's hidden layer takes the place of the pooler."""
    names = list(names)
    if family is BERT:
        return {name: name for name in names}
    has_hidden_layer = any(name.startswith("classifier.dense.") for name in names)
    renamed = {}
    for source in names:
        name = re.sub(rf"^{family.prefix}\.", "bert.", source)
        if has_hidden_layer and re.match(r"(bert\.)?pooler\.", name):
            continue  # not used by the classifier; transformers no longer writes it
        for pattern, replacement in family.names:
            name = re.sub(pattern, replacement, name)
        renamed[source] = name
    return renamed


def with_bert_shapes(
    family: Family, config: Mapping[str, Any], tensors: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Add rows for segments, and leave out the rows before RoBERTa's first position."""
    if family is BERT:
        return tensors
    tensors = dict(tensors)
    words = tensors.get("bert.embeddings.word_embeddings.weight")
    if family.prefix == "distilbert" and words is not None:
        zeros = np.zeros((1, *words.shape[1:]), np.float32)
        tensors.setdefault(_SEGMENTS, Tensor(zeros.shape, lambda: zeros))
    segments = tensors.get(_SEGMENTS)
    if segments is not None and segments.shape[:1] == (1,):
        shape = (2, *segments.shape[1:])
        tensors[_SEGMENTS] = Tensor(shape, lambda: np.repeat(segments.load(), 2, axis=0))
    positions = tensors.get(_POSITIONS)
    if family.prefix == "roberta" and positions is not None:
        first = _first_position(config)
        shape = (positions.shape[0] - first, *positions.shape[1:])
        tensors[_POSITIONS] = Tensor(shape, lambda: positions.load()[first:])
    return tensors


def _first_position(config: Mapping[str, Any]) -> int:
    """Return the position of the first token of a RoBERTa."""
    padding = config.get("pad_token_id", 1)
    if type(padding) is not int or padding < 0:
        raise ValueError(f"pad_token_id must be an id; received {shown(padding)}")
    return padding + 1


def check_padding(
    file: Path, family: Family, config: Mapping[str, Any], vocabulary: Sequence[str] | None
) -> None:
    """Raise a `ValueError` unless RoBERTa's `pad_token_id` is the id of [PAD].

    In transformers, each token with this id has the same position, also an [UNK] within the text.
    """
    if family.prefix != "roberta" or vocabulary is None:
        return
    padding = _first_position(config) - 1
    if vocabulary[padding : padding + 1] != ["[PAD]"]:
        token = vocabulary[padding] if padding < len(vocabulary) else None
        raise invalid(file, "pad_token_id must be the id of [PAD]", {padding: token})


def check_masked_lm(file: Path, family: Family, config: Mapping[str, Any]) -> None:
    """Raise a `ValueError` if the masked-LM head has another activation than the encoder."""
    activation = config.get("hidden_act", "gelu")
    if family.prefix in ("electra", "roberta") and activation != "gelu":
        rule = "hidden_act must be gelu, as in the masked-LM head of this class"
        raise invalid(file, rule, activation)
