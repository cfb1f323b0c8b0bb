"""The encoded data of a fine-tuning run, and what the task says about them."""

import dataclasses
import functools
import sys

import keras
import numpy as np

from keras_bert import heads
from keras_bert.data.batching import mean_loss
from keras_bert.data.examples import UnknownLabel
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.stopping import stop_requests
from keras_bert.runtime.terminal import print_line
from keras_bert.tasks import inputs, registry
from keras_bert.tasks.keras_predictor import KerasPredictor, describe
from keras_bert.text import vocabulary_fit
from keras_bert.training.user_callbacks import DEV_LOSS

# Names of arguments in Keras and transformers.
NAMES_ELSEWHERE = {
    "lr": "learning_rate", "verbose": "show_progress", "num_train_epochs": "epochs",
    "validation_data": "dev", "eval_dataset": "dev", "per_device_train_batch_size": "batch_size",
    "output_dir": "folder", "warmup_ratio": "warmup", "early_stopping_patience": "patience",
}  # fmt: skip


def encode_training(task, model, train, recipe):
    """Return the encoded training data."""
    options = dict(recipe.options)
    if recipe.loss is not None and _has_own_losses(task):
        options["loss"] = recipe.loss
    task_options = task.training_options.of(options, task.name)
    encoded = task.encode_training(describe(model), train, recipe.max_length, task_options)
    if not len(encoded):
        raise ValueError(
            f"{train.source}: no text has tokens. Check the column of the texts and the vocabulary"
        )
    task.check_training_data(train, encoded)
    return encoded


def encode_dev(task, model, train, dev, recipe):
    """Return the encoded dev data; raise an error for a label that the training data lacks."""
    options = {}
    if "long_texts" in recipe.options:
        options["long_texts"] = recipe.options["long_texts"]
    task_options = task.training_options.of(options, task.name)
    try:
        return task.encode(describe(model), dev, recipe.max_length, task_options)
    except UnknownLabel as error:
        raise ValueError(
            f"{error}. No row of the training data, {train.source}, has this label; add some "
            "there, or remove it from the dev data"
        ) from error


def batch_size_of(task, encoded, recipe):
    """Return the batch size of a recipe, by default that of the task for its encoded data."""
    batch_size = recipe.batch_size
    if batch_size is None:
        batch_size = task.default_batch_size(encoded)
    if encoded.compares_rows and batch_size == 1:
        raise ValueError(
            "batch_size must be at least 2, because the loss compares the rows of a batch; "
            "received 1"
        )
    return batch_size


def compile_options(task, model, encoded, loss):
    """Return the arguments of `keras.Model.compile`; `loss` replaces the task's loss."""
    options = task.compile_options(heads.find_output(model), encoded)
    if loss is None or encoded.loss is not None or _has_own_losses(task):
        return options
    if not isinstance(loss, keras.losses.Loss):
        raise ValueError(
            "loss must be a keras.losses.Loss, such as "
            f"keras.losses.SparseCategoricalCrossentropy(from_logits=True); received {shown(loss)}"
        )
    if loss.get_config().get("from_logits") is False:
        raise ValueError(f"{loss.name} must have from_logits=True, because models return logits")

    # With one output, `loss_weights` fits the task's own loss. With several, the weights average
    # the losses.
    if not isinstance(options["loss"], dict):
        options.pop("loss_weights", None)
    return options | {"loss": keras.tree.map_structure(lambda _: loss, options["loss"])}


def _has_own_losses(task):
    """Return True if the task chooses its loss by an option, when it encodes the data."""
    return "loss" in task.training_options.names()


def encode_contrastive(model, contrast, max_length):
    """Prepare the training of a model's encoder on the pairs of a `ContrastiveTraining`.

    Return an embedder that shares the encoder; the encoded pairs; and the arguments of
    `keras.Model.compile`.
    """
    pairs = contrast.pairs
    task = registry.for_data(pairs)
    embedder = task.build(heads.find_encoder(model), pairs)
    options = task.training_options.of({"loss": contrast.loss}, task.name)
    encoded = task.encode_training(describe(embedder), pairs, max_length, options)
    task.check_training_data(pairs, encoded)
    return embedder, encoded, task.compile_options(heads.find_output(embedder), encoded)


class DevScorer:
    """A function that scores the model of a run on its dev data.

    If the rows of the training data have several texts, and those of the dev data one, a batch has
    as many texts as in the training.

    Args:
        run: The `FinetuningRun`, with its encoded data and its plan.
        options: The arguments of `keras.Model.compile`.
    """

    def __init__(self, run, options):
        self._model = run.model
        self._dev = run.dev
        self._encoded = run.encoded_dev
        self._max_lengths = run.plan.programs_for_scoring
        self._batch_size = run.recipe.batch_size
        if run.encoded.texts_per_row is not None and self._encoded.texts_per_row is None:
            self._batch_size *= run.encoded.texts_per_row
        self._rows_per_batch = None
        if self._encoded.has_targets:
            self._rows_per_batch = run.plan.rows_of(self._encoded)
        self._loss = self._encoded.loss
        self._loss_weights = 1.0
        if self._loss is None:
            self._loss = options["loss"]
            self._loss_weights = options.get("loss_weights", 1.0)

    def __call__(self):
        """Return the metrics of the dev data and, if they have targets, the mean loss."""
        predictor = KerasPredictor(self._model, max_lengths=self._max_lengths)
        with_logits = predictor.with_logits()
        with stop_requests() as stop:
            outputs = with_logits.outputs(
                self._encoded, batch_size=self._batch_size, allow_nan=True
            )
            loss = {}
            if self._rows_per_batch is not None:
                loss[DEV_LOSS] = mean_loss(
                    self._loss, self._loss_weights, self._encoded, outputs, self._rows_per_batch
                )
            if with_logits.model is not self._model:
                # The output layer is the activation that `with_logits` leaves out.
                scores = predictor.task_model.output(np.stack(outputs))
                outputs = list(keras.ops.convert_to_numpy(scores))
            answers = predictor.decode(self._dev, self._encoded, outputs)
            metrics = predictor.metrics(self._dev, answers)
            stop.check()  # a library that swallows Ctrl-C may return only a part of the answers
        return metrics | loss


def check_data(task, train, dev):
    """Raise an error for data that cannot be trained on or scored."""
    for name, part, data, kinds in (
        ("train", "training", train, task.data[:1]),
        ("dev", "dev", dev, task.data),
    ):
        if data is None:
            continue
        problem = None
        inputs.check_data(name, data, kinds)
        if not task.is_labeled(data):
            problem = "has no labels. Give labeled examples"
        elif not len(data):
            problem = "contains no examples. Check its file or filter"
        if problem is not None:
            raise ValueError(f"the {part} data, {data.source}, {problem}")
    if dev is not None:
        task.check_labeled(dev)


def print_notes(run, task, encoder, options):
    """Print notes on a vocabulary that does not fit, truncated texts and contrastive training.

    `encoder` is `None` for a model with a trained head, as in `Task.contrastive_training`.
    """
    tokenizer = heads.find_encoder(run.model).preprocessor.python_tokenizer
    sample = run.train.sample_of_texts(vocabulary_fit.SAMPLE)
    misfit = vocabulary_fit.note(sample, run.train.source, tokenizer)
    if misfit is not None:
        _print_once(misfit)
    for examples, encoded in ((run.train, run.encoded), (run.dev, run.encoded_dev)):
        if encoded is not None and encoded.truncated:
            text = f"texts were truncated to {run.recipe.max_length} tokens (max_length)"
            _print_once(f"{examples.source}: {encoded.truncated} {text}")
    train = run.train
    if run.contrast is not None:
        pairs = len(run.contrast.pairs)
        _print_once(
            f"{train.source}: {len(train)} texts of {len(train.label_names())} labels. Each epoch "
            f"trains the encoder on {pairs} pairs of texts, then fits the head to its "
            "vectors (contrastive=False, --no-contrastive: train on the labels)"
        )
    elif run.recipe.optimizer is not None:
        # Would the task train on pairs of texts, if the recipe had no optimizer?
        recipe = dataclasses.replace(run.recipe, optimizer=None)
        if task.contrastive_training(encoder, train, options, recipe) is not None:
            _print_once(
                f"{train.source}: {len(train)} texts of {len(train.label_names())} labels. With "
                "optimizer, they are trained on the labels, and not on pairs of texts "
                "(contrastive=True: train on pairs; contrastive=False: hide this note)"
            )


@functools.cache
def _print_once(text):
    """Print a note, once in a process, since a search has many runs."""
    print_line(text, file=sys.stderr)
