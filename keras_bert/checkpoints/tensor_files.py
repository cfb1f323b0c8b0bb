"""Read tensors from safetensors files, torch pickles, shards of either, and HDF5 files."""

import collections
import functools
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from keras_bert.checkpoints import canonical, folder
from keras_bert.runtime import budget, reading
from keras_bert.runtime.escaping import printable, shown
from keras_bert.untrusted import containers, torch_pickle
from keras_bert.untrusted.errors import invalid

INDEX = ".index.json"  # ending of the file that lists the shards


_COMPLETE = "must be a complete safetensors file"
_LENGTH = 8  # bytes of the length of the header
# Types in safetensors -> types in NumPy.
_FLOATS = {f"F{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)}
_FLOATS["BF16"] = np.dtype(ml_dtypes.bfloat16)
# Types in safetensors -> bytes of a number.
_BYTES = {name: dtype.itemsize for name, dtype in _FLOATS.items()}
_BYTES |= {f"{kind}{8 * size}": size for kind in "IU" for size in (1, 2, 4, 8)}
_BYTES |= {"BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "C64": 8}

# Path of a weight in a file of transformers: the layers of the model, and the rest.
_HDF5_NAME = re.compile(
    r".*?/((?:bert/(?:embeddings|encoder|pooler)|\w+___cls|classifier|qa_outputs)/[^:]+:0)"
)


class Tensor(NamedTuple):
    """A tensor that is loaded on access."""

    shape: tuple[int, ...]
    load: Callable[[], np.ndarray]


def _in_memory(tensors: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    return {
        name: Tensor(array.shape, functools.partial(np.asarray, array))
        for name, array in tensors.items()
    }


def read(file: Path) -> dict[str, Tensor]:
    """Read name -> `Tensor` of a file: safetensors, .bin (a torch pickle), .h5, or an index."""
    tensors = _read(file)
    budget.check(max(map(len, tensors), default=0), "characters of a name", budget.MAX_NAME, file)
    return tensors


def _read(file: Path) -> dict[str, Tensor]:
    if file.name.endswith(INDEX):
        return _read_shards(file)
    reading.check_not_lfs_pointer(file)
    if file.name.endswith(".bin"):
        return _in_memory(torch_pickle.read(file))
    if file.name.endswith(".h5"):
        return _in_memory(_read_hdf5(file))
    return _read_safetensors(file)


def _read_shards(index: Path) -> dict[str, Tensor]:
    """Read shards, and check that each holds exactly the tensors that the index lists."""
    file_of: Any = folder.read_json(index).get("weight_map")
    suffix = Path(index.name.removesuffix(INDEX)).suffix
    names = list(file_of.values()) if isinstance(file_of, dict) else [file_of]
    for name in names:
        is_here = isinstance(name, str) and name.isprintable() and name == Path(name).name
        if not is_here or not name.endswith(suffix):
            rule = f"weight_map must name a {suffix} file of this folder for each tensor"
            raise invalid(index, rule, name)
    tensors: dict[str, Tensor] = {}
    listed: dict[str, set[str]] = collections.defaultdict(set)
    for tensor, name in file_of.items():
        listed[name].add(tensor)
    for name, expected in sorted(listed.items()):
        shard = index.with_name(name)
        if not shard.is_file():
            raise FileNotFoundError(f"{shard}: missing; it is listed in {index.name}")
        in_shard = read(shard)
        problems = {
            "missing": sorted(expected - in_shard.keys()),
            "unknown": sorted(in_shard.keys() - expected),
        }
        rule = f"a shard must hold the tensors that {index.name} lists"
        canonical.raise_if(shard, rule, problems)
        tensors |= in_shard
    return tensors


def _read_safetensors(file: Path) -> dict[str, Tensor]:

    def state() -> tuple[int, ...]:
        status = file.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    before = state()
    with reading.open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        header_size = int.from_bytes(stream.read(_LENGTH), "little")
        if header_size > size - _LENGTH:
            raise invalid(file, _COMPLETE, f"{size} bytes, and a header of {header_size}")
        budget.check(header_size, "bytes in its header", budget.MAX_HEADER, file)
        entries = reading.parse_json(stream.read(header_size), file)
    entries.pop("__metadata__", None)
    _check_entries(file, entries, size - _LENGTH - header_size)

    def load(name: str) -> np.ndarray:
        if state() != before:
            raise ValueError(f"{file}: changed while it was read; load it again")
        entry = entries[name]
        dtype = _FLOATS.get(entry["dtype"])
        if dtype is None:
            raise invalid(file, f"{printable(name, 200)} must hold floats", entry["dtype"])
        count = math.prod(entry["shape"])
        offset = _LENGTH + header_size + entry["data_offsets"][0]
        # Faster than safetensors, which copies the bytes twice.
        return np.fromfile(file, dtype, count, offset=offset).reshape(entry["shape"])

    return {
        name: Tensor(tuple(entry["shape"]), functools.partial(load, name))
        for name, entry in entries.items()
    }


def _check_entries(file: Path, entries: dict[str, Any], size: int) -> None:
    """Raise a `ValueError` unless the tensors of a safetensors file fill it without overlap."""
    position = 0
    try:
        # Empty tensors begin where others do.
        for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
            shape = entry["shape"]
            offsets = entry["data_offsets"]
            budget.check(len(shape), "dimensions of a tensor", budget.MAX_RANK, file)
            counts = [*shape, *offsets]
            are_sizes = all(type(count) is int and count >= 0 for count in counts)
            if not are_sizes or len(offsets) != 2:
                raise invalid(file, _COMPLETE, f"the sizes {shown(counts)} of {shown(name)}")
            start, end = offsets
            if start != position or end - start != math.prod(shape) * _BYTES[entry["dtype"]]:
                tensor = f"a tensor {shown(name)} at {start} to {end} after {position} bytes"
                raise invalid(file, _COMPLETE, tensor)
            position = end
    except (KeyError, TypeError) as error:
        raise invalid(file, _COMPLETE, error) from error
    if position != size:
        raise invalid(file, _COMPLETE, f"tensors of {position} bytes in {size} bytes")


def _read_hdf5(file: Path) -> dict[str, np.ndarray]:
    """Read the weights that `save_weights` of Keras 2 wrote for a model of transformers.

    A path such as "bert/name_of_the_model/bert/pooler/dense/bias:0" begins with the layer that
    holds the weight. The returned name is the end of the path, here "bert/pooler/dense/bias:0".
    Weights that several layers share are stored several times.
    """
    tensors: dict[str, np.ndarray] = {}
    for path, array in containers.read_hdf5(file).items():
        match = _HDF5_NAME.fullmatch(path)
        name = match[1] if match else path
        if not np.array_equal(tensors.setdefault(name, array), array, equal_nan=True):
            rule = "a tensor that is stored several times must have the same values"
            raise invalid(file, rule, name, "Save the model again")
    return tensors


def write(file: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a safetensors file."""
    from safetensors.numpy import save_file

    contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    file.touch()
    mode = file.stat().st_mode
    save_file(contiguous, file, metadata={"format": "pt"})
    file.chmod(mode)  # safetensors makes a private file; this is what the umask gives
