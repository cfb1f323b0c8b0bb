"""What a pretraining run trains, on which data, how far it has come, and its pauses."""

import dataclasses
import functools
import itertools
import json
import pathlib
import time

import keras
import numpy as np

from keras_bert import heads, keras_private, packed_heads
from keras_bert.hub import loading
from keras_bert.model_structure import path_of_diverged_weight
from keras_bert.pretraining.losses import with_divisors
from keras_bert.pretraining.recipe import Recipe
from keras_bert.pretraining.records import Records
from keras_bert.pretraining.stream import Stream, StreamPosition
from keras_bert.runtime import distribution
from keras_bert.runtime.files import atomic_write, check_subfolder
from keras_bert.training import engine, flops, report, run_state
from keras_bert.training.run_state import Checkpoints, variables_of

_POSITION = tuple(field.name for field in dataclasses.fields(StreamPosition))
_EVAL_SEED = 0  # fixed, so that all evaluations use the same masks
HISTORY_FILE = "history.jsonl"
_RATE_SECONDS = 1  # between two updates of the rate on the progress bar
_ADVICE = "a lower learning rate or a longer warm-up may help, in a new folder"


@dataclasses.dataclass
class PretrainingRun:
    """A pretraining run.

    Attributes:
        model: The user's model, with its heads.
        training_model: The same model, or one with its weights that is faster to train.
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
    training_model: keras.Model
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

    @functools.cached_property
    def checkpoints(self):
        """The `Checkpoints`, with the settings that must match for the run to resume."""
        encoder = heads.find_encoder(self.model)
        pieces = self.records.counts()["pieces"]
        settings = {
            "records": self.records.manifest["settings"] | {"pieces": pieces},
            "model": encoder.bert_config,
            "dtype": encoder.dtype_policy.name,
            "tasks": self.tasks,
            "recipe": dataclasses.asdict(self.recipe),
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
        variables = run_state.variables_of(self.training_model)
        progress = self.checkpoints.restore(variables, self._check_progress)
        if progress is not None:
            self.step = progress["step"]
            self.position = StreamPosition(*progress["position"])
            self.history = progress["history"]
        distribution.check_same_step(self.step)

    def _check_progress(self, progress):
        """Raise an error for the `progress` of a file that this run cannot have."""
        run_state.check_types(progress, {"step": int, "position": list, "history": list})
        last = self.end_of(len(self.recipe.phases) - 1)
        if not 0 <= progress["step"] <= last:
            raise ValueError(f"it has step={progress['step']}, which is not from 0 to {last}")
        numbers = dict(zip(_POSITION, progress["position"], strict=True))
        run_state.check_types(numbers, dict.fromkeys(_POSITION, int))
        for record in progress["history"]:
            run_state.check_types(record, {"step": int}, others=float)

    def end_of(self, phase):
        """Return the step at which a phase ends."""
        return sum(phase.steps for phase in self.recipe.phases[: phase + 1])

    def stream(self, phase, split="train"):
        """Return the `Stream` of a phase."""
        recipe = self.recipe
        settings = recipe.phases[phase]
        # A different seed per phase, so that no phase repeats the data of another one.
        seed = recipe.seed * len(recipe.phases) + phase if split == "train" else _EVAL_SEED
        return Stream(
            self.records,
            settings.batch_size // recipe.gradient_accumulation_steps,
            settings.sequence_length,
            split=split,
            max_predictions=settings.max_predictions,
            masked_share=recipe.masked_share,
            whole_words=recipe.whole_words,
            short_share=recipe.short_share,
            next_sentence="next_sentence" in self.tasks,
            packed=recipe.packed,
            seed=seed,
            worker=distribution.worker(),
        )

    def eval_set(self, phase):
        """Return a phase's batches of held-out documents; empty if the devices cannot share one."""
        # With next sentence prediction there are two tasks, and a pair needs two documents.
        if self.records.counts("eval")["documents"] < len(self.tasks):
            return []
        stream = self.stream(phase, "eval")
        chosen: list[tuple] = []
        count = max(1, self.eval_rows // stream.batch_size)
        for _, batch in itertools.islice(stream.batches(epochs=1), count):
            rows = len(batch[0]["input_word_ids"])
            is_full = rows == stream.rows
            # Another shape needs a compilation, so a smaller batch is used only if it is alone.
            is_alone = not chosen and rows % distribution.replicas() == 0
            if is_full or is_alone:
                chosen.append(batch)
        _, workers = stream.worker
        return with_divisors(chosen, workers) if chosen else []

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
        text = f"{self.model.count_params():,} weights, {' and '.join(self.tasks)}, {phases}, "
        text += f"{devices} device{'s' if devices > 1 else ''}"
        if self.step == self.recipe.steps:
            return f"{text}; the run is complete"
        return f"{text}; resuming from step {self.step:,}" if self.step else text


def model_to_train(model, packed):
    """Return the model that is trained in place of `model`, with its weights."""
    training_model = packed_heads.packed_pretraining(model) if packed else model
    if distribution.is_faster_in_bfloat16():
        from keras_bert import mixed_training  # it imports TensorFlow

        if mixed_training.can_train(training_model):
            return mixed_training.TrainedModel(training_model)
    return training_model


class Feed:
    """The batches of the next `steps` of a `Stream`, which is at a `StreamPosition`.

    A step has `accumulated` batches.

    Attributes:
        stream: The stream.
        positions: The position after each batch, by its index. Whoever reads one removes it.
        tokens: The number of tokens of each batch, without padding, likewise.
    """

    def __init__(self, stream, position, steps, accumulated=1):
        self.stream = stream
        self._position = position
        self._steps = steps
        self._accumulated = accumulated
        self.positions = {}
        self.tokens = {}

    def data(self):
        """Return the data of `engine.fit`."""
        return data_for_fit(self._batches, self.stream, self.stream.rows)

    def _batches(self):  # TensorFlow's strategies call this function more than once
        drawn = self.stream.batches(self._position)
        _, workers = self.stream.worker
        for step in range(self._steps):
            positions, batches = zip(*itertools.islice(drawn, self._accumulated), strict=True)
            first = step * self._accumulated
            self.positions.update(enumerate(positions, first))
            for index, batch in enumerate(with_divisors(batches, workers), first):
                inputs = batch[0]
                mask = inputs.get("input_mask", inputs.get("text_ids"))
                self.tokens[index] = int(np.count_nonzero(mask))
                yield batch


def data_for_fit(batches, stream, rows):
    """Return batches of a stream, each of `rows` rows, as the data of `engine.fit`.

    `batches` is a function that returns an iterator.
    """
    data = engine.FitData(
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
    data.batches = data.batches.with_options(options)
    return data


def _with_outputs(batch):
    """Replace dicts of one target by the target, as Keras expects for a model of one output."""
    inputs, *rest = batch
    return inputs, *(part if len(part) > 1 else part["masked_lm"] for part in rest)


class Meter(keras.callbacks.Callback):
    """Measures the speed of a phase between two calls of `start`, and updates its progress bar.

    The first batch after `start` counts only if there is no other: it includes the compilation.

    Args:
        run: The `PretrainingRun`.
        feed: The `Feed` of the phase.
        bar: A `rich.progress.Progress`.
        task: The phase's task on the bar.
        done: Number of completed steps of the phase.
    """

    def __init__(self, run, feed, bar, task, done):
        super().__init__()
        self._run = run
        self._feed = feed
        self._done = done
        self._show = functools.partial(bar.update, task)

    def on_train_begin(self, logs=None):
        self.start()

    def start(self):
        """Reset all measurements."""
        self._start = self._shown = time.perf_counter()
        self._ends = []  # of each batch
        self._tokens = []

    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        self._ends.append(now)
        self._tokens.append(self._feed.tokens.pop(batch))
        if len(self._ends) > 1 and now > self._shown + _RATE_SECONDS:
            self._show(rate=f"{self._measured()[2]:,.0f}")
            self._shown = now
        steps = (batch + 1) // self._run.recipe.gradient_accumulation_steps
        self._show(completed=self._done + steps, loss=f"{logs['loss']:.3f}")

    def figures(self):
        """Return the speed since `start`, for a line of the history."""
        batches, seconds, rate = self._measured()
        self._show(rate=f"{rate:,.0f}")
        stream = self._feed.stream
        config = heads.find_encoder(self._run.model).bert_config
        shape = stream.sequence_length, stream.predictions_in_row, stream.texts_in_row
        rows_per_second = batches * stream.batch_size / seconds
        operations = flops.of_sequence(config, *shape) * rows_per_second
        peak = flops.peak() * distribution.devices()
        return {
            "seconds": round(self._ends[-1] - self._start, 3),
            "tokens_per_second": round(rate, 1),
            "sequences_per_second": round(rows_per_second, 2),
            "flop_utilization": round(operations / peak, 4),
        }

    def _measured(self):
        """Return the counted batches, and their seconds and tokens per second."""
        ends = [self._start, *self._ends]
        tokens = self._tokens
        if len(tokens) > 1:
            ends, tokens = ends[1:], tokens[1:]
        seconds = ends[-1] - ends[0]
        return len(tokens), seconds, sum(tokens) * distribution.worker()[1] / seconds


class Pauses(keras.callbacks.Callback):
    """Pauses a phase to write a line of the history, evaluate, and save a checkpoint.

    When a `StopRequest` is pending, a pause follows the current step and raises
    `KeyboardInterrupt`, unless it is the last step.

    Args:
        run: The `PretrainingRun`.
        phase: Index of the phase.
        feed, meter: The `Feed` and the `Meter` of the phase.
        on_record: Function that is called with each line of the history.
        stop: The `StopRequest`.
    """

    def __init__(self, run, phase, feed, meter, on_record, stop):
        super().__init__()
        self._run = run
        self._end = run.end_of(phase)
        self._feed = feed
        self._meter = meter
        self._on_record = on_record
        self._stop = stop
        self._eval_set = run.eval_set(phase)

    def on_train_batch_end(self, batch, logs=None):
        run = self._run
        if not np.isfinite(logs["loss"]):
            self._raise_diverged(batch, logs["loss"])
        position = self._feed.positions.pop(batch)
        if (batch + 1) % run.recipe.gradient_accumulation_steps:
            return
        run.step += 1
        run.position = position
        intervals = (run.log_every, run.save_every, run.eval_every)
        is_pause = run.step == self._end or any(run.step % every == 0 for every in intervals)
        self._stop.end_step()
        # Read the flag once. A later request applies to the next step.
        stopping = self._stop.is_pending
        if is_pause or stopping:
            self._pause(logs, stopping)

    def _pause(self, logs, stopping):
        run = self._run
        record = {
            "step": run.step,
            "sequence_length": self._feed.stream.sequence_length,
            **run.losses(logs),
            "learning_rate": keras_private.last_learning_rate(self.model.optimizer),
            **self._meter.figures(),
        }
        is_last = run.step == self._end
        if self._eval_set and (is_last or run.step % run.eval_every == 0):
            record |= self._evaluate()
        run.history.append(record)
        if is_last:
            run.position = StreamPosition()  # the next phase begins with the first document
        if run.writes:
            write_history(run)
        if is_last or stopping or run.step % run.save_every == 0:
            self._save()
        self._on_record(record)
        if stopping and run.step < run.recipe.steps:
            if run.writes:
                report.draw_curves(run.folder, run.history, x="step")
            raise KeyboardInterrupt(
                f"stopped at step {run.step} of {run.recipe.steps}, which is saved; the same "
                "call or command resumes from there"
            )
        self.model.reset_metrics()
        self._meter.start()

    def _evaluate(self):
        """Return losses and accuracies on held-out documents; their names begin with eval_."""
        eval_set = self._eval_set

        def batches():  # copies, because TensorFlow may write to the arrays that it is given
            return (keras.tree.map_structure(np.copy, batch) for batch in eval_set)

        data = data_for_fit(batches, self._feed.stream, len(eval_set[0][0]["input_word_ids"]))
        logs = self.model.evaluate(data.batches, steps=len(eval_set), verbose=0, return_dict=True)
        data.close()
        return {f"eval_{name}": value for name, value in self._run.losses(logs).items()}

    def _save(self):
        run = self._run
        path = path_of_diverged_weight(self.model.trainable_variables)
        if path is not None:  # the loss shows this one step later
            raise ValueError(
                f"after step {run.step} weights are NaN or infinite: {path}; "
                f"{_newest(run)}; {_ADVICE}"
            )
        if run.writes:
            progress = {
                "step": run.step,
                "position": dataclasses.astuple(run.position),
                "history": run.history,
            }
            run.checkpoints.save(variables_of(run.training_model), progress, run.step)
            loading.save(run.model, run.folder)

    def _raise_diverged(self, batch, loss):
        """Save the batch whose loss is not finite, and raise an error."""
        run = self._run
        name = f"diverged-step-{run.step + 1}"
        worker, workers = distribution.worker()
        if workers > 1:  # each process has only the rows of its own devices
            name += f"-worker-{worker}"
        file = run.folder / f"{name}.npz"
        index = batch % run.recipe.gradient_accumulation_steps  # within the step
        batches = itertools.islice(self._feed.stream.batches(run.position), index, None)
        _, (inputs, targets, weights) = next(batches)
        with atomic_write(file) as temporary:
            np.savez(
                temporary,
                **inputs,
                **{f"target_{key}": value for key, value in targets.items()},
                **{f"weight_{key}": value for key, value in weights.items()},
            )
        raise ValueError(
            f"the loss is {loss} at step {run.step + 1}; its batch is in {file}, and "
            f"{_newest(run)}; {_ADVICE}"
        )


def _newest(run):
    """Describe the newest checkpoint, as a part of an error message."""
    files = run.checkpoints.files()
    return f"the last checkpoint is {files[-1]}" if files else "there is no checkpoint yet"


def write_history(run):
    """Write the history."""
    lines = "".join(json.dumps(record) + "\n" for record in run.history)
    with atomic_write(run.folder / HISTORY_FILE) as temporary:
        temporary.write_text(lines, encoding="utf-8")
