"""The programs in the `README.md` of an ONNX or OpenVINO folder."""

from keras_bert.model_structure import find_encoder, max_sequence_length
from keras_bert.text import text_windows

_PAGE = """\
## Usage

In Python, without keras_bert:

```python
import numpy as np
import {engine}
import tokenizers

tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
{open}
{limit}encodings = tokenizer.encode_batch([{texts}])
{windows}inputs = {{
    "input_ids": [encoding.ids for encoding in encodings],
    "attention_mask": [encoding.attention_mask for encoding in encodings],
    "token_type_ids": [encoding.type_ids for encoding in encodings],
}}
inputs = {{name: np.array(ids, np.int64){batch} for name, ids in inputs.items()}}
{run}
{answer}{mean}```

{reads}The ids of `tokenizer.json` can differ from Google's ids, which
keras_bert computes: in texts with rare characters, in texts with names of special tokens such as
[MASK], and in the last token of pairs of which both texts are too long. `keras_bert.pipeline` with
the path of this folder runs a model with a head. It reads long texts as the model was
trained{difference}, and imports neither Keras nor TensorFlow."""
_ENGINES = {
    "onnx": {
        "engine": "onnxruntime",
        "open": 'session = onnxruntime.InferenceSession("{file}")',
        "run": 'outputs = session.run(["{output}"], inputs)[0]',
    },
    "litert": {
        "engine": "ai_edge_litert.interpreter",
        "open": 'interpreter = ai_edge_litert.interpreter.Interpreter("{file}")\n'
        "run = interpreter.get_signature_runner()",
        "run": "inputs = {{name: ids.astype(np.int32) for name, ids in inputs.items()}}\n"
        'outputs = run(**inputs)["{output}"]',
    },
    # OpenVINO computes in bfloat16 where the processor has it, unless told otherwise.
    "openvino": {
        "engine": "openvino",
        "open": 'options = {{"INFERENCE_PRECISION_HINT": "f32"}}\n'
        'session = openvino.compile_model("{file}", "CPU", options)',
        "run": 'outputs = session(inputs)["{output}"]',
    },
}
# Parts of the program for a model that reads long texts in windows.
_WINDOWS = {
    "limit": """\
tokenizer.enable_truncation({length}, stride={overlap})  # the rest of a text overflows
""",
    "windows": """\
windows = [[encoding, *encoding.overflowing] for encoding in encodings]
encodings = [window for windows_of_text in windows for window in windows_of_text]
""",
    "mean": """\
# The answer for a text is the mean over its windows.
ends = np.cumsum([len(windows_of_text) for windows_of_text in windows])[:-1]
answers = np.array([part.mean(axis=0) for part in np.split(answers, ends)])
""",
    "reads": "The model reads long texts in overlapping windows, and so does this program. ",
    "difference": "",
}
_NO_WINDOWS = dict.fromkeys(_WINDOWS, "") | {"difference": "; the program truncates them"}


def has_probabilities(task):
    """Return True if a LiteRT graph ends in the probabilities of labels, as MediaPipe needs it."""
    return task is not None and task.answers_texts and task.has_labels


def usage(model, output, task, format, file):
    """Return the section of README.md with a program.

    Args:
        model: The `keras.Model`.
        output: Its `layers.TaskOutput`, or `None` for an encoder.
        task: Its `Task`, or `None`.
        format: `"onnx"`, `"openvino"` or `"litert"`.
        file: Path of the graph in the folder.
    """
    has_choices = len(model.inputs[0].shape) == 3
    texts = '"your text", "another text"'
    if has_choices or (output is not None and output.pairs):
        texts = '("your text", "its pair"), ("another text", "its pair")'
    parts = _NO_WINDOWS
    if output is not None and output.long_texts == "window":
        length = max_sequence_length(find_encoder(model))
        overlap = text_windows.overlap(length - 2)  # without [CLS] and [SEP]
        limit = _WINDOWS["limit"].format(length=length, overlap=overlap)
        parts = _WINDOWS | {"limit": limit}
    name = "last_hidden_state" if task is None else task.graph_outputs[0]
    answer = "answers = outputs\n" if task is None else task.graph_program(output)
    if format == "litert" and has_probabilities(task):
        name = "probabilities"
        answer = "answers = outputs\n"
    engine = {key: line.format(file=file, output=name) for key, line in _ENGINES[format].items()}
    batch = "[None]" if has_choices else ""
    return _PAGE.format(texts=texts, batch=batch, answer=answer, **engine, **parts)
