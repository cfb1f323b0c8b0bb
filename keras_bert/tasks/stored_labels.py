"""Options of heads that checkpoints store."""

from keras_bert.checkpoints.canonical import Checkpoint
from keras_bert.runtime.escaping import shown


def labels_of(checkpoint: Checkpoint) -> list[str]:
    """Return the labels of a checkpoint, by default numbers."""
    bias = checkpoint.weights.get("classifier/bias")
    # Without classifier weights the number is irrelevant, because loading them is an error.
    count = 2 if bias is None else len(bias)
    return checkpoint.labels or [str(index) for index in range(count)]


def check_activation(checkpoint: Checkpoint, known, names: str):
    """Raise an error for an activation that a head does not have."""
    if checkpoint.activation not in (None, *known):
        raise ValueError(
            f"the activation_fn of a {checkpoint.task} must be {names} of torch.nn; received "
            f"{shown(checkpoint.activation)}. Load the encoder without task"
        )
