"""The progress of a fine-tuning run: a bar or lines on stderr, TensorBoard, and time."""

import contextlib
import sys
import time

import keras
import numpy as np

from keras_bert.runtime.tensorboard import writer
from keras_bert.runtime.terminal import print_line, progress
from keras_bert.tasks import registry


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
        self._sizes = batches.sizes
        self._sum_of_losses = 0.0
        self._rows = 0
        # An earlier process may have trained the first batches of this epoch.
        self._earlier_seconds = state.seconds
        self._start = time.perf_counter()
        self._task = self.bar.add_task(
            f"Epoch {epoch + 1} of {self._plan.epochs}",
            total=int(self._examples[-1]),
            completed=int(self._examples[state.batch]),
            **{"loss": "\u2013", "rate": "" if epoch else "compiling", "dev": ""},
        )

    def on_train_batch_end(self, batch, logs=None):
        state = self._state
        self._update_loss(logs["loss"])
        state.batch += 1
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

    def _update_loss(self, mean):
        """Update the loss of the epoch with that of a batch.

        `mean` is Keras' loss: the mean over the rows since the beginning of the epoch, or of `fit`,
        which counts the rows of weight 0 that fill a batch.
        """
        state = self._state
        size = self._sizes[state.batch]
        self._rows += size
        sum_before = self._sum_of_losses
        self._sum_of_losses = mean * self._rows
        loss = (self._sum_of_losses - sum_before) / size
        plan = self._plan
        batch_index = state.epoch * plan.batches + state.batch
        counted = plan.counted_sequences(batch_index)
        state.rows += counted
        if state.rows:
            loss_of_rows = loss * plan.divisor(batch_index)  # the sum over the rows that count
            state.loss += (loss_of_rows - state.loss * counted) / state.rows

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
            shown = [name for name in scores if not registry.is_baseline(name)]
            text = ", ".join(f"{name} {scores[name]:.3f}" for name in shown)
            print_line(f"epoch {record['epoch']} of {self._plan.epochs}: {text}", file=sys.stderr)
