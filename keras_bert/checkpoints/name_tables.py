"""Convert between a format's tensors, canonical weights, and the variables of a model.

Each format module has one name table: canonical name -> `Rule`. Reading and writing follow the same
table, so a new format needs only a new table.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from keras_bert.checkpoints import canonical
from keras_bert.runtime.escaping import printable


class Layout(enum.Enum):
    """Axes of a tensor in the source. The canonical axes are (in, out) or (out,)."""

    SAME = "the canonical axes"
    TRANSPOSED = "(out, in)"
    HEADS_OUT = "(in, heads, head size), or (heads, head size)"
    HEADS_IN = "(heads, head size, out)"


class Rule(NamedTuple):
    """Source names and layout of one canonical tensor.

    Several sources are concatenated along the last canonical axis.
    """

    sources: tuple[str, ...]
    layout: Layout


def rule(*sources: str, layout: Layout = Layout.SAME) -> Rule:
    """Return a row of a name table; `{i}` in a source name stands for the number of the layer."""
    return Rule(sources, layout)


class Entry(NamedTuple):
    """A row of a name table for one layer of one model. `None` in `shape` matches any size."""

    name: str
    sources: tuple[str, ...]
    layout: Layout
    shape: tuple[int | None, ...]
    num_heads: int

    @property
    def group(self) -> str:
        """Part of the model that the tensor belongs to, such as "layer_0" or "pooler"."""
        return canonical.group_of(self.name)

    @property
    def source_shape(self) -> tuple[int | None, ...]:
        """Shape of each source; `None` matches any size."""
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
        """Return the canonical array, given those of the sources; a view if there is one source."""
        if self.layout is Layout.TRANSPOSED:
            # Concatenating before transposing needs no copy with swapped axes.
            return (parts[0] if len(parts) == 1 else np.concatenate(parts)).T
        if self.layout in (Layout.HEADS_OUT, Layout.HEADS_IN):
            outer = [size for size in self.shape[:-1] if size is not None]
            parts = [part.reshape(*outer, -1) for part in parts]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)

    def split(self, array: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of the sources, given the canonical array: the inverse of `join`."""
        parts = np.split(array, len(self.sources), axis=-1)
        if self.layout is Layout.TRANSPOSED:
            return [part.T for part in parts]
        shape = tuple(-1 if size is None else size for size in self.source_shape)
        return [part.reshape(shape) for part in parts]


def expand(
    table: Mapping[str, Rule], config: Mapping[str, Any], labels: int | None = None
) -> list[Entry]:
    """Expand a name table for a model of the given sizes, layer by layer.

    `labels` is the number of classes of the classifier; `None` accepts any.
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
        shape = tuple(sizes[size] for size in canonical.SHAPES[name])
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
    """Canonical name -> float32 array. An array is loaded each time it is accessed.

    `load` reads an array by source name. Loading all arrays first would need the memory twice.
    """

    def __init__(
        self, file: object, entries: Iterable[Entry], load: Callable[[str], np.ndarray]
    ) -> None:
        self._file, self._load = file, load
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

    def shape(self, name: str) -> tuple[int | None, ...]:
        """Return the shape of an array without loading it."""
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
    """Convert a source's tensors to canonical name -> float32 array, in the order of the table.

    `shapes` has the shape of every tensor that is not ignored, and `load` returns a tensor, both by
    source name. All names and shapes are checked before a tensor is loaded, and one error lists
    all problems. Transposed kernels are views. If `lazy`, return `Weights`.
    """
    canonical.check_sizes(file, config, shapes)
    labels = None
    if "classifier/bias" in table:
        (labels_name,) = table["classifier/bias"].sources
        labels = shapes[labels_name][0] if len(shapes.get(labels_name, ())) == 1 else None
    entries = expand(table, config, labels)
    found_groups = {e.group for e in entries if any(s in shapes for s in e.sources)}
    optional = canonical.OPTIONAL_WEIGHTS.difference(
        e.name for e in entries if e.sources[0] in shapes
    )
    wanted = [e for e in entries if _is_wanted(e, found_groups, optional)]
    wrong = [
        f"{s} (expected {_format_shape(e.source_shape)}, found {_format_shape(shapes[s])})"
        for e in wanted
        for s in e.sources
        if s in shapes and not _fits(shapes[s], e.source_shape)
    ]
    known = {source for e in entries for source in e.sources}
    unknown = sorted(set(shapes) - known)
    hint = ""
    if unknown:
        ignore = canonical.patterns(unknown, known)
        hint = (
            f" (leave out unknown ones with keras_bert.load(name, ignore={ignore}), or keras-bert "
            "convert --ignore)"
        )
    canonical.raise_if(
        file,
        f"a checkpoint must hold exactly the tensors that its config calls for{hint}",
        missing=[s for e in wanted for s in e.sources if s not in shapes],
        unknown=unknown,
        **{"wrong shape": wrong},
    )
    weights = Weights(file, wanted, load)
    return weights if lazy else dict(weights)


def _is_wanted(entry: Entry, groups: Collection[str], optional: Collection[str]) -> bool:
    """Return True if a checkpoint with these groups must have a tensor that is not optional."""
    is_group_there = entry.group in groups or entry.group not in canonical.OPTIONAL_GROUPS
    return is_group_there and entry.name not in optional


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
    bias = weights.get("classifier/bias")
    entries = expand(table, config, None if bias is None else len(bias))
    groups = set(map(canonical.group_of, weights))
    optional = canonical.OPTIONAL_WEIGHTS.difference(weights)
    wanted = [e for e in entries if _is_wanted(e, groups, optional)]
    canonical.raise_if(
        format,
        "the weights must be those that the format stores",
        missing=[e.name for e in wanted if e.name not in weights],
        unsupported=[name for name in weights if name not in {e.name for e in entries}],
    )
    tensors: dict[str, np.ndarray] = {}
    for entry in wanted:
        tensors.update(zip(entry.sources, entry.split(weights[entry.name]), strict=True))
    return tensors


class Variable(Protocol):
    """The part of `keras.Variable` that `assign` uses."""

    @property
    def shape(self) -> Any:
        """The shape."""

    def assign(self, value: Any) -> Any:
        """Set the value."""


def assign(
    variables: Mapping[str, Variable],
    weights: Mapping[str, np.ndarray],
    *,
    source: str,
    ignore: Iterable[str] = (),
) -> None:
    """Assign weights to variables one to one, both by canonical name.

    Names and shapes are checked before the first assignment, finite numbers before each. `ignore`
    has prefixes of weights that may be unused, such as "masked_lm/" for a model without that head.
    """
    prefixes = tuple(ignore)
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}

    def found(name: str) -> tuple[int | None, ...]:
        return weights.shape(name) if isinstance(weights, Weights) else weights[name].shape

    canonical.raise_if(
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
        canonical.check_numbers(source, name, weight)
        variable.assign(weight)


def _to_float32(file: object, name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise ValueError(f"{file}: {printable(name, 200)} must hold floats, received {array.dtype}")
    return array.astype(np.float32, copy=False)


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(
        e in (None, s) for s, e in zip(shape, expected, strict=True)
    )


def _format_shape(shape: tuple[int | None, ...]) -> str:
    return f"({', '.join('any' if size is None else str(size) for size in shape)})"
