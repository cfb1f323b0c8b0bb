"""Export of Keras models as LiteRT folders, for phones and small devices.

The graph takes ids and has core operations only, so that no Flex delegate is needed. MediaPipe's
text tasks take strings: the file of a model of single texts has the vocabulary and the labels, if
the model is uncased, as MediaPipe's tokenizer is.

Source: "Convert TensorFlow models" in the documentation of LiteRT.
"""

import keras
import tensorflow as tf

from keras_bert.exporting import graph_export, graph_folder, mediapipe_metadata
from keras_bert.exporting.graph_predictor import PROBABILITIES
from keras_bert.model_structure import find_encoder, find_output


def folders(job):
    """Return the folder of a LiteRT export."""
    return graph_export.folders(job, LiteRtGraph)


class LiteRtGraph:
    """The graph of a model, as `graph_export.GraphFolder` writes it."""

    files = {None: "litert/model.tflite", "int8": "litert/model_int8.tflite"}

    def __init__(self, job):
        self._job = job
        self._function = _function(job.model, job.task)
        self.tensors = _tensors(self._function)

    def write(self, graph):
        self._write(graph, quantize=None)

    def quantize(self, float32, exported, dev):
        self._write(exported, quantize="int8")

    def _write(self, graph, quantize):
        content = _convert(self._function, quantize)
        graph.file.write_bytes(_with_metadata(content, self._job.model, self._job.task))


def _has_probabilities(task):
    """Return True if the graph ends in the probabilities of labels, as MediaPipe needs it."""
    return task is not None and task.answers_texts and task.has_labels


def _function(model, task):
    """Return the model as a concrete function, with Hugging Face's names."""
    inputs = {graph_folder.INPUTS.get(name, name): name for name in model.input}
    specs = [
        tf.TensorSpec([None] * len(model.input[key].shape), tf.int32, name=name)
        for name, key in inputs.items()
    ]

    # The weights become constants: the converter would write variables without their values.
    trainable = [keras.ops.convert_to_numpy(value) for value in model.trainable_variables]
    non_trainable = [keras.ops.convert_to_numpy(value) for value in model.non_trainable_variables]

    @tf.function(input_signature=specs, autograph=False)
    def compute(*arrays):
        batch = dict(zip(inputs.values(), arrays, strict=True))
        outputs, _ = model.stateless_call(
            [tf.constant(value) for value in trainable],
            [tf.constant(value) for value in non_trainable],
            batch,
            training=False,
        )
        if isinstance(outputs, dict):
            return {
                graph_export.NAMES.get(key, key): output
                for key, output in outputs.items()
                if not isinstance(output, (list, tuple))
            }
        if not _has_probabilities(task):
            return {task.graph_outputs[0]: outputs}
        activation = tf.sigmoid if find_output(model).multi_label else tf.nn.softmax
        return {PROBABILITIES: activation(outputs)}

    return compute.get_concrete_function()


def _convert(function, quantize):
    """Return the bytes of a LiteRT file."""
    module = tf.Module()
    module.compute = function
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if quantize:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return converter.convert()


def _with_metadata(content, model, task):
    """Return a LiteRT file with MediaPipe's metadata, if MediaPipe can read the model."""
    preprocessor = find_encoder(model).preprocessor
    output = find_output(model)
    reads_texts = task is not None and task.answers_texts and not output.pairs
    if not reads_texts or preprocessor is None or not preprocessor.lowercase:
        return content
    if not (_has_probabilities(task) or task.reads_encoders):
        return content  # MediaPipe has no task for a number
    vocabulary = "".join(f"{token}\n" for token in preprocessor.vocabulary)
    return mediapipe_metadata.add(content, vocabulary, output.labels)


def _tensors(function):
    """Return the inputs and outputs of a function, as `model_card.render` takes them."""
    tensors = []
    specs = {spec.name: spec for spec in keras.tree.flatten(function.structured_input_signature)}
    for kind, by_name in (("input", specs), ("output", function.structured_outputs)):
        for name, spec in by_name.items():
            axes = ["any" if size is None else str(size) for size in spec.shape]
            tensors.append((kind, name, spec.dtype.name, axes))
    return tensors
