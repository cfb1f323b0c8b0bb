"""Export of Keras models as LiteRT folders, for phones and small devices.

The graph takes ids and has core operations only, so that no Flex delegate is needed. MediaPipe's
text tasks take strings: the file of a model of single texts has the vocabulary and the labels, if
the model is uncased, as MediaPipe's tokenizer is.

Source: "Convert TensorFlow models" in the documentation of LiteRT.
"""

import pathlib

import keras
import tensorflow as tf

from keras_bert.exporting import (
    agreement,
    graph_files,
    graph_folder,
    litert_engine,
    mediapipe_metadata,
    verification,
)
from keras_bert.model_structure import find_encoder, find_output
from keras_bert.runtime.arguments import check_one_of
from keras_bert.runtime.packages import import_extra
from keras_bert.tasks import registry

# Files of the graph, by the argument `quantize`.
FILES = {None: "litert/model.tflite", "int8": "litert/model_int8.tflite"}


def export(model, path, *, quantize=None, dev=None, metrics=None, license=None):
    """Write the folder of a LiteRT export; return its `pathlib.Path`.

    Args:
        model: A model of `keras_bert.heads`, or an encoder.
        path: A new or empty folder. It gets a file of `FILES` and the files of an ONNX folder.
        quantize: `"int8"`: weights of 8 bits, whose activations are quantized in each call.
        dev: Data of the task, on which the int8 graph is compared with the float32 graph.
        metrics, license: Contents of `README.md`, see `keras_bert.export`.

    Raises:
        ValueError: If the folder is not empty, or an option has an unknown value.
    """
    check_one_of("quantize", quantize, tuple(FILES))
    path = pathlib.Path(path).expanduser().resolve()
    task = registry.find(model)
    agreement.check_dev(dev, quantize, model, task)
    function = _function(model, task)
    content = _convert(function, quantize)
    comparison = None
    if dev is not None:
        comparison = agreement.compare_pipelines(
            _engine(model, task, content), _engine(model, task, _convert(function, None)), dev
        )
        agreement.warn_of_changes(comparison, dev)
    with graph_files.new_folder(path) as folder:
        graph_files.write_descriptions(model, task, folder)
        file = folder / FILES[quantize]
        file.parent.mkdir()
        file.write_bytes(_with_metadata(content, model, task))
        interpreter = _interpreter(file)  # its runner does not keep it alive
        verification.check_litert(
            interpreter.get_signature_runner(), model, is_exact=quantize is None
        )
        graph_files.write_card(
            model,
            task,
            folder,
            name=path.name,
            format="litert",
            file=file,
            tensors=_tensors(function),
            metrics=metrics,
            license=license,
            precision=quantize or "float32",
            agreement=comparison,
        )
    return path


def _engine(model, task, content):
    names = ["probabilities"] if _has_probabilities(task) else list(task.graph_outputs)
    return litert_engine.LiteRtEngine(model, task, content, names)


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
                verification.GRAPH_NAMES.get(key, key): output
                for key, output in outputs.items()
                if not isinstance(output, (list, tuple))
            }
        if not _has_probabilities(task):
            return {task.graph_outputs[0]: outputs}
        activation = tf.sigmoid if find_output(model).multi_label else tf.nn.softmax
        return {"probabilities": activation(outputs)}

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


def _interpreter(file):
    """Open a LiteRT file with the library that serves it."""
    module = import_extra("ai_edge_litert.interpreter", "litert", "this format")
    return module.Interpreter(str(file))


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
