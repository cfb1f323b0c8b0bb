"""Export of Keras models as SavedModels that take strings, for TensorFlow Serving.

The graph contains the tokenizer, the encoder and the head. It uses only ops of core TensorFlow, so
it needs neither Keras nor tensorflow-text, and no file outside its folder. The signatures of a task
are in its folder, `tasks/<task>/serving.py`.
"""

import pathlib

import keras
import tensorflow as tf

from keras_bert import heads, keras_private
from keras_bert.exporting import model_comparison, tfhub
from keras_bert.exporting.hub_layer import HubLayer
from keras_bert.exporting.saved_model_folder import SavedModelFolder, signature_sample
from keras_bert.model_structure import max_sequence_length
from keras_bert.tasks import inference_graph


def folders(job):
    """Return the folders of an export: a model for TensorFlow Serving, or the pair of TF-Hub."""
    if job.is_pair:
        return tfhub.folders(job)
    if job.takes_strings:
        return [_functional_model(job)]
    if job.task is None:
        raise ValueError(
            f"{job.model.name!r} must end in a head of keras_bert.heads or start at a string "
            "keras.Input"
        )
    return [_head(job)]


def _write_labels(folder, labels):
    """Write the file with a label per line; return its path."""
    file = pathlib.Path(folder, "labels.txt")
    lines = "".join(f"{label}\n" for label in labels)
    file.write_text(lines, encoding="utf-8", newline="\n")
    return file


def _folder(job, module, functions, assets, sample, **facts):
    """Return the folder of a model for TensorFlow Serving."""
    return SavedModelFolder(
        job,
        job.path,
        module,
        functions,
        assets,
        sample,
        parameters=job.model.count_params(),
        metrics=job.metrics,
        precision=job.precision or _compute_dtype(job.model),
        **facts,
    )


def _compute_dtype(model):
    """Return the dtype of the matmuls, which an encoder can have apart from its head."""
    try:
        return heads.find_encoder(model).compute_dtype
    except ValueError:
        return model.compute_dtype


def _head(job):
    """Return the folder of a model with a head."""
    model = job.model
    output = job.output
    predict = _predict_function(job)
    task_signatures = _signatures(job, predict)
    module = _module(model, predict)
    assets = {}
    if output.labels is not None:
        assets["labels"] = lambda folder: _write_labels(folder, output.labels)
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
    longest = max_sequence_length(job.encoder)
    others = job.task.other_signatures(predict, output, job.encoder.preprocessor, longest)
    for name, (function, inputs) in others.items():
        checked = _check_shapes(function, inputs)
        functions[name] = tf.function(checked, input_signature=inputs, autograph=False)
        setattr(module, name, functions[name])

    def sample(loaded):
        of_model = _signatures(job, lambda inputs: model(inputs, training=False))
        # The other signatures have the same function of ids.
        return signature_sample(
            loaded,
            model_comparison.sample_strings(of_model.input_signature),
            lambda inputs: of_model.from_strings(*inputs.values()),
        )

    return _folder(
        job, module, functions, assets, sample, output=output, max_sequence_length=longest
    )


def _predict_function(job):
    """Return the `tf.function` of a model with a head, from its inputs to its outputs."""
    model = job.model
    if job.encoder.preprocessor is None:
        raise ValueError(
            f"the encoder of {model.name!r} has no vocabulary; set encoder.preprocessor"
        )
    specs = {
        name: tf.TensorSpec(value.shape, tf.int32, name=name) for name, value in model.input.items()
    }
    # One function for both signatures, so that the file holds its constants once.
    predict = tf.function(
        inference_graph.forward_function(model, job.precision, frozen=True),
        input_signature=[specs],
        autograph=False,
    )
    return inference_graph.with_copy_for_few_tokens(predict, model, job.precision)


def _signatures(job, predict):
    """Return the `text_serving.Signatures` of the task, for a function of the model's inputs."""
    encoder = job.encoder
    longest = max_sequence_length(encoder)
    return job.task.signatures(predict, job.output, encoder.preprocessor, longest)


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


def _functional_model(job):
    """Return the folder of a model with string inputs."""
    model = job.model
    inputs = [
        tf.TensorSpec(
            [None, *item.shape[1:]], item.dtype, name=keras_private.producing_operation(item).name
        )
        for item in model.inputs
    ]
    predict = inference_graph.forward_function(model, job.precision, frozen=True)

    def serve(*values):
        outputs = predict(keras.tree.pack_sequence_as(model.input, list(values)))
        return _named_outputs(model, outputs)

    serving_default = tf.function(serve, input_signature=inputs, autograph=False)
    module = _module(model, serving_default)
    module.serving_default = serving_default
    _make_callable(module)

    def compute(tensors):
        values = [tensors[spec.name] for spec in inputs]
        packed = keras.tree.pack_sequence_as(model.input, values)
        return _named_outputs(model, model(packed, training=False))

    def sample(loaded):
        return signature_sample(loaded, model_comparison.sample_strings(inputs), compute)

    return _folder(job, module, {"serving_default": serving_default}, {}, sample)


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
