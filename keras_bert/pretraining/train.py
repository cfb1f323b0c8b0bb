"""Pretraining with the paper's recipe (section A.2): two phases, one schedule, MLM and NSP."""

import contextlib
import os
import pathlib
import sys

import keras

from keras_bert import heads
from keras_bert.encoder import BertEncoder
from keras_bert.hub import loading
from keras_bert.pretraining.losses import compile_model
from keras_bert.pretraining.pretraining_run import (
    HISTORY_FILE,
    Feed,
    Meter,
    Pauses,
    PretrainingRun,
    model_to_train,
)  # fmt: skip
from keras_bert.pretraining.recipe import OPTIMIZERS, Phase, Recipe, two_phases
from keras_bert.pretraining.records import Records
from keras_bert.runtime import distribution
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.files import exclusive_lock, remove_stale_temporaries
from keras_bert.runtime.packages import import_tensorflow
from keras_bert.runtime.seeds import random_state_kept, seeded
from keras_bert.runtime.stopping import stop_requests
from keras_bert.runtime.tensorboard import writer
from keras_bert.runtime.terminal import print_line, progress
from keras_bert.training import engine, report

__all__ = ["OPTIMIZERS", "Phase", "Recipe", "compile_model", "pretrain", "two_phases"]


@random_state_kept()
def pretrain(
    model: keras.Model,
    records: Records,
    folder: str | os.PathLike,
    recipe: Recipe,
    *,
    log_every: int = 100,
    save_every: int = 1000,
    eval_every: int | None = None,
    eval_rows: int = 2048,
    keep: int = 3,
    tensorboard: str | os.PathLike | None = None,
    show_progress: bool = True,
) -> tuple[keras.Model, list[dict]]:
    r"""Pretrain a model on records. Resumes from the last checkpoint in the folder, if any.

    The result depends only on the settings and the model's initial weights; call
    `keras.utils.set_random_seed` before you create the model to repeat a run. On the same type of
    device, a run that was killed and resumed has the same weights, bit for bit, as an uninterrupted
    one. With each checkpoint, the model is also saved for `keras_bert.load`.

    Ctrl-C or SIGTERM saves a checkpoint after the current step and raises `KeyboardInterrupt`. A
    second signal stops immediately. So does the first signal before the first step has ended, or
    with several processes.

    The loss of a step is the mean over its masked tokens, plus the mean over its pairs, however
    many batches and devices share the step. Each of several processes averages over its own ones.

    Args:
        model: A `BertEncoder`, which gets new heads for masked LM and next sentence prediction. Or
            a model of `heads.pretraining`. Or a model of `heads.masked_lm`, which is trained on
            single texts instead of pairs. The weights are trained in place. For several devices,
            create the model and call this function inside `distribution.scope`.
        records: A `records.Records`.
        folder: Folder for checkpoints, history, plot and model.
        recipe: A `Recipe`: phases, learning rate, optimizer, masking and seed.
        log_every, save_every: Steps between two lines of the history, and between two checkpoints.
            Each checkpoint and each evaluation also ends a line.
        eval_every: Steps between two evaluations on the held-out documents. Default: `save_every`.
            There are no evaluations if the records hold out fewer than two documents.
        eval_rows: Rows per evaluation, rounded down to full batches but at least one batch.
        keep: Number of checkpoints to keep.
        tensorboard: Folder for TensorBoard, or `None`.
        show_progress: If `True`, describe the run and draw a progress bar on stderr, or print a
            line per record of the history if stderr is not a terminal.

    Returns:
        A tuple `(model, history)`: the model with its heads, and a list of dicts, one per line:
        `step`, `sequence_length`, `loss` and its parts, accuracies, `learning_rate`, `seconds`,
        `tokens_per_second` (without padding), `sequences_per_second` (rows, also if packed) and
        `flop_utilization`. Lines with an evaluation also have its values, with names that begin
        with `eval_`.

    Raises:
        ValueError: If an argument is invalid, the records have another vocabulary, the folder has a
            checkpoint of other settings or an unrelated model, another process uses the folder, or
            the training diverges.

    Example (see examples/pretrain.py for the complete process):

    >>> import tempfile
    >>> from keras_bert import Preprocessor
    >>> from keras_bert.pretraining import records
    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "."]
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text, made = pathlib.Path(folder, "corpus.txt"), pathlib.Path(folder, "records")
    ...     _ = text.write_text("A b. B a. A c.\n\nB b. C b. C a.\n")
    ...     _ = records.build([text], made, Preprocessor(tokens), workers=1)
    ...     model, history = pretrain(encoder, records.Records(made), folder + "/model",
    ...                               Recipe([Phase(2, sequence_length=16, batch_size=2)]),
    ...                               show_progress=False)
    >>> model.name, history[-1]["step"]
    ('pretraining', 2)
    """
    import_tensorflow("pretraining")
    if eval_every is None:
        eval_every = save_every
    counts = {
        "log_every": log_every, "save_every": save_every, "eval_every": eval_every,
        "eval_rows": eval_rows, "keep": keep,
    }  # fmt: skip
    for name, value in counts.items():
        as_integer(name, value, 1)
    with stop_requests() as stop:
        _check_batches(recipe)
        _check_model(model, records, recipe.phases)
        distribution.check_created_here(model)
        with seeded(recipe.seed):
            model = heads.pretraining(model) if isinstance(model, BertEncoder) else model
        training_model = model_to_train(model, recipe.packed)
        compile_model(training_model, recipe.new_optimizer(), reduction="sum")
        run = PretrainingRun(
            model, training_model, records, pathlib.Path(folder), recipe,
            log_every=log_every, save_every=save_every, eval_every=eval_every,
            eval_rows=eval_rows, keep=keep,
        )  # fmt: skip
        if not run.checkpoints.files() and pathlib.Path(folder, loading.MODEL_FILE).is_file():
            raise ValueError(
                f"{folder} contains a model, but no checkpoint of a run to resume; use another "
                "folder"
            )
        _train(run, tensorboard, show_progress, stop)
    return run.model, run.history


def _check_batches(recipe):
    """Raise an error if the devices cannot share each batch equally."""
    accumulate = recipe.gradient_accumulation_steps
    replicas = distribution.replicas()
    distribution.check_accumulation(accumulate)
    for phase in recipe.phases:
        if phase.batch_size % (accumulate * replicas):
            raise ValueError(
                "batch_size must be a multiple of gradient_accumulation_steps x devices, "
                f"{accumulate} x {replicas}; received {phase.batch_size}"
            )


def _check_model(model, records, phases):
    """Check that the model fits the records; give it a preprocessor if it has none."""
    encoder = heads.find_encoder(model)
    config = encoder.bert_config
    if model is not encoder and "masked_lm_positions" not in model.input:
        raise ValueError(
            "model must be an encoder or have the head pretraining or masked_lm; received "
            f"{shown(model.name)}"
        )
    has_pairs = model is encoder or isinstance(model.output, dict)
    longest = max(phase.sequence_length for phase in phases)
    if longest > config["max_position_embeddings"]:
        raise ValueError(
            f"sequence_length must be at most max_position_embeddings="
            f"{config['max_position_embeddings']}; received {longest}"
        )
    if encoder.preprocessor is None:
        encoder.preprocessor = records.preprocessor()
        encoder.check_vocabulary()
    records.check_preprocessor(encoder.preprocessor)
    counts = records.counts()
    problem = None
    if config["type_vocab_size"] < 2:
        problem = f"type_vocab_size=2 or more; received {config['type_vocab_size']}"
    elif counts["sentences"] <= counts["documents"]:
        problem = f"second sentences; no document of {records.folder} has one"
    if has_pairs and problem is not None:
        raise ValueError(
            f"next sentence prediction needs {problem}; use --no-next-sentence or a model of "
            "heads.masked_lm"
        )


def _train(run, tensorboard, show_progress, stop):
    """Train the remaining phases with the folder locked, and report the progress."""
    show_progress = show_progress and run.writes
    with contextlib.ExitStack() as stack:
        if run.writes:
            stack.enter_context(exclusive_lock(run.folder, "training"))
            for name in (HISTORY_FILE, report.CURVES_FILE, loading.MODEL_FILE):
                remove_stale_temporaries(run.folder / name)
        run.restore()
        was_finished = run.step == run.recipe.steps
        if show_progress:
            print_line(run.describe(), file=sys.stderr)
        columns = ("loss {task.fields[loss]}", "{task.fields[rate]} tokens/s")
        bar = stack.enter_context(progress(*columns, show=show_progress))
        stop.check()
        if distribution.worker()[1] == 1:  # several processes would not stop after the same step
            stack.enter_context(stop.finishing_steps())
        write = writer(tensorboard if run.writes else None)

        def on_record(record):
            write(record["step"], record)
            if show_progress and bar.disable:  # stderr is not a terminal
                print_line(_line(record, run.recipe.steps), file=sys.stderr)

        for phase in range(len(run.recipe.phases)):
            if run.step < run.end_of(phase):
                _fit(run, phase, bar, on_record, stop)
        if run.writes:
            report.draw_curves(run.folder, run.history, x="step")
            if was_finished:  # otherwise the last checkpoint saved the model
                loading.save(run.model, run.folder)


def _fit(run, phase, bar, on_record, stop):
    """Train the remaining steps of a phase, whose batches have one shape, with one `fit`."""
    settings = run.recipe.phases[phase]
    steps = run.end_of(phase) - run.step
    accumulated = run.recipe.gradient_accumulation_steps
    feed = Feed(run.stream(phase), run.position, steps, accumulated)
    bar_task = bar.add_task(
        f"{settings.sequence_length} positions", total=settings.steps,
        completed=settings.steps - steps, loss="\u2013", rate="\u2013",
    )  # fmt: skip
    meter = Meter(run, feed, bar, bar_task, settings.steps - steps)
    pauses = Pauses(run, phase, feed, meter, on_record, stop)
    engine.fit(
        run.training_model,
        feed.data(),
        [meter, pauses],
        shape=(feed.stream.rows, settings.sequence_length),
        steps=steps * accumulated,
        seed=run.recipe.seed,
        batches_before=run.step * accumulated,
        batch_size=feed.stream.batch_size,
        accumulated=accumulated,
    )


def _line(record, steps):
    """Format a line of the history for stderr."""
    text = f"step {record['step']:,} of {steps:,}: loss {record['loss']:.3f}"
    if "tokens_per_second" in record:
        text += f", {record['tokens_per_second']:,.0f} tokens/s"
        text += f", FLOP utilization {record['flop_utilization']:.2f}"
    if "eval_loss" in record:
        scores = [f"{k} {v:.3f}" for k, v in record.items() if k.startswith("eval_")]
        text += "; " + ", ".join(scores)
    return text
