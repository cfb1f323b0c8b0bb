"""Inference with fine-tuned models: encode, run, decode and score."""

import collections
import math
from typing import Any

import keras

from keras_bert.data.batching import SortedBatches
from keras_bert.model_structure import (
    find_encoder,
    find_output,
    has_choices,
    preprocessor_of,
)
from keras_bert.runtime import distribution
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.memory import advice_for_prediction, explain_out_of_memory
from keras_bert.tasks import registry
from keras_bert.tasks.forward_pass import forward_pass
from keras_bert.tasks.task import TaskModel

_BATCHES_IN_FLIGHT = 2
_POSITIONS_PER_ROW = 512  # on a GPU or TPU, `batch_size` counts sequences of this length


def describe(model) -> TaskModel:
    """Return a Keras model as its task sees it. Its encoder must have a preprocessor."""
    tokenizer = preprocessor_of(model).python_tokenizer
    output = find_output(model)
    shape = model.output_shape
    width = shape[-1] if isinstance(shape, tuple) else None
    return TaskModel(model.name, output, tokenizer, length_limit(model), width)


def encode(model, examples, max_length=None, **options):
    """Encode the data of a model's task, for `run` and `decode`.

    `max_length` is the maximum length of a sequence, by default the preprocessor's
    `max_sequence_length`. `options` are the `training_options` of the task.
    """
    task = registry.for_model(model)
    if not isinstance(examples, task.data):
        raise ValueError(
            f"{model.name!r} takes {task.data[0].__name__}; received {type(examples).__name__}. "
            "Files and tables become such data with keras_bert.read"
        )
    if not len(examples):
        raise ValueError(f"{examples.source} contains no examples")
    task_options = task.training_options.of(options, f"the task {task.name}")
    return task.encode(describe(model), examples, length_limit(model, max_length), task_options)


def decode(model, examples, encoded, outputs, **options):
    """Return one answer per example, from the outputs of the Keras model for each sequence.

    `options` are the `answer_options` of the task.
    """
    task = registry.for_model(model)
    answer_options = task.answer_options.of(options, f"the task {task.name}")
    described = describe(model)
    activated = task.activate(described.output, outputs)
    return task.decode(described, examples, encoded, activated, answer_options)


def answers(
    model,
    examples,
    *,
    batch_size=32,
    max_length=None,
    on_batch=None,
    predict=None,
    **options,
):
    """Return one answer per example.

    `max_length` is as in `encode`, `options` as in `decode`, the other arguments as in `run`.
    """
    task = registry.for_model(model)
    task.answer_options.of(options, f"the task {task.name}")  # raises an error before the work
    encoded = encode(model, examples, max_length)
    outputs = run(model, encoded, batch_size=batch_size, on_batch=on_batch, predict=predict)
    return decode(model, examples, encoded, outputs, **options)


def length_limit(model, max_length=None):
    """Return the maximum length of a model's sequences.

    Args:
        model: A model whose encoder has a preprocessor.
        max_length: The wanted length; `None` for the preprocessor's `max_sequence_length`.

    Returns:
        The length, at most the encoder's `max_position_embeddings`.

    Raises:
        ValueError: If the encoder has no preprocessor.
    """
    preprocessor = preprocessor_of(model)
    longest = find_encoder(model).bert_config["max_position_embeddings"]
    if max_length is not None:
        max_length = as_integer("max_length", max_length, 3)
    return min(max_length or preprocessor.max_sequence_length, longest)


def run(
    model,
    encoded,
    *,
    batch_size=32,
    on_batch=None,
    on_outputs=None,
    predict=None,
    most_lengths=3,
):
    """Return a list with the outputs for each encoded sequence: arrays, or dicts of arrays.

    `encoded` is as in `data.batching`. After each batch, `on_batch` is called with the fraction of
    the sequences in it, and `on_outputs` with its outputs. `predict` is a `ForwardPass`, by default
    that of the model. If each shape costs a compilation, batches have at most `most_lengths`
    lengths. A GPU or TPU gets more than `batch_size` sequences at once if they are short. A model
    of single texts computes the texts of rows one after the other, and the outputs are (texts, ...)
    for each row.
    """
    predict = forward_pass(model) if predict is None else predict
    if not len(encoded):
        return []
    positions = 0
    if distribution.has_accelerator() and len(encoded) > batch_size:
        positions = batch_size * _POSITIONS_PER_ROW // _sequences_per_row(encoded)
    lengths = predict.lengths_for(encoded, batch_size, most_lengths)
    devices = 1 if lengths is None else distribution.replicas()
    batches = SortedBatches(encoded, batch_size, lengths, positions, devices=devices)
    results = [None] * len(encoded)
    texts_per_row = None if has_choices(model) else encoded.texts_per_row

    def finish(rows, tensors):
        outputs = keras.tree.map_structure(keras.ops.convert_to_numpy, tensors)
        if texts_per_row is not None:
            outputs = outputs.reshape(-1, texts_per_row, *outputs.shape[1:])
        if on_outputs:
            on_outputs(outputs)
        for index_in_batch, row in enumerate(rows):
            output = keras.tree.map_structure(lambda array: array[index_in_batch], outputs)  # noqa: B023
            results[row] = encoded.compact(output)
        if on_batch:
            on_batch(len(rows) / len(encoded))

    # A device computes a batch while the next one is made.
    running: collections.deque = collections.deque()
    with explain_out_of_memory(lambda: advice_for_prediction(batch_size)):
        for index, rows in enumerate(batches.rows):
            inputs = batches[index][0]
            if texts_per_row is not None:
                inputs = {name: ids.reshape(-1, ids.shape[-1]) for name, ids in inputs.items()}
            running.append((rows, predict(inputs)))
            if len(running) > _BATCHES_IN_FLIGHT:
                finish(*running.popleft())
        while running:
            finish(*running.popleft())
    return results


def _sequences_per_row(encoded):
    """Return how many sequences a row of a batch has, such as the choices of a text."""
    inputs, _, _ = encoded.batch([0], int(encoded.lengths[0]))
    shape = inputs["input_word_ids"].shape
    return math.prod(shape[1:-1])


def evaluate(model: keras.Model, examples: Any, **options: Any) -> Any:
    """Score a model on labeled data.

    Args:
        model: A model of `keras_bert.heads`.
        examples: The data of its task, with labels.
        **options: `batch_size`, `max_length` (tokens), or options of the task: `max_answer_length`
            and `null_threshold` for question answering.

    Returns:
        A dict of metrics, the main one first, see the task's `score`.

    Raises:
        ValueError: As in `answers`, or if there are no labels.

    Example:

    >>> from keras_bert import BertEncoder, Examples, Preprocessor
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> from keras_bert import heads
    >>> model = heads.classifier(encoder, labels=["no", "yes"])
    >>> list(evaluate(model, Examples(["good", "bad"], labels=["yes", "no"])))
    ['accuracy', 'f1', 'mcc', 'majority']
    """
    task = registry.for_model(model)
    if isinstance(examples, task.data):
        task.check_labeled(examples)
    return score(find_output(model), examples, answers(model, examples, **options))


def score(output, examples, answers, report=False):
    """Return the metrics of answers, with `report` also those of each label.

    `output` is the `TaskOutput` of the model.
    """
    return registry.by_name(output.task).metrics(output, examples, answers, report)
