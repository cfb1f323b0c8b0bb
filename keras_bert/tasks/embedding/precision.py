"""Precisions of stored vectors: 8 bits or 1 bit per number, as in sentence-transformers."""

import dataclasses
import functools
import pathlib
import warnings
from typing import Any

import numpy as np

from keras_bert.runtime.arguments import as_integer, check_one_of
from keras_bert.runtime.arrays import as_numbers
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.warn import level_of_caller
from keras_bert.untrusted import containers

# Precision -> type of the stored numbers.
DTYPES = {
    "float32": np.float32,
    "int8": np.int8,
    "uint8": np.uint8,
    "binary": np.int8,
    "ubinary": np.uint8,
}
_LARGEST_LEVEL = 255  # levels are 0 to 255
_OFFSET = 128  # of the signed precisions
_FEWEST_FOR_RANGES = 100  # fewer vectors give a warning
_MAX_SHARE_OUTSIDE = 0.1  # a larger share of numbers outside the ranges gives a warning
_ROWS = 4096  # vectors that are quantized at once


def calibrate(vectors):
    """Return the lowest and the highest number of each dimension.

    Args:
        vectors: Floats (n, width), embeddings of at least two texts, better of 100 or more that
            represent the corpus.

    Returns:
        The ranges for `quantize`, an array (2, width) of the same type.

    Raises:
        ValueError: If there are fewer than two vectors, or a vector holds NaN.

    Example:

    >>> with warnings.catch_warnings(action="ignore"):
    ...     calibrate([[0.5, -1.0], [0.0, 2.0]]).tolist()
    [[0.0, -1.0], [0.5, 2.0]]
    """
    vectors = _floats(vectors)
    if vectors.ndim != 2 or len(vectors) < 2:
        raise ValueError(
            f"the ranges of int8 and uint8 need several vectors, received the shape "
            f"{vectors.shape}. Give calibration= a sample of the corpus, or ranges="
        )
    if len(vectors) < _FEWEST_FOR_RANGES:
        warnings.warn(
            f"the ranges of int8 and uint8 come from {len(vectors)} vectors. For better ones, give "
            f"calibration= at least {_FEWEST_FOR_RANGES} texts or embeddings of the corpus",
            stacklevel=level_of_caller(),
        )
    ranges = np.stack([vectors.min(axis=0), vectors.max(axis=0)])
    if not np.isfinite(ranges).all():
        raise ValueError("the vectors must not hold NaN or infinity")
    return ranges


def quantize(vectors, precision, ranges=None):
    """Store vectors in fewer bits. Gives the same numbers as sentence-transformers.

    - float32: the numbers, an array (n, width).
    - uint8: which of 256 steps of the range of its dimension a number is in, (n, width).
    - ubinary: 1 for each number above 0, eight in a byte: (n, width / 8, rounded up).
    - int8 and binary: uint8 and ubinary minus 128.

    Args:
        vectors: Floats (n, width) or (width,).
        precision: `"float32"`, `"int8"`, `"uint8"`, `"binary"` or `"ubinary"`.
        ranges: From `calibrate`, for int8 and uint8. By default those of `vectors`. Numbers outside
            of them get the first or the last step.

    Returns:
        An array of the type float32, int8 or uint8; binary has the type int8, ubinary uint8.

    Raises:
        ValueError: If the precision is unknown, the vectors are not floats, hold NaN or are too few
            for ranges, or the ranges do not fit.

    Source: https://sbert.net/examples/sentence_transformer/applications/embedding-quantization

    Example:

    >>> quantize([[0.5, -1.0], [0.0, 2.0]], "ubinary").tolist()
    [[128], [64]]
    >>> quantize([[0.25, -1.0]], "int8", ranges=[[0.0, -1.0], [0.5, 2.0]]).tolist()
    [[-1, -128]]
    """
    check_one_of("precision", precision, DTYPES)
    vectors = _floats(vectors)
    if vectors.ndim not in (1, 2):
        raise ValueError(f"vectors must have the shape (n, width); received {vectors.shape}")
    if ranges is not None and not has_ranges(precision):
        raise ValueError(f"ranges apply to int8 and uint8; received the precision {precision!r}")
    if not np.isfinite(vectors).all():
        raise ValueError("vectors must not hold NaN or infinity")
    if precision == "float32":
        return vectors.astype(np.float32)
    if is_binary(precision):
        packed = np.packbits(vectors > 0, axis=-1)
        return _signed(packed) if precision == "binary" else packed
    if len(vectors) == 0:
        return np.zeros(vectors.shape, DTYPES[precision])
    ranges = calibrate(vectors) if ranges is None else ranges
    ranges = check_ranges(ranges, vectors.shape[-1])
    starts = ranges[0]
    steps = (ranges[1] - starts) / _LARGEST_LEVEL
    steps = np.where(steps == 0, 1, steps)
    levels = np.floor((vectors - starts) / steps)
    _warn_of_numbers_outside(levels)
    levels = np.clip(levels, 0, _LARGEST_LEVEL).astype(np.uint8)
    return _signed(levels) if precision == "int8" else levels


def is_binary(precision):
    """Return True for the precisions of 1 bit."""
    return precision in ("binary", "ubinary")


def has_ranges(precision):
    """Return True for the precisions that depend on ranges."""
    return precision in ("int8", "uint8")


def check_ranges(ranges, width):
    """Return ranges as a float32 array (2, width), after a check."""
    ranges = as_numbers("ranges", ranges).astype(np.float32)
    if ranges.shape != (2, width):
        raise ValueError(
            f"ranges must have the shape (2, {width}) for vectors of {width} numbers; received "
            f"{ranges.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        differences = ranges[1] - ranges[0]
    if not np.isfinite(differences).all():
        raise ValueError("ranges must not hold NaN, infinity or numbers near the end of float32")
    if (differences < 0).any():
        raise ValueError("ranges[0], the lowest numbers, must not be above ranges[1]")
    return ranges


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class QuantizedVectors:
    """Stored vectors that know what their bytes mean, for `search.top_k`.

    Attributes:
        values: The array of `quantize` or of `encode(precision=...)`, (n, bytes). It may be mapped
            from a file.
        precision: `"int8"`, `"uint8"`, `"binary"` or `"ubinary"`.
        ranges: The ranges of int8 and uint8, (2, width).
        width: Numbers of a vector. Defaults to 8 per byte for the binary precisions.
        model: Which model the vectors are from; "" if unknown. `of` sets it.
        source: Which texts the vectors are from; "" if unknown. `keras-bert embed` sets it.

    Raises:
        ValueError: If the values do not fit the precision, the width or the ranges.

    Example:

    >>> QuantizedVectors.of(np.eye(16), "binary")
    <16 vectors of 16 numbers in binary, 32 bytes>
    """

    values: Any
    precision: str
    ranges: Any = None
    width: int | None = None
    model: str = ""
    source: str = ""

    def __post_init__(self):
        check_one_of("precision", self.precision, [name for name in DTYPES if name != "float32"])
        object.__setattr__(self, "values", as_numbers("values", self.values))
        if self.values.ndim != 2 or self.values.dtype != DTYPES[self.precision]:
            raise ValueError(
                f"{self.precision} vectors must have the type {np.dtype(DTYPES[self.precision])} "
                f"and two axes; received {self.values.dtype} and {self.values.ndim}"
            )
        numbers = self.values.shape[1] * (8 if is_binary(self.precision) else 1)
        width = numbers if self.width is None else as_integer("width", self.width, 0)
        object.__setattr__(self, "width", width)
        unused = numbers - width
        if not 0 <= unused < (8 if is_binary(self.precision) else 1):
            raise ValueError(
                f"{self.precision} vectors of {self.values.shape[1]} bytes cannot have the width "
                f"{width}"
            )
        if has_ranges(self.precision):
            if self.ranges is None:
                raise ValueError(f"{self.precision} vectors need the ranges= of their calibration")
            object.__setattr__(self, "ranges", check_ranges(self.ranges, width))
        elif self.ranges is not None:
            raise ValueError(f"{self.precision} vectors have no ranges")

    @classmethod
    def of(cls, vectors, precision, *, calibration=None, pipe=None):
        """Quantize vectors.

        Args:
            vectors: Floats (n, width). An array of `np.load(file, mmap_mode="r")` stays on disk.
            precision: `"int8"`, `"uint8"`, `"binary"` or `"ubinary"`.
            calibration: For int8 and uint8, floats (m, width) that set the ranges. By default all
                vectors.
            pipe: The pipeline that made the vectors. Then `load` can check the model.
        """
        ranges = None
        if has_ranges(precision):
            ranges = calibrate(vectors if calibration is None else calibration)
        elif calibration is not None:
            raise ValueError(f"calibration applies to int8 and uint8; received {precision!r}")
        vectors = np.atleast_2d(as_numbers("vectors", vectors))
        blocks = [
            quantize(vectors[start : start + _ROWS], precision, ranges)
            for start in range(0, max(len(vectors), 1), _ROWS)
        ]
        model = "" if pipe is None else model_id(pipe)
        return cls(np.concatenate(blocks), precision, ranges, vectors.shape[1], model)

    def __len__(self):
        return len(self.values)

    def __repr__(self):
        return (
            f"<{len(self)} vectors of {self.width} numbers in {self.precision}, "
            f"{self.values.nbytes} bytes>"
        )

    def decode(self, rows=slice(None)):
        """Return vectors as float32: the middle of each step, or 1 and -1 for one bit."""
        values = np.atleast_2d(self.values[rows])
        if is_binary(self.precision):
            packed = _signed(values) if self.precision == "binary" else values
            bits = np.unpackbits(packed, axis=-1)[:, : self.width]
            return bits * np.float32(2) - np.float32(1)
        scale, offset = self.scale_and_offset
        return values * scale + offset

    @property
    def scale_and_offset(self):
        """For int8 and uint8: the number that a value stands for is value * scale + offset."""
        scale = (self.ranges[1] - self.ranges[0]) / np.float32(_LARGEST_LEVEL)
        first = _OFFSET if self.precision == "int8" else 0
        return scale, self.ranges[0] + (np.float32(first) + np.float32(0.5)) * scale

    @functools.cached_property
    def lengths(self):
        """The length of each decoded vector, float32 (n,)."""
        lengths = np.empty(len(self), np.float32)
        for start in range(0, len(self), _ROWS):
            block = slice(start, start + _ROWS)
            lengths[block] = np.linalg.norm(self.decode(block), axis=1)
        return lengths

    def save(self, path):
        """Write everything to a `.npz` file."""
        path = pathlib.Path(path)
        if path.suffix.lower() != ".npz":
            raise ValueError(f"the file must have the extension .npz; received {path}")
        names = [field.name for field in dataclasses.fields(self)]
        arrays = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        with atomic_write(path) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, **arrays)

    @classmethod
    def load(cls, path, pipe=None):
        """Read a file of `save` or of `keras-bert embed`.

        Args:
            path: The file.
            pipe: The pipeline of the queries. Vectors of another model are an error.

        Raises:
            ValueError: If the file is damaged or has vectors of another kind or model.
        """
        path = pathlib.Path(path)
        try:
            arrays = containers.read_npz(path)
            fields = {
                name: arrays[name].item() for name in ("precision", "width", "model", "source")
            }
            stored = cls(arrays["values"], ranges=arrays.get("ranges"), **fields)
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"{path} does not hold quantized vectors ({error}). Write it with "
                "QuantizedVectors.save or keras-bert embed --vector-precision"
            ) from error
        if pipe is not None and stored.model and stored.model != model_id(pipe):
            raise ValueError(
                f"{path} holds vectors of another model, or of another precision of its matmuls, "
                f"than {pipe.predictor.name!r}. Load that model or embed the texts again"
            )
        return stored


def model_id(pipe):
    """Return a hash of everything of a model that determines its vectors."""
    return pipe.predictor.digest().hex()


def _floats(vectors):
    """Return vectors as an array, without a change of float types."""
    vectors = as_numbers("vectors", vectors)
    if vectors.dtype in (np.int8, np.uint8):
        raise ValueError(f"the vectors are quantized already: their type is {vectors.dtype}")
    return vectors


def _signed(values):
    """Exchange uint8 and int8: subtract or add 128."""
    other = np.int8 if values.dtype == np.uint8 else np.uint8
    return (values ^ np.array(-_OFFSET if other == np.uint8 else _OFFSET, values.dtype)).view(other)


def _warn_of_numbers_outside(levels):
    """Warn if the ranges belong to other vectors."""
    share = np.mean((levels < 0) | (levels > _LARGEST_LEVEL))
    if share > _MAX_SHARE_OUTSIDE:
        warnings.warn(
            f"{share:.0%} of the numbers are outside the ranges of the calibration. Calibrate with "
            "vectors of the same model and options",
            stacklevel=level_of_caller(),
        )
