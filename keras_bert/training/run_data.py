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
from keras_bert.tasks import registry
from keras_bert.tasks.inputs import check_data
from keras_bert.tasks.keras_predictor import KerasPredictor, describe
from keras_bert.text import vocabulary_fit
from keras_bert.training.user_callbacks import DEV_LOSS

# Names of arguments in Keras and transformers.
NAMES_ELSEWHERE = {
    "lr": "learning_rate", "verbose": "show_progress", "num_train_epochs": "epochs",
    "validation_data": "dev", "eval_dataset": "dev", "per_device_train_batch_size": "batch_size",
    "output_dir": "folder", "warmup_ratio": "warmup", "early_stopping_patience": "patience",
}  # fmt: skip


def encode(task, model, train, dev, recipe):
    """Encode the data of a run, and set the default batch size of the recipe.

    Return the encoded training data, the encoded dev data or `None`, and the loss and the metrics
    as arguments of `keras.Model.compile`.
    """
    options = dict(recipe.options)
    loss = recipe.loss
    if loss is not None and "loss" in task.training_options.names():
        options["loss"] = loss
        loss = None
    task_options = task.training_options.of(options, task.name)
    encoded = task.encode_training(describe(model), train, recipe.max_length, task_options)
    if not len(encoded):
        raise ValueError(
            f"{train.source}: no text has tokens. Check the column of the texts and the vocabulary"
        )
    task.check_training_data(train, encoded)
    if recipe.batch_size is None:
        recipe.batch_size = task.default_batch_size(encoded)
    if encoded.compares_rows and recipe.batch_size == 1:
        raise ValueError(
            "batch_size must be at least 2, because the loss compares the rows of a batch; "
            "received 1"
        )
    encoded_dev = None
    if dev is not None:
        encoded_dev = _encode_dev(task, model, train, dev, recipe)
        encoded.share_loss(encoded_dev)
    return encoded, encoded_dev, _compile_options(task, model, encoded, loss)


def contrastive(model, contrast, recipe):
    """Prepare the training of a model's encoder on the pairs of a `ContrastiveTraining`.

    Return an embedder that shares the encoder; the encoded pairs; and the arguments of
    `keras.Model.compile`.
    """
    pairs = contrast.pairs
    task = registry.for_data(pairs)
    embedder = task.build(heads.find_encoder(model), pairs)
    options = task.training_options.of({"loss": contrast.loss}, task.name)
    encoded = task.encode_training(describe(embedder), pairs, recipe.max_length, options)
    task.check_training_data(pairs, encoded)
    return embedder, encoded, task.compile_options(heads.find_output(embedder), encoded)


def scorer(model, dev, encoded, encoded_dev, batch_size, options, plan):
    """Return the function that scores the model on the dev data.

    `encoded` is the training data. If its rows have several texts, and those of the dev data one, a
    batch has as many texts as in the training. `options` are those of `keras.Model.compile`, and
    `plan` is the `BatchPlan` of the training.
    """
    if encoded.texts_per_row is not None and encoded_dev.texts_per_row is None:
        batch_size *= encoded.texts_per_row
    loss_of_dev = None
    if encoded_dev.has_targets:
        loss_of_dev = functools.partial(
            mean_loss,
            options["loss"] if encoded_dev.loss is None else encoded_dev.loss,
            options.get("loss_weights", 1.0) if encoded_dev.loss is None else 1.0,
            encoded_dev,
            rows_per_batch=plan.rows_of(encoded_dev),
        )
    lengths = plan.programs_for_scoring
    return functools.partial(_score, model, dev, encoded_dev, loss_of_dev, batch_size, lengths)


def check(task, train, dev):
    """Raise an error for data that cannot be trained on or scored."""
    for name, part, data, kinds in (
        ("train", "training", train, task.data[:1]),
        ("dev", "dev", dev, task.data),
    ):
        if data is None:
            continue
        problem = None
        check_data(name, data, kinds)
        if not task.is_labeled(data):
            problem = "has no labels. Give labeled examples"
        elif not len(data):
            problem = "contains no examples. Check its file or filter"
        if problem is not None:
            raise ValueError(f"the {part} data, {data.source}, {problem}")
    if dev is not None:
        task.check_labeled(dev)


def note(run, task, encoder, options):
    """Print notes on a vocabulary that does not fit, truncated texts and contrastive training.

    `encoder` is `None` for a model with a trained head, as in `Task.contrastive_training`.
    """
    tokenizer = heads.find_encoder(run.model).preprocessor.python_tokenizer
    sample = run.train.sample_of_texts(vocabulary_fit.SAMPLE)
    misfit = vocabulary_fit.note(sample, run.train.source, tokenizer)
    if misfit is not None:
        _note(misfit)
    for examples, encoded in ((run.train, run.encoded), (run.dev, run.encoded_dev)):
        if encoded is not None and encoded.truncated:
            text = f"texts were truncated to {run.recipe.max_length} tokens (max_length)"
            _note(f"{examples.source}: {encoded.truncated} {text}")
    train = run.train
    if run.contrast is not None:
        pairs = len(run.contrast.pairs)
        _note(
            f"{train.source}: {len(train)} texts of {len(train.label_names())} labels. Each epoch "
            f"trains the encoder on {pairs} pairs of texts, then fits the head to its "
            "vectors (contrastive=False, --no-contrastive: train on the labels)"
        )
    elif run.recipe.optimizer is not None:
        recipe = dataclasses.replace(run.recipe, optimizer=None)
        if task.contrastive_training(encoder, train, options, recipe) is not None:
            _note(
                f"{train.source}: {len(train)} texts of {len(train.label_names())} labels. With "
                "optimizer, they are trained on the labels, and not on pairs of texts "
                "(contrastive=True: train on pairs; contrastive=False: hide this note)"
            )


def _compile_options(task, model, encoded, loss):
    """Return the arguments of `compile`; `loss` replaces the task's loss."""
    options = task.compile_options(heads.find_output(model), encoded)
    if loss is None or encoded.loss is not None:
        return options
    if not isinstance(loss, keras.losses.Loss):
        raise ValueError(
            "loss must be a keras.losses.Loss, such as "
            f"keras.losses.SparseCategoricalCrossentropy(from_logits=True); received {shown(loss)}"
        )
    if loss.get_config().get("from_logits") is False:
        raise ValueError(f"{loss.name} must have from_logits=True, because models return logits")

    # With one output, `loss_weights` fits the task's own loss. With several, it makes their mean.
    if not isinstance(options["loss"], dict):
        options.pop("loss_weights", None)
    return options | {"loss": keras.tree.map_structure(lambda _: loss, options["loss"])}


def _encode_dev(task, model, train, dev, recipe):
    """Encode the dev data; raise an error for a label that the training data does not have."""
    options = {name: recipe.options[name] for name in ("long_texts",) if name in recipe.options}
    task_options = task.training_options.of(options, task.name)
    try:
        return task.encode(describe(model), dev, recipe.max_length, task_options)
    except UnknownLabel as error:
        raise ValueError(
            f"{error}. No row of the training data, {train.source}, has this label; add some "
            "there, or remove it from the dev data"
        ) from error


def _score(model, dev, encoded, loss_of_dev, batch_size, max_lengths):
    """Return the metrics of the dev data, and the mean loss.

    `loss_of_dev` is a function of the outputs before an activation, or `None`; `max_lengths` is
    that of `KerasPredictor`.
    """
    predictor = KerasPredictor(model, max_lengths=max_lengths)
    with_logits = predictor.with_logits()
    with stop_requests() as stop:
        outputs = with_logits.outputs(encoded, batch_size=batch_size, allow_nan=True)
        loss = {} if loss_of_dev is None else {DEV_LOSS: loss_of_dev(outputs)}
        if with_logits.model is not model:
            scores = predictor.task_model.output(np.stack(outputs))
            outputs = list(keras.ops.convert_to_numpy(scores))
        answers = predictor.decode(dev, encoded, outputs)
        metrics = predictor.metrics(dev, answers)
        stop.check()  # a library that swallows Ctrl-C may return only a part of the answers
    return metrics | loss


@functools.cache
def _note(text):
    """Print a note, once in the many runs of a search."""
    print_line(text, file=sys.stderr)
