"""Predict with a Keras model."""

import collections
import hashlib
import math
from typing import Any

import keras

from keras_bert import provenance
from keras_bert.data.batching import SortedBatches
from keras_bert.model_structure import (
    find_encoder,
    find_output,
    has_choices,
    max_sequence_length,
    path_of_diverged_weight,
    preprocessor_of,
)
from keras_bert.runtime import distribution
from keras_bert.tasks import registry
from keras_bert.tasks.forward_pass import forward_pass
from keras_bert.tasks.predictor import Predictor
from keras_bert.tasks.task import TaskModel

_BATCHES_IN_FLIGHT = 2
_POSITIONS_PER_ROW = 512  # on a GPU or TPU, `batch_size` counts sequences of this length


def describe(model) -> TaskModel:
    """Return a model as its task sees it. Its encoder must have a preprocessor."""
    tokenizer = preprocessor_of(model).python_tokenizer
    shape = model.output_shape
    width = shape[-1] if isinstance(shape, tuple) else None
    max_length = max_sequence_length(find_encoder(model))
    return TaskModel(model.name, find_output(model), tokenizer, max_length, width)


class KerasPredictor(Predictor):
    """A Keras model with a head and a preprocessor.

    A GPU or TPU gets more than `batch_size` sequences at once if they are short. Rows of several
    texts, such as (query, document), are flattened for a model of single texts, and the outputs of
    each row are (texts, ...).

    Args:
        model: The `keras.Model`.
        precision: As in `forward_pass`.
        max_lengths: Maximum number of lengths of batches, if each shape costs a compilation.

    Attributes:
        forward_pass: The `ForwardPass` of the model.
    """

    def __init__(self, model, precision=None, max_lengths=3):
        self.task = registry.for_model(model)
        self.model = model
        self.name = model.name
        self.max_positions = find_encoder(model).bert_config["max_position_embeddings"]
        self.forward_pass = forward_pass(model, precision)
        self._precision = precision
        self._max_lengths = max_lengths

    def __getstate__(self):
        return {**vars(self), "forward_pass": None}  # programs cannot be pickled

    def __setstate__(self, state):
        vars(self).update(state)
        self.forward_pass = forward_pass(self.model, self._precision)

    @property
    def task_model(self) -> TaskModel:
        return describe(self.model)  # users can change the preprocessor

    @property
    def columns(self):
        return provenance.columns_of_texts(provenance.known_columns(self.model))

    def with_logits(self):
        model = self.task.model_of_logits(self.model)
        return KerasPredictor(model, self._precision, self._max_lengths)

    def digest(self):
        settings = (
            provenance.digest_of_weights(self.model),
            self.model.get_config(),  # the pooling and the layers after it
            find_encoder(self.model).preprocessor.vocabulary,
            self._precision,
        )
        return hashlib.sha256(repr(settings).encode()).digest()

    def _batches(self, encoded, batch_size):
        lengths = self.forward_pass.lengths_for(encoded, batch_size, self._max_lengths)
        batches = SortedBatches(
            encoded,
            batch_size,
            lengths,
            positions=_positions_per_batch(encoded, batch_size),
            # Only a forward pass that compiles splits its batches among the devices.
            devices=1 if lengths is None else distribution.replicas(),
        )
        texts_per_row = None if has_choices(self.model) else encoded.texts_per_row

        def finish(rows, tensors):
            outputs = keras.tree.map_structure(keras.ops.convert_to_numpy, tensors)
            if texts_per_row is not None:
                outputs = outputs.reshape(-1, texts_per_row, *outputs.shape[1:])
            return rows, outputs

        # A device computes a batch while the next one is made.
        running: collections.deque = collections.deque()
        for index, rows in enumerate(batches.rows):
            inputs = batches[index][0]
            if texts_per_row is not None:
                inputs = {name: ids.reshape(-1, ids.shape[-1]) for name, ids in inputs.items()}
            running.append((rows, self.forward_pass(inputs)))
            if len(running) > _BATCHES_IN_FLIGHT:
                yield finish(*running.popleft())
        while running:
            yield finish(*running.popleft())

    def _reason_for_nan(self):
        path = path_of_diverged_weight(self.model.variables)
        if path is not None:
            return (
                f"{self.name!r} returned NaN, because its weight {path} is damaged. Load or train "
                "the model again"
            )
        dtype = self._precision or find_encoder(self.model).compute_dtype
        remedy = "Load or train the model again"
        if dtype == "float16":
            remedy = "Use precision='float32' or 'bfloat16', which hold larger numbers"
        return f"{self.name!r} returned NaN in {dtype}. {remedy}"


def _positions_per_batch(encoded, batch_size):
    """Return the positions that a GPU or TPU computes at once; 0 for `batch_size` sequences."""
    if not distribution.has_accelerator() or len(encoded) <= batch_size:
        return 0
    inputs, _, _ = encoded.batch([0], int(encoded.lengths[0]))
    sequences_per_row = math.prod(inputs["input_word_ids"].shape[1:-1])  # choices of a text
    return batch_size * _POSITIONS_PER_ROW // sequences_per_row


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
        ValueError: If the data is of another task or has no labels, an option is unknown, the
            encoder has no preprocessor or fewer positions than `max_length`, or the model returns
            NaN.

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
    return KerasPredictor(model).evaluate(examples, **options)
