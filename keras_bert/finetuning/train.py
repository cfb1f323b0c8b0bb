"""Fine-tuning of a classifier, by the paper's recipe (section A.3)."""

import time

import keras
import numpy as np

from keras_bert import heads, optimizers
from keras_bert.console import progress
from keras_bert.finetuning.batches import Batches, TokenizedTexts
from keras_bert.finetuning.predict import probabilities


def finetune_classifier(
    encoder,
    train,
    dev=None,
    *,
    epochs=3,
    batch_size=32,
    learning_rate=5e-5,
    warmup=0.1,
    max_length=128,
    seed=0,
    show_progress=True,
):
    """Fine-tunes an encoder and a fresh classifier head on labelled texts.

    Texts of like lengths share a batch, so the padding of each batch is small.

    Args:
        encoder: a `BertEncoder` with a preprocessor; it is trained in place, and its
            preprocessor's `max_sequence_length` becomes `max_length`.
        train: `Examples` with labels; the labels found there are the classes.
        dev: `Examples` with labels to be scored at the end, or `None`.
        epochs: passes over the training examples; the paper takes 2 to 4.
        batch_size: texts a step; the paper takes 16 or 32.
        learning_rate: the peak; the paper takes 5e-5, 3e-5 or 2e-5.
        warmup: share of the steps in which the rate rises.
        max_length: positions at which texts are cut.
        seed: of the head's weights, the order and dropout.
        show_progress: whether to draw a bar on stderr.

    Returns:
        `(model, metrics)`: the `keras.Model` from ids to logits, and a dict with
        `train_loss`, `train_seconds` and `examples_per_second`, and with `dev` also
        `accuracy` and `majority`, 0 to 1.

    Raises:
        ValueError: no labels, one label only, a label in `dev` that `train` lacks, or an
            encoder without a preprocessor.
    """
    for name, value, least in (
        ("epochs", epochs, 1),
        ("batch_size", batch_size, 1),
        ("max_length", max_length, 3),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}; received {value}")
    if encoder.preprocessor is None:
        raise ValueError("the encoder has no preprocessor; set encoder.preprocessor")
    for examples in (train, dev):
        if examples is not None and examples.labels is None:
            raise ValueError(f"{examples.source}: has no labels to learn from")
        if examples is not None and not len(examples):
            raise ValueError(f"{examples.source}: holds no examples")
    labels = train.label_names()
    if len(labels) < 2:
        raise ValueError(
            f"{train.source}: needs at least two labels to tell apart; received only {labels[0]!r}"
        )
    if dev is not None:
        _check_labels(dev, labels)
    max_length = min(max_length, encoder.get_config()["max_position_embeddings"])

    keras.utils.set_random_seed(seed)
    model = heads.classifier(encoder, labels=labels, pairs=train.text_pairs is not None)
    encoder.preprocessor.max_sequence_length = max_length
    texts = TokenizedTexts(encoder.preprocessor, train, max_length)
    targets = np.array([labels.index(label) for label in train.labels], np.int32)
    steps = epochs * -(-len(texts) // batch_size)
    compiled = _compiles()
    model.compile(
        optimizers.adamw(learning_rate, total_steps=steps, warmup_steps=round(warmup * steps)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],
        jit_compile=compiled,
    )
    start = time.perf_counter()
    bar = progress(
        "loss {task.fields[loss]}",
        "accuracy {task.fields[accuracy]}",
        "{task.fields[rate]} examples/s",
        show=show_progress,
    )
    with bar:
        for epoch in range(epochs):
            batches = Batches(texts, targets, batch_size, (seed, epoch), fixed_lengths=compiled)
            callback = _Progress(bar, f"Epoch {epoch + 1} of {epochs}", batches)
            history = model.fit(batches.dataset(), shuffle=False, verbose=0, callbacks=[callback])
    seconds = time.perf_counter() - start
    loss = float(history.history["loss"][-1])
    if not np.isfinite(loss):
        raise ValueError(
            f"training diverged, the loss is {loss}; a learning rate below {learning_rate} may help"
        )
    metrics = {
        "train_loss": loss,
        "train_seconds": seconds,
        "examples_per_second": epochs * len(texts) / seconds,
    }
    if dev is not None:
        metrics |= evaluate_classifier(
            model, dev, batch_size=batch_size, max_length=max_length, show_progress=show_progress
        )
    return model, metrics


def evaluate_classifier(model, examples, *, batch_size=32, max_length=None, show_progress=True):
    """Scores a classifier on labelled texts.

    Args:
        model: from `heads.classifier` or `finetune_classifier`.
        examples: `Examples` with labels.
        batch_size: texts a batch.
        max_length: positions at which texts are cut.
        show_progress: whether to draw a bar on stderr.

    Returns:
        A dict: `accuracy`, and `majority`, the score of always guessing the most frequent
        label; both 0 to 1.

    Raises:
        ValueError: as for `keras_bert.finetuning.predict.probabilities`.
    """
    output = heads.find_output(model)
    if output is not None and output.labels is not None:
        _check_labels(examples, output.labels)
    with progress(show=show_progress) as bar:
        task = bar.add_task("Scoring", total=len(examples))
        rows = probabilities(
            model,
            examples,
            batch_size=batch_size,
            max_length=max_length,
            on_batch=lambda count: bar.advance(task, count),
        )
    labels = output.labels
    right = [
        labels[row.argmax()] == label for row, label in zip(rows, examples.labels, strict=True)
    ]
    return {"accuracy": float(np.mean(right)), "majority": examples.majority_share()}


def _check_labels(examples, labels):
    unknown = sorted(set(examples.labels) - set(labels))
    if unknown:
        raise ValueError(
            f"{examples.source}: has the label {unknown[0]!r}, which is none of the model's: "
            f"{', '.join(labels[:20])}"
        )


def _compiles():
    """Whether training steps are compiled by XLA.

    On TensorFlow's CPU backend they are not: a step takes as long either way, but a compilation
    takes longer than many of them.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("TPU"))
    return keras.backend.backend() == "jax"


class _Progress(keras.callbacks.Callback):
    """Draws one epoch."""

    def __init__(self, bar, description, batches):
        super().__init__()
        self._bar, self._batches = bar, batches
        self._task = bar.add_task(
            description,
            total=sum(map(len, batches.batches)),
            **dict.fromkeys(("loss", "accuracy", "rate"), "\u2013"),
        )
        self._start = time.perf_counter()
        self._done = 0

    def on_train_batch_end(self, batch, logs=None):
        self._done += len(self._batches.batches[batch])
        self._bar.update(
            self._task,
            completed=self._done,
            loss=f"{logs['loss']:.3f}",
            accuracy=f"{logs['accuracy']:.3f}",
            rate=f"{self._done / (time.perf_counter() - self._start):.0f}",
        )
