"""Export of models as SavedModels, ONNX folders or OpenVINO folders."""

import os
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any

import keras

from keras_bert import provenance
from keras_bert.encoder import BertEncoder
from keras_bert.exporting.graph_folder import GRAPH_FILES
from keras_bert.model_structure import path_of_diverged_weight
from keras_bert.runtime.arguments import as_output_path, check_one_of
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.warn import level_of_caller

FORMATS = ("saved_model", *GRAPH_FILES, "litert")


def export(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    format: str = "saved_model",
    precision: str | None = None,
    quantize: str | None = None,
    dev: Any = None,
    metrics: Mapping[str, float] | None = None,
    license: str | None = None,
) -> pathlib.Path:
    """Export a model as SavedModels that take strings, or as an ONNX or OpenVINO graph of ids.

    - A model with a head of `keras_bert.heads` becomes the next version in the model folder
      `path`, with two signatures: `serving_default` takes strings, `ids` takes the inputs of the
      model. The docstrings in `serving.py` of each task's folder list them.
    - A functional model that starts at a string `keras.Input` becomes the next version too. Its
      signature `serving_default` has the names of the model's inputs and outputs.
    - If `serving_default` has one output, the SavedModel can also be called with the inputs, as
      `hub.load(path)(texts)`, and returns a tensor.
    - A `BertEncoder`, or a model of `heads.pretraining`, becomes two reusable SavedModels with
      the interface of TF-Hub's BERT models, `path/preprocess/1` and `path/encoder/1`. See
      `keras_bert.exporting.tfhub`.

    `export` also writes warm-up requests into the version, and next to it the files that
    TensorFlow Serving needs (`models.config`, `batching.config`, `compose.yaml`) and a model card,
    `README.md`. Existing files stay as they are, except for a card that you have not edited.

    Texts are padded to the longest of their batch and truncated at the preprocessor's
    `max_sequence_length`. Only the TensorFlow backend can export SavedModels.

    With `format="onnx"` or `"openvino"`, the folder `path` gets a graph in the layout of Hugging
    Face, `onnx/model.onnx` or `openvino/openvino_model.xml`, with the files that optimum,
    sentence-transformers, fastembed, transformers.js and text-embeddings-inference read. Its inputs
    are `input_ids`, `attention_mask` and `token_type_ids`, int64 (batch_size, sequence_length).
    These formats need the extra of the same name and work on every backend.
    `"litert"` writes a graph of ids for phones, `litert/model.tflite`, and works on the TensorFlow
    backend.

    Before it returns, `export` opens the result with the library that serves it, and compares its
    outputs with those of the model.

    Args:
        model: The trained `keras.Model`.
        path: Model folder. The version is written to `path/1`, or to the number after the highest
            one there. For the other formats, a new or empty folder.
        format: `"saved_model"`, `"onnx"`, `"openvino"` or `"litert"`.
        precision: Dtype of the matmuls of a SavedModel: `"float32"`, or `"bfloat16"`, which halves
            the size and is fast on CPUs with AVX512-BF16 or AMX. `None` keeps the model's dtype.
        quantize: `"int8"` for ONNX, OpenVINO and LiteRT. ONNX and LiteRT: matmuls and embeddings,
            whose activations are scaled in each call. OpenVINO: matmuls, with scales that nncf
            computes from `dev`, which is faster and more accurate.
        dev: Data of the task, on which a bfloat16 or int8 export is compared with float32. The
            model card states the equal answers. For int8 it also has the time and, with labels, the
            main metric of the task; more than 1 lost point is a warning.
        metrics: Dict for the model card, such as `keras_bert.finetune` returns. `None`: the metrics
            of the run of `finetune`, or of the file or folder that was loaded, unless the
            weights have changed since. `{}`: none.
        license: License of the weights that training started from, for the model card. `None`: that
            of the name given to `load`, if known. For a saved model, the card quotes its
            metrics.

    Returns:
        `pathlib.Path` of the version's folder, of the encoder's version, or of the folder `path`.
        It appears when it is complete.

    Raises:
        ValueError: If a SavedModel or LiteRT is exported on another backend than TensorFlow; the
            encoder of a SavedModel has no vocabulary; a weight is NaN or infinite; the model does
            not fit the format or the precision; the folder of another format than a SavedModel is
            not empty; an argument has an unknown value or does not apply to the format; `dev` is
            not data of the task with labels that the model knows; or the result computes something
            else than the model.
        OSError: If the folder cannot be written. Incomplete files are removed.
        ImportError: If the extra of the format is not installed.

    Example:

    >>> import tempfile
    >>> import tensorflow as tf
    >>> import keras_bert
    >>> preprocessor = keras_bert.Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = keras_bert.BertEncoder(
    ...     vocab_size=5, hidden_size=4, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=8, preprocessor=preprocessor)
    >>> model = keras_bert.heads.classifier(encoder, labels=["no", "yes"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     served = tf.saved_model.load(str(export(model, folder)))
    ...     answer = served.signatures["serving_default"](text=tf.constant(["good"]))
    >>> sorted(answer), answer["probabilities"].shape
    (['label', 'probabilities', 'score'], TensorShape([1, 2]))
    """
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"export takes a keras.Model, such as pipeline.model; received {shown(model)}"
        )
    path_of_weight = path_of_diverged_weight(model.variables)
    if path_of_weight is not None:
        raise ValueError(
            f"{model.name!r} cannot be exported, because its weight {path_of_weight} holds NaN or "
            "infinity. Load or train the model again"
        )
    if isinstance(model, BertEncoder) and model.fresh_pooler:
        warnings.warn(
            "the pooled_output of this export has random weights, because the checkpoint has no "
            "pooler. Use its sequence_output",
            stacklevel=level_of_caller(),
        )
    path = as_output_path("path", path)
    _check_card(metrics, license)
    known_metrics, known_license = provenance.known_metrics_and_license(model)
    metrics = known_metrics if metrics is None else metrics
    license = license or known_license
    check_one_of("format", format, FORMATS)
    if format == "litert":
        return _export_litert(model, path, precision, dev, quantize, metrics, license)
    if format != "saved_model":
        if precision is not None:
            raise ValueError(
                f"precision is for SavedModels; for {format!r} give quantize='int8', or choose the "
                "precision of OpenVINO in keras_bert.pipeline"
            )
        from keras_bert.exporting import graph_export

        return graph_export.export(
            model, path, format, quantize=quantize, dev=dev, metrics=metrics, license=license
        )
    if quantize is not None:
        raise ValueError(
            "quantize needs format='onnx' or 'openvino'. For a SavedModel give precision='bfloat16'"
        )
    _check_tensorflow("a SavedModel needs TensorFlow, KERAS_BACKEND=tensorflow")
    from keras_bert.exporting import saved_model

    return saved_model.export(
        model, path, precision=precision, dev=dev, metrics=metrics, license=license
    )


def _export_litert(model, path, precision, dev, quantize, metrics, license):
    if precision is not None:
        raise ValueError("precision does not apply to 'litert'. Remove it")
    _check_tensorflow("a LiteRT file needs TensorFlow, KERAS_BACKEND=tensorflow")
    from keras_bert.exporting import litert_export

    return litert_export.export(
        model, path, quantize=quantize, dev=dev, metrics=metrics, license=license
    )


def _check_card(metrics, license):
    """Check what goes into the model card, which is written last."""
    is_dict = isinstance(metrics, Mapping) and all(isinstance(name, str) for name in metrics)
    if metrics is not None and not is_dict:
        raise ValueError(
            "metrics must be a dict of names, such as keras_bert.finetune returns; received "
            f"{shown(metrics)}"
        )
    if license is not None and not isinstance(license, str):
        raise ValueError(f"license must be a name, such as 'apache-2.0'; received {shown(license)}")


def _check_tensorflow(rule):
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"{rule}; this process runs {keras.backend.backend()}. Give format='onnx', or export "
            "the saved .keras file there"
        )
