"""Read and write `.keras` files."""

import warnings
import zipfile

import keras

from keras_bert import checkpoints, heads, keras_private, provenance
from keras_bert.encoder import BertEncoder
from keras_bert.hub import keras_file
from keras_bert.hub.keras_config import Refused
from keras_bert.provenance import MODEL_FILE
from keras_bert.runtime import distribution
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.files import atomic_write
from keras_bert.runtime.reading import check_not_lfs_pointer, first_line, one_line
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import registry
from keras_bert.text.preprocessor import Preprocessor


def _read_model(path, trusted):
    """Return the model of a `.keras` file. Keras reads the config only if it is trusted."""
    if trusted:
        return keras.saving.load_model(path, compile=False, safe_mode=False)
    return keras_file.load(path)


def load_model(path, task, trusted):
    """Load a `.keras` file. `task` can be one of the two heads of a pretraining model."""
    check_not_lfs_pointer(path)
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} must be a complete archive; download or copy it again")
    try:
        model = _read_model(path, trusted)
        keras_private.freeze_variables(model)
        keras_private.restart_lora(model)
        for layer in keras_private.all_layers(model):
            if isinstance(layer, BertEncoder):
                layer.check_vocabulary()  # Keras reads the vocabulary after the encoder is built
            if isinstance(layer, Preprocessor) and not layer.has_vocabulary:
                raise ValueError(f"the vocabulary of its layer {shown(layer.name)} is missing")
        for weight in model.weights:
            if "float" in keras.backend.standardize_dtype(weight.dtype):
                value = keras.ops.convert_to_numpy(weight)
                checkpoints.canonical.check_numbers(path, weight.path, value)
    except Refused as error:
        advice = "If you trust its author, pass trusted=True, or --trusted on the command line."
        raise ValueError(f"{path} was not loaded: {error}. {advice}") from error
    except Exception as error:  # Keras raises many types for a damaged file
        raise ValueError(f"{path} could not be loaded: {one_line(error)}") from error
    saved_task = heads.find_task(model)
    if task in (None, "auto", saved_task):
        return model
    has_both_heads = isinstance(model.output, dict) and saved_task in registry.OF_PRETRAINING
    if has_both_heads and task in registry.OF_PRETRAINING:
        return _with_head(heads.find_encoder(model), task, model)
    if saved_task in registry.OF_PRETRAINING:
        encoder = heads.find_encoder(model)
        with_head = registry.by_name(task).with_pretrained_head(model, encoder)
        if with_head is not None:
            return with_head
    head = f"the head {saved_task}" if saved_task else "no head"
    raise ValueError(f"{path} has {head}, not {task}; pass fresh_head=True for random weights")


def load(path, task, fresh_head, options, head_options, trusted):
    """Load a model that `save` wrote, with new options of the encoder or with a fresh head."""
    if not fresh_head and head_options:
        name = next(iter(head_options))
        raise ValueError(f"{path}: {name} is no argument of load, or needs fresh_head=True")
    if fresh_head and task in (None, "auto"):
        raise ValueError("fresh_head needs a task, such as task='classification'")
    model = load_model(path, None if fresh_head else task, trusted)
    if not fresh_head and not options:
        return model
    encoder = heads.find_encoder(model)
    saved_task = heads.find_task(model)
    is_auto = options.get("dtype") == "auto"
    if not fresh_head and model is not encoder and saved_task not in registry.OF_PRETRAINING:
        if is_auto and len(options) == 1:
            return model  # as it was saved
        head = "a custom head" if saved_task is None else f"the head {saved_task}"
        remedy = f"remove {', '.join(options)}"
        if "dtype" in options:
            remedy += "; to predict in another dtype, use keras_bert.pipeline(model, precision=...)"
        raise ValueError(f"{path} has {head}, whose options are fixed; {remedy}")
    if is_auto:
        options = {**options, "dtype": distribution.fastest_dtype()}
    new_encoder = encoder.with_options(**options) if options else encoder
    if fresh_head:
        return registry.by_name(task).head_function()(new_encoder, **head_options)
    if model is encoder:
        return new_encoder
    return _with_head(new_encoder, saved_task, model)


def _with_head(encoder, task, model):
    """Return a head of pretraining on an encoder, with the weights of a model with this head."""
    head_task = registry.by_name(task)
    options = head_task.options_of_head(head_task.spec_of_head(model))
    head = head_task.head_function()(encoder, **options)
    for layer in head.layers:
        if layer.name in ("masked_lm", "next_sentence"):
            layer.set_weights(model.get_layer(layer.name).get_weights())
    return head


def save(model, path):
    """Write a model to a `.keras` file, or into a folder. An error leaves an existing file."""
    if path.suffix != ".keras":
        path = path / MODEL_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    metrics, _ = provenance.known_metrics_and_license(model)
    try:
        with atomic_write(path) as temporary:
            _without_optimizer(model).save(temporary)
            if metrics is not None:
                provenance.add_metrics(temporary, metrics)
            refusal = keras_file.check(temporary)
        if path.name == MODEL_FILE:
            if metrics is None:  # the folder may hold the metrics of another model
                (path.parent / provenance.METRICS_FILE).unlink(missing_ok=True)
            else:
                provenance.write_metrics(path.parent, metrics)
        if refusal is not None:
            warnings.warn(
                f"{path}: {refusal}. Load this model with keras_bert.load({str(path)!r}, "
                "trusted=True)",
                stacklevel=level_of_caller(),
            )
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise OSError(f"{path} could not be written: {reason}") from error


def _without_optimizer(model):
    """Return an object with the attributes of a model except its optimizer.

    The model itself stays as it is, because another thread may train it.
    """
    copy = object.__new__(type(model))  # `copy.copy` would save and load the model
    copy.__dict__.update({**model.__dict__, "optimizer": None, "compiled": False})
    return copy
