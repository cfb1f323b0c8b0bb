"""What a pretraining run trains, on which data, and how far it has come."""

import dataclasses
import itertools
import pathlib

import keras

from keras_bert import packed_heads
from keras_bert.pretraining.recipe import Recipe
from keras_bert.pretraining.records import Records
from keras_bert.pretraining.state import Checkpoints
from keras_bert.pretraining.stream import Stream, StreamPosition
from keras_bert.runtime import distribution
from keras_bert.training import state_file

_EVAL_SEED = 0  # fixed, so that all evaluations use the same masks


@dataclasses.dataclass(frozen=True)
class Intervals:
    """Steps between history lines, checkpoints and evaluations, and the rows of an evaluation."""

    log_every: int
    save_every: int
    eval_every: int
    eval_rows: int

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1; received {value}")

    def next_pause(self, step):
        """Return the next step that ends with a history line, checkpoint or evaluation."""
        every = (self.log_every, self.save_every, self.eval_every)
        return min(step // steps * steps + steps for steps in every)


@dataclasses.dataclass
class PretrainingRun:
    """A pretraining run.

    Attributes:
        model: The user's model, with its heads.
        trained: The same model, or one with its weights that is faster to train.
        records: The training data.
        folder: Folder for all files of the run.
        recipe: The `Recipe`.
        intervals: The `Intervals`.
        checkpoints: The `Checkpoints`, set after the constructor: they hold the run's settings.
        step: Number of completed steps.
        position: `StreamPosition` of the next batch.
        history: A list of dicts, the lines of the history.
    """

    model: keras.Model
    trained: keras.Model
    records: Records
    folder: pathlib.Path
    recipe: Recipe
    intervals: Intervals
    checkpoints: Checkpoints = dataclasses.field(init=False)
    step: int = 0
    position: StreamPosition = StreamPosition()
    history: list = dataclasses.field(default_factory=list)

    @property
    def writes(self):
        """True for the process that writes the files."""
        return distribution.worker()[0] == 0

    @property
    def tasks(self):
        """The names of the model's outputs."""
        has_pairs = isinstance(self.model.output, dict)
        return ("masked_lm", "next_sentence") if has_pairs else ("masked_lm",)

    @property
    def stream_options(self):
        """The options of the `Stream`s of all phases."""
        recipe = self.recipe
        return {
            "packed": recipe.packed,
            "whole_words": recipe.whole_words,
            "masked_share": recipe.masked_share,
            "short_share": recipe.short_share,
            "next_sentence": "next_sentence" in self.tasks,
        }

    def restore(self):
        """Resume from the newest checkpoint, if any."""
        restored = self.checkpoints.restore(self.variables())
        if restored is not None:
            self.step, progress = restored
            with state_file.reading(self.checkpoints.newest_file(), self.checkpoints.REMEDY):
                position, history = progress["position"], progress["history"]
                if len(position) != 3 or not all(type(value) is int for value in position):
                    raise ValueError("its position in the records is not three integers")
                if not all(type(record) is dict for record in history):
                    raise ValueError("its history is not a list of records")
            self.position = StreamPosition(*position)
            self.history = history
        distribution.check_same_step(self.step)

    def variables(self):
        """Return the variables of model and optimizer, in the order of a checkpoint."""
        return [*self.trained.variables, *self.trained.optimizer.variables]

    def end_of(self, phase):
        """Return the step at which a phase ends."""
        return sum(phase.steps for phase in self.recipe.phases[: phase + 1])

    def stream(self, phase, split="train"):
        """Return the `Stream` of a phase."""
        recipe, settings = self.recipe, self.recipe.phases[phase]
        # A different seed per phase, so that no phase repeats the data of another one.
        seed = recipe.seed * len(recipe.phases) + phase if split == "train" else _EVAL_SEED
        return Stream(
            self.records,
            settings.batch_size // recipe.gradient_accumulation_steps,
            settings.sequence_length,
            split=split,
            max_predictions=settings.max_predictions,
            seed=seed,
            worker=distribution.worker(),
            **self.stream_options,
        )

    def eval_set(self, phase):
        """Return a phase's batches of held-out documents, at least one if there are documents."""
        # With next sentence prediction there are two tasks, and a pair needs two documents.
        if self.records.counts("eval")["documents"] < len(self.tasks):
            return []
        stream = self.stream(phase, "eval")
        chosen: list[tuple] = []
        count = max(1, self.intervals.eval_rows // stream.batch_size)
        for _, batch in itertools.islice(stream.batches(epochs=1), count):
            rows = len(batch[0]["input_word_ids"])
            # Omit a smaller last batch: its shape would need another compilation.
            if rows == stream.rows or not chosen and not rows % distribution.replicas():
                chosen.append(batch)
        return chosen

    def losses(self, logs):
        """Return Keras' logs as floats. With one output, also store `loss` as `<task>_loss`."""
        if len(self.tasks) == 1:
            (task,) = self.tasks
            logs = {"loss": logs["loss"], f"{task}_loss": logs["loss"],
                    f"{task}_accuracy": logs["accuracy"]}  # fmt: skip
        return {name: float(value) for name, value in logs.items()}

    def describe(self):
        """Describe the run in one line for the user."""
        phases = " and ".join(
            f"{phase.steps:,} steps of {phase.batch_size:,} x {phase.sequence_length}"
            for phase in self.recipe.phases
        )
        devices = distribution.devices()
        text = f"{self.model.count_params():,} weights, {phases}, "
        text += f"{devices} device{'s' if devices > 1 else ''}"
        if self.step == self.recipe.steps:
            return f"{text}; the run is complete"
        return f"{text}; resuming from step {self.step:,}" if self.step else text


def model_to_train(model, packed):
    """Return the model that is trained in place of `model`, with its weights."""
    trained = packed_heads.packed_pretraining(model) if packed else model
    if distribution.is_faster_in_bfloat16():
        from keras_bert import mixed_training  # it imports TensorFlow

        if mixed_training.can_train(trained):
            return mixed_training.TrainedModel(trained)
    return trained
