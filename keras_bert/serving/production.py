"""What TensorFlow Serving wants beside a SavedModel: warm-up requests, batching, a Compose file."""

import json
import pathlib

import tensorflow as tf

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
BATCHING_FILE = "batching.config"
COMPOSE_FILE = "compose.yaml"

# A short text, as most requests are, and one that fills the model's longest sequence: what the
# server allocates for them it has before the first client comes.
_SHORT, _LONG = "a short text", "a long text " * 200

# No padding option: the server would pad `input_mask` with ones. So it joins requests of
# strings, which have no length yet, and the graph pads.
_BATCHING = """\
# For tensorflow_model_server --enable_batching --batching_parameters_file=...
max_batch_size { value: 64 }
batch_timeout_micros { value: 1000 }
max_enqueued_batches { value: 1000 }
num_batch_threads { value: 4 }
"""

_COMPOSE = """\
# docker compose up, then:
#   curl -d '{{"instances": [{instance}]}}' \\
#     http://localhost:8501/v1/models/{name}:predict
services:
  serving:
    image: tensorflow/serving:${{TF_SERVING_TAG:-latest}}
    command:
      - --enable_batching
      - --batching_parameters_file=/models/{name}/{batching}
    environment:
      MODEL_NAME: {name}
    ports:
      - "127.0.0.1:8500:8500"  # gRPC
      - "127.0.0.1:8501:8501"  # REST
    volumes:
      - .:/models/{name}:ro
"""


def write_warmup(version, inputs, signature="serving_default"):
    """Writes the requests that a server sends itself before it serves a version.

    Args:
        version: folder of the SavedModel.
        inputs: the signature's inputs, a list of named `tf.TensorSpec`.
        signature: its name.

    Returns:
        How many requests were written.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_warmup(folder, [tf.TensorSpec([None], tf.string, name="text")])
    2
    """
    file = pathlib.Path(version, WARMUP_FILE)
    file.parent.mkdir(exist_ok=True)
    texts = (_SHORT, _LONG)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for text in texts:
            tensors = {spec.name: _example(spec, text) for spec in inputs}
            writer.write(_prediction_log(signature, tensors))
    return len(texts)


def write_settings(folder, input_names):
    """Writes the batching parameters and a Compose file; files that are there stay.

    Args:
        folder: the model folder, which holds the versions; its name is the model's.
        input_names: names of the inputs of `serving_default`.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_settings(folder, ["text"])
    ...     sorted(path.name for path in pathlib.Path(folder).iterdir())
    ['batching.config', 'compose.yaml']
    """
    folder = pathlib.Path(folder)
    name = folder.resolve().name
    texts = dict.fromkeys(input_names, "your text")
    instance = "your text" if len(texts) == 1 else texts
    compose = _COMPOSE.format(name=name, instance=json.dumps(instance), batching=BATCHING_FILE)
    for file, content in ((BATCHING_FILE, _BATCHING), (COMPOSE_FILE, compose)):
        if not (folder / file).exists():
            (folder / file).write_text(content, encoding="utf-8")


def _example(spec, text):
    """A tensor of one row that fits an input: the text, or zeros."""
    shape = [size or 1 for size in spec.shape]
    return tf.make_tensor_proto(text if spec.dtype == tf.string else 0, spec.dtype, shape)


def _prediction_log(signature, tensors):
    """One record: `PredictionLog.predict_log.request` of TensorFlow Serving's API, serialized.

    Written by hand, field number by field number, so that exporting needs no package of it.
    Source: `prediction_log.proto`, `predict.proto` and `model.proto` of tensorflow/serving.
    """
    request = _field(1, _field(3, signature.encode()))  # model_spec.signature_name
    for name, tensor in tensors.items():  # inputs, a map
        request += _field(2, _field(1, name.encode()) + _field(2, tensor.SerializeToString()))
    return _field(6, _field(1, request))


def _field(number, payload):
    """A length-delimited field of a serialized protocol buffer."""
    size, length = len(payload), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + payload
