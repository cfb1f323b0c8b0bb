"""Floating-point operations of a training step, and the peak rate of a device."""

import functools
import os
import re
import time

import keras

from keras_bert.runtime import distribution

# Dense bfloat16 operations per second of one device, as stated by its manufacturer; float16 for T4
# and V100, which have no bfloat16. The first name that occurs in the device's name applies, so a
# name precedes a shorter one that it starts with.
_PEAKS = {
    "GH200": 989e12,
    "H200 NVL": 835e12,
    "H200": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "T4": 65e12,
    "V100S": 130e12,
    "V100-PCIE": 112e12,
    "V100": 125e12,
    "TPU v2": 22.5e12,  # a device is one core, half a chip
    "TPU v3": 61.5e12,
    "TPU v4 lite": 138e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5litepod": 197e12,  # the name that its virtual machine reports
    "TPU v5e": 197e12,
    "TPU v5p": 459e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
}


def of_sequence(config, length, predictions, pairs=1):
    """Return the operations of one row of a pretraining step, forward and backward.

    `length` is the number of positions in the row, `predictions` the number of masked positions,
    and `pairs` the number of sentence pairs. Only matmuls count, once, even with rematerialization.
    Source: Chowdhery et al. (2022), PaLM, appendix B.
    """
    hidden = config["hidden_size"]
    vocabulary = config["vocab_size"]
    embedding = config["embedding_size"] or hidden
    heads = predictions * (hidden + vocabulary) * embedding + pairs * hidden * hidden
    return of_encoder(config, length, predictions + pairs) + 3 * 2 * heads


def of_encoder(config, length, outputs=None):
    """Return the operations of a training step for one row in the encoder.

    The last layer computes only `outputs` of the `length` positions; `None` means all.
    """
    hidden = config["hidden_size"]
    layers = config["num_hidden_layers"]
    # The matmul for queries, keys and values covers all positions, also in the last layer.
    read = layers * length * 3 * hidden * hidden
    computed = (layers - 1) * length + (length if outputs is None else outputs)
    if config["embedding_size"] is not None:
        read += length * config["embedding_size"] * hidden
    attention = 2 * length * hidden
    written = computed * (attention + hidden * hidden + 2 * hidden * config["intermediate_size"])
    return 3 * 2 * (read + written)


def peak():
    """Return the peak operations per second of one device.

    This is the manufacturer's bfloat16 figure or, for an unknown device, the measured rate of a
    matmul: in bfloat16 or float16 on a GPU, in float32 on a CPU.
    """
    stated = stated_peak(_device_name())
    return _measured_peak() if stated is None else stated


def stated_peak(device):
    """Return the manufacturer's bfloat16 operations per second, or `None` if unknown.

    `device` is the name in the driver, such as `"NVIDIA H100 80GB HBM3"`.
    """
    for name, operations in _PEAKS.items():
        # Match whole words: "T400" contains "T4", and "RTX A1000" contains "A100".
        if re.search(rf"\b{re.escape(name)}\b", device, re.IGNORECASE):
            return operations
    return None


def _device_name():
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.devices()[0].device_kind
    if backend == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    import tensorflow as tf

    if tf.config.list_logical_devices("TPU"):
        # The TPU runtime does not report the type, but the virtual machine does.
        return f"TPU {os.environ.get('TPU_ACCELERATOR_TYPE', '').partition('-')[0]}"
    gpus = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_device_details(gpus[0])["device_name"] if gpus else "cpu"


@functools.cache
def _measured_peak():
    """Return the operations per second of the fastest dtype that models compute in."""
    if not distribution.has_accelerator():
        return _matmul_rate("float32", size=2048)
    # A large matmul, because the start of a small one takes longer than its computation. Older
    # GPUs only emulate bfloat16, so models use float16 there.
    return max(_matmul_rate(dtype, size=4096) for dtype in ("bfloat16", "float16"))


def _matmul_rate(dtype, size, times=3):
    """Return the operations per second of a matmul of two matrices (size, size)."""
    square = keras.ops.ones((size, size), dtype)
    best = float("inf")
    for _ in range(times + 1):  # the first iteration is a warm-up
        start = time.perf_counter()
        keras.ops.convert_to_numpy(keras.ops.matmul(square, square)[:1, :1])
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
