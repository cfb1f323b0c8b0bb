"""Export of Keras models as SavedModels that take strings, for TensorFlow Serving.

The graph contains the tokenizer, the encoder and the head. It uses only ops of core TensorFlow, so
it needs neither Keras nor tensorflow-text, and no file outside its folder.
"""

import contextlib
import dataclasses
import errno
import os
import pathlib
import shutil
import tempfile
import warnings

import keras
import tensorflow as tf

from keras_bert import heads, keras_private, provenance
from keras_bert.encoder import BertEncoder
from keras_bert.exporting import (
    agreement,
    inference_graph,
    model_card,
    onnx_export,
    signatures,
    tf_serving,
    tfhub,
)
from keras_bert.exporting.hub_layer import HubLayer
from keras_bert.exporting.model_card import ModelInfo
from keras_bert.hub import own_files
from keras_bert.model_structure import max_sequence_length
from keras_bert.runtime.files import check_subfolder, temporary_folder
from keras_bert.runtime.warn import level_of_caller

LABELS_FILE = "labels.txt"


def export(
    model,
    path,
    *,
    format="saved_model",
    precision=None,
    quantize=None,
    dev=None,
    metrics=None,
    license=None,
):
    """Export a model as SavedModels that take strings, or as an ONNX folder that takes ids.

    - A model with a head of `keras_bert.heads` becomes the next version in the model folder
      `path`, with two signatures: `serving_default` takes strings, `ids` takes the inputs of the
      model. `keras_bert.exporting.signatures` lists the inputs and outputs of each task.
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

    With `format="onnx"`, the folder `path` gets `model.onnx` for ONNX Runtime and OpenVINO, with
    the vocabulary and Hugging Face's `tokenizer.json`; see `keras_bert.exporting.onnx_graph` for
    its outputs. It needs the extra `onnx` and works on every backend.

    Args:
        model: The trained `keras.Model`.
        path: Model folder. The version is written to `path/1`, or to the number after the highest
            one there. For ONNX, a new or empty folder.
        format: `"saved_model"` or `"onnx"`.
        precision: Dtype of the matmuls of a SavedModel: `"float32"`, or `"bfloat16"`, which halves
            the size and is fast on CPUs with AVX512-BF16 or AMX. `None` keeps the model's dtype.
        quantize: For ONNX, `"int8"` quantizes matmuls and embeddings; only ONNX Runtime reads it.
        dev: Data of the task, on which a bfloat16 or int8 export is compared with float32. The
            model card states the equal answers, and the accuracy if each text has one label. For
            ONNX, `dev` takes texts and pairs; the card has the time too, and more than 1 point of
            lost accuracy is a warning.
        metrics: Dict for the model card, such as `keras_bert.finetune` returns. `None`: the metrics
            of the run of `finetune`, or of the file or folder that was loaded, unless the
            weights have changed since. `{}`: none.
        license: License of the weights that training started from, for the model card. `None`: that
            of the name given to `load`, if known. For a saved model, the card quotes its
            metrics.

    Returns:
        `pathlib.Path` of the version's folder, of the encoder's version, or of the ONNX folder. The
        folder appears when it is complete.

    Raises:
        ValueError: If the backend is not TensorFlow, the encoder has no vocabulary, the model
            cannot take strings or cannot compute in this precision, an argument has an unknown
            value or does not apply to the format, or `dev` is not data of the task with labels
            that the model knows.
        OSError: If the folder cannot be written. Incomplete files are removed.
        ImportError: For ONNX, if the extra is not installed.

    Example:

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
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise ValueError(f"path must be a folder; received {path!r:.80}")
    if metrics is not None and not isinstance(metrics, dict):
        raise ValueError(f"metrics must be a dict; received {metrics!r:.80}")
    if license is not None and not isinstance(license, str):
        raise ValueError(f"license must be a string; received {license!r:.80}")
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"export takes a keras.Model; received {model!r:.80}. A pipeline has its model as "
            "`pipeline.model`"
        )
    if isinstance(model, BertEncoder) and model.fresh_pooler:
        warnings.warn(
            "the pooled_output of this export has random weights, because the checkpoint has no "
            "pooler. Use its sequence_output",
            stacklevel=level_of_caller(),
        )
    known_metrics, known_license = provenance.known_metrics_and_license(model)
    metrics = known_metrics if metrics is None else metrics
    license = license or known_license
    if format == "onnx":
        if precision is not None:
            raise ValueError('precision is for SavedModels; for ONNX give quantize="int8"')
        return onnx_export.export(model, path, quantize, dev, metrics, license)
    if format != "saved_model":
        raise ValueError(f"format must be 'saved_model' or 'onnx'; received {format!r}")
    if quantize is not None:
        raise ValueError("quantize needs format='onnx'. For a SavedModel give precision='bfloat16'")
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "export writes TensorFlow graphs and needs KERAS_BACKEND=tensorflow; this process "
            f"runs {keras.backend.backend()}. Save the model, then load and export it with the "
            "TensorFlow backend: the .keras file is the same for all backends."
        )
    path = pathlib.Path(path).expanduser()
    output = heads.find_output(model)
    is_pair = isinstance(model, BertEncoder) or heads.find_task(model) == "pretraining"
    if is_pair and precision is not None:
        raise ValueError(
            "precision does not apply to encoders and pretraining models, whose exports can be "
            "trained. Use encoder.with_options(dtype='mixed_bfloat16')"
        )
    if dev is not None and (precision != "bfloat16" or _takes_strings(model)):
        raise ValueError(
            "dev needs precision='bfloat16' and a model with a head of keras_bert.heads: the "
            "answers are compared with those in float32. Leave out dev"
        )
    if dev is not None and output is not None:
        agreement.check_data(dev, output)
    if is_pair:
        return _export_pair(model, path, metrics, license)
    with tempfile.TemporaryDirectory() as assets:
        if _takes_strings(model):
            module, functions = _functional_model(model, precision)
        elif output is not None and output.task in signatures.HEADS:
            module, functions = _head(model, output, assets, precision)
        else:
            raise ValueError(
                f"{model.name!r} must end in a head of keras_bert.heads or start at a string "
                "keras.Input; received a model with neither. Build one with keras_bert.heads."
            )
        info = _model_info(model, output, metrics, license)
        info = dataclasses.replace(info, precision=precision or _compute_dtype(model))
        if dev is not None:
            _, in_float32 = _signatures(model, output, "float32")
            expected = tf.function(in_float32.from_strings, autograph=False)
            names = [spec.name for spec in in_float32.input_signature]
            found = agreement.compare(functions["serving_default"], expected, dev, names)
            info = dataclasses.replace(info, agreement=found)
        return _write(module, functions, path, info)


def _compute_dtype(model):
    """Return the dtype of the matmuls, which an encoder can have apart from its head."""
    try:
        return heads.find_encoder(model).compute_dtype
    except ValueError:
        return model.compute_dtype


def _takes_strings(model):
    return any(item.dtype == "string" for item in model.inputs)


def _export_pair(model, path, metrics, license):
    """Write the preprocessor, then the encoder. If the encoder fails, remove both."""
    encoder = heads.find_encoder(model)
    masked_lm = None if model is encoder else model.get_layer("masked_lm")
    for name in ("preprocess", "encoder"):
        check_subfolder(path / name)
    with tempfile.TemporaryDirectory() as assets, contextlib.ExitStack() as on_error:
        if encoder.preprocessor is not None:
            length = min(tfhub.SEQUENCE_LENGTH, max_sequence_length(encoder))
            module, functions = tfhub.preprocess(encoder.preprocessor, assets, length)
            info = ModelInfo("preprocess", max_sequence_length=length, license=license)
            created = [folder for folder in (path, path / "preprocess") if not folder.exists()]
            version = _write(module, functions, path / "preprocess", info)
            on_error.callback(shutil.rmtree, (*created, version)[0])
        module, functions = tfhub.encoder(encoder, assets, masked_lm)
        info = ModelInfo(
            "encoder", parameters=model.count_params(), metrics=metrics, license=license
        )
        version = _write(module, functions, path / "encoder", info)
        on_error.pop_all()
        return version


def _model_info(model, output, metrics, license):
    info = ModelInfo(parameters=model.count_params(), metrics=metrics, license=license)
    if output is None or _takes_strings(model):
        return info
    return dataclasses.replace(
        info,
        task="multi_label" if output.multi_label else output.task,
        labels=output.labels,
        prompts=output.prompts,
        default_prompt=output.default_prompt,
        long_texts=output.long_texts,
        max_sequence_length=max_sequence_length(heads.find_encoder(model)),
    )


def _head(model, output, assets, precision):
    """Return the `tf.Module` and the signatures of a model with a head."""
    predict, made = _signatures(model, output, precision)
    module = _module(model, predict)
    if output.labels is not None:
        module.labels = tf.saved_model.Asset(_write_labels(assets, output.labels))
    module.serving_default = tf.function(
        signatures.check_shapes(made.from_strings, made.input_signature),
        input_signature=made.input_signature,
        autograph=False,
    )
    (specs,) = predict.input_signature
    module.ids = tf.function(
        lambda *values: made.from_ids(dict(zip(specs, values, strict=True))),
        input_signature=list(specs.values()),
        autograph=False,
    )
    _make_callable(module)
    functions = {"serving_default": module.serving_default, "ids": module.ids}
    if output.prompts:
        encoder = heads.find_encoder(model)
        with_prompt, inputs = signatures.embedder_with_prompts(
            predict, output, encoder.preprocessor, max_sequence_length(encoder)
        )
        module.with_prompt = tf.function(
            signatures.check_shapes(with_prompt, inputs), input_signature=inputs, autograph=False
        )
        functions["with_prompt"] = module.with_prompt
    return module, functions


def _signatures(model, output, precision):
    """Return the `tf.function` of a model with a head, and its `signatures.Signatures`."""
    encoder = heads.find_encoder(model)
    if encoder.preprocessor is None:
        raise ValueError(
            f"the encoder of {model.name!r} has no preprocessor, so the export would have no "
            "vocabulary; set encoder.preprocessor"
        )
    specs = {
        name: tf.TensorSpec(value.shape, tf.int32, name=name) for name, value in model.input.items()
    }
    # One function for both signatures, so that the file holds its constants once.
    predict = tf.function(
        inference_graph.forward_function(model, precision, frozen=True),
        input_signature=[specs],
        autograph=False,
    )
    predict = inference_graph.with_copy_for_few_tokens(predict, model, precision)
    make = signatures.HEADS[output.task]
    length = max_sequence_length(encoder)
    return predict, make(predict, output, encoder.preprocessor, length)


def _module(model, function):
    """Return a `tf.Module` with the variables of the model that the `tf.function` reads."""
    module = tf.Module()
    graph = function.get_concrete_function()
    # `graph.variables` also lists the variables that became constants.
    captured = {id(tensor) for tensor in graph.captured_inputs}
    module.model_variables = [item for item in graph.variables if id(item.handle) in captured]
    # The functions of a HubLayer can also use lookup tables.
    layers = keras_private.all_layers(model)
    module.hub_layers = [item._loaded for item in layers if isinstance(item, HubLayer)]
    return module


def _write_labels(folder, labels):
    file = pathlib.Path(folder, LABELS_FILE)
    file.write_text("".join(f"{label}\n" for label in labels), encoding="utf-8", newline="\n")
    return str(file)


def _functional_model(model, precision):
    """Return the `tf.Module` and the signature of a model with string inputs."""
    inputs = [
        tf.TensorSpec(
            [None, *item.shape[1:]], item.dtype, name=keras_private.producing_operation(item).name
        )
        for item in model.inputs
    ]
    names = model.output_names
    predict = inference_graph.forward_function(model, precision, frozen=True)

    def serve(*values):
        outputs = predict(keras.tree.pack_sequence_as(model.input, list(values)))
        if isinstance(outputs, dict):
            return _flatten_lists(outputs)
        return dict(zip(names, keras.tree.flatten(outputs), strict=True))

    serving_default = tf.function(serve, input_signature=inputs, autograph=False)
    module = _module(model, serving_default)
    module.serving_default = serving_default
    _make_callable(module)
    return module, {"serving_default": module.serving_default}


def _make_callable(module):
    """Add `__call__` to a module whose `serving_default` has one output; it returns the tensor."""
    serve = module.serving_default
    if len(serve.get_concrete_function().structured_outputs) > 1:
        return

    def call(*inputs):
        (output,) = serve(*inputs).values()
        return output

    module.__call__ = tf.function(call, input_signature=serve.input_signature, autograph=False)


def _flatten_lists(outputs):
    """Replace each list in a dict, such as `encoder_outputs`, by tensors with numbered names."""
    flat: dict = {}
    for key, value in outputs.items():
        if isinstance(value, (list, tuple)):
            flat |= {f"{key}_{number}": item for number, item in enumerate(value)}
        else:
            flat[key] = value
    return flat


def _write(module, functions, path, info):
    """Write a version under a temporary name, then rename it; return its path."""
    inputs = functions["serving_default"].input_signature
    created = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        # TensorFlow Serving ignores folders whose name is not a number.
        with temporary_folder(path, ".writing-") as temporary:
            tf.saved_model.save(module, str(temporary), signatures=functions)
            tf_serving.write_warmup(temporary, inputs)
            own_files.record(temporary)
            version = _rename_to_next_version(temporary, path)
        tf_serving.write_settings(path, inputs)
        model_card.write(version, info)
        return version
    finally:
        with contextlib.suppress(OSError):  # folders that are not empty stay
            for folder in created:
                folder.rmdir()


def _rename_to_next_version(temporary, path):
    while True:
        taken = [int(entry.name) for entry in path.iterdir() if entry.name.isdecimal()]
        version = path / str(max(taken, default=0) + 1)
        try:
            os.rename(temporary, version)
            return version
        except OSError as error:
            # Another process may have written this version meanwhile.
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
