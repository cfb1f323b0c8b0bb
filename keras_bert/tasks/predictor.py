"""A model as a function from the data of its task to answers. Keras is not imported."""

import time
import typing

import numpy as np

from keras_bert.runtime.arguments import as_integer, as_max_length
from keras_bert.runtime.memory import advice_for_prediction, explain_out_of_memory
from keras_bert.tasks.inputs import check_data


class Predictor:
    """A model and its task. The subclasses are `KerasPredictor` and `GraphPredictor`.

    Attributes:
        task: The `Task` of the model.
        name: The name of the model, for errors.
        model: The `keras.Model`; a `ValueError` for a graph, which has none.
        task_model: The `TaskModel` of the model.
        max_positions: Number of positions of the model: the longest sequence that it can read.
        columns: Names of the columns of texts that the model was trained on, by input.
        seconds: Time that the model has taken.
    """

    task: typing.Any
    name: str
    model: typing.Any
    task_model: typing.Any
    max_positions: int
    columns: typing.Any
    seconds = 0.0

    def encode(self, examples, max_length=None, **options):
        """Return the data of the task as an `Encoded`.

        Args:
            examples: The data.
            max_length: Maximum tokens of a sequence, by default that of the model.
            **options: The `training_options` of the task.
        """
        kinds = (*self.task.data, *self.task.pipeline.data)
        check_data(repr(self.name), examples, kinds)
        if not len(examples):
            raise ValueError(f"{examples.source} contains no examples")
        task_model = self.task_model
        length = task_model.max_length
        if max_length is not None:
            length = as_max_length(max_length, self.max_positions)
        task_options = self.task.training_options.of(options, f"the task {self.task.name}")
        return self.task.encode(task_model, examples, length, task_options)

    def outputs(self, encoded, *, batch_size=32, on_batch=None, allow_nan=False):
        """Return the outputs of the model for each sequence: arrays, or dicts of arrays.

        Args:
            encoded: A `text.encoded_texts.Encoded`.
            batch_size: Sequences per batch, unless the engine has its own size.
            on_batch: Called after each batch with the fraction of the sequences in it.
            allow_nan: If False, NaN in an output is a `ValueError`.
        """
        batch_size = as_integer("batch_size", batch_size, 1)
        if not len(encoded):
            return []
        start = time.perf_counter()
        results = [None] * len(encoded)
        with explain_out_of_memory(lambda: advice_for_prediction(batch_size)):
            for rows, outputs in self._batches(encoded, batch_size):
                if not allow_nan and any(np.isnan(array).any() for array in _arrays(outputs)):
                    raise ValueError(self._reason_for_nan())
                for index, row in enumerate(rows):
                    results[row] = encoded.compact(_row(outputs, index))
                if on_batch is not None:
                    on_batch(len(rows) / len(encoded))
        self.seconds += time.perf_counter() - start
        return results

    def decode(self, examples, encoded, outputs, **options):
        """Return one answer per example, from the outputs for each sequence.

        `options` are the `answer_options` of the task.
        """
        answer_options = self.task.answer_options.of(options, f"the task {self.task.name}")
        activated = self._activate(outputs)
        return self.task.decode(self.task_model, examples, encoded, activated, answer_options)

    def answers(
        self,
        examples,
        *,
        batch_size=32,
        max_length=None,
        on_batch=None,
        on_encoded=None,
        encode_options=None,
        **options,
    ):
        """Return one answer per example; the arguments are those of the three steps.

        `on_encoded` is called with the `Encoded`, and `encode_options` are the options of `encode`.
        """
        # An unknown option is an error before the work.
        self.task.answer_options.of(options, f"the task {self.task.name}")
        encoded = self.encode(examples, max_length, **(encode_options or {}))
        if on_encoded is not None:
            on_encoded(encoded)
        outputs = self.outputs(encoded, batch_size=batch_size, on_batch=on_batch)
        return self.decode(examples, encoded, outputs, **options)

    def check_labeled(self, examples):
        """Raise an error for data on which the model cannot be scored."""
        check_data(repr(self.name), examples, self.task.data)
        self.task.check_labeled(examples)
        self.task.check_targets(self.task_model.output, examples)

    def evaluate(self, examples, compute_answers=None, report=False, **options):
        """Return the metrics of the model on labeled data.

        Args:
            examples: The data.
            compute_answers: Function of the data and the options, by default `answers`.
            report: If True, add the metrics of each label.
            **options: Those of `compute_answers`.
        """
        self.check_labeled(examples)
        compute_answers = compute_answers or self.answers
        return self.metrics(examples, compute_answers(examples, **options), report)

    def metrics(self, examples, answers, report=False):
        """Return the metrics of answers, with `report` also those of each label."""
        return self.task.metrics(self.task_model.output, examples, answers, report)

    def with_logits(self) -> "Predictor":
        """Return a predictor whose outputs have no activation."""
        raise NotImplementedError

    def digest(self) -> bytes:
        """Return a hash of everything that determines the outputs, such as the weights."""
        raise NotImplementedError

    def _batches(self, encoded, batch_size):
        """Yield the indices of some sequences, and their outputs: an array or a dict of arrays."""
        raise NotImplementedError

    def _activate(self, outputs):
        """Return outputs after the function that makes probabilities of logits."""
        return self.task.activate(self.task_model.output, outputs)

    def _reason_for_nan(self):
        """Return why the outputs contain NaN, and what to do."""
        raise NotImplementedError


def _arrays(outputs):
    return outputs.values() if isinstance(outputs, dict) else [outputs]


def _row(outputs, index):
    """Return a row of an array, or of each array of a dict."""
    if isinstance(outputs, dict):
        return {name: array[index] for name, array in outputs.items()}
    return outputs[index]
