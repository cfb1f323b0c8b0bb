"""Export of Keras models as ONNX or OpenVINO folders, in the layout of Hugging Face."""

import contextlib
import importlib
import io
import pathlib
import warnings

import numpy as np

from keras_bert.exporting import (
    agreement,
    graph_files,
    graph_folder,
    graph_outputs,
    onnx_graph,
)
from keras_bert.exporting.graph_engine import GraphEngine
from keras_bert.exporting.graph_session import import_openvino
from keras_bert.model_structure import find_encoder, find_output
from keras_bert.runtime.arguments import check_one_of
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import registry

_MAX_POINTS = 1  # largest loss without a warning: points of the metric, or percent of the answers
_MIN_COSINE = 0.99  # least mean cosine of embeddings without a warning
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
    _import("onnx", "onnx")
    proto = onnx_graph.build_model_proto(model)
    with graph_files.new_folder(path) as folder:
        graph_files.write_descriptions(model, task, folder)
        files = {key: folder / name for key, name in graph_folder.GRAPH_FILES[format].items()}
        files[None].parent.mkdir()
        comparison = None
        if format == "onnx":
            _write_onnx(proto, files, quantize)
        else:
            _write_openvino(proto, files, quantize, dev)
        if dev is not None:
            actual, expected = (GraphEngine(files[key]) for key in (quantize, None))
            comparison = agreement.compare_pipelines(actual, expected, dev)
            _warn(comparison, dev)
        if quantize:
            files[None].unlink()
            files[None].with_suffix(".bin").unlink(missing_ok=True)
        graph_files.write_card(
            model,
            task,
            folder,
            name=path.name,
            format=format,
            file=files[quantize],
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
    if format == "openvino" and quantize and dev is None:
        raise ValueError(
            'quantize="int8" needs dev for OpenVINO: texts like those that the model will read. '
            "Give some hundred examples"
        )
    if dev is None:
        return
    if quantize is None:
        raise ValueError('dev needs quantize="int8", which is compared with float32. Remove dev')
    if task is None or find_encoder(model).preprocessor is None:
        raise ValueError(
            "dev needs a model with a head and a preprocessor; received "
            f"{'an encoder' if task is None else 'no preprocessor'}. Leave out dev"
        )
    agreement.check_data(dev, find_output(model))
    if not len(dev):
        raise ValueError(f"{dev.source} contains no examples. Give some for dev")


def _import(name, extra):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"this export needs {name}; run: pip install 'keras3-bert[{extra}]'"
        ) from error


def _write_onnx(proto, files, quantize):
    files[None].write_bytes(proto.SerializeToString())
    if quantize:
        onnx = _import("onnx", "onnx")
        tools = _import("onnxruntime.quantization", "onnx")
        # Without this mark, onnxruntime advises a pre-processing that cannot read these graphs.
        onnx.helper.set_model_props(proto, {"onnx.quant.pre_process": "onnxruntime.quant"})
        # A scale per column of a matrix: the embeddings of MiniLM have a mean cosine similarity of
        # 0.991 with those in float32, and with one scale per matrix 0.956.
        tools.quantize_dynamic(
            proto, str(files[quantize]), weight_type=tools.QuantType.QInt8, per_channel=True
        )
        quantized = onnx.load(files[quantize])
        for weight in quantized.graph.initializer:
            array = onnx.numpy_helper.to_array(weight)
            # As bytes, which is the only form that `onnx_graph_check` reads.
            weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
        onnx.save(quantized, files[quantize])


def _write_openvino(proto, files, quantize, dev):
    openvino = import_openvino()
    graph = openvino.Core().read_model(proto.SerializeToString())
    openvino.save_model(graph, files[None], compress_to_fp16=False)
    if quantize:
        nncf = _import("nncf", "openvino")
        batches = _calibration_batches(files[None], dev)
        with contextlib.redirect_stdout(io.StringIO()):  # nncf prints progress bars
            quantized = nncf.quantize(
                graph,
                nncf.Dataset(batches),
                model_type=nncf.ModelType.TRANSFORMER,
                subset_size=len(batches),
            )
        openvino.save_model(quantized, files[quantize], compress_to_fp16=False)


def _calibration_batches(file, dev):
    """Return the inputs of a graph for some of the data, one batch per sequence."""
    engine = _RecordingEngine(file)
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
    """An engine that keeps the sequences which its pipeline made of the texts of a call."""

    def outputs(self, encoded, **options):
        self.encoded = encoded
        return super().outputs(encoded, **options)


def _warn(comparison, dev):
    """Warn if int8 changes the answers too much on the dev data."""
    change = None
    points = 100 * (comparison.float32_score - comparison.score)
    if comparison.metric is not None:
        if points > _MAX_POINTS + 1e-6:  # 0.9 - 0.89 is a little more than 0.01
            change = f"int8 loses {points:.1f} points of {comparison.metric.replace('_', ' ')}"
    elif comparison.equal is not None and 100 * (1 - comparison.equal) > _MAX_POINTS + 1e-6:
        change = f"int8 changes {1 - comparison.equal:.1%} of the answers"
    elif comparison.cosine is not None and comparison.cosine < _MIN_COSINE:
        change = f"the mean cosine similarity of int8 and float32 is {comparison.cosine:.3f}"
    if change is not None:
        warnings.warn(
            f"{dev.source}: {change}. Use float32 where that is too much",
            stacklevel=level_of_caller(),
        )


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
