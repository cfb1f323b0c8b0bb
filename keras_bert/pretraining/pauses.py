"""The pauses of a pretraining run: history lines, evaluations, checkpoints and the end."""

import dataclasses
import json
import time

import keras
import numpy as np

from keras_bert import keras_private
from keras_bert.hub import loading
from keras_bert.pretraining.feed import data_for_fit
from keras_bert.pretraining.stream import StreamPosition
from keras_bert.runtime import distribution
from keras_bert.runtime.files import atomic_write
from keras_bert.training import report
from keras_bert.training.callbacks import path_of_diverged_weight

HISTORY_FILE = "history.jsonl"
_CURVES_SECONDS = 60  # between two plots during a run
_ADVICE = "a lower learning rate or a longer warm-up may help, in a new folder"


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
        self._drawn = time.monotonic()  # when the curves were drawn last

    def on_train_batch_end(self, batch, logs=None):
        run = self._run
        if not np.isfinite(logs["loss"]):
            self._raise_diverged(batch, logs["loss"])
        position = self._feed.positions.pop(batch)
        if (batch + 1) % run.recipe.gradient_accumulation_steps:
            return
        is_pause = run.step + 1 == min(self._end, run.intervals.next_pause(run.step))
        run.step += 1
        run.position = position
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
        if self._eval_set and (is_last or run.step % run.intervals.eval_every == 0):
            record |= self._evaluate()
        run.history.append(record)
        if is_last:
            run.position = StreamPosition()  # the next phase begins with the first document
        if is_last or stopping or run.step % run.intervals.save_every == 0:
            self._save()
        if run.writes:
            write_history(run)
            if time.monotonic() - self._drawn > _CURVES_SECONDS:
                write_files(run)
                self._drawn = time.monotonic()
        self._on_record(record)
        if stopping and run.step < run.recipe.steps:
            if run.writes:
                write_files(run)
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
        logs = run.losses(logs)
        if not np.isfinite(logs["loss"]):
            self._check_weights()
            raise ValueError(
                f"after step {run.step} the loss on held-out documents is {logs['loss']}; "
                f"{run.checkpoints.newest()}; {_ADVICE}"
            )
        return {f"eval_{name}": value for name, value in logs.items()}

    def _save(self):
        run = self._run
        self._check_weights()
        if run.writes:
            progress = {"position": dataclasses.astuple(run.position), "history": run.history}
            run.checkpoints.save(run.step, run.variables(), progress)
            loading.save(run.model, run.folder)

    def _check_weights(self):
        """Raise an error if a weight is NaN or infinite. The loss shows this one step later."""
        path = path_of_diverged_weight(self.model)
        if path is not None:
            raise ValueError(
                f"after step {self._run.step} weights are NaN or infinite: {path}; "
                f"{self._run.checkpoints.newest()}; {_ADVICE}"
            )

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
        saved = f"its batch is in {file}"
        try:
            run.folder.mkdir(parents=True, exist_ok=True)
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
            f"the loss is {loss} at step {run.step + 1}; {saved}, and "
            f"{run.checkpoints.newest()}; {_ADVICE}"
        )


def write_files(run):
    """Write the history and its plot."""
    write_history(run)
    report.draw_curves(run.folder, run.history, x="step")


def write_history(run):
    """Write the history."""
    file = run.folder / HISTORY_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in run.history)
    with atomic_write(file) as temporary:
        temporary.write_text(lines, encoding="utf-8")
