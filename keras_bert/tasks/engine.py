"""The base class of what a pipeline computes with."""

import abc
from collections.abc import Callable

from keras_bert.tasks.task import Task, TaskModel


class Engine(abc.ABC):
    """A model that computes the outputs of encoded data. Subclasses run it.

    Attributes:
        task: The `Task` of the model.
        longest: Number of positions of the model: the longest sequence that it can read.
        columns: Names of the columns of texts that the model was trained on, by input.
    """

    def __init__(self, task: Task, longest: int, columns: dict[str, str]):
        self.task = task
        self.longest = longest
        self.columns = columns

    @property
    def name(self) -> str:
        """The name of the model, for errors."""
        return self.described.name

    @property
    @abc.abstractmethod
    def described(self) -> TaskModel:
        """The model as its task sees it."""

    @property
    @abc.abstractmethod
    def model(self):
        """The `keras.Model`."""

    @abc.abstractmethod
    def outputs(self, encoded, *, batch_size: int, on_batch: Callable | None = None) -> list:
        """Return the outputs for each sequence, as after `Task.activate`."""

    @abc.abstractmethod
    def export(self, path, **options):
        """Export the model; the arguments are those of `keras_bert.export`."""

    @abc.abstractmethod
    def save(self, path, **options):
        """Save the model; the arguments are those of `keras_bert.save`."""

    def encode(self, examples, **options):
        """Encode the data of the task; `options` are those of training."""
        if not len(examples):
            raise ValueError(f"{examples.source} contains no examples")
        task = self.task
        made = task.training_options.of(options, task.name)
        return task.encode(self.described, examples, self.described.max_length, made)

    def answers(self, examples, encoded, *, batch_size, on_batch=None, **options):
        """Return one answer per example; `options` are those of answers."""
        outputs = self.outputs(encoded, batch_size=batch_size, on_batch=on_batch)
        made = self.task.answer_options.of(options, self.task.name)
        return self.task.decode(self.described, examples, encoded, outputs, made)
