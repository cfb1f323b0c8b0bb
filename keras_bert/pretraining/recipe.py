"""The recipe of a pretraining run: phases, optimizer, masking."""

import dataclasses

from keras_bert import optimizers
from keras_bert.pretraining.pairs import SHORTEST
from keras_bert.runtime.arguments import as_integer, as_number, check_one_of

OPTIMIZERS = {"adamw": optimizers.adamw, "lamb": optimizers.lamb}
_WARMUP_STEPS = 10_000  # in the paper, of 1,000,000 steps


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of a run with sequences of one length.

    Attributes:
        steps: Number of optimizer steps.
        sequence_length: Positions per sequence.
        batch_size: Sequences per step, the sum over all devices and accumulated batches.
        max_predictions: Maximum number of masked positions per sequence. Default: the share of
            masked tokens times the length.

    Example:

    >>> Phase(1000, sequence_length=64).batch_size
    256
    """

    steps: int
    sequence_length: int = 128
    batch_size: int = 256
    max_predictions: int | None = None

    def __post_init__(self):
        for name, minimum in (("steps", 1), ("sequence_length", SHORTEST), ("batch_size", 1)):
            as_integer(name, getattr(self, name), minimum)
        if self.max_predictions is not None:
            as_integer("max_predictions", self.max_predictions, 1)


def two_phases(
    steps: int,
    batch_size: int = 256,
    lengths: tuple[int, int] = (128, 512),
    share: float = 0.9,
    max_predictions: tuple[int | None, int | None] = (None, None),
) -> list[Phase]:
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
    as_integer("steps", steps, 1)
    if not 0 <= share <= 1:
        raise ValueError(f"share must be from 0 to 1; received {share}")
    first = round(steps * share)
    parts = zip((first, steps - first), lengths, max_predictions, strict=True)
    return [Phase(count, length, batch_size, maximum) for count, length, maximum in parts if count]


@dataclasses.dataclass
class Recipe:
    """The settings that determine the result of a pretraining run.

    The defaults are those of the paper (section A.2).

    Attributes:
        phases: A list of `Phase`, see `two_phases`.
        learning_rate: The peak learning rate.
        warmup_steps: Steps during which the learning rate rises. It then falls to 0 at the end of
            the last phase. Default: 10,000 as in the paper, but at most a tenth of all steps.
        weight_decay: Decay of the weight matrices, relative to the learning rate.
        optimizer: `"adamw"`, or `"lamb"` for very large batches.
        gradient_accumulation_steps: Batches per optimizer step. Use more than one if a device
            cannot hold all sequences of a step.
        packed: If `True`, pack several pairs into a row, which leaves little padding.
        whole_words: If `True`, mask all tokens of a word or none.
        masked_share: Share of the tokens to mask.
        short_share: Share of the pairs with a random shorter length.
        seed: Seed of masks, pairs and dropout.

    Example:

    >>> Recipe(two_phases(1000), learning_rate=5e-4).warmup_steps
    100
    """

    phases: list[Phase]
    learning_rate: float = 1e-4
    warmup_steps: int | None = None
    weight_decay: float = 0.01
    optimizer: str = "adamw"
    gradient_accumulation_steps: int = 1
    packed: bool = False
    whole_words: bool = False
    masked_share: float = 0.15
    short_share: float = 0.1
    seed: int = 0

    def __post_init__(self):
        if not self.phases:
            raise ValueError("phases must have at least one Phase, see two_phases; received none")
        check_one_of("optimizer", self.optimizer, OPTIMIZERS)
        for name in ("masked_share", "short_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1; received {getattr(self, name)}")
        if not 0 < self.masked_share < 1:
            raise ValueError(f"masked_share must be between 0 and 1; received {self.masked_share}")
        if as_number("learning_rate", self.learning_rate) < 0:
            raise ValueError(f"learning_rate must be at least 0; received {self.learning_rate}")
        as_integer("gradient_accumulation_steps", self.gradient_accumulation_steps, 1)
        if as_number("weight_decay", self.weight_decay) < 0:
            raise ValueError(f"weight_decay must be at least 0; received {self.weight_decay}")
        if self.warmup_steps is None:
            self.warmup_steps = min(_WARMUP_STEPS, self.steps // 10)
        self.warmup_steps = as_integer("warmup_steps", self.warmup_steps, 0)

    @property
    def steps(self):
        """Total number of steps of all phases."""
        return sum(phase.steps for phase in self.phases)

    def new_optimizer(self):
        """Return a new optimizer with the schedule of this recipe."""
        accumulate = self.gradient_accumulation_steps
        return OPTIMIZERS[self.optimizer](
            self.learning_rate,
            total_steps=self.steps,
            warmup_steps=self.warmup_steps or 0,
            weight_decay=self.weight_decay,
            gradient_accumulation_steps=accumulate if accumulate > 1 else None,
        )
