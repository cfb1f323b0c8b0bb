"""Export of Keras models as ONNX folders, for ONNX Runtime and OpenVINO."""

import dataclasses
import importlib
import json
import pathlib
import time
import warnings

import numpy as np

from keras_bert.checkpoints import tokenizer_json
from keras_bert.checkpoints.folder import write_json
from keras_bert.exporting import agreement, model_card, onnx_graph
from keras_bert.exporting.onnx_folder import IS_VALID, MODEL_FILE, OnnxOutput, write_labels
from keras_bert.model_structure import find_encoder, find_output, find_task, max_sequence_length
from keras_bert.runtime.files import temporary_folder
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import registry
from keras_bert.text import text_windows
from keras_bert.text.encoded_texts import EncodedTexts
from keras_bert.text.text_windows import mean_per_text

_MAX_POINTS = 1  # largest loss without a warning: points of accuracy, or percent of the answers

_USAGE = """\
## Usage

In Python, without keras_bert:

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

The ids of `tokenizer.json` can differ from Google's ids, which keras_bert computes: in texts with
rare characters, and in the last token of pairs of which both texts are too long.
`keras_bert.pipeline` with the path of this folder runs a model with a head. It reads long texts as
the model was trained{difference}, and imports neither Keras nor TensorFlow."""
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
outputs = [
    np.array([part.mean(axis=0) for part in np.split(output, ends)]) for output in outputs
]
""",
    "difference": "",
}
_NO_WINDOWS = dict.fromkeys(_WINDOWS, "") | {"difference": "; the program truncates them"}


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
    task = find_task(model) or "encoder"
    _check(path, task, model, quantize, dev)
    onnx = _import("onnx")
    proto = onnx_graph.build_model_proto(model)
    output = find_output(model)
    encoder = find_encoder(model)
    metadata = {"task": task}
    if quantize:
        # Without this mark, onnxruntime advises a pre-processing that cannot read these graphs.
        metadata["onnx.quant.pre_process"] = "onnxruntime.quant"
    if output is not None:
        options = {name: getattr(output, name) for name in IS_VALID}
        metadata["output"] = json.dumps(options, ensure_ascii=False)
    onnx.helper.set_model_props(proto, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(path.parent, ".writing-") as folder:
        file = folder / MODEL_FILE
        file.write_bytes(proto.SerializeToString())
        comparison = None
        if quantize:
            tools = _import("onnxruntime.quantization")
            tools.quantize_dynamic(str(file), str(file), weight_type=tools.QuantType.QInt8)
        if dev is not None:
            comparison = _compare(model, proto, file, dev)
        if encoder.preprocessor is not None:
            _write_tokenizer(encoder, folder)
        if output is not None and output.labels:
            write_labels(folder, output.labels)
        info = model_card.ModelInfo(
            output or OnnxOutput(),
            "A BERT encoder.",
            "feature-extraction",
            parameters=model.count_params(),
            max_sequence_length=max_sequence_length(encoder),
            metrics=metrics,
            license=license,
            precision=quantize or "float32",
            agreement=comparison,
        )
        usage = "" if encoder.preprocessor is None else _usage(model, output)
        text = model_card.render(path.name, info, {"Graph": _tensors(proto)}, folder, usage)
        (folder / "README.md").write_text(text, encoding="utf-8", newline="\n")
        if path.exists():
            path.rmdir()
        folder.rename(path)
    return path


def _check(path, task, model, quantize, dev):
    if quantize not in (None, "int8"):
        raise ValueError(f"quantize must be 'int8' or None; received {quantize!r}")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} exists and is not an empty folder. Choose another path")
    if dev is None:
        return
    if quantize is None:
        raise ValueError('dev needs quantize="int8", which is compared with float32. Remove dev')
    text_tasks = [task.name for task in registry.TASKS if task.answers_texts]
    if task not in text_tasks or find_encoder(model).preprocessor is None:
        raise ValueError(
            f"dev works for the tasks {', '.join(text_tasks)} with a preprocessor; received {task}."
            " Leave out dev, and score the folder with keras_bert.pipeline(path).evaluate(dev)"
        )
    agreement.check_data(dev, find_output(model))


def _import(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"an ONNX export needs {name}; run: pip install 'keras3-bert[onnx]'"
        ) from error


def _compare(model, proto, file, dev):
    """Return the `Agreement` of the file with the float32 model on `dev`."""
    runtime = _import("onnxruntime")
    int8, float32 = (
        _Answers(model, runtime.InferenceSession(data, providers=["CPUExecutionProvider"]))
        for data in (str(file), proto.SerializeToString())
    )
    comparison = agreement.compare(int8, float32, dev, find_output(model))
    if warning := _warning(comparison):
        warnings.warn(
            f"{dev.source}: {warning}. Use float32 where that is too much",
            stacklevel=level_of_caller(),
        )
    return dataclasses.replace(comparison, time_ratio=int8.seconds / float32.seconds)


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
        answers = {"numbers": numbers}
        if self._output.multi_label:
            answers["chosen"] = numbers >= 0.5
        elif self._output.labels:
            labels = np.array([label.encode() for label in self._output.labels], object)
            answers["label"] = labels[numbers.argmax(axis=1)]
        return answers


def _warning(comparison):
    """Return a warning if int8 changes the answers too much on the dev data, else ""."""
    if comparison.accuracy is not None:
        points = 100 * (comparison.float32_accuracy - comparison.accuracy)
        # 0.9 - 0.89 is a little more than 0.01.
        return f"int8 loses {points:.1f} points of accuracy" if points > _MAX_POINTS + 1e-6 else ""
    if comparison.equal is not None and 100 * (1 - comparison.equal) > _MAX_POINTS + 1e-6:
        return f"int8 changes {1 - comparison.equal:.1%} of the answers"
    return ""


def _tensors(proto):
    """Return the inputs and outputs of an ONNX graph, as `model_card.render` takes them."""
    tensors = []
    for kind, dtype, values in (
        ("input", "int32", proto.graph.input),
        ("output", "float32", proto.graph.output),
    ):
        for value in values:
            axes = value.type.tensor_type.shape.dim
            names = [axis.dim_param or str(axis.dim_value) for axis in axes]
            tensors.append((kind, value.name, dtype, names))
    return tensors


def _usage(model, output):
    """Return the section of README.md with a program."""
    has_choices = len(model.inputs[0].shape) == 3
    texts = '"your text", "another text"'
    if has_choices or (output is not None and output.pairs):
        texts = '("your text", "its pair"), ("another text", "its pair")'
    positions = ""
    if "masked_lm_positions" in model.input:
        positions = 'inputs["masked_lm_positions"] = np.array([[1], [1]], np.int32)\n'
    parts = _NO_WINDOWS
    if output is not None and output.long_texts == "window":
        length = max_sequence_length(find_encoder(model))
        overlap = text_windows.overlap(length - 2)  # without [CLS] and [SEP]
        limit = _WINDOWS["limit"].format(length=length, overlap=overlap)
        parts = _WINDOWS | {"limit": limit}
    batch = "[None]" if has_choices else ""
    return _USAGE.format(texts=texts, positions=positions, batch=batch, **parts)


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
