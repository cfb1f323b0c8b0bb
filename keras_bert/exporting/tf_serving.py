"""Files for TensorFlow Serving: warm-up requests, server settings and a Compose file."""

import json
import pathlib
import re
import urllib.parse

import numpy as np
import tensorflow as tf

from keras_bert.exporting import file_templates
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.terminal import shell_quoted

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
MODELS_FILE = "models.config"
BATCHING_FILE = "batching.config"
COMPOSE_FILE = "compose.yaml"

# A typical text, and one that fills the model's longest sequence, so that the server allocates
# memory and packs weights for both before its first request.
_SHORT, _LONG = "a short text of a few words", "a long text " * 200


def write_warmup(version, inputs):
    """Write the requests that a server runs before it serves the version.

    `version` is the folder of the SavedModel. `inputs` are named `tf.TensorSpec`s of its signature
    `serving_default`.
    """
    file = pathlib.Path(version, WARMUP_FILE)
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for text in (_SHORT, _LONG):
            tensors = {spec.name: example(spec, text) for spec in inputs}
            writer.write(_prediction_log(tensors))


def write_settings(folder, inputs):
    """Write models.config, batching.config and compose.yaml, except for files that exist.

    The name of the model folder is the name of the model. `inputs` are the named
    `tf.TensorSpec`s of `serving_default`.
    """
    folder = pathlib.Path(folder)
    name = folder.resolve().name
    path = f"/models/{name}"  # in the container
    batching = ""
    if can_batch(inputs):
        file = _yaml_string(f"--batching_parameters_file={path}/{BATCHING_FILE}")
        batching = f"      - --enable_batching\n      - {file}"
    values = {
        MODELS_FILE: {"name": _proto_string(name), "path": _proto_string(path)},
        BATCHING_FILE: {},
        COMPOSE_FILE: {
            "curl": curl(name, inputs).replace("\n", "\n#   "),
            "models": _yaml_string(f"--model_config_file={path}/{MODELS_FILE}"),
            "batching": batching,
            "folder": _yaml_string(path),
            "url_name": urllib.parse.quote(name, safe=""),
        },
    }
    for file, values_of_file in values.items():
        if not (folder / file).exists():
            with atomic_write(folder / file) as temporary:
                content = file_templates.fill(file, **values_of_file)
                temporary.write_text(content, encoding="utf-8", newline="\n")


def can_batch(inputs):
    """Return True if the server can batch requests: all rows must have the same shape."""
    return all(spec.shape.rank and spec.shape[1:].is_fully_defined() for spec in inputs)


def curl(model, inputs, server="http://localhost:8501", line_break=" \\\n  "):
    """Return a curl command that sends a row to a model of the server with this address."""
    arrays = {spec.name: tf.make_ndarray(example(spec, "your text")) for spec in inputs}
    rows = {name: np.atleast_1d(array)[0] for name, array in arrays.items()}
    row = rows if len(rows) != 1 else next(iter(rows.values()))
    body = json.dumps({"instances": [row]}, default=_plain)
    url = f"{server}/v1/models/{urllib.parse.quote(model, safe='')}:predict"
    return f"curl -d {shell_quoted(body)}{line_break}{shell_quoted(url)}"


def _plain(value):
    """Convert bytes or an array to a type that JSON has."""
    return value.decode() if isinstance(value, bytes) else value.tolist()


def _proto_string(text):
    """Return a string literal of the text format of protocol buffers."""
    escaped = re.sub(r'["\\\x00-\x1f\x7f]', lambda match: f"\\{ord(match[0]):03o}", text)
    return f'"{escaped}"'


def _yaml_string(text):
    """Return a string literal of YAML, with `$` escaped for Compose."""
    # YAML has the escapes of `printable`.
    return printable(json.dumps(text, ensure_ascii=False)).replace("$", "$$")


def example(spec, text):
    """Return a `TensorProto` with one row for an input: the text, or zeros."""
    shape = [size or 1 for size in spec.shape if spec.shape.rank]
    return tf.make_tensor_proto(text if spec.dtype == tf.string else 0, spec.dtype, shape)


def _prediction_log(tensors):
    """Return a serialized `PredictionLog` with a `PredictRequest`.

    It is encoded by hand, so that exporting does not need the package tensorflow-serving-api.
    Source: `prediction_log.proto`, `predict.proto` and `model.proto` of tensorflow/serving.
    """
    request = _field(1, _field(3, b"serving_default"))  # model_spec.signature_name
    for name, tensor in tensors.items():  # the map `inputs`
        request += _field(2, _field(1, name.encode()) + _field(2, tensor.SerializeToString()))
    return _field(6, _field(1, request))


def _field(number, payload):
    """Return a length-delimited field of a serialized protocol buffer."""
    size = len(payload)
    length = bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + payload
