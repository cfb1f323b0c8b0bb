"""Convert between a format's tensors, canonical weights, and the variables of a model.

Each format module has one name table: canonical name -> `Rule`. Reading and writing follow the same
table, so a new format needs only a new table.
"""

import enum
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


class Rule(NamedTuple):
    """Source names and layout of one canonical tensor.

    Several sources are concatenated along the last canonical axis.
    """

    sources: tuple[str, ...]
    layout: Layout


def rule(*sources: str, layout: Layout = Layout.SAME) -> Rule:
    """Return a row of a name table; `{i}` in a source name stands for the number of the layer."""
    return Rule(sources, layout)


# Layouts of formats whose attention layers have one axis for the heads.
BY_HEAD = {
    "layer_{i}/attention/qkv/kernel": Layout.HEADS_OUT,
    "layer_{i}/attention/qkv/bias": Layout.HEADS_OUT,
    "layer_{i}/attention/output/kernel": Layout.HEADS_IN,
}


def table(
    modules: Mapping[str, str | tuple[str, ...]],
    others: Mapping[str, Rule] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    separator: str = "/",
    layouts: Mapping[str, Layout] | None = None,
) -> dict[str, Rule]:
    """Return a name table for a format whose tensors are named "module" + separator + "variable".

    Args:
        modules: Canonical name of a module -> its name in the format, or names to concatenate.
        others: Rules of the tensors with other names.
        variables: Canonical name of a variable, such as "gamma" -> its name if it differs.
        separator: What stands before the name of a variable.
        layouts: Canonical name -> layout, if it is not `Layout.SAME`.
    """
    rules = {}
    for name in canonical.SHAPES:
        module, _, variable = name.rpartition("/")
        if others and name in others:
            rules[name] = others[name]
        elif module in modules:
            sources = modules[module]
            sources = (sources,) if isinstance(sources, str) else sources
            end = separator + (variables or {}).get(variable, variable)
            layout = (layouts or {}).get(name, Layout.SAME)
            rules[name] = rule(*(f"{source}{end}" for source in sources), layout=layout)
    return rules


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
    """Expand a name table for a model of the given sizes.

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

    entries = []
    for name, rule_ in table.items():
        shape = tuple(sizes[size] for size in canonical.SHAPES[name])
        for i in range(config["num_hidden_layers"] if "{i}" in name else 1):
            sources = tuple(source.format(i=i) for source in rule_.sources)
            heads = config["num_attention_heads"]
            entries.append(Entry(name.format(i=i), sources, rule_.layout, shape, heads))
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
    known = {source for entry in entries for source in entry.sources}
    present = {entry.name for entry in entries if not set(entry.sources).isdisjoint(shapes)}
    wanted = _wanted(entries, present)
    shape_of = {source: entry.source_shape for entry in wanted for source in entry.sources}
    unknown = sorted(set(shapes) - known)
    rule = "a checkpoint must hold exactly the tensors that its config calls for"
    if unknown:
        ignore = canonical.patterns(unknown, known)
        rule += (
            f" (leave out unknown ones with keras_bert.load(name, ignore={ignore}), or keras-bert "
            "convert --ignore)"
        )
    problems = {
        "missing": [source for source in shape_of if source not in shapes],
        "unknown": unknown,
        "wrong shape": _wrong_shapes(shape_of, shapes),
    }
    canonical.raise_if(file, rule, problems)
    weights = Weights(file, wanted, load)
    return weights if lazy else dict(weights)


def _wanted(entries: Iterable[Entry], present: Collection[str]) -> list[Entry]:
    """Return what a model must have: the encoder, and each group of which a part is present."""
    groups = set(map(canonical.group_of, present))
    return [
        entry
        for entry in entries
        if entry.name in present
        or entry.group not in canonical.OPTIONAL_GROUPS
        or (entry.group in groups and entry.name not in canonical.OPTIONAL_WEIGHTS)
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
    bias = weights.get("classifier/bias")
    entries = expand(table, config, None if bias is None else len(bias))
    known = {entry.name for entry in entries}
    wanted = _wanted(entries, weights)
    problems = {
        "missing": [entry.name for entry in wanted if entry.name not in weights],
        "unsupported": [name for name in weights if name not in known],
        "wrong shape": _wrong_shapes(
            {entry.name: entry.shape for entry in entries},
            {name: _shape(weights, name) for name in weights},
        ),
    }
    canonical.raise_if(format, "the weights must be those that the format stores", problems)
    tensors: dict[str, np.ndarray] = {}
    for entry in wanted:
        tensors.update(zip(entry.sources, entry.split(weights[entry.name]), strict=True))
    return tensors


def assign(
    variables: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    *,
    source: str,
    ignore: Iterable[str] = (),
) -> None:
    """Assign weights to variables of Keras one to one, both by canonical name.

    Names and shapes are checked before the first assignment, finite numbers before each. `ignore`
    has prefixes of weights that may be unused, such as "masked_lm/" for a model without that head.
    """
    prefixes = tuple(ignore)
    shape_of = {name: tuple(variable.shape) for name, variable in variables.items()}
    used = [name for name in weights if name in variables]
    unused = [name for name in weights if name not in variables]
    problems = {
        "missing": [name for name in variables if name not in weights],
        "unused": [name for name in unused if not name.startswith(prefixes)],
        "wrong shape": _wrong_shapes(shape_of, {name: _shape(weights, name) for name in used}),
    }
    canonical.raise_if(source, "weights and variables must match one to one", problems)
    for name, variable in variables.items():
        weight = weights[name]
        canonical.check_numbers(source, name, weight)
        variable.assign(weight)


def _shape(weights: Mapping[str, np.ndarray], name: str) -> tuple[int | None, ...]:
    return weights.shape(name) if isinstance(weights, Weights) else weights[name].shape


def _to_float32(file: object, name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise ValueError(f"{file}: {printable(name, 200)} must hold floats, received {array.dtype}")
    return array.astype(np.float32, copy=False)


def _wrong_shapes(
    expected: Mapping[str, tuple[int | None, ...]], shapes: Mapping[str, tuple[int | None, ...]]
) -> list[str]:
    """Return a description of each tensor with a wrong shape. `None` matches any size."""
    wrong = []
    for name, shape in expected.items():
        if name in shapes and not _fits(shapes[name], shape):
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            wanted += "," if len(shape) == 1 else ""
            wrong.append(f"{name} (expected ({wanted}), found {shapes[name]})")
    return wrong


def _fits(shape: tuple[int | None, ...], expected: tuple[int | None, ...]) -> bool:
    pairs = zip(shape, expected, strict=False)
    return len(shape) == len(expected) and all(wanted in (None, size) for size, wanted in pairs)
