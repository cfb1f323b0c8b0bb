"""The program in the `README.md` of an ONNX, OpenVINO or LiteRT folder.

That of an ONNX classifier:

    import numpy as np
    import onnxruntime
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
    session = onnxruntime.InferenceSession("onnx/model.onnx")
    texts = ["your text", "another text"]
    encodings = tokenizer.encode_batch(texts)
    inputs = {
        "input_ids": [encoding.ids for encoding in encodings],
        "attention_mask": [encoding.attention_mask for encoding in encodings],
        "token_type_ids": [encoding.type_ids for encoding in encodings],
    }
    inputs = {name: np.array(ids, np.int64) for name, ids in inputs.items()}
    names = ["logits"]
    outputs = dict(zip(names, session.run(names, inputs)))
    logits = outputs["logits"]
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    answers = weights / weights.sum(axis=-1, keepdims=True)  # the probabilities
"""

import dataclasses
import json

from keras_bert.model_structure import find_encoder, find_output, has_choices, max_sequence_length
from keras_bert.text import text_windows


@dataclasses.dataclass(frozen=True)
class _Engine:
    """How the program uses an engine; `{file}` is the graph, `{names}` those of its outputs."""

    module: str
    open: str
    run: str
    dtype: str = "int64"


_ENGINES = {
    "onnx": _Engine(
        module="onnxruntime",
        open='session = onnxruntime.InferenceSession("{file}")',
        run="names = {names}\noutputs = dict(zip(names, session.run(names, inputs)))",
    ),
    # OpenVINO computes in bfloat16 where the processor has it, unless told otherwise.
    "openvino": _Engine(
        module="openvino",
        open='options = {{"INFERENCE_PRECISION_HINT": "f32"}}\n'
        'session = openvino.compile_model("{file}", "CPU", options)',
        run="outputs = session(inputs)",
    ),
    "litert": _Engine(
        module="ai_edge_litert.interpreter",
        open='interpreter = ai_edge_litert.interpreter.Interpreter("{file}")\n'
        "run = interpreter.get_signature_runner()",
        run="outputs = run(**inputs)",
        dtype="int32",
    ),
}
_SECOND_TEXTS = {"text_pair": "pair", "choices": "choice"}  # by default the name of the input
_SPLIT_WINDOWS = """\
windows = [[encoding, *encoding.overflowing] for encoding in encodings]
encodings = [window for windows_of_text in windows for window in windows_of_text]"""
_AVERAGE_WINDOWS = """\
# The answer for a text is the mean over its windows.
ends = np.cumsum([len(windows_of_text) for windows_of_text in windows])[:-1]
answers = np.array([part.mean(axis=0) for part in np.split(answers, ends)])"""
_IDS = """\
The ids of `tokenizer.json` can differ from Google's ids, which keras_bert computes: in texts with
rare characters, in texts with names of special tokens such as [MASK], and in the last token of
pairs of which both texts are too long."""
_PIPELINE = """\
`keras_bert.pipeline` with the path of this folder computes Google's ids and reads long texts as the
model was trained. It imports neither Keras nor TensorFlow."""


def usage(model, task, format, file):
    """Return the section of README.md with a program.

    Args:
        model: The `keras.Model`.
        task: Its `Task`, or `None`.
        format: `"onnx"`, `"openvino"` or `"litert"`.
        file: Path of the graph in the folder.
    """
    output = find_output(model)
    in_windows = output is not None and output.long_texts == "window"
    notes = [_IDS]
    if in_windows:
        notes.append("The model reads long texts in overlapping windows, and so does this program.")
    else:
        notes.append("This program truncates long texts.")
    if format != "litert" and task is not None:
        notes.append(_PIPELINE)
    program = "\n".join(_program(model, task, output, format, file, in_windows))
    start = "## Usage\n\nIn Python, without keras_bert:"
    return f"{start}\n\n```python\n{program}\n```\n\n" + "\n".join(notes)


def _program(model, task, output, format, file, in_windows):
    """Return the lines of the program."""
    engine = _ENGINES[format]
    names, answer = _answer(task, output, format)
    has_masks = format == "litert" and "masked_lm_positions" in model.input
    first, *second = ("text",) if task is None else task.inputs_of(output)
    texts = '"your text", "another text"'
    if second:
        second = _SECOND_TEXTS.get(second[0], second[0])
        texts = f'("your {first}", "its {second}"), ("another {first}", "its {second}")'
    elif has_masks:
        texts = '"a [MASK] text", "another [MASK]"'
    lines = ["import json", ""] if "json." in answer else []
    lines += [
        "import numpy as np",
        f"import {engine.module}",
        "import tokenizers",
        "",
        'tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")',
        engine.open.format(file=file),
    ]
    if in_windows:
        length = max_sequence_length(find_encoder(model))
        overlap = text_windows.overlap(length - 2)  # without [CLS] and [SEP]
        lines.append(f"tokenizer.enable_truncation({length}, stride={overlap})")
    lines.append(f"texts = [{texts}]")
    lines.append("encodings = tokenizer.encode_batch(texts)")
    if in_windows:
        lines.append(_SPLIT_WINDOWS)
    lines += [
        "inputs = {",
        '    "input_ids": [encoding.ids for encoding in encodings],',
        '    "attention_mask": [encoding.attention_mask for encoding in encodings],',
        '    "token_type_ids": [encoding.type_ids for encoding in encodings],',
    ]
    if has_masks:
        positions = '[[encoding.tokens.index("[MASK]")] for encoding in encodings]'
        lines.append(f'    "masked_lm_positions": {positions},')
    array = f"np.array(ids, np.{engine.dtype})" + ("[None]" if has_choices(model) else "")
    lines += [
        "}",
        f"inputs = {{name: {array} for name, ids in inputs.items()}}",
        engine.run.format(names=json.dumps(names)),
        answer,
    ]
    if in_windows:
        lines.append(_AVERAGE_WINDOWS)
    return lines


def _answer(task, output, format):
    """Return names of the graph's outputs, and lines that compute `answers` from `outputs`."""
    if task is None:
        return ["last_hidden_state"], 'answers = outputs["last_hidden_state"]  # of each token'
    if format == "litert" and task.answers_texts and task.has_labels:
        return ["probabilities"], 'answers = outputs["probabilities"]'
    return list(task.graph_outputs), task.graph_program(output)
