"""Export of Keras models as ONNX or OpenVINO folders, in the layout of Hugging Face."""

import contextlib
import io
import pathlib

import numpy as np

from keras_bert.exporting import (
    agreement,
    graph_files,
    graph_folder,
    graph_outputs,
    onnx_graph,
    verification,
)
from keras_bert.exporting.graph_engine import GraphEngine
from keras_bert.exporting.graph_folder import GraphFile
from keras_bert.exporting.graph_session import import_openvino, open_session
from keras_bert.model_structure import find_encoder
from keras_bert.runtime.arguments import check_one_of
from keras_bert.runtime.packages import import_extra
from keras_bert.tasks import registry

_CALIBRATION_TEXTS = 300  # the default of nncf


def export(model, path, format, *, quantize=None, dev=None, metrics=None, license=None):
    """Write the folder of an ONNX or OpenVINO export.

    Args:
        model: A model of `keras_bert.heads`, or an encoder.
        path: A new or empty folder.
        format: `"onnx"` or `"openvino"`.
        quantize: `"int8"`. ONNX: dynamic quantization of matmuls and embeddings for ONNX Runtime.
            OpenVINO: static quantization, calibrated on `dev`.
        dev: Data of the task, on which the int8 model is compared with the float32 model.
        metrics, license: Contents of `README.md`, see `keras_bert.export`.

    Returns:
        `pathlib.Path` of the folder. It has the graph in a file of `graph_folder.GRAPH_FILES`,
        `config.json`, `keras_bert.json` and `README.md`; with a preprocessor the files of a
        tokenizer; and for an embedder those of sentence-transformers.

    Raises:
        ValueError: If the model cannot be exported, the folder is not empty, an option has an
            unknown value, or `dev` is not data of the model's task.
        ImportError: If a library is not installed.
    """
    path = pathlib.Path(path).expanduser().resolve()
    task = registry.find(model)
    _check(path, format, task, model, quantize, dev)
    _import("onnx", format)
    proto = onnx_graph.build_model_proto(model)
    with graph_files.new_folder(path) as folder:
        graph_files.write_descriptions(model, task, folder)
        names = graph_folder.GRAPH_FILES[format]
        float32 = GraphFile(folder / names[None], folder)
        exported = GraphFile(folder / names[quantize], folder)
        float32.file.parent.mkdir()
        if format == "onnx":
            float32.file.write_bytes(proto.SerializeToString())
        else:
            _write_openvino(proto, float32)
        if quantize and format == "onnx":
            _quantize_onnx(proto, exported)
        elif quantize:
            _quantize_openvino(float32, exported, dev)
        comparison = None
        if dev is not None:
            comparison = agreement.compare_pipelines(
                GraphEngine(exported), GraphEngine(float32), dev
            )
            agreement.warn_of_changes(comparison, dev)
        preprocessor = find_encoder(model).preprocessor
        graph_folder.write_digests(exported, preprocessor and preprocessor.vocabulary)
        _verify(float32, exported, model, task)
        if quantize:
            float32.file.unlink()
            float32.file.with_suffix(".bin").unlink(missing_ok=True)
        graph_files.write_card(
            model,
            task,
            folder,
            name=path.name,
            format=format,
            file=exported.file,
            tensors=_tensors(proto),
            metrics=metrics,
            license=license,
            precision=quantize or "float32",
            agreement=comparison,
        )
    return path


def _check(path, format, task, model, quantize, dev):
    check_one_of("quantize", quantize, (None, "int8"))
    graph_folder.check_is_new(path)
    if format == "openvino" and quantize and task is None:
        raise ValueError(
            'quantize="int8" needs a model with a head for OpenVINO; received an encoder. Export '
            "keras_bert.heads.embedder(encoder), or an ONNX folder"
        )
    if format == "openvino" and quantize and dev is None:
        raise ValueError(
            'quantize="int8" needs dev for OpenVINO: texts like those that the model will read. '
            "Give some hundred examples"
        )
    agreement.check_dev(dev, quantize, model, task)


def _verify(float32, exported, model, task):
    """Open the exported graph as a pipeline does, and compare the float32 graph with the model."""
    session = _open(exported, model, task)
    if exported == float32:
        verification.check_graph(session, model, task)
        return
    verification.check_is_finite(session, model, task)
    verification.check_graph(open_session(float32.file), model, task)


def _open(graph, model, task):
    """Return the session of a graph, that of a pipeline if the model can have one."""
    has_pipeline = task is not None and not task.is_pretraining
    if has_pipeline and find_encoder(model).preprocessor is not None:
        return GraphEngine(graph).session
    return open_session(graph.file)


def _import(module, extra):
    return import_extra(module, extra, "this format")


def _quantize_onnx(proto, exported):
    """Write the graph with weights of 8 bits. It changes `proto`."""
    onnx = _import("onnx", "onnx")
    tools = _import("onnxruntime.quantization", "onnx")
    # Without this mark, onnxruntime advises a pre-processing that cannot read these graphs.
    onnx.helper.set_model_props(proto, {"onnx.quant.pre_process": "onnxruntime.quant"})
    # A scale per column of a matrix: the embeddings of MiniLM have a mean cosine similarity of
    # 0.991 with those in float32, and with one scale per matrix 0.956.
    tools.quantize_dynamic(
        proto, str(exported.file), weight_type=tools.QuantType.QInt8, per_channel=True
    )
    quantized = onnx.load(exported.file)
    for weight in quantized.graph.initializer:
        array = onnx.numpy_helper.to_array(weight)
        # As bytes, which is the only form that `onnx_graph_check` reads.
        weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
    onnx.save(quantized, exported.file)


def _write_openvino(proto, float32):
    openvino = import_openvino()
    graph = openvino.Core().read_model(proto.SerializeToString())
    openvino.save_model(graph, float32.file, compress_to_fp16=False)


def _quantize_openvino(float32, exported, dev):
    """Write the graph with weights and activations of 8 bits, with scales from the dev data."""
    openvino = import_openvino()
    nncf = _import("nncf", "openvino")
    batches = _calibration_batches(float32, dev)
    with contextlib.redirect_stdout(io.StringIO()):  # nncf prints progress bars
        quantized = nncf.quantize(
            openvino.Core().read_model(float32.file),
            nncf.Dataset(batches),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(batches),
        )
    openvino.save_model(quantized, exported.file, compress_to_fp16=False)


def _calibration_batches(float32, dev):
    """Return the inputs of a graph for some of the data, one batch per sequence."""
    engine = _RecordingEngine(float32)
    inputs = agreement.inputs_of(dev, engine)
    count = min(len(inputs), _CALIBRATION_TEXTS)
    rows = np.random.default_rng(0).choice(len(inputs), count, replace=False)
    engine.task.pipeline(engine)([inputs[row] for row in rows], show_progress=False)
    encoded = engine.encoded
    batches = []
    for row, length in enumerate(encoded.lengths.tolist()):
        batch, _, _ = encoded.batch([row], length)
        batches.append(graph_outputs.graph_inputs(batch))
    return batches


class _RecordingEngine(GraphEngine):
    """An engine that keeps the sequences which its pipeline made of the texts of a call.

    The pipeline runs for these sequences only; its answers are not used.
    """

    def outputs(self, encoded, **options):
        self.encoded = encoded
        return super().outputs(encoded, **options)


def _tensors(proto):
    """Return the inputs and outputs of an ONNX graph, as `model_card.render` takes them."""
    tensors = []
    for kind, dtype, values in (
        ("input", "int64", proto.graph.input),
        ("output", "float32", proto.graph.output),
    ):
        for value in values:
            axes = value.type.tensor_type.shape.dim
            names = [axis.dim_param or str(axis.dim_value) for axis in axes]
            tensors.append((kind, value.name, dtype, names))
    return tensors
