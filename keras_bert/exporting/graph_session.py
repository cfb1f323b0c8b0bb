"""Compute with the graph of an export, in ONNX Runtime or OpenVINO. Keras is not imported."""

import contextlib
import itertools
import pathlib
import queue
import sys
import typing
from collections.abc import Iterable, Iterator

import numpy as np

from keras_bert.runtime import reading
from keras_bert.runtime.arguments import check_one_of
from keras_bert.runtime.reading import one_line
from keras_bert.untrusted import onnx_graph_check, openvino_graph_check

_FATAL = 4  # ONNX Runtime prints warnings with names from the file; its errors are exceptions

Inputs = dict[str, np.ndarray]


@contextlib.contextmanager
def refuse(subject):
    """Raise a `ValueError` that begins with `subject` for any error of an engine or of files."""
    try:
        yield
    except Exception as error:  # the errors of the engines have no other common base
        raise ValueError(f"{subject}: {one_line(error)}. Export the model again") from error


class Session(typing.Protocol):
    """A graph that is ready to compute.

    Attributes:
        widths: Size of the last axis of each output, by name; `None` for any size.
        metadata: What an ONNX file says about itself.
        positions_per_batch: Positions of a batch with which the engine is fastest; 0 for any.
        parallel: Number of batches that it computes at the same time.
    """

    widths: dict[str, int | None]
    metadata: dict[str, str]
    positions_per_batch: int
    parallel: int

    def run(self, batches: Iterable[Inputs], names: list[str]) -> Iterator[tuple[int, list]]:
        """Compute batches. Yield the index of each batch and its outputs, in any order."""


class OnnxSession:
    """A `Session` of ONNX Runtime."""

    positions_per_batch = 0
    parallel = 1

    def __init__(self, file: pathlib.Path):
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError("ONNX folders need: pip install 'keras3-bert[onnx]'") from error
        reading.check_not_lfs_pointer(file)
        with refuse(f"{file} must be a graph as keras_bert.export writes it, received"):
            onnx_graph_check.check(file)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL
        with refuse(f"{file} cannot be read"):
            self._session = onnxruntime.InferenceSession(
                str(file),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=["ConstantFolding"],  # it would compute what the file chooses
            )
        outputs = self._session.get_outputs()
        if not outputs or not all(output.shape for output in outputs):
            raise ValueError(f"{file} must have outputs with axes. Export the model again")
        self.widths = {}
        for output in outputs:
            size = output.shape[-1]
            self.widths[output.name] = size if isinstance(size, int) else None
        self.metadata = self._session.get_modelmeta().custom_metadata_map
        self._file = file

    def run(self, batches: Iterable[Inputs], names: list[str]) -> Iterator[tuple[int, list]]:
        for index, inputs in enumerate(batches):
            with refuse(f"{self._file} failed"):
                outputs = self._session.run(names, inputs)
            yield index, outputs


class OpenVinoSession:
    """A `Session` of OpenVINO on the CPU.

    `precision` is `"float32"` or `"bfloat16"`, that of the matmuls. OpenVINO emulates bfloat16 on
    processors without it.
    """

    positions_per_batch = 1024

    def __init__(self, file: pathlib.Path, precision: str = "float32"):
        openvino = import_openvino()
        weights = file.with_suffix(".bin")
        reading.check_not_lfs_pointer(file)
        reading.check_not_lfs_pointer(weights)
        with refuse(f"{file} must be a graph as keras_bert.export writes it, received"):
            openvino_graph_check.check(file, weights)
        options = {"INFERENCE_PRECISION_HINT": "bf16" if precision == "bfloat16" else "f32"}
        with refuse(f"{file} cannot be read"):
            core = openvino.Core()
            graph = core.read_model(file, weights)
            # A single batch uses all cores; several batches share them.
            self._single = core.compile_model(
                graph, "CPU", {**options, "PERFORMANCE_HINT": "LATENCY"}
            )
            self._several = core.compile_model(
                graph, "CPU", {**options, "PERFORMANCE_HINT": "THROUGHPUT"}
            )
            self._queue = openvino.AsyncInferQueue(self._several)
        self.parallel = len(self._queue)
        self.metadata: dict[str, str] = {}
        self.widths: dict[str, int | None] = {}
        for output in self._single.outputs:
            size = output.partial_shape[-1]
            width = None if size.is_dynamic else size.get_length()
            self.widths |= dict.fromkeys(output.names, width)
        self._file = file

    def run(self, batches: Iterable[Inputs], names: list[str]) -> Iterator[tuple[int, list]]:
        batches = iter(batches)
        first = list(itertools.islice(batches, 2))
        if len(first) == 1:
            with refuse(f"{self._file} failed"):
                outputs = self._single(first[0])
            yield 0, [outputs[name] for name in names]
            return
        done: queue.SimpleQueue = queue.SimpleQueue()

        def finish(request, index):
            done.put((index, [request.get_tensor(name).data.copy() for name in names]))

        self._queue.set_callback(finish)
        with refuse(f"{self._file} failed"):
            for index, inputs in enumerate(itertools.chain(first, batches)):
                self._queue.start_async(inputs, index)
                while not done.empty():
                    yield done.get()
            self._queue.wait_all()
        while not done.empty():
            yield done.get()


def import_openvino():
    """Import openvino without its telemetry.

    Its import would send an event from a forked process, and a fork can hang beside JAX' threads.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    try:
        import openvino
    except ImportError as error:
        raise ImportError("OpenVINO needs: pip install 'keras3-bert[openvino]'") from error
    return openvino


def open_session(file: pathlib.Path, precision: str | None = None) -> Session:
    """Open the graph in a file of `graph_folder.GRAPH_FILES`.

    Raise a `ValueError` for a file that `keras_bert.export` does not write, and for a precision
    that the engine lacks; an `ImportError` if the engine is not installed.
    """
    if file.suffix == ".xml":
        check_one_of("precision", precision, (None, "float32", "bfloat16"))
        return OpenVinoSession(file, precision or "float32")
    if precision is not None:
        raise ValueError(
            f"precision cannot be changed for an ONNX folder; received {precision!r}. Leave it out"
        )
    return OnnxSession(file)
