"""The pauses of a pretraining run for history lines, evaluations and checkpoints; its speed."""

import dataclasses
import json
import time

import keras
import numpy as np

from keras_bert import heads, keras_private
from keras_bert.hub import loading
from keras_bert.pretraining.pretraining_run import data_for_fit
from keras_bert.pretraining.stream import StreamPosition
from keras_bert.runtime import distribution
from keras_bert.runtime.files import atomic_write
from keras_bert.training import flops, report
from keras_bert.training.callbacks import path_of_diverged_weight
from keras_bert.training.run_state import variables_of

HISTORY_FILE = "history.jsonl"
_RATE_SECONDS = 1  # between two updates of the rate on the progress bar
_ADVICE = "a lower learning rate or a longer warm-up may help, in a new folder"


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
        stream = feed.stream
        self._flops_per_row = flops.of_sequence(
            heads.find_encoder(run.model).bert_config,
            stream.sequence_length,
            stream.predictions_in_row,
            stream.texts_in_row,
        )
        self._feed, self._rows = feed, stream.batch_size
        self._bar, self._task, self._done = bar, task, done
        self._accumulate = run.recipe.gradient_accumulation_steps
        self._peak = None
        self._first_end = 0.0

    def on_train_begin(self, logs=None):
        self.start()

    def start(self):
        """Reset all measurements."""
        self._batches, self._tokens = 0, 0
        self._start = self._counted_from = self._shown = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self._end = now = time.perf_counter()
        tokens = self._feed.tokens.pop(batch)
        self._batches += 1
        self._tokens += tokens
        if self._batches == 2:
            self._counted_from, self._tokens = self._first_end, tokens
        if self._batches == 1:
            self._first_end = now
        elif now > self._shown + _RATE_SECONDS:
            self._show(rate=f"{self._measured()[2]:,.0f}")
            self._shown = now
        done = self._done + (batch + 1) // self._accumulate
        self._show(completed=done, loss=f"{logs['loss']:.3f}")

    def figures(self):
        """Return the speed since `start`, for a line of the history."""
        batches, seconds, rate = self._measured()
        self._show(rate=f"{rate:,.0f}")
        if self._peak is None:
            self._peak = flops.peak() * distribution.devices()
        operations = self._flops_per_row * batches * self._rows / seconds
        return {
            "seconds": round(self._end - self._start, 3),
            "tokens_per_second": round(rate, 1),
            "sequences_per_second": round(batches * self._rows / seconds, 2),
            "flop_utilization": round(operations / self._peak, 4),
        }

    def _show(self, **fields):
        self._bar.update(self._task, **fields)

    def _measured(self):
        """Return the counted batches, and their seconds and tokens per second."""
        seconds = self._end - self._counted_from
        workers = distribution.worker()[1]
        return max(1, self._batches - 1), seconds, self._tokens * workers / seconds


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
        self._run, self._end = run, run.end_of(phase)
        self._feed, self._meter = feed, meter
        self._on_record, self._stop = on_record, stop
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
        run, model = self._run, self.model
        record = {
            "step": run.step,
            "sequence_length": self._feed.stream.sequence_length,
            **run.losses(logs),
            "learning_rate": keras_private.last_learning_rate(model.optimizer),
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
        model.reset_metrics()
        self._meter.start()

    def _evaluate(self):
        """Return losses and accuracies on held-out documents; their names begin with eval_."""
        run, eval_set = self._run, self._eval_set

        def batches():  # copies, because TensorFlow may write to the arrays that it is given
            return (keras.tree.map_structure(np.copy, batch) for batch in eval_set)

        data = data_for_fit(batches, self._feed.stream, len(eval_set[0][0]["input_word_ids"]))
        logs = self.model.evaluate(data, steps=len(eval_set), verbose=0, return_dict=True)
        return {f"eval_{name}": value for name, value in run.losses(logs).items()}

    def _save(self):
        run = self._run
        path = path_of_diverged_weight(self.model)
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
            run.checkpoints.save(variables_of(run.trained), progress, run.step)
            loading.save(run.model, run.folder)

    def _raise_diverged(self, batch, loss):
        """Save the batch whose loss is not finite, and raise an error."""
        run = self._run
        name = f"diverged-step-{run.step + 1}"
        worker, workers = distribution.worker()
        if workers > 1:  # each process has only the rows of its own devices
            name += f"-worker-{worker}"
        file = run.folder / f"{name}.npz"
        batches = self._feed.stream.batches(run.position)
        for _ in range(batch % run.recipe.gradient_accumulation_steps):
            next(batches)
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
