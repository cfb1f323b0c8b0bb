"""Tensors from a pytorch_model.bin, read without torch and without executing anything.

Such a file is a pickle: a program for a small machine, which can call any Python function there is.
So no `pickle.Unpickler` runs here, which even with few names allowed can set attributes on what it
is given. `pickletools`, the standard library's disassembler, takes the program apart, and a machine
of our own follows the few instructions that torch writes for a dict of tensors. It has no way to
import anything or to touch an attribute: the few names it knows are plain data, and any other name
or instruction is an error.

Source: pytorch torch/serialization.py (both file layouts) and torch/_utils.py (how tensors are
rebuilt).
"""

import io
import math
import mmap
import pickletools
import struct
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from keras_bert.checkpoints import containers, folder
from keras_bert.checkpoints.canonical import bfloat16_to_float32

_BFLOAT16 = "bfloat16"
_DTYPES = {
    "torch.DoubleStorage": "f8",
    "torch.FloatStorage": "f4",
    "torch.HalfStorage": "f2",
    "torch.BFloat16Storage": _BFLOAT16,
    "torch.LongStorage": "i8",
    "torch.IntStorage": "i4",
    "torch.ShortStorage": "i2",
    "torch.CharStorage": "i1",
    "torch.ByteStorage": "u1",
    "torch.BoolStorage": "?",
}
_ORDERED_DICT = "collections.OrderedDict"
_REBUILD_TENSOR = "torch._utils._rebuild_tensor_v2"
_REBUILD_PARAMETER = "torch._utils._rebuild_parameter"
_GLOBALS = {*_DTYPES, _ORDERED_DICT, _REBUILD_TENSOR, _REBUILD_PARAMETER}

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001


class _Global(NamedTuple):
    """A name in the pickle. It stays a name; there is nothing behind it that could be called."""

    name: str


class _Storage(NamedTuple):
    key: str
    dtype: str
    size: int


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read(file: str | Path) -> dict[str, np.ndarray]:
    r"""Reads a dict of tensors as `torch.save` writes it, since 1.6 (zip) or before.

    Args:
        file: The path.

    Returns:
        Name -> array of the tensor's shape and type; bfloat16 comes as float32.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is broken or holds anything but tensors. Nothing in it is executed.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = os.path.join(folder, "pytorch_model.bin")
        ...     with zipfile.ZipFile(file, "w") as archive:
        ...         archive.writestr("model/data.pkl", b"cos\nsystem\n(Vecho hello\ntR.")
        ...     try:
        ...         read(file)
        ...     except ValueError as error:
        ...         print(str(error).replace(file, "pytorch_model.bin"))
        pytorch_model.bin: must be a dict of tensors and whole, received the name os.system
    """
    with open(file, "rb") as stream:
        try:
            if stream.read(4) == b"PK\x03\x04":
                return _read_zip(stream)
            return _read_legacy(stream)
        # Whatever a hostile or a broken file may lead to, the caller is told one thing.
        except Exception as error:
            raise ValueError(
                f"{file}: must be a dict of tensors and whole, received {folder.one_line(error)}"
            ) from error


def _read_zip(stream: IO[bytes]) -> dict[str, np.ndarray]:
    containers.check_zip(stream)
    with zipfile.ZipFile(stream) as archive:
        programs = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(programs) != 1:
            raise ValueError(f"a zip file with {len(programs)} data.pkl")
        root = programs[0].removesuffix("data.pkl")

        def record(name: str) -> bytes:
            return archive.read(root + name)

        order = "little"
        if root + "byteorder" in archive.namelist():
            order = record("byteorder").decode("ascii")
        if order not in ("little", "big"):
            raise ValueError(f"the byte order {order!r}")
        tensors = _tensors(_run(io.BytesIO(record("data.pkl"))))
        data = {key: record(f"data/{key}") for key in {t.storage.key for t in tensors.values()}}
        return _arrays(tensors, data, order)


def _read_legacy(stream: IO[bytes]) -> dict[str, np.ndarray]:
    """Four pickles, one after the other, then each storage with its length before it."""
    # Unlike a file, a memory map cannot be talked into reserving more than it holds.
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as file:
        if file.read(2) != b"\x80\x02":
            raise ValueError("neither a zip file nor a pickle of torch")
        file.seek(0)
        if (_run(file), _run(file)) != (_LEGACY_MAGIC, _LEGACY_PROTOCOL):
            raise ValueError("a pickle that torch did not write")
        _run(
            file
        )  # About the machine that wrote it; the storages are little-endian on all of them.
        tensors = _tensors(_run(file))
        keys: Any = _run(file)
        itemsize = {t.storage.key: _dtype(t.storage, "little").itemsize for t in tensors.values()}
        if {_check(key, str) for key in _check(keys, list)} != set(itemsize):
            raise ValueError("a list of storages other than those of its tensors")
        data = {}
        for key in keys:
            (count,) = struct.unpack("<q", file.read(8))
            size = count * itemsize[key]
            if count < 0 or size > len(file) - file.tell():
                raise ValueError(f"a truncated storage {key}")
            data[key] = file.read(size)
        return _arrays(tensors, data, "little")


def _tensors(value: object) -> dict[str, _Tensor]:
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__}")
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, _Tensor):
            raise ValueError(f"a {type(item).__name__} named {key!r}")
    return value


def _dtype(storage: _Storage, order: str) -> np.dtype[Any]:
    code = "u2" if storage.dtype == _BFLOAT16 else storage.dtype
    return np.dtype(code).newbyteorder("<" if order == "little" else ">")


def _arrays(
    tensors: Mapping[str, _Tensor], data: Mapping[str, bytes], order: str
) -> dict[str, np.ndarray]:
    """Cuts the tensors out of their storages, which several may share."""
    arrays = {}
    # Tied tensors share a storage. Two for each storage are allowed; more would multiply memory.
    sizes = {tensor.storage.key: tensor.storage.size for tensor in tensors.values()}
    if sum(math.prod(tensor.shape) for tensor in tensors.values()) > 2 * sum(sizes.values()):
        raise ValueError("tensors that are larger together than twice their storages")
    for name, (storage, offset, shape, strides) in tensors.items():
        dtype = _dtype(storage, order)
        count = len(data[storage.key]) // dtype.itemsize
        if count < storage.size:
            raise ValueError(f"{count} of the {storage.size} numbers of storage {storage.key}")
        reach = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        if math.prod(shape) and offset + reach >= storage.size:
            raise ValueError(f"a tensor {name} that reaches out of its storage")
        if math.prod(shape) > storage.size:
            raise ValueError(f"a tensor {name} larger than its storage")
        flat = np.frombuffer(data[storage.key], dtype)[offset:]
        array = np.lib.stride_tricks.as_strided(
            flat, shape, [stride * dtype.itemsize for stride in strides], writeable=False
        )
        arrays[name] = bfloat16_to_float32(array) if storage.dtype == _BFLOAT16 else array
    return arrays


def _run(program: Any) -> object:
    """Follows one pickle, up to and including its STOP.

    Args:
        program: A binary file or memory map.

    Returns:
        What it builds: dicts, lists, tuples, numbers, strings, `_Global`, `_Storage`, `_Tensor`.

    Raises:
        ValueError: At the first name or instruction that is not one of torch's.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    def pop(count: int) -> list[Any]:
        if len(stack) < count + (marks[-1] if marks else 0):
            raise ValueError("a pickle that takes more than it put")
        items = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        return items

    argument: Any
    for opcode, argument, _ in pickletools.genops(program):
        match opcode.name:
            case "PROTO" | "FRAME":
                pass
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT":
                stack.append(argument)
            case "BINUNICODE" | "SHORT_BINUNICODE" | "BINSTRING" | "SHORT_BINSTRING":
                stack.append(argument)
            case "NONE":
                stack.append(None)
            case "NEWTRUE" | "NEWFALSE":
                stack.append(opcode.name == "NEWTRUE")
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(pop(int(opcode.name[-1]))))
            case "MARK":
                marks.append(len(stack))
            case "TUPLE":
                stack.append(tuple(since_mark()))
            case "APPEND" | "APPENDS":
                items = pop(1) if opcode.name == "APPEND" else since_mark()
                _check(stack[-1], list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = pop(2) if opcode.name == "SETITEM" else since_mark()
                target = _check(stack[-1], dict)
                for key, value in zip(items[::2], items[1::2], strict=True):
                    # Hashing a tuple of tuples of ... can be made to take forever.
                    target[_check(key, str, int)] = value
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "GLOBAL":
                stack.append(_global(".".join(argument.split(" "))))
            case "STACK_GLOBAL":
                stack.append(_global(".".join(_check(part, str) for part in pop(2))))
            case "BINPERSID":
                (identity,) = pop(1)
                stack.append(_storage(*_check(identity, tuple)))
            case "REDUCE":
                function, arguments = pop(2)
                build = _BUILDERS.get(_check(function, _Global).name)
                if build is None:
                    raise ValueError(f"a call of {function.name}")
                stack.append(build(*_check(arguments, tuple)))
            case "BUILD":
                pop(1)  # The state of an OrderedDict, where torch keeps version numbers.
                _check(stack[-1], dict)
            case "STOP":
                (result,) = stack
                return result
            case _:
                raise ValueError(f"the pickle instruction {opcode.name}")
    raise ValueError("a pickle without an end")


def _check(value: Any, *types: type) -> Any:
    if not isinstance(value, types):
        raise ValueError(f"a {type(value).__name__} for a {types[0].__name__} in its pickle")
    return value


def _global(name: str) -> _Global:
    if name not in _GLOBALS:
        raise ValueError(f"the name {name}")
    return _Global(name)


def _storage(
    kind: object, type_: object, key: object, location: object, size: object, view: object = None
) -> _Storage:
    dtype = _DTYPES.get(_check(type_, _Global).name)
    if kind != "storage" or dtype is None or view is not None:
        raise ValueError("a storage that is none of torch's")
    return _Storage(_check(key, str), dtype, _count(size))


def _tensor(
    storage: object, offset: object, shape: Any, strides: Any, *settings: object
) -> _Tensor:
    """The settings, three or four, are about training."""
    rank = len(_check(shape, tuple))
    if rank > containers.MAX_RANK:
        raise ValueError(
            f"a tensor of {rank} dimensions, at most {containers.MAX_RANK} are allowed"
        )
    if rank != len(_check(strides, tuple)):
        raise ValueError(f"a tensor of {rank} dimensions and {len(strides)} strides")
    return _Tensor(
        _check(storage, _Storage),
        _count(offset),
        tuple(map(_count, shape)),
        tuple(map(_count, strides)),
    )


def _parameter(tensor: object, *settings: object) -> _Tensor:
    return _check(tensor, _Tensor)  # type: ignore[no-any-return]


def _ordered_dict() -> dict[str, Any]:
    return {}


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= sys.maxsize:
        raise ValueError("a tensor with a size or stride that is no count")
    return value


_BUILDERS: dict[str, Callable[..., Any]] = {
    _ORDERED_DICT: _ordered_dict,
    _REBUILD_TENSOR: _tensor,
    _REBUILD_PARAMETER: _parameter,
}
