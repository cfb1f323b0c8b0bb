"""The progress of a fine-tuning run: a bar or lines on stderr, TensorBoard, and time."""

import contextlib
import sys
import time

import keras
import numpy as np

from keras_bert.runtime.tensorboard import writer
from keras_bert.runtime.terminal import print_line, progress


class Progress(keras.callbacks.Callback):
    """Updates the counters of a `RunState` after each batch, and reports the progress.

    It draws a bar or prints a line per epoch on stderr, and writes scalars for TensorBoard.

    Args:
        state: The `RunState`.
        plan: The `BatchPlan`.
        show_progress: If `False`, write nothing to stderr.
        tensorboard: Folder for TensorBoard, or `None`.
        steps_per_epoch: TensorBoard's steps per epoch.
    """

    def __init__(self, state, plan, show_progress, tensorboard, steps_per_epoch):
        super().__init__()
        self._state = state
        self._plan = plan
        columns = ("loss {task.fields[loss]}", "{task.fields[rate]}")
        self.bar = progress(*columns, "{task.fields[dev]}", show=show_progress)
        self._has_lines = show_progress and self.bar.disable
        self._write = writer(tensorboard)
        self._steps_per_epoch = steps_per_epoch

    def on_epoch_begin(self, epoch, logs=None):
        state = self._state
        batches = self._plan.epoch(epoch)
        self._examples = np.cumsum([0, *map(len, batches.rows)])  # before each batch
        self._rows = np.cumsum([0, *batches.sizes])
        # An earlier process may have trained the first batches of this epoch.
        self._earlier_loss = state.loss
        self._earlier_rows = state.rows
        self._earlier_seconds = state.seconds
        self._first_batch = state.batch
        self._start = time.perf_counter()
        self._task = self.bar.add_task(
            f"Epoch {epoch + 1} of {self._plan.epochs}",
            total=int(self._examples[-1]),
            completed=int(self._examples[state.batch]),
            **{"loss": "\u2013", "rate": "" if epoch else "compiling", "dev": ""},
        )

    def on_train_batch_end(self, batch, logs=None):
        state = self._state
        state.batch += 1
        # Keras' loss is the mean over the rows since the beginning of the epoch, or of `fit`.
        rows = int(self._rows[state.batch] - self._rows[self._first_batch])
        state.rows = self._earlier_rows + rows
        state.loss = (self._earlier_loss * self._earlier_rows + logs["loss"] * rows) / state.rows
        seconds = time.perf_counter() - self._start
        state.seconds = self._earlier_seconds + seconds
        completed = int(self._examples[state.batch])
        fields = {"loss": f"{logs['loss']:.3f}"}
        if batch == 0:  # it includes the compilation, so it does not count for the rate
            self._uncounted = seconds, completed
        else:
            rate = (completed - self._uncounted[1]) / (seconds - self._uncounted[0])
            fields["rate"] = f"{rate:.0f} examples/s"
        self.bar.update(self._task, completed=completed, **fields)

    @contextlib.contextmanager
    def paused(self):
        """Leave the time of the block out of the time of training."""
        before = time.perf_counter()
        yield
        self._start += time.perf_counter() - before

    def show_dev(self, metric, value):
        """Show a score of the dev data."""
        self.bar.update(self._task, dev=f"dev {metric} {value:.3f}")

    def report(self, record):
        """Report the metrics at the end of an epoch or within it."""
        scores = {name: value for name, value in record.items() if name != "epoch"}
        self._write(round(record["epoch"] * self._steps_per_epoch), scores)
        if self._has_lines:
            scores.pop("majority", None)
            text = ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
            print_line(f"epoch {record['epoch']} of {self._plan.epochs}: {text}", file=sys.stderr)
