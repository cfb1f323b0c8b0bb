"""Ctrl-C at any moment of a command ends it with status 130, one line, and without files."""

import contextlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import keras
import pytest

from keras_bert.cli import reading
from keras_bert.pretraining import train
from tests import pretraining_runs
from tests.cli.shared import TEXTS, run

_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{8}|tmp")


pytestmark = pytest.mark.usefixtures("hears_ctrl_c")


@pytest.fixture(scope="module")
def commands(encoder_folder, tmp_path_factory):
    """Return the arguments of `finetune` and `pretrain` except for `--output`."""
    folder = tmp_path_factory.mktemp("data")
    file = folder / "a.tsv"
    file.write_text(TEXTS)
    pretraining_runs.records(folder)
    config = folder / "config.json"
    config.write_text(json.dumps(pretraining_runs.CONFIG))
    return {
        "finetune": ["finetune", "--model", encoder_folder, "--train", file, "--dev", file,
                     "--epochs", 10**5, "--batch-size", 4],
        "pretrain": ["pretrain", "--records", folder / "records", "--config", config,
                     "--steps", 10**5, "--lengths", 16, "--batch-size", 4, "--log-every", 1],
    }  # fmt: skip


def swallow():
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGINT)


def swallow_first(function):
    """Return a function that swallows Ctrl-C and calls `function`."""

    def swallow_and_call(*args, **options):
        swallow()
        return function(*args, **options)

    return swallow_and_call


def fail_first(function):
    """Return a function that turns Ctrl-C into another error, as TensorFlow does."""

    def fail(*args, **options):
        swallow()
        raise RuntimeError("KeyboardInterrupt in a callback")

    return fail


@pytest.mark.parametrize("wrap", [swallow_first, fail_first])
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("finetune", (importlib, "import_module")),
        ("finetune", (reading, "load")),
        ("finetune", (keras.Model, "fit")),
        ("pretrain", (train, "compile_model")),
        ("pretrain", (keras.Model, "fit")),
    ],
)
def test_a_command_ends_where_ctrl_c_is_swallowed(
    name, place, wrap, commands, tmp_path, eager, monkeypatch, capfd
):
    monkeypatch.setattr(*place, wrap(getattr(*place)))
    options = ["--epochs" if name == "finetune" else "--steps", 2, "--output", tmp_path / "model"]
    assert run(*commands[name], *options) == 130
    assert capfd.readouterr().err.splitlines()[-1] == "keras-bert: stopped"
    assert {path.name for path in tmp_path.rglob("*.*")} <= {".lock"}


def test_other_commands_end_where_an_import_swallows_ctrl_c(monkeypatch, capfd):
    monkeypatch.setattr(importlib, "import_module", swallow_first(importlib.import_module))
    assert run("info", "minilm") == 130
    assert capfd.readouterr().err == "keras-bert: stopped\n"


def test_status_after_ctrl_c_in_a_module_that_calls_exec(tmp_path, monkeypatch):
    """CPython would end `python -m` by SIGINT, not with status 130."""
    (tmp_path / "keras.py").write_text(
        "import signal, sys\n"
        "sys.modules.pop('colorsys', None)\n"
        "signal.raise_signal(signal.SIGINT)\n"
        "exec('import colorsys')\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    with start("info", "minilm") as process:
        _, error = process.communicate()
    assert (process.returncode, error) == (130, "keras-bert: stopped\n")


def start(*arguments, program=("-m", "keras_bert")):
    """Start a command in a process."""
    command = [sys.executable, *program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def seconds_to_first_line(arguments, line):
    """Return the seconds until a command writes a line to stderr."""
    begin = time.monotonic()
    with start(*arguments) as process:
        for written in process.stderr:
            if written.startswith(line):
                break
        seconds = time.monotonic() - begin
        process.kill()
    return seconds


# An import can swallow the exception of Python's own handler. So the program says when `main`
# begins, which installs another handler.
_WITH_START_LINE = """
import sys
from keras_bert.__main__ import main
print(flush=True)
sys.exit(main())
"""


def interrupt_after(seconds, arguments, output):
    """Send SIGINT to a command, and check how it ends."""
    with start(*arguments, "--output", output, program=("-c", _WITH_START_LINE)) as process:
        process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        try:
            out, error = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    files = [path.name for path in output.rglob("*")] if output.exists() else []
    where = (seconds, process.returncode, out, error, files)
    assert not any(_TEMPORARY.match(name) for name in files), where
    assert "Traceback" not in error and "WARNING" not in error, where
    if process.returncode == 0:
        assert arguments[0] == "finetune" and "stopped early" in out, where
        assert "model.keras" in files, where
        return
    assert process.returncode == 130, where
    assert error.splitlines()[-1].startswith("keras-bert: stopped"), where
    if arguments[0] == "finetune":
        assert files == [], where


@pytest.mark.slow
@pytest.mark.parametrize("name, line", [("finetune", "epoch 1 of"), ("pretrain", "step 1 of")])
def test_ctrl_c_ends_a_process_at_any_moment(name, line, commands, tmp_path):
    last = seconds_to_first_line([*commands[name], "--output", tmp_path / "first"], line)
    for index in range(6):
        seconds = 0.05 + last * index / 5
        interrupt_after(seconds, commands[name], tmp_path / f"model-{index}")
