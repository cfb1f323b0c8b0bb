"""The recipe of a fine-tuning run: the arguments of `finetune` that determine its result."""

import dataclasses
import re
from typing import Any

import keras
import numpy as np

from keras_bert import keras_private, optimizers
from keras_bert.runtime import distribution
from keras_bert.runtime.arguments import as_integer, as_number, check_one_of
from keras_bert.runtime.escaping import shown


@dataclasses.dataclass
class FinetuningRecipe:
    """The arguments of `finetune` that determine the result, see there.

    The constructor checks them, and converts them to Python's types.
    """

    epochs: int
    batch_size: int | None  # until the data are encoded, `None` stands for the task's default
    learning_rate: float
    warmup: float
    schedule: str
    max_length: int
    seed: int
    gradient_accumulation_steps: int
    fixed_length: bool
    evaluate_every: float | None
    optimizer: Any
    loss: Any
    options: dict

    def __post_init__(self):
        minimums = {
            "epochs": 1,
            "max_length": 3,
            "gradient_accumulation_steps": 1,
            "seed": 0,
        }
        if self.batch_size is not None:
            minimums["batch_size"] = 1
        for name, minimum in minimums.items():
            setattr(self, name, as_integer(name, getattr(self, name), minimum))
        if self.seed >= 2**32:  # NumPy's limit
            raise ValueError(f"seed must be below 2**32; received {shown(self.seed)}")
        distribution.check_accumulation(self.gradient_accumulation_steps)
        self.learning_rate = as_number("learning_rate", self.learning_rate)
        if self.learning_rate < 0:
            raise ValueError(f"learning_rate must be at least 0; received {self.learning_rate}")
        self.warmup = as_number("warmup", self.warmup)
        if not 0 <= self.warmup <= 1:
            raise ValueError(f"warmup must be a share of the steps; received {self.warmup}")
        check_one_of("schedule", self.schedule, optimizers.SCHEDULES)
        if self.evaluate_every is not None:
            self.evaluate_every = as_number("evaluate_every", self.evaluate_every)
            is_fraction = 0 < self.evaluate_every < 1
            is_count = self.evaluate_every >= 1 and self.evaluate_every % 1 == 0
            if not (is_fraction or is_count):
                raise ValueError(
                    "evaluate_every must be a number of batches or a fraction of an epoch between "
                    f"0 and 1; received {self.evaluate_every}"
                )
        if self.optimizer is not None:
            self.optimizer = _optimizer(self.optimizer, self.learning_rate)
        self.options = _plain(self.options)

    def new_optimizer(self, steps):
        """Return the optimizer of a run of `steps` optimizer steps."""
        accumulated = self.gradient_accumulation_steps
        accumulated = accumulated if accumulated > 1 else None
        if self.optimizer is not None:
            config = self.optimizer.get_config()
            config["gradient_accumulation_steps"] = accumulated
            if accumulated is not None:
                config["learning_rate"] = _rate_of_batches(config["learning_rate"], accumulated)
            copied = type(self.optimizer).from_config(config)
            keras_private.copy_weight_decay_exclusions(self.optimizer, copied)
            return copied
        return optimizers.adamw(
            self.learning_rate,
            total_steps=steps,
            warmup_steps=round(self.warmup * steps),
            schedule=self.schedule,
            gradient_accumulation_steps=accumulated,
        )

    def batches_between_scores(self, batches):
        """Return how many batches lie between two scores, `None` for scores at epochs' ends.

        `batches` is the number of batches of an epoch.
        """
        every = self.evaluate_every
        if every is None or every >= 1:
            return every
        return max(1, round(every * batches))

    def to_dict(self):
        """Return the recipe as JSON can represent it."""
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "options"
        }
        if self.optimizer is not None:
            values |= {"learning_rate": None, "warmup": None, "schedule": None}  # it has its own
        for name in ("optimizer", "loss"):
            value = values[name]
            if value is not None and not isinstance(value, str):
                # Keras numbers the names in a process.
                plain_name = re.sub(r"_\d+$", "", value.name)
                values[name] = _plain({**value.get_config(), "name": plain_name})
        return {name: value for name, value in values.items() if value is not None} | self.options


def _plain(values):
    """Return nested values with lists and numbers in place of NumPy's, for JSON."""
    return keras.tree.map_structure(
        lambda item: item.tolist() if isinstance(item, (np.generic, np.ndarray)) else item, values
    )


def _rate_of_batches(rate, accumulated):
    """Return the rate or the schedule in an optimizer's config for so many batches per step.

    Keras calls a schedule with the number of batches.
    """
    if not isinstance(rate, dict):
        return rate
    if "batches_per_step" not in rate["config"]:
        raise ValueError(
            f"the schedule {rate['class_name']} would count batches, not optimizer steps; with "
            "gradient_accumulation_steps, use a schedule of keras_bert.optimizers or a constant "
            "rate"
        )
    return {**rate, "config": {**rate["config"], "batches_per_step": accumulated}}


def _optimizer(optimizer, learning_rate):
    """Return a Keras optimizer for the argument `optimizer`, checked."""
    built = optimizer
    if isinstance(optimizer, str):
        config = {"learning_rate": learning_rate}
        try:
            built = keras.optimizers.get({"class_name": optimizer, "config": config})
        except ValueError:
            built = None
    if not isinstance(built, keras.optimizers.Optimizer):
        raise ValueError(
            "optimizer must be a Keras optimizer, such as keras.optimizers.Adam(2e-5), or the name "
            f"of one, such as 'adam'; received {shown(optimizer)}"
        )
    if isinstance(built, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "finetune scales the loss where float16 needs it; give the inner_optimizer of the "
            "LossScaleOptimizer"
        )
    if built.gradient_accumulation_steps:
        raise ValueError(
            "set gradient_accumulation_steps of finetune in place of that of the optimizer"
        )
    return built
