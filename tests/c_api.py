"""A client of TensorFlow's C library that runs a SavedModel as a server does.

    python -m tests.c_api LIBRARIES SAVED_MODEL < request.json > answer.json
    python -m tests.c_api LIBRARIES > ops.pb

LIBRARIES is the folder of `libtensorflow_cc.so.2`, which contains the C API and is part of
TensorFlow's wheels. A request is `{"inputs": {TENSOR: VALUE}, "outputs": {NAME: TENSOR}}`. TENSOR
is a name from the SavedModel's signature, such as "serving_default_text:0"; VALUE is nested lists
of strings or integers. The second command writes the library's op registry, an `OpList`.

Source: `tensorflow/c/c_api.h`, `tensorflow/c/tf_tensor.h` and `tensorflow/c/tf_datatype.h`.
"""

import ctypes
import json
import pathlib
import sys

import numpy as np

POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
STRING = 7  # TF_STRING
DTYPES = {1: np.float32, 3: np.int32, 9: np.int64, 10: np.bool_}
STRING_SIZE = 24  # bytes of a TF_TString


class Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = [("data", POINTER), ("length", SIZE), ("deallocator", POINTER)]


class Output(ctypes.Structure):
    """TF_Output: an operation of the graph and the number of its output."""

    _fields_ = [("operation", POINTER), ("index", ctypes.c_int)]


SIGNATURES = {  # name: types of the result and of the arguments
    "TF_AllocateTensor": (POINTER, ctypes.c_int, POINTER, ctypes.c_int, SIZE),
    "TF_DataTypeSize": (SIZE, ctypes.c_int),
    "TF_Dim": (ctypes.c_int64, POINTER, ctypes.c_int),
    "TF_GetAllOpList": (ctypes.POINTER(Buffer),),
    "TF_GetCode": (ctypes.c_int, POINTER),
    "TF_GraphOperationByName": (POINTER, POINTER, ctypes.c_char_p),
    "TF_LoadSessionFromSavedModel": (
        POINTER, POINTER, POINTER, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_int,
        POINTER, POINTER, POINTER,
    ),
    "TF_Message": (ctypes.c_char_p, POINTER),
    "TF_NewGraph": (POINTER,),
    "TF_NewSessionOptions": (POINTER,),
    "TF_NewStatus": (POINTER,),
    "TF_NumDims": (ctypes.c_int, POINTER),
    "TF_SessionRun": (
        None, POINTER, POINTER, POINTER, POINTER, ctypes.c_int, POINTER, POINTER, ctypes.c_int,
        POINTER, ctypes.c_int, POINTER, POINTER,
    ),
    "TF_StringCopy": (None, POINTER, ctypes.c_char_p, SIZE),
    "TF_StringGetDataPointer": (POINTER, POINTER),
    "TF_StringGetSize": (SIZE, POINTER),
    "TF_StringInit": (None, POINTER),
    "TF_TensorData": (POINTER, POINTER),
    "TF_TensorType": (ctypes.c_int, POINTER),
    "TF_Version": (ctypes.c_char_p,),
}  # fmt: skip


def load_library(folder):
    """Load TensorFlow's library and set the types of the functions above."""
    # RTLD_GLOBAL, because the second library uses symbols of the first.
    ctypes.CDLL(str(pathlib.Path(folder, "libtensorflow_framework.so.2")), ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(pathlib.Path(folder, "libtensorflow_cc.so.2")), ctypes.RTLD_GLOBAL)
    for name, (result, *arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def all_ops(library):
    """The op registry, a serialized `OpList`."""
    buffer = library.TF_GetAllOpList().contents
    return ctypes.string_at(buffer.data, buffer.length)


class Model:
    """A SavedModel in a session of the library."""

    def __init__(self, library, folder):
        self.library = library
        self.status = library.TF_NewStatus()
        self.graph = library.TF_NewGraph()
        tags = (ctypes.c_char_p * 1)(b"serve")
        self.session = library.TF_LoadSessionFromSavedModel(
            library.TF_NewSessionOptions(), None, str(folder).encode(), tags, 1, self.graph, None,
            self.status,
        )  # fmt: skip
        self._check()

    def _check(self):
        if self.library.TF_GetCode(self.status):
            raise ValueError(self.library.TF_Message(self.status).decode())

    def run(self, inputs, outputs):
        """Return a list of arrays for the tensors `outputs`; `inputs` maps tensors to values."""
        feeds = (Output * len(inputs))(*map(self._output, inputs))
        values = (POINTER * len(inputs))(*map(self._tensor, inputs.values()))
        fetches = (Output * len(outputs))(*map(self._output, outputs))
        answers = (POINTER * len(outputs))()
        self.library.TF_SessionRun(
            self.session, None, feeds, values, len(inputs), fetches, answers, len(outputs), None, 0,
            None, self.status,
        )  # fmt: skip
        self._check()
        return [self._array(tensor) for tensor in answers]

    def _output(self, name):
        operation, index = name.split(":")
        found = self.library.TF_GraphOperationByName(self.graph, operation.encode())
        if not found:
            raise ValueError(f"the graph has no operation {operation!r}")
        return Output(found, int(index))

    def _tensor(self, value):
        """A TF_Tensor of strings or int32."""
        array = np.array(value)
        is_text = array.dtype.kind in "US" or array.size == 0
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        kind, size = (STRING, STRING_SIZE) if is_text else (3, 4)
        library = self.library
        tensor = library.TF_AllocateTensor(kind, shape, array.ndim, array.size * size)
        data = library.TF_TensorData(tensor)
        if is_text:
            for number, text in enumerate(map(str.encode, array.ravel().tolist())):
                library.TF_StringInit(data + number * size)
                library.TF_StringCopy(data + number * size, text, len(text))
        else:
            ctypes.memmove(data, np.ascontiguousarray(array, np.int32).ctypes.data, array.nbytes)
        return tensor

    def _array(self, tensor):
        library = self.library
        shape = [library.TF_Dim(tensor, axis) for axis in range(library.TF_NumDims(tensor))]
        kind, data = library.TF_TensorType(tensor), library.TF_TensorData(tensor)
        count = int(np.prod(shape))
        if kind == STRING:
            items = range(data, data + count * STRING_SIZE, STRING_SIZE) if count else ()
            array = np.array([self._string(item) for item in items], object)
        else:
            size = count * np.dtype(DTYPES[kind]).itemsize
            array = np.frombuffer(ctypes.string_at(data, size), DTYPES[kind])
        return array.reshape(shape)

    def _string(self, item):
        size = self.library.TF_StringGetSize(item)
        return ctypes.string_at(self.library.TF_StringGetDataPointer(item), size).decode()


def main(folder, saved_model=None):
    library = load_library(folder)
    if saved_model is None:
        sys.stdout.buffer.write(all_ops(library))
        return
    request = json.load(sys.stdin)
    model = Model(library, saved_model)
    answers = model.run(request["inputs"], list(request["outputs"].values()))
    named = {name: array.tolist() for name, array in zip(request["outputs"], answers, strict=True)}
    loaded = pathlib.Path("/proc/self/maps").read_text()
    foreign = [name for name in ("tensorflow_text", "_pywrap_tensorflow") if name in loaded]
    foreign += [name for name in ("tensorflow", "keras", "keras_bert") if name in sys.modules]
    json.dump({"version": library.TF_Version().decode(), "foreign": foreign, **named}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
