"""Pretraining: runs learn, resume bit for bit, and report errors."""

import functools
import itertools
import json
import re
import shutil
import signal

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads, optimizers, packed_heads
from keras_bert.pretraining import pretraining_run as run_module
from keras_bert.pretraining import train
from keras_bert.pretraining.pretraining_run import Feed
from keras_bert.pretraining.stream import Stream, StreamPosition
from keras_bert.pretraining.train import Phase
from keras_bert.training import engine, run_state
from tests import pretraining_runs as runs
from tests import tiny


def assert_equal(arrays, others):
    for array, other in zip(arrays, others, strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return runs.records(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def learned(records, tmp_path_factory):
    """Return a run of two phases: (model, history, folder, TensorBoard folder)."""
    folder = tmp_path_factory.mktemp("run")
    encoder = runs.encoder(hidden_size=32, initializer_range=0.2, **runs.STILL)
    model, history = runs.pretrain(
        records, folder / "mine", encoder, phases=[Phase(50, 16, 16), Phase(6, 32, 8)],
        log_every=10, save_every=25, eval_every=50, keep=2, tensorboard=folder / "board",
    )  # fmt: skip
    return model, history, folder / "mine", folder / "board"


def checkpoints(folder):
    return sorted(file.name for file in (folder / "checkpoints").iterdir())


def test_a_run_learns(learned):
    _, history, _, _ = learned
    assert [line["step"] for line in history] == [10, 20, 25, 30, 40, 50, 56]
    first, last = history[0], history[5]
    assert last["masked_lm_loss"] < first["masked_lm_loss"] / 1.5
    assert last["masked_lm_accuracy"] > max(0.5, first["masked_lm_accuracy"])
    assert last["eval_masked_lm_accuracy"] > 0.3  # of 14 tokens
    assert [line["sequence_length"] for line in history] == [16] * 6 + [32]
    assert ["eval_loss" in line for line in history] == [False] * 5 + [True] * 2


def test_history_lines(learned):
    _, history, folder, _ = learned
    for line in history:
        parts = line["masked_lm_loss"] + line["next_sentence_loss"]
        assert line["loss"] == pytest.approx(parts, rel=1e-4)
        for name in ("seconds", "tokens_per_second", "sequences_per_second", "flop_utilization"):
            assert line[name] > 0 or name == "flop_utilization", name
        most_tokens = line["sequence_length"] * line["sequences_per_second"]
        assert 0.2 * most_tokens < line["tokens_per_second"] <= 1.01 * most_tokens
    names = {name.removeprefix("eval_") for name in history[-1] if name.startswith("eval_")}
    assert names == {f"{task}_{kind}" for task in ("masked_lm", "next_sentence")
                     for kind in ("loss", "accuracy")} | {"loss"}  # fmt: skip
    lines = (folder / run_module.HISTORY_FILE).read_text().splitlines()
    assert [json.loads(line) for line in lines] == history


def test_recipes():
    phases = train.two_phases(10, 4, (64, 64), share=0.8, max_predictions=(3, 5))
    assert phases == [Phase(8, 64, 4, 3), Phase(2, 64, 4, 5)]
    assert train.two_phases(10, 4, (64, 128), 1.0, (3, 5)) == [Phase(10, 64, 4, 3)]
    # The default warm-up is at most a tenth of the steps.
    for steps, warmup_steps in ((20, 2), (10**6, 10_000)):
        assert train.Recipe([Phase(steps)]).warmup_steps == warmup_steps


def test_learning_rate_schedule_covers_both_phases(learned):
    _, history, _, _ = learned
    schedule = optimizers.WarmupLinearDecay(1e-2, total_steps=56, warmup_steps=2)
    for line in history:
        assert line["learning_rate"] == pytest.approx(float(schedule(line["step"] - 1)))


def test_files_of_a_run(learned):
    _, _, folder, board = learned
    files = {file.name for file in folder.iterdir()} - {".lock"}
    assert files == {"checkpoints", "curves.png", "history.jsonl", "model.keras"}
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert checkpoints(folder) == ["step-00000050.npz", "step-00000056.npz"]
    (events,) = board.iterdir()
    assert b"eval_masked_lm_accuracy" in events.read_bytes()


def test_model_loads_and_predicts_masked_tokens(learned):
    model, _, folder, _ = learned
    whole = keras_bert.load(folder)
    assert_equal(runs.weights(model), runs.weights(whole))
    half = keras_bert.load(folder, task="masked_tokens")
    assert heads.find_task(half) == "masked_tokens"
    assert keras_bert.pipeline(half)("b b [MASK] b b. b b b.")[0]["token"] == "b"
    pairs = keras_bert.load(folder, task="next_sentence")
    inputs = {key: np.ones((2, 16), "int32") for key in pairs.input}
    # The last layer of the two models computes different positions, so rounding differs.
    np.testing.assert_allclose(
        pairs(inputs),
        whole({**inputs, "masked_lm_positions": np.zeros((2, 1), "int32")})["next_sentence"],
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match="has the head pretraining, not tagging"):
        keras_bert.load(folder, task="tagging")


def test_finished_run_is_not_repeated(eager, learned, records, tmp_path):
    model, history, folder, _ = learned
    shutil.copytree(folder, tmp_path / "mine")
    (tmp_path / "mine" / "model.keras").unlink()  # killed after the last checkpoint
    (tmp_path / "mine" / ".model.0123abcd.keras").touch()
    encoder = runs.encoder(hidden_size=32, initializer_range=0.2, **runs.STILL)
    again, same = runs.pretrain(
        records, tmp_path / "mine", encoder, phases=[Phase(50, 16, 16), Phase(6, 32, 8)]
    )
    assert same == history
    for one in (again, keras_bert.load(tmp_path / "mine")):
        assert_equal(runs.weights(model), runs.weights(one))
    assert not (tmp_path / "mine" / ".model.0123abcd.keras").exists()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_killed_run_equals_uninterrupted_run(backend, python, records, tmp_path):
    shutil.copytree(records.folder, tmp_path / "records")
    seed = np.random.default_rng().integers(2**32)
    output = python("-m", "tests.pretraining_runs", "killed", tmp_path, seed, backend=backend)
    assert "weights True figures True" in output, (seed, output)
    assert int(output.partition("kills ")[2].split()[0]) >= 2, output


class Stop(keras.callbacks.Callback):
    """Calls a function after a number of batches."""

    def __init__(self, batches, how):
        super().__init__()
        self.left, self.how = batches, how

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            self.how()


@pytest.fixture
def after(monkeypatch, hears_ctrl_c):
    """Return a function that schedules a call after a number of batches."""
    fit = engine.fit

    def at(batches, how):
        stop = Stop(batches, how)
        monkeypatch.setattr(
            engine, "fit",
            lambda trained, data, callbacks, **options: fit(
                trained, data, [stop, *callbacks], **options
            ),
        )  # fmt: skip

    return at


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
def test_ctrl_c_saves_the_current_step(eager, after, records, tmp_path, capsys):
    options = {"phases": [Phase(4, 16, 8), Phase(4, 24, 8)], "gradient_accumulation_steps": 2}
    plain, history = runs.pretrain(records, tmp_path / "plain", **options)
    after(5, interrupt)  # the first half of the third step
    said = "stopped at step 3 of 8, which is saved"
    with pytest.raises(KeyboardInterrupt, match=said):
        runs.pretrain(records, tmp_path / "mine", **options)
    assert "stopping" in capsys.readouterr().err.lower()
    assert checkpoints(tmp_path / "mine") == ["step-00000002.npz", "step-00000003.npz"]
    # The plot and the model exist already.
    assert (tmp_path / "mine" / "curves.png").is_file()
    assert heads.find_task(keras_bert.load(tmp_path / "mine")) == "pretraining"
    after(10**9, interrupt)
    model, same = runs.pretrain(records, tmp_path / "mine", **options, show_progress=True)
    said = "4 steps of 8 x 16 and 4 steps of 8 x 24, 1 device; resuming from step 3\n"
    described = f"{model.count_params():,} weights, masked_lm and next_sentence, {said}"
    assert described in capsys.readouterr().err
    assert [line["step"] for line in same] == [2, 3, 4, 6, 8]
    # The stop added one line; the other lines are equal.
    assert runs.figures(same)[0] == runs.figures(history)[0]
    assert runs.figures(same)[3:] == runs.figures(history)[2:]
    assert_equal(runs.weights(plain), runs.weights(model))


def test_ctrl_c_between_two_steps_names_a_saved_step(
    eager, hears_ctrl_c, records, tmp_path, monkeypatch
):
    write, signals = run_module.write_history, [interrupt]

    def write_and_interrupt(run):
        write(run)
        if signals:
            signals.pop()()

    monkeypatch.setattr(run_module, "write_history", write_and_interrupt)
    with pytest.raises(KeyboardInterrupt, match="at step 2 of 6, which is saved"):
        runs.pretrain(records, tmp_path / "mine", steps=6, log_every=1, save_every=4)
    assert checkpoints(tmp_path / "mine") == ["step-00000002.npz"]


@pytest.mark.slow
def test_sigterm_in_the_last_step_completes_the_run(eager, after, records, tmp_path):
    after(6, lambda: signal.raise_signal(signal.SIGTERM))
    _, history = runs.pretrain(records, tmp_path / "mine", steps=6)
    assert history[-1]["step"] == 6
    assert (tmp_path / "mine" / "model.keras").is_file()


def run_of(records, batch_size=8, accumulate=1, seed=0):
    """Return a run of two phases, which trains nothing."""
    model = heads.pretraining(runs.encoder())
    phases = [Phase(2, 16, batch_size), Phase(2, 16, batch_size)]
    recipe = train.Recipe(phases, gradient_accumulation_steps=accumulate, seed=seed)
    return run_module.PretrainingRun(model, model, records, None, recipe, 1, 1, 1, 16, 1)


def test_evaluations_are_equal(records):
    def rows(**options):
        batches = run_of(records, **options).eval_set(0)
        return np.concatenate([inputs["input_word_ids"] for inputs, *_ in batches])

    expected = rows()
    assert len(expected) == 16
    for options in ({"batch_size": 4}, {"batch_size": 16, "accumulate": 2}, {"seed": 1}):
        np.testing.assert_array_equal(rows(**options), expected)
    assert len(rows(batch_size=32)) == min(32, len(rows(batch_size=10**4)))  # at least one batch


def test_phases_and_seeds_draw_different_texts(records):
    drawn = set()
    for seed in (0, 1):
        for phase in (0, 1):
            _, (inputs, _, _) = next(run_of(records, seed=seed).stream(phase).batches())
            drawn.add(inputs["input_word_ids"].tobytes())
    assert len(drawn) == 4


def test_model_can_be_finetuned(eager, learned):
    from keras_bert.data import tabular
    from keras_bert.training.finetuning import finetune

    examples = tabular.Examples(["a b", "b c"], labels=["yes", "no"])
    model, _ = finetune(keras_bert.load(learned[2]), examples, epochs=1, show_progress=False)
    assert heads.find_task(model) == "classification" and model.output_shape == (None, 2)


@pytest.mark.slow
def test_a_linked_folder_of_checkpoints_is_refused(eager, records, tmp_path):
    """A link in a folder of somebody else leads to another folder of the user."""
    (tmp_path / "own").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "own")
    with pytest.raises(ValueError, match="checkpoints must not be a link; delete it"):
        runs.pretrain(records, tmp_path / "run", steps=2)
    assert not list((tmp_path / "own").iterdir())


@pytest.fixture(scope="module")
def begun(records, tmp_path_factory):
    """Return the folder of a run of four steps."""
    folder = tmp_path_factory.mktemp("begun")
    with tiny.eagerly():
        runs.pretrain(records, folder, steps=4)
    return folder


@pytest.mark.parametrize(
    ("name", "options", "encoder_options"),
    [
        ("recipe.seed", {"seed": 1}, {}),
        ("recipe.phases.0.steps", {"steps": 5}, {}),
        ("recipe.packed", {"packed": True}, {}),
        ("model.hidden_size", {}, {"hidden_size": 32}),
        ("dtype", {}, {"dtype": "mixed_bfloat16"}),
    ],
)
def test_changed_settings_raise_with_their_name(
    name, options, encoder_options, eager, begun, records
):
    before = {file: file.stat().st_mtime_ns for file in begun.rglob("*")}
    encoder = runs.encoder(**encoder_options)
    with pytest.raises(ValueError, match=rf"belongs to a run with {name}=.* another folder"):
        runs.pretrain(records, begun, encoder, **{"steps": 4, **options})
    assert {file: file.stat().st_mtime_ns for file in begun.rglob("*")} == before


@pytest.mark.parametrize(
    "progress",
    [{}, {"position": 3}, {"position": ["a", 0, 0]}, {"position": [0, 0, 0], "history": [3]}],
)
def test_checkpoint_of_a_stranger_raises(eager, begun, records, tmp_path, progress):
    shutil.copytree(begun, tmp_path / "run")
    file = tmp_path / "run" / "checkpoints" / "step-00000004.npz"
    header, arrays = run_state.read(file, "delete it")
    progress = {"step": 2, "history": [], **progress}
    run_state.write(file, {**header, "progress": progress}, arrays)
    with pytest.raises(ValueError, match=r"step-00000004.npz is broken .* delete it to resume"):
        runs.pretrain(records, tmp_path / "run", steps=4)


@pytest.mark.slow
def test_learning_rate_in_history_equals_the_optimizer(eager, records, tmp_path, monkeypatch):
    def of_large_scale(optimizer, policy):
        return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**23)

    # float16 gradients overflow until the loss scale has been halved often enough.
    monkeypatch.setattr(keras_bert.optimizers, "with_loss_scale", of_large_scale)
    model, history = runs.pretrain(
        records, tmp_path / "run", runs.encoder(dtype="mixed_float16"), steps=12, warmup_steps=0,
        log_every=1,
    )  # fmt: skip
    inner = model.optimizer.inner_optimizer
    left_out = 12 - int(inner.iterations)
    assert 0 < left_out < 12
    expected = 1e-2 * (1 - (12 - left_out - 1) / 12)
    assert history[-1]["learning_rate"] == pytest.approx(expected)


@pytest.mark.parametrize("packed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_accumulated_batches_equal_one_large_batch(eager, records, tmp_path, packed):
    phases = [Phase(4, 16, 16)]  # the batches have different numbers of masked tokens
    found = []
    for accumulate in (1, 4):
        folder = tmp_path / str(accumulate)
        model, history = runs.pretrain(
            records, folder, runs.encoder(**runs.STILL), phases=phases,
            gradient_accumulation_steps=accumulate, packed=packed,
            log_every=1,
        )  # fmt: skip
        found.append((runs.weights(model), history))
        assert checkpoints(folder) == ["step-00000002.npz", "step-00000004.npz"]
        assert history[-1]["step"] == 4
    (one, a), (two, b) = found
    for key in ("step", "learning_rate", "eval_loss", "loss", "masked_lm_accuracy"):
        np.testing.assert_allclose(
            *([line[key] for line in h if key in line] for h in (a, b)), rtol=2e-4
        )
    for x, y in zip(one, two, strict=True):
        # Adam amplifies rounding of tiny gradients.
        np.testing.assert_allclose(x, y, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"packed": True, "length": 32, "dtype": "mixed_bfloat16"},
        {"whole_words": True, "optimizer": "lamb", "gradient_accumulation_steps": 2},
    ],
    ids=str,
)
def test_options_learn(options, eager, records, tmp_path):
    options = dict(options)
    encoder = runs.encoder(dtype=options.pop("dtype", None), initializer_range=0.2)
    options = {"steps": 8, "learning_rate": 2e-2, **options}
    _, history = runs.pretrain(records, tmp_path, encoder, **options)
    assert history[-1]["masked_lm_loss"] < history[0]["masked_lm_loss"]
    assert all(np.isfinite(line["eval_loss"]) for line in history)
    assert heads.find_task(keras_bert.load(tmp_path)) == "pretraining"


@pytest.mark.parametrize("packed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_masked_lm_without_next_sentence(packed, eager, records, tmp_path, capsys):
    model = heads.masked_lm(runs.encoder(type_vocab_size=1))
    model, history = runs.pretrain(records, tmp_path, model, packed=packed, show_progress=True)
    description = capsys.readouterr().err.splitlines()[0]
    assert "masked_lm" in description and "next_sentence" not in description
    assert {name for name in history[-1] if "next_sentence" in name} == set()
    for prefix in ("", "eval_"):
        assert history[-1][prefix + "masked_lm_loss"] == history[-1][prefix + "loss"]
        assert 0 <= history[-1][prefix + "masked_lm_accuracy"] <= 1
    assert heads.find_task(keras_bert.load(tmp_path, task="masked_tokens")) == "masked_tokens"


def the_batch(records, step, accumulate=1, batch_size=8):
    """Return the batches of a step."""
    stream = Stream(records, batch_size // accumulate, 16, max_predictions=None, seed=0)
    batches = (batch for _, batch in stream.batches())
    return [next(batches) for _ in range(step * accumulate)][-accumulate:]


@pytest.mark.slow
@pytest.mark.parametrize(("at", "accumulate"), [(1, 1), (4, 2)])
def test_nan_loss_raises(at, accumulate, eager, after, records, tmp_path):
    tmp_path = tmp_path / "new"
    encoder = runs.encoder()
    kernel = encoder.get_layer("pooler").dense.kernel

    def poison():
        kernel.assign(np.full(kernel.shape, np.nan))

    if at == 1:
        poison()
    else:
        after((at - 1) * accumulate, poison)
    message = rf"^the loss is nan at step {at}; its batch is in .*diverged-step-{at}.npz, and"
    with pytest.raises(ValueError, match=message):
        runs.pretrain(
            records, tmp_path, encoder, steps=8, log_every=8, save_every=2,
            gradient_accumulation_steps=accumulate,
        )  # fmt: skip
    arrays = dict(np.load(tmp_path / f"diverged-step-{at}.npz"))
    inputs, targets, weights = the_batch(records, at, accumulate)[0]
    expected = {**inputs, **{f"target_{key}": value for key, value in targets.items()},
                **{f"weight_{key}": value for key, value in weights.items()}}  # fmt: skip
    assert set(arrays) == set(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(arrays[key], value)
    assert (tmp_path / "model.keras").is_file() == (at > 2)  # of the last checkpoint


# An evaluation also checks them.
@pytest.mark.parametrize("eval_every", [pytest.param(2, marks=pytest.mark.slow), 8])
def test_nan_weights_are_not_saved(eager, after, records, tmp_path, eval_every):
    """The step before a checkpoint may produce NaN although its own loss is finite."""
    encoder = runs.encoder()
    kernel = encoder.get_layer("pooler").dense.kernel
    after(4, lambda: kernel.assign(np.full(kernel.shape, np.nan)))
    message = "^after step 4 weights are NaN or infinite: pooler/dense/kernel; the last check"
    with pytest.raises(ValueError, match=message):
        runs.pretrain(records, tmp_path, encoder, steps=8, eval_every=eval_every)
    assert checkpoints(tmp_path) == ["step-00000002.npz"]


@pytest.mark.slow
def test_no_evaluation_without_held_out_documents(eager, tmp_path):
    made = runs.records(tmp_path, held_out=0)
    _, history = runs.pretrain(made, tmp_path / "run", steps=2)
    assert [name for name in history[0] if name.startswith("eval_")] == []
    assert (tmp_path / "run" / "curves.png").is_file()


def cased():
    return runs.encoder(preprocessor=keras_bert.Preprocessor(runs.PIECES, lowercase=False))


def with_other_vocabulary():
    return runs.encoder(preprocessor=keras_bert.Preprocessor([*runs.PIECES[:-1], "!"]))


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (runs.encoder, {"optimizer": "sgd"}, "optimizer must be one of adamw, lamb; .*'sgd'"),
        (runs.encoder, {"gradient_accumulation_steps": 3}, "steps x devices, 3 x 1"),
        (runs.encoder, {"warmup_steps": 7}, "warmup_steps between 0 and total_steps"),
        (runs.encoder, {"warmup_steps": 0.1}, "warmup_steps must be an integer of at least 0"),
        (runs.encoder, {"weight_decay": -0.1}, "weight_decay must be at least 0"),
        (runs.encoder, {"keep": 0}, "keep must be an integer of at least 1; received 0"),
        (runs.encoder, {"eval_rows": 0}, "eval_rows must be an integer of at least 1"),
        (runs.encoder, {"length": 64}, "at most max_position_embeddings=48; received 64"),
        (with_other_vocabulary, {}, "records were made with another vocabulary"),
        (cased, {}, "with lowercase=True; received False; use"),
        (lambda: runs.encoder(vocab_size=9), {}, "vocab_size"),
        (lambda: runs.encoder(type_vocab_size=1), {}, "type_vocab_size=2 or more; received 1"),
        (lambda: keras.Sequential([keras.Input((2,))]), {}, "must hold one BertEncoder"),
        (lambda: heads.classifier(runs.encoder(), 2), {}, "received 'classifier'"),
    ],
)
def test_invalid_arguments_raise(make, options, message, records, tmp_path):
    with pytest.raises(ValueError, match=message):
        runs.pretrain(records, tmp_path / "run", make(), **options)
    assert not (tmp_path / "run").exists()


def test_a_model_that_is_no_run_is_not_replaced(eager, records, tmp_path):
    keras_bert.save(runs.encoder(), tmp_path)
    before = (tmp_path / "model.keras").read_bytes()
    with pytest.raises(ValueError, match="contains a model, but no checkpoint"):
        runs.pretrain(records, tmp_path, steps=2)
    assert (tmp_path / "model.keras").read_bytes() == before


@pytest.mark.slow
def test_second_process_in_the_folder_raises(eager, records, tmp_path):
    import filelock

    folder = tmp_path / "run"
    folder.mkdir()
    message = f"^{re.escape(str(folder))}: another process is training"
    with filelock.FileLock(folder / ".lock"), pytest.raises(ValueError, match=message):
        runs.pretrain(records, folder)
    runs.pretrain(records, folder)


@pytest.mark.slow
def test_each_window_is_read_once(records, tmp_path, monkeypatch):
    """Pauses to log and to evaluate do not repeat the reading."""
    monkeypatch.setattr(
        run_module, "Stream", functools.partial(run_module.Stream, shards_in_memory=1)
    )
    read = []
    plain = records.read
    monkeypatch.setattr(records, "read", lambda names: (read.append(names), plain(names))[1])
    runs.pretrain(records, tmp_path, steps=12, log_every=1, save_every=6)
    trained = [names for names in read if names[0].startswith("train")]
    assert len(trained) > len(records.shards()), "expected more than an epoch"
    count = len(records.shards())
    for start in range(0, len(trained), count):
        epoch = [name for names in trained[start : start + count] for name in names]
        assert len(set(epoch)) == len(epoch), trained


@pytest.mark.slow
def test_broken_shard_is_named(records, tmp_path):
    """TensorFlow's error does not contain the cause."""
    made = type(records)(shutil.copytree(records.folder, tmp_path / "records"))
    for name in made.shards():
        (made.folder / name).write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"^.*train-\d+\.tfrecord is missing or has changed"):
        runs.pretrain(made, tmp_path / "run")


class _Clock:
    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now


@pytest.mark.parametrize("packed", [False, True])
def test_measured_speed(packed, records, monkeypatch):
    """Four batches of 8 rows take 2 s each, after a first batch of 10 s."""
    from keras_bert.runtime.terminal import progress
    from keras_bert.training import flops

    clock = _Clock()
    monkeypatch.setattr(run_module, "time", clock)
    monkeypatch.setattr(flops, "peak", lambda: 1e9)
    model = heads.pretraining(runs.encoder())
    stream = Stream(records, 8, 16, packed=packed)
    feed = Feed(stream, StreamPosition(), 5)
    recipe = train.Recipe([Phase(5, 16, 8)])
    run = run_module.PretrainingRun(model, model, records, None, recipe, 1, 1, 1, 1, 1)
    tokens = []
    with progress(show=False) as bar:
        meter = run_module.Meter(run, feed, bar, bar.add_task("", total=5, loss="", rate=""), 0)
        meter.on_train_begin()
        for number, (_, batch) in enumerate(itertools.islice(stream.batches(), 5)):
            clock.now += 2.0 if number else 10.0
            tokens.append(int((batch[0]["input_word_ids"] != 0).sum()))
            feed.tokens[number] = tokens[-1]
            meter.on_train_batch_end(number, {"loss": 1.0})
    row = flops.of_sequence(
        runs.encoder().bert_config, 16, stream.predictions_in_row, stream.texts_in_row
    )
    assert (
        meter.figures()
        == {  # without the first batch, which includes the compilation
            "seconds": 18.0,
            "tokens_per_second": round(sum(tokens[1:]) / 8, 1),
            "sequences_per_second": 4.0,
            "flop_utilization": round(row * 4 / 1e9, 4),
        }
    )


def compiler_ir(model, batch):
    import tensorflow as tf

    model.compile(optimizers.adamw(1e-3, total_steps=9), jit_compile=False)
    train.compile_model(model, optimizers.adamw(1e-3, total_steps=9))
    inputs, targets, weights = keras.tree.map_structure(tf.constant, batch)
    model._symbolic_build(data_batch=(inputs, targets, weights))
    step = tf.function(lambda *data: model.train_step(data), jit_compile=True)
    return step.experimental_get_compiler_ir(inputs, targets, weights)(stage="hlo")


def check_hlo(text):
    assert "f32[" in text
    # "[<=8]" is a dynamic dimension. XLA compiles these for a CPU; a TPU pads or rejects them.
    for sign in ("[<=", "SetDimensionSize", "set-dimension-size", "outfeed", "infeed", "send(",
                 "PyFunc", "xla_python_cpu_callback", "host_callback"):  # fmt: skip
        assert sign not in text, sign


@pytest.mark.parametrize("packed", [False, True])
def test_step_has_static_shapes_and_no_host_calls(packed, records):
    model = heads.pretraining(runs.encoder())
    if packed:
        model = packed_heads.packed_pretraining(model)
    _, batch = next(Stream(records, 8, 16, packed=packed).batches())
    check_hlo(compiler_ir(model, batch))
