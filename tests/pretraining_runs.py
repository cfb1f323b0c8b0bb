"""Tiny pretraining runs, in the tests' own process or in processes that are killed.

python -m tests.pretraining_runs killed FOLDER SEED [TIMES]
python -m tests.pretraining_runs worker RECORDS INDEX NUMBER
"""

import dataclasses
import os
import pathlib
import random
import signal
import sys
import time

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "."]


def records(folder, held_out=0.3, documents=24):
    """Make records of four shards. Each document of the corpus repeats one letter."""
    from keras_bert.pretraining.records import Records, build
    from keras_bert.text.preprocessor import Preprocessor

    folder = pathlib.Path(folder)
    draw = random.Random(0)
    letters = [PIECES[5 + number % 4] for number in range(documents)]
    texts = [
        "\n".join(" ".join(letter * draw.randint(2, 6)) + "." for _ in range(6))
        for letter in letters
    ]
    corpus = folder / "corpus.txt"
    corpus.write_text("\n\n".join(texts) + "\n")
    size = sum(map(len, texts)) // 4 + 1
    preprocessor = Preprocessor(PIECES)
    build(
        [corpus], folder / "records", preprocessor,
        held_out=held_out, shard_bytes=size, workers=1,
    )  # fmt: skip
    return Records(folder / "records")


def encoder(**options):
    """Return a `BertEncoder` of one narrow layer that learns fast."""
    import keras

    import keras_bert

    keras.utils.set_random_seed(3)
    defaults = {
        "vocab_size": len(PIECES),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 48,
        "initializer_range": 0.1,
    }
    return keras_bert.BertEncoder(**{**defaults, **options})


STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def pretrain(made, folder, model=None, steps=6, length=16, batch_size=8, phases=None, **options):
    """Pretrain with a high learning rate."""
    from keras_bert.pretraining import train

    options = {
        "learning_rate": 1e-2,
        "warmup_steps": 2,
        "log_every": 2,
        "save_every": 2,
        "eval_rows": 16,
        "show_progress": False,
        **options,
    }
    recipe = {
        field.name: options.pop(field.name)
        for field in dataclasses.fields(train.Recipe)
        if field.name in options
    }
    recipe = train.Recipe(phases or [train.Phase(steps, length, batch_size)], **recipe)
    return train.pretrain(encoder() if model is None else model, made, folder, recipe, **options)


def weights(model):
    """Return the weights as arrays."""
    import keras

    return [keras.ops.convert_to_numpy(variable) for variable in model.variables]


def figures(history):
    """Return the history without measured times, so that runs of equal settings are equal."""
    clock = ("seconds", "tokens_per_second", "sequences_per_second", "flop_utilization")
    return [{key: line[key] for key in line if key not in clock} for line in history]


def _one_mask_per_row():
    """Return phases with one masked token per row, so that means of devices average exactly."""
    from keras_bert.pretraining.train import Phase

    return [Phase(4, 16, 8, max_predictions=1)]


def _whole_run(folder, times):
    """Run with two phases, dropout, accumulation and evaluation; save weights and figures."""
    import json

    import numpy as np

    from keras_bert.pretraining.records import Records
    from keras_bert.pretraining.train import Phase

    made = Records(folder.parent / "records")
    phases = [Phase(times + 1, 16, 8), Phase(times, 24, 8)]  # at least one step between two kills
    model, history = pretrain(
        made,
        folder,
        phases=phases,
        gradient_accumulation_steps=2,
        log_every=1,
        save_every=1,
        eval_every=3,
    )
    np.savez(folder / "weights.npz", *weights(model))
    (folder / "figures.json").write_text(json.dumps(figures(history)))


def _fork(folder, times):
    process = os.fork()
    if not process:
        code = 1
        try:
            _whole_run(folder, times)
            code = 0
        except BaseException as error:
            print(repr(error), flush=True)
        os._exit(code)
    return process


def killed(folder, seed, times=4):
    """Run once undisturbed and once with repeated kills; print if both have the same result.

    The runs are forks of a process that has imported everything and computed nothing.
    """
    import numpy as np

    import keras_bert.pretraining.train  # noqa: F401
    import keras_bert.text.preprocessor  # noqa: F401

    plain, disturbed = folder / "plain", folder / "disturbed"
    start = time.monotonic()
    _, status = os.waitpid(_fork(plain, times), 0)
    assert status == 0, status
    took = time.monotonic() - start
    draw = random.Random(seed)
    kills = 0
    for _ in range(times):
        process = _fork(disturbed, times)
        checkpoints = disturbed / "checkpoints"
        before = set(checkpoints.glob("*.npz")) if checkpoints.is_dir() else set()
        limit = time.monotonic() + 3 * took
        # Each run writes a checkpoint and is killed at a random moment afterwards.
        while time.monotonic() < limit:
            found = set(checkpoints.glob("*.npz")) if checkpoints.is_dir() else set()
            if found - before:
                break
            time.sleep(0.002)
        time.sleep(draw.random() * 0.1 * draw.choice([0, 1, 3]))
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        kills += os.WIFSIGNALED(status)
    _, status = os.waitpid(_fork(disturbed, times), 0)
    assert status == 0, status
    with np.load(plain / "weights.npz") as a, np.load(disturbed / "weights.npz") as b:
        same = all(np.array_equal(a[name], b[name]) for name in a.files)
    same_figures = (plain / "figures.json").read_text() == (disturbed / "figures.json").read_text()
    print(f"kills {kills} weights {same} figures {same_figures}")


def parallel(folder, strategy, model_parallel):
    """Run on several virtual devices of JAX; print the losses and how weights are split."""
    import json

    from keras_bert.pretraining.records import Records
    from keras_bert.runtime import distribution

    made = Records(folder / "records")
    with distribution.scope(strategy, model_parallel=model_parallel) as found:
        model = encoder(**STILL)
        name = f"{strategy}-{model_parallel}-{os.getpid()}"
        phases = _one_mask_per_row()
        # With a low learning rate, because Adam amplifies rounding of tiny gradients.
        model, history = pretrain(made, folder / name, model, phases=phases, learning_rate=1e-3)
        report = {
            "loss": [line["loss"] for line in history],
            "eval_loss": [line["eval_loss"] for line in history if "eval_loss" in line],
            "replicas": distribution.replicas(),
            "devices": distribution.devices(),
            "files": sorted(file.name for file in (folder / name / "checkpoints").iterdir()),
        }
    if found is not None:
        report["split"] = {
            variable.path: list(map(str, variable.value.sharding.spec))
            for variable in model.variables
        }
    print("report " + json.dumps(report))


CONFIG = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 48,
}  # fmt: skip


def worker(folder, index, number):
    """Run as one of several processes that train together."""
    import json

    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")

    import numpy as np

    from keras_bert.pretraining.records import Records
    from keras_bert.runtime import distribution

    made = Records(folder / "records")
    with distribution.scope("multi-worker"):
        assert distribution.worker() == (index, number), distribution.worker()
        phases = _one_mask_per_row()
        options = {"phases": phases, "learning_rate": 1e-3}
        model, history = pretrain(made, folder / "workers", encoder(**STILL), **options)
        total = sum(float(np.abs(array).sum()) for array in weights(model))
        report = {
            "loss": [line["loss"] for line in history],
            "eval_loss": [line["eval_loss"] for line in history if "eval_loss" in line],
            "total": total,
        }
    # The command line without initial weights: each process initializes them.
    from keras_bert.__main__ import main

    config = folder / f"config-{index}.json"
    config.write_text(json.dumps(CONFIG))
    report["command"] = main(
        ["pretrain", "--records", str(folder / "records"), "--output", str(folder / "by-command"),
         "--config", str(config), "--strategy", "multi-worker", "--steps", "2", "--lengths", "16",
         "--batch-size", "4", "--log-every", "1", "--save-every", "2"]
    )  # fmt: skip
    print("report " + json.dumps(report))


if __name__ == "__main__":
    command, where, *rest = sys.argv[1:]
    if command == "killed":
        killed(pathlib.Path(where), *map(int, rest))
    else:
        worker(pathlib.Path(where), *map(int, rest))
