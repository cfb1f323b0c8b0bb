"""Read tensors from a pytorch_model.bin without torch and without executing code.

The file is a pickle: a program that can call any Python function. Even a restricted
`pickle.Unpickler` can be made to set attributes. So the program is disassembled by `pickletools`,
and `_run` interprets only the instructions that torch writes for a dict of tensors. The
interpreter cannot import anything or access attributes. Other names and instructions are errors.

Source: pytorch torch/serialization.py (both file layouts) and torch/_utils.py (rebuild functions).
"""

import io
import math
import pickletools
import struct
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import ml_dtypes
import numpy as np

from keras_bert.runtime import budget
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.warn import level_of_caller
from keras_bert.runtime.words import words
from keras_bert.untrusted import containers
from keras_bert.untrusted.errors import invalid

# The numbers are little-endian.
_DTYPES = {
    f"torch.{kind}Storage": np.dtype(dtype)
    for kind, dtype in {
        "Double": "<f8", "Float": "<f4", "Half": "<f2", "BFloat16": ml_dtypes.bfloat16,
        "Long": "<i8", "Int": "<i4", "Short": "<i2", "Char": "i1", "Byte": "u1", "Bool": "?",
    }.items()
}  # fmt: skip
_ORDERED_DICT = "collections.OrderedDict"
_REBUILD_TENSOR = "torch._utils._rebuild_tensor_v2"
_REBUILD_PARAMETER = "torch._utils._rebuild_parameter"
_GLOBALS = {*_DTYPES, _ORDERED_DICT, _REBUILD_TENSOR, _REBUILD_PARAMETER}

# The argument of these instructions is the value.
_MAX_INSTRUCTIONS = 32 * budget.MAX_OBJECTS
_LITERALS = words(
    "BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE BINSTRING SHORT_BINSTRING"
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
# What training scripts call the weights in a checkpoint that also holds an optimizer.
_STATES = ("model_state_dict", "state_dict", "model")
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001


class _Global(NamedTuple):
    """A qualified name in the pickle. It is never imported."""

    name: str


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype[Any]


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read(file: str | Path) -> dict[str, np.ndarray]:
    """Read name -> array from a dict that `torch.save` wrote, in the zip or the older layout.

    The dict may also be an entry of a training script's checkpoint, such as "model_state_dict".
    A file that holds anything but tensors is a `ValueError`.
    """
    with open(file, "rb") as stream:
        try:
            if stream.read(4) == b"PK\x03\x04":
                return _read_zip(stream)
            return _read_legacy(stream)
        # A hostile or broken file can cause any error.
        except Exception as error:
            rule = "must be a dict of tensors that torch.save(model.state_dict(), file) wrote"
            raise invalid(file, rule, error) from error


def _read_zip(stream: IO[bytes]) -> dict[str, np.ndarray]:
    with containers.open_zip(stream) as archive:
        programs = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(programs) != 1:
            raise ValueError(f"a zip file with {len(programs)} data.pkl")
        root = programs[0].removesuffix("data.pkl")
        byte_order = root + "byteorder"
        if byte_order in archive.namelist() and archive.read(byte_order) != b"little":
            raise ValueError("big-endian numbers")
        program = containers.read_member(archive, programs[0], budget.MAX_HEADER)
        tensors = _tensors(stream.name, _run(io.BytesIO(program)))
        keys = {tensor.storage.key for tensor in tensors.values()}
        return _arrays(tensors, {key: archive.read(f"{root}data/{key}") for key in keys})


def _read_legacy(stream: IO[bytes]) -> dict[str, np.ndarray]:
    """Read four pickles, then the storages, each preceded by its length."""
    # Not a memory map: truncating the file would end the process.
    file_size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    if stream.read(2) != b"\x80\x02":
        raise ValueError("neither a zip file nor a torch pickle")
    stream.seek(0)
    if (_run(stream), _run(stream)) != (_LEGACY_MAGIC, _LEGACY_PROTOCOL):
        raise ValueError("a pickle that torch did not write")
    _run(stream)  # Byte order and sizes of the writer; storages are always little-endian.
    tensors = _tensors(stream.name, _run(stream))
    itemsize = {t.storage.key: t.storage.dtype.itemsize for t in tensors.values()}
    data = {}
    for key in _check(_run(stream), list):
        (count,) = struct.unpack("<q", stream.read(8))
        size = count * itemsize[_check(key, str)]
        # Reading takes as much memory as the file declares.
        if not 0 <= size <= file_size - stream.tell():
            raise ValueError(f"a truncated storage {key}")
        data[key] = stream.read(size)
    return _arrays(tensors, data)


def _tensors(file: str, value: object) -> dict[str, _Tensor]:
    tensors = _check(value, dict)
    name = next((name for name in _STATES if isinstance(tensors.get(name), dict)), None)
    if name is not None:
        message = f"{file}: only the entry {shown(name)} is read, which has the weights"
        warnings.warn(message, stacklevel=level_of_caller())
        tensors = tensors[name]
    for key, item in tensors.items():
        if not isinstance(item, _Tensor):
            raise ValueError(f"a {type(item).__name__} named {shown(key)}")
    return tensors  # type: ignore[no-any-return]


def _arrays(tensors: Mapping[str, _Tensor], data: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """Return the tensors as read-only views of their storages."""
    # Two tied tensors may share a storage. More could multiply the memory that is needed.
    needed = sum(math.prod(t.shape) * t.storage.dtype.itemsize for t in tensors.values())
    budget.check_growth(needed, "bytes of tensors", sum(map(len, data.values())))
    arrays = {}
    for name, (storage, offset, shape, strides) in tensors.items():
        itemsize = storage.dtype.itemsize
        byte_strides = [stride * itemsize for stride in strides]
        # NumPy checks this too, but with integers that overflow.
        last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        if math.prod(shape) and last >= len(data[storage.key]) // itemsize:
            raise ValueError(f"a tensor {shown(name)} that exceeds its storage")
        arrays[name] = np.ndarray(
            shape, storage.dtype, data[storage.key], offset * itemsize, byte_strides
        )
    return arrays


def _run(program: Any) -> Any:
    """Interpret the pickle at the position of a file, and return the object that it builds.

    The position is then after the pickle.
    """
    start = program.tell()
    # The pickles of an older file follow each other, and all of them have so many bytes.
    pickled = io.BytesIO(program.read(max(0, budget.MAX_HEADER - start)))
    machine = _Machine()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        if count > _MAX_INSTRUCTIONS:
            budget.check(count, "instructions", _MAX_INSTRUCTIONS)
        if opcode.name == "STOP":
            break
        machine.run(opcode.name, argument)
    program.seek(start + pickled.tell())
    (result,) = machine.stack
    return result


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._stacks_below_marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        """Run an instruction."""
        stack = self.stack
        match name:
            case "PROTO" | "FRAME":
                pass
            case _ if name in _LITERALS:
                stack.append(argument)
            case _ if name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "MARK":
                self._stacks_below_marks.append(stack)
                self.stack = []
            case "TUPLE":
                items = self._pop_to_mark()
                self.stack.append(tuple(items))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._pop(int(name[-1]))))
            case "APPEND" | "APPENDS":
                items = self._pop(1) if name == "APPEND" else self._pop_to_mark()
                _check(self.stack[-1], list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self._pop(2) if name == "SETITEM" else self._pop_to_mark()
                # The hashes of nested tuples and of chosen integers can take forever.
                keys = [_check(key, str) for key in items[::2]]
                _check(self.stack[-1], dict).update(zip(keys, items[1::2], strict=True))
            case "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                self._memo[len(self._memo) if argument is None else argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self._memo[argument])
            case "GLOBAL":
                stack.append(_global(argument.replace(" ", ".")))
            case "STACK_GLOBAL":
                stack.append(_global(".".join(self._pop(2))))
            case "BINPERSID":
                stack.append(_storage(*_check(stack.pop(), tuple)))
            case "REDUCE":
                stack.append(_call(*self._pop(2)))
            case "BUILD":
                self._pop(1)  # attributes of an OrderedDict: version numbers of modules
                _check(stack[-1], dict)
            case _:
                raise ValueError(f"the pickle instruction {name}")

    def _pop(self, count: int) -> list[Any]:
        items = self.stack[-count:]
        if len(items) < count:
            raise ValueError("a pickle that takes more from its stack than there is")
        del self.stack[-count:]
        return items

    def _pop_to_mark(self) -> list[Any]:
        items = self.stack
        self.stack = self._stacks_below_marks.pop()
        return items


def _call(function: Any, arguments: Any) -> object:
    name = _check(function, _Global).name
    _check(arguments, tuple)
    if name == _ORDERED_DICT and not arguments:
        return {}
    if name == _REBUILD_TENSOR:
        return _tensor(*arguments[:4])  # the others, such as requires_grad, concern training only
    if name == _REBUILD_PARAMETER:
        return _check(arguments[0], _Tensor)
    raise ValueError(f"a call of {name}")


def _check(value: Any, expected: type) -> Any:
    if not isinstance(value, expected):
        raise ValueError(f"a {type(value).__name__} for a {expected.__name__} in its pickle")
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
        raise ValueError("a storage of an unknown kind")
    return _Storage(_check(key, str), dtype)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> _Tensor:
    # Many calls can have the same long tuple.
    rank = max(len(_check(shape, tuple)), len(_check(strides, tuple)))
    budget.check(rank, "dimensions of a tensor", budget.MAX_RANK)
    if any(type(count) is not int or count < 0 for count in (offset, *shape, *strides)):
        raise ValueError("a tensor with a size or stride that is not a count")
    return _Tensor(_check(storage, _Storage), offset, shape, strides)
