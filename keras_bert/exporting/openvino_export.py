"""Export of Keras models for OpenVINO. Its graph is made of the ONNX graph."""

import contextlib
import io

import numpy as np

from keras_bert.exporting import graph_export, model_comparison
from keras_bert.exporting.graph_folder import graph_inputs
from keras_bert.exporting.graph_predictor import GraphPredictor
from keras_bert.exporting.graph_session import import_openvino
from keras_bert.exporting.onnx_export import OnnxGraph
from keras_bert.runtime.packages import import_extra

_CALIBRATION_TEXTS = 300  # the default of nncf


def folders(job):
    """Return the folder of an OpenVINO export."""
    if job.quantize and job.task is None:
        raise ValueError(
            'quantize="int8" needs a model with a head for OpenVINO; received an encoder. Export '
            "keras_bert.heads.embedder(encoder), or an ONNX folder"
        )
    if job.quantize and job.dev is None:
        raise ValueError(
            'quantize="int8" needs dev for OpenVINO: texts like those that the model will read. '
            "Give some hundred examples"
        )
    return graph_export.folders(job, OpenVinoGraph)


class OpenVinoGraph(OnnxGraph):
    """The graph of a model for OpenVINO."""

    extra = "openvino"

    def write(self, graph):
        openvino = import_openvino()
        model = openvino.Core().read_model(self.proto.SerializeToString())
        openvino.save_model(model, graph.file, compress_to_fp16=False)

    def quantize(self, float32, exported, dev):
        """Write the graph with weights and activations of 8 bits, with scales from the dev data."""
        openvino = import_openvino()
        nncf = import_extra("nncf", "openvino", "this format")
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
    predictor = _RecordingPredictor.open(float32)
    inputs = model_comparison.rows_of(dev, predictor)
    count = min(len(inputs), _CALIBRATION_TEXTS)
    rows = np.random.default_rng(0).choice(len(inputs), count, replace=False)
    predictor.task.pipeline(predictor)([inputs[row] for row in rows], show_progress=False)
    encoded = predictor.encoded
    batches = []
    for row, length in enumerate(encoded.lengths.tolist()):
        batch, _, _ = encoded.batch([row], length)
        batches.append(graph_inputs(batch, predictor.session.inputs))
    return batches


class _RecordingPredictor(GraphPredictor):
    """A predictor that keeps the sequences which its pipeline made of the texts of a call.

    The pipeline runs for these sequences only; its answers are not used.
    """

    def outputs(self, encoded, **options):
        self.encoded = encoded
        return super().outputs(encoded, **options)
