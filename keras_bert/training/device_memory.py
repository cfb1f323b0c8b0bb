"""The error of a device whose memory is too small for a batch, with a batch that fits."""

import contextlib
import math

import keras

from keras_bert.model_structure import find_encoder
from keras_bert.runtime import distribution

_BYTES_PER_WEIGHT = 16  # the weight, its gradient and two moments of the optimizer, float32


class OutOfMemory(ValueError):
    """The memory of the device is too small for a batch."""


@contextlib.contextmanager
def explain_out_of_memory(model, shape):
    """Raise `OutOfMemory` if the block fails for lack of the device's memory.

    `shape` is the shape of the token ids of a batch on which the model is trained.
    """
    try:
        yield
    except Exception as error:  # each backend has another class
        if not is_out_of_memory(error):
            raise
        rows = math.prod(shape[:-1])
        raise OutOfMemory(_advice(find_encoder(model), rows, shape[-1])) from error


def is_out_of_memory(error):
    """Return True for an error of a backend whose device has too little memory."""
    names = ("OutOfMemoryError", "ResourceExhaustedError")
    return type(error).__name__ in names or "RESOURCE_EXHAUSTED" in str(error)


def _advice(encoder, rows, length):
    """Return what is wrong and what to do, for a batch of sequences on all devices."""
    problem = f"the device has too little memory for a batch of {rows} x {length} positions"
    fitting = _rows_that_fit(encoder, rows, length)
    less = "freeze the encoder or use LoRA"
    if not encoder.rematerialize:
        less = "load the encoder with rematerialize=True"
    if fitting < 1:
        return f"{problem}, and for 1 x {length}; {less}, or use a smaller max_length or model"
    times = 2 ** math.ceil(math.log2(rows / fitting))
    return (
        f"{problem}; about {rows // times} x {length} fit. Multiply gradient_accumulation_steps by "
        f"{times} and, in finetune, divide batch_size by it; or {less}"
    )


def _rows_that_fit(encoder, rows, length):
    """Return how many rows fit, at most half of those that did not fit. It is an estimate."""
    memory = _memory_of_device()
    if memory is None:
        return rows // 2
    free = memory - _BYTES_PER_WEIGHT * encoder.count_params()
    per_row = bytes_of_activations(encoder, length)
    return min(rows // 2, int(free / per_row * distribution.replicas()))


def bytes_of_activations(encoder, length):
    """Return about how many bytes a training step keeps for one row, without rematerialization.

    Source: Korthikanti et al. (2022), Reducing activation recomputation in large transformer
    models, equation 2.
    """
    config = encoder.bert_config
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    of_layer = length * (34 * hidden + 5 * heads * length)  # in 16 bits
    dtype = keras.backend.standardize_dtype(encoder.compute_dtype)
    return config["num_hidden_layers"] * of_layer * (2 if dtype == "float32" else 1)


def _memory_of_device():
    """Return the bytes of the device's memory, or `None` if the backend does not say."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if backend == "torch":
        import torch

        return torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else None
    return None
