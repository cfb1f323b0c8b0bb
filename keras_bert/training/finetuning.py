"""Fine-tuning by the paper's recipe (section A.3), for every task."""

import contextlib
import functools
import inspect
import operator
import sys
import time

import keras
import numpy as np

from keras_bert import heads, optimizers
from keras_bert.encoder import BertEncoder
from keras_bert.runtime import distribution
from keras_bert.runtime.files import exclusive_lock
from keras_bert.runtime.tensorboard import writer
from keras_bert.runtime.terminal import progress
from keras_bert.tasks import inference, registry
from keras_bert.training.run_state import RunState, digest, digest_of_weights
from keras_bert.training.schedule import Schedule

_SAVE_SECONDS = 300  # between two states on disk
_READ_SECONDS = 0.2  # between two looks at the loss, each of which waits for the device


def finetune(
    encoder,
    train,
    dev=None,
    *,
    epochs=3,
    batch_size=32,
    learning_rate=5e-5,
    warmup=0.1,
    max_length=None,
    seed=0,
    metric=None,
    patience=None,
    accumulate=1,
    fixed_length=False,
    folder=None,
    on_end=None,
    tensorboard=None,
    callbacks=(),
    show_progress=True,
    **options,
):
    """Fine-tunes an encoder and a fresh head on labelled data.

    The data says what the task is: `data.Examples` with labels, label sets or scores,
    `conll.TaggedSentences`, `questions.Questions`, `choices.Choices`. Little is computed on
    padding: texts, pairs and tagged sentences share rows (`heads.packed`), and a batch is a sample
    of all lengths. Batches of questions and choices, for a model of your own, under a strategy of
    TensorFlow's or of very few sequences are of like lengths.

    With `dev` the model is scored after each epoch, and the weights of the best epoch are what
    comes back. Ctrl-C ends the training, not the function: it goes on with the best weights so
    far, or the current ones where no epoch is over. Before the first step there are none, and it
    is a `KeyboardInterrupt`.

    Args:
        encoder: a `BertEncoder` with a preprocessor, or a model of pretraining on one, as
            `pretraining.train.pretrain` leaves it: the encoder gets a fresh head. Or a model with
            the head of a task, your own if it ends in a `heads.TaskOutput`, which is trained as it
            is. It is trained in place, and the preprocessor's `max_sequence_length` becomes
            `max_length`.
        train: the data to learn from; the labels found there are the classes.
        dev: data to be scored, or `None`.
        epochs: passes over the training data; the paper takes 2 to 4.
        batch_size: sequences a step; the paper takes 16 or 32.
        learning_rate: the peak; the paper takes 5e-5, 3e-5 or 2e-5.
        warmup: share of the steps in which the rate rises.
        max_length: positions at which sequences are cut; default: 128, for questions 384.
        seed: of the head's weights, the order and dropout.
        metric: the one that says which epoch is best, of the task's `metric_names`; default: the
            first of them.
        patience: stop after so many epochs without a better one; `None`: never.
        accumulate: batches whose gradients are averaged for one step of the optimizer; the last
            step is filled up with batches of another pass.
        fixed_length: pad each batch to `max_length`, for TPUs: one program for all.
        folder: where the state of the run is kept; called again with the same arguments, a run
            that was killed goes on where it was. The files are deleted at the end.
        on_end: called with what this function returns, before those files are deleted. So what
            fails in it, as saving the model on a full disk, can be done again without the run.
        tensorboard: folder for TensorBoard, which gets loss and scores of each epoch, or `None`.
        callbacks: further `keras.callbacks.Callback`s. They see a `fit` for each epoch, without
            the scores of `dev`; `patience` stops early.
        show_progress: whether to draw a bar on stderr; where that is no terminal, a line an epoch.
        **options: of the task's `encode`, such as `class_weight` or `stride`.

    Returns:
        `(model, metrics)`: the `keras.Model` from ids to logits, and a dict with the `recipe` (the
        arguments that a run depends on), `train_loss`, `train_seconds`, `examples_per_second`,
        `stopped` (whether Ctrl-C ended it), `history` (a dict for each epoch), and the
        `predict.counts` of the training data; with `dev` also those of it, as `dev_truncated`, the
        metrics of the best epoch, its number `best_epoch` and the `metric` that chose it.

    Raises:
        ValueError: data without labels, a label in `dev` that `train` lacks, an encoder without a
            preprocessor, an impossible number, a `folder` that another process uses or whose
            state is broken, or a loss or weights that are no numbers any more.

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> from keras_bert.data.examples import Examples
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> model, metrics = finetune(encoder, Examples(["good", "bad"], labels=["yes", "no"]))
    >>> model.output_shape, metrics["stopped"]
    ((None, 2), False)
    """
    if not isinstance(encoder, keras.Model):
        raise ValueError(
            "encoder must be a BertEncoder or a model on one, as keras_bert.load gives; received "
            f"{encoder!r:.80}"
        )
    task = registry.for_data(train)
    max_length = task.MAX_LENGTH if max_length is None else max_length
    epochs = _whole_number("epochs", epochs, 1)
    batch_size = _whole_number("batch_size", batch_size, 1)
    max_length = _whole_number("max_length", max_length, 3)
    accumulate = _whole_number("accumulate", accumulate, 1)
    seed = _whole_number("seed", seed, 0)
    distribution.check_accumulation(accumulate)
    learning_rate, warmup = _number("learning_rate", learning_rate), _number("warmup", warmup)
    if not 0 <= warmup <= 1:
        raise ValueError(f"warmup must be a fraction of the steps from 0 to 1; received {warmup}")
    options = {name: _to_python(value) for name, value in options.items()}
    _check_options(task, train, options)
    if dev is None and (metric is not None or patience is not None):
        raise ValueError("metric and patience need dev, the data that is scored")
    model = None if isinstance(encoder, BertEncoder) else encoder
    if model is not None and heads.find_task(model) in heads.OF_PRETRAINING:
        encoder, model = heads.find_encoder(model), None
    if model is not None:
        _check_model(task, train, model)
        encoder = heads.find_encoder(model)
    if encoder.preprocessor is None:
        raise ValueError("the encoder has no preprocessor; set encoder.preprocessor")
    for examples in (train, dev):
        if examples is not None:
            _check_examples(task, train, examples)

    # A second process would train on the same state, and both would return wrong weights.
    locked = (
        contextlib.nullcontext()
        if folder is None
        else exclusive_lock(folder, "training", keep=False)
    )
    with locked:
        keras.utils.set_random_seed(seed)
        if model is None:
            model = task.build(encoder, train)
        _seed_dropout(model, seed)
        max_length = inference.length_limit(model, max_length)
        encoder.preprocessor.max_sequence_length = max_length
        encoded = task.encode(model, train, max_length, **options)
        encoded_dev = None
        if dev is not None:
            encoded_dev = _encode_dev(task, model, train, dev, max_length)
            _check_metric(task, model, dev, metric)
        if not len(encoded):
            raise ValueError(f"{train.source}: holds only what is invisible, nothing to learn from")
        schedule = Schedule(
            model,
            encoded,
            batch_size,
            seed,
            epochs,
            accumulate=accumulate,
            fixed_length=fixed_length,
        )
        trained = schedule.trained
        optimizer = optimizers.adamw(
            learning_rate,
            total_steps=schedule.steps,
            warmup_steps=round(warmup * schedule.steps),
            gradient_accumulation_steps=accumulate if accumulate > 1 else None,
        )
        _compile(model, task.compile_options(model), optimizer, schedule)
        recipe = {
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "warmup": warmup,
            "max_length": max_length,
            "seed": seed,
            "accumulate": accumulate,
            "fixed_length": fixed_length,
            **options,
        }
        settings = {**recipe, "metric": metric, "packed": schedule.shape}
        if folder is not None:
            settings = _identity(model, train, dev, encoded, encoded_dev) | settings
        state = RunState(folder, settings)
        if state.restore(trained) and show_progress:
            place = min(state.epoch + 1, epochs)
            print(f"goes on with the run in {folder}, epoch {place} of {epochs}", file=sys.stderr)
        score = None
        if dev is not None:
            score = functools.partial(
                inference.evaluate, model, dev, batch_size=batch_size, encoded=encoded_dev
            )
        with _Log(show_progress, tensorboard, epochs) as log:
            stopped = _fit(schedule, score, state, metric, patience, callbacks, log)
        best = _end(state, trained, score)
        metrics = {"recipe": recipe, **_summary(state, schedule, len(train), stopped)}
        metrics |= inference.counts(encoded)
        if dev is not None:
            metrics |= {
                f"dev_{name}": count for name, count in inference.counts(encoded_dev).items()
            }
            metrics |= {"metric": _best([best], metric)[1], "best_epoch": best["epoch"]}
            metrics |= {key: value for key, value in best.items() if key not in ("epoch", "loss")}
        if on_end is not None:
            on_end(model, metrics)
        state.clear()
        return model, metrics


def _whole_number(name, value, least):
    """An argument as an int; NumPy's integers are taken too."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number; received {value!r:.80}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}; received {number}")
    return number


def _number(name, value):
    """An argument as a float."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number; received {value!r:.80}") from None


def _to_python(value):
    """An option with Python's numbers in place of NumPy's, for JSON."""
    return keras.tree.map_structure(
        lambda item: item.item() if isinstance(item, np.generic) else item, value
    )


def _check_options(task, train, options):
    """Raises for an option that the task's `encode` does not have."""
    for name in options:
        if name not in inspect.signature(task.encode).parameters:
            raise ValueError(f"{train.source}: {type(train).__name__} take no {name}")


def _check_model(task, train, model):
    """Raises for a model whose head is for other data."""
    if registry.for_model(model) is not task:
        raise ValueError(
            f"{train.source}: must be the data of {heads.find_task(model)}; received "
            f"{type(train).__name__}"
        )


def _check_examples(task, train, examples):
    """Raises for data, to learn from or to be scored, that nothing can be learned from."""
    if registry.for_data(examples) is not task:
        raise ValueError(
            f"{examples.source}: must be {type(train).__name__}, as the training data; "
            f"received {type(examples).__name__}"
        )
    if not inference.is_labelled(examples):
        raise ValueError(f"{examples.source}: has no labels to learn from")
    if not len(examples):
        raise ValueError(f"{examples.source}: holds no examples")


def _seed_dropout(model, seed):
    """Sets what dropout draws from: an encoder's was set when it was made, or loaded."""
    states = [v for v in model.variables if v.path.endswith("seed_generator_state")]
    drawn = np.random.default_rng(seed).integers(0, 2**31, len(states))
    for state, number in zip(states, drawn, strict=True):
        state.assign(np.array([number, 0], state.dtype))


def _encode_dev(task, model, train, dev, max_length):
    """The data to be scored; raises for a label that is not known: now, not after an epoch."""
    try:
        return task.encode(model, dev, max_length)
    except ValueError as error:
        names = getattr(dev, "label_names", set)
        if not set(names()) - set(heads.find_output(model).labels or names()):
            raise
        raise ValueError(
            f"{error}. No row of the training data, {train.source}, has it: add some there, or "
            "take it out of the data to score"
        ) from error


def _check_metric(task, model, dev, metric):
    names = task.metric_names(model, dev)
    if metric is not None and metric not in names:
        raise ValueError(f"metric must be one of {', '.join(names)}; received {metric!r}")


def _identity(model, train, dev, encoded, encoded_dev):
    """What a run that goes on must have in common with the one that was killed, a dict."""
    encoder = heads.find_encoder(model)
    return {
        "data": f"{train.source}, {len(train)} examples",
        "dev data": None if dev is None else f"{dev.source}, {len(dev)} examples",
        "sequences": len(encoded),
        "parameters": model.count_params(),
        "trainable variables": len(model.trainable_variables),
        "scored over characters": getattr(dev, "characters", False),
        "labels": heads.find_output(model).labels,
        "dtype": encoder.dtype_policy.name,
        "encoder's weights": digest_of_weights(encoder),
        "content of the data": digest(encoded),
        "content of the dev data": None if dev is None else digest(encoded_dev),
    }


def _compile(model, options, optimizer, schedule):
    """Makes a model, and what is trained in its place, ready for the batches of a schedule."""
    trained = schedule.trained
    optimizer = optimizers.with_loss_scale(optimizer, heads.find_encoder(model).dtype_policy)
    trained.compile(optimizer, **options, jit_compile=schedule.compiled)
    if isinstance(model.output, dict):
        # Keras has means of several losses, and makes them within the first step, which TensorFlow
        # then traces once more. (The optimizer's variables are made by `RunState.restore`.)
        batch = keras.tree.map_structure(lambda array: array[:1], schedule.epoch(0)[0])
        inputs, targets, weights = batch
        trained.compute_loss(inputs, targets, trained(inputs), weights)
    if trained is not model:
        # It is scored in batches of many lengths, too many for XLA to compile on TensorFlow.
        jax = keras.backend.backend() == "jax"
        model.compile(trained.optimizer, **options, jit_compile=jax)


class _Log:
    """What is told of a run while it lasts: a bar or a line an epoch on stderr, and TensorBoard."""

    def __init__(self, show_progress, tensorboard, epochs):
        columns = ("loss {task.fields[loss]}", "{task.fields[rate]} examples/s")
        self.bar = progress(*columns, "{task.fields[dev]}", show=show_progress)
        self._epochs, self._write = epochs, writer(tensorboard)
        self._has_lines = show_progress and self.bar.disable

    def __enter__(self):
        self.bar.__enter__()
        return self

    def __exit__(self, *error):
        self.bar.__exit__(*error)

    def epoch(self, record):
        """Notes the metrics of an epoch."""
        scores = {name: value for name, value in record.items() if name != "epoch"}
        self._write(record["epoch"], scores)
        if self._has_lines:
            scores.pop("majority", None)
            text = ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
            print(f"epoch {record['epoch']} of {self._epochs}: {text}", file=sys.stderr, flush=True)


def _fit(schedule, score, state, metric, patience, callbacks, log):
    """Trains epoch by epoch from where the state is; says whether Ctrl-C ended it.

    `score` gives the metrics of an epoch; it is `None` where nothing is scored.
    """
    trained, epochs = schedule.trained, schedule.epochs
    watch = None
    try:
        while state.epoch < epochs:
            if patience is not None and state.history:
                best, metric = _best(state.history, metric)
                if state.epoch - best["epoch"] >= patience:
                    return False
            batches = schedule.epoch(state.epoch)
            watch = _Watch(log.bar, state, batches, epochs)
            trained.fit(
                batches.dataset(state.batch),
                shuffle=False,
                verbose=0,
                initial_epoch=state.epoch,
                epochs=state.epoch + 1,
                callbacks=[watch, *callbacks],
            )
            if schedule.missing and state.epoch + 1 == epochs:
                # Or the gradients of the last batches would never become a step.
                more = schedule.epoch(epochs).dataset().repeat().take(schedule.missing)
                trained.fit(more, shuffle=False, verbose=0)
            _check_weights(trained)
            record = {"epoch": state.epoch + 1, "loss": state.loss}
            if score is not None:
                record |= score()
                best, metric = _best([*state.history, record], metric)
                watch.show_dev(metric, record[metric])
                if best is record:
                    state.keep_best(trained, record)
            log.epoch(record)
            state.history.append(record)
            state.next_epoch()
            state.save(trained)
            if trained.stop_training:  # a callback asked for it
                return False
    except KeyboardInterrupt:
        if keras.backend.backend() == "jax":
            trained.jax_state_sync()
        if watch is not None:
            watch.read()
        if not state.epoch and not state.batch:  # nothing was learned that could be kept
            raise
        return True
    return False


def _check_weights(model):
    """Raises where the last steps of an epoch spoiled the weights, which no loss has seen yet."""
    for variable in model.trainable_variables:
        if not np.isfinite(keras.ops.convert_to_numpy(variable)).all():
            raise ValueError(
                f"training diverged, {variable.path} holds no numbers any more; a lower learning "
                "rate may help"
            )


def _end(state, model, score):
    """Gives a model its best weights and the history all of its epochs.

    Returns:
        The record of the best epoch; `None` where nothing is scored.
    """
    best = state.restore_best(model)
    if score is None:
        return None
    if best is None:  # stopped in the first epoch
        best = {"epoch": 1, "loss": state.loss, **score()}
    if best["epoch"] not in [record["epoch"] for record in state.history]:
        state.history.append(best)  # stopped before it was noted
    return best


def _summary(state, schedule, examples, stopped):
    """What `finetune` says of a run, but for the scores."""
    done = (state.epoch + state.batch / schedule.batches) * examples
    return {
        "train_loss": state.history[-1]["loss"] if state.history else state.loss,
        "train_seconds": state.seconds,
        "examples_per_second": done / max(state.seconds, 1e-9),
        "stopped": stopped,
        "history": state.history,
    }


def _best(history, metric):
    """The best epoch's record, the first of equals, and the name of the metric that says so."""
    names = [key for key in history[0] if key not in ("epoch", "loss", "majority")]
    metric = names[0] if metric is None else metric
    return max(history, key=lambda record: goodness(metric, record[metric])), metric


def goodness(metric, value):
    """The value of a metric as a number of which more is better; NaN is the worst of all.

    Example:

    >>> goodness("accuracy", 0.75), goodness("rmse", 0.75), goodness("f1", float("nan"))
    (0.75, -0.75, -inf)
    """
    if np.isnan(value):  # or nothing would ever be better
        return -np.inf
    return -value if metric == "rmse" else value


class _Watch(keras.callbacks.Callback):
    """Draws one epoch, keeps the place in it, and stops a run that has gone astray."""

    def __init__(self, bar, state, batches, epochs):
        super().__init__()
        self._bar, self._state, self._batches = bar, state, batches
        self._sizes = [len(rows) for rows in batches.rows]
        self._epoch, self._first, self._batch, self._logs = state.epoch, state.batch, None, None
        self._loss, self._rows = state.loss, state.rows
        self._start = self._saved = self._read = time.perf_counter()
        self._before = state.seconds
        self._task = bar.add_task(
            f"Epoch {state.epoch + 1} of {epochs}",
            total=sum(self._sizes),
            completed=sum(self._sizes[: state.batch]),
            **{"loss": "\u2013", "rate": "\u2013", "dev": ""},
        )

    def on_train_batch_end(self, batch, logs=None):
        self._batch, self._logs = batch, logs
        now = time.perf_counter()
        save = now - self._saved > _SAVE_SECONDS
        if save or now - self._read > _READ_SECONDS or self._first + batch + 1 == len(self._sizes):
            self.read()
        if save and self._state.batch < len(self._sizes):
            self._state.save(self.model)
            self._saved = now

    def read(self):
        """Takes down how far the epoch is; waits until the device has done the last step."""
        if self._logs is None or self._state.epoch != self._epoch:
            return
        now, state, loss = time.perf_counter(), self._state, float(self._logs["loss"])
        if not np.isfinite(loss):
            raise ValueError(
                f"training diverged, the loss is {loss}; a lower learning rate may help"
            )
        state.batch = self._first + self._batch + 1
        # Keras gives the mean over the rows since the call of `fit` began.
        rows = sum(self._batches.sizes[self._first : state.batch])
        state.rows = self._rows + rows
        state.loss = (self._loss * self._rows + loss * rows) / state.rows
        state.seconds = self._before + now - self._start
        completed = sum(self._sizes[: state.batch])
        self._bar.update(
            self._task,
            completed=completed,
            loss=f"{loss:.3f}",
            rate=f"{(completed - sum(self._sizes[: self._first])) / (now - self._start):.0f}",
        )
        self._read = now

    def show_dev(self, metric, value):
        """Adds the score of the epoch that is over."""
        self._bar.update(self._task, dev=f"dev {metric} {value:.3f}")
