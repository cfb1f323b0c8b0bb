"""The canonical form of a checkpoint: names and shapes of weights, keys of the config.

Every format is converted to this form when it is read, and from this form when it is written.
"""

import dataclasses
import fnmatch
import re
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert.checkpoints import json_schema
from keras_bert.model_spec import HeadSpec, ModelSpec
from keras_bert.runtime import budget
from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.warn import level_of_caller
from keras_bert.runtime.words import words
from keras_bert.untrusted.errors import invalid

# Defaults of google-research/bert and Hugging Face. Sizes have no default: a wrong size would only
# show up later, as a wrong shape.
DEFAULTS: dict[str, Any] = {
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "embedding_size": None,
    "pooler_act": "tanh",
}
SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size",
)  # fmt: skip
CONFIG_KEYS = (*SIZES, *DEFAULTS)
USE_KERAS = "Use format='keras' (--to keras)"
# Only `families` reads models with other values than the default.
_ONLY_IN_FAMILIES = ("embedding_size", "pooler_act")

# Keys that change what a model computes, and the value for which they do not. Null does not either.
NEUTRAL_VALUES: dict[str, Any] = {
    "model_type": "bert",
    "is_decoder": False,
    "is_causal": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
    "quantization_config": {},
    "norm_first": False,
    "output_range": None,
}
# Parts of the names of other keys that, if they have a value, change what a model computes.
_OTHER_PARTS = re.compile(
    r"(^|_)(rotary|rope|alibi|pre_?norm|pre_?ln|rms_?norm|relative|moe|experts?|(ge|swi)?glu)(_|$)"
)
# Parts of the names of tensors that change what other tensors compute: adapters, quantization and
# parametrizations of PyTorch.
_CHANGES_OTHERS = re.compile(
    r"lora_|base_layer|adapter|ia3|magnitude_vector|prompt|prefix|parametrizations"
    r"|(^|[._])(SCB|scales?|zero_points?|zeros|g_idx|absmax|quant_\w+|weight_[gv])$",
    re.IGNORECASE,
)
# Keys of Google's pooler and of newer configs that the encoder does not use.
_UNUSED = words("""
    attention_window directionality pooler_fc_size pooler_num_attention_heads
    pooler_num_fc_layers pooler_size_per_head pooler_type
""")
_NO_VALUES: tuple[Any, ...] = (None, False, 0, -1, "", [], {})
# Sizes that only other models have -> the size of BERT that they must equal.
_EQUAL_SIZES = {
    "embedding_size": "hidden_size",
    "embedding_width": "hidden_size",
    "num_key_value_heads": "num_attention_heads",
}
# The activations of Keras. `leaky_relu` is not among them: its slope is 0.2 in Keras and 0.01 in
# PyTorch. Neither is `glu`, which halves the width.
KERAS_ACTIVATIONS = words("""
    celu elu exponential hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh linear
    log_sigmoid log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus
    softsign sparse_plus sparse_sigmoid sparsemax squareplus swish tanh tanh_shrink threshold
""")

# Canonical name -> shape. Kernels are (in, out). "qkv" is 3 * hidden: query, key and value,
# concatenated. "embedding" is `embedding_size`, or "hidden" without one. "labels" is the number of
# classes in the checkpoint.
SHAPES: dict[str, tuple[str | int, ...]] = {
    "embeddings/word_embeddings/embeddings": ("vocab", "embedding"),
    "embeddings/position_embeddings/embeddings": ("positions", "embedding"),
    "embeddings/token_type_embeddings/embeddings": ("types", "embedding"),
    "embeddings/layer_norm/gamma": ("embedding",),
    "embeddings/layer_norm/beta": ("embedding",),
    "embeddings/projection/kernel": ("embedding", "hidden"),
    "embeddings/projection/bias": ("hidden",),
    "layer_{i}/attention/qkv/kernel": ("hidden", "qkv"),
    "layer_{i}/attention/qkv/bias": ("qkv",),
    "layer_{i}/attention/output/kernel": ("hidden", "hidden"),
    "layer_{i}/attention/output/bias": ("hidden",),
    "layer_{i}/attention_layer_norm/gamma": ("hidden",),
    "layer_{i}/attention_layer_norm/beta": ("hidden",),
    "layer_{i}/intermediate/kernel": ("hidden", "intermediate"),
    "layer_{i}/intermediate/bias": ("intermediate",),
    "layer_{i}/output/kernel": ("intermediate", "hidden"),
    "layer_{i}/output/bias": ("hidden",),
    "layer_{i}/output_layer_norm/gamma": ("hidden",),
    "layer_{i}/output_layer_norm/beta": ("hidden",),
    "pooler/dense/kernel": ("hidden", "hidden"),
    "pooler/dense/bias": ("hidden",),
    "masked_lm/transform/kernel": ("hidden", "embedding"),
    "masked_lm/transform/bias": ("embedding",),
    "masked_lm/layer_norm/gamma": ("embedding",),
    "masked_lm/layer_norm/beta": ("embedding",),
    "masked_lm/output_bias": ("vocab",),
    "masked_lm/output_embeddings": ("vocab", "embedding"),
    "next_sentence/kernel": ("hidden", 2),
    "next_sentence/bias": (2,),
    "classifier/kernel": ("hidden", "labels"),
    "classifier/bias": ("labels",),
    "span_selector/kernel": ("hidden", 2),
    "span_selector/bias": (2,),
}
_SHOWN_NAMES = 5  # in an error
_SHOWN_KEYS = 30  # in a warning
# A checkpoint has all weights of such a group or none. All other weights are required.
OPTIONAL_GROUPS = frozenset({"pooler", "masked_lm", "next_sentence", "classifier", "span_selector"})
# Group of the weights of the layers after the pooling of an embedder.
VECTOR_LAYERS = "vector_layers"
HEADS = OPTIONAL_GROUPS - {"pooler"} | {VECTOR_LAYERS}
# Not in every checkpoint that has the group: most use the word embeddings as output matrix.
OPTIONAL_WEIGHTS = frozenset({"masked_lm/output_embeddings"})


def check_sizes(
    file: object, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Check that the sizes in a config are not larger than the tensors allow.

    Call this before anything is built: a small config can ask for millions of layers. `file` is
    for error messages; `shapes` maps names of tensors to shapes.
    """
    budget.check(len(shapes), "tensors", budget.MAX_OBJECTS, file)
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    for key in SIZES:
        limit = min(len(shapes), budget.MAX_LAYERS) if key == "num_hidden_layers" else largest
        if config[key] > limit:
            raise invalid(file, f"{key} must be at most {limit} for these weights", config[key])


def is_name(name: str) -> bool:
    """Return True for the canonical name of a tensor, such as "layer_0/output/bias"."""
    is_known = re.sub(r"^layer_\d+/", "layer_{i}/", name) in SHAPES
    return is_known or group_of(name) == VECTOR_LAYERS


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in canonical form: the description of a model, and its weights.

    Attributes:
        format: A key of `checkpoints.FORMATS`; empty for a model in memory.
        path: Folder of the checkpoint, for error messages.
        spec: The description of the model.
        weights: Canonical name -> float32 array with the shape in `SHAPES`. Arrays may be
            transposed views, or loaded on each access (`name_tables.Weights`). Those of
            `spec.head.layers` have the names of `vector_layer_name`.
        head_problem: Why the head could not be read, or `None`.
    """

    format: str
    path: str
    spec: ModelSpec
    weights: Mapping[str, np.ndarray]
    head_problem: Exception | None = None

    @property
    def groups(self) -> set[str]:
        """The groups of `OPTIONAL_GROUPS` that the checkpoint has."""
        return set(map(group_of, self.weights)) & OPTIONAL_GROUPS

    def with_head(self, **changes: Any) -> "Checkpoint":
        """Return a copy with other options of the head."""
        return dataclasses.replace(self, spec=self.spec.with_head(**changes))

    def with_activation(self, hidden_act: str | None) -> "Checkpoint":
        """Return a copy with another activation; `None` keeps the activation.

        The activation of a SavedModel can be unknown. Then it must be given.
        """
        if hidden_act is None and self.spec.encoder["hidden_act"] is None:
            raise ValueError(
                f"{self.path}: its graph does not show which activation the model has. Pass "
                'hidden_act="gelu_new" (--hidden-act) for one of Google\'s models, or that of the '
                "model's training"
            )
        if hidden_act is None:
            return self
        encoder = {**self.spec.encoder, "hidden_act": hidden_act}
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, encoder=encoder))

    def without(self, groups: Collection[str]) -> "Checkpoint":
        """Return a copy without some of `OPTIONAL_GROUPS` and the options of their heads."""
        if not groups:
            return self
        unknown = sorted(set(groups) - self.groups)
        if unknown:
            parts = ", ".join(sorted(self.groups)) or "no parts"
            raise invalid(self.path, f"drop: this checkpoint has only {parts}", unknown[0])
        kept = {k: w for k, w in self.weights.items() if group_of(k) not in groups}
        spec = self.spec
        if "pooler" in groups:
            encoder = {**spec.encoder, "pooler_act": DEFAULTS["pooler_act"]}
            spec = dataclasses.replace(spec, encoder=encoder)
        if not self.groups.isdisjoint(set(groups) - {"pooler"}):
            keeps_masked_lm = "masked_lm" in self.groups and "masked_lm" not in groups
            head = HeadSpec(tied=spec.head.tied) if keeps_masked_lm else HeadSpec()
            spec = dataclasses.replace(spec, head=head)
        return dataclasses.replace(self, spec=spec, weights=kept)

    def without_vector_layers(self) -> "Checkpoint":
        """Return a copy without the weights of the layers after the pooling of an embedder."""
        names = [name for name in self.weights if group_of(name) != VECTOR_LAYERS]
        return dataclasses.replace(self, weights={name: self.weights[name] for name in names})


# A function that returns a checkpoint with its head if the argument is True, or else the encoder.
ReadPart = Callable[[bool], Checkpoint]


def with_head_or_problem(read_part: ReadPart) -> Checkpoint:
    """Return a checkpoint, or else its encoder with the reason why its head cannot be read."""
    try:
        return read_part(True)
    except ImportError:
        raise
    except Exception as error:  # also of types that only damaged files cause
        problem = error
    return dataclasses.replace(read_part(False), head_problem=problem)


def vector_layer_name(index: int, variable: str) -> str:
    """Return the canonical name of a variable of a layer after the pooling of an embedder."""
    return f"{VECTOR_LAYERS}/{index}/{variable}"


def without_ignored(
    file: object, tensors: Mapping[str, Any], ignore: Collection[str]
) -> dict[str, Any]:
    """Return the tensors whose names match none of the patterns `ignore`, as in `fnmatch`.

    A pattern that matches no tensor is an error. `file` is for error messages.
    """
    kept = dict(tensors)
    for pattern in ignore:
        matching = [name for name in tensors if fnmatch.fnmatchcase(name, pattern)]
        if not matching:
            raise invalid(file, "each pattern of ignore must match a tensor", pattern)
        for name in matching:
            _check_ignored(file, name)
            kept.pop(name, None)
    return kept


def _check_ignored(file: object, name: str) -> None:
    """Raise a `ValueError` for a tensor that cannot be left out: another one depends on it."""
    if _CHANGES_OTHERS.search(name):
        raise ValueError(
            f"{file}: ignore must not leave out {shown(name, 200)}, which changes what other "
            "weights compute. Merge adapters and undo quantization with the library that wrote "
            "them"
        )


def group_of(name: str) -> str:
    """Return the part of the model that a tensor belongs to, such as "layer_0" or "pooler"."""
    return name.partition("/")[0]


def without_heads(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights of the encoder, its pooler included."""
    return {name: array for name, array in weights.items() if group_of(name) not in HEADS}


def check_numbers(source: object, name: str, array: np.ndarray) -> None:
    """Raise a `ValueError` if an array holds NaN or infinity."""
    # min and max propagate NaN; isfinite over the array would allocate a mask.
    if array.size and not (np.isfinite(array.min()) and np.isfinite(array.max())):
        raise ValueError(f"{source}: {name} must hold finite numbers, received NaN or infinity")


def read_config(
    file: object,
    content: Mapping[str, Any],
    activations: Mapping[str, str],
    silent: Collection[str] = (),
) -> dict[str, Any]:
    """Convert a format's config to keyword arguments of `BertEncoder`: exactly `CONFIG_KEYS`.

    `activations` maps names in the format to canonical names; other names are those of Keras. Keys
    that would change what the model computes are errors. One warning lists the other keys that
    BERT does not have, except for those in `silent`, which the format's own library writes.
    """
    _check_keys(file, content)
    missing = [key for key in SIZES if key not in content]
    raise_if(file, "a BERT config must hold the sizes of the model", {"missing keys": missing})
    unused = sorted(
        set(content).difference(CONFIG_KEYS, NEUTRAL_VALUES, _EQUAL_SIZES, _UNUSED, silent)
    )
    if unused:
        listed = ", ".join(printable(key, 200) for key in unused[:_SHOWN_KEYS])
        more = ", ..." if len(unused) > _SHOWN_KEYS else ""
        warnings.warn(
            f"{file}: ignored keys that BERT does not have: {listed}{more}",
            stacklevel=level_of_caller(),
        )
    config = {key: content.get(key, DEFAULTS.get(key)) for key in CONFIG_KEYS}
    for key, value in config.items():
        if key in SIZES and (type(value) is not int or value < 1):
            raise invalid(file, f"{key} must be a positive integer", value)
        if type(DEFAULTS.get(key)) is float and not _is_rate(value):
            raise invalid(file, f"{key} must be a number of at least 0", value)
    activation = config["hidden_act"]
    names = sorted({*activations, *KERAS_ACTIVATIONS})
    if activation not in names:
        raise invalid(file, f"hidden_act must be one of {', '.join(names)}", activation)
    config["hidden_act"] = activations.get(activation, activation)
    return config | {key: DEFAULTS[key] for key in _ONLY_IN_FAMILIES}


def check_is_bert(config: Mapping[str, Any], *, format: str) -> None:
    """Raise a `ValueError` for values that only models of `families` have, and no format."""
    schema = {"pooler_act": DEFAULTS["pooler_act"], "embedding_size": config["hidden_size"]}
    of = "in a BERT, whose embeddings are as wide as its layers and whose pooler has tanh"
    json_schema.check(format, config, schema, of=of, advice=USE_KERAS)


def without_family_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without the keys that no format has."""
    return {key: value for key, value in config.items() if key not in _ONLY_IN_FAMILIES}


def _is_rate(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= sys.float_info.max


def _check_keys(file: object, content: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for a key that changes what a BERT computes."""
    equal = {key: content.get(size) for key, size in _EQUAL_SIZES.items()}
    json_schema.check(file, content, NEUTRAL_VALUES | equal, of="for a BERT encoder")
    for key, value in content.items():
        if _OTHER_PARTS.search(key) and value not in _NO_VALUES:
            rule = f"{printable(key, 200)} must be null or false for a BERT encoder"
            raise invalid(file, rule, value)


def to_source_activation(activation: str, names: Mapping[str, str], *, format: str) -> str:
    """Return a format's name of an activation; `names` maps such names to canonical names."""
    source_name = next((name for name, ours in names.items() if ours == activation), None)
    if source_name is not None:
        return source_name
    advice = USE_KERAS
    if activation == "gelu" and "gelu_new" in names.values():
        advice += (
            ". Only for weights from Google's code, load the model with "
            'hidden_act="gelu_new" (--hidden-act)'
        )
    known = ", ".join(dict.fromkeys(names.values()))
    raise invalid(format, f"hidden_act must be {known}", activation, advice)


def check_layer_norm_eps(value: float, owner: str, *, format: str) -> None:
    """Raise a `ValueError` unless a `layer_norm_eps` is the constant in the code of `owner`."""
    if value != DEFAULTS["layer_norm_eps"]:
        raise invalid(format, f"layer_norm_eps must be 1e-12, the constant in {owner}", value)


def raise_if(source: object, requirement: str, problems: Mapping[str, Sequence[str]]) -> None:
    """Raise one `ValueError` that lists all problems, if there are any.

    `source` names the file or model, `requirement` is the broken rule. `problems` maps a kind of
    problem to the names of the tensors or keys, of which at most five are listed.
    """
    listed = []
    for kind, names in problems.items():
        if names:
            first_names = [printable(name, 200) for name in names[:_SHOWN_NAMES]]
            more = ["..."] if len(names) > _SHOWN_NAMES else []
            listed.append(f"{kind} ({len(names)}): {', '.join([*first_names, *more])}")
    if listed:
        raise ValueError("; ".join([f"{source}: {requirement}", *listed]))


def patterns(names: Sequence[str], others: Collection[str] = ()) -> list[str]:
    """Return the shortest patterns, at most five, that match names and none of `others`.

    For example "cls.chain.*" for "cls.chain.0.weight" if "cls.predictions.bias" is another name.
    """
    shortest: list[str] = []
    for name in names:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in shortest):
            continue
        if len(shortest) == _SHOWN_NAMES:
            return [*shortest, "..."]
        prefixes = (name[: match.end()] for match in re.finditer(r"[./]", name))
        own = (
            f"{prefix}*"
            for prefix in prefixes
            if not any(other.startswith(prefix) for other in others)
        )
        shortest.append(printable(next(own, name), 200))
    return shortest
