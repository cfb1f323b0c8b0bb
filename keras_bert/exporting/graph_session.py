"""Compute with the graph of an export, in ONNX Runtime or OpenVINO. Keras is not imported."""

import collections
import contextlib
import itertools
import os
import pathlib
import sys
import typing
from collections.abc import Iterable, Iterator

import numpy as np

from keras_bert.exporting import graph_folder
from keras_bert.exporting.graph_folder import GraphFile, Inputs, graph_inputs
from keras_bert.exporting.litert_session import LiteRtSession
from keras_bert.runtime import reading
from keras_bert.runtime.arguments import check_one_of
from keras_bert.runtime.packages import import_extra
from keras_bert.runtime.reading import one_line
from keras_bert.untrusted import onnx_graph_check, openvino_graph_check

_MUST_BE_OURS = "must be a graph as keras_bert.export writes it, received"
_TYPES = {"tensor(int32)": np.int32}
_FATAL = 4  # ONNX Runtime prints warnings with names from the file; its errors are exceptions


@contextlib.contextmanager
def errors_as_value_error(subject, advice):
    """Raise any error of an engine or of files as a `ValueError` that begins with `subject`."""
    try:
        yield
    except Exception as error:  # the errors of the engines have no other common base
        raise ValueError(f"{subject}: {one_line(error)}. {advice}") from error


Batch = tuple[int, Inputs, list[np.ndarray]]  # index, inputs, outputs


class Session(typing.Protocol):
    """A graph that is ready to compute.

    Attributes:
        file: The file of the graph.
        digest: Its `graph_folder.digest_of_graph`.
        inputs: Names of its inputs.
        widths: Size of the last axis of each output, by name; `None` for any size.
        ranks: Number of axes of each output, by name.
        tokens_per_batch: Tokens of a batch, with padding, at which the engine is fastest; `None`
            if the caller chooses the number of sequences.
        parallel_batches: Number of batches that it computes at the same time.
    """

    file: pathlib.Path
    digest: str
    inputs: list[str]
    widths: dict[str, int | None]
    ranks: dict[str, int]
    tokens_per_batch: int | None
    parallel_batches: int

    def run(self, batches: Iterable[Inputs], names: list[str]) -> Iterator[Batch]:
        """Compute batches of an `Encoded`. Yield them with their outputs, in any order."""


class OnnxSession:
    """A `Session` of ONNX Runtime."""

    tokens_per_batch: int | None = None
    parallel_batches = 1

    def __init__(self, graph: GraphFile):
        file = graph.file
        onnxruntime = import_extra("onnxruntime", "onnx", "an ONNX folder")
        reading.check_not_lfs_pointer(file)
        content: bytes | str = str(file)  # its weights can be in files beside it
        not_run: list[str] = []
        if graph.is_foreign:
            self.digest = _digest_of_files(file.parent.glob(f"{file.name}*"))
        else:
            with errors_as_value_error(f"{file} {_MUST_BE_OURS}", graph.advice):
                # The content, not the file, which may change after the check.
                content = onnx_graph_check.check(file)
            self.digest = graph_folder.digest_of_graph(content)
            not_run = ["ConstantFolding"]  # it would compute what the file chooses
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL
        # Otherwise a few bytes of the content can select another format, which was not checked.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        with errors_as_value_error(f"{file} cannot be read", graph.advice):
            self._session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"], disabled_optimizers=not_run
            )
        self._session._model_bytes = None  # kept only for other providers
        outputs = self._session.get_outputs()
        if not outputs or not all(output.shape for output in outputs):
            raise ValueError(f"{file} must have outputs with axes. {graph.advice}")
        self.widths = {}
        self.ranks = {}
        for output in outputs:
            size = output.shape[-1]
            self.widths[output.name] = size if isinstance(size, int) else None
            self.ranks[output.name] = len(output.shape)
        values = self._session.get_inputs()
        self.inputs = [value.name for value in values]
        self._types = {value.name: _TYPES.get(value.type, np.int64) for value in values}
        self.file = file
        self._advice = graph.advice

    def run(self, batches: Iterable[Inputs], names: list[str]) -> Iterator[Batch]:
        for index, inputs in enumerate(batches):
            ids = graph_inputs(inputs, self.inputs)
            ids = {name: array.astype(self._types[name]) for name, array in ids.items()}
            with errors_as_value_error(f"{self.file} failed", self._advice):
                outputs = self._session.run(names, ids)
            yield index, inputs, outputs


class OpenVinoSession:
    """A `Session` of OpenVINO on the CPU.

    `precision` is `"float32"` or `"bfloat16"`, that of the matmuls. OpenVINO emulates bfloat16 on
    processors without it.
    """

    tokens_per_batch: int | None = 1024

    def __init__(self, graph: GraphFile, precision: str = "float32"):
        file = graph.file
        openvino = import_openvino()
        weights = file.with_suffix(".bin")
        reading.check_not_lfs_pointer(file)
        reading.check_not_lfs_pointer(weights)
        core = openvino.Core()
        if graph.is_foreign:
            self.digest = _digest_of_files((file, weights))
            with errors_as_value_error(f"{file} cannot be read", graph.advice):
                model = core.read_model(str(file))
        else:
            model = self._read_checked(openvino, core, graph, weights)
        options = {"INFERENCE_PRECISION_HINT": "bf16" if precision == "bfloat16" else "f32"}
        with errors_as_value_error(f"{file} cannot be read", graph.advice):
            # A single batch uses all cores; several batches share them.
            options["PERFORMANCE_HINT"] = "LATENCY"
            self._for_one_batch = core.compile_model(model, "CPU", options)
            options["PERFORMANCE_HINT"] = "THROUGHPUT"
            self._for_batches = core.compile_model(model, "CPU", options)
        count = self._for_batches.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
        self.parallel_batches: int = count
        self.inputs = [_name_of(value) for value in self._for_one_batch.inputs]
        self.widths: dict[str, int | None] = {}
        self.ranks: dict[str, int] = {}
        for output in self._for_one_batch.outputs:
            if output.partial_shape.rank.is_dynamic or not len(output.partial_shape):
                raise ValueError(f"{file} must have outputs with axes. {graph.advice}")
            self.ranks |= dict.fromkeys(output.names, len(output.partial_shape))
            size = output.partial_shape[-1]
            width = None if size.is_dynamic else size.get_length()
            self.widths |= dict.fromkeys(output.names, width)
        self.file = file
        self._advice = graph.advice
        self._process = os.getpid()
        # Requests that no call uses. A call needs its own, since threads may share a pipeline.
        self._idle: dict[bool, list] = {True: [], False: []}

    def _read_checked(self, openvino, core, graph, weights):
        """Return a model that `keras_bert.export` wrote, from contents that were checked."""
        with errors_as_value_error(f"{graph.file} {_MUST_BE_OURS}", graph.advice):
            content, numbers = openvino_graph_check.check(graph.file, weights)
        self.digest = graph_folder.digest_of_graph(content, numbers.data)
        with errors_as_value_error(f"{graph.file} cannot be read", graph.advice):
            # The contents, not the files, which may have changed since the check.
            # OpenVINO owns the copy, which the compiled models read.
            model = core.read_model(content, openvino.Tensor(numbers))
        with errors_as_value_error(f"{graph.file} {_MUST_BE_OURS}", graph.advice):
            openvino_graph_check.check_shapes(model, len(numbers))
        return model

    def run(self, batches: Iterable[Inputs], names: list[str]) -> Iterator[Batch]:
        if os.getpid() != self._process:
            raise ValueError(
                f"{self.file}: OpenVINO does not work in a forked process. Make the pipeline in "
                'the new process, or use multiprocessing.set_start_method("spawn")'
            )
        batches = iter(batches)
        first_two = list(itertools.islice(batches, 2))
        is_single = len(first_two) < 2
        with self._requests(is_single) as requests:
            running: collections.deque = collections.deque()
            for index, inputs in enumerate(itertools.chain(first_two, batches)):
                if len(running) == len(requests):
                    yield self._finish(running.popleft(), names)
                request = requests[index % len(requests)]
                with errors_as_value_error(f"{self.file} failed", self._advice):
                    request.start_async(graph_inputs(inputs, self.inputs))
                running.append((index, inputs, request))
            while running:
                yield self._finish(running.popleft(), names)

    @contextlib.contextmanager
    def _requests(self, is_single):
        """Yield requests that no other call uses; wait at the end until none of them runs."""
        idle = self._idle[is_single]
        model = self._for_one_batch if is_single else self._for_batches
        requests = []
        try:
            for _ in range(1 if is_single else self.parallel_batches):
                try:
                    requests.append(idle.pop())
                except IndexError:
                    requests.append(model.create_infer_request())
            yield requests
        finally:
            for request in requests:
                with contextlib.suppress(RuntimeError):  # `_finish` has raised the first error
                    request.wait()
            idle.extend(requests)

    def _finish(self, running, names):
        """Wait for a request; return the index and the inputs of its batch, and its outputs."""
        index, inputs, request = running
        with errors_as_value_error(f"{self.file} failed", self._advice):
            request.wait()
        # The next batch of the request overwrites its tensors.
        return index, inputs, [request.get_tensor(name).data.copy() for name in names]


def import_openvino():
    """Import openvino without its telemetry.

    Its import would send an event from a forked process, and a fork can hang beside JAX' threads.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    return import_extra("openvino", "openvino", "this format")


def _name_of(value: typing.Any) -> str:
    """Return the name of an input of OpenVINO, which may have several or none."""
    names = value.get_names()
    known = names & set(graph_folder.INPUTS.values())
    return min(known or names, default="")


def _digest_of_files(files: Iterable[pathlib.Path]) -> str:
    return graph_folder.digest_of_graph(*(file.read_bytes() for file in sorted(files)))


def open_session(graph: GraphFile, precision: str | None = None) -> Session:
    """Open the graph in a folder. A LiteRT file must be one of this process.

    Raise a `ValueError` for a file that `keras_bert.export` does not write, unless `is_foreign`,
    and for a precision that the engine lacks; an `ImportError` if the engine is not installed.
    """
    if graph.file.suffix == ".tflite":
        return LiteRtSession(graph.file)
    if graph.file.suffix == ".xml":
        check_one_of("precision", precision, (None, "float32", "bfloat16"))
        return OpenVinoSession(graph, precision or "float32")
    if precision not in (None, "float32"):
        raise ValueError(
            f"an ONNX folder is computed in float32; received precision={precision!r}. Leave it out"
        )
    return OnnxSession(graph)
