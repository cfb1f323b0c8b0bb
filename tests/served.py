"""SavedModels for tests of exports and servers: small functions and exported heads."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import keras_bert
from keras_bert import heads
from tests import tiny

HEADS = {
    "classification": lambda encoder: heads.classifier(encoder, labels=["bad", "good", "좋음"]),
    "pairs": lambda encoder: heads.regressor(encoder, pairs=True),
    "sets": lambda encoder: heads.classifier(encoder, labels=["a", "b"], multi_label=True),
    "tagging": lambda encoder: heads.tagger(encoder, labels=["B-work", "I-work", "B-mood"]),
    "reader": heads.span_selector,
    "blanks": heads.masked_lm,
    "vectors": heads.embedder,
    "choices": heads.multiple_choice,
}

TEXTS = ["this film is good!", "", "good bad " * 40, "한국어 film so bad", "\x00"]
REQUESTS = {  # of heads that do not take `text` only
    "pairs": {"text": TEXTS, "text_pair": TEXTS[::-1]},
    "reader": {"question": ["is this good", "so", "", "a", "is"], "context": TEXTS},
    "blanks": {"text": ["this [MASK] is", "no blank", "[MASK] [MASK]"]},
    "choices": {"text": TEXTS[:2], "choices": [["a film", "so"], ["bad", "good"]]},
}
# Folder of the shared library that has the C API.
LIBRARIES = pathlib.Path(importlib.util.find_spec("tensorflow").submodule_search_locations[0])
CORE_OPS = pathlib.Path(__file__).parent / "golden" / "core_ops.txt"


def head(name, folder):
    """Export a head on a tiny encoder; large weights give texts different answers."""
    encoder = tiny.encoder(initializer_range=1.0, num_hidden_layers=1)
    keras_bert.export(HEADS[name](encoder), folder)
    return folder


def times(folder, factor):
    """Write a SavedModel that multiplies `x`, float32 (rows,), by a factor and returns `y`."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def serve(x):
        return {"y": x * module.factor}

    module = tf.Module()
    module.factor = tf.Variable(factor)
    return save(module, folder, serve)


def save(module, folder, serve):
    """Write a SavedModel with the signature `serving_default`."""
    tf.saved_model.save(module, str(folder), signatures={"serving_default": serve})
    return folder


def function(call, *inputs):
    """A `tf.function` for `save`; an input is a `tf.TensorSpec`, or the name of strings (rows,)."""
    specs = [
        item if isinstance(item, tf.TensorSpec) else tf.TensorSpec([None], tf.string, name=item)
        for item in inputs
    ]
    return tf.function(call, input_signature=specs, autograph=False)


def graph(version):
    """The `MetaGraphDef` of a SavedModel."""
    saved = (pathlib.Path(version) / "saved_model.pb").read_bytes()
    return saved_model_pb2.SavedModel.FromString(saved).meta_graphs[0]


def foreign_ops(version):
    """`foreign_ops_in` for a SavedModel."""
    return foreign_ops_in(graph(version).graph_def)


def foreign_ops_in(definition):
    """The ops of a `GraphDef`, and those that a TensorFlow from 2.16 to 2.21 lacks."""
    functions = definition.library.function
    ops = {node.op for node in definition.node}
    ops |= {node.op for function in functions for node in function.node_def}
    ops -= {function.signature.name for function in functions}
    known = {line for line in CORE_OPS.read_text().splitlines() if not line.startswith("#")}
    return ops, ops - known


def by_c_api(libraries, version, request):
    """Run `serving_default` with TensorFlow's C library, in a process without Python TensorFlow.

    Args:
        libraries: Folder of the library.
        version: Folder of a SavedModel.
        request: Dict of lists of texts.

    Returns:
        Dict of nested lists: the outputs; `version`, the version of the library; and `foreign`,
        modules and libraries that must not be in the process.
    """
    signature = graph(version).signature_def["serving_default"]
    body = {
        "inputs": {signature.inputs[name].name: value for name, value in request.items()},
        "outputs": {name: tensor.name for name, tensor in signature.outputs.items()},
    }
    result = subprocess.run(
        [sys.executable, "-m", "tests.c_api", libraries, version],
        cwd=pathlib.Path(__file__).parents[1],
        input=json.dumps(body),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
