"""How much arithmetic a training step takes, and how much a device could do meanwhile."""

import time

import keras
import numpy as np

# Dense bfloat16 operations a second of one device, as its maker states them. The first name that
# fits counts.
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
    "TPU v2": 22.5e12,  # a device is a core here, half a chip
    "TPU v3": 61.5e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5litepod": 197e12,  # how its virtual machine is called
    "TPU v5e": 197e12,
    "TPU v5p": 459e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
}


def of_sequence(config, length, predictions, texts=1):
    """Operations that one row of a training step takes: forward, and twice that backward.

    Multiplications and additions of the matmuls of a model of `heads.pretraining`; look-ups,
    softmax and what rematerialization computes again do not count.

    Source: Chowdhery et al. (2022), PaLM, appendix B.

    Args:
        config: of the encoder, with Google's keys.
        length: positions of the row.
        predictions: masked positions of the row.
        texts: pairs in the row.

    Returns:
        A number.

    Example:

    >>> base = {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072,
    ...         "vocab_size": 30522}
    >>> f"{of_sequence(base, 128, 20):.3g}"
    '6.64e+10'
    """
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    heads = predictions * (hidden * hidden + hidden * vocabulary) + texts * hidden * hidden
    return of_encoder(config, length, predictions + texts) + 3 * 2 * heads


def of_encoder(config, length, outputs=None):
    """Operations that a training step takes for one row in the encoder's layers.

    Args:
        config: of the encoder, with Google's keys.
        length: positions of the row.
        outputs: how many positions the last layer computes; `None`: all.

    Returns:
        A number.

    Example:

    >>> base = {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072}
    >>> round(of_encoder(base, 128, 21) / of_encoder(base, 128), 3)
    0.947
    """
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    # Queries, keys and values are one matmul, over all positions in the last layer too.
    read = layers * length * 3 * hidden * hidden
    computed = (layers - 1) * length + (length if outputs is None else outputs)
    attention = 2 * length * hidden
    written = computed * (attention + hidden * hidden + 2 * hidden * config["intermediate_size"])
    return 3 * 2 * (read + written)


def peak():
    """What one device can do at most.

    Returns:
        Operations a second: what its maker states for bfloat16; for a device that is not known, a
        CPU for instance, what a large matmul in float32 reaches here and now.

    Example:

    >>> peak() > 1e6
    True
    """
    return stated_peak(_device_name()) or _measured_peak()


def stated_peak(device):
    """What the maker of a device states, in bfloat16.

    Args:
        device: its name as its driver has it, such as `"NVIDIA H100 80GB HBM3"`.

    Returns:
        Operations a second, or `None` for a device that is not known.

    Example:

    >>> stated_peak("NVIDIA H200"), stated_peak("cpu")
    (989000000000000.0, None)
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
        # The runtime does not say which one; so does the virtual machine.
        import os

        return f"TPU {os.environ.get('TPU_ACCELERATOR_TYPE', '').partition('-')[0]}"
    gpus = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_device_details(gpus[0])["device_name"] if gpus else "cpu"


def _measured_peak(size=2048, times=3):
    square = keras.ops.convert_to_tensor(np.ones((size, size), "float32"))
    best = float("inf")
    for _ in range(times + 1):  # the first one warms up
        start = time.perf_counter()
        np.asarray(keras.ops.convert_to_numpy(keras.ops.matmul(square, square)[:1, :1]))
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
