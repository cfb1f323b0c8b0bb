"""Speed of a pretraining run, and its progress bar."""

import time

import keras

from keras_bert import heads
from keras_bert.runtime import distribution
from keras_bert.training import flops

_RATE_SECONDS = 1  # between two updates of the rate on the progress bar


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
