"""Export of Keras models as ONNX folders, for ONNX Runtime and OpenVINO."""

import contextlib
import importlib
import json
import logging
import pathlib
import time
import warnings

import keras
import numpy as np

from keras_bert.checkpoints import tokenizer_json
from keras_bert.checkpoints.folder import write_json
from keras_bert.exporting import agreement, model_card, onnx_graph
from keras_bert.exporting.onnx_folder import LABELS_FILE, MODEL_FILE, OnnxOutput
from keras_bert.model_structure import find_encoder, find_output, find_task, max_sequence_length
from keras_bert.runtime.escaping import markdown
from keras_bert.runtime.files import temporary_folder
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import registry
from keras_bert.text import text_windows
from keras_bert.text.encoded_texts import EncodedTexts
from keras_bert.text.text_windows import mean_per_text

QUANTIZATIONS = (None, "int8")
_MAX_POINTS = 1  # largest loss without a warning: points of accuracy, or percent of the answers

_README = """\
# {name}

A BERT model for {engines}, written by keras_bert. Task: {task}. Weights: {weights}.
{accuracy}
Inputs, int32: {inputs}; at most {length} tokens: {longer}. Outputs: {outputs}. {labels}
{sample}"""
_SAMPLE = """
```python
import numpy as np
import onnxruntime
import tokenizers

tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
session = onnxruntime.InferenceSession("model.onnx")
{limit}encodings = tokenizer.encode_batch([{texts}])
{windows}inputs = {{
    "input_word_ids": [encoding.ids for encoding in encodings],
    "input_mask": [encoding.attention_mask for encoding in encodings],
    "input_type_ids": [encoding.type_ids for encoding in encodings],
}}
inputs = {{name: np.array(ids, np.int32){batch} for name, ids in inputs.items()}}
{positions}outputs = session.run(None, inputs)
{mean}```
"""
# Parts of the program for a model that reads long texts in windows.
_LIMIT = """\
tokenizer.enable_truncation({length}, stride={overlap})  # the rest of a text overflows
"""
_WINDOWS = """\
windows = [[encoding, *encoding.overflowing] for encoding in encodings]
encodings = [window for windows_of_text in windows for window in windows_of_text]
"""
_MEAN = """\
# The answer for a text is the mean over its windows.
ends = np.cumsum([len(windows_of_text) for windows_of_text in windows])[:-1]
outputs = [
    np.array([part.mean(axis=0) for part in np.split(output, ends)]) for output in outputs
]
"""
_NO_WINDOWS = """
The program above truncates longer texts. `keras_bert.pipeline` reads them in windows.
"""
_PIPELINE = """
`keras_bert.pipeline` with the path of this folder runs the model. It imports neither Keras nor
TensorFlow.
"""
_TOKENIZER = """
The ids of `tokenizer.json` can differ from Google's ids, which keras_bert computes: in texts with
rare characters, and in the last token of pairs of which both texts are too long.
"""


def export(model, path, quantize=None, dev=None, metrics=None, license=None):
    """Write `model.onnx` and `README.md`; with a preprocessor the tokenizer; labels if any.

    Args:
        model: A model of `keras_bert.heads`, or an encoder.
        path: A new or empty folder.
        quantize: `"int8"` for ONNX Runtime's dynamic quantization of matmuls and embeddings.
            OpenVINO cannot read that file.
        dev: `keras_bert.Examples` on which the int8 model is compared with the float32 model:
            equal answers, accuracy if each text has one label, and time.
        metrics, license: Contents of `README.md`, see `keras_bert.export`.

    Returns:
        `pathlib.Path` of the folder. It has `model.onnx` and `README.md`; with a preprocessor
        `vocab.txt` and `tokenizer.json`; and `labels.txt` if the model has labels.

    Raises:
        ValueError: If the model cannot be exported, the folder is not empty, an option has an
            unknown value, or `dev` is not data of the model's task.
        ImportError: If onnx, tokenizers, or for int8 onnxruntime, is not installed.
    """
    path = pathlib.Path(path).expanduser().resolve()
    task = (isinstance(model, keras.Model) and find_task(model)) or "encoder"
    _check(path, task, model, quantize, dev)
    onnx = _import("onnx")
    proto = onnx_graph.build_model_proto(model)
    output, encoder = find_output(model), find_encoder(model)
    metadata = {"task": task}
    if output is not None:
        options = {name: getattr(output, name) for name in OnnxOutput.option_names()}
        metadata["output"] = json.dumps(options, ensure_ascii=False)
    onnx.helper.set_model_props(proto, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(path.parent, ".writing-") as folder:
        file = folder / MODEL_FILE
        file.write_bytes(proto.SerializeToString())
        comparison = None
        if quantize:
            _quantize(file)
        if dev is not None:
            comparison = _compare(model, proto, file, dev)
        if encoder.preprocessor is not None:
            _write_tokenizer(encoder, folder)
        if output is not None and output.labels:
            lines = "".join(f"{label}\n" for label in output.labels)
            (folder / LABELS_FILE).write_text(lines, encoding="utf-8", newline="\n")
        text = _readme(path.name, model, proto, quantize, comparison)
        if output is not None and output.prompts:
            text += f"\n{model_card.prompts_section(output.prompts, output.default_prompt)}\n"
        text += f"\n{model_card.metrics_section(metrics)}\n"
        if quantize and metrics:
            text += "\nMetrics of a training run are of the model before quantization.\n"
        text += f"\n{model_card.license_section(metrics, license)}\n"
        (folder / "README.md").write_text(text, encoding="utf-8", newline="\n")
        if path.exists():
            path.rmdir()
        folder.rename(path)
    return path


def _check(path, task, model, quantize, dev):
    if quantize not in QUANTIZATIONS:
        raise ValueError(f"quantize must be 'int8' or None; received {quantize!r}")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} exists and is not an empty folder. Choose another path")
    if dev is None:
        return
    if quantize is None:
        raise ValueError(
            'dev needs quantize="int8": the int8 model is compared with the float32 model on it. '
            "Leave out dev"
        )
    text_tasks = [task.name for task in registry.TASKS if task.answers_texts]
    if task not in text_tasks or find_encoder(model).preprocessor is None:
        raise ValueError(
            f"dev works for the tasks {', '.join(text_tasks)} with a preprocessor; {model.name!r} "
            f"has the task {task}. Leave out dev, and score the folder with "
            "keras_bert.pipeline(path).evaluate(dev)"
        )
    agreement.check_data(dev, find_output(model))


def _import(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"an ONNX export needs {name}; run: pip install 'keras3-bert[onnx]'"
        ) from error


def _quantize(file):
    """Replace the weights of the matmuls and embeddings in a file by int8."""
    _import("onnxruntime")
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _without_preprocessing_advice():
        quantize_dynamic(str(file), str(file), weight_type=QuantType.QInt8)


@contextlib.contextmanager
def _without_preprocessing_advice():
    """Hide onnxruntime's advice to pre-process the model.

    Its pre-processing cannot read these graphs ("Incomplete symbolic shape inference").
    """
    root = logging.getLogger()
    handlers = list(root.handlers)

    def is_other(record):
        return "pre-processing before quantization" not in record.getMessage()

    root.addFilter(is_other)
    try:
        yield
    finally:
        root.removeFilter(is_other)
        # `logging.warning`, which onnxruntime calls, adds a handler if there is none.
        for handler in set(root.handlers) - set(handlers):
            root.removeHandler(handler)


def _compare(model, proto, file, dev):
    """Compare the file with the float32 model on `dev`.

    Returns an `agreement.Agreement`, and the time of the int8 model divided by that of the float32
    model.
    """
    runtime = _import("onnxruntime")
    int8, float32 = (
        _Answers(model, runtime.InferenceSession(data, providers=["CPUExecutionProvider"]))
        for data in (str(file), proto.SerializeToString())
    )
    found = agreement.compare(int8, float32, dev, find_output(model))
    if warning := _warning(found):
        warnings.warn(
            f"{dev.source}: {warning}. Use float32 where that is too much",
            stacklevel=level_of_caller(),
        )
    return found, int8.seconds / float32.seconds


class _Answers:
    """A function from texts to the answers of an ONNX session, for `agreement.compare`.

    `seconds` is the total time of the session. Long texts are read as the model says.
    """

    def __init__(self, model, session):
        encoder = find_encoder(model)
        self._tokenizer = encoder.preprocessor.python_tokenizer
        self._max_length = max_sequence_length(encoder)
        self._output = find_output(model)
        self._session = session
        self.seconds = 0.0

    def __call__(self, *texts):
        in_windows = self._output.long_texts == "window"
        encoded = EncodedTexts(self._tokenizer, texts, self._max_length, in_windows=in_windows)
        rows = np.arange(len(encoded))
        inputs, _, _ = encoded.batch(rows, int(encoded.lengths.max()))
        if not self.seconds:
            self._session.run(None, inputs)  # the first run allocates memory
        start = time.perf_counter()
        outputs = self._session.run(None, inputs)[0]
        self.seconds += time.perf_counter() - start
        numbers = mean_per_text(encoded.text_of, outputs)
        found = {"numbers": numbers}
        if self._output.multi_label:
            found["chosen"] = numbers >= 0.5
        elif self._output.labels:
            labels = np.array([label.encode() for label in self._output.labels], object)
            found["label"] = labels[numbers.argmax(axis=1)]
        return found


def _warning(found):
    """Return a warning if int8 changes the answers too much on the dev data, else ""."""
    if found.accuracy is not None:
        points = 100 * (found.float32_accuracy - found.accuracy)
        # 0.9 - 0.89 is a little more than 0.01.
        return f"int8 loses {points:.1f} points of accuracy" if points > _MAX_POINTS + 1e-6 else ""
    if found.equal is not None and 100 * (1 - found.equal) > _MAX_POINTS + 1e-6:
        return f"int8 changes {1 - found.equal:.1%} of the answers"
    return ""


def _readme(name, model, proto, quantize, comparison):
    """Return the text of README.md."""
    output, task = find_output(model), find_task(model) or "encoder"
    accuracy = ""
    if comparison is not None:
        found, time_ratio = comparison
        accuracy = (
            f"\nint8 compared with float32: {found}. On the machine of the export, int8 took "
            f"{time_ratio:.2f} times as long.\n"
        )
        if warning := _warning(found):
            accuracy += f"**On this data, {warning}.**\n"
    sample = _sample(model, task) if find_encoder(model).preprocessor is not None else ""
    return _README.format(
        name=markdown(name),
        task=markdown(task),
        engines="ONNX Runtime" if quantize else "ONNX Runtime and OpenVINO",
        weights="int8" if quantize else "float32",
        accuracy=accuracy,
        inputs=", ".join(
            f"{model_card.code(item.name)} ({_axes(item)})" for item in proto.graph.input
        ),
        length=max_sequence_length(find_encoder(model)),
        longer=model_card.longer_texts(
            find_task(model), "truncate" if output is None else output.long_texts
        ),
        outputs=", ".join(model_card.code(item.name) for item in proto.graph.output),
        labels="The labels are in `labels.txt`." if output is not None and output.labels else "",
        sample=sample,
    )


def _sample(model, task):
    """Return the program of README.md and the notes on it."""
    output, length = find_output(model), max_sequence_length(find_encoder(model))
    texts = '"your text", "another text"'
    has_choices = len(model.inputs[0].shape) == 3
    if has_choices or (output is not None and output.pairs):
        texts = '("your text", "its pair"), ("another text", "its pair")'
    positions = ""
    if "masked_lm_positions" in model.input:
        positions = 'inputs["masked_lm_positions"] = np.array([[1], [1]], np.int32)\n'
    parts = dict.fromkeys(("limit", "windows", "mean"), "")
    if output is not None and output.long_texts == "window":
        overlap = text_windows.overlap(length - 2)  # without [CLS] and [SEP]
        limit = _LIMIT.format(length=length, overlap=overlap)
        parts = {"limit": limit, "windows": _WINDOWS, "mean": _MEAN}
    batch = "[None]" if has_choices else ""
    sample = _SAMPLE.format(texts=texts, positions=positions, batch=batch, **parts)
    is_windowed = output is not None and registry.by_name(task).reads_windows
    notes = _NO_WINDOWS if is_windowed else ""
    return sample + notes + ("" if output is None else _PIPELINE) + _TOKENIZER


def _axes(value_info):
    """Return the names of the axes of an input, such as "batch, seq"."""
    return ", ".join(axis.dim_param for axis in value_info.type.tensor_type.shape.dim)


def _write_tokenizer(encoder, folder):
    """Write the vocabulary, and Hugging Face's tokenizer with the options of the preprocessor."""
    preprocessor = encoder.preprocessor
    preprocessor.save_assets(str(folder))
    options = preprocessor.tokenizer_options()
    content = tokenizer_json.content(preprocessor.vocabulary, options, special=False)
    content["truncation"] = {
        "direction": "Right",
        "max_length": max_sequence_length(encoder),
        "strategy": "LongestFirst",
        "stride": 0,
    }
    content["padding"] = {
        "strategy": "BatchLongest",
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": preprocessor.python_tokenizer.special_ids.pad,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    write_json(folder / tokenizer_json.FILE, content)
