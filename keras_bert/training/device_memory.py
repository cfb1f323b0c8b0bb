"""The error of a device whose memory is too small for a batch, with a batch that fits."""

import contextlib
import math

import keras

from keras_bert.model_structure import find_encoder

_BYTES_PER_WEIGHT = 16  # the weight, its gradient and two moments of the optimizer, float32


class OutOfMemory(ValueError):
    """The memory of the device is too small for a batch.

    Attributes:
        batches: Number of smaller batches that one batch should be split into.
    """

    def __init__(self, rows, length, batches):
        self.batches = batches
        super().__init__(
            f"the device has too little memory for a batch of {rows} x {length} positions; about "
            f"{max(1, rows // batches)} x {length} fit. Multiply gradient_accumulation_steps by "
            f"{batches} and, in finetune, divide batch_size by it; or load the encoder with "
            "rematerialize=True"
        )


@contextlib.contextmanager
def explain_out_of_memory(model, shape):
    """Raise `OutOfMemory` if the block fails for lack of the device's memory.

    `shape` has the rows and the positions of a batch on which the model is trained.
    """
    try:
        yield
    except Exception as error:  # each backend has another class
        if not is_out_of_memory(error):
            raise
        rows, length = shape
        needed = bytes_of_step(find_encoder(model), rows, length)
        fitting = _memory_of_device()
        smaller = 2.0 if fitting is None else max(2.0, needed / fitting)
        raise OutOfMemory(rows, length, 2 ** math.ceil(math.log2(smaller))) from error


def is_out_of_memory(error):
    """Return True for an error of a backend whose device has too little memory."""
    names = ("OutOfMemoryError", "ResourceExhaustedError")
    return type(error).__name__ in names or "RESOURCE_EXHAUSTED" in str(error)


def bytes_of_step(encoder, rows, length):
    """Return about how many bytes of memory a training step takes.

    Source: Korthikanti et al. (2022), Reducing activation recomputation in large transformer
    models, equation 2, for the activations.
    """
    config = encoder.bert_config
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    layer = rows * length * (34 * hidden + 5 * heads * length)  # in 16 bits
    size = keras.backend.standardize_dtype(encoder.compute_dtype)
    activations = config["num_hidden_layers"] * layer * (2 if size == "float32" else 1)
    return activations + _BYTES_PER_WEIGHT * encoder.count_params()


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
