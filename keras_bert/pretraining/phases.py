"""The phases of a pretraining run."""

import dataclasses

from keras_bert.pretraining.pairs import SHORTEST


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of a run with sequences of one length.

    Attributes:
        steps: Number of optimizer steps.
        sequence_length: Positions per sequence.
        batch_size: Sequences per step, the sum over all devices and accumulated batches.
        max_predictions: Maximum number of masked positions per sequence. Default: the share of
            masked tokens times the length.

    Raises:
        ValueError: If a number is too small.

    Example:

    >>> Phase(1000, sequence_length=64).batch_size
    256
    """

    steps: int
    sequence_length: int = 128
    batch_size: int = 256
    max_predictions: int | None = None

    def __post_init__(self):
        for key, minimum in (("steps", 1), ("batch_size", 1), ("sequence_length", SHORTEST)):
            if getattr(self, key) < minimum:
                raise ValueError(f"{key} must be at least {minimum}; received {getattr(self, key)}")


def two_phases(steps, batch_size=256, lengths=(128, 512), share=0.9, max_predictions=(None, None)):
    """Return the paper's phases: most steps with short sequences, the rest with long ones.

    Args:
        steps: Total number of optimizer steps.
        batch_size: Sequences per step.
        lengths: Sequence length of each phase.
        share: Share of the steps in the first phase.
        max_predictions: Maximum number of masked positions per sequence, for each phase.

    Returns:
        A list of `Phase`. A phase without steps is omitted.

    Example:

    >>> [(phase.steps, phase.sequence_length) for phase in two_phases(1_000_000)]
    [(900000, 128), (100000, 512)]
    """
    first = round(steps * share)
    parts = zip((first, steps - first), lengths, max_predictions, strict=True)
    return [Phase(count, length, batch_size, most) for count, length, most in parts if count]
