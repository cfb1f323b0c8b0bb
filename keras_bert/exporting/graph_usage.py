"""The program in the `README.md` of an ONNX, OpenVINO or LiteRT folder."""

import dataclasses
import json

from keras_bert.exporting import file_templates
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
_POSITIONS = (
    '    "masked_lm_positions": [[encoding.tokens.index("[MASK]")] for encoding in encodings],'
)
_READS_WINDOWS = "The model reads long texts in overlapping windows, and so does this program."
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
    engine = _ENGINES[format]
    names, answer = _answer(task, output, format)
    has_masks = format == "litert" and "masked_lm_positions" in model.input
    in_windows = output is not None and output.long_texts == "window"
    truncation = ""
    if in_windows:
        length = max_sequence_length(find_encoder(model))
        overlap = text_windows.overlap(length - 2)  # without [CLS] and [SEP]
        truncation = f"tokenizer.enable_truncation({length}, stride={overlap})"
    return file_templates.fill(
        "graph_usage.md",
        imports="import json\n" if "json." in answer else "",
        module=engine.module,
        open=engine.open.format(file=file),
        truncation=truncation,
        texts=_texts(task, output, has_masks),
        split_windows=_SPLIT_WINDOWS if in_windows else "",
        positions=_POSITIONS if has_masks else "",
        array=f"np.array(ids, np.{engine.dtype})" + ("[None]" if has_choices(model) else ""),
        run=engine.run.format(names=json.dumps(names)),
        answer=answer,
        average_windows=_AVERAGE_WINDOWS if in_windows else "",
        long_texts=_READS_WINDOWS if in_windows else "This program truncates long texts.",
        pipeline=_PIPELINE if format != "litert" and task is not None else "",
    )


def _texts(task, output, has_masks):
    """Return the texts of the program."""
    first, *second = ("text",) if task is None else task.inputs_of(output)
    if second:
        second = _SECOND_TEXTS.get(second[0], second[0])
        return f'("your {first}", "its {second}"), ("another {first}", "its {second}")'
    if has_masks:
        return '"a [MASK] text", "another [MASK]"'
    return '"your text", "another text"'


def _answer(task, output, format):
    """Return names of the graph's outputs, and lines that compute `answers` from `outputs`."""
    if task is None:
        return ["last_hidden_state"], 'answers = outputs["last_hidden_state"]  # of each token'
    if format == "litert" and task.answers_texts and task.has_labels:
        return ["probabilities"], 'answers = outputs["probabilities"]'
    return list(task.graph_outputs), task.graph_program(output)
