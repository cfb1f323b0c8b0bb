"""Export for OpenVINO Model Server: an OpenVINO graph that takes strings.

The server answers the requests of TensorFlow Serving. Its tokenizer is that of openvino-tokenizers,
whose ids differ from Google's in rare texts; see docs/deploy/openvino.md.

Source: "Support for text data format" in the documentation of OpenVINO Model Server.
"""

import json
import pathlib
import urllib.parse

from keras_bert.checkpoints import tokenizer_json
from keras_bert.checkpoints.folder import write_json
from keras_bert.exporting import graph_files, graph_folder, model_card, onnx_graph, verification
from keras_bert.exporting.graph_session import import_openvino
from keras_bert.hub import conversion
from keras_bert.model_structure import find_encoder, find_output, max_sequence_length
from keras_bert.runtime.packages import import_extra
from keras_bert.runtime.terminal import shell_quoted
from keras_bert.tasks import registry
from keras_bert.tasks.activations import sigmoid, softmax

MODEL_FILE = "1/model.xml"
CONFIG_FILE = "config.json"
_MAX_BYTES = 4 * tokenizer_json.MAX_WORD_LENGTH  # of a word in UTF-8; the converter sets 100
# Output of the graph -> name of the output, as in a SavedModel for TensorFlow Serving.
_NAMES = {"logits": "probabilities", "score": "score", "sentence_embedding": "embedding"}
_USAGE = """\
## Usage

Run in this folder:

```sh
docker run --rm -p 127.0.0.1:8501:8501 -v "$PWD:/models/model" openvino/model_server:latest \\
    --config_path /models/model/config.json --port 9000 --rest_port 8501 \\
    --cpu_extension /ovms/lib/libopenvino_tokenizers.so
curl -d {inputs} {url}
```

Clients of TensorFlow Serving send the same requests. {labels}Longer texts are truncated. The ids of
this graph can differ from Google's: in texts with names of special tokens such as [MASK], with a
final sigma, or with rare characters."""

_LABELS = """\
The answers have no output `label`: the probabilities are in the order of the labels in the table
above. """


def export(model, path, metrics=None, license=None):
    """Write the folder of a model for OpenVINO Model Server; return its `pathlib.Path`.

    Args:
        model: A model with one answer per text, or per pair of texts, and a preprocessor.
        path: A new or empty folder. It gets `1/model.xml` with `1/model.bin`, the server's
            `config.json`, and a card, `README.md`.
        metrics, license: Contents of `README.md`, see `keras_bert.export`.

    Raises:
        ValueError: If the task has other answers, or the model has prompts or reads long texts in
            windows.
        ImportError: If a library is not installed.
    """
    path = pathlib.Path(path).expanduser().resolve()
    task = registry.find(model)
    output = find_output(model)
    _check(path, model, task, output)
    openvino = import_openvino()
    _import("onnx")
    proto = onnx_graph.build_model_proto(model)
    graph = openvino.Core().read_model(proto.SerializeToString())
    served = _served(openvino, _tokenizer(openvino, model, output), graph, task, output)
    with graph_files.new_folder(path) as folder:
        (folder / MODEL_FILE).parent.mkdir()
        openvino.save_model(served, folder / MODEL_FILE, compress_to_fp16=False)
        _verify(openvino, folder / MODEL_FILE, model, task, output)
        config = {"name": path.name, "base_path": "/models/model"}
        write_json(folder / CONFIG_FILE, {"model_config_list": [{"config": config}]})
        _write_card(model, path.name, folder, served, task, output, metrics, license)
    return path


def _check(path, model, task, output):
    graph_folder.check_is_new(path)
    if task is None or not task.answers_texts:
        name = "an encoder" if task is None else f"the task {task.name}"
        raise ValueError(
            f"this format needs a model with one answer per text; received {name}. Export a "
            "SavedModel for TensorFlow Serving"
        )
    if find_encoder(model).preprocessor is None:
        raise ValueError(f"{model.name!r} has no preprocessor, which this format needs")
    if output.long_texts == "window" or output.default_prompt is not None:
        what = "a default prompt" if output.default_prompt else "long_texts='window'"
        raise ValueError(f"this format cannot hold {what}. Export a SavedModel")


def _tokenizer(openvino, model, output):
    """Return the OpenVINO graph of the tokenizer."""
    convert = _import("openvino_tokenizers").convert_tokenizer
    transformers = _import("transformers")
    tokenizers = _import("tokenizers")

    checkpoint = conversion.checkpoint_of(model)
    content = tokenizer_json.text(checkpoint.tokenizer, checkpoint.vocabulary or [])
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
    length = max_sequence_length(find_encoder(model))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(content),
        model_max_length=length,
        model_input_names=list(graph_folder.INPUTS.values()),  # transformers 5 leaves out segments
        **names,
    )
    graph = convert(
        tokenizer, truncation=True, max_length=length, number_of_inputs=2 if output.pairs else 1
    )
    patch_tokenizer(graph)
    return graph


def _import(module):
    return import_extra(module, "openvino", "this format")


def patch_tokenizer(graph):
    """Change a converted tokenizer: words of 200 characters, and a truncation that stays on."""
    for operation in graph.get_ordered_ops():
        if operation.get_type_name() == "WordpieceTokenizer":
            operation.set_attribute("max_bytes_per_word", _MAX_BYTES)
        elif operation.get_type_name() == "ReadValue":
            # A request could set this variable, and so turn the truncation off.
            operation.output(0).replace(operation.input_value(0))
    for sink in graph.get_sinks():
        graph.remove_sink(sink)


def _served(openvino, tokenizer, graph, task, output):
    """Return one graph from strings to answers."""
    connect = _import("openvino_tokenizers").connect_models
    connected = connect(tokenizer, graph)
    operations = openvino.opset13
    [name] = task.graph_outputs
    x = connected.output(name).get_node().input_value(0)
    if task.has_probabilities:
        x = operations.sigmoid(x) if output.multi_label else operations.softmax(x, -1)
    elif name == "score":  # a number: (batch,) as in a SavedModel
        x = operations.squeeze(x, [-1])
    result = operations.result(x)
    result.output(0).get_tensor().set_names({_NAMES[name]})
    for parameter, text in zip(connected.inputs, task.inputs_of(output), strict=True):
        parameter.get_tensor().set_names({text})
    return openvino.Model([result], connected.get_parameters(), "keras_bert")


def _verify(openvino, file, model, task, output):
    """Compare the answers of the graph for plain texts, whose ids are Google's, with the model."""
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    served = openvino.compile_model(file, "CPU", options)
    preprocessor = find_encoder(model).preprocessor
    words = [token for token in preprocessor.vocabulary if token.isascii() and token.isalnum()]
    texts = ["", " ".join(words[:9])]
    columns = {name: texts for name in task.inputs_of(output)}
    [values] = served(columns).values()
    ids = preprocessor.with_options(sequence_length=None)(*columns.values())
    expected = verification.outputs_of(model, ids)[""]
    if task.has_probabilities:
        expected = sigmoid(expected) if output.multi_label else softmax(expected)
    actual = values.reshape(expected.shape)
    verification.check_equal({"": actual}, {"": expected}, model)


def _write_card(model, name, folder, served, task, output, metrics, license):
    inputs = task.inputs_of(output)
    tensors = [("input", text, "string", ["batch"]) for text in inputs]
    width = served.outputs[0].partial_shape
    axes = ["batch", *(str(size) for size in list(width)[1:])]
    tensors.append(("output", served.outputs[0].any_name, "float32", axes))
    info = model_card.ModelInfo(
        output,
        parameters=model.count_params(),
        max_sequence_length=max_sequence_length(find_encoder(model)),
        metrics=metrics,
        license=license,
        precision="float32",
        labels_file=None,
    )
    request = json.dumps({"inputs": {text: [f"your {text}"] for text in inputs}})
    url = f"http://localhost:8501/v1/models/{urllib.parse.quote(name, safe='')}:predict"
    usage = _USAGE.format(
        inputs=shell_quoted(request), url=shell_quoted(url), labels=_LABELS if output.labels else ""
    )
    text = model_card.render(name, info, {"Graph": tensors}, folder, usage)
    (folder / "README.md").write_text(text, encoding="utf-8", newline="\n")
