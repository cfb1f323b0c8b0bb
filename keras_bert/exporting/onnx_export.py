"""Export of Keras models for ONNX Runtime."""

from keras_bert.exporting import graph_export, graph_folder, onnx_graph
from keras_bert.runtime.packages import import_extra


def folders(job):
    """Return the folder of an ONNX export."""
    return graph_export.folders(job, OnnxGraph)


class OnnxGraph:
    """The graph of a model, as `graph_export.GraphFolder` writes it.

    Attributes:
        files: Its file in the folder, by the argument `quantize`.
        tensors: Its inputs and outputs, as `model_card.render` takes them.
    """

    extra = "onnx"

    def __init__(self, job):
        self.files = graph_folder.GRAPH_FILES[self.extra]
        import_extra("onnx", self.extra, "this format")
        self.proto = onnx_graph.build_model_proto(job.model)
        self.tensors = _tensors(self.proto)

    def write(self, graph):
        """Write the file of a `graph_folder.GraphFile` in float32."""
        graph.file.write_bytes(self.proto.SerializeToString())

    def quantize(self, float32, exported, dev):
        """Write the graph with weights of 8 bits. It changes `proto`."""
        onnx = import_extra("onnx", "onnx", "this format")
        tools = import_extra("onnxruntime.quantization", "onnx", "this format")
        # Without this mark, onnxruntime advises a pre-processing that cannot read these graphs.
        onnx.helper.set_model_props(self.proto, {"onnx.quant.pre_process": "onnxruntime.quant"})
        # A scale per column of a matrix: the embeddings of MiniLM have a mean cosine similarity of
        # 0.991 with those in float32, and with one scale per matrix 0.956.
        tools.quantize_dynamic(
            self.proto, str(exported.file), weight_type=tools.QuantType.QInt8, per_channel=True
        )
        quantized = onnx.load(exported.file)
        for weight in quantized.graph.initializer:
            array = onnx.numpy_helper.to_array(weight)
            # As bytes, which is the only form that `onnx_graph_check` reads.
            weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
        onnx.save(quantized, exported.file)


def _tensors(proto):
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
