"""Floating-point operations of a training step, and the peak rate of a device."""

import functools
import os
import time

import keras
import numpy as np

# Dense bfloat16 operations per second of one device, as stated by its manufacturer. The first
# name that occurs in the device's name applies.
_PEAKS = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "T4": 65e12,
    "V100": 125e12,
    "TPU v2": 22.5e12,  # a device is one core, half a chip
    "TPU v3": 61.5e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5litepod": 197e12,  # the name that its virtual machine reports
    "TPU v5e": 197e12,
    "TPU v5p": 459e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
}


def of_sequence(config, length, predictions, texts=1):
    """Return the operations of one row of a pretraining step, forward and backward.

    `length`, `predictions` and `texts` are the row's positions, masked positions and pairs. Only
    matmuls count, once, even with rematerialization.
    Source: Chowdhery et al. (2022), PaLM, appendix B.
    """
    hidden = config["hidden_size"]
    vocabulary = config["vocab_size"]
    heads = predictions * (hidden * hidden + hidden * vocabulary) + texts * hidden * hidden
    return of_encoder(config, length, predictions + texts) + 3 * 2 * heads


def of_encoder(config, length, outputs=None):
    """Return the operations of a training step for one row in the encoder's layers.

    The last layer computes only `outputs` of the `length` positions; `None` means all.
    """
    hidden = config["hidden_size"]
    layers = config["num_hidden_layers"]
    # The matmul for queries, keys and values covers all positions, also in the last layer.
    read = layers * length * 3 * hidden * hidden
    computed = (layers - 1) * length + (length if outputs is None else outputs)
    attention = 2 * length * hidden
    written = computed * (attention + hidden * hidden + 2 * hidden * config["intermediate_size"])
    return 3 * 2 * (read + written)


def peak():
    """Return the peak operations per second of one device.

    This is the manufacturer's bfloat16 figure or, for an unknown device such as a CPU, the measured
    rate of a float32 matmul.
    """
    return stated_peak(_device_name()) or _measured_peak()


def stated_peak(device):
    """Return the manufacturer's bfloat16 operations per second, or `None` if unknown.

    `device` is the name in the driver, such as `"NVIDIA H100 80GB HBM3"`.
    """
    return next((value for name, value in _PEAKS.items() if name.lower() in device.lower()), None)


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
def _measured_peak(size=2048, times=3):
    square = keras.ops.convert_to_tensor(np.ones((size, size), "float32"))
    best = float("inf")
    for _ in range(times + 1):  # the first iteration is a warm-up
        start = time.perf_counter()
        np.asarray(keras.ops.convert_to_numpy(keras.ops.matmul(square, square)[:1, :1]))
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
