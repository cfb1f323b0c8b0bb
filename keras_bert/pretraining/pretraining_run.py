"""What a pretraining run trains, on which data, and how far it has come."""

import dataclasses
import functools
import itertools
import pathlib

import keras
import numpy as np

from keras_bert import heads, packed_heads
from keras_bert.pretraining.recipe import Recipe
from keras_bert.pretraining.records import Records
from keras_bert.pretraining.stream import Stream, StreamPosition
from keras_bert.runtime import distribution
from keras_bert.runtime.files import check_subfolder
from keras_bert.training import engine, run_state
from keras_bert.training.run_state import Checkpoints

_EVAL_SEED = 0  # fixed, so that all evaluations use the same masks


@dataclasses.dataclass
class PretrainingRun:
    """A pretraining run.

    Attributes:
        model: The user's model, with its heads.
        trained: The same model, or one with its weights that is faster to train.
        records: The training data.
        folder: Folder for all files of the run.
        recipe: The `Recipe`.
        log_every, save_every, eval_every: Steps between history lines, checkpoints and evaluations.
        eval_rows: Rows of an evaluation.
        keep: Number of checkpoints to keep.
        step: Number of completed steps.
        position: `StreamPosition` of the next batch.
        history: A list of dicts, the lines of the history.
    """

    model: keras.Model
    trained: keras.Model
    records: Records
    folder: pathlib.Path
    recipe: Recipe
    log_every: int
    save_every: int
    eval_every: int
    eval_rows: int
    keep: int
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

    @functools.cached_property
    def checkpoints(self):
        """The `Checkpoints`, with the settings that must match for the run to resume."""
        recipe, encoder = self.recipe, heads.find_encoder(self.model)
        optimizer = self.trained.optimizer.get_config() | {"learning_rate": recipe.learning_rate}
        pieces = self.records.counts()["pieces"]
        settings = {
            "records": self.records.manifest["settings"] | {"pieces": pieces},
            "model": {key: encoder.get_config()[key] for key in encoder.bert_config},
            "dtype": encoder.dtype_policy.name,
            "phases": [dataclasses.asdict(phase) for phase in recipe.phases],
            "optimizer": optimizer,
            "warmup_steps": recipe.warmup_steps,
            "gradient_accumulation_steps": recipe.gradient_accumulation_steps,
            "stream": self.stream_options,
            "seed": recipe.seed,
        }
        folder = self.folder / "checkpoints"
        check_subfolder(folder)
        return Checkpoints(
            folder,
            settings,
            keep=self.keep,
            if_broken="delete it to resume from the checkpoint before it",
            if_other="use another folder; pass the model of this run as --model to train it "
            "further",
        )

    def restore(self):
        """Resume from the newest checkpoint, if any."""
        progress = self.checkpoints.restore(run_state.variables_of(self.trained))
        if progress is not None:
            with run_state.reading(self.checkpoints.files()[-1], self.checkpoints.if_broken):
                self.step = int(progress["step"])
                self.position = StreamPosition(*map(int, progress["position"]))
            self.history = progress["history"]
        distribution.check_same_step(self.step)

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
        count = max(1, self.eval_rows // stream.batch_size)
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


class Feed:
    """The next batches of a `Stream`, which is at a `StreamPosition`.

    Attributes:
        stream: The stream.
        positions: The position after each batch, by its number from 0. Whoever reads one removes
            it.
        tokens: The number of tokens of each batch, without padding, likewise.
        error: The error of the stream, which TensorFlow hides, or `None`.
    """

    def __init__(self, stream, position, count):
        self.stream = stream
        self._position, self._count = position, count
        self.positions, self.tokens = {}, {}
        self.error = None

    def data(self):
        """Return the data of `engine.fit`."""
        return data_for_fit(self._batches, self.stream, self.stream.rows)

    def _batches(self):  # TensorFlow's strategies call this function more than once
        drawn = itertools.islice(self.stream.batches(self._position), self._count)
        try:
            for number, (position, batch) in enumerate(drawn):
                inputs = batch[0]
                mask = inputs.get("input_mask", inputs.get("text_ids"))
                self.positions[number] = position
                self.tokens[number] = int(np.count_nonzero(mask))
                yield batch
        except (ValueError, OSError) as error:
            self.error = error
            raise


def data_for_fit(batches, stream, rows):
    """Return batches of a stream, each of `rows` rows, as the data of Keras' `fit`.

    `batches` is a function that returns an iterator.
    """
    data = engine.data_for_fit(
        lambda: map(_with_outputs, batches()),
        _with_outputs(stream.example()),
        lambda array: (rows, *array.shape[1:]),
    )
    if keras.backend.backend() != "tensorflow":
        return data
    import tensorflow as tf

    options = tf.data.Options()
    # The stream of each worker already yields only that worker's rows.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return data.with_options(options)


def _with_outputs(batch):
    """Replace dicts of one target by the target, as Keras expects for a model of one output."""
    inputs, *rest = batch
    return inputs, *(part if len(part) > 1 else part["masked_lm"] for part in rest)
