"""The canonical form: what every checkpoint format is read into and written from.

One table here says which tensors a BERT has and how large they are. Each format module holds one
more: the names under which it keeps them. Both are data, so that reading and writing follow the
same lines, and a new format is a new table.
"""

import dataclasses
import enum
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from keras_bert.runtime.terminal import printable

SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
# What a config that leaves these out means, to google-research/bert and to Hugging Face alike.
# Sizes have no default here: a guessed size would only come back as a puzzling wrong shape.
DEFAULTS: dict[str, Any] = {
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
CONFIG_KEYS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
)

# Canonical name -> shape. A kernel is (in, out). qkv is query, key and value side by side, so it is
# three times hidden wide. "labels" is free: the checkpoint itself says how many it has.
SHAPES: dict[str, tuple[str | int, ...]] = {
    "embeddings/word_embeddings/embeddings": ("vocab", "hidden"),
    "embeddings/position_embeddings/embeddings": ("positions", "hidden"),
    "embeddings/token_type_embeddings/embeddings": ("types", "hidden"),
    "embeddings/layer_norm/gamma": ("hidden",),
    "embeddings/layer_norm/beta": ("hidden",),
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
    "masked_lm/transform/kernel": ("hidden", "hidden"),
    "masked_lm/transform/bias": ("hidden",),
    "masked_lm/layer_norm/gamma": ("hidden",),
    "masked_lm/layer_norm/beta": ("hidden",),
    "masked_lm/output_bias": ("vocab",),
    "next_sentence/kernel": ("hidden", 2),
    "next_sentence/bias": (2,),
    "classifier/kernel": ("hidden", "labels"),
    "classifier/bias": ("labels",),
    "span_selector/kernel": ("hidden", 2),
    "span_selector/bias": (2,),
}
_SHOWN_NAMES = 100  # in an error
# A checkpoint has all of such a group or none of it. Everything else, the encoder, is always there.
OPTIONAL_GROUPS = frozenset({"pooler", "masked_lm", "next_sentence", "classifier", "span_selector"})


def check_sizes(
    file: object, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise an error for sizes in a config that the tensors beside it cannot have.

    Call it before anything is built: a config of a few bytes can ask for millions of layers.

    Args:
        file: Named in errors.
        config: Holds the keys of `SIZES`.
        shapes: Name -> shape of the tensors.

    Raises:
        ValueError: If a size is not a positive integer, is larger than every dimension of the
            tensors, or if there are more layers than tensors.

    Example:
        >>> config = dict.fromkeys(SIZES, 2) | {"num_hidden_layers": 3_000_000}
        >>> check_sizes("config.json", config, {"kernel": (2, 2)})
        Traceback (most recent call last):
        ...
        ValueError: config.json: num_hidden_layers must be a positive integer of at most 1, as \
large as the weights allow, received 3000000
    """
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    for key in SIZES:
        limit = len(shapes) if key == "num_hidden_layers" else largest
        size = config.get(key)
        if type(size) is not int or not 1 <= size <= limit:
            raise ValueError(
                f"{file}: {key} must be a positive integer of at most {limit}, as large as the "
                f"weights allow, received {size!r:.80}"
            )


def names(config: Mapping[str, Any]) -> list[str]:
    """All canonical names that a model of this size may have.

    Example:
        >>> [name for name in names({"num_hidden_layers": 2}) if name.endswith("output/bias")][:2]
        ['layer_0/attention/output/bias', 'layer_0/output/bias']
    """
    layers = range(config["num_hidden_layers"])
    first = next(index for index, name in enumerate(SHAPES) if "{i}" in name)
    plain = [name for name in SHAPES if "{i}" not in name]
    inner = [name.format(i=i) for i in layers for name in SHAPES if "{i}" in name]
    return [*plain[:first], *inner, *plain[first:]]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in canonical form.

    Args:
        format: Name of the format it was read from, a key of `checkpoints.FORMATS`; empty for the
            weights of a model in memory.
        path: The folder it was read from, for errors.
        config: Keyword arguments of `BertEncoder`, exactly the keys of `CONFIG_KEYS`.
        weights: Canonical name -> float32 array of the shape that `SHAPES` gives. Arrays may be
            transposed views, or may be read from the file each time (`Weights`).
        vocabulary: The pieces in the order of their ids, or None where the folder has none.
        tokenizer: `lowercase`, `strip_accents` and `split_cjk` (bools), and `sequence_length` in
            pieces, or None where the folder does not say.
        labels: Names of a fine-tuned classifier's classes, in the order of its logits, or None.
        task: Name of the function in `keras_bert.heads` that makes the model that these weights
            fill, or None where the folder does not say.
        multi_label: Whether each class of a classifier is a yes or no of its own.
    """

    format: str
    path: str
    config: dict[str, Any]
    weights: Mapping[str, np.ndarray]
    vocabulary: list[str] | None
    tokenizer: dict[str, Any]
    labels: list[str] | None
    task: str | None = None
    multi_label: bool = False

    @property
    def groups(self) -> set[str]:
        """Those of `OPTIONAL_GROUPS` that the weights hold."""
        return {name.partition("/")[0] for name in self.weights} & OPTIONAL_GROUPS

    def without(self, groups: Collection[str]) -> "Checkpoint":
        """The same without some of `OPTIONAL_GROUPS`.

        Raises:
            ValueError: If it has no such part.
        """
        for group in groups:
            if group not in self.groups:
                raise ValueError(
                    f"{self.path}: what is dropped must be one of its parts, "
                    f"{', '.join(sorted(self.groups)) or 'of which it has none'}; "
                    f"received {group!r}"
                )
        kept = {k: w for k, w in self.weights.items() if k.partition("/")[0] not in groups}
        whole = self.groups.isdisjoint(set(groups) - {"pooler"})
        return dataclasses.replace(self, weights=kept, task=self.task if whole else None)


class Variable(Protocol):
    """What `assign` needs of a variable; `keras.Variable` is one."""

    @property
    def shape(self) -> Any:
        """The sizes."""

    def assign(self, value: Any) -> Any:
        """Sets the value."""


class Layout(enum.Enum):
    """How a source keeps a tensor that is (in, out) or (out,) here."""

    SAME = "as it is here"
    TRANSPOSED = "(out, in)"
    HEADS_OUT = "(in, heads, size of a head), or (heads, size of a head)"
    HEADS_IN = "(heads, size of a head, out)"


class Rule(NamedTuple):
    """Where one canonical tensor is kept: its names in the source, and how it lies there.

    Several sources stand side by side along the last canonical axis.
    """

    sources: tuple[str, ...]
    layout: Layout


def rule(*sources: str, layout: Layout = Layout.SAME) -> Rule:
    """Writes one line of a name table; `{i}` in a name stands for the layer's number."""
    return Rule(sources, layout)


class Entry(NamedTuple):
    """One line of a table, expanded: layer numbers and sizes are filled in, None is any size."""

    name: str
    sources: tuple[str, ...]
    layout: Layout
    shape: tuple[int | None, ...]
    num_heads: int

    @property
    def group(self) -> str:
        """The part of the model that it belongs to, such as "layer_0" or "pooler"."""
        return self.name.partition("/")[0]

    @property
    def source_shape(self) -> tuple[int | None, ...]:
        """Shape of each of the sources."""
        *outer, last = self.shape
        part = (*outer, last if last is None else last // len(self.sources))
        if self.layout is Layout.SAME:
            return part
        if self.layout is Layout.TRANSPOSED:
            return part[::-1]
        if self.layout is Layout.HEADS_OUT:
            return (*part[:-1], *self._by_head(part[-1]))
        return (*self._by_head(part[0]), *part[1:])

    def _by_head(self, size: int | None) -> tuple[int, int | None]:
        return self.num_heads, size if size is None else size // self.num_heads

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """The canonical array of the sources' arrays; a view where one source is all of it."""
        if self.layout is Layout.TRANSPOSED:
            # (out, in) stand above each other, so a plain copy joins them.
            return (parts[0] if len(parts) == 1 else np.concatenate(parts)).T
        if self.layout in (Layout.HEADS_OUT, Layout.HEADS_IN):
            outer = [size for size in self.shape[:-1] if size is not None]
            parts = [part.reshape(*outer, -1) for part in parts]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)

    def split(self, array: np.ndarray) -> list[np.ndarray]:
        """What the sources hold, given the canonical array: the way back from `join`."""
        parts = np.split(array, len(self.sources), axis=-1)
        if self.layout is Layout.TRANSPOSED:
            return [part.T for part in parts]
        shape = tuple(-1 if size is None else size for size in self.source_shape)
        return [part.reshape(shape) for part in parts]


def expand(
    table: Mapping[str, Rule], config: Mapping[str, Any], labels: int | None = None
) -> list[Entry]:
    """Fills a format's name table in for one size of BERT.

    Args:
        table: Canonical name -> `Rule`, with `{i}` for the layer's number.
        config: Holds the keys of `SIZES`.
        labels: Number of classes of the classifier; None: any.

    Returns:
        The table's lines in its order, layer after layer.

    Example:
        >>> config = dict.fromkeys(SIZES, 2)
        >>> table = {"layer_{i}/attention/qkv/bias": rule("h.{i}.q", "h.{i}.k", "h.{i}.v")}
        >>> for entry in expand(table, config):
        ...     print(entry.name, entry.sources, entry.shape, entry.source_shape)
        layer_0/attention/qkv/bias ('h.0.q', 'h.0.k', 'h.0.v') (6,) (2,)
        layer_1/attention/qkv/bias ('h.1.q', 'h.1.k', 'h.1.v') (6,) (2,)
    """
    sizes: dict[str | int, int | None] = {
        "vocab": config["vocab_size"],
        "positions": config["max_position_embeddings"],
        "types": config["type_vocab_size"],
        "hidden": config["hidden_size"],
        "qkv": 3 * config["hidden_size"],
        "intermediate": config["intermediate_size"],
        "labels": labels,
        2: 2,
    }

    def entry(name: str, i: int | None = None) -> Entry:
        sources, layout = table[name]
        shape = tuple(sizes[size] for size in SHAPES[name])
        sources = tuple(source.format(i=i) for source in sources)
        return Entry(name.format(i=i), sources, layout, shape, config["num_attention_heads"])

    in_layers = [name for name in table if "{i}" in name]
    entries = []
    for name in table:
        if name not in in_layers:
            entries.append(entry(name))
        elif name == in_layers[0]:
            layers = range(config["num_hidden_layers"])
            entries += [entry(name, i) for i in layers for name in in_layers]
    return entries


class Weights(Mapping[str, np.ndarray]):
    """Canonical name -> array, read anew each time it is asked for.

    So a large model need not lie in memory twice on its way from a file to its variables.
    """

    def __init__(
        self, file: object, entries: Iterable[Entry], load: Callable[[str], np.ndarray]
    ) -> None:
        """As for `read_weights`; the entries are all there."""
        self._file, self._load = file, load
        self._entries = {entry.name: entry for entry in entries}

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self._entries[name]
        parts = [_to_float32(self._file, source, self._load(source)) for source in entry.sources]
        return entry.join(parts)

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # not by reading it

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def shape(self, name: str) -> tuple[int | None, ...]:
        """The shape of an array, without reading it."""
        return self._entries[name].shape


def read_weights(
    file: object,
    table: Mapping[str, Rule],
    config: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    load: Callable[[str], np.ndarray],
    *,
    lazy: bool = False,
) -> Mapping[str, np.ndarray]:
    """Turns a source's tensors into canonical weights; nothing is loaded unless all of it fits.

    Args:
        file: Named in errors.
        table: The format's name table.
        config: Sizes of the model.
        shapes: Source name -> shape, for every tensor of the source that is not to be ignored.
        load: Source name -> array.
        lazy: Whether arrays are loaded when they are asked for, each time: for sources of which
            each tensor can be read by itself.

    Returns:
        Canonical name -> float32 array, in the order of the table. Kernels that the source keeps
        transposed are views, so that a large model is not copied twice on its way to its variables.

    Raises:
        ValueError: If tensors are missing, unknown or of a wrong shape; all are listed at once.
            Also if a tensor does not hold floats.
    """
    check_sizes(file, config, shapes)
    labels = None
    if "classifier/bias" in table:
        (labels_name,) = table["classifier/bias"].sources
        labels = shapes[labels_name][0] if len(shapes.get(labels_name, ())) == 1 else None
    entries = expand(table, config, labels)
    found_groups = {e.group for e in entries if any(s in shapes for s in e.sources)}
    wanted = [e for e in entries if e.group in found_groups or e.group not in OPTIONAL_GROUPS]

    missing = [s for e in wanted for s in e.sources if s not in shapes]
    unknown = set(shapes).difference(*(e.sources for e in entries))
    wrong = [
        f"{s} (expected {_format_shape(e.source_shape)}, found {_format_shape(shapes[s])})"
        for e in wanted
        for s in e.sources
        if s in shapes and not _fits(shapes[s], e.source_shape)
    ]
    raise_if(
        file,
        "a checkpoint must hold exactly the tensors that its config calls for",
        missing=missing,
        unknown=sorted(unknown),
        **{"wrong shape": wrong},
    )

    weights = Weights(file, wanted, load)
    return weights if lazy else dict(weights)


def to_source(
    table: Mapping[str, Rule],
    config: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    *,
    format: str,
) -> dict[str, np.ndarray]:
    """Turns canonical weights into a format's tensors: the way back from `read_weights`.

    Args:
        table: The format's name table.
        config: Sizes of the model.
        weights: Canonical name -> array.
        format: Named in errors.

    Returns:
        Source name -> array, in the order of the table. Arrays may be views.

    Raises:
        ValueError: If the format has no place for a weight, or a weight of the encoder is missing.

    Example:
        >>> config = dict.fromkeys(SIZES, 2)
        >>> table = {"pooler/dense/kernel": rule("pool.weight", layout=Layout.TRANSPOSED)}
        >>> weights = {"pooler/dense/kernel": np.array([[1.0, 2.0], [3.0, 4.0]])}
        >>> to_source(table, config, weights, format="that")["pool.weight"].tolist()
        [[1.0, 3.0], [2.0, 4.0]]
    """
    bias = weights.get("classifier/bias")
    entries = expand(table, config, None if bias is None else len(bias))
    groups = {name.partition("/")[0] for name in weights}
    wanted = [e for e in entries if e.group in groups or e.group not in OPTIONAL_GROUPS]
    raise_if(
        format,
        "the format must have a place for each weight, and the model a weight for each place",
        missing=[e.name for e in wanted if e.name not in weights],
        homeless=[name for name in weights if name not in {e.name for e in entries}],
    )
    tensors: dict[str, np.ndarray] = {}
    for entry in wanted:
        tensors.update(zip(entry.sources, entry.split(weights[entry.name]), strict=True))
    return tensors


def assign(
    variables: Mapping[str, Variable],
    weights: Mapping[str, np.ndarray],
    *,
    source: str,
    ignore: Iterable[str] = (),
) -> None:
    """Fills variables with weights: each variable once, each weight once, or nothing at all.

    Args:
        variables: Canonical name -> variable.
        weights: Canonical name -> array, such as `Checkpoint.weights`.
        source: Where the weights are from; named in errors.
        ignore: Weights whose name starts with one of these may be left unused, such as
            "masked_lm/" for a model without that head.

    Raises:
        ValueError: If a variable gets no weight, or one of another shape, or a weight is left. All
            are listed, and nothing has been assigned. Also if a weight holds NaN or infinity.

    Example:
        >>> import types
        >>> values = []
        >>> bias = types.SimpleNamespace(shape=(2,), assign=values.append)
        >>> assign({"pooler/dense/bias": bias}, {"pooler/dense/bias": np.ones(2)}, source="here")
        >>> values
        [array([1., 1.])]
        >>> assign({"pooler/dense/bias": bias}, {"pooler/dense/bias": np.ones(3)}, source="here")
        Traceback (most recent call last):
        ...
        ValueError: here: weights and variables must match one to one; \
wrong shape (1): pooler/dense/bias (expected (2,), found (3,))
    """
    prefixes = tuple(ignore)
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}

    def found(name: str) -> tuple[int | None, ...]:
        return weights.shape(name) if isinstance(weights, Weights) else weights[name].shape

    raise_if(
        source,
        "weights and variables must match one to one",
        missing=[name for name in variables if name not in weights],
        unused=[
            name for name in weights if name not in variables and not name.startswith(prefixes)
        ],
        **{
            "wrong shape": [
                f"{name} (expected {shape}, found {found(name)})"
                for name, shape in shapes.items()
                if name in weights and found(name) != shape
            ]
        },
    )
    for name, variable in variables.items():
        weight = weights[name]
        check_numbers(source, name, weight)
        variable.assign(weight)


def check_numbers(source: object, name: str, array: np.ndarray) -> None:
    """Raise an error if an array holds NaN or infinity.

    Example:
        >>> check_numbers("a.bin", "pooler/dense/bias", np.array([1.0, np.nan]))
        Traceback (most recent call last):
        ...
        ValueError: a.bin: pooler/dense/bias must hold finite numbers, received NaN or infinity
    """
    # min and max propagate NaN; isfinite over the array would allocate a mask.
    if array.size and not (np.isfinite(array.min()) and np.isfinite(array.max())):
        raise ValueError(f"{source}: {name} must hold finite numbers, received NaN or infinity")


def read_config(
    file: Path,
    found: Mapping[str, Any],
    *,
    activations: Mapping[str, str],
    dropped: Collection[str],
    required_values: Mapping[str, Any],
) -> dict[str, Any]:
    """Turns a format's config into keyword arguments of `BertEncoder`.

    Args:
        file: Named in errors.
        found: What the file holds.
        activations: The format's name of an activation -> ours.
        dropped: Keys that do not change what the encoder computes.
        required_values: Keys that may be there, but only with this value.

    Returns:
        Exactly the keys of `CONFIG_KEYS`.

    Raises:
        ValueError: If a key is unknown or missing, or a value is not one that BERT can have.
    """
    for key, value in required_values.items():
        if found.get(key, value) != value:
            raise ValueError(
                f"{file}: {key} must be {value!r} for a BERT encoder, received {found[key]!r:.80}"
            )
    unknown = sorted(set(found).difference(CONFIG_KEYS, dropped, required_values))
    missing = [key for key in SIZES if key not in found]
    raise_if(
        file,
        "a BERT config must hold the sizes of the model and no key of unknown meaning",
        **{"missing keys": missing, "unknown keys": unknown},
    )
    config = {key: found[key] if key in found else DEFAULTS[key] for key in CONFIG_KEYS}
    for key in SIZES:
        if type(config[key]) is not int or config[key] < 1:
            raise ValueError(
                f"{file}: {key} must be a positive integer, received {config[key]!r:.80}"
            )
    for key in DEFAULTS.keys() - {"hidden_act"}:
        value = config[key]
        if type(value) not in (int, float) or not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{file}: {key} must be a number from 0 up, received {value!r:.80}")
    activation = config["hidden_act"]
    if not isinstance(activation, str) or activation not in activations:
        raise ValueError(
            f"{file}: hidden_act must be one of {', '.join(activations)}, received "
            f"{activation!r:.80}"
        )
    return {**config, "hidden_act": activations[activation]}


def to_source_activation(activation: str, names: Mapping[str, str], *, format: str) -> str:
    """A format's name of one of our activations, given its names as for `read_config`.

    Raises:
        ValueError: If the format has no such activation.

    Example:
        >>> to_source_activation("gelu_new", {"gelu": "gelu_new"}, format="that")
        'gelu'
        >>> to_source_activation("gelu", {"gelu": "gelu_new"}, format="that")
        Traceback (most recent call last):
        ...
        ValueError: that: hidden_act must be gelu_new, received 'gelu'; weights that were trained \
with Google's code, whose gelu is gelu_new, may be loaded with hidden_act="gelu_new"
    """
    found = next((name for name, ours in names.items() if ours == activation), None)
    if found is not None:
        return found
    known = ", ".join(dict.fromkeys(names.values()))
    hint = ""
    if activation == "gelu" and "gelu_new" in names.values():
        hint = (
            "; weights that were trained with Google's code, whose gelu is gelu_new, may be "
            'loaded with hidden_act="gelu_new"'
        )
    raise ValueError(f"{format}: hidden_act must be {known}, received {activation!r}{hint}")


def raise_if(source: object, requirement: str, **problems: list[str]) -> None:
    """Raises one ValueError of one line that lists every problem, if there is any.

    Example:
        >>> raise_if("a.bin", "must be whole", missing=["x", "y"], unknown=[])
        Traceback (most recent call last):
        ...
        ValueError: a.bin: must be whole; missing (2): x, y
    """
    listed = [f"{kind} ({len(n)}): {_listed(n)}" for kind, n in problems.items() if n]
    if listed:
        raise ValueError("; ".join([f"{source}: {requirement}", *listed]))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(printable(name, 200) for name in names[:_SHOWN_NAMES])
    return shown + (", ..." if len(names) > _SHOWN_NAMES else "")


def bfloat16_to_float32(bits: np.ndarray) -> np.ndarray:
    """Widens bfloat16, given as uint16 because NumPy has no such type, to float32.

    A bfloat16 is the upper half of a float32.

    Example:
        >>> bfloat16_to_float32(np.array([0x3F80, 0xC000], np.uint16))
        array([ 1., -2.], dtype=float32)
    """
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _to_float32(file: object, name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise ValueError(f"{file}: {name} must hold floats, received {array.dtype}")
    return array.astype(np.float32, copy=False)


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(
        e in (None, s) for s, e in zip(shape, expected, strict=True)
    )


def _format_shape(shape: tuple[int | None, ...]) -> str:
    return f"({', '.join('any' if size is None else str(size) for size in shape)})"
