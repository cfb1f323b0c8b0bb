"""Export of Keras models as ONNX folders, for ONNX Runtime and OpenVINO."""

import pathlib
import warnings

import keras
import numpy as np

from keras_bert.exporting import onnx_graph
from keras_bert.model_structure import find_encoder, find_output, find_task
from keras_bert.runtime.files import temporary_folder

MODEL_FILE = "model.onnx"
LABELS_FILE = "labels.txt"
QUANTIZATIONS = (None, "int8")
_MIN_EQUAL = 0.99  # of the answers; below, int8 is reported as inaccurate

_README = """\
# {name}

A BERT model for ONNX Runtime and OpenVINO, written by keras_bert. Task: {task}. Weights: {weights}.

```python
import numpy as np
import onnxruntime
import tokenizers

tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
session = onnxruntime.InferenceSession("model.onnx")
encodings = tokenizer.encode_batch(["your text", "another text"])
inputs = {{
    "input_word_ids": [encoding.ids for encoding in encodings],
    "input_mask": [encoding.attention_mask for encoding in encodings],
    "input_type_ids": [encoding.type_ids for encoding in encodings],
}}
outputs = session.run(None, {{name: np.array(ids, np.int32) for name, ids in inputs.items()}})
```

Outputs: {outputs}. {labels}

`keras_bert.pipeline("this folder")` returns labels, scores and embeddings of texts, without Keras
and TensorFlow. The ids of `tokenizer.json` can differ from Google's in texts with rare characters.
{accuracy}
"""


def export(model, path, quantize=None, dev=None):
    """Write `model.onnx`, `tokenizer.json`, `vocab.txt`, `labels.txt` and `README.md`.

    Args:
        model: A model of `keras_bert.heads`, or an encoder.
        path: Folder. It must not exist, or be empty.
        quantize: `"int8"` for ONNX Runtime's dynamic quantization. OpenVINO cannot read that file.
        dev: `keras_bert.Examples` on which the int8 model is compared with the float32 model.

    Returns:
        `pathlib.Path` of the folder.

    Raises:
        ValueError: If the model cannot be exported, the folder is not empty, or an option is
            unknown.
        ImportError: If onnx, or for int8 onnxruntime, is not installed.
    """
    if quantize not in QUANTIZATIONS:
        raise ValueError(f"quantize must be 'int8' or None; received {quantize!r}")
    if dev is not None and quantize is None:
        raise ValueError('dev is compared with float32, so it needs quantize="int8"')
    path = pathlib.Path(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} must not exist, or be an empty folder")
    onnx = _import("onnx")
    proto = onnx_graph.make(model)
    output = find_output(model)
    task = find_task(model) or "encoder"
    facts = {"task": task}
    if output is not None:
        facts |= {"pairs": str(int(output.pairs)), "multi_label": str(int(output.multi_label))}
    onnx.helper.set_model_props(proto, facts)
    labels = (output and output.labels) or []
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(path.parent, ".writing-") as folder:
        accuracy = ""
        file = folder / MODEL_FILE
        file.write_bytes(proto.SerializeToString())
        if quantize:
            _quantize(file)
            if dev is not None:
                accuracy = _compare(model, proto, file, dev)
        if find_encoder(model).preprocessor is not None:
            _write_tokenizer(find_encoder(model), folder)
        if labels:
            lines = "".join(f"{label}\n" for label in labels)
            (folder / LABELS_FILE).write_text(lines, encoding="utf-8", newline="\n")
        text = _README.format(
            name=path.name,
            task=task,
            weights="int8" if quantize else "float32",
            outputs=", ".join(f"`{item.name}`" for item in proto.graph.output),
            labels="The labels are in `labels.txt`." if labels else "",
            accuracy=accuracy,
        )
        (folder / "README.md").write_text(text, encoding="utf-8", newline="\n")
        if path.exists():
            path.rmdir()
        folder.rename(path)
    return path


def _import(name):
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"an ONNX export needs {name}; run: pip install 'keras3-bert[onnx]'"
        ) from error


def _quantize(file):
    """Replace the weights of the matmuls in a file by int8."""
    _import("onnxruntime")
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(str(file), str(file), weight_type=QuantType.QInt8)


def _compare(model, proto, file, dev):
    """Compare the file with the float32 model on texts; return a sentence for the README."""
    runtime = _import("onnxruntime")
    sessions = [
        runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
        for data in (proto.SerializeToString(), str(file))
    ]
    encoder = find_encoder(model)
    preprocessor = encoder.preprocessor
    columns = [dev.texts] if dev.text_pairs is None else [dev.texts, dev.text_pairs]
    equal: list[bool] = []
    difference = 0.0
    for start in range(0, len(dev), 32):
        texts = [column[start : start + 32] for column in columns]
        packed = preprocessor.with_options(sequence_length=None)(*texts)
        inputs = {name: keras.ops.convert_to_numpy(value) for name, value in packed.items()}
        expected, found = (session.run(None, inputs)[0] for session in sessions)
        difference = max(difference, float(np.abs(expected - found).max(initial=0)))
        if expected.ndim > 1:
            equal.extend(np.ravel(expected.argmax(-1) == found.argmax(-1)))
    share = float(np.mean(equal)) if equal else 1.0
    sentence = (
        f"\nint8 compared with float32 on {len(dev):,} examples: {share:.2%} of the answers are "
        f"equal, the largest difference of a number is {difference:.2g}."
    )
    if share < _MIN_EQUAL:
        sentence += " **More than 1% of the answers differ.**"
        warnings.warn(
            f"int8 changes {1 - share:.1%} of the answers on {dev.source}. Use float32 where that "
            "is too much",
            stacklevel=4,
        )
    return sentence


def _write_tokenizer(encoder, folder):
    """Write the vocabulary, and Hugging Face's tokenizer with the options of the preprocessor."""
    tokenizers = _import("tokenizers")
    preprocessor = encoder.preprocessor
    preprocessor.save_assets(str(folder))
    vocabulary = {token: index for index, token in enumerate(preprocessor.vocabulary)}
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=200)
    )
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=preprocessor.split_cjk,
        strip_accents=preprocessor.strip_accents,
        lowercase=preprocessor.lowercase,
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(
        ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    )
    length = min(preprocessor.max_sequence_length, encoder.bert_config["max_position_embeddings"])
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(pad_id=vocabulary["[PAD]"], pad_token="[PAD]")
    tokenizer.save(str(folder / "tokenizer.json"))
