"""Export of Keras models as SavedModels that take strings, for TensorFlow Serving.

The graph contains the tokenizer, the encoder and the head. It uses only ops of core TensorFlow, so
it needs neither Keras nor tensorflow-text, and no file outside its folder. The signatures of a task
are in its folder, `tasks/<task>/serving.py`.
"""

import functools
import os
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

from keras_bert import heads, keras_private
from keras_bert.encoder import BertEncoder
from keras_bert.exporting import agreement, model_card, tf_serving, tfhub, verification
from keras_bert.exporting.hub_layer import HubLayer
from keras_bert.exporting.model_card import ModelInfo
from keras_bert.hub import own_files
from keras_bert.model_structure import max_sequence_length
from keras_bert.runtime.files import check_subfolder, temporary_folder
from keras_bert.tasks import inference_graph, registry

_ENCODER = "A trainable BERT encoder: a reusable TF2 SavedModel."
_PREPROCESSOR = "A BERT preprocessor, from texts to ids: a reusable TF2 SavedModel."


def export(model, path, *, precision, dev, metrics, license):
    """Export a model as SavedModels; the arguments are those of `keras_bert.export`."""
    path = pathlib.Path(path).expanduser()
    output = heads.find_output(model)
    task = registry.find(model)
    is_pair = (
        isinstance(model, BertEncoder)
        or isinstance(model.output, dict)
        and (task is not None and task.is_pretraining)
    )
    if is_pair and precision is not None:
        raise ValueError(
            "precision does not apply to encoders and pretraining models. Use "
            "encoder.with_options(dtype='mixed_bfloat16')"
        )
    if dev is not None and (precision != "bfloat16" or _takes_strings(model)):
        raise ValueError(
            "dev needs precision='bfloat16' and a head of keras_bert.heads. Remove dev"
        )
    if dev is not None and output is not None:
        agreement.check_data(dev, output)
    if is_pair:
        return _export_pair(model, path, metrics, license)
    with tempfile.TemporaryDirectory() as assets:
        if _takes_strings(model):
            module, functions = _functional_model(model, precision)
            verify = functools.partial(_verify_functional, model, precision)
        elif task is not None:
            module, functions = _head(model, output, assets, precision)
            verify = functools.partial(_verify_head, model, output, precision)
        else:
            raise ValueError(
                f"{model.name!r} must end in a head of keras_bert.heads or start at a string "
                "keras.Input"
            )
        facts = {"precision": precision or _compute_dtype(model)}
        if dev is not None:
            _, in_float32 = _signatures(model, output, "float32")
            expected = tf.function(in_float32.from_strings, autograph=False)
            actual = _of_lists(functions["serving_default"])
            facts["agreement"] = agreement.compare(actual, _of_lists(expected), dev, output)
        if not _takes_strings(model):
            facts["output"] = output
            facts["max_sequence_length"] = max_sequence_length(heads.find_encoder(model))
        info = ModelInfo(parameters=model.count_params(), metrics=metrics, license=license, **facts)
        return _write(module, functions, path, info, verify)


def _write_labels(folder, labels):
    """Write the file with a label per line; return its path."""
    file = pathlib.Path(folder, "labels.txt")
    lines = "".join(f"{label}\n" for label in labels)
    file.write_text(lines, encoding="utf-8", newline="\n")
    return file


def _of_lists(function):
    """Return a function of lists of strings that returns a dict of arrays."""
    return lambda *columns: keras.tree.map_structure(
        lambda output: output.numpy(), function(*map(tf.constant, columns))
    )


def _compute_dtype(model):
    """Return the dtype of the matmuls, which an encoder can have apart from its head."""
    try:
        return heads.find_encoder(model).compute_dtype
    except ValueError:
        return model.compute_dtype


def _takes_strings(model):
    return any(item.dtype == "string" for item in model.inputs)


def _export_pair(model, path, metrics, license):
    """Write the preprocessor, then the encoder."""
    encoder = heads.find_encoder(model)
    masked_lm = None if model is encoder else model.get_layer("masked_lm")
    for name in ("preprocess", "encoder"):
        check_subfolder(path / name)
    with tempfile.TemporaryDirectory() as assets:
        if encoder.preprocessor is not None:
            length = min(tfhub.SEQUENCE_LENGTH, max_sequence_length(encoder))
            module, functions = tfhub.preprocess(encoder.preprocessor, assets, length)
            info = ModelInfo(
                description=_PREPROCESSOR,
                max_sequence_length=length,
                license=license,
            )
            verify = functools.partial(_verify_preprocessor, encoder.preprocessor, length)
            _write(module, functions, path / "preprocess", info, verify)
        module, functions = tfhub.encoder(encoder, assets, masked_lm)
        info = ModelInfo(
            description=_ENCODER,
            hub_tag="feature-extraction",
            parameters=model.count_params(),
            metrics=metrics,
            license=license,
        )
        verify = functools.partial(_verify_encoder, encoder)
        return _write(module, functions, path / "encoder", info, verify)


def _head(model, output, assets, precision):
    """Return the `tf.Module` and the signatures of a model with a head."""
    predict, task_signatures = _signatures(model, output, precision)
    module = _module(model, predict)
    if output.labels is not None:
        module.labels = tf.saved_model.Asset(str(_write_labels(assets, output.labels)))
    module.serving_default = tf.function(
        _check_shapes(task_signatures.from_strings, task_signatures.input_signature),
        input_signature=task_signatures.input_signature,
        autograph=False,
    )
    (specs,) = predict.input_signature
    module.ids = tf.function(
        lambda *values: task_signatures.from_ids(dict(zip(specs, values, strict=True))),
        input_signature=list(specs.values()),
        autograph=False,
    )
    _make_callable(module)
    functions = {"serving_default": module.serving_default, "ids": module.ids}
    encoder = heads.find_encoder(model)
    others = registry.by_name(output.task).other_signatures(
        predict, output, encoder.preprocessor, max_sequence_length(encoder)
    )
    for name, (function, inputs) in others.items():
        checked = _check_shapes(function, inputs)
        functions[name] = tf.function(checked, input_signature=inputs, autograph=False)
        setattr(module, name, functions[name])
    return module, functions


def _signatures(model, output, precision):
    """Return the `tf.function` of a model with a head, and its `text_serving.Signatures`."""
    encoder = heads.find_encoder(model)
    if encoder.preprocessor is None:
        raise ValueError(
            f"the encoder of {model.name!r} has no vocabulary; set encoder.preprocessor"
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
    length = max_sequence_length(encoder)
    task = registry.by_name(output.task)
    return predict, task.signatures(predict, output, encoder.preprocessor, length)


def _check_shapes(function, input_signature):
    """Make a function of strings check the shapes of its inputs when its graph runs.

    TensorFlow Serving accepts tensors of any shape, and some graphs would return wrong answers. A
    wrong rank, or different batch sizes, raise `tf.errors.InvalidArgumentError`.
    """
    names = " and ".join(spec.name for spec in input_signature)

    def checked(*values):
        values = [
            tf.ensure_shape(value, spec.shape)
            for value, spec in zip(values, input_signature, strict=True)
        ]
        sizes = [tf.shape(value)[0] for value in values]
        message = f"{names} must have the same first dimension; received"
        checks = [
            tf.debugging.Assert(tf.equal(sizes[0], other), [message, sizes]) for other in sizes[1:]
        ]
        with tf.control_dependencies(checks):
            return function(*map(tf.identity, values))

    return checked


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


def _functional_model(model, precision):
    """Return the `tf.Module` and the signature of a model with string inputs."""
    inputs = [
        tf.TensorSpec(
            [None, *item.shape[1:]], item.dtype, name=keras_private.producing_operation(item).name
        )
        for item in model.inputs
    ]
    predict = inference_graph.forward_function(model, precision, frozen=True)

    def serve(*values):
        outputs = predict(keras.tree.pack_sequence_as(model.input, list(values)))
        return _named_outputs(model, outputs)

    serving_default = tf.function(serve, input_signature=inputs, autograph=False)
    module = _module(model, serving_default)
    module.serving_default = serving_default
    _make_callable(module)
    return module, {"serving_default": module.serving_default}


def _named_outputs(model, outputs):
    """Return the outputs of a functional model by their names in its signature."""
    if isinstance(outputs, dict):  # the tensors in `encoder_outputs` get numbered names
        names = ["_".join(map(str, path)) for path, _ in keras.tree.flatten_with_path(outputs)]
    else:
        names = model.output_names
    if len(set(names)) < len(names):
        raise ValueError(
            f"the outputs of {model.name!r} have the same name: {', '.join(names)}. Give the "
            "outputs as a dict whose keys, joined by _, differ"
        )
    return dict(zip(names, keras.tree.flatten(outputs), strict=True))


def _make_callable(module):
    """Add `__call__` to a module whose `serving_default` has one output; it returns the tensor."""
    serve = module.serving_default
    if len(serve.get_concrete_function().structured_outputs) > 1:
        return

    def call(*inputs):
        (output,) = serve(*inputs).values()
        return output

    module.__call__ = tf.function(call, input_signature=serve.input_signature, autograph=False)


def _verify_head(model, output, precision, loaded):
    """Compare the answers of a loaded SavedModel with those of the model, which runs eagerly."""
    encoder = heads.find_encoder(model)
    task_signatures = registry.by_name(output.task).signatures(
        lambda inputs: model(inputs, training=False),
        output,
        encoder.preprocessor,
        max_sequence_length(encoder),
    )
    # The signature `ids` has the same function of ids as `serving_default`.
    verification.check_signature(
        loaded.signatures["serving_default"],
        verification.sample_strings(task_signatures.input_signature),
        lambda inputs: task_signatures.from_strings(*inputs.values()),
        model,
        precision,
    )


def _verify_functional(model, precision, loaded):
    """Compare a loaded SavedModel with a functional model of strings."""
    serve = loaded.signatures["serving_default"]
    specs = list(serve.structured_input_signature[1].values())

    def compute(inputs):
        values = [inputs[keras_private.producing_operation(item).name] for item in model.inputs]
        packed = keras.tree.pack_sequence_as(model.input, values)
        return _named_outputs(model, model(packed, training=False))

    inputs = verification.sample_strings(specs)
    verification.check_signature(serve, inputs, compute, model, precision)


def _verify_encoder(encoder, loaded):
    """Compare a loaded SavedModel with an encoder."""
    ids = verification.sample_inputs(encoder)

    def compute(inputs):
        outputs = encoder(inputs, training=False)
        return {key: outputs[key] for key in ("pooled_output", "sequence_output")}

    serve = loaded.signatures["serving_default"]
    verification.check_signature(serve, ids, compute, encoder, mask=ids["input_mask"])


def _verify_preprocessor(preprocessor, length, loaded):
    """Compare a loaded SavedModel with a preprocessor."""
    actual = loaded(tf.constant(verification.TEXTS))
    expected = preprocessor.with_options(sequence_length=length)(list(verification.TEXTS))
    for name, ids in expected.items():
        if not np.array_equal(actual[name], ids):
            raise ValueError(
                f"the export of the preprocessor computes other {name}. {verification.NOT_WRITTEN}"
            )


def _write(module, functions, path, info, verify):
    """Write a version under a temporary name, then rename it; return its path.

    `verify` is called with the loaded SavedModel. An error of it removes the version.
    """
    inputs = functions["serving_default"].input_signature
    path.mkdir(parents=True, exist_ok=True)
    # TensorFlow Serving ignores folders whose name is not a number.
    with temporary_folder(path, ".writing-") as temporary:
        tf.saved_model.save(module, str(temporary), signatures=functions)
        verify(tf.saved_model.load(str(temporary)))
        tf_serving.write_warmup(temporary, inputs)
        own_files.record(temporary)
        taken = [int(entry.name) for entry in path.iterdir() if entry.name.isdecimal()]
        version = path / str(max(taken, default=0) + 1)
        os.rename(temporary, version)
    tf_serving.write_settings(path, inputs)
    model_card.write(version, info, functions)
    return version
