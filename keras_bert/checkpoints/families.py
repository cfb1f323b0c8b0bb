"""Models of transformers that are a BERT under other names.

- DistilBERT has no segments and no pooler. Its classifiers have a layer with ReLU there.
- ELECTRA has no pooler. Its classifiers have a layer with GELU there.
- RoBERTa's first token has the position `pad_token_id` + 1, and there is one segment. It is read if
  its tokenizer is WordPiece.

Such a model without segments, or with one, gets two equal segments, so that it can read pairs of
texts.

Source: huggingface/transformers, models/distilbert/modeling_distilbert.py,
models/electra/modeling_electra.py, models/roberta/modeling_roberta.py.
"""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_bert.checkpoints import json_schema
from keras_bert.checkpoints.tensor_files import Tensor
from keras_bert.runtime.warn import level_of_caller
from keras_bert.untrusted.errors import invalid

_WORDS = "bert.embeddings.word_embeddings.weight"
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
        constants: Key of BERT's config -> the value in the code of the family.
        silent_keys: Keys of its config that are ignored without a warning.
        unused_keys: End of a class -> a key of the config that only other classes use.
        heads: Module of a head -> the values that the config must have, so that the head is one of
            BERT's. `None`: the head is left out.
        has_embedding_size: True if the embeddings can have a width of their own.
        has_segments: True if there are embeddings of segments.
        skips_padding: True if positions begin after that of padding, `pad_token_id`.
    """

    class_name: str
    prefix: str
    pooler_act: str
    keys: Mapping[str, str] = {}
    names: tuple[tuple[str, str], ...] = ()
    constants: Mapping[str, Any] = {}
    silent_keys: frozenset[str] = frozenset()
    unused_keys: Mapping[str, str] = {}
    heads: Mapping[str, Mapping[str, Any] | None] = {}
    has_embedding_size: bool = False
    has_segments: bool = True
    skips_padding: bool = False


BERT = Family("Bert", "bert", "tanh")

_CLASSIFIER = (
    (r"^classifier\.dense\.", "bert.pooler.dense."),
    (r"^classifier\.out_proj\.", "classifier."),
)
FAMILIES = {
    "distilbert": Family(
        "DistilBert",
        "distilbert",
        "relu",
        keys={
            "dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
            "hidden_dim": "intermediate_size", "activation": "hidden_act",
            "dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob",
            "seq_classif_dropout": "classifier_dropout",
        },
        names=(
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
        constants={"layer_norm_eps": 1e-12},
        silent_keys=frozenset({"sinusoidal_pos_embds", "tie_weights_", "qa_dropout"}),
        unused_keys={"ForTokenClassification": "seq_classif_dropout"},
        has_segments=False,
    ),
    "electra": Family(
        "Electra",
        "electra",
        "gelu",
        names=(
            *_CLASSIFIER,
            (r"^sequence_summary\.summary\.", "bert.pooler.dense."),
            (r"^generator_predictions\.dense\.", "cls.predictions.transform.dense."),
            (r"^generator_predictions\.LayerNorm\.", "cls.predictions.transform.LayerNorm."),
            (r"^generator_lm_head\.bias$", "cls.predictions.bias"),
            (r"^generator_lm_head\.weight$", "cls.predictions.decoder.weight"),
        ),
        silent_keys=frozenset({
            "generator_size", "generator_hidden_size", "summary_activation",
            "summary_last_dropout", "summary_type", "summary_use_proj",
        }),
        unused_keys={"ForMultipleChoice": "classifier_dropout"},
        heads={
            "discriminator_predictions": None,
            "generator_predictions": {"hidden_act": "gelu"},
            "sequence_summary": {
                "summary_type": "first", "summary_activation": "gelu", "summary_use_proj": True,
            },
        },
        has_embedding_size=True,
    ),
    "roberta": Family(
        "Roberta",
        "roberta",
        "tanh",
        names=(
            *_CLASSIFIER,
            (r"^lm_head\.dense\.", "cls.predictions.transform.dense."),
            (r"^lm_head\.layer_norm\.", "cls.predictions.transform.LayerNorm."),
            (r"^lm_head\.bias$", "cls.predictions.bias"),
            (r"^lm_head\.decoder\.", "cls.predictions.decoder."),
        ),
        unused_keys={"ForMultipleChoice": "classifier_dropout"},
        heads={"lm_head": {"hidden_act": "gelu"}},
        skips_padding=True,
    ),
}  # fmt: skip


def classes_of(config: Mapping[str, Any]) -> list[str]:
    """Return the names of classes in config.json."""
    names = config.get("architectures")
    return list(map(str, names)) if isinstance(names, list) else []


def find(config: Mapping[str, Any]) -> Family:
    """Return the family that a config names by its type, or else by its class; else `BERT`."""
    model_type = config.get("model_type")
    if model_type is not None:
        return FAMILIES.get(str(model_type), BERT)
    name = next(iter(classes_of(config)), "")
    for family in FAMILIES.values():
        if re.match(f"(TF|Flax)?{family.class_name}(Model|For)", name):
            return family
    return BERT


def bert_class(config: Mapping[str, Any]) -> str | None:
    """Return the class of BERT with the head of the class that a config names, or `None`.

    For example "BertForMaskedLM" for "TFElectraForMaskedLM".
    """
    names = classes_of(config)
    return re.sub(r"^\w*?(?=(?<!LMHead)Model$|For[A-Z])", "Bert", names[0]) if names else None


def bert_config(file: Path, family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a BERT with the same layers, without the width of the embeddings."""
    if family is BERT:
        return dict(config)
    names = classes_of(config)
    unused = {key for end, key in family.unused_keys.items() if names and names[0].endswith(end)}
    if family.has_embedding_size:
        unused.add("embedding_size")
    used = {key: value for key, value in config.items() if key not in unused}
    content = json_schema.renamed(file, used, family.keys)
    content.update(family.constants)
    content["model_type"] = "bert"
    content["architectures"] = [
        re.sub(f"^(TF|Flax)?{family.class_name}", "Bert", name) for name in names
    ]
    if not family.has_segments or content.get("type_vocab_size") == 1:
        content["type_vocab_size"] = 2
    positions = content.get("max_position_embeddings")
    if family.skips_padding and isinstance(positions, int):
        padding = config.get("pad_token_id", 1)
        if type(padding) is not int or padding < 0:
            raise invalid(file, "pad_token_id must be an id", padding)
        content["max_position_embeddings"] = positions - _first_position(config)
    return content


def embedding_size(
    file: Path, family: Family, config: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> int | None:
    """Return the width of the embeddings, or `None` if it is `hidden_size`."""
    if not family.has_embedding_size or _WORDS not in tensors:
        return None
    size = config.get("embedding_size", tensors[_WORDS].shape[-1])
    if size == config["hidden_size"]:
        return None
    if type(size) is not int or size < 1:
        raise invalid(file, "embedding_size must be a positive integer", size)
    return size


def bert_names(family: Family, names: Iterable[str]) -> dict[str, str]:
    """Return {name: name in a BERT}. A classifier's hidden layer takes the place of the pooler."""
    names = list(names)
    if family is BERT:
        return {name: name for name in names}
    has_hidden_layer = any(name.startswith("classifier.dense.") for name in names)
    left_out = {module for module, values in family.heads.items() if values is None}
    renamed = {}
    for source in names:
        name = re.sub(rf"^{family.prefix}\.", "bert.", source)
        if has_hidden_layer and re.match(r"(bert\.)?pooler\.", name):
            continue  # not used by the classifier; transformers no longer writes it
        if name.partition(".")[0] in left_out:
            continue
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
    words = tensors.get(_WORDS)
    if not family.has_segments and words is not None:
        zeros = np.zeros((1, *words.shape[1:]), np.float32)
        tensors.setdefault(_SEGMENTS, Tensor(zeros.shape, lambda: zeros))
    segments = tensors.get(_SEGMENTS)
    if segments is not None and segments.shape[:1] == (1,):
        shape = (2, *segments.shape[1:])
        tensors[_SEGMENTS] = Tensor(shape, lambda: np.repeat(segments.load(), 2, axis=0))
    positions = tensors.get(_POSITIONS)
    if family.skips_padding and positions is not None:
        first = _first_position(config)
        shape = (positions.shape[0] - first, *positions.shape[1:])
        tensors[_POSITIONS] = Tensor(shape, lambda: positions.load()[first:])
    return tensors


def _first_position(config: Mapping[str, Any]) -> int:
    """Return the position of the first token of a RoBERTa."""
    padding: int = config.get("pad_token_id", 1)
    return padding + 1


def check_padding(
    path: Path, family: Family, config: Mapping[str, Any], vocabulary: Sequence[str] | None
) -> None:
    """Raise a `ValueError` unless RoBERTa's `pad_token_id` is the id of [PAD].

    In transformers, each token with this id has the same position, also an [UNK] within the text.
    `path` is the folder of the vocabulary, which can be that of an adapter.
    """
    if not family.skips_padding or vocabulary is None:
        return
    padding = _first_position(config) - 1
    if vocabulary[padding : padding + 1] != ["[PAD]"]:
        token = vocabulary[padding] if padding < len(vocabulary) else None
        rule = f"its token {padding}, the pad_token_id in config.json, must be [PAD]"
        raise invalid(path, rule, token, "Correct pad_token_id, or copy the model's vocabulary")


def check_file(file: Path, family: Family) -> None:
    """Raise a `ValueError` for weights of TensorFlow, which are read only for BERT's classes."""
    if family is not BERT and file.suffix == ".h5":
        rule = "must be model.safetensors or pytorch_model.bin for this class"
        raise ValueError(f"{file}: {rule}. Convert it with transformers 4, from_tf=True")


def check_adapter(
    file: Path, family: Family, names: Iterable[str], added: Iterable[str], replaced: Iterable[str]
) -> None:
    """Raise a `ValueError` for an adapter of a BERT whose base is a model of another family.

    `names` has the names of the base's tensors, `added` and `replaced` those of the adapter.
    """
    if family is BERT:
        return
    prefix = f"{family.prefix}."
    plain_names = {name.rpartition(prefix)[2] for name in names}
    others = [name for name in added if name.rpartition(prefix)[2] not in plain_names]
    others += [name for name in replaced if name.startswith("bert.")]
    if others:
        advice = "Correct base_model_name_or_path"
        raise invalid(file, "an adapter must have the names of its base", others[0], advice)


def check_heads(
    file: Path, family: Family, config: Mapping[str, Any], names: Iterable[str]
) -> None:
    """Raise a `ValueError` for a head that is not BERT's; warn of a head that is left out.

    `names` has the names of the tensors in their file.
    """
    modules = {part for name in names for part in name.split(".")}
    for module, values in family.heads.items():
        if module not in modules:
            continue
        if values is None:
            warnings.warn(
                f"{file}: only the encoder is loaded, its head {module} is left out",
                stacklevel=level_of_caller(),
            )
            continue
        for key, value in values.items():
            if config.get(key, value) != value:
                rule = f"{key} must be {value} for the head {module}"
                raise invalid(file, rule, config[key])
