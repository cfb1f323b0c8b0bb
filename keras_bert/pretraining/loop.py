"""The training loop of pretraining: phases, evaluation, checkpoints, history and divergence."""

import dataclasses
import itertools
import json
import pathlib
import time

import keras
import numpy as np

from keras_bert import heads, keras_private, packed_heads
from keras_bert.hub import loading
from keras_bert.pretraining.meter import Diverged, Meter
from keras_bert.pretraining.recipe import Recipe
from keras_bert.pretraining.records import Records
from keras_bert.pretraining.state import Checkpoints
from keras_bert.pretraining.stream import Stream, StreamPosition
from keras_bert.runtime import distribution
from keras_bert.runtime.files import atomic_write
from keras_bert.training import report, state_file

HISTORY_FILE = "history.jsonl"
_EVAL_SEED = 0  # fixed, so that all evaluations use the same masks
_CURVES_SECONDS = 60  # between two plots during a run
_ADVICE = "a lower learning rate or a longer warm-up may help, in a new folder"


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
class Loop:
    """A pretraining run: its model, its data and its progress.

    `model` is compiled by `losses.compile_model`; `trained` is the same model, or the packed model
    with its weights. `step` is the number of completed steps, and `position` the `StreamPosition`
    of the next batch. `history` is a list of dicts. `tasks` are the names of the model's outputs.
    """

    model: keras.Model
    records: Records
    folder: pathlib.Path
    recipe: Recipe
    intervals: Intervals
    step: int = 0
    position: StreamPosition = StreamPosition()
    history: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.trained = self.model
        if self.recipe.packed:
            self.trained = packed_heads.packed_pretraining(self.model)
        if distribution.is_faster_in_bfloat16():
            from keras_bert import mixed_training  # it imports TensorFlow

            if mixed_training.can_train(self.trained):
                self.trained = mixed_training.TrainedModel(self.trained)
        has_pairs = heads.find_task(self.model) == "pretraining"
        self.tasks = ("masked_lm", "next_sentence") if has_pairs else ("masked_lm",)
        self.stream_options = {
            "packed": self.recipe.packed,
            "whole_words": self.recipe.whole_words,
            "masked_share": self.recipe.masked_share,
            "short_share": self.recipe.short_share,
            "next_sentence": has_pairs,
        }
        self._writes = distribution.worker()[0] == 0
        self._drawn = time.monotonic()
        self._checkpoints: Checkpoints  # set by `restore`

    def restore(self, checkpoints):
        """Resume from the newest of some `Checkpoints`, if any, and save later ones with it."""
        self._checkpoints = checkpoints
        found = checkpoints.restore(self._variables())
        if found is not None:
            self.step, extra = found
            with state_file.reading(checkpoints.newest_file(), checkpoints.REMEDY):
                position = extra["place"]
                history = extra["history"]
                if len(position) != 3 or not all(type(value) is int for value in position):
                    raise ValueError("its position in the records is not three integers")
                if not all(type(record) is dict for record in history):
                    raise ValueError("its history is not a list of records")
            self.position = StreamPosition(*position)
            self.history = history
        distribution.check_same_step(self.step)

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

    def run(self, bar, on_record, stop):
        """Train the remaining steps.

        `bar` is a `rich.progress.Progress`. `on_record` is called with each line of the history.
        When the `StopRequest` `stop` is pending before the last step, the loop saves a checkpoint
        and raises `KeyboardInterrupt`. A loss or weight that is not finite is a `ValueError`.
        """
        tasks = self._bar_tasks(bar)
        number, end = self._phase_at(self.step)
        while number < len(self.recipe.phases):
            start = end - self.recipe.phases[number].steps
            stream = self.stream(number)
            meter = Meter(
                self.trained,
                stream,
                bar,
                tasks[number],
                self.recipe.gradient_accumulation_steps,
                self.step - start,
                stop,
            )
            bar.start_task(tasks[number])
            self._run_phase(end, stream, self.eval_set(number), meter, on_record, stop)
            number, end = self._phase_at(self.step)

    def stream(self, number, split="train"):
        """Return the `Stream` of a phase."""
        phase = self.recipe.phases[number]
        return Stream(
            self.records,
            phase.batch_size // self.recipe.gradient_accumulation_steps,
            phase.sequence_length,
            split=split,
            max_predictions=phase.max_predictions,
            # A different seed per phase, so that no phase repeats the data of another one.
            seed=self.recipe.seed * len(self.recipe.phases) + number
            if split == "train"
            else _EVAL_SEED,
            worker=distribution.worker(),
            **self.stream_options,
        )

    def eval_set(self, number):
        """Return a phase's batches of held-out documents, at least one if there are documents."""
        # With next sentence prediction there are two tasks, and a pair needs two documents.
        if self.records.counts("eval")["documents"] < len(self.tasks):
            return []
        stream = self.stream(number, "eval")
        found: list[tuple] = []
        count = max(1, self.intervals.eval_rows // stream.batch_size)
        for _, batch in itertools.islice(stream.batches(epochs=1), count):
            rows = len(batch[0]["input_word_ids"])
            # Omit a smaller last batch: its shape would need another compilation.
            if rows == stream.rows or not found and not rows % distribution.replicas():
                found.append(batch)
        return found

    def write_files(self):
        """Write the history and its plot."""
        _write_history(self)
        report.draw_curves(self.folder, self.history, x="step")
        self._drawn = time.monotonic()

    def _variables(self):
        return [*self.trained.variables, *self.trained.optimizer.variables]

    def _phase_at(self, step):
        """Return the index of the phase of a step, and the step at which the phase ends."""
        end = 0
        for number, phase in enumerate(self.recipe.phases):
            end += phase.steps
            if step < end:
                return number, end
        return len(self.recipe.phases), end

    def _bar_tasks(self, bar):
        """Add a task per phase to the progress bar."""
        tasks, end = [], 0
        for phase in self.recipe.phases:
            end += phase.steps
            done = min(max(self.step - end + phase.steps, 0), phase.steps)
            tasks.append(
                bar.add_task(
                    f"{phase.sequence_length} positions", start=False, total=phase.steps,
                    completed=done, loss="\u2013", rate="\u2013",
                )
            )  # fmt: skip
        return tasks

    def _run_phase(self, end, stream, eval_set, meter, on_record, stop):
        """Train up to the step `end`, from one history line to the next."""
        while self.step < end:
            until = min(end, self.intervals.next_pause(self.step))
            record = self._fit(stream, until, meter)
            is_last = self.step == end
            if eval_set and (is_last or self.step % self.intervals.eval_every == 0):
                record |= self._evaluate(stream, eval_set)
            self.history.append(record)
            if is_last:
                self.position = StreamPosition()  # the next phase begins with the first document
            # Read the flag once. A later request applies to the next step.
            stopping = stop.is_pending
            if is_last or stopping or self.step % self.intervals.save_every == 0:
                self._save()
            if self._writes:
                _write_history(self)
                if time.monotonic() - self._drawn > _CURVES_SECONDS:
                    self.write_files()
            on_record(record)
            if stopping and self.step < self.recipe.steps:
                if self._writes:
                    self.write_files()
                raise KeyboardInterrupt(
                    f"stopped at step {self.step} of {self.recipe.steps}, which is saved; the same "
                    "call or command resumes from there"
                )

    def _fit(self, stream, until, meter):
        """Train up to the step `until` or a request to stop, and return a line of the history."""
        count = (until - self.step) * self.recipe.gradient_accumulation_steps
        positions, failures = {}, []

        def batches():  # TensorFlow's strategies call this function more than once
            drawn = itertools.islice(stream.batches(self.position), count)
            try:
                for number, (positions[number], batch) in enumerate(drawn):
                    meter.take(number, batch)
                    yield batch
            except (ValueError, OSError) as error:
                failures.append(error)
                raise

        meter.start()
        try:
            history = self.trained.fit(
                _dataset(batches, stream, stream.rows),
                steps_per_epoch=count, epochs=1, shuffle=False, verbose=0, callbacks=[meter],
            ).history  # fmt: skip
        except Diverged as error:
            self._raise_diverged(stream, error)
        except Exception:
            if failures:  # TensorFlow's error does not contain the cause
                raise failures[0] from None
            raise
        self.step += meter.batches // self.recipe.gradient_accumulation_steps
        self.position = positions[meter.batches - 1]
        return {
            "step": self.step,
            "sequence_length": stream.sequence_length,
            **self._losses({name: values[0] for name, values in history.items()}),
            "learning_rate": keras_private.last_learning_rate(self.trained.optimizer),
            **meter.figures(),
        }

    def _losses(self, logs):
        """Return Keras' logs as floats. For a single task, add the names that contain the task."""
        if len(self.tasks) == 1:
            (task,) = self.tasks
            logs = {"loss": logs["loss"], f"{task}_loss": logs["loss"],
                    f"{task}_accuracy": logs["accuracy"]}  # fmt: skip
        return {name: float(value) for name, value in logs.items()}

    def _evaluate(self, stream, eval_set):
        """Return losses and accuracies on held-out documents; their names begin with eval_."""

        def batches():  # copies, because TensorFlow may write to the arrays that it is given
            return (keras.tree.map_structure(np.copy, batch) for batch in eval_set)

        dataset = _dataset(batches, stream, len(eval_set[0][0]["input_word_ids"]))
        logs = self.trained.evaluate(dataset, steps=len(eval_set), verbose=0, return_dict=True)
        logs = self._losses(logs)
        if not np.isfinite(logs["loss"]):
            self._check_weights()
            raise ValueError(
                f"after step {self.step} the loss on held-out documents is {logs['loss']}; "
                f"{self._checkpoints.newest()}; {_ADVICE}"
            )
        return {f"eval_{name}": value for name, value in logs.items()}

    def _save(self):
        self._check_weights()
        if self._writes:
            extra = {"place": dataclasses.astuple(self.position), "history": self.history}
            self._checkpoints.save(self.step, self._variables(), extra)
            loading.save(self.model, self.folder)

    def _check_weights(self):
        """Raise an error if a weight is NaN or infinite. The loss shows this one step later."""
        for variable in self.trained.trainable_variables:
            if not np.isfinite(keras.ops.convert_to_numpy(variable)).all():
                raise ValueError(
                    f"after step {self.step} weights are NaN or infinite: {variable.path}; "
                    f"{self._checkpoints.newest()}; {_ADVICE}"
                )

    def _raise_diverged(self, stream, error):
        """Save the batch whose loss is not finite, and raise an error."""
        step = self.step + error.batch // self.recipe.gradient_accumulation_steps + 1
        batches = stream.batches(self.position)
        _, batch = next(batch for index, batch in enumerate(batches) if index == error.batch)
        # Each process has only the rows of its own devices.
        index, workers = distribution.worker()
        name = f"diverged-step-{step}" + (f"-worker-{index}" if workers > 1 else "")
        file = self.folder / f"{name}.npz"
        inputs, targets, weights = batch
        saved = f"its batch is in {file}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(file) as temporary:
                np.savez(
                    temporary,
                    **inputs,
                    **{f"target_{key}": value for key, value in targets.items()},
                    **{f"weight_{key}": value for key, value in weights.items()},
                )
        except OSError as failure:
            saved = f"its batch could not be saved ({failure.strerror or failure})"
        raise ValueError(
            f"the loss is {error.loss} at step {step}; {saved}, and "
            f"{self._checkpoints.newest()}; {_ADVICE}"
        ) from None


def _dataset(batches, stream, rows):
    """Return batches for `fit`: a `tf.data.Dataset` on TensorFlow, else a generator.

    `batches` is a function that returns an iterator; `rows` is the fixed size of its batches.
    """
    if keras.backend.backend() != "tensorflow":
        # Keras accepts generators, but no other iterators.
        return (_with_outputs(batch) for batch in batches())
    import tensorflow as tf

    signature = keras.tree.map_structure(
        lambda array: tf.TensorSpec((rows, *array.shape[1:]), array.dtype),
        _with_outputs(stream.example()),
    )
    dataset = tf.data.Dataset.from_generator(
        lambda: map(_with_outputs, batches()), output_signature=signature
    )
    options = tf.data.Options()
    # The stream of each worker already yields only that worker's rows.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.prefetch(2).with_options(options)


def _with_outputs(batch):
    """Replace dicts of one target by the target, as Keras expects for a model of one output."""
    inputs, *rest = batch
    return inputs, *(part if len(part) > 1 else part["masked_lm"] for part in rest)


def _write_history(loop):
    file = loop.folder / HISTORY_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in loop.history)
    with atomic_write(file) as temporary:
        temporary.write_text(lines, encoding="utf-8")
