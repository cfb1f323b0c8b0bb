"""Weights of models by their canonical names: assign those of a checkpoint, merge LoRA."""

import math
import types

import keras
import numpy as np

from keras_bert import checkpoints, heads, keras_private
from keras_bert.checkpoints import canonical
from keras_bert.checkpoints.canonical import OPTIONAL_GROUPS, VECTOR_LAYERS, group_of
from keras_bert.layers import initializer

_ALIGNMENT = 64  # bytes


def variables_of(model, task):
    """Return {canonical name: variable} of a model of a `Task`, or of an encoder (`None`)."""
    if task is None:
        return {weight.path: weight for weight in model.weights}
    of_layers = {
        canonical.vector_layer_name(index, variable.name): variable
        for index, layer in task.vector_layers(model).items()
        for variable in layer.weights
    }
    if task.reads_encoders:
        return variables_of(heads.find_encoder(model), None) | of_layers
    group = task.weights_group
    if group is None and any(weight.path.startswith("logits/") for weight in model.weights):
        raise ValueError(
            f"the head of the task {task.name} has no weights in checkpoints, because its class "
            "sets no weights_group. Set it, or use .keras files"
        )
    return {weight.path.replace("logits/", f"{group}/", 1): weight for weight in model.weights}


def read(model, task):
    """Return canonical name -> a copy of each weight as float32, with LoRA merged."""
    weights = read_unmerged(model, task)
    _merge_lora(model, task, weights)
    return weights


def read_unmerged(model, task):
    """Return canonical name -> a copy of each weight as float32, also of those of LoRA."""
    return {
        name: np.array(keras.ops.convert_to_numpy(keras.ops.cast(variable, "float32")))
        for name, variable in variables_of(model, task).items()
    }


def _merge_lora(model, task, weights):
    """Add the LoRA weights among `weights`, {canonical name: array}, in place."""
    names = {variable.path: name for name, variable in variables_of(model, task).items()}
    for layer in keras_private.all_layers(model):
        if not getattr(layer, "lora_enabled", False) or layer.quantization_mode:
            continue
        for kind in ("kernel", "embeddings"):
            first = getattr(layer, f"lora_{kind}_a", None)
            name = None if first is None else names.get(first.path)
            if name is not None:
                prefix = name.removesuffix(f"lora_{kind}_a")
                factors = weights.pop(name), weights.pop(f"{prefix}lora_{kind}_b")
                scale = layer.lora_alpha / layer.lora_rank
                weights[f"{prefix}{kind}"] += np.float32(scale) * np.matmul(*factors)


def assign(model, task, checkpoint, fresh):
    """Set all variables of a model, or raise ValueError with the names of missing weights.

    The groups `fresh` get random weights. Layers after the pooling that the checkpoint does not
    have keep their weights, because the user gave them.
    """
    variables = {}
    for name, variable in variables_of(model, task).items():
        group = group_of(name)
        is_stored = name in checkpoint.weights and group not in fresh
        if group == VECTOR_LAYERS and not is_stored:
            continue
        if group in fresh:
            _initialize(variable, checkpoint.spec.encoder["initializer_range"])
        else:
            variables[name] = variable
    needed = OPTIONAL_GROUPS.intersection(map(group_of, variables))
    if task is not None:
        _check_head(task, checkpoint, variables, needed)
    unused = OPTIONAL_GROUPS - needed | {VECTOR_LAYERS}
    checkpoints.assign(
        {name: _single_copy(variable) for name, variable in variables.items()},
        checkpoint.weights,
        source=checkpoint.path,
        ignore=[f"{group}/" for group in unused],
    )


def _check_head(task, checkpoint, variables, needed):
    """Raise ValueError if the checkpoint lacks weights of the head or has another head."""
    must = f"{checkpoint.path}: must have the weights of the head {task.name}"
    hint = "pass fresh_head=True for random weights"
    missing = [name for name in variables if group_of(name) in needed - checkpoint.groups]
    if missing:
        raise ValueError(f"{must}; missing ({len(missing)}): {', '.join(missing)}; {hint}")
    decoder = "masked_lm/output_embeddings"
    if decoder in variables and decoder not in checkpoint.weights:
        remedy = "Pass tied=True to use the word embeddings, or load the encoder without task"
        raise ValueError(f"{must}; tie_word_embeddings is false, {decoder} is missing. {remedy}")
    # Different heads may have weights of the same names.
    stored_task = checkpoint.spec.head.task
    if "classifier" in needed and stored_task not in (None, task.name, *task.same_heads):
        raise ValueError(f"{must}; it has the head {stored_task}; {hint}")


def _initialize(variable, stddev):
    if variable.path.endswith(("kernel", "output_embeddings")):
        variable.assign(initializer(stddev)(variable.shape))
    else:
        fill = keras.ops.ones_like if variable.path.endswith("gamma") else keras.ops.zeros_like
        variable.assign(fill(variable.value))


# TensorFlow uses the memory of an array without a copy if the array is aligned for its vector
# units. Untouched zeros need no memory, and weights are copied only once.


def zeros():
    """Return an initializer of zeros that takes no memory until the weights are assigned."""
    initializer_of_zeros = keras.initializers.Zeros()
    if keras.backend.backend() != "tensorflow":
        return initializer_of_zeros

    def make(shape, dtype=None):
        if dtype == "bfloat16":  # NumPy has no bfloat16
            return initializer_of_zeros(shape, dtype)
        return _as_tensor(_aligned_zeros(shape, dtype))

    return make


def _single_copy(variable):
    """Return an object like the variable whose `assign` copies an array only once."""
    if keras.backend.backend() != "tensorflow" or variable.dtype != "float32":
        return variable

    def assign(value):
        array = _aligned_zeros(value.shape, "float32")
        np.copyto(array, value)
        variable.assign(_as_tensor(array))

    return types.SimpleNamespace(shape=variable.shape, assign=assign)


def _aligned_zeros(shape, dtype):
    """Return an aligned array of zeros. The system allocates its memory on the first write."""
    dtype = np.dtype(dtype or "float32")
    size = math.prod(shape) * dtype.itemsize
    buffer = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    return buffer[start : start + size].view(dtype).reshape(shape)


def _as_tensor(array):
    import tensorflow as tf

    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
