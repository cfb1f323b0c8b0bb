"""Speed of a pretraining run, and detection of a loss that is not finite."""

import time

import keras
import numpy as np

from keras_bert import heads
from keras_bert.runtime import distribution
from keras_bert.training import flops

_RATE_SECONDS = 1  # between two updates of the rate on the progress bar


class Diverged(Exception):
    """The loss is NaN or infinite at the batch with index `batch` of the current `fit`."""

    def __init__(self, batch, loss):
        super().__init__(batch, loss)
        self.batch, self.loss = batch, loss


class Meter(keras.callbacks.Callback):
    """Measures the speed of a phase, updates its progress bar and stops the training.

    `task` is the phase's task on `bar`, a `rich.progress.Progress`. `accumulate` is the number of
    batches per optimizer step, and `done` the number of completed steps of the phase. When the
    `StopRequest` `stop` is pending, the training stops after the current step.
    """

    def __init__(self, model, stream, bar, task, accumulate, done, stop):
        super().__init__()
        config = heads.find_encoder(model).bert_config
        self._flops_per_row = flops.of_sequence(
            config, stream.sequence_length, stream.predictions_in_row, stream.texts_in_row
        )
        self._stream, self._bar, self._accumulate = stream, bar, accumulate
        self._peak, self._done = None, done
        self._task, self._stop = task, stop

    def take(self, number, batch):
        """Count the tokens of the batch with index `number`, without padding."""
        mask = batch[0].get("input_mask", batch[0].get("text_ids"))
        self._tokens[number] = int(np.count_nonzero(mask))

    def start(self):
        """Reset all measurements before a `fit`."""
        self._tokens, self._batch, self._loss = {}, -1, None
        self._start = self._first = self._shown = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        # Read the loss of the previous batch: the device may still compute the current one.
        self._read_loss()
        self._batch, self._loss = batch, logs["loss"]
        now = time.perf_counter()
        if batch == 0:
            self._first = now  # the compilation is complete
        elif now > self._shown + _RATE_SECONDS:
            self._bar.update(self._task, rate=f"{self._measured(now)[2]:,.0f}")
            self._shown = now
        if (batch + 1) % self._accumulate == 0:
            self._done += 1
            self._stop.end_step()
            if self._stop.is_pending:
                self.model.stop_training = True

    def on_train_end(self, logs=None):
        self._read_loss()
        self._end = time.perf_counter()

    @property
    def batches(self):
        """Number of batches since `start`."""
        return self._batch + 1

    def figures(self):
        """Return the speed since `start`, for a line of the history."""
        batches, seconds, rate = self._measured(self._end)
        self._bar.update(self._task, rate=f"{rate:,.0f}")
        if self._peak is None:
            self._peak = flops.peak() * distribution.devices()
        operations = self._flops_per_row * batches * self._stream.batch_size / seconds
        return {
            "seconds": round(self._end - self._start, 3),
            "tokens_per_second": round(rate, 1),
            "sequences_per_second": round(batches * self._stream.batch_size / seconds, 2),
            "flop_utilization": round(operations / self._peak, 4),
        }

    def _read_loss(self):
        if self._loss is None:
            return
        loss = float(self._loss)  # the mean since the beginning of `fit`
        if not np.isfinite(loss):
            raise Diverged(self._batch, loss)
        self._bar.update(self._task, completed=self._done, loss=f"{loss:.3f}")

    def _measured(self, end):
        """Return batches, seconds and tokens per second, without the first batch if possible."""
        several = self._batch > 0
        seconds = end - (self._first if several else self._start)
        tokens = [self._tokens[number] for number in range(several, self.batches)]
        return len(tokens), seconds, sum(tokens) * distribution.worker()[1] / seconds
