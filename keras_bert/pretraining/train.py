"""Pretraining by the paper's recipe (section A.2): two phases, one schedule, masked LM and NSP."""

import contextlib
import dataclasses
import itertools
import json
import pathlib
import sys
import time

import keras
import numpy as np

from keras_bert import heads, keras_internals, optimizers
from keras_bert.encoder import BertEncoder
from keras_bert.hub import loading
from keras_bert.pretraining import losses
from keras_bert.pretraining.pairs import SHORTEST
from keras_bert.pretraining.records import Records
from keras_bert.pretraining.state import Checkpoints
from keras_bert.pretraining.stream import Place, Stream
from keras_bert.runtime import distribution
from keras_bert.runtime.files import atomic_write, exclusive_lock, remove_stale_temporaries
from keras_bert.runtime.tensorboard import writer
from keras_bert.runtime.terminal import progress, stop_requests
from keras_bert.training import flops

HISTORY_FILE = "history.jsonl"
CURVES_FILE = "curves.png"
OPTIMIZERS = {"adamw": optimizers.adamw, "lamb": optimizers.lamb}
_EVAL_SEED = 0  # the same masks in each evaluation
_WARMUP_STEPS = 10_000  # the paper's, of 1,000,000
_RATE_SECONDS = 1  # between two rates on the bar
_CURVES_SECONDS = 60  # between two drawings of a run that goes on
_ADVICE = "a lower learning rate or a longer warm-up may help, in a folder of its own"


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of a run with sequences of one length.

    Attributes:
        steps: steps of the optimizer.
        sequence_length: positions of a sequence.
        batch_size: sequences a step, over all devices and accumulated batches.
        max_predictions: masked positions a sequence at most; default: the share of the length
            that is masked, 15%.

    Raises:
        ValueError: a number is too small.

    Example:

    >>> Phase(1000, sequence_length=64).batch_size
    256
    """

    steps: int
    sequence_length: int = 128
    batch_size: int = 256
    max_predictions: int | None = None

    def __post_init__(self):
        for key, least in (("steps", 1), ("batch_size", 1), ("sequence_length", SHORTEST)):
            if getattr(self, key) < least:
                raise ValueError(f"{key} must be at least {least}; received {getattr(self, key)}")


def two_phases(steps, batch_size=256, lengths=(128, 512), share=0.9, max_predictions=(None, None)):
    """The paper's phases: most of the steps at a short length, the rest at the full one.

    Args:
        steps: of both phases together.
        batch_size: sequences a step.
        lengths: of the sequences, one for each phase.
        share: of the steps in the first phase.
        max_predictions: masked positions a sequence at most, for each phase.

    Returns:
        A list of `Phase`; one that would have no steps is left out.

    Example:

    >>> [(phase.steps, phase.sequence_length) for phase in two_phases(1_000_000)]
    [(900000, 128), (100000, 512)]
    """
    first = round(steps * share)
    parts = zip((first, steps - first), lengths, max_predictions, strict=True)
    return [Phase(count, length, batch_size, most) for count, length, most in parts if count]


def pretrain(
    model,
    records,
    folder,
    phases,
    *,
    learning_rate=1e-4,
    warmup_steps=None,
    weight_decay=0.01,
    optimizer="adamw",
    accumulate=1,
    packed=False,
    whole_words=False,
    masked_share=0.15,
    short_share=0.1,
    seed=0,
    log_every=100,
    save_every=1000,
    eval_every=None,
    eval_rows=2048,
    keep=3,
    tensorboard=None,
    show_progress=True,
):
    r"""Pretrains a model on records; goes on from its last checkpoint, if it has one.

    What a run computes is a function of its settings and the model's first weights (which
    `keras.utils.set_random_seed` makes repeatable) alone. One that was killed and called again
    ends with the same weights, bit for bit, as one that was not, on one kind of device. Ctrl-C and
    SIGTERM end it behind the step at hand with a checkpoint, as a `KeyboardInterrupt` that says
    where; a second one at once. (Not with several processes.) With each checkpoint the model as it
    is then is saved for `load`, so a run can be tried while it goes on, and left where it is.

    The loss is the mean over the masked pieces of each device and each accumulated batch, and then
    over these, as in Google's code: where they hold different numbers of masked pieces, that is not
    quite the mean over all.

    Args:
        model: a `BertEncoder`, which gets fresh heads for the masked LM and next sentences, or a
            model of `heads.pretraining`, or one of `heads.masked_lm`, which then reads single
            texts and no pairs. It is trained in place. With several devices it must have been
            made within `distribution.scope`, and so must the call.
        records: a `records.Records`.
        folder: of the run: checkpoints, history, curves, and at the end the model.
        phases: a list of `Phase`, see `two_phases`.
        learning_rate: the peak.
        warmup_steps: steps in which the rate rises; it then falls to 0 at the end of the last
            phase. Default: the paper's 10,000, but no more than a tenth of all.
        weight_decay: of the matrices, relative to the rate.
        optimizer: `"adamw"`, or `"lamb"` for very large batches.
        accumulate: batches that make up a step, where the device cannot hold all of its sequences.
        packed: several pairs in a row, so that a row is hardly padded.
        whole_words: mask whole words.
        masked_share: share of the pieces to predict.
        short_share: share of pairs of any shorter length.
        seed: of everything that is drawn.
        log_every, save_every: steps between two lines of the history, two checkpoints. Each
            checkpoint and each evaluation ends a line, too.
        eval_every: steps between two evaluations on the held-out documents; default: as
            `save_every`. There are none where the records hold out fewer than two documents.
        eval_rows: rows of such an evaluation, in full batches, of which there is one at least.
        keep: checkpoints that are kept.
        tensorboard: folder for TensorBoard, or `None`.
        show_progress: whether to say on stderr what is to be done, and to draw a bar; where that is
            no terminal, a line for each of the history.

    Returns:
        `(model, history)`: the model with its heads; a list of dicts, one for each line of the
        history: `step`, `sequence_length`, `loss` and the parts of it, accuracies,
        `learning_rate`, `seconds`, `tokens_per_second` (positions that are no padding),
        `sequences_per_second` (rows: packed, several texts each), `flop_utilization`; where it was
        evaluated also the figures of the held-out documents, with `eval_` before their names.

    Raises:
        ValueError: an impossible number, records of another vocabulary, a checkpoint of a run
            with other settings, a folder with a model of something else, another process at work
            there, or a loss that is no number any more.

    Example (examples/pretrain.py goes all the way from text):

    >>> import tempfile
    >>> from keras_bert import Preprocessor
    >>> from keras_bert.pretraining import records
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "."]
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text, made = pathlib.Path(folder, "corpus.txt"), pathlib.Path(folder, "records")
    ...     _ = text.write_text("A b. B a. A c.\n\nB b. C b. C a.\n")
    ...     _ = records.build([text], made, Preprocessor(pieces), workers=1)
    ...     model, history = pretrain(encoder, records.Records(made), folder + "/model",
    ...                               [Phase(2, sequence_length=16, batch_size=2)],
    ...                               show_progress=False)
    >>> model.name, history[-1]["step"]
    ('pretraining', 2)
    """
    if not phases:
        raise ValueError("there must be a phase at least")
    eval_every = save_every if eval_every is None else eval_every
    for name, value in (
        ("log_every", log_every),
        ("save_every", save_every),
        ("eval_every", eval_every),
        ("eval_rows", eval_rows),
        ("accumulate", accumulate),
    ):
        if value < 1:
            raise ValueError(f"{name} must be at least 1; received {value}")
    if optimizer not in OPTIMIZERS:
        raise ValueError(
            f"optimizer must be one of {', '.join(OPTIMIZERS)}; received {optimizer!r}"
        )
    distribution.check_accumulation(accumulate)
    for phase in phases:
        if phase.batch_size % (accumulate * distribution.replicas()):
            raise ValueError(
                f"batch_size must be a multiple of accumulate x devices, {accumulate} x "
                f"{distribution.replicas()}; received {phase.batch_size}"
            )
    encoder = heads.find_encoder(model)
    task = "pretraining" if model is encoder else heads.find_task(model)
    if task not in ("pretraining", "masked_lm"):
        raise ValueError(
            f"the model must be an encoder, or of pretraining or masked_lm; received {task}"
        )
    _check_encoder(encoder, records, phases)
    if task == "pretraining" and encoder.bert_config["type_vocab_size"] < 2:
        raise ValueError(
            "pairs need type_vocab_size=2 at least; received "
            f"{encoder.bert_config['type_vocab_size']}; pretrain without next sentences "
            "(--no-next-sentence, a model of heads.masked_lm)"
        )
    counts = records.counts()
    if not counts["documents"]:
        raise ValueError(f"{records.folder}: no documents are left to train on; hold out fewer")
    if task == "pretraining" and counts["sentences"] <= counts["documents"]:
        raise ValueError(
            f"{records.folder}: no document has a second sentence, so no text follows another; "
            "pretrain without next sentences (--no-next-sentence, a model of heads.masked_lm)"
        )
    keras.utils.set_random_seed(seed)
    if isinstance(model, BertEncoder):
        model = heads.pretraining(model)
    run = _Run(
        model=model,
        records=records,
        folder=pathlib.Path(folder),
        phases=tuple(phases),
        accumulate=accumulate,
        stream_options={
            "packed": packed,
            "whole_words": whole_words,
            "masked_share": masked_share,
            "short_share": short_share,
            "next_sentence": task == "pretraining",
        },
        seed=seed,
    )
    if warmup_steps is None:
        warmup_steps = min(_WARMUP_STEPS, run.steps // 10)
    if not 0 <= warmup_steps <= run.steps:
        raise ValueError(
            f"warmup_steps must lie within 0 and the {run.steps} steps of the run; received "
            f"{warmup_steps}"
        )
    compile_model(
        run.trained,
        OPTIMIZERS[optimizer](
            learning_rate,
            total_steps=run.steps,
            warmup_steps=warmup_steps,
            weight_decay=weight_decay,
            gradient_accumulation_steps=accumulate if accumulate > 1 else None,
        ),
    )
    settings = {
        "records": records.manifest["settings"] | {"pieces": records.counts()["pieces"]},
        "model": {key: encoder.get_config()[key] for key in encoder.bert_config},
        "dtype": encoder.dtype_policy.name,
        "phases": [dataclasses.asdict(phase) for phase in phases],
        "optimizer": run.trained.optimizer.get_config() | {"learning_rate": learning_rate},
        "warmup_steps": warmup_steps,
        "accumulate": accumulate,
        "stream": run.stream_options,
        "seed": seed,
    }
    checkpoints = Checkpoints(folder, json.loads(json.dumps(settings, default=str)), keep)
    if not checkpoints.exist() and pathlib.Path(folder, loading.MODEL_FILE).is_file():
        raise ValueError(
            f"{folder} holds a model, and no checkpoint of a run to go on with; take another folder"
        )
    every = {"log": log_every, "save": save_every, "eval": eval_every}
    writes = distribution.worker()[0] == 0
    with contextlib.ExitStack() as stack:
        if writes:
            stack.enter_context(exclusive_lock(run.folder, "training"))
            for name in (HISTORY_FILE, CURVES_FILE, loading.MODEL_FILE):
                remove_stale_temporaries(run.folder / name)
        run.restore(checkpoints)
        was_finished = run.step == run.steps
        if show_progress and writes:
            print(run.described(), file=sys.stderr, flush=True)
        bar = stack.enter_context(
            progress(
                "loss {task.fields[loss]}", "{task.fields[rate]} tokens/s",
                show=show_progress and writes,
            )
        )  # fmt: skip
        # Several processes could not agree on a step to stop at.
        stop = stack.enter_context(stop_requests(distribution.worker()[1] == 1))
        write = writer(tensorboard if writes else None)

        def note(record):
            write(record["step"], record)
            if show_progress and writes and bar.disable:  # no terminal to draw on
                print(_line(record, run.steps), file=sys.stderr, flush=True)

        run.go(checkpoints, every, eval_rows, bar, note, stop)
        if writes:
            _write_history(run)
            draw_curves(run.folder, run.history)
            if was_finished:  # or the model was saved with its last checkpoint
                loading.save(model, run.folder)
    return model, run.history


def compile_model(model, optimizer):
    """Compiles a model of `heads.pretraining`, `masked_lm` or `packed_pretraining`.

    The loss is the mean over masked positions, and that over pairs; with both there are metrics
    for each of them. `pretrain` calls it; call it yourself for a `fit` of your own.

    Args:
        model: the model.
        optimizer: such as `optimizers.adamw`.

    Example:

    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> model = heads.pretraining(encoder)
    >>> compile_model(model, optimizers.adamw(1e-4, total_steps=10))
    >>> model.compiled
    True
    """
    encoder = heads.find_encoder(model)
    # Objects: what is given by name is made within the first step, which is then traced twice.
    loss, metrics = losses.PieceCrossentropy, losses.accuracy
    tasks = list(model.output) if isinstance(model.output, dict) else None
    model.compile(
        optimizers.with_loss_scale(optimizer, encoder.dtype_policy),
        loss={task: loss() for task in tasks} if tasks else loss(),
        weighted_metrics={task: [metrics()] for task in tasks} if tasks else [metrics()],
        jit_compile=distribution.supports_jit_compile(),
    )
    model.optimizer.build(model.trainable_variables)


def _check_encoder(encoder, records, phases):
    config = encoder.bert_config
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


@dataclasses.dataclass
class _Run:
    """A run: what it trains, on what, and how far it is."""

    model: keras.Model
    records: Records
    folder: pathlib.Path
    phases: tuple
    accumulate: int
    stream_options: dict
    seed: int
    step: int = 0
    place: Place = Place()
    history: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.trained = self.model  # or its view of packed rows
        if self.stream_options["packed"]:
            self.trained = heads.packed_pretraining(self.model)
        self.tasks = ("masked_lm", "next_sentence")[: 1 + self.stream_options["next_sentence"]]

    @property
    def variables(self):
        return [*self.trained.variables, *self.trained.optimizer.variables]

    def restore(self, checkpoints):
        found = checkpoints.restore(self.variables)
        if found is not None:
            self.step, extra = found
            self.place = Place(*extra["place"])
            self.history = extra["history"]
        distribution.check_same_step(self.step)

    def save(self, checkpoints):
        self._check_weights(checkpoints)
        if distribution.worker()[0] == 0:
            extra = {"place": dataclasses.astuple(self.place), "history": self.history}
            checkpoints.save(self.step, self.variables, extra)
            loading.save(self.model, self.folder)

    def _check_weights(self, checkpoints):
        """Raises if a step whose own loss was a number spoiled the weights."""
        for variable in self.trained.trainable_variables:
            if not np.isfinite(keras.ops.convert_to_numpy(variable)).all():
                raise ValueError(
                    f"after step {self.step} weights are no numbers any more: {variable.path}; "
                    f"{checkpoints.newest()}; {_ADVICE}"
                )

    def phase_at(self, step):
        """The number of the phase that a step belongs to, and the first step behind it."""
        end = 0
        for number, phase in enumerate(self.phases):
            end += phase.steps
            if step < end:
                return number, end
        return len(self.phases), end

    def stream(self, number, split="train"):
        phase = self.phases[number]
        return Stream(
            self.records,
            phase.batch_size // self.accumulate,
            phase.sequence_length,
            split=split,
            max_predictions=phase.max_predictions,
            # Another phase, other draws; evaluation has its own.
            seed=self.seed * len(self.phases) + number if split == "train" else _EVAL_SEED,
            worker=distribution.worker(),
            **self.stream_options,
        )

    def go(self, checkpoints, every, eval_rows, bar, note, stop):
        """Trains phase by phase, from one line, checkpoint or evaluation to the next."""
        number, end = self.phase_at(self.step)
        drawn = time.monotonic()
        tasks = self._bar_tasks(bar)
        while number < len(self.phases):
            stream, start = self.stream(number), end - self.phases[number].steps
            eval_set = self._eval_set(number, eval_rows)
            meter = _Meter(
                self.trained, stream, bar, tasks[number], self.accumulate, self.step - start, stop
            )
            bar.start_task(tasks[number])
            while self.step < end:
                until = min(end, *(self.step // n * n + n for n in every.values()))
                record = self._train(stream, until, meter, checkpoints)
                until = self.step  # fewer than were wanted, where it is to stop
                is_last = until == end
                if eval_set and (is_last or until % every["eval"] == 0):
                    logs = self.trained.evaluate(
                        _dataset(
                            # Copies: TensorFlow computes in the memory of what it is given.
                            lambda batches=eval_set: (
                                keras.tree.map_structure(np.copy, batch) for batch in batches
                            ),
                            stream,
                            len(eval_set[0][0]["input_word_ids"]),
                        ),
                        steps=len(eval_set), verbose=0, return_dict=True,
                    )  # fmt: skip
                    logs = self._figures(logs)
                    record |= {f"eval_{name}": value for name, value in logs.items()}
                    if not np.isfinite(logs["loss"]):
                        self._check_weights(checkpoints)
                        raise ValueError(
                            f"after step {until} the loss on held-out documents is {logs['loss']}; "
                            f"{checkpoints.newest()}; {_ADVICE}"
                        )
                self.history.append(record)
                if is_last:
                    self.place = Place()  # the next phase draws from the beginning
                # Looked at once: what comes later is for the next step, or it would not be saved.
                stopping = stop.is_set()
                if is_last or stopping or until % every["save"] == 0:
                    self.save(checkpoints)
                if distribution.worker()[0] == 0:
                    _write_history(self)
                    if time.monotonic() - drawn > _CURVES_SECONDS:
                        draw_curves(self.folder, self.history)
                        drawn = time.monotonic()
                note(record)
                if stopping and self.step < self.steps:
                    if distribution.worker()[0] == 0:
                        draw_curves(self.folder, self.history)
                    raise KeyboardInterrupt(
                        f"at step {self.step} of {self.steps}, which is saved; called as before "
                        "it goes on from there"
                    )
            number, end = self.phase_at(self.step)

    def described(self):
        """A line on what is to be done, for people."""
        phases = " and ".join(
            f"{phase.steps:,} steps of {phase.batch_size:,} x {phase.sequence_length}"
            for phase in self.phases
        )
        devices = distribution.devices()
        text = f"{self.model.count_params():,} weights, {phases}, "
        text += f"{devices} device{'s' if devices > 1 else ''}"
        if self.step == self.steps:
            return text + "; all done before"
        return text + (f"; goes on from step {self.step:,}" if self.step else "")

    @property
    def steps(self):
        """Of all phases."""
        return sum(phase.steps for phase in self.phases)

    def _bar_tasks(self, bar):
        """A bar for each phase, so that it is seen from the beginning how many there are."""
        tasks, end = [], 0
        for phase in self.phases:
            end += phase.steps
            done = min(max(self.step - end + phase.steps, 0), phase.steps)
            tasks.append(
                bar.add_task(
                    f"{phase.sequence_length} positions", start=False, total=phase.steps,
                    completed=done, loss="\u2013", rate="\u2013",
                )
            )  # fmt: skip
        return tasks

    def _train(self, stream, until, meter, checkpoints):
        """Trains up to a step; returns the line of the history."""
        count = (until - self.step) * self.accumulate
        places, failures = {}, []

        def batches():  # which TensorFlow's strategies begin more than once
            drawn = itertools.islice(stream.batches(self.place), count)
            try:
                for number, (places[number], batch) in enumerate(drawn):
                    meter.take(number, batch)
                    yield batch
            except (ValueError, OSError) as error:
                failures.append(error)
                raise

        meter.start()
        try:
            history = self.trained.fit(
                _dataset(batches, stream, stream.rows),
                steps_per_epoch=count, epochs=1, shuffle=False, verbose=0, callbacks=[meter],
            ).history  # fmt: skip
        except _Diverged as error:
            self._keep_batch(stream, error, checkpoints)
        except Exception:
            if failures:  # TensorFlow says that something failed, and not what
                raise failures[0] from None
            raise
        until = self.step + meter.batches // self.accumulate
        logs = {name: values[0] for name, values in history.items()}
        record = {
            "step": until,
            "sequence_length": stream.sequence_length,
            **self._figures(logs),
            "learning_rate": keras_internals.last_learning_rate(self.trained.optimizer),
            **meter.figures(),
        }
        self.step, self.place = until, places[meter.batches - 1]
        return record

    def _figures(self, logs):
        """Keras' names and numbers; a model of one task does not put its name before them."""
        if len(self.tasks) == 1:
            (task,) = self.tasks
            logs = {"loss": logs["loss"], f"{task}_loss": logs["loss"],
                    f"{task}_accuracy": logs["accuracy"]}  # fmt: skip
        return {name: float(value) for name, value in logs.items()}

    def _eval_set(self, number, most):
        """Batches of the held-out documents, always the same; one at least."""
        # A pair takes two documents.
        if self.records.counts("eval")["documents"] < len(self.tasks):
            return []
        stream = self.stream(number, "eval")
        found: list[tuple] = []
        count = max(1, most // stream.batch_size)
        for _, batch in itertools.islice(stream.batches(epochs=1), count):
            rows = len(batch[0]["input_word_ids"])
            # What is left behind the last full batch would be a shape of its own to compile.
            if rows == stream.rows or not found and not rows % distribution.replicas():
                found.append(batch)
        return found

    def _keep_batch(self, stream, error, checkpoints):
        step = self.step + error.batch // self.accumulate + 1
        batches = stream.batches(self.place)
        _, batch = next(batch for index, batch in enumerate(batches) if index == error.batch)
        # Each process has the rows of its own devices.
        index, workers = distribution.worker()
        name = f"diverged-step-{step}" + (f"-worker-{index}" if workers > 1 else "")
        file = self.folder / f"{name}.npz"
        inputs, targets, weights = batch
        kept = f"its batch is in {file}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            np.savez(
                file,
                **inputs,
                **{f"target_{key}": value for key, value in targets.items()},
                **{f"weight_{key}": value for key, value in weights.items()},
            )
        except OSError as failure:
            kept = f"its batch could not be kept ({failure.strerror or failure})"
        raise ValueError(
            f"the loss is {error.loss} at step {step}; {kept}, and {checkpoints.newest()}; "
            f"{_ADVICE}"
        ) from None


def _dataset(batches, stream, rows):
    """What `fit` takes: on TensorFlow a `tf.data.Dataset`, else a generator.

    Args:
        batches: a function that returns an iterator over batches.
        stream: where they come from.
        rows: of each batch: a TPU's program has one shape.
    """
    if keras.backend.backend() != "tensorflow":
        # Keras takes a generator, but no other iterator.
        return (_of_outputs(batch) for batch in batches())
    import tensorflow as tf

    signature = keras.tree.map_structure(
        lambda array: tf.TensorSpec((rows, *array.shape[1:]), array.dtype),
        _of_outputs(stream.example()),
    )
    dataset = tf.data.Dataset.from_generator(
        lambda: map(_of_outputs, batches()), output_signature=signature
    )
    options = tf.data.Options()
    # Each worker's stream yields its own rows already.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.prefetch(2).with_options(options)


def _of_outputs(batch):
    """A batch as Keras wants it: for a model of one output no dict of targets."""
    inputs, *rest = batch
    return inputs, *(part if len(part) > 1 else part["masked_lm"] for part in rest)


class _Diverged(Exception):
    """The loss is no number any more."""

    def __init__(self, batch, loss):
        super().__init__(batch, loss)
        self.batch, self.loss = batch, loss


class _Meter(keras.callbacks.Callback):
    """Draws a phase, measures it, and stops a run that has gone astray or is asked to stop."""

    def __init__(self, model, stream, bar, task, accumulate, done, stop):
        super().__init__()
        config = heads.find_encoder(model).bert_config
        self._row = flops.of_sequence(
            config, stream.sequence_length, stream.predictions_in_row, stream.texts_in_row
        )
        self._stream, self._bar, self._accumulate = stream, bar, accumulate
        self._peak, self._done = None, done
        self._task, self._stop = task, stop

    def take(self, number, batch):
        """Counts the positions of a batch that are no padding."""
        mask = batch[0].get("input_mask", batch[0].get("text_ids"))
        self._tokens[number] = int(np.count_nonzero(mask))

    def start(self):
        """Begins to measure anew."""
        self._tokens, self._batch, self._loss = {}, -1, None
        self._start = self._first = self._shown = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        # The loss of the batch before: this one may still be under way on the device.
        self._look()
        self._batch, self._loss = batch, logs["loss"]
        now = time.perf_counter()
        if batch == 0:
            self._first = now  # behind the compilation
        elif now > self._shown + _RATE_SECONDS:
            self._bar.update(self._task, rate=f"{self._measured(now)[2]:,.0f}")
            self._shown = now
        if (batch + 1) % self._accumulate == 0:
            self._done += 1
            if self._stop.is_set():  # the state is that behind a whole step now
                self.model.stop_training = True

    def on_train_end(self, logs=None):
        self._look()
        self._end = time.perf_counter()

    @property
    def batches(self):
        """How many were done since `start`."""
        return self._batch + 1

    def _look(self):
        if self._loss is None:
            return
        loss = float(self._loss)  # the mean so far
        if not np.isfinite(loss):
            raise _Diverged(self._batch, loss)
        self._bar.update(self._task, completed=self._done, loss=f"{loss:.3f}")

    def _measured(self, end):
        """Batches, seconds and tokens a second, the first batch left out where there are more."""
        several = self._batch > 0
        seconds = end - (self._first if several else self._start)
        tokens = [self._tokens[number] for number in range(several, self.batches)]
        return len(tokens), seconds, sum(tokens) * distribution.worker()[1] / seconds

    def figures(self):
        """How fast it went since `start`."""
        batches, seconds, rate = self._measured(self._end)
        self._bar.update(self._task, rate=f"{rate:,.0f}")
        if self._peak is None:
            self._peak = flops.peak() * distribution.devices()
        operations = self._row * batches * self._stream.batch_size / seconds
        return {
            "seconds": round(self._end - self._start, 3),
            "tokens_per_second": round(rate, 1),
            "sequences_per_second": round(batches * self._stream.batch_size / seconds, 2),
            "flop_utilization": round(operations / self._peak, 4),
        }


def _write_history(run):
    file = run.folder / HISTORY_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in run.history)
    with atomic_write(file) as beside:
        beside.write_text(lines, encoding="utf-8")


def draw_curves(folder, history):
    """Draws losses and accuracies over the steps to `curves.png`.

    Args:
        folder: where to.
        history: from `pretrain`.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_curves(folder, [{"step": 1, "loss": 9.0, "masked_lm_accuracy": 0.1}])
    ...     pathlib.Path(folder, CURVES_FILE).stat().st_size > 1000
    True
    """
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(9, 4.5), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        names = {name: None for record in history for name in record if name.endswith(kind)}
        colors: dict[str, str] = {}
        for name in names:
            points = [(record["step"], record[name]) for record in history if name in record]
            # One colour for both parts of the documents.
            color = colors.setdefault(name.removeprefix("eval_"), f"C{len(colors)}")
            style = {"marker": "o"} if name.startswith("eval_") else {"alpha": 0.5}
            axes.plot(*zip(*points, strict=True), label=name, color=color, **style)
        for before, record in itertools.pairwise(history):
            if record.get("sequence_length") != before.get("sequence_length"):
                axes.axvline(before["step"], color="gray", linewidth=0.5)  # another phase
        axes.set(title=kind, xlabel="step")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize="small")
    with atomic_write(pathlib.Path(folder, CURVES_FILE)) as beside:
        figure.savefig(beside, format="png")


def _line(record, steps):
    """A line of the history for people."""
    text = f"step {record['step']:,} of {steps:,}: loss {record['loss']:.3f}"
    if "tokens_per_second" in record:
        text += f", {record['tokens_per_second']:,.0f} tokens/s"
        text += f", FLOP utilization {record['flop_utilization']:.2f}"
    if "eval_loss" in record:
        scores = [f"{k} {v:.3f}" for k, v in record.items() if k.startswith("eval_")]
        text += "; " + ", ".join(scores)
    return text
