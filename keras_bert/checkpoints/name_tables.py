"""Convert between a format's tensors, canonical weights, and the variables of a model.

Each format module has one name table: canonical name -> `Rule`. Reading and writing follow the same
table, so a new format needs only a new table.
"""

import enum
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_bert.checkpoints import canonical
from keras_bert.runtime.escaping import printable


class Layout(enum.Enum):
    """Axes of a tensor in the source. The canonical axes are (in, out) or (out,)."""

    SAME = "the canonical axes"
    TRANSPOSED = "(out, in)"
    HEADS_OUT = "(in, heads, head size), or (heads, head size)"
    HEADS_IN = "(heads, head size, out)"


# Layouts of formats whose attention layers have one axis for the heads.
BY_HEAD = {
    "layer_{i}/attention/qkv/kernel": Layout.HEADS_OUT,
    "layer_{i}/attention/qkv/bias": Layout.HEADS_OUT,
    "layer_{i}/attention/output/kernel": Layout.HEADS_IN,
}


# Parts of the names of tensors that belong to an encoder or change what it computes.
_PART_OF_ENCODER = re.compile(
    r"(^|[./])(bert|encoder|layer(_?\d+)?|\w*embeddings?|(lora|adapter|prompt|prefix)\w*)([./]|$)"
)


class Rule(NamedTuple):
    """Source names and layout of one canonical tensor.

    Several sources are concatenated along the last canonical axis.
    """

    sources: tuple[str, ...]
    layout: Layout = Layout.SAME


def table(
    names: Mapping[str, str],
    *,
    variables: Mapping[str, str] | None = None,
    separator: str = "/",
    layouts: Mapping[str, Layout] | None = None,
) -> dict[str, Rule]:
    """Return a name table for a format whose tensors are named "module" + separator + "variable".

    Args:
        names: Canonical name of a module or of a tensor -> its name in the format. `{i}` stands for
            the number of the layer, and `{qkv}` for "query", "key" and "value".
        variables: Canonical name of a variable, such as "gamma" -> its name if it differs.
        separator: What stands before the name of a variable.
        layouts: Canonical name -> layout, if it is not `Layout.SAME`.
    """
    rules = {}
    for name in canonical.SHAPES:
        module, _, variable = name.rpartition("/")
        if name in names:
            source = names[name]
        elif module in names:
            source = names[module] + separator + (variables or {}).get(variable, variable)
        else:
            continue
        parts = ("query", "key", "value") if "{qkv}" in source else ("",)
        sources = tuple(source.replace("{qkv}", part) for part in parts)
        rules[name] = Rule(sources, (layouts or {}).get(name, Layout.SAME))
    return rules


class Entry(NamedTuple):
    """A row of a name table for one layer of one model."""

    name: str
    sources: tuple[str, ...]
    layout: Layout
    shape: tuple[int, ...]
    num_heads: int

    @property
    def source_shape(self) -> tuple[int, ...]:
        """Shape of each source."""
        *outer, last = self.shape
        part = (*outer, last // len(self.sources))
        if self.layout is Layout.SAME:
            return part
        if self.layout is Layout.TRANSPOSED:
            return part[::-1]
        if self.layout is Layout.HEADS_OUT:
            return (*part[:-1], self.num_heads, part[-1] // self.num_heads)
        return (self.num_heads, part[0] // self.num_heads, *part[1:])

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return the canonical array, given those of the sources; a view if there is one source."""
        if self.layout is Layout.TRANSPOSED:
            # Concatenating before transposing needs no copy with swapped axes.
            return (parts[0] if len(parts) == 1 else np.concatenate(parts)).T
        if self.layout is not Layout.SAME:
            parts = [part.reshape(*self.shape[:-1], -1) for part in parts]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)

    def split(self, array: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of the sources, given the canonical array: the inverse of `join`."""
        parts = np.split(array, len(self.sources), axis=-1)
        if self.layout is Layout.TRANSPOSED:
            return [part.T for part in parts]
        return [part.reshape(self.source_shape) for part in parts]


def expand(table: Mapping[str, Rule], config: Mapping[str, Any], labels: int) -> list[Entry]:
    """Expand a name table for a model of the given sizes and number of classes."""
    sizes: dict[str | int, int] = {
        "vocab": config["vocab_size"],
        "positions": config["max_position_embeddings"],
        "types": config["type_vocab_size"],
        "hidden": config["hidden_size"],
        "embedding": config["embedding_size"] or config["hidden_size"],
        "qkv": 3 * config["hidden_size"],
        "intermediate": config["intermediate_size"],
        "labels": labels,
        2: 2,
    }
    entries = []
    for name, rule in table.items():
        if name.startswith("embeddings/projection/") and config["embedding_size"] is None:
            continue
        shape = tuple(sizes[size] for size in canonical.SHAPES[name])
        for i in range(config["num_hidden_layers"] if "{i}" in name else 1):
            sources = tuple(source.format(i=i) for source in rule.sources)
            heads = config["num_attention_heads"]
            entries.append(Entry(name.format(i=i), sources, rule.layout, shape, heads))
    return entries


class Weights(Mapping[str, np.ndarray]):
    """Canonical name -> float32 array. An array is loaded each time it is accessed.

    `load` reads an array by source name. Loading all arrays first would need the memory twice.
    """

    def __init__(
        self, file: object, entries: Iterable[Entry], load: Callable[[str], np.ndarray]
    ) -> None:
        self._file = file
        self._load = load
        self._entries = {entry.name: entry for entry in entries}

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self._entries[name]
        parts = [_to_float32(self._file, source, self._load(source)) for source in entry.sources]
        return entry.join(parts)

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # The default implementation would load the array.

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def read_weights(
    file: object,
    table: Mapping[str, Rule],
    config: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    load: Callable[[str], np.ndarray],
    *,
    heads: bool = True,
    inside: Collection[str] = (),
) -> Weights:
    """Return the canonical weights of a source, in the order of the table.

    `shapes` has the shape of every tensor that is not ignored, and `load` returns a tensor, both by
    source name. All names and shapes are checked, and one error lists all problems. `inside` has
    the names of encoder tensors that the patterns miss. Without `heads`, only the tensors of the
    encoder are checked and returned.
    """
    canonical.check_sizes(file, config, shapes)
    inside = {*inside, *_names_in_encoder(table, shapes)}
    if not heads:
        shapes = {name: shape for name, shape in shapes.items() if name in inside}
    bias = table["classifier/bias"].sources[0] if "classifier/bias" in table else ""
    labels = shapes[bias][0] if shapes.get(bias) else 0
    entries = expand(table, config, labels)
    known = {source for entry in entries for source in entry.sources}
    wanted = _wanted(entries, shapes)
    shape_of = {source: entry.source_shape for entry in wanted for source in entry.sources}
    unknown = sorted(set(shapes) - known)
    rule = "a checkpoint must hold exactly the tensors that its config calls for"
    not_bert = [name for name in unknown if name in inside]
    if not_bert:
        rule += (
            " (these are parts of the encoder; merge adapters and undo quantization with the "
            "library that wrote them)"
        )
    elif unknown:
        ignore = canonical.patterns(unknown, known)
        rule += (
            f" (leave out unknown ones with keras_bert.load(name, ignore={ignore}), or keras-bert "
            "convert --ignore)"
        )
    problems = {
        "missing": [source for source in shape_of if source not in shapes],
        "unknown": not_bert or unknown,
        "wrong shape": [
            f"{source} (expected {shape}, found {shapes[source]})"
            for source, shape in shape_of.items()
            if shapes.get(source, shape) != shape
        ],
    }
    canonical.raise_if(file, rule, problems)
    return Weights(file, wanted, load)


def _names_in_encoder(table: Mapping[str, Rule], names: Iterable[str]) -> list[str]:
    """Return the names of tensors that are, or may be, a part of the encoder.

    They begin as those of the encoder in the table, or have a part such as "embeddings" or "lora".
    """
    first_parts = {
        _first_part(source)
        for name, rule in table.items()
        if canonical.group_of(name) not in canonical.HEADS
        for source in rule.sources
    }
    return [
        name for name in names if _first_part(name) in first_parts or _PART_OF_ENCODER.search(name)
    ]


def _first_part(name: str) -> str:
    return re.split("[./:]", name, maxsplit=1)[0]


def _wanted(entries: Iterable[Entry], sources: Collection[str]) -> list[Entry]:
    """Return what a model must have: the encoder, and each group of which a part is present."""
    present = {entry.name for entry in entries if not set(entry.sources).isdisjoint(sources)}
    absent = canonical.OPTIONAL_GROUPS - set(map(canonical.group_of, present))
    absent |= canonical.OPTIONAL_WEIGHTS - present
    return [
        entry
        for entry in entries
        if entry.name not in absent and canonical.group_of(entry.name) not in absent
    ]


def to_source(
    table: Mapping[str, Rule],
    config: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    *,
    format: str,
) -> dict[str, np.ndarray]:
    """Convert canonical weights to source name -> array: the inverse of `read_weights`.

    Arrays may be views, in the order of the table. `format` is for error messages.
    """
    entries = {entry.name: entry for entry in expand(table, config, labels=-1)}
    # A format may store vector layers elsewhere; if it loses them, `comparison` names `layers`.
    unsupported = [
        name
        for name in weights
        if name not in entries and canonical.group_of(name) != canonical.VECTOR_LAYERS
    ]
    rule = "the weights must be those that the format stores"
    canonical.raise_if(format, rule, {"unsupported": unsupported})
    tensors: dict[str, np.ndarray] = {}
    for name, entry in entries.items():
        if name in weights:
            tensors.update(zip(entry.sources, entry.split(weights[name]), strict=True))
    return tensors


def assign(
    variables: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    *,
    source: str,
    ignore: Iterable[str] = (),
) -> None:
    """Assign weights to variables of Keras one to one, both by canonical name.

    Names are checked before the first assignment, shapes and finite numbers before each. `ignore`
    has prefixes of weights that may be unused, such as "masked_lm/" for a model without that head.
    """
    ignored = tuple(ignore)
    unused = [name for name in weights if name not in variables]
    problems = {
        "missing": [name for name in variables if name not in weights],
        "unused": [name for name in unused if not name.startswith(ignored)],
    }
    canonical.raise_if(source, "weights and variables must match one to one", problems)
    for name, variable in variables.items():
        weight = weights[name]
        if weight.shape != tuple(variable.shape):
            rule = f"{name} must have the shape {tuple(variable.shape)}"
            raise ValueError(f"{source}: {rule}, received {weight.shape}")
        canonical.check_numbers(source, name, weight)
        variable.assign(weight)


def _to_float32(file: object, name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise ValueError(f"{file}: {printable(name, 200)} must hold floats, received {array.dtype}")
    return array.astype(np.float32, copy=False)
