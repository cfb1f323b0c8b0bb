"""Losses that `finetune(loss=)` takes by name."""

import typing

import numpy as np

from keras_bert.runtime.escaping import shown


class NamedLoss(typing.NamedTuple):
    """A loss, the data that its rows need, and the range of its scores."""

    loss: type
    needs: str = ""
    lowest: float = -np.inf
    highest: float = np.inf


def choose(loss, choices: dict[str, NamedLoss], advice=""):
    """Return the name of a loss and the loss.

    Args:
        loss: A name, or a loss of one of the classes.
        choices: The losses by name.
        advice: End of the error for another loss.

    Raises:
        ValueError: If the loss is not one of `choices`.
    """
    if isinstance(loss, str) and loss in choices:
        return loss, choices[loss].loss()
    for name, choice in choices.items():
        if isinstance(loss, choice.loss):
            return name, loss
    raise ValueError(
        f"loss must be one of {', '.join(choices)}, or such a loss of keras_bert.losses; received "
        f"{shown(loss)}{advice}"
    )
