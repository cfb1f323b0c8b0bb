"""The error of a device whose memory is too small for a batch, with a batch that fits."""

import math

import keras

from keras_bert.model_structure import find_encoder
from keras_bert.runtime import distribution

_BYTES_PER_WEIGHT = 16  # the weight, its gradient and two moments of the optimizer, float32


def advice_for_training(model, shape, batch_size, accumulated):
    """Return what is wrong and what to do if a training step does not fit.

    Args:
        model: The model that is trained.
        shape: Shape of the token ids of a batch, on all devices.
        batch_size: Number of sequences in a batch.
        accumulated: Number of batches per optimizer step.
    """
    encoder = find_encoder(model)
    rows, length = math.prod(shape[:-1]), shape[-1]
    problem = f"the device has too little memory for a batch of {rows} x {length} positions"
    less = _other_measure(encoder)
    parts = _parts_that_fit(batch_size, _share_that_fits(encoder, rows, length))
    if parts is None:
        return f"{problem}, and for one sequence; {less}use a smaller max_length or model"
    smaller = f"use batch_size={batch_size // parts}"
    if _can_accumulate():
        smaller = (
            f"use gradient_accumulation_steps={accumulated * parts} and, in finetune, "
            f"batch_size={batch_size // parts}"
        )
    return f"{problem}; {less}{smaller}"


def _other_measure(encoder):
    """Return a measure that keeps the batch, with the word "or", or an empty string."""
    if not encoder.trainable_weights:
        return ""
    if encoder.rematerialize:
        return "freeze the encoder, use LoRA, or "
    return "load the encoder with rematerialize=True, or "


def _parts_that_fit(batch_size, share):
    """Return in how many equal parts to split a batch if a share of it fits; `None` if in none."""
    for parts in range(2, batch_size + 1):
        if batch_size % parts == 0 and parts * share >= 1:
            return parts
    return None


def _can_accumulate():
    """Return True if gradients can be accumulated on these devices."""
    try:
        distribution.check_accumulation(2)
    except ValueError:
        return False
    return True


def _share_that_fits(encoder, rows, length):
    """Return which share of a batch that did not fit would fit, at most 0.5. It is an estimate."""
    memory = _memory_of_device()
    if memory is None:
        return 0.5
    free = memory - _BYTES_PER_WEIGHT * encoder.count_params()
    per_row = bytes_of_activations(encoder, length)
    return min(0.5, free / per_row * distribution.replicas() / rows)


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
