"""Fine-tuning with the paper's recipe (section A.3), for every task."""

import contextlib
import dataclasses
import difflib
import functools
import inspect
import sys

import keras
import numpy as np

from keras_bert import heads, optimizers, provenance
from keras_bert.data.examples import Examples, UnknownLabel
from keras_bert.encoder import BertEncoder
from keras_bert.exporting.predict_function import predict_function
from keras_bert.runtime import distribution, label_types
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.files import exclusive_lock
from keras_bert.runtime.stopping import stop_requests
from keras_bert.runtime.terminal import print_line
from keras_bert.tasks import inference, registry
from keras_bert.tasks.embedding.data import EmbeddingExamples
from keras_bert.tasks.embedding.retrieval import RetrievalData
from keras_bert.tasks.tagging.data import TaggedSentences
from keras_bert.training import loop
from keras_bert.training.batch_plan import BatchPlan
from keras_bert.training.callbacks import (
    DEV_LOSS,
    check_callbacks,
    check_monitors,
    rate_setter,
    selecting_metric,
)
from keras_bert.training.gradient_caching import seed_dropout
from keras_bert.training.head_initialization import initialize_head
from keras_bert.training.run_state import RunState, digest


def finetune(
    encoder,
    train,
    dev=None,
    *,
    epochs=3,
    batch_size=32,
    learning_rate=5e-5,
    warmup=0.1,
    schedule="linear",
    max_length=None,
    seed=0,
    metric=None,
    patience=None,
    evaluate_every=None,
    gradient_accumulation_steps=1,
    fixed_length=False,
    folder=None,
    on_end=None,
    tensorboard=None,
    callbacks=(),
    show_progress=True,
    **options,
):
    """Fine-tune an encoder with a new head on labeled data.

    The type of `train` selects the task: `Examples` with labels, label sets or scores,
    `EmbeddingExamples`, `data.conll.TaggedSentences`, `data.squad.Questions` or
    `data.swag.Choices`.

    Batches contain little padding. Texts, pairs and tagged sentences are packed, several per row
    (see `packed_heads`). The other tasks, custom models and TensorFlow's strategies use batches of
    sequences of similar lengths.

    With `dev`, the model is scored after each epoch, and the returned model has the weights of the
    best epoch. Ctrl-C ends the training and returns the best weights so far, or the current ones
    during the first epoch. Before the first step it raises `KeyboardInterrupt`.

    Args:
        encoder: A `BertEncoder` with a preprocessor, or a pretraining model: a copy of the encoder
            gets a new head, and the encoder itself does not change. A tagger's head starts from a
            regression on the encoder's vectors of words, and a head for texts from one on the
            vectors of texts if the encoder has a `pooling`, as MiniLM has. Or a model with the head
            of a task, including a custom one that ends in a `heads.TaskOutput`: it is trained in
            place, and its preprocessor's `max_sequence_length` is set to `max_length`.
        train: The training data. Its labels are the classes.
        dev: The data for scoring, or `None`.
        epochs: Number of passes over the training data. The paper uses 2 to 4.
        batch_size: Sequences per batch. The paper uses 16 or 32.
        learning_rate: The peak learning rate. The paper uses 5e-5, 3e-5 or 2e-5.
        warmup: Fraction of the steps during which the learning rate rises.
        schedule: What the learning rate does after the warm-up: `"linear"` or `"cosine"` decay to
            0, or `"constant"`.
        max_length: Maximum number of positions per sequence; longer ones are cut. Default: 128 (for
            question answering 384) or the encoder's maximum, whichever is smaller.
        seed: Seed for the weights of the head, the order of the data and dropout.
        metric: Name of the metric that selects the best epoch, such as "f1" or "dev_loss".
            Default: the first of the task's `metric_names`.
        patience: Stop after this many epochs without improvement. `None`: never.
        evaluate_every: Also score `dev` within an epoch. From 1: each time after this many batches;
            below 1: after this fraction of an epoch. `best_epoch` can then be 1.25.
        gradient_accumulation_steps: Batches per optimizer step. Their gradients are averaged. The
            last step is completed with batches of an additional pass.
        fixed_length: If `True`, pad each batch to `max_length`, so that a TPU compiles one program.
        folder: Folder for the state of the run. A killed run resumes if it is called again with the
            same arguments. The files are deleted at the end.
        on_end: Function that is called with the return values before the state is deleted. If it
            fails, for example because the disk is full, the next call repeats only `on_end`.
        tensorboard: Folder for TensorBoard, or `None`. It gets the losses and scores of each epoch.
            With `evaluate_every`, its steps are batches.
        callbacks: `keras.callbacks.Callback`s. They see one `fit` of the returned model over all
            epochs. The logs of an epoch have the metrics of the training, such as `loss`,
            `val_loss` and the scores of `dev`, such as `val_accuracy`.
            `EarlyStopping(restore_best_weights=True)` selects the best epoch in place of `metric`.
            `LearningRateScheduler` sets the rate of each epoch, in place of `warmup` and
            `schedule`. When a killed run resumes, callbacks get the best value so far that they
            monitor, and no other state. `on_test_batch_begin` and `on_test_batch_end` are not
            called.
        show_progress: If `True`, draw a progress bar in a terminal or notebook, elsewhere print a
            line per epoch on stderr.
        **options: Options of the task: for texts `class_weight`, and `long_texts="window"` to train
            on overlapping parts of long texts and average their answers; for tags and questions
            `stride`. For embeddings `loss`, a name such as `"cosent"` or a loss of `losses`;
            `matryoshka_dims`, a list of widths; `gradient_caching=True` for batches larger than the
            memory; and `sampling="round_robin"` for one batch of each set in turn.

    Returns:
        A tuple `(model, metrics)`: a `keras.Model` from token ids to logits, and a dict with
        `recipe` (the arguments that determine the result), `columns` (the names that `read` was
        given for the training data, if it has texts), `train_loss` (of the returned
        weights' epoch), `train_seconds`,
        `examples_per_second`, `stopped` (`True` after Ctrl-C), `history` (a dict per epoch), and
        the `inference.counts` of the training data. With `dev` also the counts of `dev`, such as
        `dev_truncated`, the metrics of the best epoch, its number `best_epoch` and the name of the
        `metric` that selected it. After Ctrl-C within an epoch, `best_epoch` can be 0.5.

    Raises:
        ValueError: If an argument or the data is invalid, a callback cannot work, another process
            uses `folder`, the state in it is broken or belongs to a different run, or the training
            diverges.

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> from keras_bert.data.tabular import Examples
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> model, metrics = finetune(encoder, Examples(["good", "bad"], labels=["yes", "no"]))
    >>> model.output_shape, metrics["stopped"]
    ((None, 2), False)
    """
    task = registry.for_data(train)
    if on_end is not None and not callable(on_end):
        raise ValueError(f"on_end must be a function; received {on_end!r:.80}")
    recipe = _Recipe(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        warmup=warmup,
        schedule=schedule,
        max_length=task.MAX_LENGTH if max_length is None else max_length,
        seed=seed,
        gradient_accumulation_steps=gradient_accumulation_steps,
        fixed_length=fixed_length,
        evaluate_every=evaluate_every,
        options=options,
    )
    if callbacks is None or isinstance(callbacks, keras.callbacks.Callback):
        callbacks = [] if callbacks is None else [callbacks]
    callbacks = list(callbacks)
    check_callbacks(callbacks, folder, schedule)
    _check_options(task, train, recipe.options)
    if dev is None and (metric, patience, evaluate_every) != (None, None, None):
        raise ValueError("metric, patience and evaluate_every need dev, the data that is scored")
    if patience is not None:
        patience = as_integer("patience", patience, 1)
    given = encoder
    if isinstance(train, RetrievalData):
        raise ValueError(
            f"{train.source}: RetrievalData only scores a model; train on EmbeddingExamples"
        )
    encoder, model = _encoder_and_model(encoder, task, train)
    limit = heads.find_encoder(encoder).bert_config["max_position_embeddings"]
    if max_length is not None and recipe.max_length > limit:
        raise ValueError(
            f"max_length must be at most {limit}, the maximum of the encoder; received "
            f"{recipe.max_length}"
        )
    for data in (train, dev):
        if data is not None:
            _check_data(task, train, data)

    with stop_requests() as stop, _lock(folder):
        stop.check()
        keras.utils.set_random_seed(recipe.seed)
        is_new = model is None
        if is_new:
            model = task.build(encoder, train)
        else:
            _set_label_type(model, train)
        trained = inference.model_for_data(model)
        run = _Run(task, trained, train, dev, recipe, metric, callbacks, show_progress)
        state = run.restore(folder, show_progress)
        if is_new and not (state.epoch or state.batch):
            initialize_head(model, run.encoded, recipe.seed)
        steps = 1 if evaluate_every is None else run.plan.batches
        with loop.Log(show_progress, tensorboard, recipe.epochs, steps) as log:
            run.prepare_model()
            training = loop.Loop(
                model, run.plan, state, score=run.score, metric=run.metric, patience=patience,
                evaluate_every=run.evaluate_every, callbacks=callbacks, log=log,
            )  # fmt: skip
            stopped = training.run()
        metrics = run.metrics(state, training.finish(), stopped)
        provenance.remember_run(model, given, train, dev, metrics)
        if on_end is not None:
            on_end(model, metrics)
        state.clear()
        return model, metrics


def _set_label_type(model, train):
    """Give the results of a trained model the type that the labels in the data have."""
    output = heads.find_output(model)
    if output.labels is None or not isinstance(train, (Examples, TaggedSentences)):
        return
    if label_types.fits(output.labels, train.label_type):
        output.label_type = train.label_type


# Names of arguments in Keras and transformers.
_NAMES_ELSEWHERE = {
    "lr": "learning_rate", "verbose": "show_progress", "num_train_epochs": "epochs",
    "validation_data": "dev", "eval_dataset": "dev", "per_device_train_batch_size": "batch_size",
    "output_dir": "folder", "warmup_ratio": "warmup", "early_stopping_patience": "patience",
}  # fmt: skip


@dataclasses.dataclass
class _Recipe:
    """The arguments that determine the result of a run, checked and converted to Python's types."""

    epochs: int
    batch_size: int
    learning_rate: float
    warmup: float
    schedule: str
    max_length: int
    seed: int
    gradient_accumulation_steps: int
    fixed_length: bool
    evaluate_every: float | None
    options: dict

    def __post_init__(self):
        self.epochs = as_integer("epochs", self.epochs, 1)
        self.batch_size = as_integer("batch_size", self.batch_size, 1)
        self.max_length = as_integer("max_length", self.max_length, 3)
        self.gradient_accumulation_steps = as_integer(
            "gradient_accumulation_steps", self.gradient_accumulation_steps, 1
        )
        self.seed = as_integer("seed", self.seed, 0)
        distribution.check_accumulation(self.gradient_accumulation_steps)
        self.learning_rate = _float("learning_rate", self.learning_rate)
        self.warmup = _float("warmup", self.warmup)
        if not 0 <= self.warmup <= 1:
            raise ValueError(
                f"warmup must be a fraction of the steps from 0 to 1; received {self.warmup}"
            )
        optimizers.check_schedule(self.schedule)
        if self.evaluate_every is not None:
            self.evaluate_every = _float("evaluate_every", self.evaluate_every)
            is_part = 0 < self.evaluate_every < 1
            if not is_part and not (self.evaluate_every >= 1 and self.evaluate_every % 1 == 0):
                raise ValueError(
                    "evaluate_every must be a number of batches or a fraction of an epoch between "
                    f"0 and 1; received {self.evaluate_every}"
                )
        # JSON cannot represent NumPy's numbers and arrays.
        self.options = keras.tree.map_structure(
            lambda item: item.tolist() if isinstance(item, (np.generic, np.ndarray)) else item,
            self.options,
        )

    def to_dict(self):
        values = dataclasses.asdict(self)
        if self.evaluate_every is None:  # states of earlier versions do not have it
            del values["evaluate_every"]
        if self.schedule == "linear":  # neither
            del values["schedule"]
        options = values.pop("options")
        if isinstance(options.get("loss"), keras.losses.Loss):
            options["loss"] = options["loss"].get_config()
        return values | options


class _Run:
    """The encoded data, the plan and the compiled model of one call of `finetune`."""

    def __init__(self, task, model, train, dev, recipe, metric, callbacks, show_progress):
        self._model, self._train, self._dev, self._recipe = model, train, dev, recipe
        self.metric = metric
        recipe.max_length = inference.length_limit(model, recipe.max_length)
        self.encoded = task.encode(model, train, recipe.max_length, **recipe.options)
        self._encoded_dev, self.score = None, None
        if dev is not None:
            self._encoded_dev = _encode_dev(task, model, train, dev, recipe)
            if hasattr(self.encoded, "share_loss"):
                self.encoded.share_loss(self._encoded_dev)
            self.metric = selecting_metric(callbacks, metric)
            _check_metric(self._score_names(task), self.metric)
            self.score = functools.partial(
                _score, model, dev, self._encoded_dev, recipe.batch_size,
                predict_function(model) if distribution.replicas() == 1 else None,
            )  # fmt: skip
        if not len(self.encoded):
            raise ValueError(
                f"{train.source}: no text has tokens. Check the column of the texts and the "
                "vocabulary"
            )
        if hasattr(task, "check_training_data"):
            task.check_training_data(train, self.encoded)
        if getattr(self.encoded, "compares_rows", False) and recipe.batch_size == 1:
            raise ValueError(
                "batch_size must be at least 2, because the loss compares the rows of a batch; "
                "received 1"
            )
        if hasattr(task, "model_of_rows"):
            options = task.compile_options(model, self.encoded)
        else:
            options = task.compile_options(model)
        scores = None if dev is None else task.metric_names(heads.find_output(model), dev)
        check_monitors(callbacks, scores, _names_of_logs(options))
        if show_progress:
            for data, encoded in ((train, self.encoded), (dev, self._encoded_dev)):
                if count := getattr(encoded, "truncated", 0):
                    _note(f"{data.source}: texts cut to max_length={recipe.max_length}: {count}")
        self.plan = BatchPlan(
            model,
            self.encoded,
            recipe.batch_size,
            recipe.seed,
            recipe.epochs,
            gradient_accumulation_steps=recipe.gradient_accumulation_steps,
            fixed_length=recipe.fixed_length,
        )
        optimizer = self._optimizer(callbacks)
        # The generators got their seeds when the encoder was created or loaded.
        seed_dropout(model, recipe.seed)
        _compile(model, options, optimizer, self.plan)

    def _optimizer(self, callbacks):
        """Return the optimizer, whose rate callbacks can set if one does."""
        recipe = self._recipe
        accumulated = recipe.gradient_accumulation_steps
        optimizer = optimizers.adamw(
            recipe.learning_rate,
            total_steps=self.plan.steps,
            warmup_steps=round(recipe.warmup * self.plan.steps),
            schedule=recipe.schedule,
            gradient_accumulation_steps=accumulated if accumulated > 1 else None,
        )
        config = optimizer.get_config()
        self._rate_setter = rate_setter(callbacks)
        if self._rate_setter == "LearningRateScheduler":
            return optimizers.AdamW.from_config({**config, "learning_rate": recipe.learning_rate})
        if self._rate_setter == "ReduceLROnPlateau":
            return optimizers.SettableRateAdamW.from_config(config)
        return optimizer

    def prepare_model(self):
        """Give the model the options of the recipe that it keeps. Nothing is left to check."""
        heads.find_encoder(self._model).preprocessor.max_sequence_length = self._recipe.max_length
        if "long_texts" in self._recipe.options:
            heads.find_output(self._model).long_texts = self._recipe.options["long_texts"]

    def _score_names(self, task):
        """Return the names of the scores of the dev data, and of its loss if it has targets."""
        names = task.metric_names(heads.find_output(self._model), self._dev)
        return (*names, DEV_LOSS) if _has_targets(self._encoded_dev) else names

    @property
    def evaluate_every(self):
        """Batches between two scores within an epoch, or `None`."""
        every = self._recipe.evaluate_every
        if every is None:
            return None
        if every >= 1:
            return int(every)
        return max(1, round(every * self.plan.batches))

    def restore(self, folder, show_progress):
        """Return the `RunState`, restored from the folder if it holds a state."""
        settings = self._recipe.to_dict() | {
            "metric": self.metric,
            "packed": self.plan.shape,
        }
        if self._rate_setter is not None:
            settings["callback"] = self._rate_setter
        if folder is not None:
            settings = self._identity() | settings
        state = RunState(folder, settings)
        if state.restore(self.plan.trained) and show_progress:
            epochs = self._recipe.epochs
            epoch = min(state.epoch + 1, epochs)
            print_line(f"resuming the run in {folder}, epoch {epoch} of {epochs}", file=sys.stderr)
        return state

    def _identity(self):
        """Return properties of model and data that must match for a run to resume."""
        model, train, dev = self._model, self._train, self._dev
        encoder = heads.find_encoder(model)
        return {
            "data": f"{train.source}, {len(train)} examples",
            "dev data": None if dev is None else f"{dev.source}, {len(dev)} examples",
            "sequences": len(self.encoded),
            "parameters": model.count_params(),
            "trainable variables": len(model.trainable_variables),
            "scored over characters": getattr(dev, "characters", False),
            "labels": heads.find_output(model).labels,
            "dtype": encoder.dtype_policy.name,
            "encoder's weights": provenance.digest_of_weights(encoder),
            "content of the data": digest(self.encoded),
            "content of the dev data": None if dev is None else digest(self._encoded_dev),
        }

    def metrics(self, state, best, stopped):
        """Return the metrics that `finetune` returns; `best` is the record of the best epoch."""
        rows = len(self._train) * self.plan.rows / len(self.encoded)
        done = (state.epoch + state.batch / self.plan.batches) * rows
        recipe = self._recipe.to_dict()
        if (loss := getattr(self.encoded, "loss", None)) is not None:
            recipe.setdefault("loss", getattr(loss, "loss", loss).name)  # Matryoshka has a loss
        metrics = {
            "recipe": recipe,
            "train_loss": _train_loss(state, best),
            "train_seconds": state.seconds,
            "examples_per_second": done / max(state.seconds, 1e-9),
            "stopped": stopped,
            "history": state.history,
            **inference.counts(self.encoded),
            **inference.counts(self._train),
        }
        is_text = isinstance(self._train, (Examples, EmbeddingExamples))
        if is_text and self._train.columns is not None:
            metrics["columns"] = self._train.columns
        if best is not None:
            counts = inference.counts(self._encoded_dev)
            metrics |= {f"dev_{name}": count for name, count in counts.items()}
            metrics |= {"metric": loop.best([best], self.metric)[1], "best_epoch": best["epoch"]}
            metrics |= {key: value for key, value in best.items() if key not in ("epoch", "loss")}
        return metrics


def _train_loss(state, best):
    """Return the training loss of the epoch whose weights the model has."""
    if best is not None:
        return best["loss"]
    return state.history[-1]["loss"] if state.history else state.loss


def _lock(folder):
    """Lock the folder: two processes on the same state would both return wrong weights."""
    if folder is None:
        return contextlib.nullcontext()
    return exclusive_lock(folder, "training", keep=False)


def _float(name, value):
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number; received {value!r:.80}") from None


def _check_options(task, train, options):
    """Raise an error for an option that the task's `encode` does not have."""
    for name in options:
        if name not in inspect.signature(task.encode).parameters:
            takes = [
                option
                for option, parameter in inspect.signature(task.encode).parameters.items()
                if parameter.kind is parameter.KEYWORD_ONLY
            ]
            known = [*inspect.signature(finetune).parameters, *takes]
            close = difflib.get_close_matches(_NAMES_ELSEWHERE.get(name, name), known, 1)
            advice = f"the options are {', '.join(takes) or 'none'}"
            if close:
                advice = f"did you mean {close[0]}?"
            raise ValueError(
                f"{name} is not an argument of finetune for {type(train).__name__}; {advice}"
            )


def _encoder_and_model(given, task, train):
    """Return a copy of the encoder and `None`, or the encoder and the model that is trained."""
    if not isinstance(given, keras.Model):
        raise ValueError(
            "encoder must be a BertEncoder or a model on one, as keras_bert.load gives; received "
            f"{given!r:.80}"
        )
    model = None if isinstance(given, BertEncoder) else given
    if model is not None and heads.find_task(model) in heads.OF_PRETRAINING:
        given, model = heads.find_encoder(model), None
    if model is not None and registry.for_model(model) is not task:
        raise ValueError(
            f"{train.source}: must be the data of {heads.find_task(model)}; received "
            f"{type(train).__name__}"
        )
    encoder = given if model is None else heads.find_encoder(model)
    if encoder.preprocessor is None:
        raise ValueError("the encoder has no preprocessor; set encoder.preprocessor")
    if model is None:
        encoder = encoder.with_options(preprocessor=encoder.preprocessor.with_options())
    return encoder, model


def _check_data(task, train, data):
    """Raise an error for data of another task, without labels or without examples."""
    if registry.for_data(data) is not task:
        raise ValueError(
            f"{data.source}: must be {type(train).__name__}, as the training data; "
            f"received {type(data).__name__}"
        )
    part = "training" if data is train else "dev"
    if not inference.is_labeled(data):
        raise ValueError(f"the {part} data, {data.source}, has no labels. Give labeled examples")
    if not len(data):
        raise ValueError(
            f"the {part} data, {data.source}, contains no examples. Check its file or filter"
        )


def _encode_dev(task, model, train, dev, recipe):
    """Encode the dev data; raise an error for a label that the training data does not have."""
    options = {name: recipe.options[name] for name in ("long_texts",) if name in recipe.options}
    try:
        return task.encode(model, dev, recipe.max_length, **options)
    except UnknownLabel as error:
        raise ValueError(
            f"{error}. No row of the training data, {train.source}, has this label; add some "
            "there, or remove it from the dev data"
        ) from error


def _has_targets(encoded):
    """Return False for retrieval data, which has no loss."""
    return getattr(encoded, "targets", ()) is not None


def _score(model, dev, encoded, batch_size, predict):
    """Return the metrics of the dev data and the mean of the loss over its targets."""
    losses, counts = [], []
    # Under a strategy of TensorFlow, Keras divides a loss by the number of replicas.
    scale = distribution.replicas() if keras.backend.backend() == "tensorflow" else 1

    def add_loss(outputs, targets, weights):
        if hasattr(encoded, "loss"):  # of embedders; the dev data may be of another kind
            losses.append(float(encoded.loss(targets, outputs, weights)))
        else:
            loss = float(model.compute_loss(None, targets, outputs, weights))
            losses.append(loss * scale)
        counts.append(float(keras.tree.flatten(weights)[0].sum()))

    metrics = inference.evaluate(
        model,
        dev,
        batch_size=batch_size,
        encoded=encoded,
        predict=predict,
        on_outputs=add_loss if _has_targets(encoded) else None,
    )
    if not _has_targets(encoded):
        return metrics
    return metrics | {DEV_LOSS: float(np.dot(losses, counts) / max(sum(counts), 1e-9))}


def _check_metric(names, metric):
    if metric is not None and metric not in names:
        raise ValueError(f"metric must be one of {', '.join(names)}; received {metric!r}")


@functools.cache
def _note(text):
    """Print a note, once in the many runs of a search."""
    print_line(text, file=sys.stderr)


def _names_of_logs(options):
    """Return the keys of Keras' epoch logs for these arguments of `compile`."""
    losses, metrics = options["loss"], options.get("weighted_metrics") or ()
    names = [f"{name}_loss" for name in losses] if isinstance(losses, dict) else []
    return ["loss", *names, *(metric.name for metric in metrics)]


def _compile(model, options, optimizer, plan):
    """Compile the model, and the packed model that is trained in its place."""
    trained = plan.trained
    optimizer = optimizers.with_loss_scale(optimizer, heads.find_encoder(model).dtype_policy)
    trained.compile(optimizer, **options, jit_compile=plan.compiled)
    if plan.cache is not None:
        plan.cache.compile(plan.compiled)
    if isinstance(model.output, dict):
        # Keras would create the mean of several losses during the first step, and TensorFlow would
        # trace the step a second time. (`RunState.restore` creates the optimizer's variables.)
        batch = keras.tree.map_structure(lambda array: array[:1], plan.epoch(0)[0])
        inputs, targets, weights = batch
        trained.compute_loss(inputs, targets, trained(inputs), weights)
    if trained is not model:
        # Scoring uses batches of many lengths, too many for XLA to compile on TensorFlow.
        jax = keras.backend.backend() == "jax"
        model.compile(trained.optimizer, **options, jit_compile=jax)
