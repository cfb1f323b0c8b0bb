"""Fine-tuning with the paper's recipe (section A.3), for every task."""

import contextlib
import dataclasses
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_bert import heads, optimizers, provenance
from keras_bert.encoder import BertEncoder
from keras_bert.model_structure import max_sequence_length
from keras_bert.runtime import distribution, label_types
from keras_bert.runtime.arguments import as_integer, as_max_length, as_output_path
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.files import exclusive_lock
from keras_bert.runtime.seeds import random_state_kept, seeded
from keras_bert.runtime.stopping import stop_requests
from keras_bert.runtime.terminal import print_line
from keras_bert.tasks import registry
from keras_bert.training import engine, run_data, user_callbacks
from keras_bert.training.batch_plan import BatchPlan
from keras_bert.training.callbacks import Diverged, SaveState, ScoreDev, Steps, first_metric
from keras_bert.training.finetuning_recipe import FinetuningRecipe
from keras_bert.training.gradient_caching import seed_dropout
from keras_bert.training.head_initialization import head_fitter, initialize_head
from keras_bert.training.progress import Progress
from keras_bert.training.run_state import RunState, digest, saved_settings

_BEFORE_SUFFIX = "_before_training"  # end of the name of a metric


@random_state_kept()
def finetune(
    encoder: keras.Model,
    train: Any,
    dev: Any = None,
    *,
    task: str | None = None,
    epochs: int = 3,
    batch_size: int | None = None,
    learning_rate: float = 5e-5,
    warmup: float = 0.1,
    schedule: str = "linear",
    max_length: int | None = None,
    seed: int = 0,
    metric: str | None = None,
    patience: int | None = None,
    evaluate_every: float | None = None,
    gradient_accumulation_steps: int = 1,
    fixed_length: bool = False,
    folder: str | os.PathLike | None = None,
    on_end: Callable[[keras.Model, dict], None] | None = None,
    tensorboard: str | os.PathLike | None = None,
    callbacks: Sequence[keras.callbacks.Callback] | keras.callbacks.Callback | None = (),
    show_progress: bool = True,
    optimizer: keras.optimizers.Optimizer | str | None = None,
    loss: keras.losses.Loss | str | None = None,
    **options: Any,
) -> tuple[keras.Model, dict[str, Any]]:
    """Fine-tune an encoder with a new head on labeled data.

    The type of `train` selects the task: `Examples` with labels, label sets or scores,
    `EmbeddingExamples`, `RankingExamples`, `TaggedSentences`, `Questions` or `Choices`.

    Batches contain little padding. Texts, pairs, tagged sentences and embeddings are packed,
    several per row (see `packed_heads`). The other tasks, custom models and TensorFlow's strategies
    use batches of sequences of similar lengths.

    A new classifier of few texts, up to 64 per label on average, is trained by contrast if the
    encoder has a `pooling`, as MiniLM has. An epoch trains the encoder on pairs of texts of the
    same label, about 450, and then fits the head to its vectors. `contrastive=False` trains on the
    labels, as do `optimizer=` (a note says so) and `loss=`; `contrastive=True` trains by contrast
    on more texts. Source: Tunstall et al. (2022), Efficient few-shot learning without prompts.

    With `dev`, the model is scored after each epoch, and the returned model has the weights of the
    best epoch. Ctrl-C ends the training and returns the best weights so far, or the current ones
    during the first epoch. Before the first step it raises `KeyboardInterrupt`.

    Args:
        encoder: A `BertEncoder` with a preprocessor, or a pretraining model: a copy of the encoder
            gets a new head, and the encoder itself does not change. A tagger's head starts from a
            regression on the encoder's vectors of words, and a head for texts from one on the
            vectors of texts if the encoder has a `pooling`, as MiniLM has. Or a model with the head
            of a task, including a custom one that ends in a `heads.TaskOutput`: it is trained in
            place, and its preprocessor's `max_sequence_length` is set to `max_length`. Its class
            must not change how Keras trains, for example with its own `train_step`.
        train: The training data. Its labels are the classes.
        dev: The data for scoring, or `None`.
        task: `"reranking"` trains a reranker on `EmbeddingExamples`, such as mined negatives, or on
            `Examples` of pairs with scores. `"sparse_embedding"` trains a sparse embedder from a
            masked-LM model on `EmbeddingExamples`, or on `RankingExamples` with the scores of a
            teacher. By default, the type of `train` selects the task.
        epochs: Number of passes over the training data. The paper uses 2 to 4.
        batch_size: Rows per batch: texts or pairs of texts; for embedders and multiple choice, rows
            of texts; for rerankers, lists of documents. A pair of contrastive training counts
            as two. The paper uses 16 or 32. Default: 32, for lists divided by the longest list.
        learning_rate: The peak learning rate. The paper uses 5e-5, 3e-5 or 2e-5.
        warmup: Fraction of the steps during which the learning rate rises.
        schedule: What the learning rate does after the warm-up: `"linear"` or `"cosine"` decay to
            0, or `"constant"`.
        max_length: Maximum number of positions per sequence; longer ones are cut. Default: 128 (for
            question answering 384) or the encoder's maximum, whichever is smaller.
        seed: Seed for the weights of the head, the order of the data and dropout. The random
            numbers of the calling program do not change.
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
        callbacks: `keras.callbacks.Callback`s. They see one `fit` of the returned model. The logs
            of an epoch have the metrics of the training, such as `loss`, `val_loss` and the scores
            of `dev`, such as `val_accuracy`. `EarlyStopping(restore_best_weights=True)` selects the
            best epoch in place of `metric`. `LearningRateScheduler` and `ReduceLROnPlateau` set the
            rate of each epoch, in place of `warmup` and `schedule`. When a killed run resumes,
            callbacks get back their `best`, `wait` and `cooldown_counter`, and no other state. An
            unfinished epoch then numbers its batches from 0. `on_test_batch_begin` and
            `on_test_batch_end` are not called.
        show_progress: If `True`, draw a progress bar in a terminal or notebook, elsewhere print a
            line per epoch on stderr. If `False`, print no notes on the data and the run either.
        optimizer: A Keras optimizer, in place of AdamW with `learning_rate`, `warmup` and
            `schedule`; the run trains with a copy of it. With `gradient_accumulation_steps`, its
            schedule must be one of `optimizers`, which count optimizer steps. Or the name of an
            optimizer, which trains with the constant rate `learning_rate`.
        loss: The loss in place of the task's own one: a `keras.losses.Loss` of the logits, with its
            `from_logits=True` if it has one. For embeddings and reranking a name such as `"cosent"`
            or `"listnet"`, or a loss of `losses`.
        **options: Options of the task: for texts `class_weight`, `contrastive`, see above, and
            `long_texts="window"` to train on overlapping parts of long texts and average their
            answers; for tags and questions `stride`. For embeddings `matryoshka_dims`, a list of
            widths; `gradient_caching=True` for batches larger than the memory; and
            `sampling="round_robin"` for one batch of each set in turn. For reranking
            `num_negatives`, random documents per query. For sparse embedders
            `document_regularizer_weight` and `query_regularizer_weight`, see `losses.Splade`.

    Returns:
        A tuple `(model, metrics)`: a `keras.Model` from token ids to logits, and a dict with
        `recipe` (the arguments that determine the result), `columns` (the names that `read` was
        given for the training data, if it has texts), `train_loss` (of the returned weights'
        epoch), `train_seconds`, `examples_per_second`, `stopped` (`True` after Ctrl-C), `history`
        (a dict per epoch), and the `counts` of the encoded training data. With `dev` also the
        counts of `dev`, such as `dev_truncated`, the metrics of the best epoch, its number
        `best_epoch` and the name of the `metric` that selected it. If the model could answer before
        the training, as an embedder or a fine-tuned model can, the key `<metric>_before_training`
        has the score before the training. If the training ends within an epoch, `best_epoch` can
        be 0.5.

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
    trained_task, train, dev = _task_and_data(encoder, train, dev, task)
    recipe = FinetuningRecipe(
        epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, warmup=warmup,
        schedule=schedule,
        max_length=trained_task.max_length if max_length is None else max_length,
        seed=seed, gradient_accumulation_steps=gradient_accumulation_steps,
        fixed_length=fixed_length, evaluate_every=evaluate_every, optimizer=optimizer, loss=loss,
        options=options,
    )  # fmt: skip
    folder, tensorboard = _output_paths(folder=folder, tensorboard=tensorboard)
    callbacks = user_callbacks.as_checked_list(callbacks, folder, dev)
    arguments = inspect.signature(finetune).parameters
    what = f"finetune for {type(train).__name__}"
    task_options = trained_task.training_options.of(
        options, what, arguments, run_data.NAMES_ELSEWHERE
    )
    _check_arguments(dev, metric, patience, evaluate_every, on_end)
    run_data.check_data(trained_task, train, dev)
    new_encoder, model = _encoder_and_model(trained_task, encoder, train)
    if max_length is not None:
        as_max_length(max_length, new_encoder.bert_config["max_position_embeddings"])
    is_new = model is None
    contrast = trained_task.contrastive_training(
        new_encoder if is_new else None, train, task_options, recipe
    )
    # Two processes on the same state would both return wrong weights.
    lock = contextlib.nullcontext()
    if folder is not None:
        lock = exclusive_lock(folder, "training", keep=False)
    with stop_requests() as stop, lock:
        stop.check()
        if is_new:
            model = _new_model(trained_task, new_encoder, train, contrast, recipe.seed)
        run = FinetuningRun(
            trained_task, model, train, contrast, dev, recipe, metric, patience, callbacks
        )
        run.prepare(folder)
        state = _restore(run, folder, show_progress)
        if not (state.epoch or state.batch):
            _prepare_start(run, state, model, is_new)
        if show_progress:
            run_data.print_notes(run, trained_task, new_encoder if is_new else None, task_options)
        stopped = _fit(run, state, show_progress, tensorboard)
        metrics = _metrics(run, state, _restore_best(run, state), stopped)
        if show_progress:
            _note_scores(trained_task, metrics)
        provenance.remember_run(model, encoder, train, dev, metrics)
        if on_end is not None:
            on_end(model, metrics)
        state.clear()
        return model, metrics


@dataclasses.dataclass
class _Subject:
    """What the batches train: the user's model, or an embedder that shares its encoder."""

    model: keras.Model
    encoded: Any
    options: dict[str, Any]  # arguments of `compile`
    rows_per_batch: int


@dataclasses.dataclass
class FinetuningRun:
    """What one call of `finetune` trains: a model, its data and, after `prepare`, its batches.

    Attributes:
        task: The `Task` of the model.
        contrast: The `ContrastiveTraining`, or `None`.
        metric: Name of the metric that selects the best epoch, or `None` for the first one.
        encoded, encoded_dev: The encoded data; `encoded_dev` is `None` without dev data.
        plan: The `BatchPlan`.
        score: Function that returns the metrics of the dev data, or `None`.
        fit_head: Function that fits the head after contrastive training, or `None`.
    """

    task: Any
    model: keras.Model
    train: Any
    contrast: Any
    dev: Any
    recipe: FinetuningRecipe
    metric: str | None
    patience: int | None
    callbacks: Sequence[keras.callbacks.Callback]
    encoded: Any = None
    encoded_dev: Any = None
    plan: Any = None
    score: Callable[[], dict] | None = None
    fit_head: Callable[[], None] | None = None

    def prepare(self, folder):
        """Encode the data, plan the batches and compile the model. `folder` may hold a state."""
        recipe = self.recipe
        encoder = heads.find_encoder(self.model)
        recipe.max_length = max_sequence_length(encoder, recipe.max_length)
        self.encoded = run_data.encode_training(self.task, self.model, self.train, recipe)
        recipe.batch_size = run_data.batch_size_of(self.task, self.encoded, recipe)
        if self.dev is not None:
            self.encoded_dev = run_data.encode_dev(
                self.task, self.model, self.train, self.dev, recipe
            )
            self.encoded.share_loss(self.encoded_dev)
        options = run_data.compile_options(self.task, self.model, self.encoded, recipe.loss)
        subject = self._subject(options)
        if self.dev is not None:
            self._choose_metric()
        user_callbacks.set_modes(self.callbacks)
        self.plan = BatchPlan(
            subject.model,
            subject.encoded,
            subject.rows_per_batch,
            recipe.seed,
            recipe.epochs,
            losses=subject.options["loss"],
            gradient_accumulation_steps=recipe.gradient_accumulation_steps,
            fixed_length=recipe.fixed_length,
            can_be_mixed=recipe.optimizer is None,
            saved_rows=_saved_rows(folder),
            fits_head=self.task.head_start is not None or self.fit_head is not None,
        )
        if self.dev is not None:
            self.score = run_data.DevScorer(self, options)
        # The generators got their seeds when the encoder was created or loaded.
        seed_dropout(self.model, recipe.seed)
        self._compile(subject.options, options)

    def _subject(self, options):
        """Return what the batches train; set `fit_head`."""
        batch_size: Any = self.recipe.batch_size  # `prepare` has set it
        if self.contrast is None:
            model = self.task.model_of_logits(self.model)
            return _Subject(model, self.encoded, options, batch_size)
        self.fit_head = head_fitter(
            self.model, self.contrast.head, self.encoded, self.recipe.seed, batch_size
        )
        model, encoded, options = run_data.encode_contrastive(
            self.model, self.contrast, self.recipe.max_length
        )
        return _Subject(model, encoded, options, batch_size // encoded.texts_per_row)

    def _choose_metric(self):
        """Set `metric` to the one that a callback selects, if any, and check it."""
        self.metric = user_callbacks.selecting_metric(self.callbacks, self.metric)
        known = self.task.metric_names(heads.find_output(self.model), self.dev)
        if self.encoded_dev.has_targets:
            known = (*known, user_callbacks.DEV_LOSS)
        if self.metric is not None and self.metric not in known:
            raise ValueError(f"metric must be one of {', '.join(known)}; received {self.metric!r}")

    def _compile(self, options_of_batches, options):
        """Compile the model that is trained, then the user's model with its own `options`."""
        plan = self.plan
        optimizer = user_callbacks.with_settable_rate(
            self.recipe.new_optimizer(plan.steps), self.callbacks, self.recipe
        )
        policy = heads.find_encoder(self.model).dtype_policy
        optimizer = optimizers.with_loss_scale(optimizer, policy)
        options_of_batches = options_of_batches | {"loss": plan.losses}
        plan.trained.compile(optimizer, **options_of_batches, jit_compile=plan.compiled)
        if plan.cache is not None:
            plan.cache.compile(plan.compiled)
        if isinstance(self.model.output, dict):
            # Keras would create the mean of several losses during the first step, and TensorFlow
            # would trace the step a second time. (`RunState.restore` creates the optimizer's
            # variables.)
            batch = keras.tree.map_structure(lambda array: array[:1], plan.batch(0))
            inputs, targets, weights = batch
            plan.trained.compute_loss(inputs, targets, plan.trained(inputs), weights)
        if self.encoded.loss is not None:
            options = {}  # such a loss reads logits, or the outputs of several texts
        # Scoring uses batches of many lengths, too many for XLA to compile on TensorFlow.
        is_compiled = keras.backend.backend() == "jax"
        self.model.compile(plan.trained.optimizer, **options, jit_compile=is_compiled)


def _check_arguments(dev, metric, patience, evaluate_every, on_end):
    if patience is not None:
        as_integer("patience", patience, 1)
    if on_end is not None and not callable(on_end):
        raise ValueError(f"on_end must be a function; received {shown(on_end)}")
    if dev is None and (metric, patience, evaluate_every) != (None, None, None):
        raise ValueError("metric, patience and evaluate_every need dev, the data that is scored")


def _output_paths(**folders):
    """Return the paths of folders, checked; `None` stays."""
    return [
        None if folder is None else as_output_path(name, folder) for name, folder in folders.items()
    ]


def _new_model(task, encoder, train, contrast, seed):
    """Return an encoder with a new head."""
    build = task.build if contrast is None else task.build_on_unit_vectors
    with seeded(seed):
        return build(encoder, train)


def _prepare_start(run, state, model, is_new):
    """Initialize a new head. Then score the model if it can answer before the training."""
    if is_new and run.fit_head is None:
        initialize_head(model, run.encoded, run.recipe.seed, run.recipe.batch_size)
    can_answer = not is_new or registry.for_model(model).reads_encoders
    if run.score is not None and can_answer:
        state.before = run.score()


def _saved_rows(folder):
    """Return the argument of `BatchPlan` for the state in a folder."""
    settings = None if folder is None else saved_settings(folder)
    if settings is None:
        return None
    shape = settings.get("packed")
    return shape[0] if isinstance(shape, list) and shape else 0


def _restore(run, folder, show_progress):
    """Return the `RunState`, restored from the folder if it holds a state."""
    settings = {} if folder is None else _settings(run)
    state = RunState(folder, settings, run.plan.epochs, run.plan.batches)
    if state.restore(run.plan.trained, run.model) and show_progress:
        epochs = run.recipe.epochs
        epoch = min(state.epoch + 1, epochs)
        print_line(f"resuming the run in {folder}, epoch {epoch} of {epochs}", file=sys.stderr)
    return state


def _settings(run):
    """Return what must be equal for a run to resume: recipe, model and data."""
    encoder = heads.find_encoder(run.model)
    return {
        "trainable variables": len(run.model.trainable_variables),
        "scored over characters": None if run.dev is None else run.dev.characters,
        "labels": heads.find_output(run.model).labels,
        "dtype": encoder.dtype_policy.name,
        "weights": provenance.digest_of_weights(run.model),
        "encoder": encoder.bert_config,
        "head": heads.find_output(run.model).get_config(),
        "content of the data": digest(run.encoded),
        "content of the dev data": None if run.dev is None else digest(run.encoded_dev),
        "metric": run.metric,
        "patience": run.patience,
        "packed": run.plan.shape,
        "contrastive loss": None if run.contrast is None else run.contrast.loss.name,
        "callback": user_callbacks.rate_setter(run.callbacks),
        **run.recipe.to_dict(),
    }


def _set_options(run):
    """Store `max_length`, `long_texts` and the type of the labels in the model."""
    output = heads.find_output(run.model)
    heads.find_encoder(run.model).preprocessor.max_sequence_length = run.recipe.max_length
    if "long_texts" in run.recipe.options:
        output.long_texts = run.recipe.options["long_texts"]
    if output.labels is not None and label_types.fits(output.labels, run.train.label_type):
        output.label_type = run.train.label_type


def _fit(run, state, show_progress, tensorboard):
    """Set the model's options, train the remaining epochs; return True if Ctrl-C ended that.

    Ctrl-C before the first step is a `KeyboardInterrupt`. If the loss or a weight is no longer
    finite, a `ValueError` is raised.
    """
    _set_options(run)
    for callback in run.callbacks:
        if isinstance(callback, keras.callbacks.CSVLogger) and state.history:
            callback.append = True  # keep the lines of the earlier process
    if state.stopped or state.epoch >= run.plan.epochs:
        return False
    steps = 1 if run.recipe.evaluate_every is None else run.plan.batches
    progress = Progress(state, run.plan, show_progress, tensorboard, steps)
    try:
        with stop_requests() as stop, progress.bar:
            stop.check()
            engine.fit(
                run.plan.trained,
                run.plan.data_for_fit(state.epoch, state.batch),
                _all_callbacks(run, state, progress, stop),
                shape=run.plan.batch(0)[0]["input_word_ids"].shape,
                steps=run.plan.batches,
                seed=run.recipe.seed,
                batches_before=state.epoch * run.plan.batches + state.batch,
                batch_size=run.recipe.batch_size,
                accumulated=run.recipe.gradient_accumulation_steps,
                model=run.model,
                epochs=run.plan.epochs,
                start=(state.epoch, state.batch),
            )
    except KeyboardInterrupt:
        if not state.epoch and not state.batch:  # no weights to return
            raise
        return True
    except Diverged:
        keeps_best = any(isinstance(c, keras.callbacks.TerminateOnNaN) for c in run.callbacks)
        if not (keeps_best and state.has_best):
            raise
    return False


def _all_callbacks(run, state, progress, stop):
    """Return the callbacks of the run, in their order: they see a batch one after the other."""

    def restore_callbacks(logs):
        user_callbacks.restore(run.callbacks, state.callbacks)

    return [
        Steps(run.plan, state, stop),
        progress,
        ScoreDev(run, state, progress),
        *run.callbacks,
        keras.callbacks.LambdaCallback(on_train_begin=restore_callbacks),
        SaveState(state, run.plan, run.callbacks),
    ]


def _restore_best(run, state):
    """Set the model's weights to the best ones.

    Returns:
        The record of the best epoch, or `None` without dev data.
    """
    record = state.restore_best(run.model)
    if record is None and run.fit_head is not None:
        run.fit_head()
    if run.score is None:
        return None
    if record is None:  # stopped before the first score
        record = {
            "epoch": state.epochs_done(run.plan.batches),
            "loss": state.loss,
            **run.score(),
        }
    if record["epoch"] not in [other["epoch"] for other in state.history]:
        state.history.append(record)  # stopped before the epoch was recorded
    return record


def _metrics(run, state, best_record, stopped):
    """Return the metrics that `finetune` returns."""
    encoded = run.encoded
    encoded_batches = run.plan.encoded
    train = run.train
    train_loss = _train_loss(run, state, best_record)
    rows = len(train) * run.plan.rows / len(encoded_batches)
    done = (state.epoch + state.batch / run.plan.batches) * rows
    recipe = run.recipe.to_dict()
    if run.contrast is not None:
        recipe["contrastive"] = True
    elif encoded.loss is not None:
        recipe.setdefault("loss", encoded.loss_name)
    metrics = {
        "recipe": recipe,
        "train_loss": train_loss,
        "train_seconds": state.seconds,
        "examples_per_second": done / max(state.seconds, 1e-9),
        "stopped": stopped,
        "history": state.history,
        **encoded.counts(),
        **train.counts(),
    }
    if train.columns is not None:
        metrics["columns"] = train.columns
    if best_record is not None:
        counts = run.encoded_dev.counts()
        metrics |= {f"dev_{name}": count for name, count in counts.items()}
        metrics["metric"] = run.metric or first_metric(best_record)
        metrics["best_epoch"] = best_record["epoch"]
        metrics |= {key: best_record[key] for key in best_record if key not in ("epoch", "loss")}
        if state.before:
            metrics[f"{metrics['metric']}{_BEFORE_SUFFIX}"] = state.before[metrics["metric"]]
    return metrics


def _train_loss(run, state, best_record):
    """Return the training loss of the epoch whose weights the model has."""
    if best_record is not None:
        return best_record["loss"]
    if not state.history:
        return state.loss
    for callback in run.callbacks:
        if getattr(callback, "restore_best_weights", False) and callback.best_weights is not None:
            return state.history[callback.best_epoch]["loss"]
    return state.history[-1]["loss"]


def _note_scores(task, metrics):
    """Print notes on a gain over the score before the training, and on a useless model."""
    _note_gain(metrics)
    _note_baseline(task, metrics)


def _note_gain(metrics):
    """Print the dev score before and after the training of a model that needs no training."""
    metric = metrics.get("metric")
    before = metrics.get(f"{metric}{_BEFORE_SUFFIX}")
    if before is None:
        return
    after = metrics[metric]
    note = f"{metric} of the dev data: {before:.3f} before the training, {after:.3f} after"
    gain = before - after if user_callbacks.lower_is_better(metric) else after - before
    if gain <= 0:
        note += ". The training did not improve it: use other or more data, or the model as it was"
    print_line(note, file=sys.stderr)


def _note_baseline(task, metrics):
    """Print a note if the model is no better than the baseline of its task.

    An error such as "rmse" is compared also if another metric selects the epoch.
    """
    for metric, baseline in task.baselines.items():
        is_error = metric in task.lower_is_better
        if baseline not in metrics or not (is_error or metric == metrics.get("metric")):
            continue
        gain = metrics[metric] - metrics[baseline]
        if is_error:
            gain = -gain
        if gain > 0:
            continue
        print_line(
            f"{metric} of the dev data, {metrics[metric]:.3f}, is not "
            f"{'below' if is_error else 'above'} {baseline}, {metrics[baseline]:.3f}: the model is "
            "of no use yet. Train it on more data or for more epochs, or with another "
            "learning_rate or loss",
            file=sys.stderr,
        )


def _task_and_data(model, train, dev, name):
    """Return the task to train, and the data in the form of that task.

    If the model has a task that fits the data, that task is trained. `name` is the task that the
    caller wants, or `None`.
    """
    if name is not None:
        convert = registry.by_name(name).convert
        train = convert(train)
        dev = None if dev is None else convert(dev)
    task = registry.for_data(train)
    wanted = task if name is None else registry.by_name(name)
    if wanted is not task and (wanted.is_pretraining or not wanted.fits(train)):
        raise ValueError(
            f"{train.source} is data of the task {task.name}; received task={shown(name)}. Remove "
            "task, or read the data with keras_bert.read for it"
        )
    of_model = registry.find(model)
    if of_model is None or of_model.is_pretraining or not isinstance(train, of_model.data):
        return wanted, train, dev
    if name is not None and of_model is not wanted:
        raise ValueError(
            f"{model.name!r} has the task {of_model.name}; received task={shown(name)}. Remove "
            "task, or give its encoder, keras_bert.heads.find_encoder(model)"
        )
    return of_model, train, dev


def _encoder_and_model(task, model, train):
    """Return the encoder, and the model to train. It is `None` if a new head must be built.

    The encoder of an encoder or of a pretraining model is copied.
    """
    encoder = heads.find_encoder(model)
    if encoder.preprocessor is None:
        raise ValueError("the encoder has no preprocessor; set encoder.preprocessor")
    if isinstance(model, BertEncoder) or heads.find_task(model) in registry.OF_PRETRAINING:
        encoder = encoder.with_options(preprocessor=encoder.preprocessor.with_options())
        return encoder, task.with_pretrained_head(model, encoder)
    if not isinstance(train, registry.for_model(model).data):
        raise ValueError(
            f"{model.name!r} has the task {heads.find_task(model)}, and {train.source} is "
            f"{type(train).__name__}. To train a new head, give its encoder, "
            "keras_bert.heads.find_encoder(model)"
        )
    _check_trained_by_keras(model)
    distribution.check_created_here(model)
    return encoder, model


def _check_trained_by_keras(model):
    """Raise an error if the class of a model changes how Keras trains it."""
    for name in ("train_step", "compute_loss", "compute_metrics"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise ValueError(
                f"{type(model).__name__} has its own {name}, which finetune does not call: it "
                "trains another model of the same weights. Use the model's own fit"
            )
