"""Strategies: errors for missing devices, and equal results on one and on several devices."""

import json
import os
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_bert.runtime import distribution
from tests import conftest
from tests import pretraining_runs as runs

if keras.backend.backend() != "tensorflow":
    pytest.skip("other backends run in subprocesses", allow_module_level=True)


@pytest.fixture(autouse=True)
def no_cloud(monkeypatch):
    """Remove variables of clouds and clusters from the environment."""
    for name in ("TPU_NAME", "COLAB_TPU_ADDR", "COLAB_RELEASE_TAG", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return runs.records(tmp_path_factory.mktemp("corpus"))


def enter(name, **options):
    with distribution.scope(name, **options) as strategy:
        return strategy


UNKNOWN = "must be one of auto, one-device, mirrored, multi-worker, tpu, or tpu:NAME; received"


@pytest.mark.parametrize(
    ("name", "model_parallel", "message"),
    [
        ("gpu", 1, UNKNOWN),
        ("mirrored:2", 1, UNKNOWN),
        ("multi-worker", 1, "^Keras 3 cannot train with TensorFlow's multi-worker"),
        ("mirrored", 2, "^model_parallel needs several devices and KERAS_BACKEND"),
    ],
)
def test_strategies_that_do_not_exist_are_errors(name, model_parallel, message):
    with pytest.raises(ValueError, match=message):
        enter(name, model_parallel=model_parallel)


def test_one_device():
    import tensorflow as tf

    for name in ("one-device", "auto"):
        with distribution.scope(name) as strategy:
            assert strategy is None and not tf.distribute.has_strategy()
            assert (distribution.replicas(), distribution.devices()) == (1, 1)
            assert distribution.worker() == (0, 1)
            assert distribution.supports_jit_compile()


def test_mirrored():
    import tensorflow as tf

    with distribution.scope("mirrored") as strategy:
        assert isinstance(strategy, tf.distribute.MirroredStrategy)
        assert tf.distribute.get_strategy() is strategy
        assert distribution.replicas() == 1
        assert distribution.worker() == (0, 1)
        assert not distribution.supports_jit_compile()
    assert not tf.distribute.has_strategy()


@pytest.mark.parametrize("name", ["one-device", "auto", "mirrored"])
def test_a_scope_within_a_strategy_of_tensorflow_is_an_error(name):
    message = "cannot be entered while MirroredStrategy is active; leave its scope"
    with distribution.scope("mirrored"), pytest.raises(ValueError, match=message):
        enter(name)


@pytest.mark.parametrize("environment", [{}, {"TPU_NAME": "local"}])
def test_missing_tpu_is_an_error(environment, monkeypatch):
    if distribution._has_tpu_chip():
        pytest.skip("this machine has a TPU")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("tpu", "auto") if environment else ("tpu", "tpu:local"):
        with pytest.raises(ValueError, match="no TPU; name a Cloud TPU with tpu:NAME or TPU_NAME"):
            enter(name)


def test_a_tpu_that_cannot_be_reached_is_an_error(monkeypatch):
    import tensorflow as tf

    def resolver(tpu):
        raise ValueError(f"Could not lookup TPU metadata from name '{tpu}'.\nMore of it.")

    def connect(resolver):
        tf.raw_ops.ConfigureDistributedTPU()  # which a TensorFlow for CPUs lacks

    resolvers = tf.distribute.cluster_resolver
    monkeypatch.setenv("TPU_NAME", "mine")
    monkeypatch.setattr(resolvers, "TPUClusterResolver", resolver)
    for name in ("tpu:mine", "auto"):
        with pytest.raises(ValueError, match="^the TPU 'mine' cannot be reached: Could not lookup"):
            enter(name)
    monkeypatch.setattr(resolvers, "TPUClusterResolver", lambda tpu: tpu)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", connect)
    with pytest.raises(ValueError, match="ConfigureDistributedTPU.* KERAS_BACKEND=jax"):
        enter("tpu:mine")


@pytest.mark.parametrize("variable", ["COLAB_TPU_ADDR", "COLAB_RELEASE_TAG"])
def test_tensorflow_on_a_tpu_in_colab_is_an_error(variable, monkeypatch):
    monkeypatch.setenv(variable, "10.0.0.1:8470")
    with pytest.raises(ValueError, match=r"Colab's TPU runtime .* set KERAS_BACKEND=jax before"):
        enter("tpu")


FLAG = "--xla_force_host_platform_device_count="
JAX = f"""
import os
os.environ["XLA_FLAGS"] = "{FLAG}4"
import jax, keras
from keras_bert.runtime import distribution as d

def say(name, **options):
    try:
        with d.scope(name, **options) as strategy:
            print(name, options, type(strategy).__name__, d.replicas(), d.devices(), d.worker(),
                  d.supports_jit_compile())
    except ValueError as error:
        print(name, options, error)

for name in ("one-device", "auto", "mirrored", "tpu", "tpu:mine"):
    say(name)
say("mirrored", model_parallel=3)
say("mirrored", model_parallel=2)
say("one-device", model_parallel=2)
say("multi-worker")
for variable in ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID"):
    os.environ[variable] = "two"
    say("multi-worker")
    del os.environ[variable]
assert keras.distribution.distribution() is None

outer = keras.distribution.DataParallel(auto_shard_dataset=False)
keras.distribution.set_distribution(outer)
with d.scope("one-device") as strategy:
    assert strategy is None
    assert d.replicas() == 1
    with d.scope("mirrored"):
        assert d.replicas() == 4
    assert d.replicas() == 1
assert keras.distribution.distribution() is outer
keras.distribution.set_distribution(None)
jax.process_count = lambda: 2
say("mirrored", model_parallel=4)
"""


def test_strategies_on_jax(python, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    output = python("-c", JAX, backend="jax")
    for expected in (
        "one-device {} NoneType 1 1 (0, 1) True",
        "auto {} DataParallel 4 4 (0, 1) True",
        "mirrored {} DataParallel 4 4 (0, 1) True",
        "tpu {} JAX sees no TPU, only cpu; pip install 'jax[tpu]' on a machine with a TPU",
        "tpu:mine {} tpu:mine is a name for TensorFlow; with JAX, run the program on the TPU's own "
        "VM and use tpu",
        "mirrored {'model_parallel': 3} model_parallel must divide the 4 devices",
        "mirrored {'model_parallel': 2} ModelParallel 2 4 (0, 1) True",
        "one-device {'model_parallel': 2} model_parallel needs several devices",
        "multi-worker {} multi-worker cannot start: ",
        "multi-worker {} the environment variable JAX_NUM_PROCESSES must be an integer",
        "multi-worker {} the environment variable JAX_PROCESS_ID must be an integer",
        "mirrored {'model_parallel': 4} model_parallel must divide the 4 devices of one machine",
    ):
        assert f"\n{expected}" in f"\n{output}", (expected, output)


def test_processes_that_resume_from_different_steps_are_an_error(monkeypatch):
    from jax.experimental import multihost_utils

    distribution.check_same_step(3)
    monkeypatch.setattr(distribution, "worker", lambda: (0, 2))
    for numbers, is_right in (([4, 4], True), ([4, 0], False)):
        monkeypatch.setattr(
            multihost_utils, "process_allgather", lambda number, found=numbers: np.array(found)
        )
        if is_right:
            distribution.check_same_step(4)
            continue
        with pytest.raises(ValueError, match=r"different steps, \[4, 0\]; use a folder"):
            distribution.check_same_step(4)


@pytest.mark.slow
def test_gradient_accumulation_under_mirrored_is_an_error(records, tmp_path):
    message = "cannot accumulate gradients under MirroredStrategy; "
    with distribution.scope("mirrored"), pytest.raises(ValueError, match=message):
        runs.pretrain(records, tmp_path, gradient_accumulation_steps=2)


def reports(output):
    lines = [line.partition("report ")[2] for line in output.splitlines() if "report {" in line]
    return [json.loads(line) for line in lines]


# Pairs of strategy and model_parallel, with four devices. One process runs both to save time.
ON_JAX = (("one-device", 1), ("mirrored", 2))


@pytest.fixture(scope="module")
def on_jax(records, python):
    """Reports of runs on JAX by (strategy, model_parallel)."""
    code = (
        f"import os, pathlib; os.environ['XLA_FLAGS'] = '{FLAG}4'\n"
        "from tests import pretraining_runs as runs\n"
        f"for strategy, model_parallel in {ON_JAX}:\n"
        f"    runs.parallel(pathlib.Path({str(records.folder.parent)!r}), strategy, "
        "model_parallel)"
    )
    found = reports(python("-c", code, backend="jax"))
    return dict(zip(ON_JAX, found, strict=True))


def check_same(found, expected):
    for name in ("loss", "eval_loss"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4)
    assert found["files"] == ["step-00000002.npz", "step-00000004.npz"]


@pytest.mark.slow
def test_model_parallel_on_jax_matches_one_device(on_jax):
    found = on_jax["mirrored", 2]
    assert (found["replicas"], found["devices"]) == (2, 4)
    check_same(found, on_jax["one-device", 1])
    split = {path: tuple(axes) for path, axes in found["split"].items() if "model" in axes}
    block = "layer_0/"
    assert split == {
        block + "attention/output/kernel": ("model", "None"),
        block + "intermediate/kernel": ("None", "model"),
        block + "intermediate/bias": ("model",),
        block + "output/kernel": ("model", "None"),
    }


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


@pytest.mark.slow
def test_two_processes_match_one(on_jax, records):
    """Each process gets half of the rows of each batch."""
    command = [sys.executable, "-m", "tests.pretraining_runs", "worker", records.folder.parent]
    environment = {**os.environ, "KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "3",
                   "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "true",
                   "JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}",
                   "JAX_NUM_PROCESSES": "2"}  # fmt: skip
    environment.pop("XLA_FLAGS", None)
    workers = [
        subprocess.Popen(
            [*map(str, command), str(index), "2"],
            cwd=conftest.ROOT, env=environment | {"JAX_PROCESS_ID": str(index)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for index in range(2)
    ]  # fmt: skip
    try:
        outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for worker, output in zip(workers, outputs, strict=True):
        assert worker.returncode == 0, output
    found = [reports(output)[0] for output in outputs]
    one = on_jax["one-device", 1]
    assert found[0]["total"] == found[1]["total"]
    assert [report["command"] for report in found] == [0, 0]
    files = sorted(file.name for file in (records.folder.parent / "by-command").iterdir())
    assert [name for name in files if name != ".lock"] == [
        "checkpoints", "curves.png", "history.jsonl", "model.keras",
    ]  # fmt: skip
    for name in ("loss", "eval_loss"):
        assert found[0][name] == found[1][name]
        assert found[0][name] == pytest.approx(one[name], rel=1e-4)


COMPILE = """
import sys
sys.path.insert(0, "benchmarks")
import tpu_compile
if sys.argv[1] == "tpu":
    devices = tpu_compile.chips_of()
else:
    import jax
    devices = jax.devices("cpu")
assert len(devices) == 4
cases = [tpu_compile.Case("tiny", 128, 64, packed=packed) for packed in (False, True)]
tasks = ("texts", "tags", "questions", "embeddings")
cases += [tpu_compile.Case("tiny", 128, 64, task) for task in tasks]
for case in cases:
    compiled, operations = tpu_compile.compile_step(case, devices)
    chip = tpu_compile.CHIPS["v5e"]
    assert tpu_compile.needed(compiled) < chip.memory
    assert all(0 < seconds < 1 for seconds in tpu_compile.roofline(compiled, chip))
    assert operations > 0
    # No shape depends on the data.
    assert "[<=" not in compiled.as_text()
    if case.task != "embeddings":
        # Only losses and gradients are summed: no device reads the rows of another.
        assert set(tpu_compile.collectives(compiled)) == {"all-reduce"}, compiled.as_text()
    else:
        # Each device compares its texts with those of all devices.
        assert "all-gather" in tpu_compile.collectives(compiled)
"""


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_the_steps_compile_for_four_devices(platform):
    python = sys.executable
    if platform == "tpu":
        python = os.environ.get("KERAS_BERT_TPU_PYTHON") or pytest.skip("needs jax with libtpu")
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(conftest.ROOT)}
    result = subprocess.run(
        [python, "-c", COMPILE, platform],
        cwd=conftest.ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_tpu_is_initialized(monkeypatch):
    import tensorflow as tf

    done = []
    monkeypatch.setattr(
        tf.distribute.cluster_resolver, "TPUClusterResolver", lambda tpu: f"resolver of {tpu}"
    )
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", done.append)
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", done.append)
    monkeypatch.setattr(
        tf.distribute, "TPUStrategy", lambda resolver: tf.distribute.OneDeviceStrategy("/cpu:0")
    )
    assert isinstance(enter("tpu:mine"), tf.distribute.OneDeviceStrategy)
    assert done == ["resolver of mine"] * 2
