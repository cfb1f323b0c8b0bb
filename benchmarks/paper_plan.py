"""The steps of the paper's pretraining (Devlin et al., 2018, section A.2), and their operations.

`pod_plan.py` and `tpu_compile.py` share it.
"""

from keras_bert.training import flops

# Sequences of each length: 1,000,000 steps of 256, 90% of them with 128 positions.
SEQUENCES = {128: 900_000 * 256, 512: 100_000 * 256}
MODELS = {"base": (12, 768), "large": (24, 1024)}  # layers and hidden size


def operations_per_sequence(model, length):
    """Return the floating-point operations of a training step for one sequence."""
    layers, hidden = MODELS[model]
    config = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "vocab_size": 30522,
    }
    return flops.of_sequence(config, length, predictions(length))


def predictions(length):
    """Return the number of masked tokens of a sequence, 15%."""
    return -(-15 * length // 100)


def chip_hours(seconds_per_sequence):
    """Return the chip-hours of all steps from the chip-seconds of a sequence of each length."""
    seconds = sum(seconds_per_sequence[length] * count for length, count in SEQUENCES.items())
    return seconds / 3600
