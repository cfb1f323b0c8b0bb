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


def test_two_phases():
    phases = train.two_phases(10, 4, (64, 64), share=0.8, max_predictions=(3, 5))
    assert phases == [Phase(8, 64, 4, 3), Phase(2, 64, 4, 5)]
    assert train.two_phases(10, 4, (64, 128), 1.0, (3, 5)) == [Phase(10, 64, 4, 3)]


def test_learning_rate_schedule_covers_both_phases(learned):
    _, history, _, _ = learned
    schedule = optimizers.WarmupLinearDecay(1e-2, total_steps=56, warmup_steps=2)
    for line in history:
        assert line["learning_rate"] == pytest.approx(float(schedule(line["step"] - 1)))


def test_files_of_a_run(learned):
    _, _, folder, board = learned
    assert sorted(file.name for file in folder.iterdir() if file.name != ".lock") == [
        "checkpoints", "curves.png", "history.jsonl", "model.keras",
    ]  # fmt: skip
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert checkpoints(folder) == ["step-00000050.npz", "step-00000056.npz"]
    (events,) = board.iterdir()
    assert b"eval_masked_lm_accuracy" in events.read_bytes()


def test_model_loads_and_predicts_masked_tokens(learned, capsys):
    from keras_bert.__main__ import main

    model, _, folder, _ = learned
    whole = keras_bert.load(folder)
    assert_equal(runs.weights(model), runs.weights(whole))
    half = keras_bert.load(folder, task="masked_tokens")
    assert heads.find_task(half) == "masked_tokens"
    assert keras_bert.pipeline(half)("b b [MASK] b b. b b b.")[0]["token"] == "b"
    assert main(["fill", str(folder), "c c [MASK] c c.", "--top", "1"]) == 0
    assert capsys.readouterr().out.split("\t")[1] == "c"
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
    encoder = runs.encoder(hidden_size=32, initializer_range=0.2, **runs.STILL)
    again, same = runs.pretrain(
        records, tmp_path / "mine", encoder, phases=[Phase(50, 16, 16), Phase(6, 32, 8)]
    )
    assert same == history
    for one in (again, keras_bert.load(tmp_path / "mine")):
        assert_equal(runs.weights(model), runs.weights(one))


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
def after(monkeypatch):
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

    # A test run that a shell starts in the background ignores Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield at
    signal.signal(signal.SIGINT, before)


class Crash(Exception):
    pass


def crash():
    raise Crash


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
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
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


def test_ctrl_c_between_two_steps_names_a_saved_step(eager, records, tmp_path, monkeypatch):
    write, signals = run_module.write_history, [interrupt]

    def write_and_interrupt(run):
        write(run)
        if signals:
            signals.pop()()

    monkeypatch.setattr(run_module, "write_history", write_and_interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt, match="at step 2 of 6, which is saved"):
            runs.pretrain(records, tmp_path / "mine", steps=6, log_every=1, save_every=4)
    finally:
        signal.signal(signal.SIGINT, before)
    assert checkpoints(tmp_path / "mine") == ["step-00000002.npz"]


@pytest.mark.slow
def test_sigterm_in_the_last_step_completes_the_run(eager, after, records, tmp_path):
    after(6, lambda: signal.raise_signal(signal.SIGTERM))
    _, history = runs.pretrain(records, tmp_path / "mine", steps=6)
    assert history[-1]["step"] == 6
    assert (tmp_path / "mine" / "model.keras").is_file()


@pytest.mark.slow
def test_evaluation_rows_do_not_depend_on_the_batch_size(eager, records, tmp_path):
    model = keras_bert.heads.pretraining(runs.encoder())

    def rows(batch_size, accumulate):
        recipe = train.Recipe([Phase(1, 16, batch_size)], gradient_accumulation_steps=accumulate)
        run = run_module.PretrainingRun(
            model, model, records, tmp_path, recipe, 1, 1, 1, eval_rows=16, keep=1
        )
        batches = run.eval_set(0)
        return np.concatenate([inputs["input_word_ids"] for inputs, *_ in batches])

    assert len(rows(8, 1)) == 16
    for other in ((4, 1), (16, 1), (16, 2)):
        np.testing.assert_array_equal(rows(*other), rows(8, 1))
    assert len(rows(32, 1)) == min(32, len(rows(10**4, 1)))  # at least one batch


@pytest.mark.slow
def test_phases_differ_and_evaluations_are_equal(eager, records, tmp_path, monkeypatch):
    drawn = []

    class RecordedStream(Stream):
        def batches(self, position=None, epochs=None):
            for after, batch in super().batches(position, epochs):
                drawn.append((self.split == "train", position, batch[0]["input_word_ids"]))
                yield after, batch

    monkeypatch.setattr(run_module, "Stream", RecordedStream)
    phases = [Phase(2, 16, 8), Phase(2, 16, 8)]
    for seed in (0, 1):
        runs.pretrain(records, tmp_path / str(seed), phases=phases, seed=seed)
    trained = [(position, ids) for training, position, ids in drawn if training]
    firsts = [ids for position, ids in trained if position == StreamPosition()]
    assert len(firsts) >= 4 * 2  # each phase begins at the first position and has two batches
    found = {ids.tobytes() for ids in firsts}
    assert len(found) == 8
    evaluated = [ids for training, _, ids in drawn if not training]
    half = len(evaluated) // 4  # one phase of one run
    for run in range(1, 4):
        assert_equal(evaluated[:half], evaluated[run * half :][:half])


def test_unrelated_model_is_not_replaced(eager, records, tmp_path):
    keras_bert.save(runs.encoder(), tmp_path)
    before = (tmp_path / "model.keras").read_bytes()
    with pytest.raises(ValueError, match="contains a model, but no checkpoint"):
        runs.pretrain(records, tmp_path, steps=2)
    assert (tmp_path / "model.keras").read_bytes() == before


def test_stale_temporary_files_are_deleted(eager, records, tmp_path):
    (tmp_path / ".model.0123abcd.keras").touch()
    runs.pretrain(records, tmp_path, steps=2)
    assert not (tmp_path / ".model.0123abcd.keras").exists()


def test_model_can_be_finetuned(eager, learned):
    from keras_bert.data import tabular
    from keras_bert.training.finetuning import finetune

    examples = tabular.Examples(["a b", "b c"], labels=["yes", "no"])
    model, _ = finetune(keras_bert.load(learned[2]), examples, epochs=1, show_progress=False)
    assert heads.find_task(model) == "classification" and model.output_shape == (None, 2)


def test_pairs_need_two_token_types(eager, records, tmp_path):
    with pytest.raises(ValueError, match="type_vocab_size=2 or more; received 1"):
        runs.pretrain(records, tmp_path, runs.encoder(type_vocab_size=1), steps=2)
    alone = heads.masked_lm(runs.encoder(type_vocab_size=1))
    runs.pretrain(records, tmp_path, alone, steps=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "progress",
    [{}, {"position": 3}, {"position": ["a", 0, 0]}, {"position": [0, 0, 0], "history": [3]}],
)
def test_checkpoint_of_a_stranger_raises(eager, records, tmp_path, progress):
    runs.pretrain(records, tmp_path / "run", steps=2)
    (file,) = (tmp_path / "run" / "checkpoints").iterdir()
    header, arrays = run_state.read(file, "delete it")
    progress = {"step": 2, "history": [], **progress}
    run_state.write(file, {**header, "progress": progress}, arrays)
    with pytest.raises(ValueError, match=r"step-00000002.npz is broken .* delete it to resume"):
        runs.pretrain(records, tmp_path / "run", steps=2)


@pytest.mark.slow
def test_a_linked_folder_of_checkpoints_is_refused(eager, records, tmp_path):
    """A link in a folder of somebody else leads to another folder of the user."""
    (tmp_path / "own").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "own")
    with pytest.raises(ValueError, match="checkpoints must not be a link; delete it"):
        runs.pretrain(records, tmp_path / "run", steps=2)
    assert not list((tmp_path / "own").iterdir())


CHANGES = {
    "recipe.seed": {"seed": 1},
    "recipe.phases.0.steps": {"steps": 5},
    "recipe.weight_decay": {"weight_decay": 0.1},
    "recipe.packed": {"packed": True},
    "model.hidden_size": {"model": {"hidden_size": 32}},
    "dtype": {"model": {"dtype": "mixed_bfloat16"}},
}


@pytest.fixture(scope="module")
def begun(records, tmp_path_factory):
    """Return the folder of a run of four steps."""
    from tests import tiny

    folder = tmp_path_factory.mktemp("begun")
    with tiny.eagerly():
        runs.pretrain(records, folder, steps=4)
    return folder


@pytest.mark.parametrize("name", CHANGES)
def test_changed_settings_raise_with_their_name(name, eager, begun, records):
    before = {file: file.stat().st_mtime_ns for file in begun.rglob("*")}
    options = {"steps": 4, **CHANGES[name]}
    encoder = runs.encoder(**options.pop("model", {}))
    with pytest.raises(ValueError, match=rf"belongs to a run with {name}=.* another folder"):
        runs.pretrain(records, begun, encoder, **options)
    assert {file: file.stat().st_mtime_ns for file in begun.rglob("*")} == before


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
        {"optimizer": "lamb"},
        {"packed": True, "length": 32},
        {"whole_words": True},
        {"dtype": "mixed_bfloat16"},
        {"optimizer": "lamb", "gradient_accumulation_steps": 2, "packed": True},
    ],
    ids=str,
)
def test_options_learn_and_resume(options, eager, after, records, tmp_path):
    options = dict(options)
    made = {"dtype": options.pop("dtype", None), "initializer_range": 0.2}
    options = {"steps": 8, "learning_rate": 2e-2, **options}
    plain, history = runs.pretrain(records, tmp_path / "plain", runs.encoder(**made), **options)
    assert history[-1]["masked_lm_loss"] < history[0]["masked_lm_loss"]
    assert all(np.isfinite(line["eval_loss"]) for line in history)
    # An exception, because Ctrl-C would save a checkpoint.
    after(5, crash)
    with pytest.raises(Crash):
        runs.pretrain(records, tmp_path / "mine", runs.encoder(**made), **options)
    after(10**9, crash)
    model, same = runs.pretrain(records, tmp_path / "mine", runs.encoder(**made), **options)
    assert runs.figures(same) == runs.figures(history)
    for a, b in zip(runs.weights(plain), runs.weights(model), strict=True):
        assert a.tobytes() == b.tobytes()
    assert heads.find_task(keras_bert.load(tmp_path / "mine")) == "pretraining"


@pytest.mark.parametrize("packed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_masked_lm_without_next_sentence(packed, eager, records, tmp_path, capsys):
    model = heads.masked_lm(runs.encoder())
    model, history = runs.pretrain(records, tmp_path, model, packed=packed, show_progress=True)
    description = capsys.readouterr().err.splitlines()[0]
    assert "masked_lm" in description and "next_sentence" not in description
    assert {name for name in history[-1] if "next_sentence" in name} == set()
    for prefix in ("", "eval_"):
        assert history[-1][prefix + "masked_lm_loss"] == history[-1][prefix + "loss"]
        assert 0 <= history[-1][prefix + "masked_lm_accuracy"] <= 1
    assert heads.find_task(keras_bert.load(tmp_path, task="masked_tokens")) == "masked_tokens"


def diverged(folder):
    (file,) = folder.glob("diverged-step-*.npz")
    with np.load(file) as arrays:
        return int(file.stem.rpartition("-")[2]), dict(arrays)


def the_batch(records, step, accumulate=1, batch_size=8):
    """Return the batches of a step."""
    stream = Stream(records, batch_size // accumulate, 16, max_predictions=None, seed=0)
    batches = (batch for _, batch in stream.batches())
    return [next(batches) for _ in range(step * accumulate)][-accumulate:]


@pytest.mark.slow
@pytest.mark.parametrize(("at", "accumulate"), [(1, 1), (4, 1), (4, 2)])
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
            records,
            tmp_path,
            encoder,
            steps=8,
            log_every=8,
            save_every=2,
            gradient_accumulation_steps=accumulate,
        )
    step, arrays = diverged(tmp_path)
    assert step == at
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


def test_invalid_arguments_raise(eager, records, tmp_path):
    def refused(message, model=None, **options):
        with pytest.raises(ValueError, match=message):
            runs.pretrain(records, tmp_path / "none", model, **options)

    refused("^optimizer must be one of adamw, lamb; received 'sgd'$", optimizer="sgd")
    refused("gradient_accumulation_steps x devices, 3 x 1", gradient_accumulation_steps=3)
    refused("warmup_steps between 0 and total_steps", warmup_steps=7)
    for option in ("keep", "log_every", "save_every", "eval_every", "eval_rows"):
        refused(f"{option} must be an integer of at least 1; received 0", **{option: 0})
    refused("at most max_position_embeddings=48; received 64$", length=64)
    other = keras_bert.Preprocessor([*runs.PIECES[:-1], "!"])
    refused("records were made with another vocabulary", runs.encoder(preprocessor=other))
    cased = keras_bert.Preprocessor(runs.PIECES, lowercase=False)
    refused("with lowercase=True; received False; use", runs.encoder(preprocessor=cased))
    refused("must hold one BertEncoder", keras.Sequential([keras.Input((2,))]))
    refused("received 'classifier'", heads.classifier(runs.encoder(), 2))
    assert not (tmp_path / "none").exists()


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


@pytest.mark.parametrize(
    ("phases", "options", "message"),
    [
        ([], {}, "phases must have at least one Phase"),
        ([Phase(9)], {"warmup_steps": 0.1}, "warmup_steps must be an integer of at least 0"),
        ([Phase(9)], {"weight_decay": -0.1}, "weight_decay must be at least 0"),
    ],
)
def test_invalid_recipes_raise(phases, options, message):
    with pytest.raises(ValueError, match=message):
        train.Recipe(phases, **options)


@pytest.mark.parametrize(("steps", "expected"), [(20, 2), (10**6, 10_000)])
def test_default_warmup_is_at_most_a_tenth(steps, expected):
    assert train.Recipe([Phase(steps)]).warmup_steps == expected


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
    with progress(show=False) as bar:
        task = bar.add_task("", total=5, loss="", rate="")
        recipe = train.Recipe([Phase(5, 16, 8)])
        run = run_module.PretrainingRun(model, model, records, None, recipe, 1, 1, 1, 1, 1)
        measured = run_module.Meter(run, feed, bar, task, 0)
        measured.on_train_begin()
        tokens, shown = [], []
        for number, (_, batch) in enumerate(itertools.islice(stream.batches(), 5)):
            clock.now += 2.0 if number else 10.0
            ids = batch[0]["input_word_ids"]
            tokens.append(int((ids != 0).sum()))
            feed.tokens[number] = tokens[-1]
            measured.on_train_batch_end(number, {"loss": 1.0})
            shown.append(bar.tasks[task].fields["rate"])
        found = measured.figures()
    row = flops.of_sequence(
        runs.encoder().bert_config, 16, stream.predictions_in_row, stream.texts_in_row
    )
    assert shown[0] == ""  # the first batch includes the compilation
    for number in range(1, 5):  # during the run
        assert shown[number] == f"{sum(tokens[1 : number + 1]) / (2 * number):,.0f}"
    assert found == {
        "seconds": 18.0,
        "tokens_per_second": round(sum(tokens[1:]) / 8, 1),
        "sequences_per_second": 4.0,
        "flop_utilization": round(row * 4 / 1e9, 4),
    }


@pytest.mark.slow
def test_float16_trains_with_a_scaled_loss(eager, records, tmp_path):
    model, history = runs.pretrain(records, tmp_path, runs.encoder(dtype="mixed_float16"))
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert all(np.isfinite(line["loss"]) for line in history)
    assert history[-1]["learning_rate"] == pytest.approx(0.0025)
    _, same = runs.pretrain(records, tmp_path, runs.encoder(dtype="mixed_float16"))
    assert same == history


def test_vocab_size_below_the_vocabulary_raises(eager, records, tmp_path):
    with pytest.raises(ValueError, match="vocab_size"):
        runs.pretrain(records, tmp_path, runs.encoder(vocab_size=9))


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
